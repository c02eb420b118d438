"""Stages that divide their tables and experts among their replicas: which ones may, and how the search comes by them.

Only models that have such operators know of it: all else is as if there were none (`Ground.shards`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from policies.recommend.request.ground import Ground
from policies.recommend.searching.move import Move, put
from sim.api import Plan


def with_shards(plans: Iterable[Plan], ground: Ground) -> Iterator[Plan]:
    """Each plan as it is, where the space has it so, and with all stages divided that may be."""
    for plan in plans:
        if not ground.shards:
            yield plan
            continue
        if False in ground.space.sharded:
            yield plan
        divided = all_of(plan, ground)
        if divided != plan or False not in ground.space.sharded:
            yield divided


def all_of(plan: Plan, ground: Ground) -> Plan:
    """The plan with all stages divided that may be."""
    return replace(plan, stages=tuple(replace(stage, sharded=ground.may_shard(plan, stage)) for stage in plan.stages))


def shard(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage divides its tables and experts among its replicas, or repeats them."""
    may = [s for s, stage in enumerate(plan.stages) if ground.may_shard(plan, stage)]
    if not may:
        return None
    s = may[int(rng.integers(len(may)))]
    return put(plan, s, replace(plan.stages[s], sharded=not plan.stages[s].sharded))


def tidied(move: Move) -> Move:
    """A move, after which stages that can no longer be divided are not; where all must be, all are that can."""

    def tidy(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
        moved = move(plan, ground, rng)
        if moved is None or not ground.shards:
            return moved
        if False not in ground.space.sharded:
            return all_of(moved, ground)
        stages = tuple(
            replace(stage, sharded=False) if stage.sharded and not ground.may_shard(moved, stage) else stage
            for stage in moved.stages
        )
        return replace(moved, stages=stages)

    return tidy
