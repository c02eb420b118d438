"""The planner: for one job, every plan worth having, and the best by an objective."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from policies.recommend.errors import RecommendError
from policies.recommend.fleet import Fleet
from policies.recommend.methods import method
from policies.recommend.methods.exact import problem
from policies.recommend.request import Recommendation, Request, Space, by_counts
from sim.performance import GpuType, Performance

OBJECTIVES = ("time", "cost")


class Planner:
    """Recommends plans for jobs on given GPU types; remembers each front that it has worked out.

    Parameters
    ----------
    performance : what is believed about speed and memory.
    types, counts, node_gpus : the fleet (`Fleet`).
    methods : what proposes plans; models known by measured rates only are always data-parallel.
    space : what plans may do; `single_type` is asked for with each front.

    Raises
    ------
    RecommendError
        As `Fleet` does.
    """

    def __init__(
        self, performance: Performance, types: Sequence[GpuType], counts: Sequence[int],
        node_gpus: Sequence[int] | None = None, *, methods: Sequence[str] = ("exact",), space: Space | None = None,
    ) -> None:
        self.performance, self.space = performance, space or Space()
        self.fleet = Fleet(performance, types, counts, node_gpus)
        self._methods = [method(name) for name in methods]
        self._fronts: dict[tuple[str, int, int, bool], tuple[Recommendation, ...]] = {}

    def request(self, model: str, batch_size: int, max_gpus: int, *, single_type: bool = False) -> Request:
        """The request for one job on the whole fleet."""
        space = replace(self.space, single_type=single_type or self.space.single_type)
        return Request(self.performance, model, batch_size, self.fleet, max_gpus, space)

    def front(
        self, model: str, batch_size: int, max_gpus: int, *, single_type: bool = False
    ) -> tuple[Recommendation, ...]:
        """Plans on at most `max_gpus` GPUs, fastest first, without those that another one equals or beats.

        A plan beats another one that is not faster and uses no fewer GPUs of any type.

        The cheapest plan, and the cheapest within any time, are among them. Without `single_type` the plans
        of each type by itself are part of the search, so that the best is never worse than with it.

        Raises
        ------
        RecommendError
            Nothing fits: names the GPU type that comes nearest, the memory needed and what it has.
        """
        request = self.request(model, batch_size, max_gpus, single_type=single_type)
        key = (model, int(batch_size), request.budget, single_type)
        if key not in self._fronts:
            self._fronts[key] = self._front(request)
        return self._fronts[key]

    def best(
        self, model: str, batch_size: int, max_gpus: int, objective: str = "time",
        within: float | None = None, *, single_type: bool = False,
    ) -> Recommendation:
        """The best plan of the front by `ranked`."""
        return ranked(self.front(model, batch_size, max_gpus, single_type=single_type), objective, within)[0]

    def _front(self, request: Request) -> tuple[Recommendation, ...]:
        methods = [method("data-parallel")] if request.measured else self._methods
        front = by_counts(request.judged(plan for one in methods for plan in one.propose(request)))
        if not front:
            raise nothing_fits(request)
        return front


def nothing_fits(request: Request) -> RecommendError:
    """The error that says why no plan runs: the GPU type that comes nearest, the memory it needs and has."""
    fleet, where = request.fleet, f"model {request.model!r}, batch {request.batch_size}, up to {request.budget} GPUs"
    if request.measured:
        return RecommendError("no measured rate fits", where=where, allowed="a GPU type and count in the table",
                              got=", ".join(fleet.names[t] for t in fleet.present))
    needs = [(*problem(request, [t]).least_memory_gib(), t) for t in fleet.present]
    need, stages, t = min(needs, key=lambda n: n[0] - fleet.types[n[2]].memory_gib)
    gpu = fleet.types[t]
    return RecommendError(
        "the model fits no plan", where=where,
        got=f"{need:.2f} GiB needed on a GPU of {gpu.name} (cut into {stages} stages at best)",
        allowed=f"{gpu.memory_gib:g} GiB there",
        todo="Allow more GPUs or types with more memory, or a smaller batch.",
    )


def ranked(
    plans: Iterable[Recommendation], objective: str = "time", within: float | None = None
) -> list[Recommendation]:
    """Order plans from best to worst.

    Parameters
    ----------
    objective : 'time' (iteration_s) or 'cost' (usd_per_iteration). Ties go to the other one, then to fewer
    GPUs.
    within : leave out plans slower than `within` x the fastest; None: no bound.

    Raises
    ------
    RecommendError
        Unknown objective; or the cost is asked for and no plan (within the bound) has a known one: a plan
        on a GPU type without a price is never the cheapest.
    """
    if objective not in OBJECTIVES:
        raise RecommendError("unknown objective", got=objective, allowed=", ".join(OBJECTIVES))
    if within is not None and not within >= 1:
        raise RecommendError("a time bound is a multiple of the best time", got=within, allowed="1 or more")
    plans = list(plans)
    fastest = min(r.iteration_s for r in plans)
    near = [r for r in plans if within is None or r.iteration_s <= within * fastest]
    if objective == "time":
        return sorted(near, key=lambda r: (r.iteration_s, _unknown_last(r.usd_per_iteration), sum(r.counts)))
    priced = [r for r in near if not math.isnan(r.usd_per_iteration)]
    if not priced:
        raise RecommendError("no plan has a known cost", got="GPU types without a price",
                             allowed="a price for the GPU types of one plan at least",
                             todo="Add price_usd_per_h to the types, or choose by time.")
    return sorted(priced, key=lambda r: (r.usd_per_iteration, r.iteration_s, sum(r.counts)))


def _unknown_last(usd: float) -> float:
    return math.inf if math.isnan(usd) else usd
