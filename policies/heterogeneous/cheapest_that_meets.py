"""Cheapest that meets: the GPU type that costs a job least of those on which it meets its deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import ByEnds
from policies.mechanisms.ready import Ready
from sim.api import View


@dataclass
class CheapestThatMeets(ByEnds):
    """Plans each job, in the order of submission, on the cheapest type on which it ends by its deadline.

        cost on t = price of a GPU-hour of t × GPUs × work left / believed speed on t
        type = argmin of cost over types with (when its gang is free there + work left / believed speed) <= deadline

    Ties: where it ends first, then the cluster's order of types. A job without a deadline takes the cheapest type,
    however long it waits there. One that meets its deadline nowhere (or whose deadline is past) goes where it ends
    first, and is counted. A type of unknown price comes after all others. Must know: run times, speeds, prices.
    """

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._usd_per_s = np.nan_to_num([gpu.price_or_nan for gpu in view.cluster.types], nan=np.inf) / 3600
        self._late = np.zeros(len(view.jobs), dtype=bool)

    def counted(self) -> Mapping[str, int]:
        return {**super().counted(), "jobs that met their deadline on no type when they waited": int(self._late.sum())}

    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        ready = [Ready(releases) for releases in self.releases(view)]
        milli, deadline_s = self.need(view, rows).tolist(), view.jobs.deadline_s[rows]
        latest_s = np.where(np.isnan(deadline_s), np.inf, deadline_s).tolist()
        # The price of a GPU is the same for all widths of a job. A job of no time costs nothing at any price.
        with np.errstate(invalid="ignore"):
            usd = np.nan_to_num(self._usd_per_s * run_s, nan=0.0, posinf=np.inf).tolist()
        for i, (row, times_s) in enumerate(zip(rows.tolist(), run_s.tolist(), strict=True)):
            ends_s = [there.start_s(milli[i]) + time_s for there, time_s in zip(ready, times_s, strict=True)]
            usable = [t for t, end_s in enumerate(ends_s) if end_s < np.inf]
            if not usable:
                continue
            meets = [t for t in usable if ends_s[t] <= latest_s[i]]
            if meets:
                t = min(meets, key=lambda t: (usd[i][t], ends_s[t], t))
            else:
                self._late[row] = True
                t = min(usable, key=ends_s.__getitem__)
            ready[t].take(milli[i], times_s[t])
            yield row, t
