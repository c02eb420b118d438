"""Why no plan runs, and what would help: the smallest lack of memory, and only such advice as was tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.recommend.algorithms.balance import least_bottleneck
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Devices, Style, styles
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import MICRO_BATCHES, Request
from sim.api import Plan
from sim.performance import GpuType

MOST_GPUS = 1024
"""GPUs of a type, at most, that are tried as advice."""
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
        return f"{', '.join(words)}, is the least that is lacking"


def nothing_fits(request: Request, catalogue: Sequence[GpuType] = ()) -> RecommendError:
    """The error that says why no plan runs: the plan that comes nearest, the memory that it needs and that is there.

    It gives neither a time nor a price, and advises only what makes a plan fit, each by itself: more of the GPUs, types
    of the catalogue, recomputation, ZeRO, tensor parallelism, more micro-batches, a smaller batch.
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

    All stages have as many GPUs; p stages for powers of two and the most there can be. None: the space has no plan.
    """
    layers, best = Layers(request), (math.inf, Plan(()))
    fleet = request.fleet
    present = sorted(fleet.present, key=lambda t: -fleet.types[t].memory_gib)
    together = [] if request.space.single_type or len(present) < 2 else [present]
    for members in (*([t] for t in present), *together):
        devices = Devices(request, fleet.counts, tuple(members))
        for style in styles(request):
            for ways in layers.ways(request.space.tensor):
                best = min(best, *_pipelines(request, layers, devices, style, ways), key=lambda one: one[0])
    plan = best[1]
    if not plan.stages:
        return None
    memory = request.performance.plan(
        request.model, request.batch_size, plan, fleet.gpus(plan), fleet.spec
    ).memory_gib
    there = [fleet.types[fleet.names.index(stage.gpu_type)].memory_gib for stage in plan.stages]
    stage = int(np.argmax(np.array(memory) / np.array(there)))
    return Leanest(plan, stage, memory[stage], there[stage])


def _pipelines(
    request: Request, layers: Layers, devices: Devices, style: Style, ways: int
) -> list[tuple[float, Plan]]:
    """(Memory needed / there, plan) of pipelines on the first GPUs of the row."""
    found: list[tuple[float, Plan]] = [(math.inf, Plan(()))]
    most = min(len(devices), request.budget)
    stages = min(len(layers), most // ways)
    some = [m for m in request.space.micro_batches if m <= request.batch_size]
    for p in sorted({min(1 << k, stages) for k in range(stages.bit_length() + 1)} - {0}):
        for m in {min(some), max(some)} if some else ():
            # More replicas have fewer samples each, and with ZeRO a smaller share of what they keep.
            for replicas in {1, min(most // (p * ways), request.batch_size // m)} - {0}:
                if (one := _pipeline(request, layers, devices, style, ways, p, replicas, m)) is not None:
                    found.append(one)
    return found


def _pipeline(
    request: Request, layers: Layers, devices: Devices, style: Style, ways: int, p: int, replicas: int, m: int
) -> tuple[float, Plan] | None:
    gpus, samples = ways * replicas, request.batch_size / m / replicas
    if samples < 1:
        return None
    # All types of the row have a part, in proportion to their GPUs.
    first = [s * gpus if p * gpus == len(devices) else _spread(devices, s, p, gpus) for s in range(p)]
    parts = [devices.parts(at, gpus) for at in first]
    if any(len(part) > 1 for part in parts):
        return None
    ratios = [
        layers.memory_gib(samples, layers.held(style, s, p, m), ways, replicas, style)
        / request.fleet.types[part[0][0]].memory_gib
        for s, part in enumerate(parts)
    ]
    cut = least_bottleneck(ratios)
    if cut is None:
        return None
    cuts, ratio = cut
    plan = style.plan([
        devices.stage(layers.span(cuts[s], cuts[s + 1]), at, gpus, tensor=ways) for s, at in enumerate(first)
    ], m)
    return None if plan is None else (ratio, plan)


def _spread(devices: Devices, stage: int, stages: int, gpus: int) -> int:
    """Where a stage begins in the row, if stages leave gaps."""
    return stage * (len(devices) // (stages * gpus)) * gpus


def remedies(request: Request, catalogue: Sequence[GpuType] = ()) -> Iterator[str]:
    """What makes a plan fit, one change at a time; nothing that does not."""
    space, fleet = request.space, request.fleet
    if (gpus := _more_gpus(request)) is not None:
        yield gpus
    named = [gpu.name for gpu in catalogue if gpu.name not in fleet.names and _fits(_on(request, gpu, request.budget))]
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
    """Twice the GPUs that may be used, again and again, then twice those that are there: the first that fits."""
    fleet, there = request.fleet, sum(request.fleet.counts)
    most = request.budget
    while most < there:
        most = min(2 * most, there)
        if _fits(replace(request, max_gpus=most, _judged={})):
            return f"up to {most} of these GPUs"
    factor = 2
    while max(fleet.counts) * factor <= MOST_GPUS:
        counts = [n * factor for n in fleet.counts]
        larger = Fleet(request.performance, fleet.types, counts, fleet.node_gpus)
        if _fits(replace(request, fleet=larger, max_gpus=sum(counts), _judged={})):
            return " and ".join(f"{n} {gpu}" for n, gpu in zip(counts, fleet.names, strict=True) if n)
        factor *= 2
    return None
