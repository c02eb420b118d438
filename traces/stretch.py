"""A stretch of a log thinned to a load: jobs are left out, those that stay come when they came.

So many jobs at a load last as long as they last: GPU time asked for / (load x what the cluster is worth). Who wants
both gets a stretch of that length; who names no number gets all of the log that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.errors import TraceError
from traces.offered_load import FURTHEST, MOST_OF_IT, by_hash, demand_gpu_s
from traces.trace import Trace

POINTS = 64
"""Lengths that are tried at once, over all there is, and again around the best."""


@dataclass(frozen=True)
class Short:
    """There is not enough of the log: it must be so many times as long, or have so many times as many jobs an hour."""

    longer: float = 1.0
    denser: float = 1.0


def thinned(trace: Trace, jobs: int, seed: int) -> np.ndarray | Short:
    """Rows, ascending, of so many jobs: those with the smallest hashes of seed and id."""
    return np.sort(by_hash(trace, seed)[:jobs]) if jobs <= len(trace) else Short(longer=jobs / len(trace))


def at_load(
    trace: Trace, worth: np.ndarray, load: float, jobs: int | None, most: int, seed: int
) -> np.ndarray | Short:
    """Rows, ascending, whose load is nearest to `load`, with the smallest hashes of seed and id.

    Parameters
    ----------
    worth : float64 [jobs]
        What the cluster is worth on each job, in GPUs of the kind that durations were recorded on; NaN: unknown. That
        of several jobs is the mean, weighted by GPU time.
    jobs : int, optional
        So many jobs, of the first so much of the log that they come to the load. None: of all of the log, unless these
        are more than `most` jobs; then `most` of a part of it.

    Raises
    ------
    TraceError
        Whole jobs do not come near the load (within `FURTHEST`).
    """
    order, demand = by_hash(trace, seed), demand_gpu_s(trace)
    known = np.isfinite(worth)
    asked = np.stack((demand, np.where(known, demand, 0.0), np.where(known, demand * worth, 0.0)))
    if jobs is None:
        submit_s = trace.submit_s[order]
        span_s = np.maximum.accumulate(submit_s) - np.minimum.accumulate(submit_s)
        loads = _load(np.cumsum(asked[:, order], axis=1), span_s)
        if loads[-1] < load / 1.01:
            return Short(denser=load / loads[-1] if loads[-1] > 0 else np.inf)
        off = _off(loads, load)
        off[span_s < MOST_OF_IT * span_s[-1]] += 10.0
        best = int(np.argmin(off))
        if best + 1 <= most:
            return _near(np.sort(order[: best + 1]), loads[best], load)
        jobs = most
    if jobs > len(trace):
        return Short(longer=jobs / len(trace))
    if jobs < 2:
        raise TraceError("the load cannot be reached by one job", where="load", got=load, allowed="two jobs or more",
                         todo="Ask for more jobs, or for no load.")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    low, high, rows_of, loads_of = jobs, len(trace), {}, {}
    for turn in range(2):
        lengths = np.unique(np.geomspace(low, high, POINTS).astype(np.int64))
        for length in lengths.tolist():
            rows = np.sort(np.argpartition(rank[:length], jobs - 1)[:jobs]) if length > jobs else np.arange(jobs)
            span_s = trace.submit_s[rows[-1]] - trace.submit_s[rows[0]]
            rows_of[length] = rows
            loads_of[length] = float(_load(asked[:, rows].sum(axis=1), span_s))
        if turn == 0 and max(loads_of.values()) < load / 1.01:
            return Short(denser=load / max(*loads_of.values(), 1e-9))
        if turn == 0 and min(loads_of.values()) > load * 1.01:
            return Short(longer=min(loads_of.values()) / load)
        best = min(loads_of, key=lambda length: (abs(np.log(max(loads_of[length], 1e-9) / load)), length))
        tried = np.array(sorted(loads_of))
        at = int(np.searchsorted(tried, best))
        low, high = int(tried[max(at - 1, 0)]), int(tried[min(at + 1, len(tried) - 1)])
    return _near(rows_of[best], loads_of[best], load)


def _load(asked: np.ndarray, span_s: np.ndarray | float) -> np.ndarray:
    """Load of jobs that ask for asked[0] GPU-s, of which the cluster's worth on asked[1] is asked[2] / asked[1]."""
    total, known, worth = asked
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((span_s > 0) & (worth > 0), total * known / (span_s * worth), np.where(worth > 0, np.inf, 0.0))


def _off(loads: np.ndarray, load: float) -> np.ndarray:
    """How far loads are off, in the logarithm."""
    with np.errstate(divide="ignore"):
        return np.minimum(np.abs(np.log(loads / load)), 5.0)


def _near(rows: np.ndarray, reached: float, load: float) -> np.ndarray:
    if not load / FURTHEST <= reached <= load * FURTHEST:
        raise TraceError("the load cannot be reached by whole jobs", where="load", got=f"{reached:.4g}",
                         allowed=f"{load:g}, within a factor of {FURTHEST:g}",
                         todo="Take more jobs (--jobs), or stretch their times (--load-by compress).")
    return rows
