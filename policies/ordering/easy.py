"""EASY backfilling: first in, first out, and small jobs may slip in front if they delay nobody's promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Ordered, nothing_to_do
from sim.api import Decision, Scratch, View
from sim.kernels.admit import admit, backfill, promise
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

    def decide(self, view: View) -> Decision:
        if nothing_to_do(view):
            return Decision()
        scratch, rule = view.scratch(), RULES[self.placement]
        count = admit(view.queued, False, rule, *scratch.arrays, self._found)
        starts = self._placements(count)
        rest = view.queued[count:]
        if rest.size > 1 and (scratch.milli > 0).any():
            head, later = int(rest[0]), scratch.copy()
            shadow_s, promised = self._promise(view, head, count, later)
            belief = view.now_s, shadow_s, view.estimate_s, view.served_s
            then = later.vc_left, later.state
            starts += self._placements(
                backfill(rest[1:], belief, head, promised, rule, *scratch.arrays, *then, self._found)
            )
        return self.never_fits(view, Decision(start=starts))

    def _promise(self, view: View, head: int, count: int, later: Scratch) -> tuple[float, np.ndarray]:
        """Time and GPUs of the head's promise (-1: none), beside `count` starts; `later` becomes what is free then."""
        rows = np.concatenate((view.running, self._found[0][:count]))
        speed = np.where(view.speed[rows] > 0, view.speed[rows], 1.0)
        ends_s = view.now_s + np.fmin(view.remaining_s(rows), np.inf) / speed
        order = np.argsort(ends_s, kind="stable")
        promised = np.empty(view.jobs.num_gpus[head], dtype=np.int32)
        found = self._found
        shadow_s = promise(
            head, rows, ends_s, order, count, RULES[self.placement], view.held, *later.arrays, found, promised
        )
        return shadow_s, promised
