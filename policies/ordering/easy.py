"""EASY backfilling: first in, first out, and small jobs may slip in front if they delay nobody's promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Ordered, nothing_to_do
from policies.mechanisms.placing import as_in
from sim.api import Decision, FastLane, Policy, View
from sim.kernels.admit import admit, fill_behind
from sim.kernels.keys import SUBMITTED
from sim.kernels.placement import RULES


@dataclass
class Easy(Ordered):
    """EASY backfilling (Lifka 1995; Mu'alem and Feitelson, TPDS 2001) on believed run times.

    The first job that does not fit is promised a place: the running jobs give back what they hold in the order of their
    believed ends, until the placement rule finds one for it within its quota. A later job may start now if it ends by
    that time, or takes only GPUs that leave such a place. Where no end brings a place (its quota, or the nodes that
    are there, do not hold it), nothing is kept for it. A job of unknown run time is never taken for a brief one.
    """

    needs_estimates: ClassVar[bool] = True

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._estimate_s = view.estimate_s.astype(np.float64)
        rows, ends, gpus = self._found
        self._behind = np.empty_like(rows), np.empty_like(ends), np.empty_like(gpus)

    def decide(self, view: View) -> Decision:
        if nothing_to_do(view):
            return Decision()
        scratch, rule = view.scratch(), RULES[self.placement]
        count = admit(view.queued, False, rule, *scratch.arrays, self._found)
        starts = self._placements(count)
        rest = view.queued[count:]
        if rest.size > 1 and (scratch.milli > 0).any():
            gangs, left, state, shape = scratch.arrays
            more = fill_behind(
                rest, view.running, count, rule, view.now_s, self._estimate_s, view.service, view.held, gangs, left,
                state, shape, self._found, self._behind,
            )
            starts += self._placements(more, self._behind)
        return self.never_fits(view, Decision(start=starts))

    def fast_lane(self, view: View) -> FastLane | None:
        if not as_in(self, Easy, "decide", "never_fits") or not as_in(self, Policy, "key"):
            return None
        return FastLane(RULES[self.placement], (SUBMITTED, np.empty(0), np.empty(0), self._estimate_s), backfills=True)
