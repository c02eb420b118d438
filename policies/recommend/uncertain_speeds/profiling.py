"""Profiling runs: what can be measured of a job's speed on each GPU type, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.recommend.request.pace import pace_s
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Request
from traces.errors import did_you_mean

START_S = 180.0
"""Seconds until a profiling run's first step: an estimate."""
STEPS = 50
"""Steps of a profiling run."""


@dataclass(frozen=True)
class Run:
    """A profiling run: `STEPS` steps of the model, operator by operator, on one GPU of a type.

    Attributes
    ----------
    gpu_type : where.
    samples : of a step.
    modelled_s : by kind of operator, seconds forward and backward of a step, as modelled.
    seconds, usd : what it costs, start included; usd is NaN where the type's price is unknown.
    """

    gpu_type: str
    samples: int
    modelled_s: Mapping[str, float] = field(hash=False)
    seconds: float
    usd: float


def runs_of(request: Request, *, start_s: float = START_S, steps: int = STEPS) -> tuple[Run, ...]:
    """One run for each type that is there, with a GPU's samples of the batch if all GPUs had as many."""
    samples = max(1, request.batch_size // request.budget)
    kind = np.array(request.performance.graph(request.model).kind)
    runs = []
    for t in request.fleet.present:
        gpu = request.fleet.types[t]
        time_s = np.add(*pace_s(request.performance, request.model, samples, gpu))
        modelled_s = {str(q): float(time_s[kind == q].sum()) for q in sorted(set(kind))}
        seconds = start_s + steps * float(time_s.sum())
        usd = seconds / 3600 * gpu.price_or_nan * request.fleet.paid(t, 1)
        runs.append(Run(gpu.name, samples, modelled_s, seconds, usd))
    return tuple(runs)


def log_ratios(run: Run, measured_s: Mapping[str, float]) -> dict[str, float]:
    """ln(measured / modelled) of the kinds that take time.

    Raises
    ------
    RecommendError
        A kind that the model has not, or a time that is none.
    """
    for kind, time_s in measured_s.items():
        if kind not in run.modelled_s:
            raise RecommendError("a run has measured a kind of operator that the model has not",
                                 where=f"run on {run.gpu_type}", got=kind, allowed=", ".join(run.modelled_s),
                                 todo=did_you_mean(kind, list(run.modelled_s)))
        if not 0 < time_s < math.inf and run.modelled_s[kind] > 0:
            raise RecommendError("a measured time must be above 0", where=f"run on {run.gpu_type}, {kind}", got=time_s,
                                 allowed="seconds, above 0", todo="Leave out what could not be measured.")
    return {q: math.log(s / run.modelled_s[q]) for q, s in measured_s.items() if run.modelled_s[q] > 0}
