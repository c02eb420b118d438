"""All moves of the local search: those that change how a plan is trained, and which ones a request allows.

Where the model is cut: `moves_cuts`; on which GPUs: `moves_gpus`; what a move is: `moving`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from policies.recommend.request.ground import Ground
from policies.recommend.searching.move import Move, pick
from policies.recommend.searching.moves_cuts import balance, carry, cheap_cut, shift_cut
from policies.recommend.searching.moves_gpus import (
    hand_over,
    merge,
    mix_in,
    mix_out,
    reshare,
    resize,
    resize_part,
    retype,
    split,
    swap,
    tensor,
    tensor_of_part,
)
from policies.recommend.searching.sharding import shard, tidied
from sim.api import Plan


def micro_batches(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Another number of micro-batches, mostly the next one."""
    offered = ground.space.micro_batches
    if rng.random() < 0.7 and plan.micro_batches in offered:
        at = offered.index(plan.micro_batches) + (1 if rng.random() < 0.5 else -1)
        return replace(plan, micro_batches=offered[at]) if 0 <= at < len(offered) else None
    return replace(plan, micro_batches=int(pick(offered, rng)))


def schedule(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Another pipeline schedule."""
    return replace(plan, schedule=str(pick(ground.space.schedules, rng)))


def recompute(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Activations are computed again, or kept."""
    return replace(plan, recompute=bool(pick(ground.space.recompute, rng)))


def zero(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Another stage of ZeRO."""
    return replace(plan, zero=int(pick(ground.space.zero, rng)))


# -- all of them -------------------------------------------------------------------------------------------


def balanced(move: Move, evened: Move) -> Move:
    """A move, and the cuts balanced after it by `evened`."""

    def both(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
        moved = move(plan, ground, rng)
        if moved is None or not ground.allows(moved):
            return None
        return evened(moved, ground, rng) or moved

    return both


def moves_for(ground: Ground) -> Mapping[str, Move]:
    """The moves that can do something in a request's space, by name."""
    space, several = ground.space, len(ground.names) > 1 and not ground.space.single_type
    ways: dict[str, Move] = {"resize": resize}
    if ground.operators > 1 and ground.budget > 1:
        ways |= {"split": split, "merge": merge, "hand over": hand_over, "swap": swap}
    if len(ground.names) > 1:
        ways["retype"] = retype
    if several and space.mixed:
        ways |= {"mix in": mix_in, "mix out": mix_out, "resize part": resize_part}
    if len(ground.tensor) > 1:
        ways["tensor"] = tensor
        ways |= {"tensor of a part": tensor_of_part} if several and space.mixed else {}
    offered = {"micro-batches": (space.micro_batches, micro_batches), "schedule": (space.schedules, schedule),
               "recompute": (space.recompute, recompute), "zero": (space.zero, zero)}
    ways |= {name: move for name, (choices, move) in offered.items() if len(choices) > 1}
    if ground.shards:
        ways |= {"shard": shard} if len(space.sharded) > 1 else {}
        ways = {name: tidied(move) for name, move in ways.items()}
    if ground.operators == 1 or ground.budget == 1:
        return ways
    cuts: dict[str, Move] = {"shift cut": shift_cut, "cheap cut": cheap_cut, "balance": balance}
    cuts |= {"carry": carry} if space.orders else {}
    cuts |= {"reshare": reshare} if several and space.mixed else {}
    cuts = {name: tidied(move) for name, move in cuts.items()} if ground.shards else cuts
    return ways | cuts | {f"{name}, balance": balanced(move, cuts["balance"]) for name, move in ways.items()}
