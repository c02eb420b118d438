"""Objectives and limits: which of the plans found is the best one.

Least time; least cost; either within a time (a multiple of the best, or seconds) or within a budget (USD an iteration).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation
from traces.errors import did_you_mean

OBJECTIVES = ("time", "cost")


@dataclass(frozen=True)
class Limits:
    """What a plan must keep to. None: no limit.

    Attributes
    ----------
    times_best : iteration time, as a multiple of the fastest plan's; 1 or more.
    time_s : iteration time.
    usd : cost of an iteration. A plan of unknown price keeps to no budget.

    Raises
    ------
    RecommendError
        A limit that nothing could keep to, or that is no number.
    """

    times_best: float | None = None
    time_s: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        if self.times_best is not None and not 1 <= self.times_best < math.inf:
            raise RecommendError("a time bound is a multiple of the best time", got=self.times_best,
                                 allowed="1 or more")
        for what, value in (("time", self.time_s), ("budget", self.usd)):
            if value is not None and not 0 < value < math.inf:
                raise RecommendError(f"an impossible {what}", got=value, allowed="a number above 0")

    def most_s(self, fastest_s: float) -> float:
        """Longest iteration that is allowed where the fastest plan takes so long."""
        relative = math.inf if self.times_best is None else self.times_best * fastest_s
        return min(relative, math.inf if self.time_s is None else self.time_s)

    def absolute(self, fastest_s: float) -> Limits:
        """The same in seconds, where the fastest plan takes so long."""
        most_s = self.most_s(fastest_s)
        return Limits(None, most_s if most_s < math.inf else None, self.usd)

    def keep(self, plans: Iterable[Recommendation]) -> list[Recommendation]:
        """The plans within the limits.

        Raises
        ------
        RecommendError
            There is none; the message names the plan that comes nearest to each limit.
        """
        plans = list(plans)
        most_s = self.most_s(min((r.iteration_s for r in plans), default=math.inf))
        quick = [r for r in plans if r.iteration_s <= most_s]
        # NaN is not below anything: an unknown price is within no budget.
        cheap = plans if self.usd is None else [r for r in plans if r.usd_per_iteration <= self.usd]
        kept = [r for r in quick if r in cheap]
        if plans and not kept:
            raise self._missed(plans, quick, cheap, most_s)
        return kept

    def _missed(
        self, plans: Sequence[Recommendation], quick: Sequence[Recommendation], cheap: Sequence[Recommendation],
        most_s: float,
    ) -> RecommendError:
        """The error that says how near a plan comes."""
        limits = [f"within {most_s:.6g} s"] if most_s < math.inf else []
        if self.usd is not None:
            limits.append(f"at most {self.usd:.6g} USD an iteration")
        near = []
        if quick and self.usd is not None:
            near.append(_cheapest(quick, f" within {most_s:.6g} s" if most_s < math.inf else ""))
        if cheap:
            fastest = min(cheap, key=lambda r: r.iteration_s)
            words = "that the budget allows " if self.usd is not None else ""
            near.append(f"the fastest plan {words}takes {fastest.iteration_s:.6g} s ({on(fastest)})")
        if not near:
            fastest = min(plans, key=lambda r: r.iteration_s)
            near = [f"the fastest plan takes {fastest.iteration_s:.6g} s ({on(fastest)})", _cheapest(plans, "")]
        return RecommendError("no plan is within the limits", got="; ".join(near), allowed=" and ".join(limits))


def _cheapest(plans: Sequence[Recommendation], where: str) -> str:
    priced = [r for r in plans if math.isfinite(r.usd_per_iteration)]
    if not priced:
        return f"no plan{where} has a known cost"
    r = min(priced, key=lambda r: r.usd_per_iteration)
    return f"the cheapest plan{where} costs {r.usd_per_iteration:.6g} USD and takes {r.iteration_s:.6g} s ({on(r)})"


def on(r: Recommendation) -> str:
    """The GPUs of a plan: '4 V100 + 2 T4'."""
    used: dict[str, int] = {}
    for part in r.plan.parts:
        used[part.gpu_type] = used.get(part.gpu_type, 0) + part.gpus
    return " + ".join(f"{n} {name}" for name, n in used.items())


def ranked(
    plans: Iterable[Recommendation], objective: str = "time", within: float | None = None,
    limits: Limits | None = None,
) -> list[Recommendation]:
    """Order plans from best to worst.

    Parameters
    ----------
    objective : 'time' (iteration_s) or 'cost' (usd_per_iteration). Ties go to the other one, then to fewer
        GPUs.
    within : leave out plans slower than `within` x the fastest; None: no bound.
    limits : leave out what is not within them; `within` is one of them in short.

    Raises
    ------
    RecommendError
        Unknown objective; no plan is within the limits; or the cost is asked for and no plan within them has a
        known one: a plan on a GPU type without a price is never the cheapest.
    """
    if objective not in OBJECTIVES:
        raise RecommendError("unknown objective", got=objective, allowed=", ".join(OBJECTIVES),
                             todo=did_you_mean(objective, OBJECTIVES))
    near = (limits or Limits(within)).keep(plans)
    if objective == "time":
        return sorted(near, key=_by_time)
    priced = [r for r in near if math.isfinite(r.usd_per_iteration)]
    if not priced:
        raise RecommendError("no plan has a known cost", got="GPU types without a price",
                             allowed="a price for the GPU types of one plan at least",
                             todo="Give a price to the types, or choose by time.")
    return sorted(priced, key=_by_cost)


def is_better(plan: Recommendation, other: Recommendation, objective: str) -> bool:
    """Whether a plan comes before another one in `ranked`, by more than a rounding; plans of the same values do not."""
    key = _by_time if objective == "time" else _by_cost
    pairs = list(zip(key(plan), key(other), strict=True))
    first = next(((a, b) for a, b in pairs if not math.isclose(a, b, rel_tol=1e-9)), None)
    return first is not None and first[0] < first[1]


def _by_time(plan: Recommendation) -> tuple[float, float, int]:
    return plan.iteration_s, _unknown_last(plan.usd_per_iteration), sum(plan.counts)


def _by_cost(plan: Recommendation) -> tuple[float, float, int]:
    return plan.usd_per_iteration, plan.iteration_s, sum(plan.counts)


def _unknown_last(usd: float) -> float:
    return math.inf if math.isnan(usd) else usd
