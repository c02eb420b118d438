"""What is asked of the recommender, and how any answer is judged: one job, the GPUs there are, what plans may do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np

from policies.recommend.request.fleet import Fleet, whole
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.stage_gpus import counts_of
from policies.recommend.request.whole_samples import in_whole_samples
from sim.api import Plan
from sim.kernels.dominance import first_of_fronts
from sim.performance import Performance, PerformanceError
from sim.performance.layer_times import NotMeasuredError
from sim.performance.plans_at_once import PlansAtOnce

T = TypeVar("T")
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
FEW_PLANS = 8
"""Fewer are judged one by one."""
PLANNED = ("", "1f1b", "gpipe", "async")
"""Schedules; '' is that of the performance model."""


@dataclass(frozen=True)
class Space:
    """What a plan may do beside cutting the model and taking GPUs. A method may use less of it, never more.

    Attributes
    ----------
    micro_batches : how many an iteration may have.
    schedules : of the pipeline; '': that of the performance model.
    tensor : GPUs that may share each operator of a replica (tensor parallelism).
    recompute : whether activations may be, or must be, recomputed.
    zero : stages of ZeRO.
    mixed : several GPU types in one stage, with an uneven split of the batch.
    orders : stages that are consecutive in another topological order than the graph's.
    single_type : one GPU type for the whole job.
    sharded : whether stages may, or must, divide tables and experts among their replicas, where they have such.
    """

    micro_batches: tuple[int, ...] = MICRO_BATCHES
    schedules: tuple[str, ...] = ("",)
    tensor: tuple[int, ...] = (1,)
    recompute: tuple[bool, ...] = (False,)
    zero: tuple[int, ...] = (0,)
    mixed: bool = False
    orders: bool = False
    single_type: bool = False
    sharded: tuple[bool, ...] = (False,)

    def __post_init__(self) -> None:
        whole("micro-batches", self.micro_batches, 1)
        whole("GPUs of tensor parallelism", self.tensor, 1)
        whole("stages of ZeRO", self.zero, 0, 3)
        for name in ("micro_batches", "schedules", "tensor", "recompute", "zero", "sharded"):
            if not getattr(self, name):
                raise RecommendError("a space without plans", where=name, got="()", allowed="one choice at least")
        if strange := set(self.schedules) - set(PLANNED):
            raise RecommendError("a schedule that is not planned for", got=", ".join(map(str, strange)),
                                 allowed=", ".join(PLANNED[1:]))


@dataclass(frozen=True)
class Recommendation:
    """A plan and what it brings.

    Attributes
    ----------
    plan : stages, micro-batches, time and memory.
    iteration_s : time of an iteration, by the truth, on as few nodes as possible.
    usd_per_iteration : iteration_s / 3600 x sum over types (price x GPUs paid for); NaN where a price is unknown.
    counts : GPUs of each type, in the order of the types asked about.
    """

    plan: Plan
    iteration_s: float
    usd_per_iteration: float
    counts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Request:
    """One job on a fleet.

    Parameters
    ----------
    performance : what is believed about speed and memory.
    model, batch_size : the job: a model that `performance` knows, samples an iteration.
    fleet : the GPUs there are.
    max_gpus : GPUs that a plan may use in all.
    space : what plans may do.
    seed : of methods that draw random numbers.
    seconds : of the processor, for methods that improve as long as they may.

    Raises
    ------
    RecommendError
        No GPU or sample to plan with.
    PerformanceError
        An unknown model.
    """

    performance: Performance
    model: str
    batch_size: int
    fleet: Fleet
    max_gpus: int
    space: Space = field(default_factory=Space)
    seed: int = 0
    seconds: float = 10.0
    found_by: dict[Plan, str] = field(default_factory=dict, repr=False)
    """The method that proposed a plan first, where anybody kept that; copies of a request share it."""
    _judged: dict[Plan, Recommendation | None] = field(default_factory=dict, repr=False)
    _shared: dict[tuple, Any] = field(default_factory=dict, repr=False)
    """Of `once`; a planner gives all its requests the same."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            raise RecommendError("a model is named by text", got=self.model)
        self.performance.resolve(self.model)
        whole("GPUs of a plan", [self.max_gpus], 0)
        whole("seed", [self.seed], 0, 2**63 - 1)
        for what, value in (("batch size", self.batch_size), ("search time", self.seconds)):
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < math.inf:
                raise RecommendError(f"impossible {what}", got=value, allowed="a number from 0")
        if self.budget < 1 or self.batch_size < 1:
            raise RecommendError(
                "a plan needs a GPU and a sample at least", where=f"model {self.model!r}",
                got=f"max_gpus {self.max_gpus}, batch_size {self.batch_size}", allowed="1 or more of each",
            )

    @cached_property
    def budget(self) -> int:
        """GPUs that a plan may use and that are there."""
        return min(int(self.max_gpus), sum(self.fleet.counts))

    @property
    def measured(self) -> bool:
        """Whether the model is known by measured rates only: it has no operators, so no stages."""
        return self.performance.undivided(self.model)

    def _key(self, what: tuple) -> tuple:
        return (self.performance, self.fleet, self.model, self.batch_size, *what)

    def has(self, what: tuple) -> bool:
        """Whether `once` has worked it out."""
        return self._key(what) in self._shared

    def once(self, what: tuple, make: Callable[[], T]) -> T:
        """What `make` gives, worked out once for all requests for the same job on the same fleet that share it.

        Parameters
        ----------
        what : all else that it depends on.
        """
        key = self._key(what)
        if key not in self._shared:
            self._shared[key] = make()
        return cast(T, self._shared[key])

    def truth(self, plan: Plan) -> Recommendation | None:
        """What a plan brings by `Performance.plan` on the empty fleet, or None: it does not fit, needs more GPUs, or
        was not measured.

        Its parts take whole samples (`in_whole_samples`). Answers are remembered. A predicted time or memory in the
        plan is not read.
        """
        plan = replace(in_whole_samples(plan, self.batch_size), iteration_s=math.nan, memory_gib=())
        # A NaN equals nothing, not even as a part of a key.
        key = replace(plan, iteration_s=0.0)
        if key not in self._judged:
            self._judged[key] = self._judge(plan)
        return self._judged[key]

    @property
    def evaluations(self) -> int:
        """Plans that the truth was asked for."""
        return len(self._judged)

    def _judge(self, plan: Plan) -> Recommendation | None:
        counts = counts_of(plan, self.fleet.names)
        if strange := {part.gpu_type for part in plan.parts} - set(self.fleet.names):
            raise RecommendError("a plan uses a GPU type that was not asked about", got=", ".join(sorted(strange)),
                                 allowed=", ".join(self.fleet.names))
        if not self._there(counts):
            return None
        gpus = self.fleet.gpus(plan)
        try:
            iteration = self.performance.plan(self.model, self.batch_size, plan, gpus, self.fleet.spec)
        except NotMeasuredError:
            return None
        except PerformanceError:
            # Of a measured model, a type or a count that nobody measured.
            if self.measured:
                return None
            raise
        if not iteration.fits:
            return None
        return self._recommendation(plan, iteration.iteration_s, iteration.memory_gib, counts)

    def judged(self, plans: Iterable[Plan]) -> list[Recommendation]:
        """The truth of the plans that fit, fastest first (ties: fewer GPUs, fewer stages)."""
        plans = list(plans)
        self._judge_together(plans)
        found = [r for r in map(self.truth, plans) if r is not None]
        return sorted(found, key=lambda r: (r.iteration_s, sum(r.counts), r.counts, len(r.plan.stages)))

    def front(self, plans: Iterable[Plan]) -> tuple[Recommendation, ...]:
        """`by_counts` of the plans' truth. Plain plans are judged all at once, and only what is kept is spelt out."""
        plans = list(plans)
        found = self._front_at_once(plans)
        return by_counts(self.judged(plans)) if found is None else found

    @cached_property
    def _together(self) -> PlansAtOnce:
        fleet, job = self.fleet, (self.performance, self.model, self.batch_size)
        return self.once(("at once",), lambda: PlansAtOnce(*job, fleet.spec, fleet.gpus_of_type))

    def _judge_together(self, plans: Sequence[Plan]) -> None:
        """Remember the truth of those plans that are plain, where there are several: all worked out at once."""
        whole_plans = (in_whole_samples(plan, self.batch_size) for plan in plans)
        keys = [replace(plan, iteration_s=0.0, memory_gib=()) for plan in whole_plans]
        new = [key for key in dict.fromkeys(keys) if key not in self._judged]
        if len(new) < FEW_PLANS or not self._together.serves:
            return
        new = [key for key in new if self._together.takes(key)]
        counts = [counts_of(key, self.fleet.names) for key in new]
        at = [i for i, used in enumerate(counts) if self._there(used)]
        try:
            time_s, memory_gib = self._together.judge([new[i] for i in at])
        except PerformanceError:
            return
        self._judged.update(dict.fromkeys(new))
        for i, took_s, gib in zip(at, time_s.tolist(), memory_gib, strict=True):
            if took_s < math.inf:
                self._judged[new[i]] = self._recommendation(new[i], took_s, gib, counts[i])

    def _there(self, counts: Sequence[int]) -> bool:
        """Whether there are so many GPUs of each type, within the budget."""
        return sum(counts) <= self.budget and all(n <= most for n, most in zip(counts, self.fleet.counts, strict=True))

    def _recommendation(
        self, plan: Plan, iteration_s: float, memory_gib: tuple[float, ...], counts: tuple[int, ...]
    ) -> Recommendation:
        usd = iteration_s / 3600 * self.fleet.usd_per_h(counts)
        plan = replace(plan, iteration_s=iteration_s, memory_gib=memory_gib)
        return Recommendation(plan, iteration_s, usd, counts)

    def _front_at_once(self, plans: Sequence[Plan]) -> tuple[Recommendation, ...] | None:
        """The same by `PlansAtOnce`; None where one by one is the only way, or has more to say of what is wrong."""
        plans = [in_whole_samples(plan, self.batch_size) for plan in plans]
        together, fleet = self._together, self.fleet
        if not together.serves or not all(map(together.takes, plans)):
            return None
        columns = list(fleet.present)
        used = np.zeros((len(plans), len(fleet.counts)), dtype=np.int64)
        used[:, columns] = np.array([together.counts(plan) for plan in plans]).reshape(-1, len(columns))
        possible = (used.sum(axis=1) <= self.budget) & (used <= np.array(fleet.counts)).all(axis=1)
        plans, used = [plan for plan, fits in zip(plans, possible.tolist(), strict=True) if fits], used[possible]
        try:
            time_s, memory_gib = together.judge(plans)
        except PerformanceError:
            return None
        # As `judged` sorts them.
        stages = [len(plan.stages) for plan in plans]
        order = np.lexsort((stages, *used.T[::-1], used.sum(axis=1), time_s))
        return tuple(
            self._recommendation(plans[i], float(time_s[i]), memory_gib[i], tuple(used[i].tolist()))
            for i in order[undominated(used[order], time_s[order])].tolist()
        )


