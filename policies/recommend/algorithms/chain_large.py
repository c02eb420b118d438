"""A large fleet for a chain: a partition, and a bound that proves how far from the best it may be.

Whether a period B is possible within the fleet is relaxed: give each GPU a price so that the whole fleet costs 1; if
even the cheapest partition with a period of at most B costs more than 1, B is impossible (Lagrangian relaxation of
the counts). The prices that prove most are found by cutting planes: each partition is a constraint of a small linear
program over prices (Kelley 1960). The largest B that is proven impossible is the bound. Partitions come from a beam
search that the same prices lead (`sim.kernels.chain_beam`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from policies.recommend.algorithms.chain_renting import Options, unrolled
from policies.recommend.algorithms.long_chain import Chain, Partition
from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.chain_beam import beam

CUTS = 60
"""Cutting planes for a period at most: where they do not decide, it counts as possible."""
SLACK = 1e-9
"""Rounding that a proof allows for."""
PRICES = 24
"""Price vectors that lead the beam."""
STEPS = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 16.0, np.inf)
"""Periods to try, in parts of the bound, until a partition is found."""


@dataclass(frozen=True)
class Bounded:
    """A partition, and what no partition can beat.

    Attributes
    ----------
    partition : the best found; None: none was found.
    bound_s : no partition within the fleet has a lower period; inf: there is none at all.
    """

    partition: Partition | None
    bound_s: float

    @property
    def gap(self) -> float:
        """How much longer the period is than the bound, as a part of the bound; inf where nothing was found."""
        if self.partition is None:
            return math.inf
        if self.partition.period_s == self.bound_s:
            return 0.0
        return self.partition.period_s / self.bound_s - 1 if self.bound_s else math.inf


def large_fleet(
    chain: Chain, limits: Sequence[int], *, gap: float = 0.005, width: int = 64, seconds: float = 10.0
) -> Bounded:
    """The least period within a fleet of any size.

    Parameters
    ----------
    chain : what is partitioned; its prices are not read.
    limits : GPUs there are of each type.
    gap : where bound and partition are as near, the search ends (also the precision of the bound).
    width : partial partitions that the beam search keeps.
    seconds : wall time, after which no other period is tried.

    Raises
    ------
    RecommendError
        Limits of another number than types, or below 0, or no option within them.
    """
    fleet = np.asarray(limits, dtype=np.int64)
    if fleet.shape != (chain.kinds,) or (fleet < 0).any():
        raise RecommendError("a fleet needs a count for each GPU type", got=tuple(limits),
                             allowed=f"{chain.kinds} counts, none below 0")
    return _Search(chain, fleet, width, time.monotonic() + seconds).run(gap)


class _Search:
    def __init__(self, chain: Chain, fleet: np.ndarray, width: int, until: float) -> None:
        self._chain, self._fleet, self._width, self._until = chain, fleet, width, until
        self._row = np.flatnonzero(chain.units <= fleet[chain.kind])
        if not len(self._row):
            raise RecommendError("no option fits into the fleet", got=tuple(fleet.tolist()))
        self._all = Options.of(chain, self._row, np.zeros(len(self._row)))
        self._there = np.flatnonzero(fleet > 0)
        # Shares of the fleet that partitions use, one row each, with their periods.
        self._shares: list[np.ndarray] = []
        self._periods: list[float] = []
        self._weights: list[np.ndarray] = []

    def run(self, gap: float) -> Bounded:
        """Bound first, then ever better partitions."""
        low_s = self._bound(gap / 2)
        if not np.isfinite(low_s):
            return Bounded(None, low_s)
        best: Partition | None = None
        for step in STEPS:
            best = self._primal(low_s * step if low_s else np.inf)
            if best is not None or time.monotonic() > self._until:
                break
        # Between what was found and what was not.
        failed_s = low_s
        while best is not None and best.period_s > failed_s * (1 + gap) and time.monotonic() < self._until:
            at = float(np.sqrt(failed_s) * np.sqrt(best.period_s))
            found = self._primal(at)
            if found is None:
                failed_s = at
            else:
                best = found
        return Bounded(best, low_s)

    def _bound(self, precision: float) -> float:
        """The largest period that is proven impossible, but for the precision."""
        if not self._possible(np.inf):
            return np.inf
        high_s = max(self._periods)
        alone_s = self._chain.start_s[:, None] + np.diff(self._chain.time_s, axis=1)
        low_s = float(alone_s[self._row].min(axis=0).max()) * (1 - SLACK)
        while high_s > low_s * (1 + precision) and time.monotonic() < self._until:
            at = float(np.sqrt(low_s) * np.sqrt(high_s)) if low_s else high_s / 2
            if at in (low_s, high_s):
                break
            if self._possible(at):
                high_s = at
            else:
                low_s = at
        return low_s

    def _possible(self, bound_s: float) -> bool:
        """False: no partition within the fleet has such a period; true: no prices were found that prove it."""
        for _ in range(CUTS):
            shares = [s for s, period_s in zip(self._shares, self._periods, strict=True) if period_s <= bound_s]
            weights, most = dearest(np.array(shares).reshape(-1, len(self._there)))
            if most <= 1 + SLACK:
                return True
            self._weights.append(weights)
            least, period, choice = self._priced(weights).cheapest(bound_s)
            first = int(least[:, :, 0].argmin())
            layer, group = divmod(first, least.shape[1])
            if least[layer, group, 0] > 1 + SLACK:
                return False
            stages = unrolled((layer, group), choice, self._row)
            found = self._chain.partition(stages)
            self._shares.append(np.array(found.counts)[self._there] / self._fleet[self._there])
            self._periods.append(float(period[layer, group, 0]))
        return True

    def _priced(self, weights: np.ndarray) -> Options:
        """Options at the prices that give each type such a weight in the price of the fleet."""
        return self._all.priced(self._prices(weights)[self._chain.kind[self._row]] * self._chain.units[self._row])

    def _prices(self, weights: np.ndarray) -> np.ndarray:
        prices = np.zeros(self._chain.kinds)
        prices[self._there] = weights / self._fleet[self._there]
        return prices

    def _primal(self, bound_s: float) -> Partition | None:
        """A partition with at most this period, if the beam finds one."""
        chosen = self._weights[-PRICES:]
        least = np.array([self._priced(weights).cheapest(bound_s)[0] for weights in chosen])
        chain, row = self._chain, self._row
        # Where any two groups may meet, `cheapest` answers for the best group only: a bound for all.
        free = chain.border_s.max(axis=(1, 2)) <= bound_s
        least[..., free] = least[..., free].min(axis=2, keepdims=True)
        moves = beam(
            chain.time_s[row], chain.start_s[row], chain.kind[row], chain.units[row], chain.group[row],
            np.ascontiguousarray(chain.reach[:, row]), chain.border_s, self._fleet,
            np.array([self._prices(weights) for weights in chosen]), least, bound_s, self._width,
        )  # fmt: skip
        if not len(moves):
            return None
        ends = moves[:, 1].tolist()
        return chain.partition([
            (first, end - 1, int(row[o]))
            for first, end, o in zip([0, *ends], ends, moves[:, 0].tolist(), strict=False)
        ])


def dearest(shares: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights >= 0 of the types, summing to 1, at which the cheapest of some partitions costs most; and that cost.

    shares : float64 [P, K], the part of the fleet's GPUs of each type that each partition uses. Without any: equal
    weights, inf.
    """
    partitions, kinds = shares.shape
    if not partitions:
        return np.full(kinds, 1 / kinds), np.inf
    answer = linprog(
        np.append(np.zeros(kinds), -1.0),
        A_ub=np.column_stack([-shares, np.ones(partitions)]), b_ub=np.zeros(partitions),
        A_eq=np.append(np.ones(kinds), 0.0)[None], b_eq=[1.0], bounds=[(0, 1)] * kinds + [(None, None)],
    )  # fmt: skip
    weights = np.maximum(answer.x[:kinds], 0)
    return weights / weights.sum(), -float(answer.fun)
