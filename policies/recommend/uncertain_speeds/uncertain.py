"""Uncertain speeds: what is believed about operator times, and the few profiling runs that are worth their cost.

A profiling run times the model's operators on one GPU of a type, and so corrects what is believed of their times there
(`policies.recommend.uncertain_speeds.belief`).

Each run, two at once, or all that are left at once, has a value: by how much the objective of the plan that would be
chosen is expected to fall, times the iterations of the job, less what it costs: seconds where time is the objective,
USD where cost is. The one with most of it is asked for; where none is worth its cost, the plan of the least mean is
chosen. So one step is looked ahead (the knowledge gradient: Frazier, Powell and Dayanik, SIAM J. Control Optim. 2008).

The value is by Monte Carlo. Every plan is evaluated by the truth under each draw of the belief, and its mean given a
run's result is a regression on the result (Strong, Oakley, Brennan and Breeze, Medical Decision Making 2015), quadratic
in the logarithms of the whole times seen. The regression of one half of the draws chooses for the other half, so that
what chance fits has no value: the estimate is, in the mean, that of a rule which can be followed, and no more than the
best one's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from policies.recommend.request.objective import OBJECTIVES
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Request, by_cost
from policies.recommend.uncertain_speeds.belief import NOISE, Belief
from policies.recommend.uncertain_speeds.profiling import Run, log_ratios, runs_of
from sim.api import Plan
from traces.errors import did_you_mean

FIRST = 32
"""Draws under which plans are told to be beaten; fewer say too little."""
NEAR = 0.95
"""Runs worth this part of the most are as good: about what the estimate can tell."""


def candidates_under(
    request: Request, belief: Belief, propose: Callable[[Request], Iterable[Plan]], draws: int = 8, seed: int = 0
) -> tuple[Plan, ...]:
    """Plans that may turn out best: fronts of a method under the mean of the belief and under some draws of it.

    A front is that of time and cost, and the fastest; of each type by itself the fastest and the cheapest, since a run
    may turn all against the types that now seem best.
    """
    rng = np.random.default_rng([seed, 1])
    plans: dict[Plan, None] = {}
    for e in (None, *belief.draws(draws, rng)):
        there = belief.under(request, e)
        found = there.judged(propose(there))
        alone = [[r for r in found if r.counts[t] == sum(r.counts)] for t in request.fleet.present]
        ends = [r for of in alone for r in (*of[:1], *by_cost(of)[-1:])]
        for r in (*found[:1], *by_cost(found), *ends):
            plans[replace(r.plan, iteration_s=0.0, memory_gib=())] = None
    return tuple(replace(plan, iteration_s=math.nan) for plan in plans)


@dataclass(frozen=True)
class Choice:
    """A plan, and what was spent to choose it.

    Attributes
    ----------
    plan : the one with the least mean.
    expected : mean of its objective an iteration, s or USD.
    expected_regret : mean of what it is worse than the best plan of each draw, as a fraction of the mean of those.
    runs : what was asked for, in order.
    spent_s, spent_usd : on runs; those asked for at once take as long as the longest. Of an unknown price: NaN.
    belief : after the runs.
    stopped : 'nothing is worth its cost', 'all profiled', or 'budget': some runs could not be paid, or have no price.
    """

    plan: Plan
    expected: float
    expected_regret: float
    runs: tuple[Run, ...]
    spent_s: float
    spent_usd: float
    belief: Belief
    stopped: str


@dataclass(frozen=True)
class Advice:
    """What is best by what is known now: a plan, and the runs to make before it is taken.

    Attributes
    ----------
    plan, expected, expected_regret, stopped : as in `Choice`; `stopped` is '' where there are runs to make.
    runs : to make at once; none where none is worth its cost.
    worth : what each open run would bring by itself, less its cost, for the whole job: seconds or USD.
    """

    plan: Plan
    expected: float
    expected_regret: float
    stopped: str
    runs: tuple[Run, ...]
    worth: Mapping[Run, float]


def advise(
    request: Request, candidates: Sequence[Plan], iterations: float, *, objective: str = "time",
    belief: Belief | None = None, runs: Sequence[Run] | None = None, budget_usd: float = math.inf,
    noise: float = NOISE, draws: int = 256,
) -> Advice:
    """The first step of `recommend_with_profiling`, for those who make the runs themselves and come again.

    Parameters and errors are as there; `runs` are those that were not made yet.
    """
    _check(objective, iterations, draws)
    left = list(runs_of(request) if runs is None else runs)
    values = _Values(request, candidates, belief or Belief.prior(request), objective, noise, draws,
                     np.random.default_rng([request.seed, 2]))  # fmt: skip
    best, stopped = values.worthiest(left, iterations, budget_usd)
    worth = {run: values.worth([run], iterations) for run in left}
    return Advice(values.plans[values.chosen], values.expected, values.expected_regret, stopped, best, worth)


def recommend_with_profiling(
    request: Request, candidates: Sequence[Plan], measure: Callable[[Run], Mapping[str, float]], iterations: float, *,
    objective: str = "time", belief: Belief | None = None, runs: Sequence[Run] | None = None,
    budget_usd: float = math.inf, noise: float = NOISE, draws: int = 256,
    propose: Callable[[Request], Iterable[Plan]] | None = None,
) -> Choice:  # fmt: skip
    """Choose a plan, asking for the profiling runs that are worth their cost (module text).

    Parameters
    ----------
    candidates : plans to choose from (`candidates_under`).
    measure : makes a run and answers seconds of a step, forward and backward, by kind of operator; kinds that it could
        not tell are left out.
    iterations : of the job: what a better plan is worth.
    objective : 'time' or 'cost', of the whole job, runs included.
    belief : default: `Belief.prior`.
    runs : those that can be asked for, each once; default: `runs_of`.
    budget_usd : for runs. A run of unknown price is only asked for without a budget, to save time.
    noise : standard deviation of a measured logarithm.
    draws : of the Monte Carlo estimates; the request's seed is theirs.
    propose : a method that is asked again, after runs, under what is then believed.

    Raises
    ------
    RecommendError
        An unknown objective; too few draws, a negative number of iterations; no candidate that fits, or none of known
        price where cost is the objective; a measured time that is none.
    """
    _check(objective, iterations, draws)
    belief = belief or Belief.prior(request)
    left = list(runs_of(request) if runs is None else runs)
    plans, asked = list(candidates), list[Run]()
    spent_s = spent_usd = 0.0
    rng = np.random.default_rng([request.seed, 2])
    while True:
        values = _Values(request, plans, belief, objective, noise, draws, rng)
        best, stopped = values.worthiest(left, iterations, budget_usd - spent_usd)
        if not best:
            plan = values.plans[values.chosen]
            return Choice(
                plan, values.expected, values.expected_regret, tuple(asked), spent_s, spent_usd, belief, stopped
            )
        for run in best:
            belief = belief.given(run.gpu_type, log_ratios(run, measure(run)), noise)
            left.remove(run)
        asked += best
        spent_s, spent_usd = spent_s + max(run.seconds for run in best), spent_usd + sum(run.usd for run in best)
        plans = values.plans
        if propose is not None:
            plans = list(dict.fromkeys((*plans, *candidates_under(request, belief, propose, 0))))


class _Values:
    """Objectives of plans under draws of a belief, and what runs would be worth.

    Attributes
    ----------
    plans : those that fit, have a known objective, and are not beaten by another one under every draw.
    value : float64 [draws, plans], the objective of an iteration.
    chosen : the plan of the least mean.
    """

    def __init__(
        self, request: Request, plans: Sequence[Plan], belief: Belief, objective: str, noise: float, draws: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.belief, self.objective = belief, objective
        self.errors = belief.draws(draws, rng)
        self.seen = self.errors + noise * rng.standard_normal(self.errors.shape)
        # Plans that another one beats under each of the first draws are not looked at under the rest.
        value = self._of(plans, request, self.errors[:FIRST])
        known = np.flatnonzero(np.isfinite(value).all(axis=0))
        if not len(known):
            raise _no_candidate(request, plans)
        kept = known[_undominated(value[:, known])]
        self.plans = [plans[p] for p in kept]
        self.value = np.concatenate([value[:, kept], self._of(self.plans, request, self.errors[FIRST:])])
        self.chosen = int(np.argmin(self.value.mean(axis=0)))
        self.expected = float(self.value[:, self.chosen].mean())
        least = self.value.min(axis=1)
        self.regret = float((self.value[:, self.chosen] - least).mean())
        self.expected_regret = self.regret / float(least.mean())

    def _of(self, plans: Sequence[Plan], request: Request, errors: np.ndarray) -> np.ndarray:
        """Objective of each plan under each of some errors, NaN where it does not fit: float64 [draws, plans]."""
        value = np.full((len(errors), len(plans)), np.nan)
        for d, e in enumerate(errors):
            there = self.belief.under(request, e)
            for p, plan in enumerate(plans):
                if (found := there.truth(plan)) is not None:
                    value[d, p] = found.iteration_s if self.objective == "time" else found.usd_per_iteration
        return value

    def worthiest(self, left: Sequence[Run], iterations: float, budget_usd: float) -> tuple[tuple[Run, ...], str]:
        """The runs to make at once worth most beyond their cost, no more than needed; or none, and why."""
        if not left:
            return (), "all profiled"
        sizes = sorted({1, min(2, len(left)), len(left)})
        sets = [runs for size in sizes for runs in combinations(left, size)]
        open_ = [runs for runs in sets if self._affords(runs, budget_usd)]
        net = [self.worth(runs, iterations) for runs in open_]
        if net and max(net) > 0:
            # Beside another run one more takes no time: of sets worth nearly as much, the fewest.
            near = [(len(runs), -value, i) for i, (runs, value) in enumerate(zip(open_, net, strict=True))
                    if value >= NEAR * max(net)]  # fmt: skip
            return open_[min(near)[2]], ""
        return (), "nothing is worth its cost" if len(open_) == len(sets) else "budget"

    def _affords(self, runs: Sequence[Run], budget_usd: float) -> bool:
        usd = sum(run.usd for run in runs)
        return usd <= budget_usd or (self.objective == "time" and budget_usd == math.inf)

    def worth(self, runs: Sequence[Run], iterations: float) -> float:
        """Expected fall of the job's objective by runs made at once, less their cost: seconds or USD."""
        cost = max(run.seconds for run in runs) if self.objective == "time" else sum(run.usd for run in runs)
        # Not even knowing everything is worth it.
        if not iterations * self.regret > cost:
            return -cost
        whole = [np.log(np.exp(self._seen(run)) @ self._shares(run)) for run in runs]
        return iterations * expected_fall(self.value, np.column_stack(whole)) - cost

    def _seen(self, run: Run) -> np.ndarray:
        return self.seen[:, self.belief.row(run.gpu_type)]

    def _shares(self, run: Run) -> np.ndarray:
        times = np.array([run.modelled_s.get(kind, 0.0) for kind in self.belief.kinds])
        return times / times.sum()


