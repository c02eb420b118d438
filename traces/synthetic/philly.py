"""A Philly-like workload: virtual clusters that differ, a robot, bursts, retries.

Every figure below is a fit to published statistics of Microsoft's Philly trace (Jeon et al., "Analysis of
Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019, and the public trace that
goes with it): shares and GPU counts of each virtual cluster as counted, run times as mixtures of up to three
lognormals fitted by expectation maximisation to jobs of 1, of 2 to 7 and of 8 or more GPUs, in each
virtual cluster.

Left out: likeness of the jobs of one burst, drift over months, correlation of run times within a user.
The number of users and how jobs are shared among them is assumed; the subset fitted names no users.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.synthetic.draw import Component, choose, fill, mixture, moments, numbered, within_bursts

#: Longest job of the public trace, s (53 days).
LONGEST_S = 53 * 86_400
#: Mean time between submissions in the ten full weeks of October to December 2017, s.
MEAN_GAP_S = 81.5
#: Arrival rate by hour of the day (UTC) and by weekday from Monday, mean 1.
HOURS = (1.31, 1.01, 1.18, 1.17, 0.88, 1.16, 1.62, 1.93, 1.18, 0.93, 0.81, 0.70,
         0.62, 0.61, 0.50, 0.64, 0.91, 0.73, 0.90, 0.78, 1.00, 0.94, 1.23, 1.25)
DAYS = (0.95, 1.10, 1.18, 1.31, 1.37, 0.59, 0.50)
#: A program of one virtual cluster that submits a short 1-GPU job every ten minutes: its share of all jobs.
ROBOT_SHARE, ROBOT_VC, ROBOT_PERIOD_S = 0.104, "11cb48", 600.0
ROBOT_RUN: tuple[Component, ...] = ((1.0, 70.0, 0.10),)


@dataclass(frozen=True)
class VirtualCluster:
    """A tenant's jobs: weight, GPU count -> weight, run times of jobs of 1, of 2 to 7, of 8 and more GPUs."""

    weight: float
    gpus: dict[int, float]
    one: tuple[Component, ...]
    some: tuple[Component, ...] = ()
    wide: tuple[Component, ...] = ()
    burst_alpha: float = 2.2


#: Weights in % of all jobs, the robot's not counted.
CLUSTERS: dict[str, VirtualCluster] = {
    "6214e9": VirtualCluster(
        50.1, {1: 990.7, 2: 1.2, 4: 3.5, 8: 4.6},
        ((0.207, 90, 0.87), (0.785, 2143, 1.16), (0.008, 240_800, 1.2)),
        ((0.522, 353, 1.33), (0.478, 27_300, 1.62)),
        ((0.294, 86, 0.34), (0.706, 9360, 1.51)), 0.9),
    "11cb48": VirtualCluster(
        9.2, {1: 803, 2: 188, 4: 5.3, 8: 1.3, 16: 2.5},
        ((0.573, 70, 0.30), (0.171, 156, 1.8), (0.256, 6570, 1.7)),
        ((0.909, 18, 0.46), (0.091, 500, 3.6)),
        ((0.307, 421, 1.39), (0.693, 43_000, 1.45))),
    "6c71a0": VirtualCluster(
        12.1, {1: 910, 2: 3.7, 4: 40, 8: 45.7, 16: 1.1},
        ((0.878, 1272, 1.68), (0.122, 15_100, 2.0)),
        ((0.792, 149, 0.91), (0.208, 5570, 1.68)),
        ((0.413, 310, 0.78), (0.587, 28_700, 1.38)), 0.9),
    "b436b2": VirtualCluster(
        9.0, {1: 975, 2: 0.4, 4: 9.7, 8: 6.9, 16: 7.8, 24: 0.3},
        ((0.962, 1303, 0.52), (0.038, 4186, 2.5)),
        ((0.545, 9480, 2.8), (0.455, 441_900, 0.73)),
        ((0.267, 573, 1.43), (0.733, 220_000, 1.06)), 0.9),
    "103959": VirtualCluster(
        2.4, {1: 812, 2: 17, 4: 171},
        ((0.719, 195, 0.90), (0.281, 21_800, 0.50)),
        ((0.328, 6230, 0.90), (0.672, 134_000, 0.50))),
    "ee9e8c": VirtualCluster(
        1.8, {1: 395, 2: 72, 4: 176, 8: 278, 16: 64, 32: 9, 64: 4, 128: 2},
        ((0.101, 3, 0.68), (0.222, 778, 1.8), (0.677, 35_700, 1.08)),
        ((0.035, 17, 1.25), (0.965, 30_800, 1.19)),
        ((0.248, 605, 3.0), (0.752, 149_000, 1.0))),
    "0e4a51": VirtualCluster(
        1.7, {1: 760, 2: 114, 4: 126},
        ((0.762, 199, 0.33), (0.037, 1460, 2.4), (0.201, 174_700, 0.77)),
        ((0.011, 1578, 0.53), (0.989, 137_600, 1.04))),
    "ed69ec": VirtualCluster(1.4, {1: 1}, ((0.055, 180, 2.5), (0.622, 1940, 1.15), (0.323, 70_000, 0.41))),
    "7f04ca": VirtualCluster(
        0.9, {1: 282, 4: 455, 8: 248, 16: 15},
        ((0.246, 611, 1.27), (0.462, 11_400, 0.84), (0.292, 263_800, 0.74)),
        ((0.479, 573, 1.36), (0.521, 79_700, 0.86)),
        ((0.489, 5480, 1.65), (0.511, 353_500, 1.08))),
    "2869ce": VirtualCluster(
        0.5, {1: 152, 2: 9, 4: 24, 8: 694, 32: 121},
        ((0.156, 191, 0.39), (0.844, 8240, 0.86)),
        ((0.420, 194, 0.67), (0.580, 5410, 1.06)),
        ((0.510, 2050, 1.51), (0.490, 154_000, 0.61))),
    "e13805": VirtualCluster(
        0.5, {1: 575, 2: 8, 4: 273, 8: 96, 12: 19, 16: 11, 24: 10, 32: 8},
        ((0.183, 389, 1.0), (0.345, 5920, 0.61), (0.472, 99_100, 0.99)),
        ((0.316, 1870, 1.79), (0.684, 17_300, 0.55)),
        ((0.559, 576, 0.95), (0.441, 69_700, 1.39))),
}

