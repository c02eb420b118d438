"""Shortest remaining time first, preemptive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import ByForm
from sim.api import View
from sim.kernels.keys import REMAINING, Terms


@dataclass
class Srtf(ByForm):
    """The jobs with the least believed remaining run time hold the GPUs; unknown run times come last.

    Key: remaining_s. Tiresias' simulator calls it shortest.
    """

    needs_estimates: ClassVar[bool] = True

    def terms(self, view: View) -> Terms:
        return REMAINING, np.empty(0), np.ones(len(view.jobs)), view.estimate_s.astype(np.float64)
