"""Self-optimising search: learns which changes help, over all that the space allows, for the whole time-cost front.

It starts from the plans of `exact` and `data_parallel` and from plans that need little memory, and changes them by the
moves of `policies.recommend.searching.all_moves`, each candidate judged by the truth.

- Several walkers minimise  log time + w log price of the GPUs an hour,  w from 0 (least time) to 1 (least cost). Each
  accepts what is no worse than where it is, or than where it was L steps ago (late acceptance hill climbing, Burke and
  Bykov 2017, 'The late acceptance hill-climbing heuristic', EJOR 258(1)).
- Each walker learns how often each move succeeded lately, for each evaluation spent, and draws moves in proportion,
  none below a floor (probability matching: Fialho 2010, 'Adaptive operator selection for optimization', section 3.3).
  A success is what is better than where the walker is, or new on the front.
- A walker that has not improved for long starts again: from the plan that serves its weight best, or from the best of
  a few of other GPU counts, after some blind moves. Those between the ends draw a new weight, so that all of the front
  is worked on.

All that was judged is kept in two archives, by time and cost and by GPU counts; so the answer is never worse than the
starts. What is judged does not depend on how much may be judged: a search with less is the beginning of one with more,
and so never better. The same seed and number of evaluations give the same answer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, pairwise

import numpy as np

from policies.recommend.methods import data_parallel, exact
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Recommendation, Request, by_cost, by_counts
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.bounds import Bound, lower_bound
from policies.recommend.searching.budget import Budget, Ended
from policies.recommend.searching.move import Move
from policies.recommend.searching.moves_cuts import balance
from policies.recommend.searching.sharding import with_shards
from policies.recommend.searching.two_stages import two_stages
from sim.api import Plan, Stage

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the walkers, to begin with."""
LATE = 20
"""Steps that late acceptance looks back."""
FLOOR = 0.015
"""Least probability of a move."""
FORGET = 0.98
"""What of a move's credit remains when it is tried again."""
LEAST_GAIN = 1e-12
"""Below it a gain is rounding."""
STALE = 200
"""Steps of a walker without a new best before it starts again."""
RIVALS = 4
"""Plans of other GPU counts that are drawn to start again from; the best of them is taken."""
KICKS = 4
"""Blind moves, at most, when it does."""
CHECKED = 64
"""Steps from one look at the bounds to the next."""
FRUITLESS = 3000
"""Steps in a row, of all walkers, that lead to no new plan: what is near has been seen."""


def value(weight: float, r: Recommendation) -> float:
    """What a walker minimises: log time + weight log price an hour; inf where a price is unknown and counts."""
    log_time = math.log(r.iteration_s)
    if weight == 0:
        return log_time
    if math.isnan(r.usd_per_iteration):
        return math.inf
    rate = r.usd_per_iteration / r.iteration_s
    return log_time + weight * (math.log(rate) if rate > 0 else -math.inf)


class Walker:
    """One local search.

    Attributes
    ----------
    weight : of log price beside log time.
    at : where it is.
    values : of the last LATE steps, oldest first.
    best : least value since it started.
    stale : steps since it last improved that.
    credit : float64 [moves], how often each succeeded lately, times the number of moves.
    """

    def __init__(self, weight: float, at: Recommendation, moves: int) -> None:
        self.weight, self.credit = weight, np.ones(moves)
        self.begin(at)

    def begin(self, at: Recommendation) -> None:
        """Start from here."""
        self.at, self.best, self.stale = at, value(self.weight, at), 0
        self.values = deque([self.best] * LATE, maxlen=LATE)

    def walk(self, r: Recommendation) -> bool:
        """Accept a neighbour or stay; whether it is better than where the walker was."""
        found, here = value(self.weight, r), value(self.weight, self.at)
        if found <= here or found < self.values[0]:
            self.at = r
        self.values.append(value(self.weight, self.at))
        if found < self.best - LEAST_GAIN:
            self.best, self.stale = found, 0
        return found < here - LEAST_GAIN

    def learn(self, move: int, success: bool) -> None:
        """Credit moves towards 1 (times the number of moves) or 0."""
        self.credit[move] += (1 - FORGET) * (success * len(self.credit) - self.credit[move])


