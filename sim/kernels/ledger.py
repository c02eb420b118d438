"""Take and return shares of GPUs: exact integer arithmetic, all or nothing.

What the kernels of a cluster share comes in groups, plain tuples of arrays (a named tuple costs 3 µs a call):

`state`     free, idle, type_idle: int32, free share of each GPU in milli, wholly free GPUs of each node, of each type
`shape`     node_first, node_type, node_gpus, gpu_node: int32, as in `sim.cluster.spec.ClusterSpec`, but writable; and
            groups: int32 [types, links], how many GPUs of a node each link joins, or () (`sim.kernels.within_node`)
`gangs`     num_gpus, gpu_milli, worker_gpus, types, vc: what each job asks for, by row
`held`      slots, slot_at, slot_n: running job `row` has the GPUs slots[slot_at[row] : slot_at[row] + slot_n[row]]
`found`     rows, ends, out: the answer; placed job i has the row rows[i] and the GPUs out[ends[i - 1] : ends[i]]
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@part
def take_one(g, milli, state, shape):
    """Subtract `milli` from GPU g; an idle GPU stops being idle."""
    free, idle, type_idle = state
    _, node_type, _, gpu_node, _ = shape
    if free[g] == 1000:
        node = gpu_node[g]
        idle[node] -= 1
        type_idle[node_type[node]] -= 1
    free[g] -= milli


@part
def give_one(g, milli, state, shape):
    """Add `milli` to GPU g; a GPU that is whole again is idle."""
    free, idle, type_idle = state
    _, node_type, _, gpu_node, _ = shape
    free[g] += milli
    if free[g] == 1000:
        node = gpu_node[g]
        idle[node] += 1
        type_idle[node_type[node]] += 1


@jit
def take(gpus, milli, state, shape):
    """Subtract `milli` from each GPU listed.

    Returns -1, or the position of the first GPU that lacks it or does not exist (then nothing is taken).
    """
    free = state[0]
    for i in range(gpus.size):
        g = gpus[i]
        if g < 0 or g >= free.size or free[g] < milli:
            for k in range(i):
                give_one(gpus[k], milli, state, shape)
            return i
        take_one(g, milli, state, shape)
    return -1


@jit
def give(gpus, milli, state, shape):
    """Add `milli` back to each GPU listed."""
    for i in range(gpus.size):
        give_one(gpus[i], milli, state, shape)


@jit
def give_held(job_rows, held, gangs, vc_left, state, shape):
    """Give back all that some running jobs hold, to the GPUs and to their virtual clusters."""
    slots, slot_at, slot_n = held
    _, gpu_milli, _, _, vc = gangs
    for i in range(job_rows.size):
        row = job_rows[i]
        for s in range(slot_at[row], slot_at[row] + slot_n[row]):
            give_one(slots[s], gpu_milli[row], state, shape)
        vc_left[vc[row]] += np.int64(gpu_milli[row]) * slot_n[row]


@part
def free_share(free):
    """Milli-GPU free in all: a GPU that is closed has less than nothing free, and does not count."""
    total = np.int64(0)
    for g in range(free.size):
        total += max(free[g], 0)
    return total


@jit
def type_bits(gpus, gpu_node, node_type):
    """Bit t set: some GPU listed is of type t; -1 where a GPU listed does not exist."""
    bits = np.int64(0)
    for i in range(gpus.size):
        if gpus[i] < 0 or gpus[i] >= gpu_node.size:
            return np.int64(-1)
        bits |= np.int64(1) << np.int64(node_type[gpu_node[gpus[i]]])
    return bits


@jit
def whole_workers(gpus, worker, gpu_node):
    """True where each node listed holds a multiple of `worker` slots (GPUs of a node stand together in `gpus`)."""
    run = 0
    for i in range(gpus.size):
        if i > 0 and gpu_node[gpus[i]] != gpu_node[gpus[i - 1]]:
            if run % worker != 0:
                return False
            run = 0
        run += 1
    return run % worker == 0
