"""Lower bounds of time by whole stages on whole GPUs: every way to deal out the GPUs, stage by stage.

`stage_bounds` charges a chain of stages for GPUs at prices; so it may take parts of GPUs, and many kinds of them. Here
a chain uses up what there is: a state is a place where a stage ends and the GPUs of each type used so far, and a stage
has a choice of n_t GPUs of each type, of one type or of two. For a time T and m micro-batches, `chain_within` asks
whether any chain of two stages or more keeps, with w_s = f_s + b_s seconds forward and backward of a micro-batch in
stage s, after_s of its sums and step, x seconds of a message over a border (as long there as back), F_s the f + x
before it, G_s the b + x before it, V_s the w + 2 x behind it, and a flush,

    (C)  F_s + m w_s + max(after_s, G_s) <= T        it does nothing else meanwhile; what is before it fills and drains;
    (D)  F_s + f_s + m x + G_s + b_s <= T            a border has one channel a direction;
    (E)  F_s + w_s + V_s + (m - 1) max(f_s, b_s) + max(after_s, G_s) <= T;
    (M)  its memory holds min(m, stages from it on) micro-batches.

(E): its first backward waits until a micro-batch went through all stages behind and back, after which m - 1 backwards
are left; and before its last forward it does m - 1 others, after which that micro-batch goes there and back. 1F1B and
GPipe do both in order, so each holds for both. Without a flush only m w_s + after_s <= T and m x <= T do.
If no chain keeps these at T for any m, no plan of several stages takes T or less. A stage alone takes
m w + after at least, of each choice. So the least of that, and of the least T that no chain was disproved for, is a
bound. Each figure is a least one, and all conditions only get easier with smaller ones:

- Times of a stage of one type are those of its samples; of several tensor degrees the least of each. A stage of two
  types takes as long as its slower part: of all whole numbers of samples for the first part, and the fewest that are
  left for the other, the least. Large numbers are told apart by `LEVEL`; of like ones the smallest gives the time, the
  largest says what is left. Forward, backward and both are each the least of any division.
- F, G, their sum and V are least by themselves over all chains that come to a state, and so is the number of stages.
- Messages: `message_rates`, by what type the neighbour has. What each part does of a micro-batch is between what its
  time within T allows and what that of the other part leaves; where one stage's first type does more than the one's
  before, that much crosses the network.
- Operators are in blocks; a block that is cut is nobody's work, and in F, G and V counts its least. A stage whose ends
  are both in one block has no work, but its GPUs.
- Sums of gradients: rings on as few nodes as there may be, without latency. Recomputation takes nothing.

More than two types in a stage, and more than `MOST_CHOICES` states x choices, are not told apart: there is no bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from policies.recommend.request.pace import measured
from policies.recommend.request.request import Request
from policies.recommend.searching.blocks import Blocks
from policies.recommend.searching.choices import Choice, Work
from policies.recommend.searching.message_rates import most_bytes_per_s, most_nodes, told
from sim.kernels.whole_chains import chain_within, shared_spans
from sim.performance.gpu_links import network_bytes_per_s
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.memory import GIB
from sim.performance.operator_time import update_times_s
from sim.performance.samples import ROUNDING, largest_share

LEVEL = 1.02
"""Ratio of neighbouring samples of a part, at most."""
MOST_CHOICES = 100_000
"""States x choices that are told apart."""
SIZES = (48, 80)
"""Blocks of operators, at most: first few, then, where something of the work allowed is left, more."""
MOST_STEPS = 40_000_000
"""Stages that are looked at in all."""
FIRST = 0.04
"""Ratio, less 1, of what is known and what is tried first."""
FINE = 0.01
"""Ratio, less 1, of what is disproved and what is not, at which bisection ends."""
TILTS = (0.5, 1.0, 2.0)
"""Worth of a GPU of the other types, beside what their speed says."""


@dataclass(eq=False)
class Whole:
    """Choices of a request, whatever the micro-batches.

    Attributes
    ----------
    states : int64 [S, K], GPUs of each type that is there.
    chosen : int64 [C, K], those of a stage.
    used : int64 [S, C], number of the state after a choice; -1: there are not so many.
    kind : int64 [C], number of the type; K of two types.
    lows : int64 [L], least samples of each level.
    steps : stages that may still be looked at.
    """

    request: Request
    work: Work
    steps: int
    _levels: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        request, fleet = self.request, self.request.fleet
        self.there = [min(fleet.counts[t], request.budget) for t in fleet.present]
        sizes = [n + 1 for n in self.there]
        every = np.array(list(product(*map(range, sizes))), dtype=np.int64)
        self.states = every[every.sum(axis=1) <= request.budget]
        several = (self.states > 0).sum(axis=1)
        self.chosen = self.states[(several == 1) | ((several == 2) & self.work.mixed)]
        self.kind = np.where((self.chosen > 0).sum(axis=1) > 1, len(sizes), self.chosen.argmax(axis=1))
        number = np.full(math.prod(sizes), -1, dtype=np.int64)
        number[np.ravel_multi_index(tuple(self.states.T), sizes)] = np.arange(len(self.states))
        both = self.states[:, None, :] + self.chosen[None, :, :]
        fits = (both <= np.array(self.there)).all(axis=2)
        at = np.ravel_multi_index(tuple(np.minimum(both, np.array(self.there)).transpose(2, 0, 1)), sizes)
        self.used = np.where(fits, number[at], -1)
        lows = [1]
        while lows[-1] < request.batch_size:
            lows.append(max(lows[-1] + 1, int(lows[-1] * LEVEL)))
        self.lows = np.array(lows, dtype=np.int64)

    def levels_s(self, blocks: Blocks, t: int, ways: int) -> np.ndarray:
        """float64 [3, L, B + 1], running sums over blocks: both, forward and backward, no less with more samples."""
        key = len(blocks.first_op), t, ways
        if key not in self._levels:
            each = np.array([self.work.times_s(t, ways, float(x)) for x in self.lows])
            three = np.stack([each.sum(axis=1), each[:, 0], each[:, 1]])
            self._levels[key] = blocks.running(np.minimum.accumulate(three[:, ::-1], axis=1)[:, ::-1])
        return self._levels[key]


class Chains:
    """What stages take and need with m micro-batches, where no more than `most_s` is asked for."""

    def __init__(self, whole: Whole, blocks: Blocks, m: int, most_s: float) -> None:
        self.whole, self.blocks, self.m, self.most_s = whole, blocks, m, most_s
        self.work, self.fleet = whole.work, whole.request.fleet
        self.micro = whole.request.batch_size / m
        count, ends = len(whole.chosen), len(blocks.first_op)
        self.work_s, self.forward_s, self.backward_s, self.after_s = np.full((4, count, ends, ends), np.inf)
        self.hold = np.zeros((count, ends, ends), dtype=np.int64)
        several = whole.kind == len(whole.there)
        self.share = np.empty((count, ends, ends, 2))
        self.share[...] = (whole.kind == 0)[:, None, None, None]
        self.share[several] = 1.0, 0.0
        for c, used in enumerate(whole.chosen.tolist()):
            parts = [(t, n) for t, n in zip(self.fleet.present, used, strict=True) if n]
            if len(parts) == 1:
                self._on_one(c, *parts[0])
            else:
                self._on_two(c, parts)
        # A stage of two types of which nothing is known.
        self.share[several] = np.where(self.share[several][..., :1] > self.share[several][..., 1:],
                                       np.array([0.0, 1.0]), self.share[several])
        each = np.arange(ends - 1)
        self.block_s = self.work_s[:, each, each + 1]
        least = [a[:, each, each + 1].min(axis=0) for a in (self.forward_s, self.backward_s)]
        self.cut_s = np.ascontiguousarray(np.array(least).T) * self.work.flush
        self._messages()

    def _spans(self, of_ops: np.ndarray) -> np.ndarray:
        """float64 [B + 1, B + 1]: sums of the blocks from one to before another; inf where there are none."""
        running = self.blocks.running(of_ops)
        return np.where(np.arange(len(running))[:, None] <= np.arange(len(running)), running - running[:, None], np.inf)

    def _room_gib(self, t: int) -> float:
        return float(self.fleet.types[t].memory_gib or 0.0) * (1 + ROUNDING) - self.work.performance.context_gib

    def _on_one(self, c: int, t: int, gpus: int) -> None:
        """A stage on GPUs of one type, of each tensor degree."""
        work, m = self.work, self.m
        scale = 0.0 if max(work.space.recompute) else work.performance.value_bytes / VALUE_BYTES / GIB
        for ways, graph in work.graphs.items():
            r = gpus // ways
            if gpus % ways or r > self.micro * (1 + ROUNDING) or not measured(graph, self.fleet.types[t]):
                continue
            x = largest_share(self.micro / r)
            forward, backward = work.times_s(t, ways, x)
            one = Choice(t, ways, x, x, gpus, r)
            for to, of in zip((self.work_s, self.forward_s, self.backward_s, self.after_s),
                              (forward + backward, forward, backward, work.after_s(one)), strict=True):  # fmt: skip
                to[c] = np.minimum(to[c], self._spans(of))
            kept = x * scale * graph.stored_bytes
            state, stored = self._spans(work.gib(one) - kept), self._spans(kept)
            fits = np.isfinite(state) & (state <= self._room_gib(t))
            left = np.where(fits, self._room_gib(t) - state, 0.0)
            held = np.where(stored > 0, left / np.where(stored > 0, stored, 1.0), m)
            self.hold[c] = np.maximum(self.hold[c], np.where(fits, np.clip(held + ROUNDING, 0, m), 0).astype(np.int64))

    def _on_two(self, c: int, parts: list[tuple[int, int]]) -> None:
        """A stage on GPUs of two types, each of any tensor degree."""
        work, whole, fleet = self.work, self.whole, self.fleet
        highs = np.append(whole.lows[1:] - 1, max(int(whole.lows[-1]), whole.request.batch_size))
        nodes = sum(-(-n // fleet.node_gpus[t]) for t, n in parts)
        far = network_bytes_per_s(work.performance.links.fastest, 1)
        for degrees in product(work.graphs, repeat=2):
            if any(n % ways or not measured(work.graphs[ways], fleet.types[t])
                   for (t, n), ways in zip(parts, degrees, strict=True)):  # fmt: skip
                continue
            (a, b), r = [n // ways for (_, n), ways in zip(parts, degrees, strict=True)], 0
            if (r := a + b) > self.micro * (1 + ROUNDING):
                continue
            needed = np.maximum(np.ceil((self.micro - a * highs) / b * (1 - ROUNDING)), 1)
            level = np.searchsorted(whole.lows, needed, side="right") - 1
            most = [np.minimum(n * highs / self.micro, 1 - other / self.micro) for n, other in ((a, b), (b, a))]
            one, other = (whole.levels_s(self.blocks, t, ways) for (t, _), ways in zip(parts, degrees, strict=True))
            for k, to in enumerate((self.work_s, self.forward_s, self.backward_s)):
                shared_spans(to[c], self.share[c], one[k], other[k], level, *most, self.most_s / self.m)
            a_byte_s = min(2 * (nodes - 1) / nodes, 2 * (r - 1) / r) / far if work.sums_told else 0.0
            after = np.zeros_like(self.after_s[c])
            fits = np.ones(after.shape, dtype=bool)
            for (t, n), ways in zip(parts, degrees, strict=True):
                fits = fits & (self._spans(work.gib(Choice(t, ways, 1.0, 1.0, n, r))) <= self._room_gib(t))
                after = np.maximum(after, self._spans(self._after_two_s(t, work.graphs[ways], r, a_byte_s)))
            self.after_s[c] = np.minimum(self.after_s[c], after)
            self.hold[c] = np.maximum(self.hold[c], np.where(fits, self.m, 0))

    def _after_two_s(self, t: int, graph: OperatorGraph, r: int, a_byte_s: float) -> np.ndarray:
        """Sum and step of each operator, where the step is that of a part: float64 [ops]."""
        performance = self.work.performance
        step_s = update_times_s(graph, self.fleet.types[t], performance.calibration, performance.optimizer)
        dense = graph.weight_params - graph.sparse_params
        return np.asarray(step_s / (r if max(self.work.space.zero) else 1) + dense * performance.value_bytes * a_byte_s)

    def _messages(self) -> None:
        """Least seconds for each byte of a sample, by choice and by kind of the neighbour."""
        whole, fleet, performance = self.whole, self.fleet, self.work.performance
        scale = performance.value_bytes / VALUE_BYTES * self.micro * self.work.flush
        beside = [[t] for t in fleet.present]
        if self.work.mixed:
            beside.append(list(fleet.present))
        a_byte_s = np.zeros((len(whole.chosen), len(beside), 3))
        over_s = np.zeros((len(whole.chosen), 2))
        far = network_bytes_per_s(performance.links.fastest, 1)
        for c, used in enumerate(whole.chosen.tolist() if told(performance, fleet) else ()):
            gpus = dict(zip(fleet.present, used, strict=True))
            for k, types in enumerate(beside):
                each = [most_bytes_per_s(performance, fleet, {t: n}, types) if n else 0.0 for t, n in gpus.items()]
                rates = sum(each), each[0], sum(each[1:])
                a_byte_s[c, k] = [scale / rate if rate else 0.0 for rate in rates]
            nodes = [most_nodes(n, fleet.counts[t], fleet.node_gpus[t]) if n else 0 for t, n in gpus.items()]
            over_s[c] = [scale / (far * n) if n else 0.0 for n in (nodes[0], sum(nodes[1:]))]
        self.a_byte_s, self.over_s = a_byte_s, over_s

    @property
    def one_stage_s(self) -> float:
        """Least time of one stage."""
        each_s = self.m * self.work_s[:, 0, -1] + self.after_s[:, 0, -1]
        return float(each_s[self.hold[:, 0, -1] > 0].min(initial=math.inf))

    def _alive(self, most_s: float) -> np.ndarray:
        """bool [2 B, S]: whether GPUs may do what is before a place, and the others the rest, by GPU-seconds alone."""
        whole, blocks = self.whole, self.block_s.shape[1]
        out = np.ones((2 * blocks, len(whole.states)), dtype=bool)
        # A GPU that does the model faster is worth more, and so it may be worth twice, or half, as much.
        speed = []
        for t in range(len(whole.there)):
            of = whole.kind == t
            total_s = (self.block_s[of] * whole.chosen[of, t][:, None]).min(axis=0, initial=np.inf).sum()
            speed.append(1 / total_s if 0 < total_s < np.inf else 1e-12)
        for tilt in product(TILTS, repeat=len(speed) - 1):
            worth = np.array(speed) * np.array([1.0, *tilt])
            worth /= worth @ np.array(whole.there)
            charge = self.m * ((whole.chosen @ worth)[:, None] * self.block_s).min(axis=0) / most_s
            if not np.isfinite(charge).all():
                return np.zeros_like(out)
            done = np.concatenate(([0.0], np.cumsum(charge)))
            before, behind = np.repeat(done[:-1], 2), done[-1] - done[np.arange(1, 2 * blocks + 1) // 2]
            has = whole.states @ worth
            out &= (before[:, None] <= has + ROUNDING) & (behind[:, None] <= 1 - has + ROUNDING)
        return out

    def within(self, most_s: float) -> bool:
        """Whether several stages may end within that, which is `most_s` of the beginning at most; False is proven."""
        whole = self.whole
        possible, steps = chain_within(
            self.work_s, self.forward_s, self.backward_s, self.after_s, self.hold, self.share, whole.used, whole.kind,
            self.a_byte_s, self.over_s, self.blocks.cut_bytes, self.cut_s, self._alive(most_s), self.m, most_s,
            self.work.flush, whole.steps,
        )
        whole.steps -= steps
        return bool(possible)


def whole_time_s(request: Request, work: Work, least_s: float, micro_batches: list[int], most_s: float) -> float:
    """A bound of the time that is `least_s`, which is one, or more; of no more than `most_s`.

    Stops with what is proven when `MOST_STEPS` is used up.
    """
    several = sum(n > 0 for n in request.fleet.counts)
    whole_fleet = math.prod(n + 1 for n in request.fleet.counts)
    if (several > 2 and work.mixed) or whole_fleet**2 > MOST_CHOICES or not 0 < least_s < most_s:
        return least_s
    whole = Whole(request, work, MOST_STEPS)
    for size in SIZES:
        blocks = Blocks(request, size)
        chains = [Chains(whole, blocks, m, most_s) for m in micro_batches]
        high_s, step = min([most_s, *(chain.one_stage_s for chain in chains)]), 1 + FIRST

        def possible(tried_s: float, chains: list[Chains] = chains) -> bool:
            return any(chain.within(tried_s) for chain in chains)

        while least_s < high_s:
            if possible(tried_s := min(least_s * step, high_s)):
                high_s = tried_s
                break
            least_s = tried_s
        while high_s / least_s - 1 > FINE and whole.steps > 0:
            middle = math.sqrt(least_s * high_s)
            least_s, high_s = (least_s, middle) if possible(middle) else (middle, high_s)
        if whole.steps <= 0 or len(blocks.first_op) > len(request.performance.graph(request.model)):
            break
    return least_s
