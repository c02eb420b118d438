"""What a policy believes of jobs on each GPU type, and the rejection of those that are believed to run on none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.estimate.time_left import LEAST_S, TimeLeft
from policies.mechanisms.placing import Placing
from sim.api import Decision, View


@dataclass
class Informed(Placing):
    """A policy that reads the speed of each job on each GPU type, by `TimeLeft`, whose fallbacks it counts.

    Its time there, too, where it needs estimates; `least_s` is what a job that overruns has left.
    """

    needs_throughput: ClassVar[bool] = True
    least_s: ClassVar[float] = LEAST_S

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._left_s = TimeLeft(view, self.least_s)

    def counted(self) -> Mapping[str, int]:
        """Fallbacks taken in a run."""
        return self._left_s.counts

    def rates(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed work a second of each whole gang on each type, 0 where it cannot run: float64 [rows, types]."""
        return self._left_s.speeds(view, rows)

    def turn_away(self, view: View, decision: Decision) -> None:
        """Reject waiting jobs that no type is believed to run, but those that the decision turns away already."""
        turned = {row for row, _ in (*decision.reject, *decision.refuse)}
        decision.reject += [(row, why) for row, why in self._left_s.lost(view) if row not in turned]
