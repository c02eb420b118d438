"""Who submits what again: jobs come in bursts, bursts belong to groups of like jobs, groups to users.

A group is what a user runs over and over: the jobs of one group ask for the same and run for about as long. Groups are
few and their sizes are skewed, so that values drawn for each group would leave the published shares by far. They are
dealt out evenly instead: groups are laid end to end in random order, each as long as it has jobs, and a group's value
is read off at its place (`even`); shares of jobs, not of groups, then come out as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from traces.synthetic.draw import choose, fill, within_bursts

#: Groups of a larger share of all jobs than this get no rare value: a thousand like jobs would swamp its share.
SMALL = 1 / 15_000


@dataclass(frozen=True)
class Groups:
    """Group of each burst and jobs of each burst and of each group."""

    of_burst: np.ndarray
    burst_jobs: np.ndarray
    jobs: np.ndarray

    @property
    def of_job(self) -> np.ndarray:
        """Group of each job, burst by burst."""
        return np.repeat(self.of_burst, self.burst_jobs)


def groups(rng: np.random.Generator, n: int, burst: tuple[float, int], again: tuple[float, int]) -> Groups:
    """n jobs in bursts, and bursts in groups.

    Parameters
    ----------
    burst, again : (alpha, cap)
        P(jobs of a burst >= k) = k^-alpha up to cap; the same for bursts of a group (see `draw.fill`). No burst and
        no group is more than a twentieth of the trace.
    """
    burst_jobs = fill(rng, n, burst[0], int(np.clip(n // 20, 1, burst[1])))
    bursts = len(burst_jobs)
    group_bursts = fill(rng, bursts, again[0], int(np.clip(bursts // 20, 1, again[1])))
    of_burst = np.repeat(np.arange(len(group_bursts)), group_bursts)
    jobs = np.bincount(of_burst, weights=burst_jobs).astype(np.int64)
    return Groups(of_burst, burst_jobs, jobs)


def even(rng: np.random.Generator, jobs: np.ndarray, rare: float = 0.0) -> np.ndarray:
    """A place in [0, 1) for each group, such that places are spread evenly over jobs.

    Parameters
    ----------
    jobs : int64 [groups] jobs of each group.
    rare : the last part of the line, kept for small groups (`SMALL`), as far as there are any.
    """
    order = rng.permutation(len(jobs))
    size = jobs[order]
    small = size <= max(2.0, SMALL * size.sum())
    last = small & (np.cumsum(np.where(small, size, 0)) <= rare * size.sum())
    order = np.concatenate((order[~last], order[last]))
    end = np.cumsum(jobs[order])
    place = np.empty(len(jobs))
    place[order] = (end - rng.random(len(jobs)) * jobs[order]) / end[-1]
    return place


def alike(rng: np.random.Generator, of_job: np.ndarray, kind: np.ndarray, width: float) -> np.ndarray:
    """Rank of each job among the jobs of its kind, in (0, 1), such that jobs of a group are near each other.

    A group has a place, its jobs lie within width / 2 of it, and jobs of a kind are ranked by where they lie: ranks are
    evenly spread over the jobs of each kind, so that even the few widest jobs have the run times of their kind.
    """
    place = rng.random(int(of_job.max()) + 1)[of_job] + width * (rng.random(len(of_job)) - 0.5)
    order = np.argsort(2.0 * kind + place, kind="stable")  # places lie in (-1/2, 3/2): kinds do not mix
    jobs = np.bincount(kind)
    first = np.cumsum(jobs) - jobs
    of_rank = kind[order]
    rank = np.empty(len(kind))
    rank[order] = (np.arange(len(kind)) - first[of_rank] + rng.random(len(kind))) / jobs[of_rank]
    return rank


def activity(users: int, sd: float) -> np.ndarray:
    """[users] how much each submits: quantiles of a lognormal with that sd, so that the same lead under each seed."""
    inverse = NormalDist().inv_cdf
    return np.array([np.exp(sd * inverse((k + 0.5) / users)) for k in range(users)])


def at(place: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Index into a table of weights at places in [0, 1)."""
    cumulative = np.cumsum(weight)
    index: np.ndarray = np.minimum(np.searchsorted(cumulative, place * cumulative[-1], "right"), len(weight) - 1)
    return index


def submissions(
    rng: np.random.Generator, burst_jobs: np.ndarray, span_s: float, hours: Sequence[float], days: Sequence[float],
    unrest: tuple[float, float], gaps_s: dict[int, float],
) -> np.ndarray:
    """Submission of each job, s in [0, span_s], burst by burst.

    Bursts begin at a rate ∝ hours[hour of day] × days[weekday] × exp(sd × z), z a first-order autoregression from hour
    to hour; time 0 is a Monday 00:00.

    Parameters
    ----------
    unrest : (sd, correlation) of the logarithm of the rate, from one hour to the next.
    gaps_s : gap in a burst (whole s) -> weight.
    """
    sd, correlation = unrest
    hour = np.arange(int(np.ceil(span_s / 3600.0)) + 1)
    noise = rng.standard_normal(len(hour))
    for k in range(1, len(noise)):
        noise[k] = correlation * noise[k - 1] + np.sqrt(1 - correlation**2) * noise[k]
    rate = np.asarray(hours)[hour % 24] * np.asarray(days)[hour // 24 % 7] * np.exp(sd * noise)
    cumulated = np.concatenate(([0.0], np.cumsum(rate)))
    edges_s = np.append(hour, len(hour)) * 3600.0
    last = np.interp(span_s, edges_s, cumulated)
    begin_s = np.interp(rng.random(len(burst_jobs)) * last, cumulated, edges_s)
    gaps = choose(rng, int(burst_jobs.sum()), gaps_s)
    submit_s: np.ndarray = np.minimum(np.repeat(begin_s, burst_jobs) + within_bursts(gaps, burst_jobs), span_s)
    return submit_s
