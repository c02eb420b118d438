"""Which free GPUs of a node a gang takes: those that the nearest link joins.

Row t of `groups` (the last of `shape`) holds how many GPUs of a node each faster link of type t joins, from near to far
(`Links.groups`; 0: no more). A group of n holds the GPUs 0 to n - 1 of the node, n to 2n - 1, and so on. Where all GPUs
of each node are joined alike, `groups` is (): of another type, so that none of this is compiled. The rules, in order:

1. The gang's own link: the nearest group that holds all that it takes on the node, else the node.
2. In it the link of its workers: each in a group as near as can be for all of them.
3. The group with the least room that holds them, of equal ones that in the fullest larger group; so whole groups stay.
4. The fewest groups: those with the most room first, the last as in 3.
5. The lowest numbers.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import part
from sim.kernels.ledger import give_one, take_one


@part
def take_from_node(node, count, worker, groups, state, shape, out, at):
    """Take `count` idle GPUs of a node, `worker` of which belong together, workers one after the other."""
    node_first, node_type = shape[0], shape[1]
    if len(groups) > 0:
        level = _levels(groups[node_type[node]])
        if level > 0:
            first, past = node_first[node], node_first[node + 1]
            return _take_near(node, first, past, level, count, worker, state, shape, out, at)
    free, g = state[0], node_first[node]
    while count > 0:
        if free[g] == 1000:
            take_one(g, 1000, state, shape)
            out[at] = g
            at += 1
            count -= 1
        g += 1
    return at


@part
def gather_shares(first_gpu, milli, groups, state, shape, out, start, end):
    """Put the slots out[start:end], shares of GPUs by a rule, on each node where the nearest link joins them.

    In the group that nearest() finds the rule is that of all slots: the first GPU that has the share (`first_gpu`), or
    the fullest. A single slot stays on its GPU, but one that found no broken GPU breaks none of a whole group.
    """
    if len(groups) == 0:
        return
    free = state[0]
    node_first, node_type, _, gpu_node, _ = shape
    for i in range(start, end):
        node, slots, seen = gpu_node[out[i]], 0, False
        for k in range(start, end):
            if gpu_node[out[k]] == node:
                seen |= k < i
                slots += 1
        level = _levels(groups[node_type[node]])
        if seen or level == 0 or (slots == 1 and (first_gpu or free[out[i]] + milli < 1000)):
            continue
        for k in range(i, end):
            if gpu_node[out[k]] == node:
                give_one(out[k], milli, state, shape)
        first, past = np.int64(node_first[node]), np.int64(node_first[node + 1])
        a, b, link = nearest(np.int64(node), first, past, level, np.int64(slots), milli, np.int64(1), free, shape)
        if link == level:
            a, b = first, past
        g = np.int64(-1)
        for k in range(i, end):
            if gpu_node[out[k]] != node:
                continue
            if g < 0 or free[g] < milli:
                g = np.int64(-1)
                for other in range(a, b):
                    if free[other] >= milli and (g < 0 or (not first_gpu and free[other] < free[g])):
                        g = other
            take_one(g, milli, state, shape)
            out[k] = g


@part
def nearest(node, first, past, level, count, milli, worker, free, shape):
    """The group of the nearest of the first `level` links that has room for `count` slots among the GPUs first:past.

    Returns its first GPU, the one past its last, and its link; the link is `level` where none has room.
    """
    node_first, node_type, _, _, groups = shape
    base, end, sizes = np.int64(node_first[node]), np.int64(node_first[node + 1]), groups[node_type[node]]
    best_first, best_past = np.int64(-1), np.int64(-1)
    for link in range(level):
        best = np.int64(-1)
        b = first
        while b < past:
            a, b = b, _end_of_part(base, b, past, sizes[link])
            room = _room(a, b, milli, free)
            if room < count:
                continue
            key = room
            if link > 0 and 1 < worker < count:
                key += _worker_link(base, a, b, link, count, worker, sizes, free) << 20
            for outer in range(link + 1, _levels(sizes)):
                near = base + (a - base) // sizes[outer] * sizes[outer]
                key = (key << 20) + _room(near, min(near + sizes[outer], end), milli, free)
            if best < 0 or key < best:
                best, best_first, best_past = key, a, b
        if best >= 0:
            return best_first, best_past, np.int64(link)
    return best_first, best_past, np.int64(level)


@part
def _take_near(node, first, past, level, count, worker, state, shape, out, at):
    """Take idle GPUs of first:past, which the first `level` links divide into groups.

    What is still to take stands on a stack of such questions, and of each the link by which it is split (-1: not known
    yet): Numba keeps no kernel that calls itself.
    """
    free = state[0]
    node_first, node_type, _, _, groups = shape
    base, sizes = np.int64(node_first[node]), groups[node_type[node]]
    stack, depth = np.empty((3 * (level + 2), 6), dtype=np.int64), 0
    depth = _push(stack, depth, first, past, level, count, worker, -1)
    while depth > 0:
        depth -= 1
        first, past, level, count, worker, split = stack[depth]
        if count == 0:
            continue
        if level == 0:
            for g in range(first, past):
                if count > 0 and free[g] == 1000:
                    take_one(g, 1000, state, shape)
                    out[at] = g
                    at += 1
                    count -= 1
            continue
        a, b, link = nearest(node, first, past, level if split < 0 else split + 1, count, 1000, worker, free, shape)
        if split < 0 and link == level:
            split = min(_worker_link(base, first, past, level, count, worker, sizes, free), level - 1)
            a, b, link = nearest(node, first, past, split + 1, count, 1000, worker, free, shape)
        if link <= split or split < 0:
            depth = _push(stack, depth, a, b, link, count, worker, -1)
            continue
        part, room = np.int64(0), np.int64(0)
        d = first
        while d < past:
            c, d = d, _end_of_part(base, d, past, sizes[split])
            here = _room(c, d, 1000, free)
            whole = here - here % worker
            if whole > part or (whole == part > 0 and here < room):
                a, b, part, room = c, d, whole, here
        rest = count - (part if part > 0 else min(worker, count))
        depth = _push(stack, depth, first, past, level, rest, worker, split)
        if part > 0:
            depth = _push(stack, depth, a, b, split, part, worker, -1)
        else:  # a worker that no group holds
            depth = _push(stack, depth, first, past, level, count - rest, np.int64(1), -1)
    return at


@part
def _push(stack, depth, first, past, level, count, worker, split):
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = first, past, level
    stack[depth, 3], stack[depth, 4], stack[depth, 5] = count, worker, split
    return depth + 1


@part
def _worker_link(base, first, past, level, count, worker, sizes, free):
    """The nearest of the first `level` links whose groups hold `count` slots in whole workers; `level`: none does."""
    for link in range(level):
        whole = np.int64(0)
        b = first
        while b < past:
            a, b = b, _end_of_part(base, b, past, sizes[link])
            room = _room(a, b, 1000, free)
            whole += room - room % worker
        if whole >= count:
            return np.int64(link)
    return np.int64(level)


@part
def _end_of_part(base, a, past, size):
    """One past the last GPU before `past` in the group of GPU a, of groups of `size` counted from `base`."""
    return min(past, base + ((a - base) // size + 1) * size)


@part
def _room(first, past, milli, free):
    """Slots of `milli` that fit on the GPUs first:past. (Of whole GPUs: those that are idle.)"""
    room = np.int64(0)
    for g in range(first, past):
        room += max(free[g] // milli, 0)
    return room


@part
def _levels(sizes):
    level = np.int64(0)
    while level < sizes.size and sizes[level] > 0:
        level += 1
    return level
