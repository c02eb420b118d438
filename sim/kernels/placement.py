"""Find GPUs for a gang: the placement rules, as one kernel that all policies share.

A rule looks at one GPU type after the other (in the order of `ClusterSpec.types`, as far as the job allows it) and
takes the first type that can hold the whole gang. The arrays of `state` are taken from; a caller passes copies if it
only wants to look. What `state` and `shape` hold is said in `sim.kernels.ledger`.

==============  ==================================================================================================
`COUNT`         only the number of free GPUs counts: lowest nodes first, the gang may lie anywhere
`FIRST_FIT`     one node that holds the gang, lowest first; a gang wider than a node takes floor(g/G) idle nodes of
                the largest size G and the first node that fits the rest (sizes in whole workers: 4 and 3 GPUs hold
                one worker of 3 each)
`BEST_FIT`      the same, with the node that has the fewest free GPUs among those that fit
`CONSOLIDATE`   as `BEST_FIT`; where that fails, spread over the fewest nodes instead of waiting
==============  ==================================================================================================

Slots of a fraction of a GPU: the first GPU (`COUNT`, `FIRST_FIT`), or the fullest GPU (`BEST_FIT`, `CONSOLIDATE`), that
still has the share; slots of one gang may share a GPU.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part
from sim.kernels.ledger import give_one, take_one
from sim.kernels.within_node import gather_shares, take_from_node

COUNT, FIRST_FIT, BEST_FIT, CONSOLIDATE = 0, 1, 2, 3
RULES = {"count": COUNT, "first-fit": FIRST_FIT, "best-fit": BEST_FIT, "consolidate": CONSOLIDATE}


@jit
def place(rule, need, milli, worker, mask, state, shape, out, at):
    """Place a gang of `need` slots of `milli` each and take them.

    `worker` slots lie together on a node; bit t of `mask` allows type t. GPU numbers go to out[at:at + need].
    Returns at + need, or -1 where no allowed type can hold the gang now (then nothing is taken).
    """
    type_idle = state[2]
    for t in range(type_idle.size):
        if (mask >> np.uint64(t)) & np.uint64(1) == np.uint64(0):
            continue
        if milli == 1000:
            if type_idle[t] < need:
                continue
            end = _whole(rule, t, need, worker, state, shape, out, at)
        else:
            end = _shared(rule, t, need, milli, state, shape, out, at)
        if end >= 0:
            return end
    return -1


@part
def _undo(start, at, milli, state, shape, out):
    for i in range(start, at):
        give_one(out[i], milli, state, shape)
    return -1


@part
def fitting_node(rule, t, need, idle, node_type):
    """The node of type t that has `need` idle GPUs: the first, or the fullest; -1 where none has."""
    best, fewest = -1, 1 << 30
    for node in range(idle.size):
        if node_type[node] == t and idle[node] >= need and idle[node] < fewest:
            best, fewest = node, idle[node]
            if rule == FIRST_FIT or fewest == need:
                break
    return best


@part
def _whole(rule, t, need, worker, state, shape, out, start):
    idle = state[1]
    _, node_type, node_gpus, _, groups = shape
    at, rest = start, need
    if rule != COUNT:
        size = 0
        for node in range(node_type.size):
            if node_type[node] == t and node_gpus[node] > size:
                size = node_gpus[node]
        chunk = size - size % worker
        if chunk > 0:
            if rest > size:
                for node in range(node_type.size):
                    full = node_gpus[node]
                    if rest >= chunk and node_type[node] == t and full - full % worker == chunk and idle[node] == full:
                        at = take_from_node(node, chunk, worker, groups, state, shape, out, at)
                        rest -= chunk
            if rest == 0:
                return at
            if rest <= size and (rest < chunk or need <= size):
                node = fitting_node(rule, t, rest, idle, node_type)
                if node >= 0:
                    return take_from_node(node, rest, worker, groups, state, shape, out, at)
        _undo(start, at, 1000, state, shape, out)
        at, rest = start, need
        if rule != CONSOLIDATE:
            return -1
        for level in range(size, 0, -1):
            for node in range(node_type.size):
                if rest > 0 and node_type[node] == t and idle[node] == level:
                    count = min(level - level % worker, rest)
                    at = take_from_node(node, count, worker, groups, state, shape, out, at)
                    rest -= count
    else:
        for node in range(node_type.size):
            if rest > 0 and node_type[node] == t and idle[node] > 0:
                count = min(idle[node] - idle[node] % worker, rest)
                at = take_from_node(node, count, worker, groups, state, shape, out, at)
                rest -= count
    if rest > 0:
        return _undo(start, at, 1000, state, shape, out)
    return at


@part
def _shared(rule, t, need, milli, state, shape, out, start):
    free = state[0]
    node_first, node_type, _, _, groups = shape
    at, g = start, -1
    while at < start + need:
        if g < 0 or free[g] < milli:
            fewest, best = 1001, -1
            for node in range(node_type.size):
                if node_type[node] != t:
                    continue
                for i in range(node_first[node], node_first[node + 1]):
                    if milli <= free[i] < fewest:
                        best, fewest = i, free[i]
                        if rule <= FIRST_FIT or fewest == milli:
                            break
                if best >= 0 and (rule <= FIRST_FIT or fewest == milli):
                    break
            g = best
            if g < 0:
                return _undo(start, at, milli, state, shape, out)
        take_one(g, milli, state, shape)
        out[at] = g
        at += 1
    gather_shares(rule <= FIRST_FIT, milli, groups, state, shape, out, start, at)
    return at
