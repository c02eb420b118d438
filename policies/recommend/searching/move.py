"""What all moves of the local search share.

A move is a pure function  move(plan, ground, rng) -> Plan | None:  a neighbour, or None where the one drawn is not
allowed or does not exist. It changes a plan a little, at random, and knows no truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from policies.recommend.request.ground import Ground
from sim.api import Plan, Stage

Move = Callable[[Plan, Ground, np.random.Generator], Plan | None]
T = TypeVar("T")


def pick(items: Sequence[T], rng: np.random.Generator) -> T:
    """One of them, each as likely."""
    return items[int(rng.integers(len(items)))]


def put(plan: Plan, at: int, *stages: Stage, instead_of: int = 1) -> Plan:
    """The plan with other stages instead of some from number `at` on."""
    return replace(plan, stages=(*plan.stages[:at], *stages, *plan.stages[at + instead_of :]))


def plain(stage: Stage, gpu_type: str, gpus: int, tensor: int = 1) -> Stage:
    """The operators of a stage on GPUs of one type."""
    return Stage(stage.first_op, stage.last_op, gpu_type, gpus, tensor if gpus % tensor == 0 else 1,
                 sharded=stage.sharded)  # fmt: skip