#: How jobs end: shares of jobs and of GPU time in the public trace are 60/9/31 % and 32/29/39 %, so long jobs
#: are killed more often. Weights below and above a day.
ENDS_SHORT = {"passed": 0.615, "killed": 0.082, "failed": 0.303}
ENDS_LONG = {"passed": 0.30, "killed": 0.32, "failed": 0.38}
#: Attempts of failed and of other jobs; all jobs together: 1 80 %, 2 10 %, 3 2.6 %, 4 1.5 %, 5 5 %, 6 1 %.
TRIES_FAILED = {1: 0.50, 2: 0.20, 3: 0.07, 4: 0.04, 5: 0.16, 6: 0.03}
TRIES_OTHER = {1: 0.936, 2: 0.052, 3: 0.0066, 4: 0.004, 5: 0.0014}


def philly_columns(jobs: int, seed: int) -> dict[str, np.ndarray]:
    """Columns of a Philly-like trace, unsorted; time 0 is a Monday 00:00 UTC, times are whole seconds."""
    arrivals, runs, ends = (np.random.default_rng([seed, stream]) for stream in (1, 2, 3))
    span_s = jobs * MEAN_GAP_S
    names = list(CLUSTERS)
    robots = round(jobs * ROBOT_SHARE)
    vc, submit_s, user = _bursts(arrivals, jobs - robots, span_s)
    vc = np.concatenate((vc, np.full(robots, names.index(ROBOT_VC))))
    robot_s = (arrivals.random() + np.arange(robots)) * ROBOT_PERIOD_S + 2.0 * arrivals.random(robots)
    gpus, duration_s = np.ones(jobs, dtype=np.int64), np.empty(jobs)
    for index, cluster in enumerate(CLUSTERS.values()):
        rows = np.flatnonzero(vc[: jobs - robots] == index)
        gpus[rows] = choose(runs, len(rows), cluster.gpus)
        size = np.searchsorted([2, 8], gpus[rows], side="right")
        for kind, run in enumerate((cluster.one, cluster.some, cluster.wide)):
            group = rows[size == kind]
            if len(group):
                duration_s[group] = mixture(runs, len(group), run)
    duration_s[jobs - robots :] = mixture(runs, robots, ROBOT_RUN)
    duration_s = np.clip(np.rint(duration_s), 1, LONGEST_S)
    status, attempts = _ends(ends, duration_s)
    return {
        "submit_s": np.floor(np.concatenate((submit_s, robot_s))), "duration_s": duration_s, "num_gpus": gpus,
        "vc": np.array(names, dtype=object)[vc], "status": status, "attempts": attempts,
        "user": np.concatenate((user, np.full(robots, f"{ROBOT_VC}-robot", dtype=object))),
    }


def _bursts(rng: np.random.Generator, n: int, span_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Virtual cluster (index), submission (s) and user of the n jobs that people submit, burst by burst."""
    weight = np.array([c.weight for c in CLUSTERS.values()])
    cap = int(np.clip(n // 20, 1, 1000))
    sizes, owner = [], []
    # How many jobs a virtual cluster has is drawn first, so that a few huge bursts do not upset the shares.
    for index, count in enumerate(rng.multinomial(n, weight / weight.sum())):
        size = fill(rng, int(count), list(CLUSTERS.values())[index].burst_alpha, cap)
        sizes.append(size)
        owner.append(np.full(len(size), index))
    size, burst_vc = np.concatenate(sizes), np.concatenate(owner)
    begin_s = moments(rng, len(size), span_s, HOURS, DAYS)
    # In the bursts of the log, gaps are 1 to 20 s; jobs that would fall behind the end come at the end.
    after_s = within_bursts(rng.exponential(8.7, n), size)
    submit_s = np.minimum(np.repeat(begin_s, size) + after_s, span_s)
    return np.repeat(burst_vc, size), submit_s, np.repeat(_users(rng, burst_vc), size)


def _users(rng: np.random.Generator, vc: np.ndarray) -> np.ndarray:
    """A user for each burst. Assumed: 8 x sqrt(weight in %) users a tenant, and the first submit the most."""
    out = np.empty(len(vc), dtype=object)
    for index, (name, cluster) in enumerate(CLUSTERS.items()):
        rows = np.flatnonzero(vc == index)
        people = numbered(f"{name}-u", max(2, int(8 * np.sqrt(cluster.weight))))
        out[rows] = people[(len(people) * rng.random(len(rows)) ** 2).astype(np.int64)]
    return out


def _ends(rng: np.random.Generator, duration_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Status and number of attempts of each job."""
    n, long = len(duration_s), duration_s > 86_400
    status = np.where(long, choose(rng, n, ENDS_LONG), choose(rng, n, ENDS_SHORT))
    attempts = np.where(status == "failed", choose(rng, n, TRIES_FAILED), choose(rng, n, TRIES_OTHER))
    return status, attempts
