"""A PAI-like workload: fractions of GPUs, gangs of instances, GPU types mostly unnamed, a midnight spike.

Every figure below is fitted to published statistics of Alibaba's PAI trace (Weng et al., "MLaaS in the Wild",
USENIX NSDI 2022, and the tables cluster-trace-gpu-v2020 that go with it). Run times: a mixture of three
lognormals fitted by least squares to the published cumulative distribution at powers of two.

Left out: dependence of run time, gang and GPU type on each other and on the user, recurring jobs, CPU-only
and unfinished tasks.
"""

from __future__ import annotations

import numpy as np

from traces.synthetic.draw import Component, choose, fill, mixture, moments, numbered, pick, within_bursts

#: Longest GPU task of the trace, s.
LONGEST_S = 626_371
#: Mean time between GPU jobs in the published sample of 100,000 jobs, s (82,184 in 7.66 days).
MEAN_GAP_S = 8.05
RUN: tuple[Component, ...] = ((0.213, 30, 0.60), (0.293, 234, 0.85), (0.494, 3129, 1.51))
#: GPUs of one instance, in thousandths.
SHARES = {100: 0.147, 250: 0.263, 500: 0.134, 1000: 0.428, 2000: 0.0215, 8000: 0.0065}
#: Instances of a job; 76 % have one, and the mean is 5.
GANGS = {
    1: 0.764, 2: 0.044, 3: 0.009, 4: 0.0083, 5: 0.036, 8: 0.016, 10: 0.050, 12: 0.006, 16: 0.007, 20: 0.018,
    25: 0.006, 30: 0.006, 40: 0.008, 50: 0.0085, 64: 0.004, 100: 0.0062, 150: 0.0018, 256: 0.0007,
    400: 0.0003, 512: 0.0002,
}
#: Most GPUs that one job takes.
WIDEST_GPUS = 800
#: MISC (any type, '') takes two thirds; V100 of 16 and 32 GB together.
TYPES = {"": 0.667, "T4": 0.217, "P100": 0.070, "V100": 0.046}
ENDS = {"passed": 0.796, "failed": 0.204}
#: Jobs by hour of the day (UTC+8) from midnight, and by weekday from Monday.
HOURS = (1080, 740, 540, 440, 555, 540, 600, 730, 590, 705, 1080, 1115,
         770, 755, 960, 1005, 970, 1075, 810, 795, 770, 680, 605, 520)
DAYS = (1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.75)
#: Users, and the standard deviation of the logarithm of their activity.
USERS, USER_SD = 1300, 2.3
BURST_ALPHA, BURST_CAP = 1.6, 100


def pai_columns(jobs: int, seed: int) -> dict[str, np.ndarray]:
    """Columns of a PAI-like trace, unsorted; time 0 is a Monday 00:00 (UTC+8), times are whole seconds."""
    arrivals, runs, ends = (np.random.default_rng([seed, stream]) for stream in (11, 12, 13))
    share = choose(runs, jobs, SHARES)
    worker = np.maximum(share // 1000, 1)
    gang = np.minimum(choose(runs, jobs, GANGS), WIDEST_GPUS // worker)
    duration_s = np.clip(np.rint(mixture(runs, jobs, RUN)), 1, LONGEST_S)
    submit_s, user = _arrivals(arrivals, jobs)
    return {
        "submit_s": np.floor(submit_s), "duration_s": duration_s, "num_gpus": gang * worker,
        "gpu_milli": np.minimum(share, 1000), "worker_gpus": worker, "user": user,
        "gpu_type": choose(runs, jobs, TYPES), "status": choose(ends, jobs, ENDS),
    }


def _arrivals(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Submission (s) and user of each job: bursts of one user, gaps of 1 to 3 s, rate by hour and day."""
    span_s = n * MEAN_GAP_S
    sizes = fill(rng, n, BURST_ALPHA, int(np.clip(n // 20, 1, BURST_CAP)))
    begin_s = moments(rng, len(sizes), span_s, HOURS, DAYS)
    after_s = within_bursts(rng.integers(1, 4, n).astype(float), sizes)
    # Activity of users: the quantiles of a lognormal, so that the same few lead under every seed.
    rank = (np.arange(USERS) + 0.5) / USERS
    activity = np.exp(USER_SD * _normal_quantile(rank))
    user = numbered("u", USERS)[pick(rng, len(sizes), activity)]
    return np.minimum(np.repeat(begin_s, sizes) + after_s, span_s), np.repeat(user, sizes)


def _normal_quantile(p: np.ndarray) -> np.ndarray:
    """Quantiles of the standard normal distribution."""
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf
    return np.array([inverse(float(x)) for x in p])
