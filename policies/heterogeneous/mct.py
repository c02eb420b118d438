"""Minimum completion time: each job in turn goes to the GPU type on which it ends first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import ByEnds
from policies.mechanisms.ready import Ready
from sim.api import View, param


@dataclass
class Mct(ByEnds):
    """Plans each job, in the order of submission, on the type on which it ends first (MCT: Braun et al., JPDC 2001).

        type = argmin_t (when its gang is free on t, after all planned before it + work left / believed speed on t)

    Ties: the cluster's order of types. On one type that is first come, first served (`fifo`), which ends within
    2 - 1/m of the shortest possible on m GPUs (Graham 1966, jobs of one GPU). With `gaps` a job may slip into a gap
    before a gang that waits, which it does not delay: then it is conservative backfilling. Must know: run times and
    speeds. Departs: of gangs, the paper's tasks have one machine; a job is bound to a type only when it starts.
    """

    gaps: bool = param(False, help="plan in the gaps before gangs that wait, too; else behind all planned before")

    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        if self.gaps:
            return self.in_gaps(view, rows, run_s, range(rows.size))
        return self._one_after_another(view, rows, run_s)

    def _one_after_another(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        ready = [Ready(releases) for releases in self.releases(view)]
        for row, milli, times_s in zip(rows.tolist(), self.need(view, rows).tolist(), run_s.tolist(), strict=True):
            ends_s = [there.start_s(milli) + time_s for there, time_s in zip(ready, times_s, strict=True)]
            first_s = min(ends_s)
            if first_s < np.inf:
                t = ends_s.index(first_s)
                ready[t].take(milli, times_s[t])
                yield row, t
