"""What a policy believes of the time that each job still needs on each GPU type."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sim.api import View

LEAST_S = 1.0
"""A job that goes on beyond its believed run time has so much left, in s on its fastest type."""
UNKNOWN_SPEED = "jobs of unknown speed, taken as equally fast on all their types"
UNKNOWN_TIME = "jobs of unknown run time, counted as the mean of those there"
NO_TYPE = "no GPU type that it may use is believed to run it"
"""Reason of a rejection."""


class TimeLeft:
    """Believed time left of each job by GPU type: work left / throughput, for policies with needs_estimates and
    needs_throughput.

    Attributes
    ----------
    speed : float64 [jobs, types], believed work a second of each job's gang; 0: it may not or cannot run there.
    nowhere : bool [jobs], no type is believed to run the job.
    unknown : bool [jobs], no speed of the job is known on any type that it may use.
    counts : jobs of which something is not known, by what is done about it.
    """

    def __init__(self, view: View) -> None:
        jobs, types = view.jobs, len(view.cluster.types)
        allowed = jobs.types[:, None] >> np.arange(types, dtype=np.uint64) & np.uint64(1) == 1
        rows = np.arange(len(jobs))
        believed = np.column_stack([view.throughput(rows, t, jobs.num_gpus) for t in range(types)])
        self.unknown = (np.isnan(believed) | ~allowed).all(axis=1) & allowed.any(axis=1)
        self.speed = np.where(allowed & (believed > 0), believed, 0.0)
        self.speed[self.unknown] = allowed[self.unknown]
        self.nowhere = np.asarray(~(self.speed > 0).any(axis=1))
        self.counts: Counter[str] = Counter()
        self.counts[UNKNOWN_SPEED] = int(self.unknown.sum())
        self.counts[UNKNOWN_TIME] = int(np.isnan(view.estimate_s).sum())

    def of(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Time left of jobs that are there: float64 [rows, types], in s, above 0; inf where a job cannot run."""
        speed = self.speed[rows]
        fastest = np.where(self.nowhere[rows], 1.0, speed.max(axis=1))
        # Of unknown speed: 1 on each type, and so in seconds on the reference GPUs.
        work = np.where(self.unknown[rows], view.remaining_s(rows), view.remaining_work(rows))
        least_s = work / fastest
        known = ~np.isnan(least_s) & ~self.nowhere[rows]
        mean_s = least_s[known].mean() if known.any() else LEAST_S
        work = np.maximum(np.where(known, least_s, mean_s), LEAST_S) * fastest
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(speed > 0, work[:, None] / speed, np.inf))
