"""Which jobs hold GPUs now, running and waiting ones together: `select` may preempt.

It works on scratch copies and returns rows and GPUs; nothing real is taken here. What the groups of arrays hold is said
in `sim.kernels.ledger`.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part
from sim.kernels.ledger import free_share, give_one, take_one
from sim.kernels.placement import CONSOLIDATE, COUNT, fitting_node, place
from sim.kernels.sorting import sort_numbers
from sim.kernels.within_node import take_from_node

STOPS, STAYS, MOVES = 0, 1, 2


@jit
def select(run, run_key, queue, queue_key, keep, rule, held, gangs, vc_left, state, shape, found, chosen):
    """Choose which jobs hold GPUs now, running and waiting ones together, in the order of their keys.

    `run` and `queue` are sorted by their keys; on equal keys the running job goes first, so that equals never preempt
    each other. A job that does not fit is skipped. With `keep`, a running job that is chosen stays on its GPUs as
    long as no better job took them (then it is placed anew: moved); without, all are placed anew on an empty cluster.
    On a GPU that is closed (`free` negative, whatever is given back) a job may only stay.

    A waiting job takes GPUs that are free before it takes any from running jobs, and then those of the worst. Who loses
    one cannot stay, so that what nobody took of its others is free from then on.

    `vc_left` and `state` are scratch. Moved and started jobs go to `found`. `chosen` is stops, goes_on, bars, totals:
    rows that must stop, those that run from now on, for each of these the smallest key, not below its own, of one that
    waits from now on (inf: none; once its key is above that, the choice may be another), and how many stop, how many
    run on, and how many of the placed ones move. Returns how many are placed.
    """
    slots, slot_at, slot_n = held
    num_gpus, gpu_milli, worker_gpus, types, vc = gangs
    free, idle, type_idle = state
    _, node_type, _, gpu_node, _ = shape
    rows, ends, out = found
    stops, goes_on, bars, totals = chosen
    fate = np.zeros(run.size, dtype=np.int8)
    moves = 0
    waiting, waits = np.empty(run.size + queue.size + 1), 0  # keys of those who wait, ascending, each once
    # The hot loops below are written out: in a compiled loop, a call with arrays costs ten times what such a call does.
    # A (`state`): what is left to give to jobs in order of their keys.
    # B (`state_b`): the part of A that no undecided running job holds, max(0, A - undecided).
    state_b = (free.copy(), idle.copy(), type_idle.copy())
    undecided = np.zeros(free.size, dtype=np.int32)
    holder = np.full(free.size, -1, dtype=np.int32)
    lost = np.zeros(run.size, dtype=np.bool_)  # jobs that others took GPUs from: they cannot stay
    left = np.int64(0)
    for i in range(run.size):
        row = run[i]
        milli = gpu_milli[row]
        for s in range(slot_at[row], slot_at[row] + slot_n[row]):
            g = slots[s]
            undecided[g] += milli
            free[g] += milli
            if free[g] < 0:
                left += milli
            if free[g] == 1000:
                idle[gpu_node[g]] += 1
                type_idle[node_type[gpu_node[g]]] += 1
            if holder[g] < 0:
                holder[g] = i
        vc_left[vc[row]] += np.int64(milli) * slot_n[row]
    left += free_share(free)
    count, at, i, q = 0, 0, 0, 0
    while left > 0 and (i < run.size or q < queue.size):
        from_run = i < run.size and (q >= queue.size or run_key[i] <= queue_key[q])
        row = run[i] if from_run else queue[q]
        need, milli = num_gpus[row], gpu_milli[row]
        demand = np.int64(need) * np.int64(milli)
        fits = demand <= left and demand <= vc_left[vc[row]]
        end = -1
        if from_run:
            here = i
            i += 1
            if keep and not lost[here]:
                # Its own GPUs again, all or nothing.
                first, last = slot_at[row], slot_at[row] + slot_n[row]
                s = first
                while s < last:
                    g = slots[s]
                    undecided[g] -= milli
                    if fits and (free[g] >= milli or free[g] < 0):
                        if free[g] == 1000:
                            idle[gpu_node[g]] -= 1
                            type_idle[node_type[gpu_node[g]]] -= 1
                        free[g] -= milli
                    elif fits:
                        fits = False
                        for k in range(first, s):
                            give_one(slots[k], milli, state, shape)
                    s += 1
                if fits:
                    fate[here] = STAYS
                    left -= demand
                    vc_left[vc[row]] -= demand
                    continue
                for s in range(first, last):  # what nobody took of its GPUs is free for all now
                    if holder[slots[s]] == here:
                        holder[slots[s]] = -1
                    _refresh(slots[s], undecided, state, state_b, shape)
                fits = demand <= left and demand <= vc_left[vc[row]]
        else:
            q += 1
        if fits:
            if keep:
                end = place(rule, need, milli, worker_gpus[row], types[row], state_b, shape, out, at)
                if end >= 0:
                    for s in range(at, end):
                        take_one(out[s], milli, state, shape)
                elif i < run.size:
                    end = _place_by_force(
                        rule, need, milli, worker_gpus[row], types[row], run, i, held, gpu_milli, undecided, holder,
                        lost, state, state_b, shape, out, at,
                    )
            else:
                end = place(rule, need, milli, worker_gpus[row], types[row], state, shape, out, at)
        if end < 0:
            key = run_key[i - 1] if from_run else queue_key[q - 1]
            if waits == 0 or waiting[waits - 1] < key:
                waiting[waits] = key
                waits += 1
            continue
        left -= demand
        vc_left[vc[row]] -= demand
        if from_run:
            if not keep and _same(row, held, out, at, end):
                fate[here] = STAYS
                continue
            fate[here] = MOVES
            moves += 1
        rows[count] = row
        ends[count] = end
        at = end
        count += 1
    # Of those that were not walked any more the first is enough.
    waiting[waits] = min(run_key[i] if i < run.size else np.inf, queue_key[q] if q < queue.size else np.inf)
    stopped, going, above = 0, 0, 0
    for i in range(run.size):
        if fate[i] == STOPS:
            stops[stopped] = run[i]
            stopped += 1
        else:
            while above < waits and waiting[above] < run_key[i]:
                above += 1
            goes_on[going], bars[going] = run[i], waiting[above]
            going += 1
    above, q = 0, 0
    for k in range(count):
        if slot_n[rows[k]] == 0:
            while queue[q] != rows[k]:
                q += 1
            while above < waits and waiting[above] < queue_key[q]:
                above += 1
            goes_on[going], bars[going] = rows[k], waiting[above]
            going += 1
    totals[0], totals[1], totals[2] = stopped, going, moves
    return count


@part
def _refresh(g, undecided, state, state_b, shape):
    """Make B true for GPU g: what A has there and no undecided running job holds."""
    change = max(0, state[0][g] - undecided[g]) - state_b[0][g]
    if change > 0:
        give_one(g, change, state_b, shape)
    elif change < 0:
        take_one(g, -change, state_b, shape)


@part
def _same(row, held, out, at, end):
    """True where out[at:end] are the GPUs that the job holds already, in any order."""
    slots, slot_at, slot_n = held
    if end - at != slot_n[row]:
        return False
    first = slot_at[row]
    a, b = slots[first : first + slot_n[row]].copy(), out[at:end].copy()
    sort_numbers(a)
    sort_numbers(b)
    i = 0
    while i < a.size and a[i] == b[i]:
        i += 1
    return i == a.size


@part
def _place_by_force(
    rule, need, milli, worker, mask, run, first, held, gpu_milli, undecided, holder, lost, state, state_b, shape, out,
    start,
):
    """Place a gang on GPUs that are free or held by running jobs of lower priority (run[first:])."""
    type_idle = state[2]
    end = -1
    for t in range(type_idle.size):
        if (mask >> np.uint64(t)) & np.uint64(1) == np.uint64(0):
            continue
        if milli < 1000 or worker > 1:
            only = np.uint64(1) << np.uint64(t)
            end = place(rule, need, milli, worker, only, state, shape, out, start)
        elif type_idle[t] < need:
            continue
        elif rule == COUNT:
            end = _worst_holders(need, t, run, first, held, state, state_b, shape, out, start)
        else:
            end = _worst_node(rule, need, t, holder, state, state_b, shape, out, start)
            if end < 0 and rule == CONSOLIDATE:
                end = _worst_holders(need, t, run, first, held, state, state_b, shape, out, start)
        if end >= 0:
            if worker == 1 and milli == 1000:
                _nearer(run, gpu_milli, holder, shape[4], state, state_b, shape, out, start, end)
            break
    for s in range(start, end):
        _refresh(out[s], undecided, state, state_b, shape)
        _lose(out[s], run, first, held, gpu_milli, undecided, holder, lost, state, state_b, shape)
    return end


@part
def _lose(g, run, first, held, gpu_milli, undecided, holder, lost, state, state_b, shape):
    """Who cannot stay now that GPU g was taken holds its other GPUs no more: they are free for all."""
    slots, slot_at, slot_n = held
    i = holder[g]
    if i < first:
        return
    last = i + 1 if gpu_milli[run[i]] == 1000 else run.size  # a GPU in shares may have other holders
    for j in range(i, last):
        row = run[j]
        milli, begin, end = gpu_milli[row], slot_at[row], slot_at[row] + slot_n[row]
        if lost[j] or state[0][g] >= milli or g not in slots[begin:end]:
            continue
        lost[j] = True
        for s in range(begin, end):
            undecided[slots[s]] -= milli
        for s in range(begin, end):
            if holder[slots[s]] == j:
                holder[slots[s]] = -1
            _refresh(slots[s], undecided, state, state_b, shape)


@part
def _worst_holders(need, t, run, first, held, state, state_b, shape, out, at):
    """Whole GPUs of type t: the free ones, then those of the running job with the largest key, and so on."""
    slots, slot_at, slot_n = held
    free, free_b = state[0], state_b[0]
    _, node_type, _, gpu_node, _ = shape
    rest = need
    for g in range(free.size):
        if rest > 0 and free_b[g] == 1000 and node_type[gpu_node[g]] == t:
            take_one(g, 1000, state, shape)
            out[at] = g
            at += 1
            rest -= 1
    i = run.size - 1
    while rest > 0 and i >= first:
        row = run[i]
        for s in range(slot_at[row], slot_at[row] + slot_n[row]):
            g = slots[s]
            if rest > 0 and free[g] == 1000 and node_type[gpu_node[g]] == t:
                take_one(g, 1000, state, shape)
                out[at] = g
                at += 1
                rest -= 1
        i -= 1
    if rest > 0:  # only shared GPUs in between: cannot happen while type_idle counted right, so undo to be safe
        for k in range(at - (need - rest), at):
            give_one(out[k], 1000, state, shape)
        return -1
    return at


@part
def _nearer(run, gpu_milli, holder, groups, state, state_b, shape, out, start, end):
    """Take other GPUs of the same nodes where nearer links join them: free ones, or of jobs that lose some already."""
    if len(groups) == 0:
        return
    free, idle, type_idle = state
    _, _, _, gpu_node, _ = shape
    loses = np.zeros(run.size, dtype=np.bool_)
    for k in range(start, end):
        if state_b[0][out[k]] < 1000 and holder[out[k]] >= 0:
            loses[holder[out[k]]] = True
        give_one(out[k], 1000, state, shape)
    open_ = np.zeros_like(free)
    for g in range(free.size):
        mine = holder[g]
        if free[g] == 1000 and (state_b[0][g] == 1000 or (mine >= 0 and loses[mine] and gpu_milli[run[mine]] == 1000)):
            open_[g] = 1000
    for k in range(start, end):
        open_[out[k]] = 1000
    at = start
    while at < end:
        node, count = gpu_node[out[at]], 0
        for k in range(at, end):
            if gpu_node[out[k]] == node:  # those of the node together
                out[at + count], out[k] = out[k], out[at + count]
                count += 1
        at = take_from_node(node, count, 1, groups, (open_, idle, type_idle), shape, out, at)
    for k in range(start, end):
        free[out[k]] -= 1000


@part
def _worst_node(rule, need, t, holder, state, state_b, shape, out, start):
    """Whole GPUs on one node of type t (or on full nodes and one more), harming the worst running jobs."""
    free, idle, _ = state
    free_b, idle_b, _ = state_b
    node_first, node_type, node_gpus, _, _ = shape
    size = 0
    for node in range(node_type.size):
        if node_type[node] == t and node_gpus[node] > size:
            size = node_gpus[node]
    at, rest = start, need
    if rest > size:
        for pure in range(2):
            for node in range(node_type.size):
                if rest >= size and node_type[node] == t and node_gpus[node] == size and idle[node] == size:
                    if pure == 0 and idle_b[node] < size:
                        continue
                    for g in range(node_first[node], node_first[node + 1]):
                        take_one(g, 1000, state, shape)
                        out[at] = g
                        at += 1
                    rest -= size
    if rest == 0:
        return at
    best = -1
    if rest < size or need <= size:
        best = fitting_node(rule, t, rest, idle_b, node_type)
        if best >= 0 and idle[best] < rest:  # taken a moment ago, in the loop above
            best = -1
        best_harm = -1
        if best < 0:
            for node in range(node_type.size):
                if node_type[node] == t and idle[node] >= rest:
                    harm = _harm(node, rest, holder, free, free_b, node_first)
                    if harm > best_harm:
                        best, best_harm = node, harm
    if best < 0:
        for k in range(start, at):
            give_one(out[k], 1000, state, shape)
        return -1
    while rest > 0:
        worst, worst_at = -1, -1
        for g in range(node_first[best], node_first[best + 1]):
            if free[g] == 1000:
                rank = np.int64(1) << 30 if free_b[g] == 1000 else np.int64(holder[g])
                if rank > worst:
                    worst, worst_at = rank, g
        take_one(worst_at, 1000, state, shape)
        out[at] = worst_at
        at += 1
        rest -= 1
    return at


@part
def _harm(node, need, holder, free, free_b, node_first):
    """Rank of the best running job that loses a GPU if `need` GPUs of the node are taken (higher: less harm).

    That is the need-th largest rank of the node's whole GPUs; a GPU that nobody holds has the largest.
    """
    below = np.int64(1) << 40
    while True:
        top, count = np.int64(-2), 0
        for g in range(node_first[node], node_first[node + 1]):
            if free[g] == 1000:
                rank = np.int64(1) << 30 if free_b[g] == 1000 else np.int64(holder[g])
                if top < rank < below:
                    top, count = rank, 1
                elif rank == top:
                    count += 1
        need -= count
        if need <= 0 or count == 0:
            return top
        below = top
