"""Max-load splits: stages of one GPU each whose slowest is fastest, transfers included, on one GPU type.

Tarnawski et al. 2020 ('Efficient Algorithms for Device Placement of DNN Graph Operators', sections 3 and 5): the load
of a device is its operators' time, and that of each output that leaves it or enters it; memory binds
(`policies.recommend.algorithms.maxload_solve`). Devices take consecutive pieces of a chain of down-sets, so that a
model that branches is cut in any order. Here with r replicas of the whole pipeline, for every p x r = GPUs, on a graph
coarse enough for all its down-sets.

May choose: stages, their order, replicas of the whole, micro-batches, the number of GPUs.
May not: more than one GPU type, different replicas by stage, tensor parallelism; all-reduces are not in the load.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from policies.recommend.algorithms.all_downsets import DownSets
from policies.recommend.algorithms.maxload_graph import MaxLoad, Split
from policies.recommend.algorithms.maxload_solve import contiguous
from policies.recommend.methods.branches import MOST_SETS, coarse_sets
from policies.recommend.request.devices import divisors
from policies.recommend.request.pace import pace_s
from policies.recommend.request.request import Request
from policies.recommend.searching.one_type import bytes_per_s, gangs
from sim.api import Plan, Stage
from sim.performance.graph import VALUE_BYTES
from sim.performance.memory import GIB
from sim.performance.samples import largest_share

REORDERS = True


def propose(request: Request) -> Iterator[Plan]:
    """Plans of one type for each gang, number of stages and of micro-batches."""
    if request.measured or 1 not in request.space.tensor or not request.space.orders:
        return
    sets = coarse_sets(request)
    if sets is None:
        return
    for t, counts in gangs(request):
        for gpus in counts:
            for p in divisors(gpus):
                if 1 < p <= len(sets.groups):
                    yield from _plans(request, sets, t, p, gpus // p)


def _plans(request: Request, sets: DownSets, t: int, p: int, r: int) -> Iterator[Plan]:
    """At most p stages of r GPUs, for each number of micro-batches; memory as with one micro-batch held, or with p."""
    for m in request.space.micro_batches:
        if m * r > request.batch_size:
            continue
        found = dict[Plan, None]()
        for held in sorted({1, min(m, p)}):
            split = contiguous(problem(request, sets, t, p, r, m, held), limit=MOST_SETS, seed=request.seed)
            if np.isfinite(split.load):
                found[plan_of(request, sets, split, t, r, m)] = None
        yield from found


def problem(request: Request, sets: DownSets, t: int, p: int, r: int, m: int, held: int) -> MaxLoad:
    """The coarse graph on p accelerators, each r GPUs: seconds of a micro-batch, GiB with so many of them held."""
    performance, gpu = request.performance, request.fleet.types[t]
    graph, samples = performance.graph(request.model), largest_share(request.batch_size / (m * r))
    group = np.empty(len(graph), dtype=np.int64)
    for g, ops in enumerate(sets.groups):
        group[list(ops)] = g
    scale = performance.value_bytes / VALUE_BYTES
    time_s = np.add(*pace_s(performance, request.model, samples, gpu))
    num_bytes = performance.param_bytes * graph.weight_params + held * samples * scale * graph.stored_bytes
    accelerator, memory = (np.bincount(group, column, len(sets.groups)) for column in (time_s, num_bytes / GIB))
    edges = {(int(group[s]), g) for g, sources in zip(group.tolist(), graph.inputs, strict=True) for s in sources
             if s >= 0 and group[s] != g}  # fmt: skip
    # Of a group's outputs, those that another one reads; each goes there, and its gradient comes back.
    read = {s for op, sources in enumerate(graph.inputs) for s in sources if s >= 0 and group[s] != group[op]}
    out = np.zeros(len(graph))
    out[list(read)] = 2 * samples * scale * graph.out_bytes[list(read)] / bytes_per_s(request, t, p * r)
    every = np.arange(len(sets.groups))
    return MaxLoad(
        accelerator=accelerator, cpu=np.full(len(every), np.inf), memory=memory,
        transfer=np.bincount(group, out, len(every)), edges=tuple(sorted(edges)), colour=every,
        backward=np.zeros(len(every), dtype=bool), accelerators=p, cpus=0,
        capacity=max(0.0, gpu.memory_gib - performance.context_gib),
    )  # fmt: skip


def plan_of(request: Request, sets: DownSets, split: Split, t: int, r: int, m: int) -> Plan:
    """A split as stages; accelerators are numbered along the chain, and groups in a topological order."""
    name, order, stages = request.fleet.names[t], list[int](), list[Stage]()
    for device in np.unique(split.device).tolist():
        first = len(order)
        order += [op for g in np.flatnonzero(split.device == device) for op in sets.groups[g]]
        stages.append(Stage(first, len(order) - 1, name, r))
    return Plan(tuple(stages), m, order=() if order == sorted(order) else tuple(order))
