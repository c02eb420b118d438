"""Chain: the least time of the whole chain of operators, neither operators nor GPU counts made coarse.

`exact` cuts between coarse blocks and counts GPUs in coarse units; here a stage begins at any operator and takes 1, 2,
4, ... GPUs of a type or all there are (`policies.recommend.algorithms.long_chain`). For each number of micro-batches:

* where the vectors of GPU counts fit a table, the front of time and cost within the fleet, and the least time on each
  number of GPUs, filling and draining of the pipeline included (`filled_fleet`, to within `GAP`); of the asynchronous
  schedule, which never drains, the least period (`chain_fleet`, exact);
* else the front of period and cost without limits on counts, as far as it lies within the fleet (`chain_renting`), and
  one plan of least period on the whole fleet (`chain_large`).

The times are a form of what the truth knows in full, so the truth of the plans decides among them. Memory is that of
plans without recomputation and ZeRO.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from policies.recommend.algorithms.chain_fleet import FleetTable, OnVectors
from policies.recommend.algorithms.chain_large import large_fleet
from policies.recommend.algorithms.chain_renting import Renting
from policies.recommend.algorithms.filled_fleet import FilledTable
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
FEW_CELLS = 500_000
"""Where they are no more, a stage may have any number of GPUs."""
QUICK_CELLS = 3_000_000
"""Vectors x operators x options up to which it takes about a second for all numbers of micro-batches."""
CELLS = 100_000_000
"""Of all tables of a request, about."""
LEAST_PASSES = 4
"""Bounds that are tried for each number of micro-batches, if more may gain."""
LAYERS = 4
"""Stages from the last one that memory tells apart; those before count as the first of these."""
GAP = 0.01
"""Where bound and plan are as near, it is good enough for the truth to decide."""
TRIES = 3
"""Partitions of one vector of counts and number of micro-batches that get the truth."""
MARGIN = 1.05
"""How much slower, by the form, than with other micro-batches a plan may be that is looked for."""

Option = tuple[int, int]
"""GPU type and replicas of a stage."""


def propose(request: Request) -> Iterator[Plan]:
    """The front of each number of micro-batches, of all types together, or in a space of one type of each by itself.

    Those nearest to the front of all numbers of micro-batches come first.
    """
    if request.measured or 1 not in request.space.tensor:
        return
    yield from _found(request)[0]


def serves(request: Request) -> bool:
    """Whether the vectors of GPU counts fit tables, so that the method is quick and proves something."""
    if request.measured or 1 not in request.space.tensor:
        return False
    for counts in given(request):
        members = [t for t in request.fleet.present if counts[t] or not request.space.single_type]
        rows = 2 * len(options_of(request, members, 1)) * (len(request.performance.graph(request.model)) + 1)
        if math.prod(n + 1 for n in _limits(request, members)) * rows > QUICK_CELLS:
            return False
    return True


def proves(request: Request) -> float | None:
    """How much less another plan may take (0.01: 1 %); None: nothing is known, or it was not asked."""
    if not serves(request) or not request.has(_what(request)):
        return None
    gap = _found(request)[1]
    return 0.0 if gap <= GAP / 100 else gap


def _found(request: Request) -> tuple[list[Plan], float]:
    """Plans in their order, and how much less another one may take by the form (0.01: 1 %)."""
    return request.once(_what(request), lambda: _all_plans(request))


def _what(request: Request) -> tuple:
    return "chain", request.budget, request.space


def _all_plans(request: Request) -> tuple[list[Plan], float]:
    scored: list[tuple[float, Plan]] = []
    gap = 0.0
    for counts in given(request):
        # A front is of counts up to the fleet's; only what uses the whole fleet keeps to the budget by `counts`.
        members = [t for t in request.fleet.present if counts[t] or not request.space.single_type]
        for schedule in ways(request):
            table: OnVectors | None = None
            known_s: np.ndarray | None = None
            found: list[tuple[float, int, Plan]] = []
            for m in request.space.micro_batches:
                options = options_of(request, members, m)
                if not options:
                    continue
                chain = chain_in(request, options, m, schedule)
                table = small_fleet(request, chain, members, m, schedule, known_s)
                if table is None:
                    scored += [(1.0, plan_of(request, one, options, m, schedule))
                               for one in in_large_fleet(request, chain, members, counts)]
                    continue
                if isinstance(table, FilledTable):
                    known_s = np.fmin(table.least_s, np.inf if known_s is None else known_s)
                    gap = max(gap, table.gap)
                found += [(iteration_s, v, plan_of(request, one, options, m, schedule))
                          for v in chosen(table) for iteration_s, one in near(table, v, m)]
            if table is not None:
                best_s = np.full(len(table.vectors), np.inf)
                for iteration_s, v, _ in found:
                    best_s[v] = min(best_s[v], iteration_s)
                beat_s = table.to_beat_s(best_s)
                scored += [(iteration_s / beat_s[v], plan) for iteration_s, v, plan in found]
    order = sorted(range(len(scored)), key=lambda k: scored[k][0])
    return [scored[k][1] for k in order], gap


def ways(request: Request) -> list[str]:
    """Schedules to plan for: the first that drains, and the asynchronous one, of those in the space."""
    named = [schedule or request.performance.schedule for schedule in request.space.schedules]
    drained = [schedule for schedule in named if schedule != "async"]
    return [*drained[:1], *{"async"}.intersection(named)]


def options_of(request: Request, members: Sequence[int], m: int) -> list[Option]:
    """Replicas of each type within the budget, each with a sample of a micro-batch at least: any number where the table
    stays small, else 1, 2, 4, ... and all."""
    most = {t: min(request.budget, request.fleet.counts[t]) for t in members}
    every = sum(most.values()) * (len(request.performance.graph(request.model)) + 1)
    vectors = math.prod(n + 1 for n in _limits(request, members))
    any_number = vectors * every <= FEW_CELLS
    return [
        (t, r) for t in members for r in (range(1, most[t] + 1) if any_number else doubled(most[t]))
        if m * r <= request.batch_size
    ]  # fmt: skip


def chain_in(request: Request, options: Sequence[Option], m: int, schedule: str = "1f1b") -> Chain:
    """The model as a chain, in seconds of a micro-batch.

    What follows the last backward (sums of gradients, the step) counts as a part of 1 / m; asynchronous stages do it
    after each micro-batch.
    """
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
        sync[o] = np.column_stack([start_s, performance.value_bytes * s_per_byte + step_s])
        sync[o] /= 1 if schedule == "async" else m
    kind, units = zip(*options, strict=True)
    # One way: both ways go at once.
    border_s = problem.transfers_s(m, np.concatenate(([0.0], graph.cut_bytes))) / 2
    return chain_of(
        op_s, kind, units, [gpu.price_or_nan / 3600 for gpu in fleet.types], params=dense, sync=sync,
        reach=_reach(request, options, m, schedule), group=kind, border_s=border_s,
    )  # fmt: skip


def _reach(request: Request, options: Sequence[Option], m: int, schedule: str) -> np.ndarray:
    graph, performance = request.performance.graph(request.model), request.performance
    scale = performance.value_bytes / VALUE_BYTES
    share = [request.batch_size / (m * r) for _, r in options]
    room = [(request.fleet.types[t].memory_gib - performance.context_gib) * GIB for t, _ in options]
    layers = min(m, LAYERS)
    # A schedule that holds all micro-batches in each stage has one layer.
    held = in_flight(schedule, layers - 1, layers, m)
    stored, layers = (graph.stored_bytes * held, 1) if held > 1 else (graph.stored_bytes, layers)
    none = np.zeros(len(graph))
    return reach_of(performance.param_bytes * graph.weight_params, scale * stored, none, share, room, layers)


def _limits(request: Request, members: Sequence[int]) -> list[int]:
    return [min(n, request.budget) if t in members else 0 for t, n in enumerate(request.fleet.counts)]


def small_fleet(
    request: Request, chain: Chain, members: Sequence[int], m: int, schedule: str, known_s: np.ndarray | None
) -> OnVectors | None:
    """What is best on each vector of counts; None: there are too many. `known_s`: times reached by other plans."""
    limits = _limits(request, members)
    if math.prod(n + 1 for n in limits) * chain.time_s.size > MOST_CELLS:
        return None
    if schedule == "async":
        return FleetTable(chain, limits, request.budget)
    cells = math.prod(n + 1 for n in limits) * chain.time_s.size
    passes = max(LEAST_PASSES, CELLS // (cells * len(request.space.micro_batches)))
    return FilledTable(chain, limits, m, request.budget, gap=GAP, passes=passes,
                       known_s=None if known_s is None else MARGIN * known_s)


def chosen(table: OnVectors) -> list[int]:
    """Vectors of a table whose plans are worth the truth: the front, and the fastest on each number of GPUs."""
    order = np.argsort(table.least_s, kind="stable")
    order = order[np.isfinite(table.least_s[order])]
    _, first = np.unique(table.vectors[order].sum(axis=1), return_index=True)
    return sorted({*table.front_vectors().tolist(), *order[first].tolist()})


def near(table: OnVectors, v: int, m: int) -> list[tuple[float, Partition]]:
    """The best partitions on a vector, each with the time of an iteration by the form."""
    if isinstance(table, FilledTable):
        return table.near(v, TRIES)
    return [(m * float(table.least_s[v]), table.partition(v))]


def in_large_fleet(
    request: Request, chain: Chain, members: Sequence[int], counts: Sequence[int]
) -> Iterator[Partition]:
    """Those worth the truth of a fleet that fits no table (module text), within the GPUs that a plan may use."""
    limits = _limits(request, members)
    if np.isfinite(chain.usd_per_s[chain.kind]).any():
        for found in Renting(chain).front():
            if sum(found.counts) <= request.budget and all(n <= most for n, most in
                                                           zip(found.counts, limits, strict=True)):
                yield found
    whole = large_fleet(chain, counts, gap=GAP, seconds=math.inf).partition
    if whole is not None:
        yield whole


def plan_of(request: Request, found: Partition, options: Sequence[Option], m: int, schedule: str) -> Plan:
    """A partition as a plan."""
    stages = []
    for first, last, label in found.stages:
        t, replicas = options[label]
        stages.append(Stage(first, last, request.fleet.names[t], replicas))
    return Plan(tuple(stages), m, schedule="" if schedule == request.performance.schedule else schedule)
