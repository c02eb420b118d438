"""Plans whose replicas work on whole samples: the shares of a stage of several types become such."""

from __future__ import annotations

from dataclasses import replace

from sim.api import Plan, Stage
from sim.performance.samples import part_samples, whole_parts


def in_whole_samples(plan: Plan, batch_size: float) -> Plan:
    """The plan, each part of each stage with a whole number of the samples of a micro-batch, and no replica with more.

    So it computes no longer, and needs no more memory, than what was asked for: time and memory are those of the share
    rounded up. Where micro-batches are unequal, shares are those of a larger one. A stage of one type has no shares,
    and one with too few samples for its replicas stays as it is, to be refused.
    """
    if not any(stage.parts for stage in plan.stages):
        return plan
    micro = batch_size / plan.micro_batches
    return replace(plan, stages=tuple(_whole(stage, micro) if stage.parts else stage for stage in plan.stages))


def _whole(stage: Stage, micro: float) -> Stage:
    replicas = [stage.replicas_of(part) for part in stage.parts]
    if min(replicas) < 1:
        return stage
    samples = part_samples(micro, replicas, [part.share for part in stage.parts])
    if not samples:
        return stage
    shares = whole_parts(micro, replicas, samples)
    return replace(stage, parts=tuple(
        replace(part, share=share) for part, share in zip(stage.parts, shares, strict=True)
    ))  # fmt: skip
