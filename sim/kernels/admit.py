"""Which waiting jobs start now, without preemption: in order (`admit`), or behind a promise (`backfill`).

Both walk the queue in the order of its keys and place gangs with `placement.place` on scratch copies of the free GPUs,
so that the several starts of one decision never collide. They return rows and GPUs; nothing real is taken here. What
the groups of arrays hold is said in `sim.kernels.ledger`.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit
from sim.kernels.ledger import free_share
from sim.kernels.placement import place


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
    left, whole = free_share(free), np.int64(type_idle.sum())
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
            whole = np.int64(type_idle.sum())
        vc_left[vc[row]] -= demand
        rows[count] = row
        ends[count] = end
        at = end
        count += 1
    return count


@jit
def backfill(queue, belief, promise, rule, gangs, vc_left, state, shape, found):
    """EASY: start jobs of `queue` that do not delay the job that has GPUs of a type promised.

    `promise` is that type, the time at which it is kept, and the milli-GPUs that it leaves: reserved, shadow_s, spare.
    `belief` is now_s, and by row estimate_s and served_s. A job may use the reserved type if it ends by then
    (now_s + estimate_s - served_s <= shadow_s; where the estimate is unknown, NaN, it never does), or if it takes no
    more than the `spare` milli-GPUs that the promise leaves. Returns the number of starts, as `admit`.
    """
    now_s, estimate_s, served_s = belief
    reserved, shadow_s, spare = promise
    num_gpus, gpu_milli, worker_gpus, types, vc = gangs
    _, node_type, _, gpu_node = shape
    rows, ends, out = found
    count, at = 0, 0
    promised = np.uint64(1) << np.uint64(reserved)
    left = free_share(state[0])
    for q in range(queue.size):
        if left == 0:
            break
        row = queue[q]
        milli = gpu_milli[row]
        demand = np.int64(num_gpus[row]) * np.int64(milli)
        if demand > left or demand > vc_left[vc[row]]:
            continue
        mask = types[row]
        brief = now_s + max(estimate_s[row] - served_s[row], 0.0) <= shadow_s
        if not brief and demand > spare:
            mask = mask & ~promised
            if mask == np.uint64(0):
                continue
        end = place(rule, num_gpus[row], milli, worker_gpus[row], mask, state, shape, out, at)
        if end < 0:
            continue
        if not brief and node_type[gpu_node[out[at]]] == reserved:
            spare -= demand
        left -= demand
        vc_left[vc[row]] -= demand
        rows[count] = row
        ends[count] = end
        at = end
        count += 1
    return count
