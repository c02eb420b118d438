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

What is left out only lowers the bounds: transfers, latencies of sums over GPUs, which GPUs lie together. That stages
are whole, and pass their messages on, is counted in `stage_bounds`, which begins where this ends; that they are on
whole GPUs, of which there are so many, in `whole_stages`. Where a GPU may work
on any share of a micro-batch (several types in a stage), or there are very many replica counts, a choice stands for an
interval of x: a GPU-second is most productive at its upper end (time / samples does not rise with samples), a micro-
batch passes fastest at its lower end. Samples are whole: x is rounded up where the replicas are known, and of an
interval its lower end, since no plan there has fewer. A stage of several types takes as long as its slowest part, so no
less than the mean of its parts by their shares; y is then that share.

Interleaved stages (several chunks on a GPU) are not in a request's space, and (B) does not hold for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack, kron

from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.choices import Choice, Work
from policies.recommend.searching.stage_bounds import least_time_s
from policies.recommend.searching.whole_stages import whole_time_s

APART = 1.3
"""Ratio of the samples of neighbouring choices in the smaller program, at least."""
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

    def at_least(self, usd: float) -> Bound:
        """With another bound of the cost, where that says more."""
        return replace(self, usd_per_iteration=max(self.usd_per_iteration, usd * (1 - SAFETY)))

    def reached_by(self, front: Sequence[Recommendation]) -> bool:
        """Whether neither time nor cost can be better, but for rounding."""
        time_gap, cost_gap = self.gap(front)
        return time_gap <= 10 * SAFETY and (cost_gap <= 10 * SAFETY or math.isnan(cost_gap))


def _gap(value: float, bound: float) -> float:
    return value / bound - 1 if bound > 0 else math.nan if math.isnan(value) else math.inf


def lower_bound(request: Request, *, quick: bool = False) -> Bound:
    """The bounds of a request (see the module); `quick`: without `stage_bounds`, which take seconds."""
    if request.measured:
        return Bound(0.0, 0.0)
    return request.once(("lower bound", request.space, request.budget, quick), lambda: _worked_out(request, quick))


def _worked_out(request: Request, quick: bool) -> Bound:
    work, known = Work(request), {}
    for m in sorted(request.space.micro_batches):
        if m <= request.batch_size and (rows := work.choices(m)):
            known[m] = _Choices(work, m, rows)
    low_s = {m: choices.least_time_s() for m, choices in known.items()}
    if not low_s:
        return Bound(math.inf, math.inf)
    if quick:
        time_s, usd = min(low_s.values()), min(known[m].least_usd(low_s[m]) for m in known)
    else:
        time_s, chains = least_time_s(request, work, low_s)
        time_s = whole_time_s(request, work, time_s, list(low_s), 2 * time_s)
        usd = min(known[chain.m].least_usd(time_s, chain.several_usd()) for chain in chains)
    return Bound(float(time_s * (1 - SAFETY)), float(usd * (1 - SAFETY)))


class _Choices:
    """The rows of the program for m micro-batches, [C, ops] each, and its bounds.

    Attributes
    ----------
    busy_s, back_s : (A) and (B), GPU-seconds of each operator in each choice.
    path_s : time of one micro-batch in it.
    gib : (M), over all GPUs of the choice.
    allowed : whether a GPU has memory for the operator alone.
    """

    def __init__(self, work: Work, m: int, rows: Sequence[Choice]) -> None:
        self.work, self.m, fleet = work, m, work.fleet
        self.of_type = np.array([c.t for c in rows])
        self.samples = np.array([c.high for c in rows])
        self.kind = np.array([(c.t, c.tensor, math.isinf(c.replicas)) for c in rows])
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
        """Some choices of each kind: the first, the last, and between them such as are apart in samples."""
        keep = []
        for kind in np.unique(self.kind, axis=0):
            of, at = np.flatnonzero((self.kind == kind).all(axis=1)), math.inf
            for i in of.tolist():
                if self.samples[i] * APART <= at or i == of[-1]:
                    keep.append(i)
                    at = self.samples[i]
        return np.array(keep)

    # -- cost ------------------------------------------------------------------------------------------------------

    def least_usd(self, least_s: float, several_usd: float = 0.0) -> float:
        """A bound of the cost with m micro-batches, where no plan takes less than `least_s`.

        `several_usd` is one of plans of several stages.
        """
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
        several = max(several_usd, *(
            least(price * (theta * busy + (1 - theta) * back) + (1 - theta) * rate * path) for theta in MIXTURES
        ))
        # Whatever is rented for that long costs no less than what is cheapest to rent.
        return max(float(min(one, several)), least_s * float((self.price * self.rented)[priced].min()))
