"""Pesto (Hafeez et al. 2021, Middleware): coarsen, solve, run.

What the constraint program finds for the coarsened graph is carried over to the fine one: an operator is where its
vertex is, and runs in the order of the vertices, then in topological order.
"""

from __future__ import annotations

import numpy as np

from policies.place.annealing import anneal, critical_path
from policies.place.coarsen import TARGET, coarsen
from policies.place.placement_problem import Devices, PlacementGraph, Schedule, execute
from policies.place.program import solve

WARM_ITERATIONS = 20_000
"""Annealing on the coarsened graph that gives the solver its first schedule."""


def pesto(
    graph: PlacementGraph, devices: Devices, *, target: int = TARGET, seconds: float = 60.0, workers: int = 0,
    seed: int = 0, work_limit: float = np.inf,
) -> Schedule:
    """Coarsen the graph, solve it as a constraint program, and run that on the fine graph; see the module.

    The solver starts from a short annealing of the coarsened graph. Of that start and of what it makes of it, each in
    its own order and in that of the critical path, the schedule is returned that is shortest on the fine graph.

    Parameters
    ----------
    target : vertices that the solver gets.
    seconds, workers, work_limit : as in `solve`.
    """
    coarse = coarsen(graph, target, cache=devices.cache)
    warm = anneal(coarse.graph, devices, iterations=WARM_ITERATIONS, seed=seed)
    answer = solve(
        coarse.graph, devices, warm, seconds=seconds, workers=workers, seed=seed, work_limit=work_limit
    )
    urgent, found = critical_path(graph), []
    for device, start_s in ((answer.device, answer.start_s), (warm.device, warm.start_s)):
        order = np.empty(len(graph))
        order[np.lexsort((graph.rank, start_s[coarse.group]))] = np.arange(len(graph))
        found += [execute(graph, devices, device[coarse.group], priority) for priority in (order, urgent)]
    return min(found, key=lambda schedule: (not schedule.fits, schedule.makespan_s))
