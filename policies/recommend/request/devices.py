"""A fixed list of GPUs in a row, as planners see it that use all they are given and never ask which to rent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from policies.recommend.request.request import Request
from sim.api import Part, Plan, Stage
from sim.performance.gpu_links import inside, network_bytes_per_s

FEW = 10
"""Plans that a planner with a cost model of its own proposes: as many as it would try on the machines."""

Candidate = tuple[float, Callable[[], Plan | None]]
"""A plan by its predicted time, and the call that makes it; None where the space has no such plan."""


def given(request: Request) -> list[tuple[int, ...]]:
    """The GPUs of each type that such a planner is given: all there are; in a space of one type, of each by itself.

    Where the request allows fewer, those of the lowest nominal peak are taken away first.
    """
    counts = request.fleet.counts
    present = request.fleet.present
    sets = [(t,) for t in present] if request.space.single_type else [present]
    fast = sorted(present, key=lambda t: -request.fleet.types[t].peak_tflops)
    out = []
    for members in sets:
        left, taken = request.budget, [0] * len(counts)
        for t in fast:
            if t in members:
                taken[t] = min(left, counts[t])
                left -= taken[t]
        out.append(tuple(taken))
    return out


@dataclass(frozen=True)
class Style:
    """What none of these planners chooses: the caller sets it, and each allowed setting is tried."""

    schedule: str
    recompute: bool
    zero: int

    def plan(self, stages: Sequence[Stage | None], m: int) -> Plan | None:
        """A plan of these stages; None where one of them is."""
        whole = tuple(stage for stage in stages if stage is not None)
        if len(whole) < len(stages):
            return None
        return Plan(whole, m, schedule=self.schedule, recompute=self.recompute, zero=self.zero)


def styles(request: Request) -> Iterator[Style]:
    """All settings that the space allows (interleaved stages, which none of these planners has, left out)."""
    space = request.space
    for schedule, recompute, zero in product(space.schedules, space.recompute, space.zero):
        if (schedule or request.performance.schedule) != "interleaved":
            yield Style(schedule, recompute, zero)


@dataclass(frozen=True)
class Devices:
    """GPUs in a row, type after type, filling node after node of each.

    Parameters
    ----------
    request : its fleet has the types and nodes, its performance the links.
    counts : GPUs of each type, in the fleet's order.
    order : types in the order of the row.
    """

    request: Request
    counts: tuple[int, ...]
    order: tuple[int, ...]

    def __len__(self) -> int:
        return sum(self.counts[t] for t in self.order)

    @cached_property
    def types(self) -> np.ndarray:
        """int64 [GPUs]: type of each."""
        return np.repeat(np.array(self.order, dtype=np.int64), [self.counts[t] for t in self.order])

    @cached_property
    def nodes(self) -> np.ndarray:
        """int64 [GPUs]: a number for its node."""
        out: list[int] = []
        for t in self.order:
            first = out[-1] + 1 if out else 0
            out += [first + k // self.request.fleet.node_gpus[t] for k in range(self.counts[t])]
        return np.array(out, dtype=np.int64)

    def parts(self, first: int, n: int) -> list[tuple[int, int]]:
        """(type, GPUs) of each run of one type among the n GPUs from `first` on."""
        inside_ = self.types[first : first + n]
        return [(t, int((inside_ == t).sum())) for t in dict.fromkeys(inside_.tolist())]

    def bytes_per_s(self, first: int, n: int) -> float:
        """The slowest link among the n GPUs from `first` on: the network where they are on several nodes."""
        links = self.request.performance.links
        if self.nodes[first] == self.nodes[first + n - 1]:
            return inside(self.request.fleet.types[self.types[first]], links)[0]
        return network_bytes_per_s(links, 1)

    def stage(
        self, span: tuple[int, int], first: int, n: int, *, tensor: int = 1, shares: Sequence[float] = ()
    ) -> Stage | None:
        """A stage on the n GPUs from `first` on, types with these shares of a micro-batch (default: by GPUs).

        None where the space has no such stage, a replica would be of two types, or a type has no share.
        """
        names, parts = self.request.fleet.names, self.parts(first, n)
        if len(parts) == 1:
            return Stage(*span, names[parts[0][0]], n, tensor) if n % tensor == 0 else None
        shares = shares or [gpus / n for _, gpus in parts]
        if not self.request.space.mixed or any(gpus % tensor for _, gpus in parts) or min(shares) <= 0:
            return None
        mixed = tuple(Part(names[t], gpus, share) for (t, gpus), share in zip(parts, shares, strict=True))
        return Stage(*span, mixed[0].gpu_type, n, tensor, mixed)


def divisors(n: int) -> list[int]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def first_that_fit(request: Request, plans: Iterable[Candidate]) -> Iterator[Plan]:
    """The `FEW` of least predicted time that run: one that is out of memory is tried, and the next one taken."""
    ran = 0
    for _, make in sorted(plans, key=lambda one: one[0]):
        plan = make()
        if plan is not None and request.truth(plan) is not None:
            yield plan
            ran += 1
            if ran == FEW:
                return
