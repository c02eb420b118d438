"""What jobs have had until now: one pass over the rows asked for."""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def attained(rows, now_s, held, begin_s, rate):
    """held[row], and rate[row] for each second since begin_s[row] (NaN: the job waits, nothing is added)."""
    out = np.empty(rows.size)
    for i in range(rows.size):
        row = rows[i]
        out[i] = held[row]
        if now_s > begin_s[row]:
            out[i] += (now_s - begin_s[row]) * rate[row]
    return out


@jit
def progress(rows, now_s, served_s, begin_s, overhead_s, speed):
    """served_s[row], and speed[row] for each second since begin_s[row] + overhead_s[row]."""
    out = np.empty(rows.size)
    for i in range(rows.size):
        row = rows[i]
        out[i] = served_s[row]
        worked_s = now_s - begin_s[row] - overhead_s[row]
        if worked_s > 0.0:
            out[i] += worked_s * speed[row]
    return out


@jit
def first_to_reach(limits, rows, now_s, held, begin_s, rate):
    """Seconds until the first of `rows`, all running from now on, has had its limit; inf where all have had it.

    What is within a millionth of the limit counts as reached. An infinite limit is never reached.
    """
    first_s = np.inf
    for i in range(rows.size):
        row = rows[i]
        have = held[row]
        if now_s > begin_s[row]:
            have += (now_s - begin_s[row]) * rate[row]
        limit = limits[i]
        if limit - have > 1e-6 * limit:
            first_s = min(first_s, (limit - have) / rate[row])
    return first_s
