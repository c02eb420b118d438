"""Lower bounds of time and cost that no plan within a request's space beats, and how near a plan comes to them.

Take any plan with m micro-batches of the batch's n samples. Stage s has the operators S_s and g_s GPUs, of one type t:
r replicas of k GPUs, so that a GPU works on x = n / (m r) samples of a micro-batch. Operator o takes f_o(x) and b_o(x)
there, w_s is the sum of both over S_s, W the sum of all w_s, T the time of the iteration. Then

    (A)  T >= m w_s + all-reduce_s + step_s    for each stage: its GPUs do nothing else meanwhile;
    (B)  T >= W + (m - 1) b_s                  for each stage, if the iteration ends with a flush: before its first
         backward some micro-batch went forward through all stages and backward through those behind s; after its last
         backward the stages before s still have one to do.

Times (A) by g_s, added up over the stages of type t (of which there are N_t GPUs):  N_t T >= sum g_s (m w_s + ...);
the same of (B), and over all types with the GPUs that may be used in all. With y[o, c] = 1 where operator o is in a
stage of choice c = (t, k, r), and 0 else, these are linear in y and T:

    (A)  sum over o and c of type t of  y g (m (f + b) + all-reduce + step)                  <= N_t T
    (B)  sum over o and c of type t of  y g (m - 1) b  +  N_t sum over all of  y (f + b)     <= N_t T
    (M)  sum over o and c of type t of  y g (state + x stored)                               <= N_t memory_t
         sum over c of y[o, c] = 1  for each o.

Any plan satisfies them, so the least T of all 0 <= y <= 1 is a bound. It is a linear program; for any multipliers
lambda >= 0 of the rows  min over y of sum lambda (left - right),  a minimum over c for each operator by itself, is a
bound too (weak duality), and only that is used: multipliers come from a smaller program (like operators together, few
replica counts), and the bound is worked out with them over all operators and choices. So it holds whatever the solver
does. The bound is the least over the m that the space allows.

Cost is T x (sum of prices of the GPUs used). Of one stage (A) gives it as it is. Of two stages or more, (A) and (B) in
any mixture theta, each times price x g_s and added up, give for the price R of all GPUs used, which is at least twice
the lowest price, and at least what the memory costs that the model needs,

    T R >= sum y price g (theta (m (f + b) + all-reduce + step) + (1 - theta) (m - 1) b) + (1 - theta) R sum y (f + b).

Where GPUs are rented by the node, all of them are paid: of one stage on g GPUs, g rounded up; of several stages, which
may share a node, only the GPUs that are used are counted. In any case the cost is at least T x the cheapest node.

What is left out only lowers the bounds: transfers, the sums of tensor parallelism, latencies of an all-reduce, which
GPUs lie together. Where a GPU may work on any share of a micro-batch (several types in a stage), or there are very many
replica counts, a choice stands for an interval of x: a GPU-second is most productive at its upper end (time / samples
does not rise with samples), a micro-batch passes fastest at its lower end. Samples are whole: x is rounded up where the
replicas are known, and of an interval its lower end, since no plan there has fewer. A stage of several types takes as
long as its slowest part, so no less than the mean of its parts by their shares; y is then that share.

Interleaved stages (several chunks on a GPU) are not in a request's space, and (B) does not hold for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack, kron

from policies.recommend.request.pace import measured
from policies.recommend.request.request import Recommendation, Request
from sim.performance import GpuType, PerformanceError
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.memory import GIB
from sim.performance.operator_time import operator_times_s, update_times_s
from sim.performance.samples import largest_share

MOST_REPLICAS = 64
"""Replica counts that are choices of their own; larger ones are taken together, 1 / 16 at a time."""
SHARE_STEP = 1.15
"""Ratio of neighbouring samples a GPU where stages may mix types."""
LIKE = 1e-3
"""Operators whose figures differ by no more than this ratio are one for the smaller program."""
MIXTURES = np.linspace(0.0, 1.0, 9)
"""Values of theta that are tried."""
SAFETY = 1e-9
"""By which a bound is lowered, relatively, for rounding."""


@dataclass(frozen=True)
class Bound:
    """No plan within the space takes less time, or costs less.

    Attributes
    ----------
    iteration_s, usd_per_iteration : the bounds; inf where no plan fits at all, 0 where nothing can be told (a model of
        measured rates; GPUs without a price are left out of the cost, as they can't be chosen by it).
    """

    iteration_s: float
    usd_per_iteration: float

    def gap(self, found: Sequence[Recommendation]) -> tuple[float, float]:
        """Value / bound - 1 of the fastest and of the cheapest plan: how much better one could be at the very most."""
        time_s = min((r.iteration_s for r in found), default=math.inf)
        usd = min((r.usd_per_iteration for r in found if not math.isnan(r.usd_per_iteration)), default=math.nan)
        return _gap(time_s, self.iteration_s), _gap(usd, self.usd_per_iteration)


    def reached_by(self, front: Sequence[Recommendation]) -> bool:
        """Whether neither time nor cost can be better, but for rounding."""
        time_gap, cost_gap = self.gap(front)
        return time_gap <= 10 * SAFETY and (cost_gap <= 10 * SAFETY or math.isnan(cost_gap))


def _gap(value: float, bound: float) -> float:
    return value / bound - 1 if bound > 0 else math.nan if math.isnan(value) else math.inf


def lower_bound(request: Request) -> Bound:
    """The bounds of a request (see the module)."""
    if request.measured:
        return Bound(0.0, 0.0)
    time_s = usd = math.inf
    work = _Work(request)
    for m in sorted(request.space.micro_batches):
        if m <= request.batch_size and (choices := work.choices(m)) is not None:
            least_s = choices.least_time_s()
            time_s = min(time_s, least_s)
            usd = min(usd, choices.least_usd(least_s))
    return Bound(float(time_s * (1 - SAFETY)), float(usd * (1 - SAFETY)))


@dataclass(frozen=True)
class _Choice:
    """GPUs that an operator may be on: those of type t, each working on low to high samples of a micro-batch."""

    t: int
    tensor: int
    low: float
    high: float
    gpus: float
    """Fewest that such a stage takes: of replicas that work on `high` samples on average."""
    replicas: float
    """Most of them; inf where unknown (a part of a stage of several types)."""


class _Work:
    """What operators take and need, by choice."""

    def __init__(self, request: Request) -> None:
        self.request, self.fleet, self.space = request, request.fleet, request.space
        performance = self.performance = request.performance
        graph = performance.graph(request.model)
        self.graphs: dict[int, OperatorGraph] = {}
        for ways in self.space.tensor:
            try:
                self.graphs[ways] = graph.tensor_parallel(ways)
            except PerformanceError:
                continue
        self.flush = "async" not in {name or performance.schedule for name in self.space.schedules}
        self._times: dict[tuple[int, int, float], tuple[np.ndarray, np.ndarray]] = {}

    @property
    def mixed(self) -> bool:
        several = len(self.fleet.present) > 1 and self.request.budget > 1
        return self.space.mixed and not self.space.single_type and several

    def choices(self, m: int) -> _Choices | None:
        """All choices with m micro-batches; None: there are none."""
        rows = [c for t in self.fleet.present for ways, graph in self.graphs.items()
                if measured(graph, self.fleet.types[t]) for c in self._of(t, ways, m)]  # fmt: skip
        return _Choices(self, m, rows) if rows else None

    def _of(self, t: int, ways: int, m: int) -> Iterator[_Choice]:
        micro, most = self.request.batch_size / m, min(self.fleet.counts[t], self.request.budget) // ways
        if self.mixed:
            high = micro
            while most and high >= 1:
                low = largest_share(max(1.0, high / SHARE_STEP))
                yield _Choice(t, ways, low, max(low, high), ways * micro / high, math.inf)
                high /= SHARE_STEP
            return
        r, most = 1, min(most, math.floor(micro))
        while r <= most:
            last = r if r < MOST_REPLICAS else min(most, r + r // 16)
            low = largest_share(micro / last)
            yield _Choice(t, ways, low, low if r == last else max(low, micro / r), ways * r, last)
            r = last + 1

    def times_s(self, t: int, ways: int, samples: float) -> tuple[np.ndarray, np.ndarray]:
        """Operator times forward and backward on one of `ways` GPUs: float64 [ops] each."""
        key = (t, ways, samples)
        if key not in self._times:
            self._times[key] = operator_times_s(
                self.graphs[ways], samples, self.fleet.types[t], calibration=self.performance.calibration
            )
        return self._times[key]

    def after_s(self, choice: _Choice) -> np.ndarray:
        """Least all-reduce and optimizer step that each operator adds to a stage: float64 [ops]."""
        graph, gpu = self.graphs[choice.tensor], self.fleet.types[choice.t]
        params = graph.weight_params - graph.sparse_params
        step_s = update_times_s(graph, gpu, self.performance.calibration, self.performance.optimizer)
        if max(self.space.zero):
            step_s = step_s / choice.replicas
        return step_s + params * (self.performance.value_bytes * self._sum_s_per_byte(choice, gpu))

    def _sum_s_per_byte(self, choice: _Choice, gpu: GpuType) -> float:
        """Least seconds a byte of gradients over the replicas: a ring on one node, or over as few as hold them.

        Over N nodes either one ring of all r replicas at the network's speed at most, 2 (r - 1) / r / network, or
        rings by level, at least 2 (N - 1) / N / network.
        """
        performance, links, r = self.performance, self.performance.links, choice.replicas
        told = performance.exchange == "ring" and not performance.overlap and links.alike
        if not told or math.isinf(r) or r < 2:
            return 0.0
        near, far = inside(gpu, links)[0], network_bytes_per_s(links.fastest, 1)
        # Of an interval of counts, the fewest replicas are about 1 / 16 fewer.
        r = r if r <= MOST_REPLICAS else math.floor(r * 15 / 16)
        size = self.fleet.node_gpus[choice.t]
        nodes = max(2, math.ceil(r * choice.tensor / size))
        over = min(2 * (nodes - 1) / nodes, 2 * (r - 1) / r) / far
        return min(over, 2 * (r - 1) / r / near) if r * choice.tensor <= size else over

    def gib(self, choice: _Choice) -> np.ndarray:
        """Least memory that each operator adds to a GPU: float64 [ops]."""
        graph, value, zero = self.graphs[choice.tensor], self.performance.value_bytes, max(self.space.zero)
        shard = [1 / choice.replicas if zero >= stage else 1.0 for stage in (1, 2, 3)]
        params, dense = graph.weight_params, graph.weight_params - graph.sparse_params
        kept = self.performance.optimizer
        state = (value * params * shard[2] + kept.gradient_bytes(value) * dense * shard[1]
                 + kept.state_bytes(value) * params * shard[0])  # fmt: skip
        if max(self.space.recompute):
            return np.asarray(state / GIB)
        return np.asarray((state + choice.low * graph.stored_bytes * value / VALUE_BYTES) / GIB)

    def passing_gib(self, choice: _Choice) -> np.ndarray:
        """What an operator's input and output take beside it: float64 [ops]."""
        graph = self.graphs[choice.tensor]
        scale = choice.low * self.performance.value_bytes / VALUE_BYTES / GIB
        return np.asarray((graph.in_bytes + graph.out_bytes) * scale)


class _Choices:
    """The rows of the program for m micro-batches, [C, ops] each, and its bounds.

    Attributes
    ----------
    busy_s, back_s : (A) and (B), GPU-seconds of each operator in each choice.
    path_s : time of one micro-batch in it.
    gib : (M), over all GPUs of the choice.
    allowed : whether a GPU has memory for the operator alone.
    """

    def __init__(self, work: _Work, m: int, rows: Sequence[_Choice]) -> None:
        self.work, self.m, fleet = work, m, work.fleet
        self.of_type = np.array([c.t for c in rows])
        gpus = np.array([c.gpus for c in rows])[:, None]
        high = [work.times_s(c.t, c.tensor, c.high) for c in rows]
        low = [work.times_s(c.t, c.tensor, c.low) for c in rows]
        backward = np.array([b for _, b in high])
        self.busy_s = gpus * (m * np.array([f + b for f, b in high]) + np.array([work.after_s(c) for c in rows]))
        self.back_s = gpus * (m - 1) * backward if work.flush else np.zeros_like(backward)
        self.path_s = np.array([f + b for f, b in low]) if work.flush else np.zeros_like(backward)
        each = np.array([work.gib(c) for c in rows])
        self.room_gib = np.array([fleet.types[c.t].memory_gib - work.performance.context_gib for c in rows])
        alone = each + np.array([work.passing_gib(c) for c in rows])
        self.allowed = alone <= self.room_gib[:, None] * (1 + SAFETY)
        self.whole = (each.sum(axis=1) <= self.room_gib * (1 + SAFETY)) & self.allowed.all(axis=1)
        # Of parts of a stage it is not known how many replicas share what they keep.
        self.gib = np.zeros_like(each) if work.mixed else gpus * each
        self.price = np.array([fleet.types[c.t].price_or_nan for c in rows]) / 3600
        # Of intervals of counts it is not known how many GPUs are paid for but not used.
        self.paid = np.array([
            fleet.paid(c.t, n := round(c.tensor * c.replicas)) / n if c.low == c.high and c.replicas < math.inf else 1.0
            for c in rows
        ])
        self.rented = np.array([fleet.rented_gpus[c.t] for c in rows])

    # -- time ------------------------------------------------------------------------------------------------------

    @cached_property
    def limits(self) -> list[tuple[np.ndarray, float]]:
        """Which choices are counted together, and the GPUs that they may have: each type, and all."""
        fleet, budget = self.work.fleet, self.work.request.budget
        each = [(self.of_type == t, float(min(fleet.counts[t], budget))) for t in fleet.present]
        return [*each, (np.ones(len(self.of_type), dtype=bool), float(budget))] if len(each) > 1 else each

    def least_time_s(self) -> float:
        """A bound of the time with m micro-batches."""
        none = np.zeros((3, len(self.limits)))
        memory, work = none.copy(), none.copy()
        memory[2, -1] = work[0, -1] = 1.0
        # Memory alone, or work alone, over all GPUs; should the solver find nothing, that remains.
        return max(map(self._bound_s, (memory, work, self._multipliers(none))))

    def _bound_s(self, multipliers: np.ndarray) -> float:
        """The bound that multipliers [3, limits] of (A), (B) and (M) prove; inf: no plan fits."""
        left = np.zeros_like(self.busy_s)
        on_time = constant = path = 0.0
        for (members, gpus), a, b, memory in zip(self.limits, *np.maximum(multipliers, 0.0), strict=True):
            left[members] += a * self.busy_s[members] + b * self.back_s[members]
            left[members] += memory * (self.gib / self.room_gib[:, None])[members]
            path += b * gpus
            on_time += (a + b) * gpus
            constant += memory * gpus
        left += path * self.path_s
        least = float(np.where(self.allowed, left, np.inf).min(axis=0).sum()) - constant
        # least <= on_time x T for every plan.
        if on_time <= 0:
            return math.inf if least > SAFETY * max(constant, 1.0) else 0.0
        return max(least / on_time, 0.0)

    def _multipliers(self, none: np.ndarray) -> np.ndarray:
        """Multipliers [3, limits], by the smaller program: like operators together, few replica counts."""
        rows = self._few()
        if not self.allowed[rows].any(axis=0).all():
            return none
        figures = np.concatenate([a[rows] for a in (self.busy_s, self.path_s, self.gib)])
        keys = np.round(np.log(figures + 1e-15) / LIKE).astype(np.int64)
        _, first, size = np.unique(keys, axis=1, return_index=True, return_counts=True)
        scale = self.busy_s.min(axis=0).sum() / self.limits[-1][1]
        busy, back, path = (a[np.ix_(rows, first)] * size / scale for a in (self.busy_s, self.back_s, self.path_s))
        gib = (self.gib / self.room_gib[:, None])[np.ix_(rows, first)] * size
        allowed = self.allowed[np.ix_(rows, first)]
        within = [members[rows][:, None] for members, _ in self.limits]
        gpus = np.array([n for _, n in self.limits])
        upper = [np.where(w, busy, 0.0) for w in within]
        upper += [np.where(w, back, 0.0) + n * path for w, n in zip(within, gpus, strict=True)]
        upper += [np.where(w, gib, 0.0) for w in within]
        left = csr_matrix(np.array([row.ravel() for row in upper]))
        times = csr_matrix(np.concatenate((-gpus, -gpus, 0 * gpus))[:, None])
        groups = len(first)
        each = hstack([kron(np.ones((1, len(rows))), csr_matrix(np.eye(groups))), csr_matrix((groups, 1))])
        found = linprog(
            np.append(np.zeros(busy.size), 1.0), A_ub=hstack([left, times]).tocsr(),
            b_ub=np.concatenate((0 * gpus, 0 * gpus, gpus)), A_eq=each.tocsr(), b_eq=np.ones(groups),
            bounds=[(0.0, None if ok else 0.0) for ok in allowed.ravel()] + [(0.0, None)], method="highs",
        )
        if found.status != 0:
            return none
        return -np.asarray(found.ineqlin.marginals).reshape(3, -1) * np.array([[1.0], [1.0], [scale]])

    def _few(self) -> np.ndarray:
        """Some choices of each type: powers of two, and the last."""
        keep = []
        for t in np.unique(self.of_type):
            of = np.flatnonzero(self.of_type == t)
            steps = {0, len(of) - 1, *((1 << k) - 1 for k in range(len(of).bit_length()))}
            keep += [of[i] for i in sorted(steps) if i < len(of)]
        return np.array(keep)

    # -- cost ------------------------------------------------------------------------------------------------------

    def least_usd(self, least_s: float) -> float:
        """A bound of the cost with m micro-batches, where no plan takes less than `least_s`."""
        priced = ~np.isnan(self.price)
        if not self.allowed[priced].any(axis=0).all():
            return math.inf
        price = self.price[priced][:, None]
        busy, back, path = (a[priced] for a in (self.busy_s, self.back_s, self.path_s))
        one = (price * self.paid[priced][:, None] * busy)[self.whole[priced]].sum(axis=1).min(initial=math.inf)
        if self.work.request.budget < 2:
            return float(one)
        allowed = self.allowed[priced]

        def least(figures: np.ndarray) -> float:
            return float(np.where(allowed, figures, np.inf).min(axis=0).sum())

        rate = max(2 * float(price.min()), least(price * (self.gib / self.room_gib[:, None])[priced]))
        several = max(
            least(price * (theta * busy + (1 - theta) * back) + (1 - theta) * rate * path) for theta in MIXTURES
        )
        # Whatever is rented for that long costs no less than what is cheapest to rent.
        return max(float(min(one, several)), least_s * float((self.price * self.rented)[priced].min()))
