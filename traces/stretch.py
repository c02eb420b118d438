"""A stretch of a log thinned to a load: jobs are left out, those that stay come when they came.

So many jobs at a load last as long as they last: GPU time asked for / (load x what the cluster is worth). Who wants
both gets a stretch of that length; who names no number gets all of the log that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.errors import TraceError
from traces.offered_load import FURTHEST, MOST_OF_IT, by_hash, demand_gpu_s, hashes
from traces.trace import Trace

POINTS = 64
"""Lengths that are tried at once, over all there is, and again around the best."""

DRAWS, NEAR = 12, 0.01
"""How often jobs are drawn, each time by another hash, until they come as near to the load: among few jobs a wide one
makes it jump."""


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
    key, demand = hashes(trace.job_id, seed), demand_gpu_s(trace)
    order = np.argsort(key, kind="stable")
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
    near: list[tuple[float, int, np.ndarray, float]] = []
    for draw in range(DRAWS):
        found = _of_so_many(trace, ranks(key, draw), asked, load, jobs)
        if isinstance(found, Short):
            if draw == 0:
                return found
            continue
        near.append((float(_off(found[1], load)), draw, *found))
        if near[-1][0] <= NEAR:
            break
    _, _, rows, reached = min(near, key=lambda one: one[:2])
    return _near(rows, reached, load)


def ranks(key: np.ndarray, draw: int) -> np.ndarray:
    """Place of each job in a draw, from its hash: 0 is drawn first. That of draw 0 is the order of `by_hash`."""
    if draw:  # the same bits, mixed (the last step of SplitMix64)
        key = key + np.uint64(draw * 0x9E3779B97F4A7C15 % 2**64)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
    rank = np.empty(len(key), dtype=np.int64)
    rank[np.argsort(key, kind="stable")] = np.arange(len(key))
    return rank


def _of_so_many(
    trace: Trace, rank: np.ndarray, asked: np.ndarray, load: float, jobs: int
) -> tuple[np.ndarray, float] | Short:
    """Rows of `jobs` jobs of the first so much of a log that their load is nearest to `load`, and that load."""
    found: dict[int, tuple[np.ndarray, float]] = {}
    low, high = jobs, len(trace)
    for turn in range(2):
        for length in np.unique(np.geomspace(low, high, POINTS).astype(np.int64)).tolist():
            rows = np.sort(np.argpartition(rank[:length], jobs - 1)[:jobs]) if length > jobs else np.arange(jobs)
            span_s = trace.submit_s[rows[-1]] - trace.submit_s[rows[0]]
            found[length] = rows, float(_load(asked[:, rows].sum(axis=1), span_s))
        reached = [one for _, one in found.values()]
        if turn == 0 and max(reached) < load / 1.01:
            return Short(denser=load / max(*reached, 1e-9))
        if turn == 0 and min(reached) > load * 1.01:
            return Short(longer=min(reached) / load)
        best = min(found, key=lambda length: (float(_off(found[length][1], load)), length))
        tried = sorted(found)
        at = tried.index(best)
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
    return found[best]


def _load(asked: np.ndarray, span_s: np.ndarray | float) -> np.ndarray:
    """Load of jobs that ask for asked[0] GPU-s, of which the cluster's worth on asked[1] is asked[2] / asked[1]."""
    total, known, worth = asked
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((span_s > 0) & (worth > 0), total * known / (span_s * worth), np.where(worth > 0, np.inf, 0.0))


def _off(loads: np.ndarray | float, load: float) -> np.ndarray:
    """How far loads are off, in the logarithm."""
    with np.errstate(divide="ignore"):
        return np.minimum(np.abs(np.log(np.asarray(loads) / load)), 5.0)


def _near(rows: np.ndarray, reached: float, load: float) -> np.ndarray:
    if not load / FURTHEST <= reached <= load * FURTHEST:
        raise TraceError("the load cannot be reached by whole jobs", where="load", got=f"{reached:.4g}",
                         allowed=f"{load:g}, within a factor of {FURTHEST:g}",
                         todo="Take more jobs (--jobs), or stretch their times (--load-by compress).")
    return rows
