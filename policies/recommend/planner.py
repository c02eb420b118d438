"""The planner: for one job, every plan worth having, and the best by an objective."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.recommend.errors import RecommendError
from policies.recommend.layout import counts_of, in_stage_order
from policies.recommend.problem import Problem
from policies.recommend.search import candidates, undominated, whole_gang
from sim.api import ClusterSpec, Plan, Stage
from sim.performance import GpuType, Performance, PerformanceError

OBJECTIVES = ("time", "cost")


@dataclass(frozen=True)
class Recommendation:
    """A plan and what it brings.

    Attributes
    ----------
    plan : stages, micro-batches, time and memory.
    iteration_s : time of an iteration, by the truth, on as few nodes as possible.
    usd_per_iteration : iteration_s / 3600 x sum over types (price x GPUs); NaN where a price is unknown.
    counts : GPUs of each type, in the order of the types asked about.
    """

    plan: Plan
    iteration_s: float
    usd_per_iteration: float
    counts: tuple[int, ...]


class Planner:
    """Recommends plans for jobs on given GPU types; remembers each front that it has worked out.

    Parameters
    ----------
    performance : what is believed about speed and memory.
    types : GPU types, in order.
    counts : GPUs there are of each type.
    node_gpus : GPUs on a node of each type (default 8). GPUs of one type lie together, as few nodes as
    possible.

    Raises
    ------
    RecommendError
        A GPU type of unknown memory (unknown is not 'fits'), or no GPUs at all.
    """

    def __init__(
        self, performance: Performance, types: Sequence[GpuType], counts: Sequence[int],
        node_gpus: Sequence[int] | None = None,
    ) -> None:
        self.performance, self.types = performance, tuple(types)
        self.counts = tuple(int(count) for count in counts)
        self.node_gpus = tuple(int(n) for n in node_gpus) if node_gpus is not None else (8,) * len(self.types)
        if not any(self.counts):
            raise RecommendError("there are no GPUs to plan with", got=self.counts, allowed="at least one")
        for gpu, count in zip(self.types, self.counts, strict=True):
            if count and not 0 < gpu.memory_gib < math.inf:
                raise RecommendError("the memory of a GPU type is unknown", where=f"GPU type {gpu.name!r}",
                                     got=gpu.memory_gib, allowed="its capacity in GiB",
                                     todo="Add memory_gib to its entry, or leave the type out.")
        self._ideal, self._first = self._ideal_cluster()
        self._fronts: dict[tuple[str, int, int, bool], tuple[Recommendation, ...]] = {}

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
        budget = min(int(max_gpus), sum(self.counts))
        if budget < 1 or batch_size < 1:
            raise RecommendError(
                "a plan needs a GPU and a sample at least", where=f"model {model!r}",
                got=f"max_gpus {max_gpus}, batch_size {batch_size}", allowed="1 or more of each",
            )
        key = (model, int(batch_size), budget, single_type)
        if key not in self._fronts:
            self._fronts[key] = self._front(*key)
        return self._fronts[key]

    def best(
        self, model: str, batch_size: int, max_gpus: int, objective: str = "time",
        within: float | None = None, *, single_type: bool = False,
    ) -> Recommendation:
        """The best plan of the front by `ranked`."""
        return ranked(self.front(model, batch_size, max_gpus, single_type=single_type), objective, within)[0]

    def truth(self, model: str, batch_size: int, plan: Plan) -> Recommendation | None:
        """What a plan brings by `Performance.plan` on an empty cluster, or None where it does not fit."""
        gpus = in_stage_order(plan, self._first)
        iteration = self.performance.plan(model, batch_size, plan, gpus, self._ideal)
        if not iteration.fits:
            return None
        counts = counts_of(plan, tuple(gpu.name for gpu in self.types))
        usd_per_h = sum(gpu.price_or_nan * n for gpu, n in zip(self.types, counts, strict=True) if n)
        plan = replace(plan, iteration_s=iteration.iteration_s, memory_gib=iteration.memory_gib)
        return Recommendation(plan, iteration.iteration_s, iteration.iteration_s / 3600 * usd_per_h, counts)

    def _problem(self, model: str, batch_size: int, budget: int, members: Sequence[int]) -> Problem:
        """The partition problem on some of the types."""
        counts = tuple(self.counts[t] for t in members)
        return Problem(self.performance, model, batch_size, tuple(self.types[t] for t in members), counts,
                       tuple(self.node_gpus[t] for t in members), min(budget, sum(counts)))

    def _front(
        self, model: str, batch_size: int, budget: int, single_type: bool
    ) -> tuple[Recommendation, ...]:
        """Each type by itself and, unless `single_type`, all together; by the truth; none dominated."""
        present = [t for t, count in enumerate(self.counts) if count]
        plans: list[Plan] = []
        if self.performance.table is not None and model in self.performance.table.job_types:
            found = self._measured(model, batch_size, budget, present)
        elif single_type:
            for t in present:
                problem = self._problem(model, batch_size, budget, [t])
                plans += [*candidates(problem), *whole_gang(problem)]
            found = self._fitting(model, batch_size, plans)
        else:
            found = list(self._single_or_none(model, batch_size, budget))
            if len(present) > 1 and budget > 1:
                plans = candidates(self._problem(model, batch_size, budget, present))
                found += self._fitting(model, batch_size, plans)
        if not found:
            raise self._nothing_fits(model, batch_size, budget, present)
        found.sort(key=lambda r: (r.iteration_s, sum(r.counts), r.counts, len(r.plan.stages)))
        keep = undominated(np.array([r.counts for r in found]), np.array([r.iteration_s for r in found]))
        return tuple(r for r, kept in zip(found, keep, strict=True) if kept)

    def _fitting(self, model: str, batch_size: int, plans: Iterable[Plan]) -> list[Recommendation]:
        return [r for r in (self.truth(model, batch_size, plan) for plan in plans) if r is not None]

    def _measured(
        self, model: str, batch_size: int, budget: int, present: Sequence[int]
    ) -> list[Recommendation]:
        """A model known by measured rates has no stages: data parallelism, where it was measured."""
        found = []
        for t in present:
            most = min(budget, self.counts[t])
            for gpus in sorted({1 << k for k in range(most.bit_length())} | {most}):
                try:
                    answer = self.truth(model, batch_size, Plan((Stage(0, 0, self.types[t].name, gpus),)))
                except PerformanceError:
                    continue
                found += [answer] if answer is not None else []
        if not found:
            raise RecommendError(
                "no measured rate fits", where=f"model {model!r}, up to {budget} GPUs",
                got=", ".join(self.types[t].name for t in present),
                allowed="a GPU type and count in the table",
            )
        return found

    def _single_or_none(self, model: str, batch_size: int, budget: int) -> tuple[Recommendation, ...]:
        """The plans on one type, none where none fits (a mixture still may)."""
        try:
            return self.front(model, batch_size, budget, single_type=True)
        except RecommendError:
            return ()

    def _nothing_fits(
        self, model: str, batch_size: int, budget: int, present: Sequence[int]
    ) -> RecommendError:
        """The error that names the GPU type which comes nearest."""
        needs = [(*self._problem(model, batch_size, budget, [t]).least_memory_gib(), t) for t in present]
        need, stages, t = min(needs, key=lambda n: n[0] - self.types[n[2]].memory_gib)
        gpu = self.types[t]
        return RecommendError(
            "the model fits no plan", where=f"model {model!r}, batch {batch_size}, up to {budget} GPUs",
            got=f"{need:.2f} GiB needed on a GPU of {gpu.name} (cut into {stages} stages at best)",
            allowed=f"{gpu.memory_gib:g} GiB there",
            todo="Allow more GPUs or types with more memory, or a smaller batch.",
        )

    def _ideal_cluster(self) -> tuple[ClusterSpec, dict[str, np.ndarray]]:
        """An empty cluster of full nodes, and the GPUs of each type in it."""
        types: list[GpuType] = []
        node_type: list[int] = []
        node_gpus: list[int] = []
        for gpu, count, size in zip(self.types, self.counts, self.node_gpus, strict=True):
            if count:
                full, rest = divmod(count, size)
                node_type += [len(types)] * (full + (rest > 0))
                node_gpus += [size] * full + [rest] * (rest > 0)
                types.append(gpu)
        spec = ClusterSpec.build("ideal", types, node_type, node_gpus, links=self.performance.links)
        gpu_type = spec.gpu_type
        return spec, {gpu.name: np.flatnonzero(gpu_type == t).astype(np.int32) for t, gpu in enumerate(types)}


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
