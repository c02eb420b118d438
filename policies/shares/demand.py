"""What jobs ask of the GPU types, jobs that are alike in one row; and the shares that need no program: equal ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Demand:
    """Groups of jobs that are alike, and the GPUs that they compete for.

    All programs here are over shares X[group, type] >= 0 of the time of **one** job of a group, with

        sum_t X[i, t] <= 1   and   sum_i jobs[i] gpus[i] X[i, t] <= there[t].

    Why one column for a group is enough: let X be a best solution over single jobs. Exchanging two jobs that are alike
    (same speeds, gang, and all that the objective knows of them) gives another solution, as good. The feasible set is
    convex and the objectives are concave (the least of, or a sum of, linear functions; finish times are quasi-convex,
    their level sets being convex), so that the mean of X over all such exchanges is feasible, and no worse. In it alike
    jobs have equal shares.

    Attributes
    ----------
    speed : float64 [groups, types], work a second of one job on its gang; 0: it does not run there.
    gpus : float64 [groups], GPUs of the gang of one job.
    jobs : float64 [groups], how many jobs are alike.
    there : float64 [types], GPUs.
    """

    speed: np.ndarray
    gpus: np.ndarray
    jobs: np.ndarray
    there: np.ndarray

    @cached_property
    def fastest(self) -> np.ndarray:
        """float64 [groups]: speed on the best type, work a second; 0: runs nowhere."""
        return self.speed.max(axis=1, initial=0.0)

    @cached_property
    def mean_speed(self) -> np.ndarray:
        """float64 [groups]: sum_t speed[i, t] there[t] / sum(there), speed of time spread evenly over all GPUs."""
        return np.asarray(self.speed @ (self.there / max(self.there.sum(), 1e-300)))

    def rate(self, shares: np.ndarray) -> np.ndarray:
        """float64 [groups]: effective throughput of a job, sum_t speed[i, t] X[i, t], work a second."""
        return np.asarray((self.speed * shares).sum(axis=1))

    def alone(self) -> np.ndarray | None:
        """The shares of jobs that do not compete: each has its fastest type all the time; None where they do.

        They make each job as fast as it can ever be, so that they are best for each objective in which a job that is
        faster is worth no less and GPU time costs nothing. Equally fast types: the first.
        """
        return self.each_on(self.speed)

    def each_on(self, worth: np.ndarray) -> np.ndarray | None:
        """Shares of 1 on the type of the largest `worth` above 0 of each group; None where the GPUs are too few."""
        best = worth.argmax(axis=1)
        runs = worth[np.arange(len(best)), best] > 0
        need = np.bincount(best[runs], (self.jobs * self.gpus)[runs], self.there.size)
        if (need > self.there).any():
            return None
        shares = np.zeros(self.speed.shape)
        shares[np.flatnonzero(runs), best[runs]] = 1.0
        return shares

    def equal(self) -> np.ndarray:
        """`equal_shares` of one job of each group."""
        return equal_shares(self.gpus, max(self.jobs.sum(), 1.0), self.there)


def equal_shares(gpus: np.ndarray, jobs: float, there: np.ndarray) -> np.ndarray:
    """Isolated shares: there[t] / (jobs x gpus[i]), a row scaled down to a sum of at most 1. Float64 [rows, types].

    What each of so many jobs would have on its own part of the cluster (Gavel, OSDI'20, section 4.2; as in its
    simulator a job of several GPUs has less of the time, not more of the GPUs). Types on which a job does not run count
    as well.
    """
    shares = there / jobs / gpus[:, None]
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0))


def grouped(
    speed: np.ndarray, gpus: np.ndarray, there: np.ndarray, *more: np.ndarray
) -> tuple[Demand, np.ndarray, np.ndarray]:
    """Jobs that are alike put together.

    Parameters
    ----------
    speed, gpus, there : of single jobs, as in `Demand`.
    more : float64 [jobs] each: what else an objective knows of a job (weight, work left, …).

    Returns
    -------
    demand : the groups, in the order of their values.
    first : int64 [groups], the first job of each.
    group : int64 [jobs], so that shares[group] are those of the jobs.
    """
    known = np.column_stack((speed, gpus, *more))
    if not len(known):
        nobody = np.empty(0, dtype=np.int64)
        return Demand(speed, gpus, np.empty(0), there), nobody, nobody
    order = np.lexsort(known.T)
    changes = np.any(known[order[1:]] != known[order[:-1]], axis=1)
    of_sorted = np.concatenate(([0], np.cumsum(changes)))
    group = np.empty(len(known), dtype=np.int64)
    group[order] = of_sorted
    first = order[np.concatenate(([0], np.flatnonzero(changes) + 1))]  # lexsort is stable: the first of its group
    return Demand(speed[first], gpus[first], np.bincount(group).astype(float), there), first, group
