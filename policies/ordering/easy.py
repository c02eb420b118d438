"""EASY backfilling: first in, first out, and small jobs may slip in front if they delay nobody's promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Ordered, nothing_to_do
from sim.api import Decision, Scratch, View
from sim.kernels.admit import admit, backfill
from sim.kernels.placement import RULES


@dataclass
class Easy(Ordered):
    """EASY backfilling (Lifka 1995; Mu'alem and Feitelson, TPDS 2001) on believed run times.

    The first job that does not fit is promised its GPUs at the earliest time at which, by the believed ends of the
    running jobs, enough GPUs of one of its types are free (a count: the placement rule may still make it wait). A later
    job may start now if it ends by that time, or takes only GPUs that the promise leaves. A job of unknown run time
    is never taken for a brief one.
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
            rows = np.concatenate((view.running, np.array([row for row, _ in starts], dtype=np.int32)))
            promise = self._promise(view, int(rest[0]), rows, dict(starts), scratch)
            belief = view.now_s, view.estimate_s, view.served_s
            starts += self._placements(backfill(rest[1:], belief, promise, rule, *scratch.arrays, self._found))
        return self.never_fits(view, Decision(start=starts))

    def _promise(
        self, view: View, head: int, rows: np.ndarray, starts: dict, scratch: Scratch
    ) -> tuple[int, float, int]:
        """Type, time and spare milli-GPUs of the head job's promise."""
        speed = np.where(view.speed[rows] > 0, view.speed[rows], 1.0)
        ends_s = view.now_s + np.fmin(view.remaining_s(rows), np.inf) / speed
        milli = np.rint(view.jobs.gpus[rows] * 1000).astype(np.int64)
        closed = scratch.milli < 0
        if closed.any():  # what is given back on a closed GPU is for nobody
            lost = np.array([closed[view.gpus_of(row)].sum() for row in rows.tolist()], dtype=np.int64)
            milli -= lost * view.jobs.gpu_milli[rows]
        gpu_type = view.cluster.gpu_type
        first = np.array(
            [starts[r].gpus[0] if r in starts else view.slots[view.slot_at[r]] for r in rows.tolist()], dtype=np.int64
        )
        need, free = int(np.rint(view.jobs.gpus[head] * 1000)), scratch.type_milli().tolist()
        best = (0, np.inf, 0)
        for t in range(len(view.cluster.types)):
            if not int(view.jobs.types[head]) >> t & 1:
                continue
            here = np.flatnonzero(gpu_type[first] == t) if rows.size else np.empty(0, dtype=np.int64)
            order = here[np.argsort(ends_s[here], kind="stable")]
            total = free[t] + np.cumsum(milli[order])
            enough = np.flatnonzero(total >= need)
            if free[t] >= need:  # enough in number, but not in one place
                found = (t, float(view.now_s), free[t] - need)
            elif enough.size:
                at = float(ends_s[order[enough[0]]])
                by_then = total[np.flatnonzero(ends_s[order] <= at)[-1]]
                found = (t, at, int(by_then) - need)
            else:
                continue
            if found[1] < best[1]:
                best = found
        return best
