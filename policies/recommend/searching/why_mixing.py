"""Why mixing GPU types pays: what the best plan saves, split into parts that add up to it.

Four planners answer the same question, by the same objective and limits, each judged by the truth. V is the time of an
iteration, or what it costs, of

    V_one     the best plan on one GPU type, of which there are n GPUs;
    V_swap    the best of that and of the plans of a planner that is blind to operators (`blind`), on at most n GPUs;
    V_blind   the same on any number of GPUs;
    V_aware   the best of these and of all plans that were found.

Each may do whatever the one before it may, so V_one >= V_swap >= V_blind >= V_aware, and

    saved      (V_one - V_aware) / V_one  =  exchanged + added + operators
    exchanged  (V_one - V_swap) / V_one     some GPUs are of another type, and there are no more than there are of the
                                            one type. By time that is scarcity: faster ones of which there are fewer
                                            than the plan needs. By cost it is price: cheaper ones do a part.
    added      (V_swap - V_blind) / V_one   capacity: more GPUs than there are of the one type.
    operators  (V_blind - V_aware) / V_one  affinity: operators are where they run well.

A lower bound V_low of all plans says how much any plan at all might save, (V_one - V_low) / V_one. It knows no limits.

The parts hang on what was found. The blind planner has a part of the search, but begins with the structure of what the
others found, so that little of `operators` is due to its shorter search: docs/recommender.md has how little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from policies.recommend.request.objective import Limits, ranked
from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.bounds import Bound


@dataclass(frozen=True)
class Split:
    """What a plan saves against the best on one type, as parts of the latter's time or cost; see the module.

    Attributes
    ----------
    saved : exchanged + added + operators, all 0 or more.
    possible : what no plan at all exceeds; NaN where nothing is known.
    one_type_gpus : GPUs that there are of the one type, within the budget.
    swapped, blind : the plans of V_swap and V_blind.
    """

    saved: float
    exchanged: float
    added: float
    operators: float
    possible: float
    one_type_gpus: int
    swapped: Recommendation
    blind: Recommendation


def value(r: Recommendation, objective: str) -> float:
    """Seconds or USD of an iteration."""
    return r.iteration_s if objective == "time" else r.usd_per_iteration


def split(
    request: Request, found: Sequence[Recommendation], blind: Sequence[Recommendation], objective: str = "time",
    limits: Limits | None = None, bound: Bound | None = None,
) -> Split | None:
    """The parts (see the module); None: no plan on one type is within the limits, or it is free.

    Parameters
    ----------
    found : all plans that were found, those on one type among them.
    blind : the plans of `blind_plans`.
    limits : absolute ones (`Limits.absolute`).

    Raises
    ------
    RecommendError
        An unknown objective, or one of cost where no plan has a known one.
    """
    limits = limits or Limits()
    names = request.fleet.names
    single = [r for r in found if sum(n > 0 for n in r.counts) == 1]
    if not _within(single, limits):
        return None
    one = ranked(single, objective, limits=limits)[0]
    its_type = names.index(one.plan.parts[0].gpu_type)
    most = min(request.fleet.counts[its_type], request.budget)
    few = [r for r in blind if sum(r.counts) <= most]
    swapped, best_blind, best = (
        ranked(plans, objective, limits=limits)[0]
        for plans in ([one, *few], [one, *blind], [one, *blind, *found])
    )  # fmt: skip
    whole = value(one, objective)
    if whole <= 0:
        return None
    at = [whole, *(value(r, objective) for r in (swapped, best_blind, best))]
    exchanged, added, operators = ((a - b) / whole for a, b in pairwise(at))
    least = math.nan if bound is None else bound.iteration_s if objective == "time" else bound.usd_per_iteration
    possible = 1 - least / whole if 0 < least < math.inf else math.nan
    return Split((whole - at[-1]) / whole, exchanged, added, operators, possible, most, swapped, best_blind)


def _within(plans: Sequence[Recommendation], limits: Limits) -> bool:
    """Whether any plan keeps to absolute limits."""
    time_s, usd = (math.inf if most is None else most for most in (limits.time_s, limits.usd))
    return any(r.iteration_s <= time_s and (limits.usd is None or r.usd_per_iteration <= usd) for r in plans)
