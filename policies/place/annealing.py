"""Simulated annealing of placement and order on the fine graph (Kirkpatrick, Gelatt and Vecchi 1983, Science 220).

Every neighbour is executed in full, with channels and memory: what is minimised is the makespan that `execute` tells.
Single operators rarely pay for their transfers, so a neighbour moves a whole set of operators to another device: a
vertex of the graph as coarsened to 1, 1/2, 1/4, ... of its size (with what is colocated with it), the scale drawn anew
each time. Other neighbours exchange two sets, or change the priority of one operator. Half begin with an operator of
the chain that sets the makespan, as others cannot shorten it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.place.baechi import m_etf, m_sct, m_topo
from policies.place.coarsen import coarsen
from policies.place.placement_problem import (
    Devices,
    PlacementError,
    PlacementGraph,
    Schedule,
    channels,
    execute,
    groups,
    ranks,
    tensors,
    work_by_device,
)
from policies.place.simple import single
from sim.kernels import anneal as kernels

HOT, COLD = 1.2, 0.02
"""Temperature at the start and at the end, in mean times of an operator."""
ORDER_SHARE = 0.35
"""Part of the neighbours that change a priority."""
CRITICAL_SHARE = 0.5
"""Part of the neighbours that begin with an operator of the chain that sets the makespan."""
SMALLEST = 6
"""Vertices of the coarsest sets."""
LACKING = 10.0
"""What lacking all of a device's memory costs, in makespans."""
CHUNK = 500
"""Neighbours between two looks at the clock."""


def critical_path(graph: PlacementGraph) -> np.ndarray:
    """Priority of each operator, float64 [ops]: minus the longest way from its start to the end, transfers aside."""
    tail = graph.work_s.min(axis=1)
    for op in graph.order[::-1].tolist():
        first, leaving = graph.leaving
        readers = graph.edges[leaving[first[op] : first[op + 1]], 1]
        tail[op] += tail[readers].max(initial=0.0)
    return -tail


@dataclass(frozen=True, eq=False)
class Sets:
    """Sets of operators that move together: arrays as `sim.kernels.anneal.anneal` has them."""

    level: np.ndarray
    first: np.ndarray
    members: np.ndarray
    of: np.ndarray


def movable(graph: PlacementGraph) -> Sets:
    """Groups of the graph coarsened to n, n / 2, n / 4, ... vertices, one level each."""
    levels, target = [groups(graph)], len(graph) // 2
    while target >= SMALLEST:
        coarse = coarsen(graph, target)
        levels.append(groups(coarse.graph)[coarse.group])
        target //= 2
    levels = [levels[0]] + [after for before, after in pairwise(levels) if after.max() < before.max()]
    counts = [np.bincount(sets) for sets in levels]
    level = np.cumsum([0] + [len(count) for count in counts])
    return Sets(
        level=level,
        first=np.concatenate([[0], np.cumsum(np.concatenate(counts))]),
        members=np.concatenate([np.argsort(sets, kind="stable") for sets in levels]),
        of=np.stack(levels) + level[:-1, None],
    )


def anneal(
    graph: PlacementGraph, devices: Devices, *, starts: tuple[Schedule, ...] = (), seconds: float = np.inf,
    iterations: int = 20_000, seed: int = 0, eager: bool = False, order_share: float = ORDER_SHARE,
) -> Schedule:
    """Simulated annealing of devices and order from quick placements: the best schedule met.

    It is never worse than the best of `starts`, which are of this graph and these devices.

    Parameters
    ----------
    starts : schedules whose placements to choose the first from; none: single device, m-TOPO, m-ETF, m-SCT.
    seconds : of wall time; it cools by what is used up faster, time or iterations. The same seed gives the same result
        where time is not what ends it.
    eager : Baechi's virtual scheduler, without priorities (`execute` with priority None).
    order_share : part of the neighbours that change a priority.

    Raises
    ------
    PlacementError
        An operator or its group may run nowhere, or no start could be found.
    """
    starts = starts or _simple_starts(graph, devices)
    start = _best_start(graph, devices, starts, eager)
    if not len(graph):
        return start
    work, sets = work_by_device(graph, devices), movable(graph)
    allowed = np.minimum.reduceat(np.isfinite(work)[sets.members], sets.first[:-1], axis=0)
    rank = graph.rank.copy() if eager else ranks(graph, start.order.astype(np.float64))
    device, leaving = start.device.copy(), graph.leaving[1].copy()
    if not eager:
        kernels.sort_leaving(graph.leaving[0], leaving, graph.edges, rank)
    fixed = (
        work, graph.memory_bytes, graph.kept_bytes, graph.edge_bytes, graph.edges, graph.leaving[0], leaving,
        *graph.entering, tensors(graph, devices), *channels(devices), np.asarray(devices.s_per_byte),
        np.asarray(devices.latency_s), devices.memory_bytes, eager, sets.level, sets.first, sets.members, sets.of,
        allowed, device, rank,
    )  # fmt: skip
    best_device, best_rank, best = device.copy(), rank.copy(), np.inf
    hot = HOT * float(work.min(axis=1).mean())
    rng, began, done = np.random.default_rng([seed, 0]), time.monotonic(), 0
    while done < iterations:
        progress = max(done / iterations, (time.monotonic() - began) / seconds if seconds > 0 else 1.0)
        if progress >= 1.0:
            break
        count = min(CHUNK, iterations - done)
        cooling = (COLD / HOT) ** np.minimum(progress + np.arange(count) / iterations, 1.0)
        found = kernels.anneal(
            *fixed, rng.random((count, 8)), hot * cooling, 0.0 if eager else order_share, CRITICAL_SHARE,
            LACKING * start.makespan_s,
        )  # fmt: skip
        if found[2] < best:
            best_device, best_rank, best = found
        done += count
    result = execute(graph, devices, best_device, None if eager else best_rank.astype(np.float64))
    return min(start, result, *(() if eager else starts), key=_quality)


def _simple_starts(graph: PlacementGraph, devices: Devices) -> tuple[Schedule, ...]:
    found, reasons = [], []
    for placer in (single, m_topo, m_etf, m_sct):
        try:
            found.append(placer(graph, devices))
        except PlacementError as error:  # such as: no one device may run all, or memory is full
            reasons.append(error)
    if not found:
        raise reasons[-1]
    return tuple(found)


def _best_start(graph: PlacementGraph, devices: Devices, starts: tuple[Schedule, ...], eager: bool) -> Schedule:
    """Of each placement in the order of its starts and in that of the critical path."""
    urgent = critical_path(graph)
    orders = [(start.device, order) for start in starts for order in (start.order.astype(np.float64), urgent)]
    return min((execute(graph, devices, on, None if eager else order) for on, order in orders), key=_quality)


def _quality(schedule: Schedule) -> tuple[bool, float]:
    return not schedule.fits, schedule.makespan_s
