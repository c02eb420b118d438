"""Min-min: of all waiting jobs the one that can end first is planned first, where it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import ByEnds
from policies.mechanisms.ready import Ready
from sim.api import View


@dataclass
class MinMin(ByEnds):
    """Plans that job next which ends first of all, on the type on which it does (Ibarra and Kim, JACM 1977, D; min-min
    of Braun et al., JPDC 2001).

        (job, type) = argmin over jobs and types of (when its gang is free there + work left / believed speed there)

    again and again, each time after all planned before. Ties: the order of submission, then the cluster's order of
    types. On one type with jobs of one GPU that is shortest first (`sjf`). Must know: run times and speeds. Departs: of
    gangs, the paper's tasks have one machine; planned anew at each instant over all who wait.
    """

    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        ready = [Ready(releases) for releases in self.releases(view)]
        milli = self.need(view, rows)
        ends_s = np.column_stack([there.starts_s(milli) for there in ready]) + run_s
        while rows.size:
            i, t = divmod(int(np.argmin(ends_s)), len(ready))
            if not ends_s[i, t] < np.inf:
                break
            ready[t].take(int(milli[i]), float(run_s[i, t]))
            yield int(rows[i]), t
            ends_s[i] = np.inf
            ends_s[:, t] = np.where(np.isinf(ends_s).all(axis=1), np.inf, ready[t].starts_s(milli) + run_s[:, t])
