"""What a policy believes of each job on each GPU type: how fast it is there, and what time it still needs there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.api import View

LEAST_S = 1.0
"""A job that goes on beyond its believed run time has so much left, in s on its fastest type."""
UNKNOWN_SPEED = "jobs of unknown speed, taken as equally fast on all their types"
UNKNOWN_TIME = "jobs of unknown run time, counted as the mean of those there"
NO_TYPE = "no GPU type that it may use is believed to run it"
"""Reason of a rejection."""


class TimeLeft:
    """Believed speed of each job's gang, and its time left, by GPU type: work left / speed. For policies with
    needs_throughput; times need needs_estimates, too.

        speed  0 where a job may not or cannot run. Of which no speed is known: 1 on each type whose speed is unknown
        time   unknown: the mean of those known, in s on each job's fastest type, of the jobs that wait or run now

    The mean is of no job that has not come yet, and says of a job neither that it is brief nor that all others go
    first; equal jobs of which nothing is known stay equal. Speeds are asked for when a job is first met, since a trace
    may be long, and once more when it has been profiled: else they do not change within a run.

    Parameters
    ----------
    least_s : what a job that goes on beyond its believed run time has left, in s on its fastest type.
    aware : False: each type on which a job runs counts as equally fast (1).

    Attributes
    ----------
    unknown : bool [jobs], no speed of the job is known on any type that it may use. Of jobs asked for.
    """

    def __init__(self, view: View, least_s: float = LEAST_S, aware: bool = True) -> None:
        jobs, types = len(view.jobs), len(view.cluster.types)
        self._least_s, self._aware = least_s, aware
        self._speed = np.zeros((jobs, types))
        self._asked = np.zeros(jobs, dtype=np.int8)  # 1: before its speed was known; 2: since then
        self._nowhere, self._timeless = np.zeros(jobs, dtype=bool), np.zeros(jobs, dtype=bool)
        self.unknown = np.zeros(jobs, dtype=bool)

    @property
    def counts(self) -> Mapping[str, int]:
        """Jobs of which something was asked that is not known, by what is done about it."""
        return {UNKNOWN_SPEED: int(self.unknown.sum()), UNKNOWN_TIME: int(self._timeless.sum())}

    def speeds(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed work a second of each whole gang on each type: float64 [rows, types]."""
        when = 1 + view.speed_known(rows)
        new = rows[self._asked[rows] < when]
        if new.size:
            when = when[self._asked[rows] < when]
            types, slots = self._speed.shape[1], view.jobs.num_gpus[new]
            found = np.column_stack([view.throughput(new, t, slots) for t in range(types)])
            allowed = view.jobs.may_use(types, new)
            open_, runs = allowed & np.isnan(found), allowed & (found > 0)
            unknown = open_.any(axis=1) & ~runs.any(axis=1)
            runs[unknown] = open_[unknown]
            ones = unknown if self._aware else np.ones_like(unknown)
            self._speed[new] = np.where(runs, np.where(ones[:, None], 1.0, found), 0.0)
            self.unknown[new], self._nowhere[new], self._asked[new] = unknown, ~runs.any(axis=1), when
        return np.asarray(self._speed[rows])

    def lost(self, view: View) -> list[tuple[int, str]]:
        """Waiting jobs that no type is believed to run, with the reason of their rejection."""
        self.speeds(view, view.queued)
        return [(row, NO_TYPE) for row in view.queued[self._nowhere[view.queued]].tolist()]

    def work(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed work left of jobs that are there, in the unit of their speeds: float64 [rows]."""
        work, fastest = self._known(view, rows)
        unknown = np.isnan(work)
        if unknown.any():
            self._timeless[rows] |= unknown
            there, fastest_there = self._known(view, np.concatenate((view.queued, view.running)))
            known_s = (there / fastest_there)[~np.isnan(there)]
            work = np.where(unknown, (known_s.mean() if known_s.size else LEAST_S) * fastest, work)
        return np.maximum(work, self._least_s * fastest)

    def _known(self, view: View, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Believed work left, NaN: unknown; and the speed on the fastest type (1 of a job that runs nowhere)."""
        fastest = self.speeds(view, rows).max(axis=1, initial=0.0)
        # Of speed 1 on each type, and so in seconds on the reference GPUs.
        in_s = self.unknown[rows] if self._aware else np.ones(rows.size, dtype=bool)
        return (np.where(in_s, view.remaining_s(rows), view.remaining_work(rows)),
                np.where(self._nowhere[rows], 1.0, fastest))

    def of(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Time left of jobs that are there: float64 [rows, types], in s; inf where a job cannot run."""
        speed, work = self.speeds(view, rows), self.work(view, rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(speed > 0, work[:, None] / speed, np.inf))