def expected_fall(value: np.ndarray, seen: np.ndarray) -> float:
    """By how much what is chosen falls in the mean if `seen` is known first, less one standard error of the estimate.

    Parameters
    ----------
    value : float64 [draws, plans].
    seen : float64 [draws, d].
    """
    n = len(value)
    x = (seen - seen.mean(axis=0)) / np.maximum(seen.std(axis=0), 1e-12)
    pairs = [x[:, i] * x[:, j] for i in range(x.shape[1]) for j in range(i + 1)]
    features = np.column_stack([np.ones(n), x, *pairs])
    halves = np.arange(n) % 2 == 0
    fall = np.empty(n)
    before = int(np.argmin(value.mean(axis=0)))
    for half in (halves, ~halves):
        coefficients, *_ = np.linalg.lstsq(features[half], value[half], rcond=None)
        after = np.argmin(features[~half] @ coefficients, axis=1)
        rest = value[~half]
        fall[~half] = rest[:, before] - rest[np.arange(len(rest)), after]
    return float(fall.mean() - fall.std() / math.sqrt(n))


def _undominated(value: np.ndarray) -> np.ndarray:
    """Mask [plans] of those that no other one equals or beats under every draw (of equal ones: the first)."""
    order = np.argsort(value.mean(axis=0), kind="stable")
    keep: list[int] = []
    for p in order:
        if not any((value[:, q] <= value[:, p]).all() for q in keep):
            keep.append(int(p))
    return np.isin(np.arange(value.shape[1]), keep)


def _no_candidate(request: Request, plans: Sequence[Plan]) -> RecommendError:
    """Why there is nothing to choose from."""
    if any(request.truth(plan) is not None for plan in plans):
        return RecommendError("no plan has a known cost", got="GPU types without a price",
                              allowed="a price for the GPU types of one plan at least",
                              todo="Add price_usd_per_h to the types, or choose by time.")
    return RecommendError("no candidate fits", where=f"model {request.model!r}, batch {request.batch_size}",
                          got=f"{len(plans)} plans", allowed="one that fits memory and the GPUs there are",
                          todo="Take candidates that a method proposes.")


def _check(objective: str, iterations: float, draws: int) -> None:
    if objective not in OBJECTIVES:
        raise RecommendError("unknown objective", got=objective, allowed=", ".join(OBJECTIVES),
                             todo=did_you_mean(objective, OBJECTIVES))
    if not 0 <= iterations < math.inf:
        raise RecommendError("the iterations of a job are unknown", got=iterations, allowed="a number, 0 or more")
    if draws < FIRST:
        raise RecommendError("too few draws to tell what a run is worth", got=draws, allowed=f"{FIRST} or more")
