"""Rates of a whole training script on one GPU type from its measured rate on another.

A measured step T is divided into what the model's operators explain on the GPU where it was measured, W, and the
rest, H = max(0, T - W): Python, data, launches one by one, which a faster GPU does not shorten. On another type

    T' = host H + W' min(1, T / W)

with W' what the operators take there. W is the roofline of `operator_time` plus the optimizer's step. `TypeFit` says
how the other type departs from its figures in the catalogue; as given, nothing is fitted. A model without a graph is
all H.

Wave scaling (`wave`) treats every kernel of the GPU's time so; here the time of the host is told apart, without which
an A3C that is 2.1 times slower on a K80 than on a V100 would be predicted 4.5 times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from sim.hardware.gputypes import GpuType
from sim.performance.calibration import Calibration, shipped
from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.operator_time import device_parts, update_time_s


@dataclass(frozen=True)
class TypeFit:
    """How a GPU type, in its machine, departs from its figures.

    Attributes
    ----------
    compute : arithmetic runs at this multiple of what the catalogue's efficiency gives.
    host : time that operators do not explain, as a multiple of that on the type measured.
    launch_s : seconds that the GPU loses for each kernel.
    """

    compute: float = 1.0
    host: float = 1.0
    launch_s: float = 7.5e-6


class Work:
    """What the operators of a training step take on a GPU type.

    Parameters
    ----------
    graph : None: a model that is not known as operators; its work is 0.
    samples : samples of a step.
    """

    def __init__(
        self,
        graph: OperatorGraph | None,
        samples: float,
        gpu: GpuType,
        *,
        precision: str = "fp32",
        calibration: Calibration | None = None,
    ) -> None:
        fit = calibration or shipped("tuned")
        self.arithmetic_s, self.memory_s, self.launches, self.update_s = np.zeros(0), np.zeros(0), 0.0, 0.0
        if graph is None:
            return
        if graph.profile is not None:
            what, todo = "a profiled graph has no work apart from its times", "Scale the profile by wave scaling."
            raise PerformanceError(what, where=f"model {graph.name!r}", got=graph.profile.source, todo=todo)
        parts = device_parts(graph, samples, gpu, precision, fit)
        self.arithmetic_s, self.memory_s = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        self.launches = float(sum(part[2].sum() for part in parts))
        self.update_s = update_time_s(float((graph.weight_params - graph.sparse_params).sum()), gpu, fit)

    def time_s(self, fit: TypeFit) -> float:
        """Seconds of a step on a type with such departures."""
        busy = np.maximum(self.arithmetic_s / fit.compute, self.memory_s).sum()
        return float(busy) + self.launches * fit.launch_s + self.update_s


def scaled_step_s(time_s: float, here: Work, there: Work, there_fit: TypeFit, here_fit: TypeFit | None = None) -> float:
    """Seconds of a step on another type: the formula at the head of this file.

    Parameters
    ----------
    time_s : measured where the work is `here`.
    here_fit, there_fit : departures of the two types.
    """
    work = here.time_s(here_fit or TypeFit())
    explained = min(1.0, time_s / work) if work > 0 else 0.0
    return there_fit.host * (time_s - work * explained) + there.time_s(there_fit) * explained


def scaled_rate(
    rate: float,
    graph: OperatorGraph | None,
    samples: float,
    measured_on: GpuType,
    gpu: GpuType,
    fit: TypeFit | None = None,
    *,
    precision: str = "fp32",
) -> float:
    """Steps a second on `gpu` of a script that runs at `rate` on `measured_on`; 0 (it did not fit) stays 0.

    Raises
    ------
    PerformanceError, HardwareError
        A figure is unknown, or the rate is not a number from 0.
    """
    if not 0 <= rate < np.inf:
        raise PerformanceError("a rate cannot be used", got=rate, allowed="steps a second, 0 or more")
    if rate == 0 or measured_on == gpu:
        return rate
    here, there = (Work(graph, samples, kind, precision=precision) for kind in (measured_on, gpu))
    return 1.0 / scaled_step_s(1.0 / rate, here, there, fit or TypeFit())


PULL = 2.0
"""Weight of a parameter's log distance from its start, where a row's log error is divided by SCALE."""
SCALE = 0.1


def fit_type(
    measured_s: Sequence[float], here_s: Sequence[float], here: Sequence[Work], there: Sequence[Work]
) -> TypeFit:
    """Departures of a type from steps that were measured on both.

    Minimises robust log errors of a step, each parameter drawn to what it is without a fit.

    Parameters
    ----------
    measured_s, here_s : seconds on the type that is fitted, and on the other one.
    here, there : work on the other type, and on the type that is fitted.
    """
    start = TypeFit()
    first = np.log([start.compute, start.host, start.launch_s])
    log_measured = np.log(measured_s)

    def residuals(log: np.ndarray) -> np.ndarray:
        fit = TypeFit(*np.exp(log).tolist())
        times = [scaled_step_s(t, a, b, fit) for t, a, b in zip(here_s, here, there, strict=True)]
        error = (np.log(times) - log_measured) / SCALE
        robust = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1))
        return np.concatenate((robust, PULL * (log - first)))

    found = least_squares(residuals, first, bounds=(first - 5, first + 5), diff_step=1e-4)
    return TypeFit(*np.exp(found.x).tolist())
