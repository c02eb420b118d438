"""Which waiting jobs start now, without preemption: in order (`admit`), or behind a `promise` (`backfill`).

Both walk the queue in the order of its keys and place gangs with `placement.place` on scratch copies of the free GPUs,
so that the several starts of one decision never collide. They return rows and GPUs; nothing real is taken here. What
the groups of arrays hold is said in `sim.kernels.ledger`.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part
from sim.kernels.ledger import free_share, give, give_one, take, take_one
from sim.kernels.placement import place
from sim.kernels.service import SERVED, SPEED, progress_of
from sim.kernels.sorting import sort_pairs


@jit
def admit(queue, skip, rule, gangs, vc_left, state, shape, found):
    """Start waiting jobs in order; stop at the first that does not fit, or skip it.

    `vc_left` and `state` are scratch; a closed GPU has less than nothing free. Started jobs go to `found`. Returns the
    number of starts.
    """
    num_gpus, gpu_milli, worker_gpus, types, vc = gangs
    free, _, type_idle = state
    rows, ends, out = found
    count, at = 0, 0
    left, whole = free_share(free), _total(type_idle)
    for q in range(queue.size):
        if left == 0:
            break
        row = queue[q]
        need, milli = num_gpus[row], gpu_milli[row]
        demand = np.int64(need) * np.int64(milli)
        end = -1
        if demand <= left and demand <= vc_left[vc[row]] and (milli < 1000 or need <= whole):
            end = place(rule, need, milli, worker_gpus[row], types[row], state, shape, out, at)
        if end < 0:
            if skip:
                continue
            break
        left -= demand
        if milli == 1000:
            whole -= need
        else:
            whole = _total(type_idle)
        vc_left[vc[row]] -= demand
        rows[count] = row
        ends[count] = end
        at = end
        count += 1
    return count


@part
def _total(idle):
    total = np.int64(0)
    for t in range(idle.size):
        total += idle[t]
    return total


@part
def promise(head, rows, ends_s, order, started, rule, held, gangs, vc_left, state, shape, found, out):
    """The first of some jobs' ends by which a waiting job is placed: each gives back what it holds, then `place` tries.

    `rows` are the jobs that run, then the `started` ones that `found` holds; `order` sorts them by `ends_s`. `vc_left`
    and `state` are scratch: they become what will be free then, without the GPUs of the job `head`, which go to `out`.
    Returns that time; inf where the last end brings no place (no promise: `out` is all -1).
    """
    num_gpus, gpu_milli, worker_gpus, types, vc = gangs
    slots, slot_at, slot_n = held
    _, start_ends, start_out = found
    running = rows.size - started
    need, milli = num_gpus[head], gpu_milli[head]
    demand = np.int64(need) * np.int64(milli)
    for k in range(order.size):
        i = order[k]
        row = rows[i]
        if i < running:
            mine = slots[slot_at[row] : slot_at[row] + slot_n[row]]
        else:
            j = i - running
            mine = start_out[start_ends[j - 1] if j > 0 else 0 : start_ends[j]]
        give(mine, gpu_milli[row], state, shape)
        vc_left[vc[row]] += np.int64(gpu_milli[row]) * mine.size
        if demand > vc_left[vc[head]] or (k + 1 < order.size and ends_s[order[k + 1]] == ends_s[i]):
            continue
        if place(rule, need, milli, worker_gpus[head], types[head], state, shape, out, 0) >= 0:
            vc_left[vc[head]] -= demand
            return ends_s[i]
    out[:] = -1
    return np.inf


@part
def backfill(queue, belief, head, promised, rule, gangs, vc_left, state, shape, later_left, later, found):
    """EASY: start jobs of `queue` that do not delay the job `head`, which is promised the GPUs `promised`.

    `belief` is now_s, shadow_s (the time of the promise), and by row estimate_s and served_s. `later` and `later_left`
    are what will be free then beside the promise. A job that ends by then (now_s + estimate_s - served_s <= shadow_s;
    where the estimate is unknown, NaN, it never does) may use all that is free now. Any other may use what is free now
    and then, or GPUs that are promised where the rule finds the head others; `promised` becomes those. Where nothing is
    promised (-1), everybody may use all. Returns the number of starts, as `admit`.
    """
    now_s, shadow_s, estimate_s, served_s = belief
    num_gpus, gpu_milli, worker_gpus, types, vc = gangs
    free, later_free = state[0], later[0]
    _, node_type, _, gpu_node, _ = shape
    rows, ends, out = found
    count, at = 0, 0
    both = (free.copy(), state[1].copy(), state[2].copy())
    _both_now(promised, state, later, both, shape)
    only = np.uint64(0)  # the type of the promise
    if promised[0] >= 0:
        only = np.uint64(1) << np.uint64(node_type[gpu_node[promised[0]]])
    left, spare = free_share(free), free_share(later_free)
    for q in range(queue.size):
        if left == 0:
            break
        row = queue[q]
        need, milli = num_gpus[row], gpu_milli[row]
        demand = np.int64(need) * np.int64(milli)
        if demand > left or demand > vc_left[vc[row]]:
            continue
        if only == np.uint64(0) or now_s + max(estimate_s[row] - served_s[row], 0.0) <= shadow_s:
            end = place(rule, need, milli, worker_gpus[row], types[row], state, shape, out, at)
            if end < 0:
                continue
            _both_now(out[at:end], state, later, both, shape)
        elif demand > spare or demand > later_left[vc[row]]:
            continue
        else:
            end = place(rule, need, milli, worker_gpus[row], types[row], both, shape, out, at)
            if end >= 0:
                take(out[at:end], milli, state, shape)
                take(out[at:end], milli, later, shape)
            elif types[row] & only:
                end = place(rule, need, milli, worker_gpus[row], types[row] & only, state, shape, out, at)
                if end >= 0 and not _promised_anew(head, promised, out[at:end], milli, rule, gangs, later, shape):
                    give(out[at:end], milli, state, shape)
                    end = -1
                if end >= 0:
                    for g in range(free.size):
                        _both_at(g, state, later, both, shape)
            if end < 0:
                continue
            spare -= demand
            later_left[vc[row]] -= demand
        left -= demand
        vc_left[vc[row]] -= demand
        rows[count] = row
        ends[count] = end
        at = end
        count += 1
    return count


@jit
def fill_behind(rest, running, count, rule, now_s, estimate_s, service, held, gangs, vc_left, state, shape, found,
                behind):  # fmt: skip
    """Promise the first of `rest` a place, beside `count` starts in `found`, and start others that do not delay it.

    `running` are the rows that run; believed ends are now_s + what is left of `estimate_s` at the present speed (of a
    job that starts now: 1). Starts go to `behind`. Returns how many.
    """
    rows = np.empty(running.size + count, dtype=np.int32)
    for i in range(rows.size):
        rows[i] = running[i] if i < running.size else found[0][i - running.size]
    ends_s = np.empty(rows.size)
    for i in range(rows.size):
        left_s = estimate_s[rows[i]] - progress_of(rows[i], now_s, service)
        left_s = np.inf if np.isnan(left_s) else max(left_s, 0.0)
        speed = service[SPEED, rows[i]]
        ends_s[i] = now_s + left_s / (speed if speed > 0 else 1.0)
    keys, order = ends_s.copy(), np.arange(rows.size, dtype=np.int32)
    sort_pairs(keys, order)
    head = rest[0]
    promised = np.empty(gangs[0][head], dtype=np.int32)
    later_left, later = vc_left.copy(), (state[0].copy(), state[1].copy(), state[2].copy())
    shadow_s = promise(head, rows, ends_s, order, count, rule, held, gangs, later_left, later, shape, found, promised)
    belief = now_s, shadow_s, estimate_s, service[SERVED]
    return backfill(rest[1:], belief, head, promised, rule, gangs, vc_left, state, shape, later_left, later, behind)


@part
def _both_now(gpus, state, later, both, shape):
    """Make `both`, what is free now and then, true for these GPUs."""
    for i in range(gpus.size):
        if gpus[i] >= 0:
            _both_at(gpus[i], state, later, both, shape)


@part
def _both_at(g, state, later, both, shape):
    change = min(state[0][g], later[0][g]) - both[0][g]
    if change > 0:
        give_one(g, change, both, shape)
    elif change < 0:
        take_one(g, -change, both, shape)


@part
def _promised_anew(head, promised, gpus, milli, rule, gangs, later, shape):
    """Take `gpus` from what will be free, and place the head anew; False, and nothing changes, where it cannot be."""
    num_gpus, gpu_milli, worker_gpus, types, _ = gangs
    old = promised.copy()
    give(old, gpu_milli[head], later, shape)
    if take(gpus, milli, later, shape) >= 0:
        take(old, gpu_milli[head], later, shape)
        return False
    if place(rule, num_gpus[head], gpu_milli[head], worker_gpus[head], types[head], later, shape, promised, 0) < 0:
        give(gpus, milli, later, shape)
        for i in range(old.size):
            promised[i] = old[i]
        take(old, gpu_milli[head], later, shape)
        return False
    return True
