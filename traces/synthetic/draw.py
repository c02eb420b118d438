"""Building blocks of the generators: mixtures of lognormals, arrivals with a rhythm, bursts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Component = tuple[float, float, float]
"""Weight, median in s, and standard deviation of the logarithm of one lognormal."""


def mixture(rng: np.random.Generator, n: int, components: Sequence[Component]) -> np.ndarray:
    """n draws from a mixture of lognormals, in s: a component by weight, then median x exp(sd x normal)."""
    weight, median, sd = np.array(components).T
    which = pick(rng, n, weight)
    out: np.ndarray = median[which] * np.exp(sd[which] * rng.standard_normal(n))
    return out


def pick(rng: np.random.Generator, n: int, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """n indices drawn with probability proportional to `weights`."""
    cumulative = np.cumsum(np.asarray(weights, dtype=float))
    drawn = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
    index: np.ndarray = np.minimum(drawn, len(cumulative) - 1)
    return index


def choose(rng: np.random.Generator, n: int, table: dict[Any, float]) -> np.ndarray:
    """n keys of a table of weights."""
    keys = np.empty(len(table), dtype=object)
    keys[:] = list(table)
    if not isinstance(keys[0], str):
        keys = keys.astype(np.int64)
    drawn: np.ndarray = keys[pick(rng, n, list(table.values()))]
    return drawn


def fill(rng: np.random.Generator, n: int, alpha: float, cap: int) -> np.ndarray:
    """Sizes of bursts that hold n jobs in all, from 1 to cap: P(size >= k) = k^-alpha; the last one cut.

    Most bursts are single jobs; the tail is heavy. The mean is the sum of k^-alpha over k = 1..cap.
    """
    mean = float((np.arange(1, cap + 1) ** -alpha).sum())
    sizes = np.empty(0, dtype=np.int64)
    while sizes.sum() < n:
        more = rng.random(int(n / mean) + 16) ** (-1.0 / alpha)
        sizes = np.concatenate((sizes, np.minimum(more, cap).astype(np.int64)))
    before = np.cumsum(sizes) - sizes
    sizes = sizes[before < n]
    sizes[-1:] -= sizes.sum() - n
    return sizes


def moments(
    rng: np.random.Generator, n: int, span_s: float, hours: Sequence[float], days: Sequence[float]
) -> np.ndarray:
    """n instants in [0, span_s), unsorted, whose rate is proportional to hours[hour of day] x days[weekday].

    Time 0 is a Monday, 00:00. The cumulated rate is linear within an hour: it is inverted by interpolation.
    """
    whole = np.arange(int(np.ceil(span_s / 3600.0)) + 1)
    rate = np.asarray(hours)[whole % 24] * np.asarray(days)[whole // 24 % 7]
    cumulated = np.concatenate(([0.0], np.cumsum(rate)))
    edges_s = np.append(whole, whole[-1] + 1) * 3600.0
    last = np.interp(span_s, edges_s, cumulated)
    return np.interp(rng.random(n) * last, cumulated, edges_s)


def within_bursts(gaps_s: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Time of each job after the begin of its burst: gaps added up, starting from 0 in each burst.

    `gaps_s` has one entry a job, `sizes` one a burst; the entry of a burst's first job is not used.
    """
    total = np.cumsum(gaps_s)
    first = np.cumsum(sizes) - sizes
    after: np.ndarray = total - np.repeat(total[first], sizes)
    return after


def numbered(prefix: str, n: int) -> np.ndarray:
    """Object array of names: prefix0, prefix1, …"""
    names = np.empty(n, dtype=object)
    names[:] = [f"{prefix}{i}" for i in range(n)]
    return names
