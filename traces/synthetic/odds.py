"""Run times whose distribution is published as a whole, and that differ between kinds of jobs.

Proportional odds (McCullagh, "Regression models for ordinal data", Journal of the Royal Statistical Society B 42, 1980,
with a spread): with L(x) = 1 / (1 + exp(-x)),

    P(run time <= t | kind) = L((level(t) - shift[kind]) / spread[kind]).

Whatever the shifts, level(t) is chosen so that all kinds together have the published distribution F:
sum over kinds of weight x P(run time <= t | kind) = F(t) at each published t. So a generator can make wide jobs longer
without leaving the curve that it is fitted to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Share of jobs that is taken to lie below the shortest and above the longest run.
OUTSIDE = 1e-6


class RunTimes:
    """A published distribution of run times, split among kinds of jobs.

    Parameters
    ----------
    points_s : [p] run times, s, increasing; the first is the shortest, the last the longest there is.
    below : [p] share of all jobs that run up to that long, from 0 to 1; between points, log t is linear in the level.
    weight, shift, spread : [k] share of jobs, shift and spread (default 1) of each kind.
    """

    def __init__(
        self, points_s: Sequence[float], below: Sequence[float] | np.ndarray, weight: np.ndarray,
        shift: np.ndarray, spread: np.ndarray | None = None,
    ) -> None:
        self.shift, self.spread = shift, np.ones(len(shift)) if spread is None else spread
        self._log_s = np.log(points_s)
        self._level = _levels(np.clip(below, OUTSIDE, 1 - OUTSIDE), weight / weight.sum(), self.shift, self.spread)

    def seconds(self, rank: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """Run time (whole s, rounded up) of the jobs of given kinds whose rank among their kind is in (0, 1)."""
        inside = np.clip(rank, 1e-12, 1 - 1e-12)
        level = self.shift[kind] + self.spread[kind] * np.log(inside / (1.0 - inside))
        out: np.ndarray = np.ceil(np.exp(np.interp(level, self._level, self._log_s)) * (1 - 1e-12))
        return out


def _levels(below: np.ndarray, weight: np.ndarray, shift: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The level at which each share of all jobs lies below, by bisection."""
    low = np.full(len(below), shift.min() - 40.0 * spread.max())
    high = np.full(len(below), shift.max() + 40.0 * spread.max())
    for _ in range(60):
        middle = (low + high) / 2.0
        share = 1.0 / (1.0 + np.exp(-np.clip((middle[:, None] - shift) / spread, -40.0, 40.0))) @ weight
        low, high = np.where(share < below, middle, low), np.where(share < below, high, middle)
    return low
