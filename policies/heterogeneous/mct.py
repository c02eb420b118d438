"""Minimum completion time: each job in turn goes to the GPU type on which it ends first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import Planned
from policies.mechanisms.ready import Ready
from sim.api import View


@dataclass
class Mct(Planned):
    """Plans each job, in the order of submission, on the type on which it ends first (MCT: Braun et al., JPDC 2001).

        type = argmin_t (when its gang is free on t, after all planned before it + work left / believed speed on t)

    Ties: the cluster's order of types. On one type that is first come, first served (`fifo`), which ends within
    2 - 1/m of the shortest possible on m GPUs (Graham 1966, jobs of one GPU). Must know: run times and speeds. Departs:
    of gangs, the paper's tasks have one machine; a job is bound to a type only when it starts.
    """

    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        ready = [Ready(releases) for releases in self.releases(view)]
        for row, milli, times_s in zip(rows.tolist(), self.need(view, rows).tolist(), run_s, strict=True):
            ends_s = [float(there.start_s(milli)) + time_s for there, time_s in zip(ready, times_s, strict=True)]
            t = int(np.argmin(ends_s))
            if ends_s[t] < np.inf:
                ready[t].take(milli, float(times_s[t]))
                yield row, t
