"""What a measured table is made of: points, each a job on some GPUs, and the rate that was measured there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.hardware.gputypes import HardwareError, gpu_type
from sim.performance.graph import PerformanceError

ANY_PLACEMENT = 0
"""In place of a number of nodes: the source does not say where the GPUs were; the rate holds wherever they are."""
SPREAD = -1
"""In place of a number of nodes: on more nodes than the gang needs, however many."""


class Point(NamedTuple):
    """What was measured.

    Attributes
    ----------
    model : model or job type.
    batch_size : samples an iteration, all GPUs together; 0: the job type has its own, which is not a key.
    gpu : GPU type, as the catalogue spells it.
    gpus : GPUs of the whole job.
    nodes : nodes that they were on, `ANY_PLACEMENT` or `SPREAD`.
    """

    model: str
    batch_size: int
    gpu: str
    gpus: int
    nodes: int


@dataclass(frozen=True)
class Measurement:
    """A rate of the whole job, not of a GPU of it.

    Attributes
    ----------
    iterations_per_s : 1 / mean of the iteration times; 0: measured not to fit.
    measurements : how many were averaged.
    spread : standard deviation (n - 1) of the iteration times over their mean; NaN: unknown.
    """

    iterations_per_s: float
    measurements: int = 1
    spread: float = float("nan")

    @property
    def iteration_s(self) -> float:
        """Seconds an iteration; inf where it does not fit."""
        return 1.0 / self.iterations_per_s if self.iterations_per_s > 0 else float("inf")


def averaged(times_s: list[float]) -> Measurement:
    """Repeated measurements of an iteration as one: 1 / mean, how many, and their relative spread."""
    mean = float(np.mean(times_s))
    spread = float(np.std(times_s, ddof=1)) / mean if len(times_s) > 1 else float("nan")
    return Measurement(1.0 / mean, len(times_s), spread)


def catalogue_name(gpu: str, where: str) -> str:
    """The catalogue's spelling of a GPU type: a rate of a type that no cluster can have would never be used.

    Raises
    ------
    PerformanceError
        Not in the catalogue; names the nearest type.
    """
    try:
        return gpu_type(gpu).name
    except HardwareError as error:
        raise PerformanceError(
            error.what, where=where, got=error.got, allowed=error.allowed, todo=error.todo
        ) from None
