"""GPU-count vectors: how many units of each type a plan may use."""

from __future__ import annotations

from functools import cache
from math import comb

import numpy as np

MOST_VECTORS = 1000
"""Vectors that a joint problem may have; with more types at once, only the search mixes them."""


def number_of_vectors(types: int, total: int) -> int:
    """Vectors of so many types with at most `total` units: (types + total)! / (types! total!)."""
    return comb(types + total, total)


@cache
def count_vectors(
    limits: tuple[int, ...], total: int, units: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """All vectors v with 0 <= v[t] <= limits[t] and sum(v) <= total, and where adding units leads.

    Returns
    -------
    vectors : int64 [V, T]
        In lexicographic order; the first is zero.
    step : int64 [V, T, Q]
        Index of vectors[v] + units[q] of type t; -1 where that is not allowed.
    """
    rows: list[tuple[int, ...]] = [()]
    for limit in limits:
        rows = [(*v, n) for v in rows for n in range(min(limit, total - sum(v)) + 1)]
    index = {v: i for i, v in enumerate(rows)}
    step = np.full((len(rows), len(limits), len(units)), -1, dtype=np.int64)
    for v, i in index.items():
        for t in range(len(limits)):
            for q, u in enumerate(units):
                step[i, t, q] = index.get((*v[:t], v[t] + u, *v[t + 1 :]), -1)
    return np.array(rows, dtype=np.int64), step
