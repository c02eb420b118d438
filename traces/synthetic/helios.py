"""A Helios-like workload: four clusters of one company, most jobs on one GPU, most GPU time on eight to 32.

Fitted to published statistics of SenseTime's Helios traces, April to September 2020 (Hu et al., "Characterization and
Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021; cluster_summary.csv and figures of the
repository HeliosArtifact; run times and sizes of all GPU jobs as drawn in Hu et al., NSDI 2024). `vc` is the cluster:
the clusters share no GPUs.

Of each cluster: rate by hour of the day, mean GPUs, how jobs end, median and mean run time. Of all together: run
times, sizes, GPU time by size and by end. What these leave open is filled by exponential tilting (sizes of a cluster:
the common table x GPUs^exponent) and by proportional odds (run times: `odds`).

Left out: the virtual clusters within a cluster, weekdays, waits (only mean and median are published), jobs without
GPUs, jobs wider than 168 GPUs (0.005 %; the widest has 2,048). Users and bursts are assumed (`clusters`). How
long a job runs does not depend on the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from traces.synthetic.odds import RunTimes
from traces.synthetic.whole_gpus import ALL, Cluster, chosen, cluster_columns, jobs_in_four_weeks

#: Share of jobs that run up to 2^i s, i = 0, 1, …; then the longest, s.
BELOW = (0.0400, 0.0493, 0.0635, 0.0770, 0.1072, 0.1615, 0.2488, 0.3781, 0.5657, 0.6758, 0.7525, 0.8410, 0.8753, 0.9075,
         0.9436, 0.9627, 0.9777, 0.9890, 0.9955, 0.9986, 0.9996, 0.9999)
LONGEST_S = 4_320_009.0
#: GPUs -> weight before a cluster's exponent: together as all jobs (1 GPU 72.2 %, 8 GPUs 14 %).
GPUS = {1: 1.0, 2: 0.0569, 3: 0.0026, 4: 0.1957, 6: 0.0089, 8: 0.7446, 16: 0.2410, 24: 0.0360, 32: 0.1486, 40: 0.0132,
        48: 0.0146, 56: 0.0095, 64: 0.0220, 80: 0.0152, 96: 0.0125, 120: 0.0094, 152: 0.0105, 168: 0.0083}
#: Longer runs of jobs on up to so many GPUs: GPU time is 5.4, 1.7, 5.0, 29.2, 20.2, 1.9, 23.3, 3.8, 3.9, 5.6 %.
LONGER = {1: 0.0, 2: 1.636, 4: 1.138, 8: 1.315, 16: 1.865, 24: 1.080, 32: 2.242, 56: 1.503, 64: 1.988, 168: 0.935}
#: Longer runs of what passed, was killed, failed: 51.3, 39.4, 9.3 % of GPU time.
LONGER_ENDS = (0.0, 0.811, -0.525)


@dataclass(frozen=True)
class Facts:
    """Of one cluster: GPU jobs submitted by hour of the day (UTC+8); shares of passed, killed, failed in %; exponent of
    sizes (mean GPUs 6.74, 2.10, 4.01, 4.04); longer runs and their spread (medians 204, 234, 124, 280 s; means 13,041,
    5,131, 5,253, 9,164 s)."""

    hours: tuple[float, ...]
    ends: tuple[float, float, float]
    wider: float
    longer: float
    spread: float


FACTS = {
    "Venus": Facts(
        (25.9, 19.0, 17.3, 11.1, 7.7, 5.9, 5.4, 6.5, 10.8, 22.9, 37.3, 42.5,
         33.6, 37.4, 44.9, 47.7, 50.0, 50.0, 37.0, 37.9, 38.8, 39.3, 33.1, 29.9),
        (52.6, 27.2, 20.2), wider=-0.270, longer=-0.120, spread=1.178),
    "Earth": Facts(
        (107.9, 96.1, 88.5, 84.4, 81.5, 79.2, 74.0, 74.2, 72.6, 81.5, 102.0, 112.3,
         108.9, 112.7, 105.7, 115.8, 113.5, 102.0, 93.7, 107.8, 122.6, 115.6, 105.6, 101.6),
        (73.5, 13.6, 12.9), wider=-1.043, longer=0.551, spread=0.884),
    "Saturn": Facts(
        (139.5, 142.9, 113.6, 104.7, 98.0, 90.8, 85.9, 85.1, 95.4, 138.3, 184.1, 198.6,
         173.8, 185.5, 206.5, 235.0, 241.7, 219.5, 180.3, 186.3, 203.5, 195.8, 175.4, 179.8),
        (58.2, 27.2, 14.5), wider=-0.572, longer=-0.552, spread=1.063),
    "Uranus": Facts(
        (55.5, 48.7, 28.4, 16.9, 17.9, 26.0, 33.5, 20.0, 24.7, 53.9, 85.3, 96.7,
         119.2, 109.4, 125.4, 120.6, 138.1, 112.4, 88.0, 104.0, 111.3, 94.6, 100.1, 86.4),
        (60.7, 20.1, 19.2), wider=-0.567, longer=0.503, spread=0.970),
}


def helios_columns(jobs: int, seed: int, *, cluster: str = ALL) -> dict[str, np.ndarray]:
    """Columns of a Helios-like trace, unsorted; time 0 is a Monday 00:00 (UTC+8), times are whole seconds.

    Parameters
    ----------
    cluster : {"all", "Venus", "Earth", "Saturn", "Uranus"}
        Which cluster's jobs.
    """
    return cluster_columns(chosen(_clusters(), cluster), jobs, seed, 21)


def helios_jobs(*, cluster: str = ALL) -> int:
    """How many jobs four weeks of the log have."""
    return jobs_in_four_weeks(chosen(_clusters(), cluster))


@cache
def _clusters() -> dict[str, Cluster]:
    """The four clusters; one distribution of run times is split among cluster x GPUs x end."""
    gpus = np.array(list(GPUS))
    rate = np.array([np.mean(facts.hours) for facts in FACTS.values()])
    ends = np.array([facts.ends for facts in FACTS.values()])
    ends = np.repeat((ends / ends.sum(axis=1, keepdims=True))[:, None, :], len(gpus), axis=1)
    weight = np.array(list(GPUS.values())) * gpus ** np.array([[facts.wider] for facts in FACTS.values()])
    weight /= weight.sum(axis=1, keepdims=True)
    longer = np.array(list(LONGER.values()))[np.searchsorted(list(LONGER), gpus)]
    shift = (np.array([facts.longer for facts in FACTS.values()])[:, None, None] + longer[:, None] + LONGER_ENDS)
    spread = np.broadcast_to(np.array([facts.spread for facts in FACTS.values()])[:, None, None], shift.shape)
    kinds = np.arange(shift.size).reshape(shift.shape)
    of_all = (rate / rate.sum())[:, None, None] * weight[:, :, None] * ends
    points_s = [*(2.0**i for i in range(len(BELOW))), LONGEST_S]
    run_times = RunTimes(points_s, (*BELOW, 1.0), of_all.ravel(), shift.ravel(), spread.ravel())
    return {
        name: Cluster(name, float(rate[k]), facts.hours, gpus, weight[k], ends[k], kinds[k], run_times)
        for k, (name, facts) in enumerate(FACTS.items())
    }
