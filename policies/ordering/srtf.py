"""Shortest remaining time first, preemptive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Preemptive
from sim.api import View


@dataclass
class Srtf(Preemptive):
    """The jobs with the least believed remaining run time hold the GPUs; unknown run times come last.

    Key: remaining_s. Tiresias' simulator calls it shortest.
    """

    needs_estimates: ClassVar[bool] = True

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.fmin(view.remaining_s(rows), np.inf)  # unknown (NaN) comes last
