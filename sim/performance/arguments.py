"""What is asked of the performance model, before anything is worked out: counts that are counts, plans that add up."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real

import numpy as np

from sim.cluster.plan import Part, Plan, Stage
from sim.hardware.gputypes import GpuType
from sim.performance.graph import PerformanceError

SHARES_OFF = 1e-9
"""By which the shares of a stage's parts may miss 1."""


def whole(value: object, low: int = 0) -> bool:
    """Whether a value is a whole number, `low` or more; not NaN, not text."""
    if type(value) is int:
        return value >= low
    return isinstance(value, Real) and low <= float(value) < np.inf and float(value).is_integer()


def check_plan(plan: Plan, model: str, operators: int) -> None:
    """Refuse a plan that makes no sense whatever GPUs it gets.

    Parameters
    ----------
    operators : how many the model has; 0: unknown (a measured model, which cannot be divided).

    Raises
    ------
    PerformanceError
        Stages that do not cover the model in order, counts that are no counts, parts that do not add up.
    """
    where = f"plan for {model!r}"
    if not plan.stages or not all(isinstance(stage, Stage) for stage in plan.stages):
        raise PerformanceError("the stages do not cover the model", where=where, got=plan.stages,
                               allowed="a Stage or more")  # fmt: skip
    for what, value, low in (("micro-batches", plan.micro_batches, 1), ("chunks", plan.chunks, 1)):
        if not whole(value, low):
            raise PerformanceError(f"impossible number of {what}", where=where, got=value, allowed=f"{low} or more")
    if not isinstance(plan.recompute, (bool, np.bool_)):
        raise PerformanceError("recompute is yes or no", where=where, got=plan.recompute, allowed="True or False")
    if not whole(plan.zero) or plan.zero > 3:
        raise PerformanceError("impossible stage of ZeRO", where=where, got=plan.zero, allowed="0, 1, 2 or 3")
    if operators == 0:
        _check_undivided(plan, where)
        return
    if len(plan.stages) % plan.chunks:
        raise PerformanceError(
            "each GPU of an interleaved pipeline runs as many stages", where=where,
            got=f"{len(plan.stages)} stages, {plan.chunks} chunks", allowed="a number of stages that the chunks divide",
        )  # fmt: skip
    next_op = 0
    for s in plan.stages:
        if not (whole(s.first_op) and whole(s.last_op) and s.first_op == next_op <= s.last_op):
            break
        next_op = s.last_op + 1
    if next_op != operators or plan.stages[-1].last_op != operators - 1:
        raise PerformanceError(
            "the stages do not cover the model", where=where, got=[(s.first_op, s.last_op) for s in plan.stages],
            allowed=f"operators 0 to {operators - 1}, in order, each once",
        )  # fmt: skip
    devices = plan.devices
    for number, stage in enumerate(plan.stages):
        _check_gpus(stage, f"{where}, stage {number}")
        of = devices[number % len(devices)]
        if stage is not of and replace(stage, first_op=of.first_op, last_op=of.last_op) != of:
            raise PerformanceError(
                "a stage of an interleaved pipeline has other GPUs than the one it shares them with",
                where=f"{where}, stage {number}", got=stage, allowed=f"the GPUs of stage {number % len(devices)}",
            )  # fmt: skip


def _check_undivided(plan: Plan, where: str) -> None:
    """Of a model known by measured rates only the rate of one gang is known."""
    stage = plan.stages[0]
    asked = {
        f"{len(plan.stages)} stages": len(plan.stages) != 1,
        f"{plan.micro_batches} micro-batches": plan.micro_batches != 1,
        "tensor parallelism": stage.tensor != 1, "recomputation": plan.recompute, f"ZeRO {plan.zero}": plan.zero != 0,
        "several GPU types": bool(stage.parts), "chunks": plan.chunks != 1, "another order": bool(plan.order),
        "a division among replicas": stage.sharded,
    }  # fmt: skip
    if any(asked.values()):
        raise PerformanceError(
            "a model known by measured rates cannot be divided", where=where,
            got=", ".join(what for what, is_so in asked.items() if is_so),
            allowed="one stage, one micro-batch, one GPU type; nothing else was measured",
        )  # fmt: skip
    _check_gpus(stage, f"{where}, stage 0")


