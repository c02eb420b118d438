"""Shortest job first, without preemption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Ordered
from sim.api import View


@dataclass
class Sjf(Ordered):
    """Starts the waiting job with the smallest believed run time first; jobs of unknown run time last.

    Key: estimate_s. Jobs that do not fit are skipped.
    """

    needs_estimates: ClassVar[bool] = True

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.fmin(view.estimate_s[rows], np.inf)  # unknown (NaN) comes last

    def fixed_keys(self, view: View) -> np.ndarray:
        return self.key(view, np.arange(len(view.jobs)))
