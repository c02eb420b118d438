"""Tighter lower bounds: stages are whole, each ends in time, and together they have no more GPUs than there are.

Take a plan with m micro-batches in time T, and its stage s on G_s GPUs, with w_s seconds forward and backward of a
micro-batch, and after_s of all-reduce and optimizer step. Before its first forward a micro-batch has passed all stages
before it, F_s = sum over q < s of (forward_q + message_q); after its last backward, G_s = sum of (backward_q +
message_q) is left, unless it sums its own gradients; each border has one channel a direction. So for a pipeline with a
flush

    (C)  T >= F_s + m w_s + max(after_s, G_s),      (D)  T >= F_s + forward_s + m message_s + G_s,

and without a flush T >= m w_s + after_s. A plan in time t0 or less is then of one of three kinds.

- One stage on one type: T >= m w + after, of each number of replicas; the least of these is taken as it is.
- One stage on several types: a replica of type t does at most x_t whole samples of a micro-batch in t0, so that sum
  of replicas x_t >= the micro-batch; after the all-reduce over as many nodes as that takes. Of several tensor degrees
  each type has that of most samples a GPU; what a GPU of one sums is less than what passes its node's link.
- Several stages. For any weights lambda of the limits of GPUs (each type, and all), scaled so that the sum of lambda
  x limit is 1, a stage is charged

      lambda G_s (theta + (1 - theta) (F_s + m w_s + max(after_s, G_s)) / t0)  <=  lambda G_s,    0 <= theta <= 1,

  and all charges together are at most 1. So if the cheapest chain of stages that keep (C) and (D) at t0 is charged more
  than 1, whatever lambda and theta, there is no such plan, and T > t0. The chain is found by dynamic programming
  (`sim.kernels.partition.least_charge`); the greatest t0 that is disproved is found by bisection.

A stage of several types charges no less than its cheapest part would as a whole stage, at that part's samples a GPU:
the charges of the parts are in proportion to their shares, which add up to 1. So parts are choices like others; since
their replicas lie on two nodes at least, their gradients pass a node's link.

Operators are taken together in at most `BLOCKS` blocks. A block that is cut belongs to no stage: its operators are
charged what the cheapest choice of each would be (of the part that goes by GPU-seconds), and take no time but in F and
G, where each counts its least. Where operators may be ordered anew, blocks end only where each order ends them:
behind an operator that all operators before it lead to and that leads to all behind it. So nothing is assumed of where
in a block a cut is, but for the fewest bytes that cross it.

Cost: by theta = 0 and lambda the prices, T x sum of price G_s >= the cheapest chain's charge.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from policies.recommend.request.request import Request
from policies.recommend.searching.blocks import Blocks
from policies.recommend.searching.choices import Choice, Work
from policies.recommend.searching.message_rates import most_bytes_per_s, most_of_any
from sim.kernels.partition import least_charge
from sim.performance.gpu_links import network_bytes_per_s
from sim.performance.graph import VALUE_BYTES
from sim.performance.samples import ROUNDING

LABELS = 4
"""Of the cheapest chains, that are told apart at a cut."""
THETAS = (1.0, 0.5)
"""That are tried."""
TURNS = 6
"""Weights of the limits that are tried for a theta."""
FIRST = 0.05
"""Ratio, less 1, of what is known and what is tried first."""
FINE = 0.02
"""Ratio, less 1, of what is disproved and what is not, at which bisection ends."""


class Chains:
    """The bounds of one request with m micro-batches."""

    def __init__(self, work: Work, blocks: Blocks, m: int, rows: list[Choice]) -> None:
        self.work, self.blocks, self.m, self.rows = work, blocks, m, rows
        fleet, budget = work.fleet, work.request.budget
        times = [work.times_s(c.t, c.tensor, c.low) for c in rows]
        self.forward_s = np.array([f for f, _ in times])
        self.low_s = np.array([f + b for f, b in times])
        self.high_s = np.array([np.add(*work.times_s(c.t, c.tensor, c.high)) for c in rows])
        self.after_s = np.array([work.after_s(c) for c in rows])
        self.gib = np.array([work.gib(c) for c in rows])
        taken = work.performance.context_gib
        self.room_gib = np.array([(fleet.types[c.t].memory_gib - taken) * (1 + ROUNDING) for c in rows])
        of_type, gpus = np.array([c.t for c in rows]), np.array([c.gpus for c in rows])
        limits = [(of_type == t, float(min(fleet.counts[t], budget))) for t in fleet.present]
        if budget < sum(fleet.counts):
            limits.append((np.ones(len(rows), dtype=bool), float(budget)))
        self.most = np.array([most for _, most in limits])
        self.gpus = np.ascontiguousarray(np.array([np.where(members, gpus, 0.0) for members, _ in limits]).T)
        self.price = np.array([fleet.types[c.t].price_or_nan for c in rows]) / 3600
        self.parts = np.array([math.isinf(c.replicas) for c in rows])
        self.whole = self.gib.sum(axis=1) <= self.room_gib

    @cached_property
    def _running(self) -> tuple[np.ndarray, ...]:
        return tuple(map(self.blocks.running, (self.low_s, self.high_s, self.forward_s, self.after_s, self.gib)))

    @cached_property
    def _cut_s(self) -> np.ndarray:
        """float64 [B, 2]: least forward and backward of a block that is cut."""
        both = self.forward_s.min(axis=0), (self.low_s - self.forward_s).min(axis=0)
        return np.ascontiguousarray(np.array([self.blocks.sums(a) for a in both]).T) * self.work.flush

    @cached_property
    def _a_byte_s(self) -> np.ndarray:
        """float64 [C]: least seconds of a micro-batch's message, for each byte of a sample, to or from a choice."""
        performance, fleet = self.work.performance, self.work.fleet
        # Not counted is nearly 0, not 0: times the bytes of a cut that there is none of, infinity, that is no number.
        if not self.work.flush:
            return np.full(len(self.rows), np.finfo(float).tiny)
        scale = performance.value_bytes / VALUE_BYTES * self.work.request.batch_size / self.m
        return scale / np.array([
            most_of_any(performance, fleet) if math.isinf(c.replicas)
            else most_bytes_per_s(performance, fleet, {c.t: round(c.tensor * c.replicas)}, fleet.present)
            for c in self.rows
        ])

    def one_stage_s(self) -> float:
        """Least time of one stage on one type."""
        each = self.m * self.low_s.sum(axis=1) + self.after_s.sum(axis=1)
        return float(each[self.whole & ~self.parts].min(initial=math.inf))

    def shared_s(self, most_s: float) -> float:
        """Least time of one stage on several types, or `most_s`, if it is not below that."""
        low, high = 0.0, min(most_s, self._slowest_s)  # no more may be done within more than that, nor halved
        if not self.parts.any() or not self._shared(high):
            return most_s
        while high > low * (1 + FINE / 10) and high > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if self._shared(middle) else (middle, high)
        return low

    @property
    def _slowest_s(self) -> float:
        """Within that each GPU does all that it may do as a part of one stage."""
        work_s = (self.m * self.low_s.sum(axis=1) + self.after_s.sum(axis=1))[self.parts & self.whole]
        most = max(float(graph.weight_params.sum()) for graph in self.work.graphs.values())
        performance = self.work.performance
        over_s = most * performance.value_bytes / network_bytes_per_s(performance.links.fastest, 1)
        return float(work_s.max(initial=0.0)) + over_s

    def _shared(self, most_s: float) -> bool:
        """Whether one stage on several types may end within that."""
        fleet, micro = self.work.fleet, self.work.request.batch_size / self.m * (1 - ROUNDING)
        work_s, after_s = self.m * self.low_s.sum(axis=1), self.after_s.sum(axis=1)
        told = self.work.sums_told
        value, far = self.work.performance.value_bytes, network_bytes_per_s(self.work.performance.links.fastest, 1)
        over = {ways: float((graph.weight_params - graph.sparse_params).sum()) * value / far * told
                for ways, graph in self.work.graphs.items()}  # fmt: skip
        nodes = 2
        # Each part may have a degree of its own: of a type, that which does most with a GPU.
        of = [i for i in range(len(self.rows)) if self.parts[i] and self.whole[i]]
        while True:
            does = dict.fromkeys(fleet.present, 0.0)
            for i in of:
                row = self.rows[i]
                if work_s[i] + after_s[i] + over[row.tensor] * (2 * (nodes - 1) / nodes - 1) <= most_s:
                    does[row.t] = max(does[row.t], row.high / row.tensor)
            needed = _nodes_needed(
                [(does[t], fleet.node_gpus[t], fleet.counts[t]) for t in fleet.present], micro, self.work.request.budget
            )
            if needed is None:
                return False
            if needed <= nodes:
                return True
            nodes = needed

    def within(self, most_s: float) -> bool:
        """Whether several stages may end within that; False is proven."""
        fits = np.flatnonzero(self.low_s.min(axis=1) * self.m <= most_s)
        if not len(fits):
            return False
        low, high, forward, after, gib = (np.ascontiguousarray(a[fits]) for a in self._running)
        a_byte_s = np.ascontiguousarray(self._a_byte_s[fits])
        gpus, room = np.ascontiguousarray(self.gpus[fits]), np.ascontiguousarray(self.room_gib[fits])
        high_s, whole_s = self.m * self.high_s[fits], self.high_s[fits].sum(axis=1)
        # Faster GPUs are worth more; scaled so that all that there are are worth 1.
        of_limit = [whole_s[gpus[:, k] > 0] * gpus[gpus[:, k] > 0, k] for k in range(len(self.most))]
        worth = np.array([1 / times.min() if len(times) else 1e-12 for times in of_limit])
        for theta in THETAS:
            prices = worth / (worth @ self.most)
            for _ in range(TURNS):
                price = gpus @ prices
                cut = self.blocks.sums((price[:, None] * high_s).min(axis=0)) / most_s
                least, used = least_charge(
                    low, high, forward, after, gib, room, gpus, price, a_byte_s, self.blocks.cut_bytes, cut,
                    self._cut_s, self.m, most_s, theta, most_s, LABELS, self.work.flush,
                )
                if least > 1 + 1e-9:
                    return False
                if (used <= self.most).all():
                    break
                prices = prices * np.maximum(used / self.most, 0.05) ** 0.7
                prices /= prices @ self.most
        return True

    def several_usd(self) -> float:
        """Least cost of several stages; inf where no type has a price."""
        priced = np.flatnonzero(~np.isnan(self.price))
        if not len(priced):
            return math.inf
        low, high, forward, after, gib = (np.ascontiguousarray(a[priced]) for a in self._running)
        gpus = np.ascontiguousarray(self.gpus[priced])
        price = self.price[priced] * np.array([self.rows[i].gpus for i in priced])
        cut = self.blocks.sums((price[:, None] * self.m * self.high_s[priced]).min(axis=0))
        return float(least_charge(
            low, high, forward, after, gib, np.ascontiguousarray(self.room_gib[priced]), gpus, price,
            np.ascontiguousarray(self._a_byte_s[priced]), self.blocks.cut_bytes, cut, self._cut_s, self.m, math.inf,
            0.0, 1.0, LABELS, self.work.flush,
        )[0])


