"""Walk the queue and start what fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms.placing import Placing, as_in, nothing_to_do
from sim.api import Decision, FastLane, Placement, Policy, View
from sim.kernels.admit import admit
from sim.kernels.keys import STATIC
from sim.kernels.placement import RULES


@dataclass
class Ordered(Placing):
    """Starts waiting jobs in the order of `key`, without preemption."""

    skip: ClassVar[bool] = True
    """Skip a job that does not fit now, instead of blocking those behind it."""

    def decide(self, view: View) -> Decision:
        return self.never_fits(view, Decision(start=self.admit(view, view.queued, self.skip)))

    def admit(self, view: View, queue: np.ndarray, skip: bool) -> list[tuple[int, Placement]]:
        """Start jobs of `queue` in its order."""
        if nothing_to_do(view):
            return []
        return self._placements(admit(queue, skip, RULES[self.placement], *view.scratch().arrays, self._found))

    def fixed_keys(self, view: View) -> np.ndarray | None:
        """The keys of all jobs, where they hang on nothing that changes: float64 [jobs]; None: they do."""
        return Policy.key(self, view, np.arange(len(view.jobs))) if as_in(self, Policy, "key") else None

    def fast_lane(self, view: View) -> FastLane | None:
        keys = self.fixed_keys(view)
        if keys is None or not as_in(self, Ordered, "decide", "admit", "never_fits"):
            return None
        return FastLane(RULES[self.placement], (STATIC, np.empty(0), np.empty(0), keys), skip=self.skip)
