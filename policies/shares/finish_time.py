"""Finish-time fairness: the largest ratio of a job's finish time to that on its own part of the cluster, made least."""

from __future__ import annotations

import numpy as np

from policies.shares.centre import centred
from policies.shares.demand import Demand
from policies.shares.linear import raise_least, raise_sum
from policies.shares.objectives import over_equal

CLOSE = 1e-6
"""Relative gap between a ratio that is reached and one that no shares can beat, at which the search ends."""
MOST_STEPS = 60


def fairest_finish(
    demand: Demand, age_s: np.ndarray, left: np.ndarray, isolated_s: np.ndarray, limit_s: float = np.inf, *,
    centre: bool = False,
) -> tuple[np.ndarray, float]:
    """Shares with the least r, and r = max_i (age_s[i] + left[i] / rate[i]) / isolated_s[i] (Gavel, OSDI'20, 4.2).

    For a given r, job i needs the rate n_i(r) = left[i] / (r isolated_s[i] - age_s[i]), which is convex and falls in
    r: the best r is the least at which all can have what they need. `raise_least` on the needs of a trial r tells by
    its shares an r that is reached, and by its prices p that whatever the shares, sum_i p[i] n_i(r) <= z: the root of
    that is a bound from below, and the next trial (Newton's method on a convex function, from the left: it never passes
    the best r). Ends where both are within `CLOSE`; what is left then goes as in `objectives.fairest`.

    Parameters
    ----------
    age_s : float64 [groups], time since submission.
    left : float64 [groups], work left, above 0.
    isolated_s : float64 [groups], finish time, counted from submission, on a part of its own, above 0.

    Raises
    ------
    SolverError
        No time left.
    """
    runs = demand.fastest > 0

    def ratio(rate: np.ndarray) -> float:
        with np.errstate(divide="ignore"):
            return float(((age_s + left / rate) / isolated_s)[runs].max(initial=0.0))

    def need(r: float) -> np.ndarray:
        return np.where(runs, left / np.maximum(r * isolated_s - age_s, 1e-300), 0.0)

    alone = None if centre else demand.alone()
    if alone is not None:
        return alone, ratio(demand.rate(alone))
    shares = demand.equal()
    low, reached = ratio(demand.fastest), ratio(demand.rate(shares))
    for _ in range(MOST_STEPS):
        if reached <= low * (1 + CLOSE):
            break
        found = raise_least(demand, need(low), priced=True, limit_s=limit_s)
        if (now := ratio(demand.rate(found.shares))) < reached:
            reached, shares = now, found.shares
        if found.level >= 1 - CLOSE / 10:
            break
        low = max(low, min(_root(found.price, found.level, age_s, left, isolated_s, low), reached))
    if centre:
        rest = centred(demand, need(reached))
        return rest, ratio(demand.rate(rest))
    rest = raise_sum(demand, over_equal(demand), need(reached * (1 + CLOSE / 10)), limit_s=limit_s)
    return rest, ratio(demand.rate(rest))


def _root(
    price: np.ndarray, level: float, age_s: np.ndarray, left: np.ndarray, isolated_s: np.ndarray, low: float
) -> float:
    """The r > low with sum_i price[i] n_i(r) = level, by Newton's method from the left."""
    on = price > 0
    worth, age_s, isolated_s = (price * left)[on], age_s[on], isolated_s[on]
    r = low
    for _ in range(MOST_STEPS):
        gap_s = r * isolated_s - age_s
        above = float((worth / gap_s).sum()) - level
        step = above / float((worth * isolated_s / gap_s**2).sum())
        r += step
        if step <= 1e-12 * r:
            break
    return r
