"""The planner: for one job, every plan worth having, and the best by an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policies.recommend.methods import method
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.objective import ranked
from policies.recommend.request.request import Recommendation, Request, Space
from policies.recommend.searching.kept_fronts import kept_name, read_front, write_front
from policies.recommend.searching.nofit import leanest, nothing_fits
from sim.performance import GpuType, Performance


class Planner:
    """Recommends plans for jobs on given GPU types; remembers each front that it has worked out.

    Parameters
    ----------
    performance : what is believed about speed and memory.
    types, counts, node_gpus : the fleet (`Fleet`).
    methods : what proposes plans; models known by measured rates only are always data-parallel.
    space : what plans may do; `single_type` is asked for with each front.
    keep : fronts are kept on disk, for other processes (`kept_fronts`).

    Raises
    ------
    RecommendError
        As `Fleet` does.
    """

    def __init__(
        self, performance: Performance, types: Sequence[GpuType], counts: Sequence[int],
        node_gpus: Sequence[int] | None = None, *, methods: Sequence[str] = ("exact",), space: Space | None = None,
        keep: bool = False,
    ) -> None:
        self.performance, self.space = performance, space or Space()
        self.fleet = Fleet(performance, types, counts, node_gpus)
        self._names, self._methods, self._keep = tuple(methods), [method(name) for name in methods], keep
        self._shared: dict[tuple, Any] = {}
        self._fronts: dict[tuple[str, int, int, bool], tuple[Recommendation, ...]] = {}

    def request(self, model: str, batch_size: int, max_gpus: int, *, single_type: bool = False) -> Request:
        """The request for one job on the whole fleet."""
        space = replace(self.space, single_type=single_type or self.space.single_type)
        return Request(self.performance, model, batch_size, self.fleet, max_gpus, space, _shared=self._shared)

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
            self._fronts[key] = self._kept(request) if self._keep else self._front(request)
        return self._fronts[key]

    def best(
        self, model: str, batch_size: int, max_gpus: int, objective: str = "time",
        within: float | None = None, *, single_type: bool = False,
    ) -> Recommendation:
        """The best plan of the front by `ranked`."""
        return ranked(self.front(model, batch_size, max_gpus, single_type=single_type), objective, within)[0]

    def _kept(self, request: Request) -> tuple[Recommendation, ...]:
        """The front as it was kept, or worked out and kept. That nothing fits is not: it is said anew each time."""
        name = kept_name(request, self._names)
        front = read_front(name) if name else None
        if front is None:
            front = self._front(request)
            if name:
                write_front(name, front)
        return front

    def _front(self, request: Request) -> tuple[Recommendation, ...]:
        methods = [method("data-parallel")] if request.measured else self._methods
        front = request.front(plan for one in methods for plan in one.propose(request))
        if not front and not request.measured and (near := leanest(request)) is not None:
            front = request.front([near.plan])
        if not front:
            raise nothing_fits(request)
        return front