def _check_gpus(stage: Stage, where: str) -> None:
    """The GPUs of a stage are so many, of replicas that tensor parallelism divides, and its parts add up."""
    if not whole(stage.gpus, 1):
        raise PerformanceError("impossible number of GPUs", where=where, got=stage.gpus, allowed="1 or more")
    if not isinstance(stage.sharded, (bool, np.bool_)):
        raise PerformanceError("sharded is yes or no", where=where, got=stage.sharded, allowed="True or False")
    if not whole(stage.tensor, 1):
        raise PerformanceError("tensor parallelism over no GPU", where=where, got=stage.tensor, allowed="1 or more")
    for part in stage.all_parts:
        if not isinstance(part, Part) or not isinstance(part.gpu_type, str):
            raise PerformanceError("no GPU type", where=where, got=part, allowed="a Part with the name of a type")
        if not whole(part.tensor):
            raise PerformanceError("tensor parallelism over no GPU", where=f"{where}, {part.gpu_type}", got=part.tensor,
                                   allowed="1 or more; 0: as the stage")  # fmt: skip
        if not whole(part.gpus, 1) or part.gpus % stage.degree(part):
            raise PerformanceError(
                "tensor parallelism does not divide the GPUs of a stage", where=where,
                got=f"{part.gpus} GPUs by {stage.degree(part)}", allowed="a multiple",
            )  # fmt: skip
    if not stage.parts:
        return
    degrees = [stage.degree(part) for part in stage.parts]
    if degrees[0] != stage.tensor or any(max(degrees) % degree for degree in degrees):
        raise PerformanceError(
            "tensor degrees of a stage's parts do not go together", where=where,
            got=f"{', '.join(map(str, degrees))} in a stage of {stage.tensor}",
            allowed="the first one the stage's, and each a divisor of the largest",
        )  # fmt: skip
    shares = [part.share for part in stage.parts]
    if not all(isinstance(share, Real) and 0 < share <= 1 for share in shares) or abs(sum(shares) - 1) > SHARES_OFF:
        raise PerformanceError("shares of a micro-batch do not add up to 1", where=where, got=shares,
                               allowed="above 0, 1 together")  # fmt: skip
    if sum(part.gpus for part in stage.parts) != stage.gpus or stage.parts[0].gpu_type != stage.gpu_type:
        raise PerformanceError(
            "a stage is not what its parts add up to", where=where, got=f"{stage.gpus} GPUs, first of {stage.gpu_type}",
            allowed=f"{sum(part.gpus for part in stage.parts)} GPUs, first of {stage.parts[0].gpu_type}",
        )  # fmt: skip


def check_span(model: str, operators: int, first_op: int, last_op: int, samples: float) -> None:
    """Refuse what are no operators of a model that has so many, and samples of which there are none."""
    where = f"model {model!r}"
    if not (whole(first_op) and whole(last_op) and first_op <= last_op < operators):
        raise PerformanceError("no operators of the model", where=where, got=f"{first_op} to {last_op}",
                               allowed=f"0 to {operators - 1}")  # fmt: skip
    if not isinstance(samples, Real) or not 0 < float(samples) < math.inf:
        raise PerformanceError("impossible samples of a stage", where=where, got=samples, allowed="above 0")


def check_gpu(gpu: GpuType) -> None:
    """Refuse what is no GPU type."""
    if not isinstance(gpu, GpuType):
        raise PerformanceError("not a GPU type", got=gpu, allowed="a GpuType of the catalogue (`gpu_type(name)`)")


def check_gang(gpus_per_node: tuple[int, ...], racks: int, slots: tuple[int, ...]) -> None:
    """Refuse a gang that has no GPUs, or whose counts are no counts."""
    counts = isinstance(gpus_per_node, tuple) and gpus_per_node and all(whole(count, 1) for count in gpus_per_node)
    if not counts:
        raise PerformanceError("impossible GPUs on nodes", got=gpus_per_node, allowed="a tuple of counts from 1")
    if not whole(racks, 1):
        raise PerformanceError("impossible number of racks", got=racks, allowed="1 or more")
    if not isinstance(slots, tuple) or len(slots) not in (0, sum(gpus_per_node)):
        raise PerformanceError("slots are one for each GPU", got=slots, allowed=f"a tuple of {sum(gpus_per_node)}")


def check_batch(model: str, batch_size: object, micro_batches: int) -> None:
    """Refuse a batch that is no count of samples, or has fewer than micro-batches."""
    if not whole(batch_size, 1):
        raise PerformanceError(
            "the batch size is unknown", where=f"model {model!r}", got=batch_size,
            allowed="a whole number of samples, 1 or more", todo="Give the job a batch_size.",
        )  # fmt: skip
    assert isinstance(batch_size, Real)  # of `whole`
    if micro_batches > float(batch_size):
        raise PerformanceError(
            "more micro-batches than samples", where=f"model {model!r}", got=micro_batches,
            allowed=f"up to {batch_size:g}", todo="Take fewer micro-batches, or a larger batch.",
        )  # fmt: skip