def undominated(vectors: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Mask [V] of the vectors that no other one with as few GPUs of each type equals or beats in time."""
    known = np.flatnonzero(np.isfinite(time_s))
    # What may beat a vector comes before it: it is faster, or as fast on fewer GPUs, or equal and comes first anyhow.
    order = known[np.lexsort((vectors[known].sum(axis=1), time_s[known]))]
    return np.asarray(first_of_fronts(vectors.astype(np.int64), order))


def by_counts(found: Sequence[Recommendation]) -> tuple[Recommendation, ...]:
    """Those that no other one equals or beats in time on as few GPUs of each type, fastest first."""
    if not found:
        return ()
    keep = undominated(np.array([r.counts for r in found]), np.array([r.iteration_s for r in found]))
    return tuple(r for r, kept in zip(found, keep, strict=True) if kept)


def by_cost(found: Sequence[Recommendation]) -> tuple[Recommendation, ...]:
    """The Pareto front of time and cost, fastest first: each is cheaper than all that are as fast or faster.

    A plan of unknown price is never on it.
    """
    front: list[Recommendation] = []
    priced = [r for r in found if math.isfinite(r.usd_per_iteration)]
    for r in sorted(priced, key=lambda r: (r.iteration_s, r.usd_per_iteration, sum(r.counts))):
        if not front or r.usd_per_iteration < front[-1].usd_per_iteration:
            front.append(r)
    return tuple(front)