def _nodes_needed(kinds: list[tuple[float, int, int]], samples: float, budget: int) -> int | None:
    """Fewest nodes, 2 or more, whose GPUs do so many samples; None: all within the budget do not.

    Parameters
    ----------
    kinds : of each type, samples that a GPU does, GPUs of a node, GPUs there are.
    """
    left, does = budget, 0.0
    for each, _, count in sorted(kinds, reverse=True):
        used = min(left, count)
        does, left = does + each * used, left - used
    if does < samples:
        return None
    of_nodes = [each * size for each, size, count in kinds for _ in range(-(-count // size))]
    running = np.cumsum(sorted(of_nodes, reverse=True))
    return max(2, int(np.searchsorted(running, samples)) + 1)


def least_time_s(request: Request, work: Work, low_s: dict[int, float]) -> tuple[float, list[Chains]]:
    """A bound of the time, from one of each number of micro-batches; and the chains of each.

    Parameters
    ----------
    low_s : bounds known, by micro-batches.
    """
    blocks = Blocks(request)
    chains = [Chains(work, blocks, m, work.choices(m)) for m in low_s]
    high_s = min(chain.one_stage_s() for chain in chains)
    for chain in chains:
        high_s = max(chain.shared_s(high_s), min(low_s[chain.m], high_s))
    least_s, step = min(low_s.values()), 1 + FIRST
    if not least_s > 0:
        return least_s, chains

    def possible(most_s: float) -> bool:
        return any(low_s[chain.m] <= most_s and chain.within(most_s) for chain in chains)

    # From below, ever faster, since what is near is soon disproved; then between the last two.
    while least_s < high_s:
        if possible(tried_s := min(least_s * step, high_s)):
            high_s = tried_s
            break
        least_s, step = tried_s, step * step
    while FINE < high_s / least_s - 1 < math.inf:
        middle = math.sqrt(least_s * high_s)
        least_s, high_s = (least_s, middle) if possible(middle) else (middle, high_s)
    return least_s, chains
