"""Ask several methods for plans of one request; then search from the best that they found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from policies.recommend.methods import chain, method
from policies.recommend.methods.search import Search, in_turns, lean, starts
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.budget import Budget, Ended
from policies.recommend.searching.nofit import leanest
from policies.recommend.searching.sharding import with_shards
from policies.recommend.searching.two_stages import two_stages
from sim.api import Plan

METHODS = ("exact", "uneven", "pipedream", "gpipe", "piper", "search")
"""Methods for any size: `search` begins where the others end."""
FROM_CHAIN = 200
"""Plans of the long chain, those nearest to its front, that the search takes from its budget before it goes on."""


def usual_methods(request: Request) -> tuple[str, ...]:
    """Methods where nobody says, by the size and shape of what is asked.

    A model of one operator has nothing to cut, so that the planners of pipelines are left out. `chain` is among them
    where the vectors of GPU counts fit a table.
    """
    if request.measured:
        return ("data-parallel",)
    if len(request.performance.graph(request.model)) == 1:
        return ("exact", "uneven", "search")
    return (*METHODS[:-1], *["chain"] * chain.serves(request), "search")


def gather(
    request: Request, methods: Sequence[str] = METHODS, evaluations: int | None = None,
    update: Callable[[int, int], None] | None = None,
) -> list[Recommendation]:
    """The fastest plan that the methods find for each vector of GPU counts, fastest first; empty where nothing fits.

    `search` comes last and improves what the others found: in turn with one GPU type a plan, so that these are as well
    searched as all others, and with any. So the best plan is never worse than the best on one type, whichever was found
    by which method, nor than that of fewer evaluations.

    Where there is a search, the plans of `chain` are a part of it: they are judged first, on its budget.

    Parameters
    ----------
    request : `seconds` is for `search`, if it is among the methods.
    evaluations : plans that `search` may judge, instead of seconds: the same answer each time.
    update : called with (done, of how many) now and then.

    Raises
    ------
    RecommendError
        An unknown method.
    """
    return gathered(request, methods, evaluations, update)[0]


def gathered(
    request: Request, methods: Sequence[str] = METHODS, evaluations: int | None = None,
    update: Callable[[int, int], None] | None = None,
) -> tuple[list[Recommendation], Ended | None]:
    """The same, and how the search ended; None: there was none."""
    modules = {name: method(name) for name in dict.fromkeys(methods)}
    if request.measured:
        plans = request.judged(method(name := "data-parallel").propose(request))
        return _by_counts(_named(request, name, plans)), None
    ground, searching, update = Ground(request), "search" in modules, update or _silent
    # What takes long itself is a part of the search, where there is one.
    later = {"search", "chain"} if searching else set()
    before = len(modules.keys() - later)
    total = before + searching * math.ceil(request.seconds)
    found: list[Recommendation] = []
    for done, name in enumerate(name for name in modules if name not in later):
        update(done, total)
        found += _named(request, name, request.judged(proposed(request, name, ground)))
    if not found and (near := leanest(request)) is not None:
        found = _named(request, "least memory", request.judged([near.plan]))
    ended = None
    if searching:
        begin = [r.plan for r in _by_counts(found)]
        searches = _searches(request, begin)
        budget = Budget(request, request.seconds, evaluations)
        if "chain" in modules:
            from_chain = _named(request, "chain", _within(budget, request, proposed(request, "chain", ground)))
            found += from_chain
            for search in searches:
                search.adopt(from_chain)
        ended = in_turns(searches, budget, partial(_passed, update, before, total))
        found += _named(request, "search", [r for search in searches for r in search.found.values()])
    update(total, total)
    return _by_counts(found), ended


def _within(budget: Budget, request: Request, plans: Iterator[Plan]) -> list[Recommendation]:
    """The truth of the first plans, as far as the budget goes."""
    found: list[Recommendation] = []
    for _ in range(FROM_CHAIN):
        if budget.over or (plan := next(plans, None)) is None:
            break
        if (r := request.truth(plan)) is not None:
            found.append(r)
    return found


def _named(request: Request, name: str, found: list[Recommendation]) -> list[Recommendation]:
    """What was found, each with the method that found it kept, unless another one did before."""
    for r in found:
        request.found_by.setdefault(r.plan, name)
    return found


def proposed(request: Request, name: str, ground: Ground | None = None) -> Iterator[Plan]:
    """The plans of one method that the request's space and GPUs allow."""
    ground = ground or Ground(request)
    for as_wanted in with_shards((_in_space(plan, request) for plan in method(name).propose(request)), ground):
        if _allowed(as_wanted, ground):
            yield as_wanted


def _allowed(plan: Plan, ground: Ground) -> bool:
    """Whether the space has such a plan. Not every method asks whether it may mix types or order operators anew."""
    mixes = any(stage.parts for stage in plan.stages)
    return (ground.space.mixed or not mixes) and (ground.space.orders or not plan.order) and ground.allows(plan)


def _silent(done: int, total: int) -> None:
    pass


def _passed(update: Callable[[int, int], None], before: int, total: int, seconds: float) -> None:
    update(min(before + int(seconds), total), total)


def _in_space(plan: Plan, request: Request) -> Plan:
    """The plan as the space wants it where its method left that open."""
    space = request.space
    return replace(
        plan, recompute=plan.recompute if plan.recompute in space.recompute else space.recompute[0],
        zero=plan.zero if plan.zero in space.zero else space.zero[0],
        schedule=plan.schedule if plan.schedule in space.schedules else space.schedules[0],
    )


def _searches(request: Request, begin: Sequence[Plan]) -> list[Search]:
    """The searches that take turns: of plans on one type, whose finds the other one hears of, and of all."""

    def beginning(part: Request) -> Iterator[Plan]:
        yield from begin
        if begin:
            yield from two_stages(part)
            yield from lean(part)
        else:
            yield from starts(part)

    if request.space.single_type or len(request.fleet.present) < 2:
        return [Search(request, beginning(request))]
    # A copy shares what was judged.
    alone = replace(request, space=replace(request.space, single_type=True))
    one_type = Search(alone, beginning(alone))
    anything = Search(request, [*(r.plan for r in one_type.found.values()), *beginning(request)])
    one_type.tell = anything.keep
    return [one_type, anything]


def _by_counts(found: Sequence[Recommendation]) -> list[Recommendation]:
    """The fastest of each vector of GPU counts, fastest first."""
    best: dict[tuple[int, ...], Recommendation] = {}
    for r in sorted(found, key=lambda r: (r.iteration_s, len(r.plan.stages))):
        best.setdefault(r.counts, r)
    return list(best.values())
