"""Moves of the local search that change where the model is cut, or in which order its operators are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.recommend.request.ground import Ground
from policies.recommend.searching.move import pick, put
from sim.api import Plan

HALVINGS = 24
"""Of the interval that holds the load of the fullest stage when cuts are balanced."""


def _cut(plan: Plan, border: int, last_op: int) -> Plan | None:
    """The plan with stage `border` ending at `last_op`."""
    left, right = plan.stages[border : border + 2]
    if last_op == left.last_op or not left.first_op <= last_op < right.last_op:
        return None
    pair = replace(left, last_op=last_op), replace(right, first_op=last_op + 1)
    return put(plan, border, *pair, instead_of=2)


def shift_cut(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A cut moves by 1, 2, 4 ... operators."""
    if len(plan.stages) < 2:
        return None
    border = int(rng.integers(len(plan.stages) - 1))
    room = plan.stages[border + 1].last_op - plan.stages[border].first_op
    step = 1 << int(rng.integers(max(1, room.bit_length())))
    return _cut(plan, border, plan.stages[border].last_op + (step if rng.random() < 0.5 else -step))


def cheap_cut(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A cut moves to the next operator, on either side, after which fewer bytes cross, or to a block's border."""
    if len(plan.stages) < 2:
        return None
    border = int(rng.integers(len(plan.stages) - 1))
    at = plan.stages[border].last_op
    lies = bisect_right(ground.borders, at)
    blocks = [*ground.borders[max(0, lies - 2) : lies], *ground.borders[lies : lies + 1]]
    cut_bytes = ground.cut_bytes(plan.order)
    lower = np.flatnonzero(cut_bytes[:-1] < cut_bytes[at])
    nearest = np.searchsorted(lower, at)
    return _cut(plan, border, int(pick([*blocks, *lower[max(0, nearest - 1) : nearest + 1].tolist()] or [at], rng)))


def balance(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """All cuts anew: the fullest stage has as little work as can be; then each goes to a cheap border nearby."""
    p = len(plan.stages)
    if p < 2:
        return None
    running = [ground.running_s(plan, stage) for stage in plan.stages]
    high, low = max(line[-1] for line in running), 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _filled(running, middle) is None:
            low = middle
        else:
            high = middle
    ends = _filled(running, high)
    if ends is None:
        return None
    ends = _cheapest_near(ends, ground.cut_bytes(plan.order), int(rng.integers(4)) ** 2)
    firsts = [0, *(end + 1 for end in ends[:-1])]
    stages = tuple(
        replace(stage, first_op=a, last_op=b) for stage, a, b in zip(plan.stages, firsts, ends, strict=True)
    )
    return replace(plan, stages=stages) if stages != plan.stages else None


def _filled(running: Sequence[list[float]], load_s: float) -> list[int] | None:
    """Last operator of each stage if none has more than `load_s` where it can be helped; None: the last one has."""
    n, p, first, ends = len(running[0]), len(running), 0, []
    for s, line in enumerate(running[:-1]):
        done = line[first - 1] if first else 0.0
        # Every stage has an operator, and leaves one to each that follows.
        first = min(max(bisect_right(line, done + load_s), first + 1), n - (p - 1 - s))
        ends.append(first - 1)
    last = running[-1]
    return [*ends, n - 1] if last[-1] - (last[first - 1] if first else 0.0) <= load_s else None


def _cheapest_near(ends: Sequence[int], cut_bytes: np.ndarray, reach: int) -> list[int]:
    """Move each cut by up to `reach` operators to where the fewest bytes cross."""
    out: list[int] = []
    for s, end in enumerate(ends[:-1]):
        low = max(end - reach, out[-1] + 1 if out else 0)
        high = max(low, min(end + reach, ends[s + 1] - 1))
        near = cut_bytes[low : high + 1]
        best = np.flatnonzero(near == near.min()) + low
        out.append(int(best[np.argmin(np.abs(best - end))]))
    return [*out, ends[-1]]


def carry(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """One operator crosses a cut, though it does not lie beside it: the order changes so that it does."""
    if len(plan.stages) < 2:
        return None
    border = int(rng.integers(len(plan.stages) - 1))
    left, right = plan.stages[border : border + 2]
    order = list(plan.order or range(ground.operators))
    at = left.last_op + 1
    if rng.random() < 0.5:
        span = order[left.first_op : at]
        movable = [i for i, op in enumerate(span) if not ground.readers[op].intersection(span)]
        source, goal, last_op = left.first_op, at - 1, left.last_op - 1
    else:
        span = order[at : right.last_op + 1]
        movable = [i for i, op in enumerate(span) if not ground.sources[op].intersection(span)]
        source, goal, last_op = at, at, left.last_op + 1
    if len(span) < 2 or not movable:
        return None
    order.insert(goal, order.pop(source + pick(movable, rng)))
    moved = _cut(plan, border, last_op)
    return moved and replace(moved, order=ground.named(order))
