"""An Acme-like workload: two clusters for large language models; few jobs on hundreds of GPUs take most of the time.

Fitted to published statistics of the Shanghai AI Laboratory's Acme traces, March to August 2023 (Hu et al.,
"Characterization of Large Language Model Development in the Datacenter", USENIX NSDI 2024; cluster_summary.csv and
the figures' data of the repository AcmeTrace). `vc` is the cluster: Seren and Kalos share no GPUs.

Of each cluster: run times, sizes, how jobs end, GPU time by size and by end. Run times depend on size and end by
proportional odds (`odds`), so that these shares come out; jobs of Seren then take 36 % more GPU time a job than
the summary says, whose figures do not fit each other.

Assumed: wide jobs are killed more often (odds x GPUs^0.2; without it the killed of Seren would need 75-fold odds of
running longer for their share of GPU time, not 17-fold); hours of the day as in Helios, none are published; users and
bursts (`clusters`). Left out: weekdays, waits, kinds of work (pretraining, evaluation), jobs without GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from traces.synthetic.odds import RunTimes
from traces.synthetic.whole_gpus import ALL, Cluster, chosen, cluster_columns, jobs_in_four_weeks

#: Jobs by hour of the day (UTC+8), mean 1: all four clusters of Helios.
HOURS = (0.90, 0.84, 0.68, 0.60, 0.56, 0.56, 0.55, 0.51, 0.56, 0.82, 1.12, 1.24,
         1.20, 1.22, 1.33, 1.43, 1.49, 1.33, 1.10, 1.20, 1.31, 1.22, 1.14, 1.09)
#: Hours from the first of March to the end of August 2023 (Kalos may have begun later: its rate is then higher).
LOG_H = 184 * 24.0
#: Odds of being killed grow with this power of the GPUs; assumed.
KILLED_WIDER = 0.2


@dataclass(frozen=True)
class Facts:
    """Of one cluster: GPU jobs; share in % of runs up to 2^i s, i from `first`, and the longest run, s; GPUs -> (share
    of jobs in %, longer runs); weights of passed, killed, failed on one GPU; longer runs of each."""

    jobs: int
    first: int
    below: tuple[float, ...]
    longest_s: float
    gpus: dict[int, tuple[float, float]]
    ends: tuple[float, float, float]
    longer_ends: tuple[float, float, float]


FACTS = {
    # GPU time by size: 1.3, 0.4, 0.6, 9.6, 1.2, 6.1, 9.4, 13.0, 14.6, 7.8, 5.6, 15.8, 14.5 %; by end 21.2, 66.4, 12.4 %
    # of 49.7, 7.5, 42.9 % of jobs.
    "seren": Facts(
        663_813, 0,
        (2.18, 2.78, 5.62, 11.76, 23.38, 31.71, 37.12, 48.91, 65.63, 79.21, 88.03, 92.94, 95.99, 97.53, 98.44, 99.19,
         99.64, 99.83, 99.93, 99.98, 99.997), 1_209_604.0,
        {1: (54.04, 0.0), 2: (11.39, -0.371), 4: (2.39, 0.902), 8: (28.76, 0.387), 16: (1.11, 0.926), 32: (0.93, 2.208),
         64: (0.42, 2.841), 128: (0.20, 3.260), 256: (0.16, 2.675), 384: (0.02, 4.130), 512: (0.08, 1.307),
         768: (0.055, 2.584), 1024: (0.040, 2.467)},
        (1.0, 0.1254, 0.8632), (0.0, 2.853, -0.468)),
    # GPU time by size: 0.1, 0.0, 0.5, 0.0, 1.3, 1.3, 0.5, 21.1, 1.9, 9.9, 27.4, 35.9 %; by end 31.3, 60.7, 8.0 % of
    # 54.1, 6.2, 39.7 % of jobs.
    "kalos": Facts(
        19_907, 2,
        (0.0, 0.01, 1.48, 18.72, 38.19, 50.48, 69.10, 79.45, 85.94, 92.77, 97.06, 98.68, 99.11, 99.45, 99.66, 99.83,
         99.95, 99.98), 625_740.0,
        {1: (86.28, 0.0), 2: (2.08, 2.216), 8: (5.56, 2.610), 16: (0.34, 1.663), 32: (0.39, 5.760), 64: (0.65, 3.946),
         128: (0.35, 2.410), 256: (1.22, 4.884), 496: (0.10, 3.997), 504: (0.18, 5.516), 512: (1.74, 3.681),
         1024: (1.04, 3.719)},
        (1.0, 0.1001, 0.7338), (0.0, 2.375, -1.490)),
}


def acme_columns(jobs: int, seed: int, *, cluster: str = ALL) -> dict[str, np.ndarray]:
    """Columns of an Acme-like trace, unsorted; time 0 is a Monday 00:00 (UTC+8), times are whole seconds.

    Parameters
    ----------
    cluster : {"all", "seren", "kalos"}
        Which cluster's jobs.
    """
    return cluster_columns(chosen(_clusters(), cluster), jobs, seed, 31)


def acme_jobs(*, cluster: str = ALL) -> int:
    """How many jobs four weeks of the log have."""
    return jobs_in_four_weeks(chosen(_clusters(), cluster))


@cache
def _clusters() -> dict[str, Cluster]:
    return {name: _cluster(name, facts) for name, facts in FACTS.items()}


def _cluster(name: str, facts: Facts) -> Cluster:
    """One cluster, whose run times are split among GPUs x end."""
    gpus = np.array(list(facts.gpus))
    share, longer = np.array(list(facts.gpus.values())).T
    weight = share / share.sum()
    ends = np.array(facts.ends) * np.stack((gpus**0.0, gpus**KILLED_WIDER, gpus**0.0), axis=1)
    ends /= ends.sum(axis=1, keepdims=True)
    shift = longer[:, None] + facts.longer_ends
    points_s = [*(2.0 ** (facts.first + i) for i in range(len(facts.below))), facts.longest_s]
    below = np.append(np.array(facts.below) / 100.0, 1.0)
    run_times = RunTimes(points_s, below, (weight[:, None] * ends).ravel(), shift.ravel())
    kind = np.arange(shift.size).reshape(shift.shape)
    return Cluster(name, facts.jobs / LOG_H, HOURS, gpus, weight, ends, kind, run_times)
