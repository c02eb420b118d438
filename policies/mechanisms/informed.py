"""What a policy believes of jobs on each GPU type: how fast they are there, and how long they would run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms.placing import Placing
from sim.api import Gang, View


@dataclass
class Informed(Placing):
    """A policy that reads the speed of each job on each GPU type, and has something to go by where none is believed."""

    needs_throughput: ClassVar[bool] = True

    def prepare(self, view: View) -> None:
        super().prepare(view)
        jobs, types = view.jobs, len(view.cluster.types)
        self._types = jobs.types[:, None] >> np.arange(types, dtype=np.uint64) & np.uint64(1) == 1
        self._unbelieved, self._unknown_s = np.zeros(len(jobs), dtype=bool), np.zeros(len(jobs), dtype=bool)
        # Of each job once it was asked for: beliefs of speed, and places, do not change within a run.
        self._rates, self._asked = np.zeros((len(jobs), types)), np.zeros(len(jobs), dtype=bool)
        self._room, self._tried = np.zeros((len(jobs), types), dtype=bool), np.zeros(len(jobs), dtype=bool)
        self._fits: dict[tuple[int, int, int, int], bool] = {}

    def counted(self) -> Mapping[str, int]:
        """Fallbacks taken in a run."""
        return {
            "jobs without a believed speed, taken as equally fast on all types": int(self._unbelieved.sum()),
            "jobs of unknown run time, taken as the longest known": int(self._unknown_s.sum()),
        }

    def rates(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed work a second of each whole gang on each type, 0 where it cannot run: float64 [rows, types].

        A job of which nothing is believed on any type that it may use is taken as equally fast on all of them (1).
        """
        new = rows[~self._asked[rows]]
        if new.size:
            slots = view.jobs.num_gpus[new]
            found = np.column_stack([view.throughput(new, t, slots) for t in range(self._types.shape[1])])
            found = np.where(self._types[new], np.nan_to_num(found), 0.0)
            unbelieved = np.asarray(~(found > 0).any(axis=1))
            self._unbelieved[new] = unbelieved
            self._rates[new] = np.where(unbelieved[:, None], 1.0 * self._types[new], found)
            self._asked[new] = True
        return np.asarray(self._rates[rows])

    def run_s(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed time that each job has left to run on each type, in s: float64 [rows, types].

            work left / work a second;  inf where it cannot run, or has no place even on the idle cluster

        A job of unknown run time is taken as the longest that is known (in s, on its fastest type), so that it passes
        for no brief one. For policies that need estimates.
        """
        rates = self.rates(view, rows)
        work = view.remaining_work(rows)
        unknown = np.isnan(work)
        if unknown.any():
            self._unknown_s[rows] |= unknown
            known = view.estimate_s[np.isfinite(view.estimate_s)]
            work = np.where(unknown, (known.max() if known.size else 1.0) * rates.max(axis=1), work)
        able = (rates > 0) & self._places(view, rows)
        return np.where(able, work[:, None] / np.where(able, rates, 1.0), np.inf)

    def _places(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Whether the placement rule finds each gang a place on each type of the idle cluster: bool [rows, types]."""
        jobs, new = view.jobs, rows[~self._tried[rows]]
        shapes = zip(jobs.num_gpus[new].tolist(), jobs.gpu_milli[new].tolist(), jobs.worker_gpus[new].tolist(),
                     strict=True)
        for row, shape in zip(new.tolist(), shapes, strict=True):
            for t in np.flatnonzero(self._types[row]).tolist():
                if (*shape, t) not in self._fits:
                    gang = Gang(*shape, types=1 << t)
                    self._fits[*shape, t] = view.scratch().emptied().place(gang, self.placement) is not None
                self._room[row, t] = self._fits[*shape, t]
        self._tried[new] = True
        return np.asarray(self._room[rows])
