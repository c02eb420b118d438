"""Shortest remaining service first, preemptive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Preemptive
from sim.api import View


@dataclass
class Srsf(Preemptive):
    """The jobs with the least believed remaining service (run time × GPUs) hold the GPUs; unknown ones come last.

    Key: remaining_s × GPUs of the gang (Tiresias, NSDI'19, section 3.1: with sizes known, what minimises
    mean JCT of gangs in practice). Tiresias' simulator calls it shortest-gpu.
    """

    needs_estimates: ClassVar[bool] = True

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.fmin(view.remaining_s(rows) * view.jobs.gpus[rows], np.inf)  # unknown (NaN) comes last
