"""A certificate: one GPU type costs least for each operator by itself, so that no mixture can cost less.

Take any plan. A GPU of type t, one of k that share each operator, works in an iteration on samples that sum to X; of
a micro-batch it takes x <= n, all n samples of the batch. Its stage takes at least as long as its operators and its
optimizer's step, and the GPU is paid for at least that long. Time a sample does not rise with samples (the roofline
of `operator_time` is a fixed time, or the larger of two lines that do not fall, so that it is at least X / n of what
n samples take). All GPUs together work on n samples with each operator; where they divide its weights, each reads and
steps a part, all of them together the whole. So it costs at least

    c[o, t, k] = price_t (k (f_o(n) + b_o(n)) + step_o)        for the cheapest t and k that any of its GPUs has,

and the plan at least the sum over operators of  min over t and k of c[o, t, k]. If one type t with k = 1 is the least
for each operator, that sum is what one GPU of t costs that takes the whole batch at once: nothing is sent, summed or
waited for there. So no plan, mixed or not, costs less than this plan on one type.

Assumptions: transfers, sums over GPUs, waiting and recomputation take 0 s or more; the type is paid one GPU at a time;
times are modelled, not measured, and iterations end with a flush; limits of time or budget aside; memory aside: where
one GPU has too little for the whole batch, plans on that type cost more than the sum, and a mixture may cost less than
they do, though never less than the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.recommend.request.request import Request
from sim.performance import PerformanceError
from sim.performance.embeddings import touched
from sim.performance.operator_time import update_time_s, update_times_s

SAFETY = 1e-12
"""By which another type may be cheaper, relatively: rounding."""


@dataclass(frozen=True)
class Certificate:
    """No mixture costs less than one GPU type.

    Attributes
    ----------
    gpu_type : the type.
    operators : of the model.
    usd_per_iteration : what one GPU of it costs that takes the whole batch at once.
    types : the types of known price that were compared.
    """

    gpu_type: str
    operators: int
    usd_per_iteration: float
    types: tuple[str, ...]


def cheapest_type(request: Request) -> Certificate | None:
    """The certificate (see the module); None: no type is cheapest for each operator, or nothing is proven."""
    fleet, costs = request.fleet, _costs(request)
    least = _least(costs) if costs else 0.0
    for t, rows in costs.items():
        if fleet.rented_gpus[t] == 1 and (rows[0] <= least * (1 + SAFETY)).all():
            names = tuple(fleet.names[one] for one in costs)
            return Certificate(fleet.names[t], len(rows[0]), float(rows[0].sum()), names)
    return None


def most_saved(request: Request) -> float:
    """Part of the cost that mixing saves at the very most, memory aside; NaN where nothing is proven.

    1 - (sum over operators of the least of c[o, t, k]) / (least over types of the sum over operators of c[o, t, 1]):
    each operator on the type that is cheapest for it, against one GPU of the type that is cheapest for all together.
    """
    costs = _costs(request)
    if not costs or max(request.fleet.rented_gpus) > 1:
        return math.nan
    return 1 - float(_least(costs).sum()) / min(float(rows[0].sum()) for rows in costs.values())


def _costs(request: Request) -> dict[int, list[np.ndarray]]:
    """c[o, t, k] by type (`_usd`); empty where the proof does not hold, or there are no two types of known price."""
    fleet, performance = request.fleet, request.performance
    priced = [t for t in fleet.present if fleet.types[t].price_or_nan > 0]
    if request.measured or len(priced) < 2 or len(priced) < len(fleet.present):
        return {}
    steady = "async" in {name or performance.schedule for name in request.space.schedules}
    if steady or performance.graph(request.model).profile is not None:
        return {}
    return {t: _usd(request, t) for t in priced}


def _least(costs: dict[int, list[np.ndarray]]) -> np.ndarray:
    return np.asarray(np.min([row for rows in costs.values() for row in rows], axis=0))


def _usd(request: Request, t: int) -> list[np.ndarray]:
    """c[o, t, k] for k = 1 and all degrees of the space, in this order: float64 [ops] each."""
    performance, gpu, n = request.performance, request.fleet.types[t], request.batch_size
    rows, fit, kept = [], performance.calibration, performance.optimizer
    for ways in sorted({1, *request.space.tensor}):
        try:
            graph = performance._share(request.model, ways)
        except PerformanceError:
            continue
        forward, backward = performance.op_times_s(request.model, float(n), gpu, ways)
        sparse = touched(graph, float(n), performance.value_bytes).params
        step = update_times_s(graph, gpu, fit, kept) + sparse * update_time_s(1.0, gpu, fit, kept)
        rows.append(gpu.price_or_nan / 3600 * ways * (forward + backward + step))
    return rows
