"""A PAI-like workload: fractions of GPUs, gangs of instances, recurring jobs of few users, a midnight spike.

Fitted to published statistics of Alibaba's PAI trace (Weng et al., "MLaaS in the Wild", USENIX NSDI 2022; the tables
cluster-trace-gpu-v2020 that go with it and the figures of their README; run times of all GPU tasks as drawn in Hu et
al., "Characterization of Large Language Model Development in the Datacenter", USENIX NSDI 2024). A job here is a task
there: instances that start together, each with a share of a GPU or several.

What depends on what, as far as it is published: run time on the GPUs of an instance (shares of GPU time by request)
and on the gang (GPU time is 5.7 times what it would be with one instance a job); shares on the gang (demand is 3.6
times); failure on run time (median of the terminated 614 s, of all 481 s); wait on the request. Jobs recur: a user's
group asks for the same and runs for about as long. Levels of dependence that are not published are marked "assumed".

Left out: dependence of GPU type and wait on anything else, likeness of the groups of one user, tasks that recur
on the hour. The table cannot hold what the real one has beside: of its 1,261,050 tasks, 17.8 % ask for no GPU and
9.5 % had not ended.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from traces.synthetic.draw import numbered
from traces.synthetic.odds import RunTimes
from traces.synthetic.recurring import activity, alike, at, even, groups, submissions

#: Mean time between GPU jobs in the published sample of 100,000 jobs, s (82,184 in 7.66 days).
MEAN_GAP_S = 8.05
#: Share of GPU tasks that run up to 2^i s, i = 0, 1, …; then the longest, s.
BELOW = (0.0, 0.0008, 0.0012, 0.0043, 0.0299, 0.1187, 0.2106, 0.2895, 0.3962, 0.5090, 0.6079, 0.6984, 0.7851, 0.8712,
         0.9319, 0.9705, 0.9903, 0.9969, 0.9995)
LONGEST_S = 626_371.0
#: Instances of a job: one in 76.3 %, 5.0 on average; shares of all instances in gangs of at least 2, 10, 20, 25, 40,
#: 51, 80, 101, 201, 401, 501 are 85, 72, 63, 57, 48, 32, 26, 13, 7, 3, 2 %.
GANGS = {
    1: 0.7629, 2: 0.028, 3: 0.011, 4: 0.015, 5: 0.032, 6: 0.015, 7: 0.0065, 8: 0.015, 9: 0.0097, 10: 0.036, 12: 0.0037,
    15: 0.003, 20: 0.015, 25: 0.0054, 30: 0.006, 32: 0.0042, 40: 0.004, 48: 0.005, 50: 0.008, 60: 0.0015, 64: 0.0033,
    80: 0.0012, 100: 0.0055, 128: 0.0014, 160: 0.00037, 200: 0.0003, 256: 0.00047, 300: 0.00013, 400: 0.0001,
    450: 0.00011, 512: 0.00019,
}
#: GPUs of one instance in thousandths: of all jobs as published, and of gangs, chosen so that instances x GPUs is 3.6
#: times the GPUs of one instance; jobs of one instance have the rest.
SHARES = {100: 0.147, 250: 0.263, 500: 0.133, 1000: 0.428, 2000: 0.0158, 3000: 0.0011, 4000: 0.0034, 5000: 0.0040,
          8000: 0.0048}
SHARES_OF_GANGS = {100: 0.22, 250: 0.37, 500: 0.17, 1000: 0.235, 2000: 0.005}
#: Most GPUs that one job takes.
WIDEST_GPUS = 800
#: Longer runs (see `odds`): of gangs, so that their GPU time is 5.7 times that of single instances; of instances of
#: several GPUs, so that 2, 4, 5, 8 GPUs have 4.8, 5.6, 2.5, 18.4 % of GPU time, gangs not counted.
LONGER_GANG = 1.366
LONGER = {2000: 0.504, 3000: 1.996, 4000: 1.996, 5000: 0.422, 8000: 2.218}
#: MISC (any type, '') takes two thirds; V100 of 16 and 32 GB together.
TYPES = {"": 0.667, "T4": 0.217, "P100": 0.070, "V100": 0.046}
#: Share that fails, of runs up to the median of the terminated (s) and above it; 20.4 % in all.
FAIL_BELOW_S, FAIL_SHORT, FAIL_LONG = 614.0, 0.256, 0.144
#: Jobs by hour of the day (UTC+8) from midnight, and by weekday from Monday.
HOURS = (1080, 740, 540, 440, 555, 540, 600, 730, 590, 705, 1080, 1115,
         770, 755, 960, 1005, 970, 1075, 810, 795, 770, 680, 605, 520)
DAYS = (1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.75)
#: Log rate from hour to hour: quartiles of the published hourly counts are 25 % below and 30 % above their median; its
#: correlation is assumed.
UNREST = (0.33, 0.7)
#: Users, and the standard deviation of the logarithm of their activity: the first 5 % have 77 % of instances.
USERS, USER_SD = 1300, 2.4
#: Jobs of a burst, bursts of a group (`recurring.groups`): 65 % of jobs are in groups of five or more.
BURST, AGAIN = (1.6, 100), (1.85, 5000)
#: Gaps in a burst, s: so that 30 % of all gaps are of 1 to 3 s.
GAPS_S = {0: 0.57, 1: 0.20, 2: 0.13, 3: 0.10}
#: How far run times in a group differ, in ranks of all jobs of the kind; assumed.
ALIKE = 0.08
#: Wait, s, at ranks 0, 1/2, 3/4, 9/10, 99/100, 1 of jobs below 1/4, 1/2, 1 GPU, of 1 and of more (an instance). Medians
#: and 9/10 are published, for the last also 3/4 and 99/100; the rest is chosen for a mean of 402 s.
WAIT_RANKS = (0.0, 0.5, 0.75, 0.9, 0.99, 1.0)
WAITS_S = ((2, 9, 18, 50, 2200, 20_000), (2, 9, 18, 40, 2200, 20_000), (2, 10, 20, 45, 2200, 20_000),
           (2, 10, 30, 130, 12_000, 60_000), (2, 11, 150, 6000, 50_000, 200_000))


def pai_columns(jobs: int, seed: int) -> dict[str, np.ndarray]:
    """Columns of a PAI-like trace, unsorted; time 0 is a Monday 00:00 (UTC+8), times are whole seconds."""
    arrivals, runs, ends = (np.random.default_rng([seed, stream]) for stream in (11, 12, 13))
    group = groups(arrivals, jobs, BURST, AGAIN)
    submit_s = submissions(arrivals, group.burst_jobs, jobs * MEAN_GAP_S, HOURS, DAYS, UNREST, GAPS_S)
    user = numbered("u", USERS)[at(even(arrivals, group.jobs), activity(USERS, USER_SD))]
    gangs, shares, weight, run_times = _kinds()
    kind = at(even(runs, group.jobs, float(weight[weight < 0.02].sum())), weight)
    of_job = group.of_job
    duration_s = run_times.seconds(alike(runs, of_job, kind[of_job], ALIKE), kind[of_job])
    worker = np.maximum(shares // 1000, 1)
    gpu_type = np.array(list(TYPES), dtype=object)[at(even(runs, group.jobs, 0.1), np.array(list(TYPES.values())))]
    failed = ends.random(jobs) < np.where(duration_s <= FAIL_BELOW_S, FAIL_SHORT, FAIL_LONG)
    return {
        "submit_s": np.floor(submit_s), "duration_s": duration_s,
        "num_gpus": (np.minimum(gangs, WIDEST_GPUS // worker) * worker)[kind][of_job],
        "gpu_milli": np.minimum(shares, 1000)[kind][of_job], "worker_gpus": worker[kind][of_job],
        "user": user[of_job], "gpu_type": gpu_type[of_job],
        "status": np.array(["passed", "failed"], dtype=object)[failed.astype(np.int64)],
        "wait_s": _waits(ends, shares[kind][of_job]),
    }


def pai_jobs() -> int:
    """How many jobs four weeks of the log have."""
    return round(4 * 604_800 / MEAN_GAP_S)


@cache
def _kinds() -> tuple[np.ndarray, np.ndarray, np.ndarray, RunTimes]:
    """Instances, thousandths of a GPU and weight of each kind of job, the frequent first; their run times."""
    several = 1.0 - GANGS[1]
    table = []
    for gang, frequent in GANGS.items():
        for share, of_all in SHARES.items():
            of_gangs = SHARES_OF_GANGS.get(share, 0.0)
            of_these = of_gangs if gang > 1 else (of_all - several * of_gangs) / GANGS[1]
            longer = LONGER.get(share, 0.0) + LONGER_GANG * (gang > 1)
            table.append((frequent * of_these, gang, share, longer))
    weight, gangs, shares, longer = np.array(sorted((row for row in table if row[0] > 0), reverse=True)).T
    points_s = [*(2.0**i for i in range(len(BELOW))), LONGEST_S]
    return gangs.astype(np.int64), shares.astype(np.int64), weight, RunTimes(points_s, (*BELOW, 1.0), weight, longer)


def _waits(rng: np.random.Generator, share: np.ndarray) -> np.ndarray:
    """Wait of each job, whole s: log-linear between the ranks given, which are evenly spread over each class."""
    request = np.searchsorted([250, 500, 1000, 1001], share, side="right")
    wait_s = np.empty(len(share))
    for index, quantiles in enumerate(WAITS_S):
        rows = np.flatnonzero(request == index)
        rank = (rng.permutation(len(rows)) + rng.random(len(rows))) / max(len(rows), 1)
        wait_s[rows] = np.exp(np.interp(rank, WAIT_RANKS, np.log(quantiles)))
    return np.floor(wait_s)
