"""Exact: the best stages of coarse blocks, by dynamic programming over cuts, GPU types, replicas and counts.

Optimal in its own space, by the form of time in `policies.recommend.request.partition_problem`: consecutive blocks, one
type a stage, GPU counts in multiples of a unit. The few best by the form are proposed for every vector of GPU counts,
so that the truth decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies.recommend.request.partition_problem import Problem
from policies.recommend.request.request import Request
from policies.recommend.request.vectors import MOST_VECTORS, number_of_vectors
from policies.recommend.searching.plan_tables import candidates, whole_gang
from sim.api import Plan

STEP = 4
"""A coarse unit is so many times the next finer one."""


def problem(request: Request, members: Sequence[int], budget: int | None = None) -> Problem:
    """The partition problem on some of the types, with at most `budget` GPUs (None: as many as the request allows)."""
    fleet = request.fleet
    counts = tuple(fleet.counts[t] for t in members)
    return Problem(
        request.performance, request.model, request.batch_size, tuple(fleet.types[t] for t in members), counts,
        tuple(fleet.node_gpus[t] for t in members), min(budget or request.budget, request.budget, sum(counts)),
        tuple(sorted(request.space.micro_batches)),
    )


def scales(request: Request, members: Sequence[int]) -> Iterator[Problem]:
    """The problem at several scales: the whole budget in coarse units, and parts of it in finer ones, down to 1 GPU.

    None where so many types have too many vectors of counts (`MOST_VECTORS`).
    """
    whole = problem(request, members)
    if number_of_vectors(len(members), whole.units) > MOST_VECTORS:
        return
    yield whole
    unit = whole.unit
    while unit > 1:
        unit = -(-unit // STEP)
        yield problem(request, members, unit * whole.units)


def propose(request: Request) -> Iterator[Plan]:
    """Each type by itself; unless the space has one type only, all together.

    So the best of them is never worse than the best on one type.
    """
    present = request.fleet.present
    for t in present:
        for alone in scales(request, [t]):
            yield from _candidates(request, [t], alone)
        yield from whole_gang(problem(request, [t]))
    if not request.space.single_type and len(present) > 1 and request.budget > 1:
        for together in scales(request, present):
            yield from _candidates(request, present, together)


def proves(request: Request) -> float | None:
    """How much less another plan may take: nothing; None where operators or GPUs are made coarse."""
    operators = len(request.performance.graph(request.model))
    whole = problem(request, request.fleet.present)
    if number_of_vectors(len(request.fleet.present), whole.units) > MOST_VECTORS or whole.unit > 1:
        return None
    return None if whole.blocks < operators or request.space.single_type else 0.0


def _candidates(request: Request, members: Sequence[int], one: Problem) -> list[Plan]:
    """`candidates`, once for all budgets of a job that come to the same problem in fine units."""
    return request.once(("candidates", tuple(members), one.budget, one.micro_batches), lambda: candidates(one))
