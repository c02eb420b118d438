"""Rates that are known already, by kind of job, GPU type and how a gang lies: what the fast lane looks up.

`known` is flat, kind, rack, table, entries, pool, rates, used: one rate of all (0: there is none), the kind of each
job and the rack of each node; a hash table of entry numbers (-1: empty); and of each entry kind, type, racks, nodes and
where in `pool` its GPUs a node begin, most first, and its rate. `used` is how many entries, and how much of `pool`,
that is.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part
from sim.kernels.sorting import sort_numbers


@part
def _layout(gpus, rack, shape):
    """GPUs on each node, most first, and how many racks they lie in (one node: 1)."""
    gpu_node = shape[3]
    counts = np.zeros(gpus.size, dtype=np.int32)
    if gpus.size == 1:
        counts[0] = 1
        return counts, 1
    nodes, racks = np.empty(gpus.size, dtype=np.int32), np.empty(gpus.size, dtype=np.int32)
    for i in range(gpus.size):
        nodes[i] = gpu_node[gpus[i]]
    sort_numbers(nodes)
    k = 0
    for i in range(nodes.size):
        if i > 0 and nodes[i] != nodes[i - 1]:
            k += 1
        counts[k] -= 1  # below zero until they are sorted: most first
        racks[k] = rack[nodes[i]]
    counts, racks = counts[: k + 1], racks[: k + 1]
    sort_numbers(counts)
    sort_numbers(racks)
    different = 1
    for i in range(counts.size):
        counts[i] = -counts[i]
        different += i > 0 and racks[i] != racks[i - 1]
    return counts, different


@part
def _place_of(kind, gpu_type, racks, counts, known):
    """Place in the table of an entry, or the empty one where it belongs."""
    _, _, _, table, entries, pool, _, _ = known
    mixed = np.uint64(kind) * np.uint64(1_000_003) + np.uint64(gpu_type) * np.uint64(8191) + np.uint64(racks)
    for count in counts:
        mixed = (mixed ^ np.uint64(count)) * np.uint64(1_099_511_628_211)
    place = np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(table.size - 1))
    while table[place] >= 0:
        e = table[place]
        if entries[e, 0] == kind and entries[e, 1] == gpu_type and entries[e, 2] == racks \
                and entries[e, 3] == counts.size:
            at, same = entries[e, 4], True
            for i in range(counts.size):
                same &= pool[at + i] == counts[i]
            if same:
                break
        place = (place + 1) & (table.size - 1)
    return place


@part
def known_rate(row, gpus, known, shape):
    """Work a second of a job on these GPUs; -1 where it is not known."""
    flat, kind, rack, table, _, _, rates, _ = known
    if flat[0] > 0:
        return flat[0]
    counts, racks = _layout(gpus, rack, shape)
    e = table[_place_of(kind[row], shape[1][shape[3][gpus[0]]], racks, counts, known)]
    return rates[e] if e >= 0 else -1.0


@jit
def learn_rate(row, gpus, rate, known, shape):
    """Remember a rate. What is full is forgotten first: it comes again where it is asked for."""
    _, kind, rack, table, entries, pool, rates, used = known
    counts, racks = _layout(gpus, rack, shape)
    if used[0] == rates.size or used[1] + counts.size > pool.size:
        used[:] = 0
        table[:] = -1
    gpu_type = shape[1][shape[3][gpus[0]]]
    e, at = used[0], used[1]
    table[_place_of(kind[row], gpu_type, racks, counts, known)] = e
    entries[e, 0], entries[e, 1], entries[e, 2] = kind[row], gpu_type, racks
    entries[e, 3], entries[e, 4] = counts.size, at
    for i in range(counts.size):
        pool[at + i] = counts[i]
    rates[e] = rate
    used[0], used[1] = e + 1, at + counts.size