def matched(credit: np.ndarray) -> np.ndarray:
    """Probability of each move: FLOOR, and the rest in proportion to its credit."""
    floor = min(FLOOR, 1 / len(credit))
    return np.asarray(floor + (1 - floor * len(credit)) * credit / max(float(credit.sum()), 1e-300))


class Search:
    """The search, step by step; may be stopped after any.

    Parameters
    ----------
    request : what is asked; a model with operators.
    starts : plans to begin with. If none of them fits, there is nothing to improve: `walkers` is empty.
    tell : called with each plan that is kept; another search may `keep` it too.

    Attributes
    ----------
    found : the best plan for each vector of GPU counts.
    front : the plans that no other one equals or beats in time and cost, fastest first.
    """

    def __init__(
        self, request: Request, starts: Iterable[Plan], tell: Callable[[Recommendation], object] | None = None
    ) -> None:
        self.request, self.ground, self.tell = request, Ground(request), tell
        self.rng = np.random.default_rng([request.seed, 4])
        moves = moves_for(self.ground)
        self.names: tuple[str, ...] = tuple(moves)
        self.moves: tuple[Move, ...] = tuple(moves.values())
        self.found: dict[tuple[int, ...], Recommendation] = {}
        self.front: list[Recommendation] = []
        self.fruitless = 0
        self.steps = 0
        for r in request.judged(plan for plan in with_shards(starts, self.ground) if self.ground.allows(plan)):
            self.keep(r)
        self.walkers = self._walkers()

    def _walkers(self) -> list[Walker]:
        # Without prices there is no front, and nothing but time to go by.
        return [
            Walker(weight, self._least(weight), len(self.moves))
            for weight in (WEIGHTS if self.front else WEIGHTS[:1]) if self.found
        ]

    def adopt(self, found: Iterable[Recommendation]) -> None:
        """Begin again, from what else was found as well, as far as the space has it."""
        for r in found:
            if self.ground.allows(r.plan):
                self.keep(r)
        self.walkers = self._walkers()

    @cached_property
    def bound(self) -> Bound:
        """What no plan beats, as far as it is quickly told."""
        return lower_bound(self.request, quick=True)

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing to walk from, or nothing new was met for long."""
        return not self.walkers or not self.moves or self.fruitless >= FRUITLESS

    def ended(self) -> str:
        """Why nothing more is to be had of it; '': it may go on. The bound is looked at now and then."""
        if not self.walkers:
            return "there is no plan to begin with"
        if self.exhausted:
            return "no plan that is new is near the best ones"
        if self.steps % CHECKED == 0 and self.bound.reached_by(list(self.found.values())):
            return "no plan can be better: the lower bounds are reached"
        return ""

    def step(self) -> None:
        """One move of the next walker."""
        walker = self.walkers[self.steps % len(self.walkers)]
        self.steps += 1
        walker.stale += 1
        if walker.stale > STALE:
            self._restart(walker)
        chosen = int(np.searchsorted(np.cumsum(matched(walker.credit)), self.rng.random()))
        plan = self.moves[chosen](walker.at.plan, self.ground, self.rng)
        self.fruitless += 1
        if plan is None or not self.ground.allows(plan):
            return
        before = self.request.evaluations
        r = self.request.truth(plan)
        if self.request.evaluations > before:
            self.fruitless = 0
        success = False
        if r is not None:
            kept, better = self.keep(r), walker.walk(r)
            success = kept or better
        if self.request.evaluations > before or success:
            walker.learn(chosen, success)

    def _restart(self, walker: Walker) -> None:
        if 0 < walker.weight < 1:
            walker.weight = float(self.rng.random())
        r = self._least(walker.weight)
        if self.rng.random() < 0.5:
            others = list(self.found.values())
            drawn = (others[int(i)] for i in self.rng.integers(len(others), size=RIVALS))
            r = min(drawn, key=partial(value, walker.weight))
        for _ in range(int(self.rng.integers(KICKS + 1))):
            move = self.moves[int(self.rng.integers(len(self.moves)))]
            plan = move(r.plan, self.ground, self.rng)
            r = (plan and self._judged(plan)) or r
        walker.begin(r)

    def _least(self, weight: float) -> Recommendation:
        return min(self.found.values(), key=partial(value, weight))

    def _judged(self, plan: Plan) -> Recommendation | None:
        """The truth of a plan that the request allows, filed."""
        r = self.request.truth(plan) if self.ground.allows(plan) else None
        if r is not None:
            self.keep(r)
        return r

    def keep(self, r: Recommendation) -> bool:
        """File a plan; whether it is new on the front of time and cost."""
        known = self.found.get(r.counts)
        if known is not None and known.iteration_s <= r.iteration_s:
            return False
        self.found[r.counts] = r
        # Of the same GPUs, the faster is the cheaper: a plan that is not kept here is on no front.
        self.front = list(by_cost([*self.front, r]))
        if self.tell is not None:
            self.tell(r)
        return any(one is r for one in self.front)


def starts(request: Request) -> Iterator[Plan]:
    """Where to begin: the plans of `exact` and `data_parallel`, in the space, of two stages, and of little memory."""
    space = request.space
    for plan in chain(exact.propose(request), data_parallel.propose(request)):
        yield replace(
            plan, schedule=plan.schedule if plan.schedule in space.schedules else space.schedules[0],
            recompute=plan.recompute if plan.recompute in space.recompute else space.recompute[0],
            zero=plan.zero if plan.zero in space.zero else space.zero[0],
        )
    yield from two_stages(request)
    yield from lean(request)


def lean(request: Request) -> Iterator[Plan]:
    """Pipelines of equal stages with all that saves memory, on each type and on all, roomiest type first."""
    ground, space, fleet = Ground(request), request.space, request.fleet
    rng = np.random.default_rng([request.seed, 5])
    for_all = sorted(fleet.present, key=lambda t: -(fleet.types[t].memory_gib or 0.0))
    together = [] if space.single_type or len(for_all) < 2 else [for_all]
    for members in (*([t] for t in for_all), *together):
        gpus = [t for t in members for _ in range(fleet.counts[t])][: min(request.budget, ground.operators)]
        for p in sorted({min(1 << k, len(gpus)) for k in range(len(gpus).bit_length() + 1)}):
            chosen = [gpus[i * len(gpus) // p] for i in range(p)]
            cuts = [i * ground.operators // p for i in range(p + 1)]
            ways = max((n for n in ground.tensor if all(fleet.counts[t] >= n * chosen.count(t) for t in chosen)),
                       default=1)
            stages = tuple(
                Stage(a, b - 1, fleet.names[t], ways, ways) for (a, b), t in zip(pairwise(cuts), chosen, strict=True)
            )
            for m in (max(space.micro_batches), min(space.micro_batches)):
                plan = Plan(stages, min(m, request.batch_size), schedule=space.schedules[0],
                            recompute=max(space.recompute), zero=max(space.zero))
                yield plan
                yield balance(plan, ground, rng) or plan


def improve(request: Request, begin: Iterable[Plan], evaluations: int | None = None) -> Search:
    """Search from given plans for `request.seconds` of the processor's time, or until so many more plans are judged."""
    search, budget = Search(request, begin), Budget(request, request.seconds, evaluations)
    in_turns([search], budget)
    return search


def in_turns(
    searches: Iterable[Search], budget: Budget, update: Callable[[float], object] | None = None
) -> Ended:
    """Let searches step in turn until the budget is over or each has ended; why, and what was spent.

    Turns do not depend on the budget, so that more of it only adds to what is found.
    """
    going, why = list(searches), ""
    while going and not budget.over:
        for search in list(going):
            if reason := search.ended():
                going.remove(search)
                why = reason
            elif budget.over:
                break
            else:
                search.step()
        if update is not None:
            update(budget.spent_s)
    return budget.end("" if going else why)


def propose(request: Request) -> Iterator[Plan]:
    """All plans of the front of time and cost, then those that are the fastest within their GPU counts."""
    if request.measured:
        yield from data_parallel.propose(request)
        return
    search = improve(request, starts(request))
    yield from (r.plan for r in search.front)
    yield from (r.plan for r in by_counts(list(search.found.values())))
