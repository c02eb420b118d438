"""Why no plan runs, and what would help: the smallest lack of memory, and only such advice as was tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from policies.recommend.algorithms.balance import least_bottleneck
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Devices, Style, styles
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import MICRO_BATCHES, Request
from policies.recommend.searching.sharding import all_of
from sim.api import Plan
from sim.performance import GpuType
from sim.performance.memory import stage_memory, weight_versions
from sim.performance.samples import largest_share

MOST_GPUS = 1024
"""GPUs of a type, at most, that are tried as advice."""
EACH = 16
"""Stages up to which each number of them is tried."""
REFINED = 6
"""Pipelines that come nearest to memory, if none fits, which are cut anew at any operator."""
CLOSE = 1e-3
"""How near to the least possible the fullest stage is then, relatively."""
WAYS = (2, 4, 8)
"""Tensor parallelism that is tried as advice."""
ZERO = (1, 2, 3)
"""Stages of ZeRO that are."""


@dataclass(frozen=True)
class Leanest:
    """The plan that comes nearest to its GPUs' memory, and the stage of it that comes least near."""

    plan: Plan
    stage: int
    need_gib: float
    there_gib: float

    def __str__(self) -> str:
        stage, plan = self.plan.stages[self.stage], self.plan
        words = [f"stage {self.stage} of {len(plan.stages)}"] if len(plan.stages) > 1 else ["the whole model"]
        words += [f"tensor parallelism over {stage.tensor}"] * (stage.tensor > 1)
        words += [f"{plan.micro_batches} micro-batches"] * (plan.micro_batches > 1)
        words += ["recomputation"] * plan.recompute + [f"ZeRO {plan.zero}"] * (plan.zero > 0)
        return f"{', '.join(words)}; of all plans tried this lacks least"


def nothing_fits(request: Request, catalogue: Sequence[GpuType] = ()) -> RecommendError:
    """The error that says why no plan runs: the plan that comes nearest, the memory that it needs and that is there.

    It gives neither a time nor a price, and advises only what makes a plan fit, each by itself: more of the GPUs, types
    of the catalogue (CPUs only where the request has some), recomputation, ZeRO, tensor parallelism, more
    micro-batches, a smaller batch.
    """
    fleet, where = request.fleet, f"model {request.model!r}, batch {request.batch_size}, up to {request.budget} GPUs"
    if request.measured:
        return RecommendError("no measured rate fits", where=where, allowed="a GPU type and count in the table",
                              got=", ".join(fleet.names[t] for t in fleet.present))
    near = leanest(request)
    if near is None:
        space = request.space
        return RecommendError(
            "there is no such plan at all", where=where,
            got=f"tensor parallelism over {', '.join(map(str, space.tensor))} GPUs, "
            f"{', '.join(map(str, space.micro_batches))} micro-batches",
            allowed="tensor parallelism that divides the model's operators and the GPUs, and a sample or more a "
            "micro-batch",
        )
    helps = list(remedies(request, catalogue))
    return RecommendError(
        "the model fits no plan", where=where,
        got=f"{near.need_gib:.2f} GiB needed on a GPU of {near.plan.stages[near.stage].gpu_type} ({near})",
        allowed=f"{near.there_gib:g} GiB there",
        todo=f"What would help: {'; '.join(helps)}." if helps else "None of this would help: more of these GPUs, other "
        "types, recomputation, ZeRO, tensor parallelism, more micro-batches, a smaller batch.",
    )


def leanest(request: Request) -> Leanest | None:
    """The plan with the least memory needed / there, of pipelines on each type and on all, cut by memory.

    All stages have as many GPUs; p stages, for each p up to EACH, powers of two and the most there can be. They are cut
    between coarse layers; where none fits so, those that come nearest, and those with more stages than layers, are cut
    anew at any operator. None: the space has no plan.
    """
    layers, fleet = Layers(request), request.fleet
    present = sorted(fleet.present, key=lambda t: -fleet.types[t].memory_gib)
    together = [] if request.space.single_type or len(present) < 2 else [present]
    sketches = [
        sketch for members in (*([t] for t in present), *together) for style in styles(request)
        for ways in layers.ways(request.space.tensor)
        for sketch in _sketches(request, layers, Devices(request, fleet.counts, tuple(members)), style, ways)
    ]
    # Of equals the first.
    ranked = sorted(((*sketch.cut(), at) for at, sketch in enumerate(sketches)), key=lambda one: (one[0], one[2]))
    if ranked and ranked[0][0] > 1:
        near = [at for ratio, _, at in ranked if ratio < math.inf][:REFINED]
        near += [at for _, _, at in ranked if sketches[at].p > len(layers)][:REFINED]
        anew = [(*sketches[at].cut_anew(), at) for at in near]
        ranked = sorted([*anew, ranked[0]], key=lambda one: (one[0], one[2]))
    if not ranked or ranked[0][0] == math.inf:
        return None
    plan = sketches[ranked[0][2]].plan(ranked[0][1])
    memory = request.performance.plan(
        request.model, request.batch_size, plan, fleet.gpus(plan), fleet.spec
    ).memory_gib
    there = [fleet.types[fleet.names.index(stage.gpu_type)].memory_gib for stage in plan.stages]
    stage = int(np.argmax(np.array(memory) / np.array(there)))
    return Leanest(plan, stage, memory[stage], there[stage])


