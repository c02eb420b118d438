"""Stages of down-sets where the model branches: the pipelines of least period, cut anywhere and in any order.

A graph that branches has more cuts than places in one topological order. On a coarse graph (few enough down-sets) the
dynamic program over down-sets finds the least period for every vector of GPU counts; each is proposed with the order
in which its stages are consecutive (`Plan.order`). A graph without branches has none to propose.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from policies.recommend.algorithms.all_downsets import DownSets, coarsen, down_sets
from policies.recommend.algorithms.lattice import LatticeFront, lattice_front
from policies.recommend.methods.exact import scales
from policies.recommend.request.pace import pace_s
from policies.recommend.request.partition_problem import Problem
from policies.recommend.request.request import Request
from sim.api import Plan, Stage
from sim.performance.gpu_links import network_bytes_per_s
from sim.performance.graph import VALUE_BYTES
from sim.performance.memory import GIB

REORDERS = True
MOST_SETS = 400
"""Down-sets of the coarse graph: the program's time grows with their square."""
PARTS = 4
"""A stage is taken for so small a part of the model, where an all-reduce's figures depend on its size."""
BEST = 24
"""Plans of one micro-batch count that get the truth: those of the least period for each number of GPUs first."""


def propose(request: Request) -> Iterator[Plan]:
    """Pipelines of two stages or more in another order than the graph's."""
    if not request.space.orders or request.measured or request.budget < 2:
        return
    sets = coarse_sets(request)
    if sets is None or len(sets) == len(sets.groups) + 1:
        return
    graph = request.performance.graph(request.model)
    crossing = crossing_bytes(sets, graph.inputs, graph.out_bytes)
    members = request.fleet.present
    one_type = [[t] for t in members] if request.space.single_type or len(members) == 1 else [list(members)]
    for types in one_type:
        for problem in scales(request, types):
            for m in request.space.micro_batches:
                if 1 < m <= request.batch_size:
                    yield from _plans(problem, sets, _front(problem, sets, crossing, m), m)


def coarse_sets(request: Request) -> DownSets | None:
    """All down-sets of the model's graph, made coarse until there are at most `MOST_SETS`; None: there are more."""
    inputs, gpu = request.performance.graph(request.model).inputs, request.fleet.types[request.fleet.present[0]]
    weight = np.add(*pace_s(request.performance, request.model, max(1.0, request.batch_size / request.budget), gpu))
    return down_sets(inputs, coarsen(inputs, weight.tolist(), limit=MOST_SETS), limit=MOST_SETS)


def crossing_bytes(sets: DownSets, inputs: tuple[tuple[int, ...], ...], out_bytes: np.ndarray) -> np.ndarray:
    """Bytes of one sample that cross the cut after each down-set, each output once: float64 [I]."""
    group = {op: g for g, ops in enumerate(sets.groups) for op in ops}
    readers: list[set[int]] = [set() for _ in inputs]
    for op, sources in enumerate(inputs):
        for source in sources:
            if source >= 0:
                readers[source].add(group[op])
    total = np.zeros(len(sets))
    for op, groups in enumerate(readers):
        if groups - {group[op]}:
            total += out_bytes[op] * (sets.members[:, group[op]] & ~sets.members[:, sorted(groups)].all(axis=1))
    return total


def _front(problem: Problem, sets: DownSets, crossing: np.ndarray, m: int) -> LatticeFront:
    """Least periods for each vector of units with m micro-batches (all-reduces and steps count in parts of 1 / m)."""
    performance, graph = problem.performance, problem.performance.graph(problem.model)
    shape = len(problem.types), len(problem.sizes)
    cost, memory = np.zeros((2, len(sets.groups), *shape))
    fixed = np.zeros(shape)
    starts = np.cumsum([0, *map(len, sets.groups)])[:-1]
    ops = np.concatenate([np.array(group, dtype=np.int64) for group in sets.groups])
    dense = np.add.reduceat((graph.weight_params - graph.sparse_params)[ops], starts)
    params, stored = (np.add.reduceat(column[ops], starts) for column in (graph.weight_params, graph.stored_bytes))
    scale, num_param_bytes = performance.value_bytes / VALUE_BYTES, performance.value_bytes * dense.sum()
    for t, gpu in enumerate(problem.types):
        for q, size in enumerate(problem.sizes):
            samples = problem.samples(m, size * problem.unit)
            if samples < 1 or size * problem.unit > problem.counts[t]:
                fixed[t, q] = np.inf
                continue
            work = np.add.reduceat(np.add(*pace_s(performance, problem.model, samples, gpu))[ops], starts)
            cost[:, t, q] = work
            if size * problem.unit > 1:
                start_s, s_per_byte = problem.allreduce_lines(t, size * problem.unit)
                # The line that serves a part of the model; another one's stages are dearer here than they are.
                line = int((start_s + s_per_byte * num_param_bytes / PARTS).argmin())
                fixed[t, q] = start_s[line] / m
                cost[:, t, q] += dense * performance.value_bytes * s_per_byte[line] / m
            memory[:, t, q] = (performance.param_bytes * params + samples * scale * stored) / GIB
    links = performance.links
    num_bytes = crossing * problem.batch_size / m * scale
    one_way_s = links.network_latency_s + num_bytes / network_bytes_per_s(links, 1)
    border = np.repeat(one_way_s, shape[0] ** 2).reshape(-1, shape[0], shape[0])
    return lattice_front(sets, cost, border, problem.limits, problem.total, problem.sizes, fixed_s=fixed,
                         memory=memory, capacity=[gpu.memory_gib for gpu in problem.types])  # fmt: skip


def _plans(problem: Problem, sets: DownSets, front: LatticeFront, m: int) -> Iterator[Plan]:
    """The chains of least period as plans."""
    worth = np.lexsort((front.vectors.sum(axis=1), front.period_s))
    own = tuple(range(sum(map(len, sets.groups))))
    for v in worth[np.isfinite(front.period_s[worth])][:BEST].tolist():
        chain = front.chains[v]
        if len(chain) < 2:
            continue
        order, first = sets.order([stage.end for stage in chain])
        spans = pairwise((*first, len(order)))
        stages = tuple(
            Stage(begin, end - 1, problem.types[stage.type].name, problem.sizes[stage.size] * problem.unit)
            for (begin, end), stage in zip(spans, chain, strict=True)
        )
        yield Plan(stages, m, order=() if order == own else order)
