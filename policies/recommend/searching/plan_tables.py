"""From the partition problem to plans: the kernel's tables, one a micro-batch count, and their best few."""

from __future__ import annotations

import math

import numpy as np

from policies.recommend.request.partition_problem import Problem
from policies.recommend.request.vectors import count_vectors
from sim.api import Plan, Stage
from sim.kernels.partition import partition

MARGIN = 1.1
"""How much slower, by the tables, than the best within its GPU counts a plan that gets the truth may be."""
TRIES = 0.5
"""Of the micro-batch counts: plans of one vector that get it."""


def table(problem: Problem, m: int, known: np.ndarray) -> tuple[np.ndarray, list[Plan | None]]:
    """Least time [V] for each vector of units with m micro-batches, and the plan that reaches it.

    `known` [V] holds times already reached (inf: none); what cannot beat them is left out (inf, None).
    """
    sizes = np.array(problem.sizes, dtype=np.int64)
    vectors, step = count_vectors(problem.limits, problem.total, problem.sizes)
    arrays = problem.cost_s(m), problem.border_s(m), problem.hold(m)
    room = 32  # labels a state; more are rare
    while True:
        best, stages, rows = partition(*arrays, sizes, vectors, step, m, known, MARGIN, room)
        if stages[0] >= 0:
            break
        room *= 2
    return best, [
        _plan(problem, rows[v, :n], m, best[v]) if n else None for v, n in enumerate(stages.tolist())
    ]


def _plan(problem: Problem, rows: np.ndarray, m: int, iteration_s: float) -> Plan:
    """A row of the kernel's answer as a plan."""
    stages, first = [], 0
    for last, t, q in rows.tolist():
        stages.append(Stage(int(problem.first_op[first]), int(problem.first_op[last + 1]) - 1,
                            problem.types[t].name, problem.sizes[q] * problem.unit))
        first = last + 1
    return Plan(tuple(stages), m, float(iteration_s))


def candidates(problem: Problem) -> list[Plan]:
    """The plans that are worth the truth, with the time that the tables give them."""
    vectors, _ = count_vectors(problem.limits, problem.total, problem.sizes)
    least = np.full(len(vectors), np.inf)
    found: list[list[Plan]] = [[] for _ in vectors]
    for m in problem.micro_batches:
        if problem.batch_size >= m:
            best, plans = table(problem, m, least)
            least = np.minimum(least, best)
            for of_vector, plan in zip(found, plans, strict=True):
                of_vector += [plan] if plan is not None else []
    out: list[Plan] = []
    tries = math.ceil(TRIES * len(problem.micro_batches))
    for v, vector in enumerate(vectors):
        within = float(least[(vectors <= vector).all(axis=1)].min()) * MARGIN
        out += sorted((p for p in found[v] if p.iteration_s <= within), key=lambda p: p.iteration_s)[:tries]
    return out


def whole_gang(problem: Problem) -> list[Plan]:
    """Data parallelism over the whole budget where the units do not reach it (its first type only)."""
    replicas = min(problem.budget, problem.counts[0])
    if replicas == problem.total * problem.unit:
        return []
    stage = Stage(0, int(problem.first_op[-1]) - 1, problem.types[0].name, replicas)
    return [Plan((stage,), m) for m in problem.micro_batches if problem.samples(m, replicas) >= 1]
