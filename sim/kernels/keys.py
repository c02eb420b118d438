"""Priorities that change in known ways, and when a running job loses its place: one formula a form.

What a form needs is `terms`: form, numbers, weight, other (two float64 arrays by row). `service` is that of
`sim.kernels.service`.

============  ==========================================================================================
`STATIC`      other[row], whatever happens
`REMAINING`   weight[row] max(other[row] - progress, 0), the believed work left; what is unknown comes last
`QUANTA`      the whole quanta that the attained service has filled, floor(attained / (q k)) k, in steps of
              k = other[row]; numbers: q, and 1 where service is GPU time (0: time)
`QUEUES`      how many of the limits in `numbers` the attained service (time × weight[row]) has reached
`SUBMITTED`   the number of the row, whatever `other` is
============  ==========================================================================================
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part
from sim.kernels.service import attained_of, progress_of

STATIC, REMAINING, QUANTA, QUEUES, SUBMITTED = range(5)
Terms = tuple[int, np.ndarray, np.ndarray, np.ndarray]
"""Form, numbers, weight, other."""


@part
def key_of(row, now_s, terms, service):
    """The key of one job, smallest first."""
    form, numbers, weight, other = terms
    key = other[row] if other.size else 0.0
    if form == SUBMITTED:
        key = float(row)
    elif form == REMAINING:
        left = key - progress_of(row, now_s, service)
        if np.isnan(left):
            return np.inf
        key = max(left, 0.0) * weight[row]
    elif form == QUANTA:
        # A wake-up lies where a quantum is full, up to rounding: a millionth must not cost another round.
        filled = attained_of(row, now_s, numbers[1] > 0, service) / (numbers[0] * other[row]) * (1.0 + 2e-6)
        key = np.floor(filled) * other[row]
    elif form == QUEUES:
        reached = attained_of(row, now_s, False, service) * weight[row] * (1 + 1e-12)
        key = 0.0
        for limit in numbers:
            if limit <= reached:
                key += 1.0
    return key


@jit
def keys_of(rows, now_s, terms, service):
    """The keys of some jobs, float64."""
    keys = np.empty(rows.size)
    for i in range(rows.size):
        keys[i] = key_of(rows[i], now_s, terms, service)
    return keys


@jit
def next_yield_s(running, bar, gpus, now_s, terms, service):
    """When the first of `running`, all on their GPUs from now on, has a key above its `bar`; inf: never, by itself.

    `gpus` is what each job holds (GPU-s a second). What is within a millionth of a quantum counts as had.
    """
    form, numbers, weight, other = terms
    first_s = np.inf
    if form == QUANTA:
        gpu_time = numbers[1] > 0
        for i in range(running.size):
            row = running[i]
            limit = (np.floor(bar[i] / other[row]) + 1.0) * other[row] * numbers[0]
            have = attained_of(row, now_s, gpu_time, service)
            if limit - have > 1e-6 * limit:
                first_s = min(first_s, (limit - have) / (gpus[row] if gpu_time else 1.0))
    elif form == QUEUES:
        for i in range(running.size):
            row = running[i]
            if bar[i] < numbers.size:  # out of the last queue nobody falls
                lacking_s = numbers[int(bar[i])] / weight[row] - attained_of(row, now_s, False, service)
                if lacking_s > 1e-9:
                    first_s = min(first_s, lacking_s)
    return now_s + first_s
