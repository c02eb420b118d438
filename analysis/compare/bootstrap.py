"""Confidence intervals: Student's t over independent repetitions, and the bootstrap over rows.

An interval says how sure a mean is *given that its entries are independent draws*. Runs over other seeds or traces are;
jobs of one run are not (they share a queue), so that an interval over jobs speaks of that trace alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit  # scipy.stats takes three times as long to import

RESAMPLES = 2000
"""Enough that the ends of a 95 % interval move by a few hundredths of its length from one seed to another."""

BLOCK_BYTES = 1 << 22
"""Counts of so many bytes are drawn at a time: what is needed does not grow with the number of resamples."""

STREAM = 6
"""Of the random numbers: `default_rng([seed, STREAM])`."""


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval; NaN where there is none (one entry has a mean, but no spread).

    Attributes
    ----------
    mean, low, high : in the unit of the values.
    n : how many values it is of.
    """

    mean: float
    low: float
    high: float
    n: int


def interval(values: Any, level: float = 0.95) -> Interval:
    """Mean of independent values and its interval by Student's t, ``m ± t(n-1) * s / sqrt(n)``.

    Parameters
    ----------
    values : numbers, one a repetition (a seed, a trace). A NaN makes all of it NaN: unknown is never left out.
    level : share of such intervals that hold the true mean, above 0 and below 1.

    Source: Student, "The Probable Error of a Mean", Biometrika 1908.
    """
    x = np.asarray(values, dtype=np.float64)
    if not len(x) or np.isnan(x).any():
        return Interval(np.nan, np.nan, np.nan, len(x))
    mean, half = float(x.mean()), np.nan
    if len(x) > 1:
        half = float(stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / np.sqrt(len(x)))
    return Interval(mean, mean - half, mean + half, len(x))


def bootstrap(
    values: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    level: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the BCa interval of functions of column means, over rows drawn with replacement.

    With the resampled statistics t*, the statistic t and its jackknife t(i) (row i left out): the ends are the
    quantiles ``Phi(z0 + (z0 + z) / (1 - a (z0 + z)))`` of t*, where z is the normal quantile of either end, ``z0 =
    Phi^-1(share of t* below t)`` corrects the bias (ties count half) and ``a = sum(d^3) / (6 sum(d^2)^1.5)``, ``d =
    mean(t(i)) - t(i)``, the skewness: job times have long tails, and their intervals are lopsided.

    Parameters
    ----------
    values : float64 [rows, columns]; all columns of a row are drawn together (pairs stay pairs).
    statistic : from means [..., columns] to numbers [..., k], row by row.
    resamples, seed : the same give the same interval.

    Returns
    -------
    low, high : float64 [k]; NaN where there are fewer than two rows or the statistic is not finite. Of equal rows
        both are the statistic itself.

    Source: Efron, "Better Bootstrap Confidence Intervals", JASA 1987; Efron and Tibshirani, "An Introduction to the
    Bootstrap", 1993, chapter 14.
    """
    n = len(values)
    with np.errstate(all="ignore"):
        at = np.asarray(statistic(values.mean(axis=0)), dtype=np.float64)
        if n < 2:
            return np.full(at.shape, np.nan), np.full(at.shape, np.nan)
        drawn = np.asarray(statistic(_means(values, resamples, np.random.default_rng([seed, STREAM]))))
        left_out = np.asarray(statistic((values.sum(axis=0) - values) / (n - 1)))
    ends = [_bca(at[k], drawn[:, k], left_out[:, k], level) for k in range(len(at))]
    low, high = np.array(ends, dtype=np.float64).reshape(len(at), 2).T
    return low, high


def _means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """float64 [resamples, columns]: means of rows drawn with replacement, as how often each row is drawn × rows."""
    n = len(values)
    block = max(1, min(resamples, BLOCK_BYTES // (8 * n)))
    columns, means = np.ascontiguousarray(values.T), np.empty((resamples, values.shape[1]))
    for first in range(0, resamples, block):
        size = min(block, resamples - first)
        drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).astype(np.float64).reshape(size, n)
        # Not counts @ values: the last digits of that hang on the number of threads.
        means[first : first + size] = np.einsum("ij,kj->ik", counts, columns) / n
    return means


def _bca(at: float, drawn: np.ndarray, left_out: np.ndarray, level: float) -> tuple[float, float]:
    """Ends of the interval of one statistic, from its resampled and its jackknife values."""
    if not (np.isfinite(at) and np.isfinite(left_out).all()):
        return np.nan, np.nan
    drawn = drawn[np.isfinite(drawn)]
    d = left_out.mean() - left_out
    spread = float((d**2).sum())
    # Rows that are all alike differ by rounding only.
    if not len(drawn) or spread <= len(d) * (1e-14 * max(abs(at), 1e-300)) ** 2:
        return at, at
    # What equals the statistic but for rounding is a tie, in whatever unit.
    tie = np.abs(drawn - at) <= 1e-12 * max(abs(at), float(np.ptp(drawn)))
    below = float(((drawn < at) & ~tie).mean() + tie.mean() / 2)
    # Ends that no resample reaches would be infinite: half a resample from either end is as far as one can tell.
    below = min(max(below, 0.5 / len(drawn)), 1 - 0.5 / len(drawn))
    bias, skew = ndtri(below), float((d**3).sum()) / (6 * spread**1.5)
    z = bias + ndtri([(1 - level) / 2, (1 + level) / 2])
    low, high = np.quantile(drawn, ndtr(bias + z / (1 - skew * z)))
    return float(low), float(high)
