"""Renting for a chain: as many GPUs of each type as wanted. Exact, by enumeration of the bottleneck.

Let R(B) be the least price of the GPUs of any partition with a period of at most B. It is a step function that
falls as B grows, and one call of a kernel gives R(B) and the least period s <= B at that price: R is known on [s, B].
What is best for time and cost lies on its steps (period s, cost s x R(s)). Between two known steps (B_a, R_a) and
(s_b, R_b) each period u in (B_a, s_b) costs more than u x R_b: what that rules out is never looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from policies.recommend.algorithms.long_chain import Chain, Partition
from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.chain_cheapest import cheapest, narrow

GRAIN = 2.0**-36
"""Prices are counted in this part of the highest one, so that sums are exact and ties are seen."""
NARROW = 1.1
"""Where the ends of a gap differ by less, its upper end is the next to be looked at, else the middle."""
WIDE = 4.0
"""Where they differ by more, it does not pay to look for the options that matter."""


class Renting:
    """Partitions of a chain without limits on counts.

    Options of unknown price are left out: unknown is never cheapest.

    Raises
    ------
    RecommendError
        No option has a price.
    """

    def __init__(self, chain: Chain) -> None:
        price = chain.usd_per_s[chain.kind]
        kept = np.flatnonzero(~np.isnan(price))
        if not len(kept):
            raise RecommendError("no GPU type has a price", todo="Give prices, or ask for a limited fleet.")
        self.chain = chain
        self.calls = 0  # of the kernel
        self._grain = max(float(price[kept].max()), np.finfo(float).tiny) * GRAIN
        self._all = Options.of(chain, kept, np.round(price[kept] / self._grain) * chain.units[kept])

    def within(self, bound_s: float) -> Partition | None:
        """The cheapest GPUs for a period of at most `bound_s`, and of their partitions the fastest."""
        return self._partition(self._step(bound_s))

    def fastest(self) -> Partition | None:
        """The least period, and of the partitions that have it the cheapest."""
        return self._partition(self._fastest)

    def cheapest(self, within_s: float = np.inf) -> Partition | None:
        """The least cost of all with a period of at most `within_s`."""
        best: Step | None = None

        def keep(step: Step) -> None:
            nonlocal best
            if best is None or (step.cost, step.period_s) < (best.cost, best.period_s):
                best = step

        # No stage is faster than its slowest operator alone.
        alone_s = self.chain.start_s[:, None] + np.diff(self.chain.time_s, axis=1)
        low_s = float(alone_s[self._all.row].min(axis=0).max()) * (1 - 1e-9)
        self._explore(
            low_s, np.inf, within_s, keep, lambda low_s, rate: best.cost / rate if best and rate else np.inf,
            lambda low_s, rate: low_s * rate,
        )  # fmt: skip
        return self._partition(best)

    def fastest_for(self, budget_usd: float) -> Partition | None:
        """The least period of all that cost at most `budget_usd`."""
        best: Step | None = None
        budget = budget_usd / self._grain

        def keep(step: Step) -> None:
            nonlocal best
            if step.cost <= budget and (best is None or step.period_s < best.period_s):
                best = step

        def until(low_s: float, rate: float) -> float:
            return min(budget / rate if rate else np.inf, best.period_s if best else np.inf)

        self._explore_from_fastest(keep, until)
        return self._partition(best)

    def front(self) -> tuple[Partition, ...]:
        """All partitions that none equals or beats in both period and cost, fastest first."""
        front: list[Step] = []

        def keep(step: Step) -> None:
            at = bisect_right(front, step.period_s, key=lambda s: s.period_s)
            if at and front[at - 1].cost <= step.cost:
                return
            end = at
            while end < len(front) and front[end].cost >= step.cost:
                end += 1
            front[at:end] = [step]

        def until(low_s: float, rate: float) -> float:
            at = bisect_right(front, low_s, key=lambda s: s.period_s)
            return front[at - 1].cost / rate if at and rate else np.inf

        self._explore_from_fastest(keep, until)
        return tuple(self._unrolled(step) for step in front)

    def _explore_from_fastest(self, keep: Callable[[Step], None], until: Callable[[float, float], float]) -> None:
        """Show to `keep` each step that may matter, from the left to the right."""
        if self._fastest is not None:
            keep(self._fastest)
            self._explore(self._fastest.period_s, self._fastest.rate, np.inf, keep, until, lambda low_s, rate: low_s)

    def _explore(
        self, low_s: float, low_rate: float, high_s: float, keep: Callable[[Step], None],
        until: Callable[[float, float], float], urgency: Callable[[float, float], float],
    ) -> None:
        """Show to `keep` each step of R up to a bound that may matter, R(low_s) being known.

        `until(low_s, rate)`: at this rate or a higher one, periods above it do not matter, given what is known up to
        low_s. `urgency(low_s, rate)`: gaps above low_s and this rate are looked at in its order.
        """
        slow = self._step(high_s)
        if slow is None:
            return
        keep(slow)
        gaps: list[tuple[float, int, float, float, Step, Options]] = []

        def put(low_s: float, low_rate: float, top: Step, options: Options) -> None:
            heappush(gaps, (urgency(low_s, top.rate), self.calls, low_s, low_rate, top, options))

        put(low_s, low_rate, slow, self._all)
        while gaps:
            _, _, low_s, low_rate, top, options = heappop(gaps)
            # Rounding must not rule out anything.
            top_s = min(top.period_s, until(low_s, top.rate) * (1 + 1e-9))
            if low_rate == top.rate or np.nextafter(top_s, 0) <= low_s:
                continue
            options = options.narrowed(low_s, top_s)
            at = np.sqrt(low_s) * np.sqrt(top_s) if low_s else top_s / 2
            at = float(np.nextafter(top_s, 0) if top_s < NARROW * low_s else at)
            step = self._step(at, options)
            if step is None:
                put(at, np.inf, top, options)
                continue
            if step.rate < low_rate:
                keep(step)
                put(low_s, low_rate, step, options)
            put(at, step.rate, top, options)

    @cached_property
    def _fastest(self) -> Step | None:
        high = self._step(np.inf)
        if high is None:
            return None
        low_s, options = 0.0, self._all
        while (at := (low_s + high.period_s) / 2) not in (low_s, high.period_s):
            options = options.narrowed(low_s, high.period_s)
            found = self._step(at, options)
            low_s, high = (at, high) if found is None else (low_s, found)
        return high

    def _step(self, bound_s: float, options: Options | None = None) -> Step | None:
        """The step of R that holds a bound."""
        self.calls += 1
        options = options or self._all
        least, period, choice = options.cheapest(bound_s)
        first = np.lexsort((period[:, :, 0].ravel(), least[:, :, 0].ravel()))[0]
        layer, group = divmod(int(first), least.shape[1])
        rate = float(least[layer, group, 0])
        return Step(float(period[layer, group, 0]), rate, (layer, group), choice) if np.isfinite(rate) else None

    def _partition(self, step: Step | None) -> Partition | None:
        return None if step is None else self._unrolled(step)

    def _unrolled(self, step: Step) -> Partition:
        return self.chain.partition(unrolled(step.first, step.choice, self._all.row))


@dataclass(frozen=True, eq=False)
class Step:
    """The left end of a step of R: its period, its rate in grains, and how to reach them (`unrolled`)."""

    period_s: float
    rate: float
    first: tuple[int, int]
    choice: np.ndarray

    @property
    def cost(self) -> float:
        """Grains x s."""
        return self.period_s * self.rate


def unrolled(first: tuple[int, int], choice: np.ndarray, row: np.ndarray) -> list[tuple[int, int, int]]:
    """The stages (first, last, option) that `sim.kernels.chain_cheapest` chose, from a first layer and group on."""
    (layer, group), i = first, 0
    stages = []
    while layer >= 0:
        option, j, layer, group = choice[layer, group, i].tolist()
        stages.append((i, j - 1, int(row[option])))
        i = j
    return stages


@dataclass(frozen=True, eq=False)
class Options:
    """The options that a stage may take from each operator on, as `sim.kernels.chain_cheapest.cheapest` wants them.

    Attributes
    ----------
    row : int64 [O], their numbers in the chain.
    arrays : time [O, n + 1], start [O], rate [O], group [O], reach [F, O, n].
    border_s : of the chain.
    entries : first [n + 1], option [E], far [E], widest [n].
    ratio : what the entries suffice for: bounds in [low, top], top being `ratio` times low.
    """

    row: np.ndarray
    arrays: tuple[np.ndarray, ...]
    border_s: np.ndarray
    entries: tuple[np.ndarray, ...]
    ratio: float = np.inf

    @classmethod
    def of(cls, chain: Chain, row: np.ndarray, rate: np.ndarray) -> Options:
        """All entries of some options, whose rates are given."""
        reach = np.ascontiguousarray(chain.reach[:, row])
        arrays = (chain.time_s[row], chain.start_s[row], rate, chain.group[row], reach)
        return cls(row, arrays, chain.border_s, ()).priced(rate)

    def priced(self, rate: np.ndarray) -> Options:
        """All entries at other rates."""
        time_s, start_s, _, group, reach = self.arrays
        options, n = time_s.shape[0], time_s.shape[1] - 1
        entries = (
            np.arange(n + 1) * options, np.tile(np.argsort(rate, kind="stable").astype(np.int32), n),
            np.full(n * options, n, dtype=np.int32), np.full(n, n),
        )  # fmt: skip
        return replace(self, arrays=(time_s, start_s, rate, group, reach), entries=entries, ratio=np.inf)

    def cheapest(self, bound_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Least rate, least period at it, and the choices that reach them."""
        return cheapest(*self.arrays, self.border_s, *self.entries, bound_s)

    def narrowed(self, low_s: float, top_s: float) -> Options:
        """Those that bounds in [low_s, top_s] may need, where it is worth the time to look again."""
        if top_s > low_s * min(WIDE, self.ratio**0.3):
            return self
        time_s, start_s, rate, group, reach = self.arrays
        if self.border_s.max() <= low_s:  # no transfer forbids a cut
            group = np.zeros_like(group)
        entries = narrow(time_s, start_s, rate, group, reach, *self.entries, low_s, top_s)
        return replace(self, entries=entries, ratio=top_s / low_s)
