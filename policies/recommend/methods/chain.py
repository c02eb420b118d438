"""Chain: the least period of the whole chain of operators, neither operators nor GPU counts made coarse.

`exact` cuts between coarse blocks and counts GPUs in coarse units; here a stage begins at any operator and takes 1, 2,
4, ... GPUs of a type or all there are (`policies.recommend.algorithms.long_chain`). For each number of micro-batches:

* where the vectors of GPU counts fit a table, the exact front of period and cost within the fleet (`chain_fleet`), and
  the least period on each number of GPUs;
* else the front without limits on counts, as far as it lies within the fleet (`chain_renting`), and one plan of least
  period on the whole fleet (`chain_large`).

Filling and draining of the pipeline are not in the period, so the truth of the plans decides among them. Memory is that
of plans without recomputation and ZeRO.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from policies.recommend.algorithms.chain_fleet import FleetTable
from policies.recommend.algorithms.chain_large import large_fleet
from policies.recommend.algorithms.chain_renting import Renting
from policies.recommend.algorithms.long_chain import Chain, Partition, chain_of, reach_of
from policies.recommend.request.devices import given
from policies.recommend.request.pace import pace_s, step_pace_s
from policies.recommend.request.partition_problem import Problem
from policies.recommend.request.request import Request
from policies.recommend.searching.one_type import doubled
from sim.api import Plan, Stage
from sim.performance.graph import VALUE_BYTES
from sim.performance.memory import GIB, in_flight

MOST_CELLS = 30_000_000
"""Vectors x operators x options of an exact table: about half a second."""
LAYERS = 4
"""Stages from the last one that memory tells apart; those before count as the first of these."""
GAP = 0.02
"""Where bound and plan of a large fleet are as near, it is good enough for the truth to decide."""

Option = tuple[int, int]
"""GPU type and replicas of a stage."""


def propose(request: Request) -> Iterator[Plan]:
    """The front of each number of micro-batches, of all types together, or in a space of one type of each by itself."""
    if request.measured or 1 not in request.space.tensor:
        return
    for counts in given(request):
        # A front is of counts up to the fleet's; only what uses the whole fleet keeps to the budget by `counts`.
        members = [t for t in request.fleet.present if counts[t] or not request.space.single_type]
        for m in request.space.micro_batches:
            options = options_of(request, members, m)
            if options:
                chain = chain_in(request, options, m)
                for found in partitions(request, chain, members, counts):
                    yield plan_of(request, found, options, m)


def options_of(request: Request, members: Sequence[int], m: int) -> list[Option]:
    """Replicas of each type: 1, 2, 4, ... and all within the budget, each with a sample of a micro-batch at least."""
    return [
        (t, r) for t in members for r in doubled(min(request.budget, request.fleet.counts[t]))
        if m * r <= request.batch_size
    ]  # fmt: skip


def chain_in(request: Request, options: Sequence[Option], m: int) -> Chain:
    """The model as a chain, in seconds of a micro-batch; what an iteration takes once counts as a part of 1 / m."""
    performance, fleet = request.performance, request.fleet
    graph = performance.graph(request.model)
    problem = Problem(performance, request.model, request.batch_size, fleet.types, fleet.counts, fleet.node_gpus,
                      request.budget)  # fmt: skip
    dense = graph.weight_params - graph.sparse_params
    op_s, sync = np.zeros((len(options), len(graph))), np.zeros((len(options), 2, 2))
    for o, (t, r) in enumerate(options):
        op_s[o] = np.add(*pace_s(performance, request.model, problem.samples(m, r), fleet.types[t]))
        step_s = step_pace_s(performance, request.model, fleet.types[t]) / max(float(dense.sum()), 1.0)
        start_s, s_per_byte = problem.allreduce_lines(t, r) if r > 1 else (np.zeros(2), np.zeros(2))
        sync[o] = np.column_stack([start_s, performance.value_bytes * s_per_byte + step_s]) / m
    kind, units = zip(*options, strict=True)
    # One way: both ways go at once.
    border_s = problem.transfers_s(m, np.concatenate(([0.0], graph.cut_bytes))) / 2
    return chain_of(
        op_s, kind, units, [gpu.price_or_nan / 3600 for gpu in fleet.types], params=dense, sync=sync,
        reach=_reach(request, options, m), group=kind, border_s=border_s,
    )  # fmt: skip


def _reach(request: Request, options: Sequence[Option], m: int) -> np.ndarray:
    graph, performance = request.performance.graph(request.model), request.performance
    scale = performance.value_bytes / VALUE_BYTES
    share = [request.batch_size / (m * r) for _, r in options]
    room = [(request.fleet.types[t].memory_gib - performance.context_gib) * GIB for t, _ in options]
    schedule = request.space.schedules[0] or performance.schedule
    layers = min(m, LAYERS)
    # A schedule that holds all micro-batches in each stage has one layer.
    held = in_flight(schedule, layers - 1, layers, m)
    stored, layers = (graph.stored_bytes * held, 1) if held > 1 else (graph.stored_bytes, layers)
    none = np.zeros(len(graph))
    return reach_of(performance.param_bytes * graph.weight_params, scale * stored, none, share, room, layers)


def partitions(
    request: Request, chain: Chain, members: Sequence[int], counts: Sequence[int]
) -> Iterator[Partition]:
    """Those worth the truth (module text), within the fleet and the GPUs that a plan may use."""
    limits = [min(n, request.budget) if t in members else 0 for t, n in enumerate(request.fleet.counts)]
    if math.prod(n + 1 for n in limits) * chain.time_s.size <= MOST_CELLS:
        table = FleetTable(chain, limits, request.budget)
        order = np.argsort(table.period_s, kind="stable")
        order = order[np.isfinite(table.period_s[order])]
        _, first = np.unique(table.vectors[order].sum(axis=1), return_index=True)
        for v in sorted({*table.front_vectors().tolist(), *order[first].tolist()}):
            yield table.partition(v)
        return
    if np.isfinite(chain.usd_per_s[chain.kind]).any():
        for found in Renting(chain).front():
            if sum(found.counts) <= request.budget and all(n <= most for n, most in
                                                           zip(found.counts, limits, strict=True)):
                yield found
    whole = large_fleet(chain, counts, gap=GAP, seconds=math.inf).partition
    if whole is not None:
        yield whole


def plan_of(request: Request, found: Partition, options: Sequence[Option], m: int) -> Plan:
    """A partition as a plan."""
    stages = []
    for first, last, label in found.stages:
        t, replicas = options[label]
        stages.append(Stage(first, last, request.fleet.names[t], replicas))
    return Plan(tuple(stages), m)
