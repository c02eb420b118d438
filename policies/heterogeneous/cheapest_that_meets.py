"""Cheapest that meets: the GPU type that costs a job least of those on which it meets its deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import Planned
from policies.mechanisms.ready import Ready
from sim.api import View


@dataclass
class CheapestThatMeets(Planned):
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
        types = np.arange(len(ready))
        for i, row in enumerate(rows.tolist()):
            ends_s = np.array([float(there.start_s(milli[i])) for there in ready]) + run_s[i]
            if not (ends_s < np.inf).any():
                continue
            # The price of a GPU is the same for all widths of a job. A job of no time costs nothing at any price.
            with np.errstate(invalid="ignore"):
                usd = np.nan_to_num(self._usd_per_s * run_s[i], nan=0.0, posinf=np.inf)
            meets = ends_s <= (np.inf if np.isnan(deadline_s[i]) else deadline_s[i])
            if not meets.any():
                self._late[row] = True
                usd = np.zeros(types.size)
            usable = (ends_s < np.inf) & (meets | ~meets.any())
            t = int(np.lexsort((types, ends_s, usd, ~usable))[0])
            ready[t].take(milli[i], float(run_s[i, t]))
            yield row, t
