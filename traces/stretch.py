"""A stretch of a log thinned to a load: jobs are left out, those that stay come when they came.

So many jobs at a load last as long as they last: GPU time asked for / (load x what the cluster is worth). Who wants
both gets a stretch of that length; who names no number gets all of the log that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.errors import TraceError
from traces.offered_load import FURTHEST, MOST_OF_IT, demand_gpu_s, hashes
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


@dataclass(frozen=True, eq=False)
class Crowd:
    """What a draw looks at of each job, in the order of a trace's rows.

    Attributes
    ----------
    submit_s : float64 [jobs]
    demand_gpu_s : float64 [jobs], see `traces.offered_load.demand_gpu_s`
    key : uint64 [jobs], a hash of seed and id (`traces.offered_load.hashes`): who has a small one is drawn first.
    """

    submit_s: np.ndarray
    demand_gpu_s: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def of(cls, trace: Trace, seed: int) -> Crowd:
        """The jobs of a trace."""
        return cls(trace.submit_s, demand_gpu_s(trace), hashes(trace.job_id, seed))


def thinned(log: Crowd, jobs: int) -> np.ndarray | Short:
    """Rows, ascending, of so many jobs: those with the smallest hashes."""
    return _first_of(log.key, np.arange(0), 0, len(log), jobs) if jobs <= len(log) else Short(longer=jobs / len(log))


def at_load(log: Crowd, worth: np.ndarray | float, load: float, jobs: int | None, most: int) -> np.ndarray | Short:
    """Rows, ascending, whose load is nearest to `load`, with the smallest hashes.

    Parameters
    ----------
    worth : float64 [jobs], or one number for all
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
    if jobs is None:
        order = np.argsort(log.key, kind="stable")
        submit_s = log.submit_s[order]
        span_s = np.maximum.accumulate(submit_s) - np.minimum.accumulate(submit_s)
        loads = _load(np.cumsum(_asked(log, worth, order), axis=1), span_s)
        if loads[-1] < load / 1.01:
            return Short(denser=load / loads[-1] if loads[-1] > 0 else np.inf)
        off = _off(loads, load)
        off[span_s < MOST_OF_IT * span_s[-1]] += 10.0
        best = int(np.argmin(off))
        if best + 1 <= most:
            return _near(np.sort(order[: best + 1]), loads[best], load)
        jobs = most
    if jobs > len(log):
        return Short(longer=jobs / len(log))
    if jobs < 2:
        raise TraceError("the load cannot be reached by one job", where="load", got=load, allowed="two jobs or more",
                         todo="Ask for more jobs, or for no load.")
    nearest: tuple[float, np.ndarray, float] | None = None
    for draw in range(DRAWS):
        found = _of_so_many(log, mixed(log.key, draw), worth, load, jobs)
        if isinstance(found, Short):
            if nearest is None:
                return found
            continue
        off_by = float(_off(found[1], load))
        if nearest is None or off_by < nearest[0]:
            nearest = off_by, *found
        if off_by <= NEAR:
            break
    assert nearest is not None  # the first draw found some, or it returned
    return _near(nearest[1], nearest[2], load)


def mixed(key: np.ndarray, draw: int) -> np.ndarray:
    """The hashes of a draw: its number and the same bits, mixed (the last step of SplitMix64); draw 0 has them as they
    are."""
    if draw:
        key = key + np.uint64(draw * 0x9E3779B97F4A7C15 % 2**64)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
    return key


def _of_so_many(
    log: Crowd, key: np.ndarray, worth: np.ndarray | float, load: float, jobs: int
) -> tuple[np.ndarray, float] | Short:
    """Rows of `jobs` jobs of the first so much of a log that their load is nearest to `load`, and that load."""
    found: dict[int, float] = {}  # without their rows: of a million jobs all those that are tried would be a gigabyte
    low, high = jobs, len(log)
    for turn in range(2):
        rows, upto = np.arange(0), 0
        for length in sorted(set(np.geomspace(low, high, POINTS).astype(np.int64).tolist())):
            rows, upto = _first_of(key, rows, upto, length, jobs), length
            span_s = log.submit_s[rows[-1]] - log.submit_s[rows[0]]
            found[length] = float(_load(_asked(log, worth, rows).sum(axis=1), span_s))
        if turn == 0 and max(found.values()) < load / 1.01:
            return Short(denser=load / max(*found.values(), 1e-9))
        if turn == 0 and min(found.values()) > load * 1.01:
            return Short(longer=min(found.values()) / load)
        best = min(found, key=lambda length: (float(_off(found[length], load)), length))
        tried = sorted(found)
        at = tried.index(best)
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
    return _first_of(key, np.arange(0), 0, best, jobs), found[best]


def _first_of(key: np.ndarray, rows: np.ndarray, upto: int, length: int, jobs: int) -> np.ndarray:
    """The `jobs` rows below `length` that are drawn first, ascending; `rows`: those below `upto`. Of equal keys the
    first rows are.

    Who is not among the first of a part is not among those of the whole: only these and what is new need be looked at.
    """
    new = key[upto:length]
    if len(rows) == jobs:
        among = np.concatenate((rows, upto + np.flatnonzero(new < key[rows].max())))
    else:
        among = np.arange(length)
    keys = key[among]
    bound = np.partition(keys, jobs - 1)[jobs - 1]
    first = keys <= bound
    if over := int(np.count_nonzero(first)) - jobs:
        first[np.flatnonzero(keys == bound)[-over:]] = False
    drawn: np.ndarray = among[first]
    return drawn


def _asked(log: Crowd, worth: np.ndarray | float, rows: np.ndarray) -> np.ndarray:
    """float64 [3, rows]: GPU-s asked for; those of which the cluster's worth is known; these times it."""
    demand = log.demand_gpu_s[rows]
    own = worth[rows] if isinstance(worth, np.ndarray) else np.full(len(rows), worth)
    known = np.isfinite(own)
    return np.stack((demand, np.where(known, demand, 0.0), np.where(known, demand * own, 0.0)))


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
