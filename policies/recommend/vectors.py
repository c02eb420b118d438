"""GPU-count vectors: how many units of each type a plan may use."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np


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
    spans = [range(min(limit, total) + 1) for limit in limits]
    rows = [v for v in product(*spans) if sum(v) <= total]
    index = {v: i for i, v in enumerate(rows)}
    step = np.full((len(rows), len(limits), len(units)), -1, dtype=np.int64)
    for v, i in index.items():
        for t in range(len(limits)):
            for q, u in enumerate(units):
                step[i, t, q] = index.get((*v[:t], v[t] + u, *v[t + 1 :]), -1)
    return np.array(rows, dtype=np.int64), step
