"""A small fleet for a chain whose pipeline fills and drains: the least time of an iteration of m micro-batches, exact.

    T = (m - 1) B + S

with B the period, as `sim.kernels.chain_steady` has it. R(B), the least S of all partitions that no stage or transfer
makes slower than B, is a step function that falls as B grows, and one call of the kernel gives it for every vector of
counts, with the slowest stage W <= B of the partition that reaches it: R is known on [W, B]. Between two bounds a < b
each partition takes at least  (m - 1) a + R(b);  where others are known to be as good, nothing there is looked at.
So it is exact in this sense: the front of time and cost, and the least time on each number of GPUs, are the true ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.recommend.algorithms.chain_fleet import OnVectors
from policies.recommend.algorithms.long_chain import Chain, Partition
from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.chain_steady import fleet_periods, fleet_sums, stages_of

NEAR = 1.05
"""Bounds that differ by less: the next one is just below the upper end, else in the middle."""
NEARLY = 1.1
"""A partition that takes so many times the least time known may be asked for, too."""
ROUNDING = 1e-12
"""Part of a time below which a gain is rounding."""


class FilledTable(OnVectors):
    """The least time of an iteration on each vector of counts within a fleet.

    Parameters
    ----------
    chain : what is partitioned.
    limits : GPUs there are of each type.
    micro_batches : m, 1 or more.
    most : GPUs that a partition may use in all; None: all.
    gap : where what is found is as near to its bound, as a part of it, the search for more ends; 0: exact.
    passes : bounds that are tried at most.
    known_s : float64 [V], times that are reached in other ways. What cannot beat them may be left out.

    Attributes
    ----------
    vectors : int64 [V, K], all vectors within the limits, the last type counting fastest.
    least_s : float64 [V]
        T of the best partition found that uses exactly so many GPUs of each type; inf: none.
    bound_s : float64 [V]
        No partition on exactly these GPUs takes less. Where it is less than `least_s` by more than `gap`, other vectors
        are as good, in time and cost and in time on no more GPUs, or `passes` did not suffice.
    passes : bounds that were tried.
    gap : by how much of it the front, or the least time on some number of GPUs, may still be lower at most.

    Raises
    ------
    RecommendError
        As `chain_fleet.FleetTable`; no micro-batch.
    """

    def __init__(
        self, chain: Chain, limits: Sequence[int], micro_batches: int, most: int | None = None, *, gap: float = 0.0,
        passes: int = 10_000, known_s: np.ndarray | None = None,
    ) -> None:
        super().__init__(chain, limits, most)
        if micro_batches < 1:
            raise RecommendError("a pipeline needs a micro-batch", got=micro_batches, allowed="1 or more")
        self._m, self.passes, self.gap = int(micro_batches), 0, 0.0
        self._found: dict[int, list[tuple[float, np.ndarray]]] = {}
        # Of each bound that was tried, ascending; the first is what no partition goes below.
        low_s = np.zeros(len(self.vectors))
        if self._m > 1:
            low_s = fleet_periods(*self.arguments)[:, :, :, 0].min(axis=(0, 1))
        self._bounds, self._sums, self._slowest = [0.0], [np.full(len(low_s), np.inf)], [low_s]
        self._low_s = low_s
        self.least_s = np.full(len(low_s), np.inf)
        self._known_s = np.full(len(low_s), np.inf) if known_s is None else known_s
        bound: float | None = np.inf
        while bound is not None and self.passes < passes:
            self._try(bound)
            bound = self._next(max(gap, ROUNDING))
        self.bound_s = np.minimum(self._gaps(self.least_s)[0].min(axis=0, initial=np.inf), self.least_s)

    def _try(self, bound: float) -> None:
        """One call of the kernel, and what it improves."""
        self.passes += 1
        least, slowest, pick = fleet_sums(*self.arguments, bound)
        at = least[:, :, :, 0].reshape(-1, least.shape[2]).argmin(axis=0)
        layer, group = np.divmod(at, least.shape[1])
        every = np.arange(least.shape[2])
        sums, slow = least[layer, group, every, 0], slowest[layer, group, every, 0]
        place = int(np.searchsorted(self._bounds, bound))
        self._bounds.insert(place, bound)
        self._sums.insert(place, sums)
        self._slowest.insert(place, slow)
        time_s = np.full(len(sums), np.inf)
        possible = np.isfinite(sums)
        time_s[possible] = (self._m - 1) * slow[possible] + sums[possible]
        self.least_s = np.minimum(self.least_s, time_s)
        chain = self.chain
        worth_s = np.maximum(self._known(), self.least_s)
        for v in np.flatnonzero(possible & (time_s <= NEARLY * worth_s)).tolist():
            found = self._found.setdefault(v, [])
            if all(abs(time_s[v] - other_s) > ROUNDING * other_s for other_s, _ in found):
                found.append((float(time_s[v]), stages_of(
                    least, pick, chain.border_s, chain.kind, chain.units, self.limits, bound, v
                )))  # fmt: skip

    def _known(self) -> np.ndarray:
        """`to_beat_s` by all that is known."""
        return self.to_beat_s(np.minimum(self.least_s, self._known_s))

    def _gaps(self, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each gap between neighbouring bounds, for each vector: what a partition in it takes at least (inf: none
        takes less than `known` [V]), and the ends between which its slowest stage must be: float64 [gaps, V] each."""
        bounds = np.array(self._bounds[:-1])[:, None]
        sums, slow = np.array(self._sums[1:]), np.array(self._slowest[1:])
        low = np.maximum(bounds, self._low_s)
        high = slow.copy()
        least = np.full(sums.shape, np.inf)
        if self._m > 1:
            with np.errstate(invalid="ignore"):
                least = (self._m - 1) * low + sums
                high = np.minimum(high, (known - sums) / (self._m - 1))
        # At `low` itself R is known, but for the least period there is.
        open_ = (low < high) | ((low == high) & (low > bounds) & (low < slow))
        least[~(open_ & (least < known * (1 - ROUNDING)))] = np.inf
        return least, low, high

    def _next(self, gap: float) -> float | None:
        """The next bound, where most may be gained; None: nothing is left to gain."""
        known = self._known()
        least, low, high = self._gaps(known)
        gain = np.full(least.shape, -np.inf)
        some = np.isfinite(least)
        gain[some] = 1 - least[some] / np.broadcast_to(known, least.shape)[some]
        between, v = np.unravel_index(int(gain.argmax()), gain.shape)
        self.gap = max(0.0, float(gain[between, v]))
        if self.gap <= gap:
            return None
        lower, upper = float(low[between, v]), float(high[between, v])
        if upper <= lower:
            return lower
        middle = (lower + upper) / 2
        return middle if upper > lower * NEAR and lower < middle < upper else max(lower, float(np.nextafter(upper, 0)))

    def partition(self, v: int) -> Partition:
        """The stages behind `least_s[v]`."""
        return self.near(v, 1)[0][1]

    def near(self, v: int, most: int) -> list[tuple[float, Partition]]:
        """Those that were met on a vector and take at most `NEARLY` times the least time, with T, the fastest first.

        Raises
        ------
        RecommendError
            There is no partition on this vector.
        """
        if v not in self._found:
            raise self.nothing_on(v)
        found = sorted((one for one in self._found[v] if one[0] <= NEARLY * self.least_s[v]), key=lambda one: one[0])
        return [(time_s, self.chain.partition([(i, j - 1, o) for i, j, o in rows.tolist()]))
                for time_s, rows in found[:most]]
