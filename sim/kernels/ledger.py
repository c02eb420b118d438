"""Take and return shares of GPUs: exact integer arithmetic, all or nothing."""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def take_one(g, milli, free, idle, type_idle, gpu_node, node_type):
    """Subtract `milli` from GPU g; an idle GPU stops being idle."""
    if free[g] == 1000:
        node = gpu_node[g]
        idle[node] -= 1
        type_idle[node_type[node]] -= 1
    free[g] -= milli


@jit
def give_one(g, milli, free, idle, type_idle, gpu_node, node_type):
    """Add `milli` to GPU g; a GPU that is whole again is idle."""
    free[g] += milli
    if free[g] == 1000:
        node = gpu_node[g]
        idle[node] += 1
        type_idle[node_type[node]] += 1


@jit
def take(gpus, milli, free, idle, type_idle, gpu_node, node_type):
    """Subtract `milli` from each GPU listed.

    Returns -1, or the position of the first GPU that lacks it or does not exist (then nothing is taken).
    """
    for i in range(gpus.size):
        g = gpus[i]
        if g < 0 or g >= free.size or free[g] < milli:
            for k in range(i):
                give_one(gpus[k], milli, free, idle, type_idle, gpu_node, node_type)
            return i
        take_one(g, milli, free, idle, type_idle, gpu_node, node_type)
    return -1


@jit
def give(gpus, milli, free, idle, type_idle, gpu_node, node_type):
    """Add `milli` back to each GPU listed."""
    for i in range(gpus.size):
        give_one(gpus[i], milli, free, idle, type_idle, gpu_node, node_type)


@jit
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
