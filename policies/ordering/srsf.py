"""Shortest remaining service first, preemptive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import ByForm
from sim.api import View
from sim.kernels.keys import REMAINING, Terms


@dataclass
class Srsf(ByForm):
    """The jobs with the least believed remaining service (run time × GPUs) hold the GPUs; unknown ones come last.

    Key: remaining_s × GPUs of the gang (Tiresias, NSDI'19, section 3.1: with sizes known, what minimises
    mean JCT of gangs in practice). Tiresias' simulator calls it shortest-gpu.
    """

    needs_estimates: ClassVar[bool] = True

    def terms(self, view: View) -> Terms:
        return REMAINING, np.empty(0), view.jobs.gpus.astype(np.float64), view.estimate_s.astype(np.float64)
