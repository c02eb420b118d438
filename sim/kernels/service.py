"""What jobs have had until now: of one job, and in one pass over the rows asked for.

`service`, float64 [7, jobs], has a row for HELD and HELD_GPU (s, GPU-s), BEGIN (s; NaN: the job waits), OVERHEAD (s),
SERVED (s on the reference GPUs), SPEED and SLOTS_GPU, as in the view: true up to BEGIN, what has passed since is added.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part

HELD, HELD_GPU, BEGIN, OVERHEAD, SERVED, SPEED, SLOTS_GPU = range(7)


@part
def progress_of(row, now_s, service):
    """Work that a job has done until now, in seconds on its reference GPUs; its overhead brings none."""
    worked_s = now_s - service[BEGIN, row] - service[OVERHEAD, row]
    return service[SERVED, row] + worked_s * service[SPEED, row] if worked_s > 0.0 else service[SERVED, row]


@part
def attained_of(row, now_s, gpu_time, service):
    """Time, or GPU time, that a job has held until now."""
    have, rate = (service[HELD_GPU, row], service[SLOTS_GPU, row]) if gpu_time else (service[HELD, row], 1.0)
    return have + (now_s - service[BEGIN, row]) * rate if now_s > service[BEGIN, row] else have


@jit
def attained(rows, now_s, gpu_time, service):
    """Time, or GPU time, that each job has held until now."""
    out = np.empty(rows.size)
    for i in range(rows.size):
        out[i] = attained_of(rows[i], now_s, gpu_time, service)
    return out


@jit
def progress(rows, now_s, service):
    """Work that each job has done until now, in seconds on its reference GPUs."""
    out = np.empty(rows.size)
    for i in range(rows.size):
        out[i] = progress_of(rows[i], now_s, service)
    return out
