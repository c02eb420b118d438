"""Ask several methods for plans of one request; then search from the best that they found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from policies.recommend.methods import method
from policies.recommend.methods.search import CHECKED, Search, lean, starts
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.nofit import leanest
from sim.api import Plan

METHODS = ("exact", "uneven", "pipedream", "gpipe", "piper", "search")
"""Methods where nobody says: `search` begins where the others end."""


def gather(
    request: Request, methods: Sequence[str] = METHODS, evaluations: int | None = None,
    update: Callable[[int, int], None] | None = None,
) -> list[Recommendation]:
    """The fastest plan that the methods find for each vector of GPU counts, fastest first; empty where nothing fits.

    `search` comes last and improves what the others found: first for half of the time with one GPU type a plan, so
    that these are as well searched as all others, then with any. So the best plan is never worse than the best on one
    type, whichever was found by which method.

    Parameters
    ----------
    request : `seconds` is for `search`, if it is among the methods; with one GPU type it has all of them for it.
    evaluations : plans that `search` may judge, instead of seconds: the same answer each time.
    update : called with (done, of how many) now and then.

    Raises
    ------
    RecommendError
        An unknown method.
    """
    modules = {name: method(name) for name in dict.fromkeys(methods)}
    if request.measured:
        return _by_counts(_named(request, name := "data-parallel", request.judged(method(name).propose(request))))
    ground, searching, update = Ground(request), "search" in modules, update or _silent
    total = len(modules) - searching + searching * math.ceil(request.seconds)
    found: list[Recommendation] = []
    for done, name in enumerate(name for name in modules if name != "search"):
        update(done, total)
        found += _named(request, name, request.judged(proposed(request, name, ground)))
    if not found and (near := leanest(request)) is not None:
        found = _named(request, "least memory", request.judged([near.plan]))
    if searching:
        begin = [*(r.plan for r in _by_counts(found)), *(lean(request) if found else starts(request))]
        base = total - math.ceil(request.seconds)
        for part, share in _parts(request):
            seconds = request.seconds * share
            most = None if evaluations is None else math.ceil(evaluations * share)
            search = _search(part, begin, seconds, most, partial(_passed, update, base, total))
            base += int(seconds)
            found += _named(request, "search", list(search.found.values()))
            begin = [r.plan for r in _by_counts(found)]
    update(total, total)
    return _by_counts(found)


def _named(request: Request, name: str, found: list[Recommendation]) -> list[Recommendation]:
    """What was found, each with the method that found it kept, unless another one did before."""
    for r in found:
        request.found_by.setdefault(r.plan, name)
    return found


def proposed(request: Request, name: str, ground: Ground | None = None) -> Iterator[Plan]:
    """The plans of one method that the request's space and GPUs allow."""
    ground = ground or Ground(request)
    for plan in method(name).propose(request):
        as_wanted = _in_space(plan, request)
        if _allowed(as_wanted, ground):
            yield as_wanted


def _allowed(plan: Plan, ground: Ground) -> bool:
    """Whether the space has such a plan. Not every method asks whether it may mix types or order operators anew."""
    mixes = any(stage.parts for stage in plan.stages)
    return (ground.space.mixed or not mixes) and (ground.space.orders or not plan.order) and ground.allows(plan)


def _silent(done: int, total: int) -> None:
    pass


def _passed(update: Callable[[int, int], None], base: int, total: int, seconds: float) -> None:
    update(base + int(seconds), total)


def _in_space(plan: Plan, request: Request) -> Plan:
    """The plan as the space wants it where its method left that open."""
    space = request.space
    return replace(
        plan, recompute=plan.recompute if plan.recompute in space.recompute else space.recompute[0],
        zero=plan.zero if plan.zero in space.zero else space.zero[0],
        schedule=plan.schedule if plan.schedule in space.schedules else space.schedules[0],
    )


def _parts(request: Request) -> list[tuple[Request, float]]:
    """What is searched one after the other, each with its share of the time."""
    if request.space.single_type or len(request.fleet.present) < 2:
        return [(request, 1.0)]
    # A copy shares what was judged.
    return [(replace(request, space=replace(request.space, single_type=True)), 0.5), (request, 0.5)]


def _search(
    request: Request, begin: Sequence[Plan], seconds: float, evaluations: int | None, update: Callable[[float], None]
) -> Search:
    """The search, until the time or the evaluations are over, a bound is reached, or nothing new is near."""
    began, search, bound = time.perf_counter(), Search(request, begin), lower_bound(request)
    most = math.inf if evaluations is None else request.evaluations + evaluations
    while not search.exhausted and request.evaluations < most:
        passed_s = time.perf_counter() - began
        if evaluations is None and passed_s >= seconds:
            break
        if search.steps % CHECKED == 0:
            update(min(passed_s, seconds))
            if bound.reached_by(list(search.found.values())):
                break
        search.step()
    return search


def _by_counts(found: Sequence[Recommendation]) -> list[Recommendation]:
    """The fastest of each vector of GPU counts, fastest first."""
    best: dict[tuple[int, ...], Recommendation] = {}
    for r in sorted(found, key=lambda r: (r.iteration_s, len(r.plan.stages))):
        best.setdefault(r.counts, r)
    return list(best.values())
