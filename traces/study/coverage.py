"""How much of one table finds its match in another, over time: a join may cover nothing early, and all later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Coverage:
    """Rows and joined rows by bucket of time: arrays [buckets], from the first row's bucket to the last row's."""

    start_s: np.ndarray
    rows: np.ndarray
    joined: np.ndarray
    bucket_s: float

    @property
    def share(self) -> np.ndarray:
        """Joined rows of each bucket, as a share of its rows; NaN where it has none."""
        share: np.ndarray = np.divide(self.joined, self.rows, out=np.full(len(self.rows), np.nan), where=self.rows > 0)
        return share


@dataclass(frozen=True)
class Break:
    """When coverage changes: the share of rows joined before `time_s`, and from it on."""

    time_s: float
    before: float
    after: float


def coverage(time_s: np.ndarray, joined: np.ndarray, bucket_s: float = 86_400.0) -> Coverage:
    """Count rows and joined rows in each bucket of `bucket_s` seconds; buckets begin at multiples of it.

    Parameters
    ----------
    time_s : float64[n], finite
    joined : bool[n]
        Whether the row found its match.
    """
    if len(time_s) == 0:
        return Coverage(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), bucket_s)
    bucket = np.floor(np.asarray(time_s, dtype=np.float64) / bucket_s).astype(np.int64)
    first = int(bucket.min())
    size = int(bucket.max()) - first + 1
    rows = np.bincount(bucket - first, minlength=size)
    hits = np.bincount(bucket[np.asarray(joined, dtype=bool)] - first, minlength=size)
    return Coverage((first + np.arange(size)) * bucket_s, rows, hits, bucket_s)


def coverage_break(table: Coverage, least: float = 0.2) -> Break | None:
    """Where coverage changes most: the border of two buckets that explains the joined rows best as two shares.

    It is the border with the largest log likelihood k log p + (n - k) log(1 - p), p = k / n, summed over the two sides
    (a change point of a Bernoulli sequence); of equal borders the last, so that it is the first bucket with rows again
    where some between have none. None where the shares of the two sides differ by less than `least`, or
    all rows lie in one bucket.
    """
    n, k = np.cumsum(table.rows), np.cumsum(table.joined)
    if len(n) < 2:
        return None
    left_n, left_k = n[:-1], k[:-1]
    right_n, right_k = n[-1] - left_n, k[-1] - left_k
    likelihood = _log_likelihood(left_k, left_n) + _log_likelihood(right_k, right_n)
    at = len(likelihood) - 1 - int(np.argmax(likelihood[::-1]))
    before, after = float(left_k[at] / left_n[at]), float(right_k[at] / right_n[at])
    if abs(after - before) < least:
        return None
    return Break(float(table.start_s[at + 1]), before, after)


def coverage_notes(table: Coverage, what: str, low: float = 0.9) -> tuple[str, ...]:
    """What a user should know of a join, in words: its coverage, and the day (from 0, at time 0) on which it changes.

    Empty where at least `low` of the rows are joined and nothing changes.
    """
    rows, joined = int(table.rows.sum()), int(table.joined.sum())
    change = coverage_break(table)
    if rows == 0 or (joined >= low * rows and change is None):
        return ()
    text = f"{what}: {joined} of {rows} rows joined ({joined / rows:.2%})"
    if change is not None:
        text += (f"; {change.before:.2%} before day {change.time_s / 86_400:g}, {change.after:.2%} from then on")
    return (text,)


def _log_likelihood(hits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """k log(k / n) + (n - k) log(1 - k / n), elementwise; 0 where k is 0 or n."""
    inside = (hits > 0) & (hits < rows)
    share = np.where(inside, hits / np.maximum(rows, 1), 0.5)
    return np.where(inside, hits * np.log(share) + (rows - hits) * np.log1p(-share), 0.0)
