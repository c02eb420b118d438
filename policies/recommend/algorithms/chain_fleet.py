"""A small fleet for a chain: the least period for every vector of GPU counts, exact, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from policies.recommend.algorithms.long_chain import Chain, Partition
from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.chain_steady import fleet_periods, stage_behind

MOST_BYTES = 2**31
"""Of the tables; beyond that `chain_large` is the way."""
CELL_BYTES = 20
"""Of an operator of a vector in the larger of both kinds of table."""


class OnVectors:
    """What is known of a chain on each vector of counts within a fleet.

    Parameters
    ----------
    chain : what is partitioned.
    limits : GPUs there are of each type.
    most : GPUs that a partition may use in all; None: all.

    Attributes
    ----------
    vectors : int64 [V, K], all vectors within the limits, the last type counting fastest.
    least_s : float64 [V]
        What is minimised, of the best partition that uses exactly so many GPUs of each type; inf: none.
    arguments : what the kernels over vectors take.

    Raises
    ------
    RecommendError
        Limits of another number than types or below 0, or too many vectors.
    """

    least_s: np.ndarray

    def __init__(self, chain: Chain, limits: Sequence[int], most: int | None = None) -> None:
        self.chain = chain
        self.limits = np.asarray(limits, dtype=np.int64)
        if self.limits.shape != (chain.kinds,) or (self.limits < 0).any():
            raise RecommendError("a fleet needs a count for each GPU type", got=tuple(limits),
                                 allowed=f"{chain.kinds} counts, none below 0")
        vectors = math.prod(int(n) + 1 for n in limits)
        cells = vectors * chain.reach.shape[0] * chain.border_s.shape[1] * chain.time_s.shape[1]
        if cells * CELL_BYTES > MOST_BYTES:
            raise RecommendError("too many vectors of GPU counts for an exact table", got=vectors,
                                 todo="Merge operators, lower the counts, or take `large_fleet`.")
        self.vectors = np.stack(np.unravel_index(np.arange(vectors), self.limits + 1), axis=1)
        self.arguments = (
            chain.time_s, chain.start_s, chain.kind, chain.units, chain.group, chain.reach, chain.border_s,
            self.limits, int(self.limits.sum()) if most is None else int(most),
        )  # fmt: skip

    @cached_property
    def usd_per_s(self) -> np.ndarray:
        """float64 [V]: price of the GPUs; NaN where it is unknown."""
        known = ~np.isnan(self.chain.usd_per_s)
        usd_per_s = np.asarray(self.vectors[:, known] @ self.chain.usd_per_s[known])
        usd_per_s[(self.vectors[:, ~known] > 0).any(axis=1)] = np.nan
        return usd_per_s

    @cached_property
    def usd(self) -> np.ndarray:
        """float64 [V]: cost of `least_s`; NaN where it is unknown, inf where there is no partition."""
        usd = np.full(len(self.vectors), np.inf)
        possible = np.isfinite(self.least_s)
        usd[possible] = self.least_s[possible] * self.usd_per_s[possible]
        return usd

    def front_vectors(self) -> np.ndarray:
        """Vectors whose partition none equals or beats in both time and cost, by index, fastest first."""
        order = np.lexsort((self.vectors.sum(axis=1), self.usd, self.least_s))
        order = order[np.isfinite(self.usd[order])]
        least = np.minimum.accumulate(np.concatenate([[np.inf], self.usd[order]]))[:-1]
        return order[self.usd[order] < least]

    def to_beat_s(self, known_s: np.ndarray) -> np.ndarray:
        """float64 [V]: with this time or more a vector adds nothing, neither to the front of time and cost nor to the
        least times by number of GPUs, where `known_s` [V] is reached on the vectors."""
        known, total = known_s, self.vectors.sum(axis=1)
        by_total = np.full(int(total.max()) + 1, np.inf)
        np.minimum.at(by_total, total, known)
        by_number = np.minimum.accumulate(by_total)[total]
        # Dominated by what is faster on GPUs of no higher price, or costs less on dearer ones. What has no price is on
        # no front.
        order = np.argsort(self.usd_per_s, kind="stable")
        order = order[~np.isnan(self.usd_per_s[order])]
        rate = self.usd_per_s[order]
        end = np.searchsorted(rate, rate, side="right")
        with np.errstate(divide="ignore", invalid="ignore"):
            least_usd = np.fmin.accumulate((known[order] * rate)[::-1])[::-1]
            cheaper = np.append(least_usd, np.inf)[end] / rate
        by_cost = np.zeros(len(known))
        by_cost[order] = np.fmin(np.minimum.accumulate(known[order])[end - 1], cheaper)
        return np.maximum(by_number, by_cost)

    def front(self) -> tuple[Partition, ...]:
        """The partitions of `front_vectors`."""
        return tuple(self.partition(int(v)) for v in self.front_vectors())

    def fastest(self) -> Partition | None:
        """The least time on any vector (of equals the fewest GPUs), prices unread; None: nothing fits."""
        v = np.lexsort((self.vectors.sum(axis=1), self.least_s))[0]
        return self.partition(int(v)) if np.isfinite(self.least_s[v]) else None

    def partition(self, v: int) -> Partition:
        """The stages behind `least_s[v]`.

        Raises
        ------
        RecommendError
            There is no partition on this vector.
        """
        raise NotImplementedError

    def nothing_on(self, v: int) -> RecommendError:
        """That there is no partition on this vector."""
        return RecommendError("no partition uses exactly these GPUs", got=tuple(self.vectors[v].tolist()))


class FleetTable(OnVectors):
    """The least period of a chain in its steady state on each vector of counts within a fleet.

    Parameters, `vectors` and errors as `OnVectors` has them; `least_s` is the period, seconds a micro-batch.
    """

    def __init__(self, chain: Chain, limits: Sequence[int], most: int | None = None) -> None:
        super().__init__(chain, limits, most)
        self._table = fleet_periods(*self.arguments)
        self.least_s = self._table[:, :, :, 0].min(axis=(0, 1))

    @property
    def period_s(self) -> np.ndarray:
        """float64 [V], `least_s`."""
        return self.least_s

    def partition(self, v: int) -> Partition:
        """The stages behind `period_s[v]`, found again from the table."""
        if not np.isfinite(self.period_s[v]):
            raise self.nothing_on(v)
        groups = self._table.shape[1]
        layer, group = divmod(int(self._table[:, :, v, 0].argmin()), groups)
        i, stages, n = 0, [], self.chain.time_s.shape[1] - 1
        while i < n:
            option, j, v = self._first_stage(layer, group, v, i)
            stages.append((i, j - 1, option))
            if j < n:
                sources = [f for f in (layer - 1, layer) if f >= 0 and (f < layer or f == len(self._table) - 1)]
                behind = np.maximum(self._table[sources, :, v, j], self.chain.border_s[j, group])
                source, group = divmod(int(behind.argmin()), groups)
                layer = sources[source]
            i = j
        return self.chain.partition(stages)

    def _first_stage(self, layer: int, group: int, v: int, i: int) -> tuple[int, int, int]:
        """Option and end of a stage that begins the best partition of operators i.., and the vector left."""
        chain, target = self.chain, self._table[layer, group, v, i]
        place = np.append(np.cumprod((self.limits + 1)[:0:-1])[::-1], 1)
        behind = np.empty(chain.time_s.shape[1])
        for option in np.flatnonzero((chain.group == group) & (chain.units <= self.vectors[v][chain.kind])):
            rest = int(v - chain.units[option] * place[chain.kind[option]])
            stage_behind(self._table, chain.border_s, layer, rest == 0, rest, group, behind)
            ends = slice(i + 1, int(chain.reach[layer, option, i]) + 1)
            took = chain.start_s[option] + (chain.time_s[option, ends] - chain.time_s[option, i])
            reached = np.flatnonzero(np.maximum(took, behind[ends]) == target)
            if len(reached):
                return int(option), i + 1 + int(reached[0]), rest
        raise AssertionError("each entry of the table comes from a stage")