def lack(request: Request) -> str:
    """How much memory is lacking where no plan fits; '' where one does, or none is possible."""
    near = None if request.measured else leanest(request)
    if near is None or near.need_gib <= near.there_gib:
        return ""
    gpu_type = near.plan.stages[near.stage].gpu_type
    return f"{near.need_gib:.2f} GiB needed on a GPU of {gpu_type} and {near.there_gib:g} GiB there ({near})"


@dataclass(frozen=True)
class _Sketch:
    """A pipeline that is not cut yet: p stages of equally many GPUs, all of one type."""

    request: Request
    layers: Layers
    devices: Devices
    style: Style
    ways: int
    p: int
    replicas: int
    m: int
    sharded: bool = False
    """Stages that have tables or experts divide them among their replicas."""

    @property
    def samples(self) -> float:
        return self.request.batch_size / self.m / self.replicas

    @cached_property
    def first(self) -> list[int]:
        """Where each stage begins in the row. All types of the row have a part, in proportion to their GPUs."""
        gpus, whole = self.ways * self.replicas, len(self.devices)
        return [s * gpus if self.p * gpus == whole else s * (whole // (self.p * gpus)) * gpus for s in range(self.p)]

    @cached_property
    def there_gib(self) -> list[float]:
        """Memory of a GPU of each stage; empty: one would be of several types."""
        parts = [self.devices.parts(at, self.ways * self.replicas) for at in self.first]
        if any(len(part) > 1 for part in parts):
            return []
        return [self.request.fleet.types[part[0][0]].memory_gib for part in parts]

    def cut(self) -> tuple[float, list[int]]:
        """Memory needed / there of the fullest stage, and the first operators of stages cut between coarse layers."""
        layers = self.layers
        if self.p > len(layers) or not self.there_gib:
            return math.inf, []
        cut = least_bottleneck([
            layers.memory_gib(self.samples, self._held(s), self.ways, self.replicas, self.style, self.sharded) / there
            for s, there in enumerate(self.there_gib)
        ])
        return (math.inf, []) if cut is None else (cut[1], [int(layers.first_op[at]) for at in cut[0]])

    def cut_anew(self) -> tuple[float, list[int]]:
        """The same, cut at any operator: a stage needs no less with an operator more, so they are filled in turn."""
        if not self.there_gib:
            return math.inf, []
        ends = [s * len(self.layers.graph) // self.p for s in range(self.p + 1)]
        low, high = 0.0, max(self._part(s, ends[s], ends[s + 1]) for s in range(self.p))
        while high - low > CLOSE * high:
            middle = (low + high) / 2
            found = self._filled(middle)
            if found is None:
                low = middle
            else:
                ends, high = found, max(self._part(s, found[s], found[s + 1]) for s in range(self.p))
        return high, ends

    def _filled(self, most: float) -> list[int] | None:
        """Stages that need no more than `most` of what is there, each as long as can be; None: there are none."""
        operators, ends = len(self.layers.graph), [0]
        for s in range(self.p):
            low, high = ends[-1], operators - (self.p - 1 - s)
            while low < high:
                middle = (low + high + 1) // 2
                if self._part(s, ends[-1], middle) <= most:
                    low = middle
                else:
                    high = middle - 1
            if low == ends[-1]:
                return None
            ends.append(low)
        return ends if ends[-1] == operators else None

    def _part(self, s: int, first: int, end: int) -> float:
        """Memory needed / there of stage s with operators first .. end - 1."""
        key = s, first, end
        if key not in self._parts:
            asked = self.request.performance
            self._parts[key] = stage_memory(
                self.layers.share(self.ways, self.replicas if self.sharded else 1), [(first, end - 1)],
                largest_share(self.samples), self._held(s),
                replicas=self.replicas, zero=self.style.zero, recompute=self.style.recompute,
                versions=weight_versions(self.style.schedule or asked.schedule, s, self.p),
                value_bytes=asked.value_bytes, optimizer=asked.optimizer, context_gib=asked.context_gib,
            ).total_gib / self.there_gib[s]  # fmt: skip
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[int, int, int], float]:
        return {}

    def _held(self, stage: int) -> int:
        return self.layers.held(self.style, stage, self.p, self.m)

    def plan(self, ends: Sequence[int]) -> Plan:
        """The pipeline cut so: first operator of each stage, then the number of operators."""
        gpus = self.ways * self.replicas
        spans = [(a, b - 1) for a, b in pairwise(ends)]
        stages = [self.devices.stage(span, at, gpus, tensor=self.ways)
                  for span, at in zip(spans, self.first, strict=True)]  # fmt: skip
        plan = self.style.plan(stages, self.m)
        assert plan is not None  # Each stage is of one type, and its GPUs are a multiple of `ways`.
        return all_of(plan, Ground(self.request)) if self.sharded else plan


def _sketches(request: Request, layers: Layers, devices: Devices, style: Style, ways: int) -> Iterator[_Sketch]:
    """Pipelines on the first GPUs of the row."""
    most = min(len(devices), request.budget)
    stages = min(len(layers.graph), most // ways)
    some = [m for m in request.space.micro_batches if m <= request.batch_size]
    # More stages are shorter, but the first ones keep more micro-batches: none of few is left out.
    few = range(1, min(stages, EACH) + 1)
    divides = [one for one in request.space.sharded if not one or (ways == 1 and layers.graph.shards.any())]
    for p in sorted({*few, *(min(1 << k, stages) for k in range(stages.bit_length() + 1))} - {0}):
        for m in sorted({min(some), max(some)}) if some else ():
            # More replicas have fewer samples each, and with ZeRO a smaller share of what they keep.
            for replicas in sorted({1, min(most // (p * ways), request.batch_size // m)} - {0}):
                for sharded in divides or [False]:
                    if not sharded or replicas > 1 or len(divides) == 1:
                        yield _Sketch(request, layers, devices, style, ways, p, replicas, m, sharded)


def remedies(request: Request, catalogue: Sequence[GpuType] = ()) -> Iterator[str]:
    """What makes a plan fit, one change at a time; nothing that does not."""
    space, fleet = request.space, request.fleet
    if (gpus := _more_gpus(request)) is not None:
        yield gpus
    # A CPU server holds nearly any model, and trains most of them absurdly slowly: only who asks for CPUs is told more.
    others = [gpu for gpu in catalogue if not gpu.sockets or any(mine.sockets for mine in fleet.types)]
    named = [gpu.name for gpu in others if gpu.name not in fleet.names and _fits(_on(request, gpu, request.budget))]
    if named:
        yield f"up to {request.budget} GPUs of {', '.join(named)}"
    if True not in space.recompute and _fits(replace(request, space=replace(space, recompute=(True,)))):
        yield "recomputation"
    for zero in ZERO:
        if zero not in space.zero and _fits(replace(request, space=replace(space, zero=(zero,)))):
            yield f"ZeRO {zero}"
            break
    for ways in WAYS:
        if ways not in space.tensor and _fits(replace(request, space=replace(space, tensor=(ways,)))):
            yield f"tensor parallelism over {ways} GPUs"
            break
    if True not in space.sharded and _fits(replace(request, space=replace(space, sharded=(False, True)))):
        yield "tables or experts divided among replicas"
    more = tuple(m for m in (*MICRO_BATCHES, 64, 128, 256, 512) if max(space.micro_batches) < m <= request.batch_size)
    for m in more:
        if _fits(replace(request, space=replace(space, micro_batches=(m,)))):
            yield f"{m} micro-batches"
            break
    batch = request.batch_size // 2
    while batch >= min(space.micro_batches):
        if _fits(replace(request, batch_size=batch, _judged={})):
            yield f"a batch of {batch}"
            break
        batch //= 2


def _fits(request: Request) -> bool:
    near = leanest(request)
    return near is not None and near.need_gib <= near.there_gib and request.truth(near.plan) is not None


def _on(request: Request, gpu: GpuType, count: int) -> Request:
    """The same job on so many GPUs of another type."""
    fleet = Fleet(request.performance, [gpu], [count], [max(request.fleet.node_gpus)])
    return replace(request, fleet=fleet, max_gpus=count, _judged={})


def _more_gpus(request: Request) -> str | None:
    """The smallest number that fits: of the GPUs that may be used, else of those of one type, beside the others."""
    fleet, there = request.fleet, sum(request.fleet.counts)
    most = least_that(lambda n: _fits(replace(request, max_gpus=n, _judged={})), request.budget, there)
    if most is not None:
        return f"up to {most} of these GPUs"
    ways = []
    for t in fleet.present:
        most = least_that(partial(_fits_with, request, t), fleet.counts[t], MOST_GPUS)
        if most is not None:
            counts = [most if k == t else n for k, n in enumerate(fleet.counts)]
            ways.append(" and ".join(f"{n} {gpu}" for n, gpu in zip(counts, fleet.names, strict=True) if n))
    return " or ".join(ways) or None


def _fits_with(request: Request, t: int, count: int) -> bool:
    """Whether the same job fits where there are so many of one type, and all may be used."""
    fleet = request.fleet
    counts = [count if k == t else n for k, n in enumerate(fleet.counts)]
    larger = Fleet(request.performance, fleet.types, counts, fleet.node_gpus, fleet.rented_gpus, fleet.machines)
    return _fits(replace(request, fleet=larger, max_gpus=sum(counts), _judged={}))


def least_that(fits: Callable[[int], bool], none: int, most: int) -> int | None:
    """The smallest number above `none`, which is too small, that fits, if more always do; None: none up to `most` does.

    Doubled until it fits, then halved in between: about 2 log2 of it is tried.
    """
    low, high = none, none
    while high < most:
        high = min(2 * high, most)
        if fits(high):
            break
        low = high
    else:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
