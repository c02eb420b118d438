"""How planners of fixed devices balance: layers over stages, and a batch over replicas. Arrays in, cuts or shares out.

Of L layers, cost[i, j] is what a stage of layers i .. j - 1 takes: float64 [L + 1, L + 1]; inf: not allowed, as it is
for i >= j. Cuts are p + 1 layer numbers, 0 first and L last: stage s has the layers cuts[s] .. cuts[s + 1] - 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spans(running: np.ndarray) -> np.ndarray:
    """Sums over layers i .. j - 1 of what `running` [L + 1] sums up, inf for i >= j: float64 [L + 1, L + 1]."""
    rising = np.triu(np.ones((len(running), len(running)), dtype=bool), 1)
    return np.where(rising, running[None, :] - running[:, None], np.inf)


def least_bottleneck(costs: Sequence[np.ndarray]) -> tuple[list[int], float] | None:
    """Cuts into one stage for each of `costs` with the least largest cost, and that; None: no cut is allowed.

    best_s(j) = min over i of max(best_{s-1}(i), cost_s[i, j]): O(p L^2).
    """
    best = np.full(len(costs[0]), np.inf)
    best[0] = 0.0
    came = []
    for cost in costs:
        reach = np.maximum(best[:, None], cost)
        came.append(reach.argmin(axis=0))
        best = reach.min(axis=0)
    return (_cuts(came), float(best[-1])) if np.isfinite(best[-1]) else None


def least_flush(cost: np.ndarray, borders: Sequence[np.ndarray], m: int) -> tuple[list[int], float] | None:
    """Cuts with the least (m - 1) max cost + sum of borders (all stages cost alike); None: no cut is allowed.

    `borders[s]` [L + 1] is paid where stages s and s + 1 meet. With the sum of costs, which no cut changes, this is the
    time of a pipeline of m micro-batches. For each possible largest cost (of those that may still win) the borders are
    the least that keeps below it. With one micro-batch the largest cost does not count: the balanced cuts are taken.
    """
    p = len(borders) + 1
    balanced = least_bottleneck([cost] * p)
    if balanced is None or p == 1:
        return balanced if balanced is None else (balanced[0], (m - 1) * balanced[1])
    cuts, least = balanced
    best = (m - 1) * least + sum(float(borders[s][cuts[s + 1]]) for s in range(p - 1))
    if m == 1:
        return cuts, best
    for limit in np.unique(cost[cost >= least]).tolist():
        if (m - 1) * limit >= best:
            break
        found = _least_borders(cost <= limit, borders)
        if found is not None and (m - 1) * limit + found[1] < best:
            cuts, best = found[0], (m - 1) * limit + found[1]
    return cuts, best


def _least_borders(allowed: np.ndarray, borders: Sequence[np.ndarray]) -> tuple[list[int], float] | None:
    """Cuts of allowed stages [L + 1, L + 1] with the least sum of borders."""
    total = np.full(len(allowed), np.inf)
    total[0] = 0.0
    came = []
    for border in [*borders, np.zeros(len(allowed))]:
        reach = np.where(allowed, total[:, None], np.inf)
        came.append(reach.argmin(axis=0))
        total = reach.min(axis=0) + border
    return (_cuts(came), float(total[-1])) if np.isfinite(total[-1]) else None


def _cuts(came: Sequence[np.ndarray]) -> list[int]:
    """Follow where each stage began, from the last layer back."""
    cuts = [len(came[0]) - 1]
    for start in reversed(came):
        cuts.append(int(start[cuts[-1]]))
    return cuts[::-1]


def capped_shares(speed: Sequence[float], most: Sequence[float]) -> list[float] | None:
    """Shares in proportion to speed, none above its limit; what is over goes to the others in the same proportion.

    They sum to 1; None: the limits do not.
    """
    if sum(most) < 1:
        return None
    rest, shares = 1.0, [0.0] * len(speed)
    free = list(range(len(speed)))
    while True:
        total = sum(speed[k] for k in free)
        over = [k for k in free if rest * speed[k] / total > most[k]]
        if not over:
            break
        for k in over:
            shares[k] = most[k]
        free = [k for k in free if k not in over]
        rest = 1.0 - sum(shares)
        if not free:
            break
    for k in free:
        shares[k] = rest * speed[k] / total
    return shares
