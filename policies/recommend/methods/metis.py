"""Metis: groups of devices as stages, data and tensor parallelism within each, layers by measured speed and memory.

Um et al., 'Metis: Fast Automatic Distributed Training on Heterogeneous GPUs', USENIX ATC 2024. For each order of the
types, the row of all GPUs given is cut into groups of 1, 2, 4, ... GPUs, none below `LEAST_GROUP` of the even one, in
orders of at most `MOST_PERMUTED` bundles of groups. Each group starts with data parallelism only; layers are cut in
proportion to the groups' speeds on the whole model. While memory does not allow that cut, the group with the least
memory left takes the next degree of tensor parallelism. In a group of two types each replica gets samples in
proportion to its speed. The few best by its own cost model are tried:

    (m - 1) max stage + sum of stages + sum of transfers + longest all-reduce + longest optimizer step.

May choose: stages, their groups, layers, shares, tensor parallelism, micro-batches, the order of types.
May not: types and numbers of GPUs: it uses all. Groups of two types need a space that allows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise, permutations

import numpy as np

from policies.recommend.algorithms.balance import least_bottleneck, spans
from policies.recommend.methods.hetpipe import orders
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Candidate, Devices, Style, first_that_fit, given, styles
from policies.recommend.request.pace import step_pace_s
from policies.recommend.request.request import Request
from sim.api import Plan
from sim.performance.samples import largest_share

LEAST_GROUP = 0.5
"""Least group as a fraction of the even one."""
MOST_PERMUTED = 4
"""Bundles whose orders are tried."""
MOST_TRIED = 24_000
"""Groupings x micro-batches x degrees of tensor parallelism that are balanced, those of few stages first."""


def propose(request: Request) -> Iterator[Plan]:
    """The few best plans of each way of training that run."""
    if request.measured:
        return
    layers = Layers(request)
    for counts in given(request):
        rows = [Devices(request, counts, order) for order in orders(request, counts)]
        for style in styles(request):
            yield from first_that_fit(request, _plans(request, layers, rows, style))


def groupings(gpus: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Cuts of a row of GPUs into groups of powers of two (module text)."""
    least = max(gpus // stages, 1) * LEAST_GROUP
    sizes = [1 << k for k in range(gpus.bit_length()) if least <= 1 << k <= gpus]
    for rising in _rising(gpus, stages, sizes):
        yield from _permuted(rising)


def _rising(gpus: int, stages: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Non-decreasing sizes, `stages` of them, that sum to `gpus`."""
    if stages == 0:
        if gpus == 0:
            yield ()
        return
    for k, size in enumerate(sizes):
        if size * stages > gpus:
            return
        for rest in _rising(gpus - size, stages - 1, sizes[k:]):
            yield (size, *rest)


def _permuted(rising: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Orders of the groups; of many, neighbours of one size are bundled, so that few bundles are permuted."""
    bundles: list[tuple[int, ...]] = [(size,) for size in rising]
    while len(bundles) > MOST_PERMUTED:
        pairs = [k for k in range(len(bundles) - 1) if set(bundles[k]) == set(bundles[k + 1])]
        if not pairs:
            break
        k = min(pairs, key=lambda k: (len(bundles[k]) + len(bundles[k + 1]), k))
        bundles[k : k + 2] = [bundles[k] + bundles[k + 1]]
    yield from dict.fromkeys(sum(order, ()) for order in permutations(bundles))


def _plans(
    request: Request, layers: Layers, rows: Sequence[Devices], style: Style
) -> Iterator[Candidate]:
    """Predicted time and plan for each grouping and number of micro-batches."""
    n, ways = len(rows[0]), sorted(layers.ways(request.space.tensor))
    balancers = [[_Balancer(request, layers, row, style, m, ways) for m in request.space.micro_batches] for row in rows]
    tried = (
        candidate
        for p in range(1, min(n, len(layers)) + 1 if ways else 0) for sizes in groupings(n, p)
        for row, of_row in zip(rows, balancers, strict=True) if request.space.mixed or _pure(row, sizes)
        for balancer in of_row for candidate in balancer.plans(sizes)
    )  # fmt: skip
    yield from (candidate for candidate in islice(tried, MOST_TRIED) if candidate is not None)


def _pure(row: Devices, sizes: tuple[int, ...]) -> bool:
    """Whether each group is of one type."""
    ends = np.cumsum(sizes)
    return bool((row.types[ends - sizes] == row.types[ends - 1]).all())


@dataclass(frozen=True, eq=False)
class _Group:
    """GPUs that may be a stage, each replica of `ways` of them.

    Attributes
    ----------
    parts : (type, replicas, share of a micro-batch) of each type.
    running_s : float64 [L + 1, parts], running sum over layers of the time of a micro-batch.
    cost : float64 [L + 1, L + 1], what each stage would take in proportion to the time on one type.
    sum_s, step_s : float64 [L + 1], running sums over layers of the all-reduce and of the optimizer step.
    """

    first: int
    size: int
    ways: int
    parts: list[tuple[int, int, float]]
    running_s: np.ndarray
    cost: np.ndarray
    sum_s: np.ndarray
    step_s: np.ndarray

    @property
    def replicas(self) -> int:
        return self.size // self.ways


class _Balancer:
    """Balances a row of GPUs, m micro-batches, in one way of training; `ways` are the degrees of tensor parallelism."""

    def __init__(
        self, request: Request, layers: Layers, row: Devices, style: Style, m: int, ways: list[int]
    ) -> None:
        self.request, self.layers, self.row, self.style, self.m, self.ways = request, layers, row, style, m, ways
        self.micro = request.batch_size / m
        self._groups: dict[tuple[int, int, int], _Group | None] = {}
        self._rooms: dict[tuple[int, int, int, int], np.ndarray] = {}

    def plans(self, sizes: tuple[int, ...]) -> Iterator[Candidate | None]:
        """Predicted time and plan (None: memory has none) from data to tensor parallelism, until memory is enough."""
        firsts = [sum(sizes[:s]) for s in range(len(sizes))]
        degrees: list[int] | None = [self.ways[0]] * len(sizes)
        while degrees is not None:
            made = [self._group(*group) for group in zip(firsts, sizes, degrees, strict=True)]
            groups = [group for group in made if group is not None]
            cuts, free = None, False
            # The fewer GPUs to a replica, the nearer to its limit.
            left = [ways / size for ways, size in zip(degrees, sizes, strict=True)]
            if len(groups) == len(made):
                cuts, free, left = self._cuts(groups)
            yield None if cuts is None else (self._predicted_s(groups, cuts), partial(self._plan, groups, cuts))
            degrees = None if free else self._more_tensor(firsts, sizes, degrees, left)

    def _group(self, first: int, size: int, ways: int) -> _Group | None:
        """A group; None: a replica would be of two types or nodes, or get less than a sample."""
        key = first, size, ways
        if key not in self._groups:
            self._groups[key] = self._made(*key)
        return self._groups[key]

    def _made(self, first: int, size: int, ways: int) -> _Group | None:
        request, layers, fleet, parts = self.request, self.layers, self.request.fleet, self.row.parts(first, size)
        nodes = min(fleet.node_gpus[t] for t, _ in parts)
        if ways > nodes or any(n % ways for _, n in parts) or self.micro < size // ways:
            return None
        speeds = [n // ways / float(layers.time_s(t, 1.0, ways)[-1]) for t, n in parts]
        shared = [(t, n // ways, v / sum(speeds)) for (t, n), v in zip(parts, speeds, strict=True)]
        running_s = np.stack([
            layers.time_s(t, largest_share(self.micro * share / replicas), ways, recompute=self.style.recompute)
            for t, replicas, share in shared
        ], axis=1)  # fmt: skip
        replicas, bytes_per_s = size // ways, self.row.bytes_per_s(first, size)
        sum_s = 2 * (replicas - 1) / replicas * layers.params / ways * layers.value_bytes / bytes_per_s
        step_s = max(step_pace_s(request.performance, request.model, fleet.types[t])
                     for t, _ in parts)
        normal = layers.time_s(self.row.order[0], 1.0, self.ways[0])
        return _Group(first, size, ways, shared, running_s, spans(normal / normal[-1]) * float(running_s[-1].max()),
                      sum_s, step_s / ways * layers.params / max(float(layers.params[-1]), 1.0))

    def _room_gib(self, group: _Group, held: int) -> np.ndarray:
        """float64 [L + 1, L + 1]: memory that is left in a stage on this group, of the type with the least."""
        key = group.first, group.size, group.ways, held
        if key not in self._rooms:
            self._rooms[key] = np.min([
                self.request.fleet.types[t].memory_gib - self.layers.memory_gib(
                    largest_share(self.micro * share / replicas), held, group.ways, group.replicas, self.style)
                for t, replicas, share in group.parts
            ], axis=0)  # fmt: skip
        return self._rooms[key]

    def _cuts(self, groups: list[_Group]) -> tuple[list[int] | None, bool, list[float]]:
        """Cuts within memory, whether memory left them free, and the memory that each stage has left without it."""
        costs = [group.cost for group in groups]
        free = least_bottleneck(costs)
        if free is None:
            return None, False, [0.0] * len(groups)
        rooms = [
            self._room_gib(group, self.layers.held(self.style, s, len(groups), self.m))
            for s, group in enumerate(groups)
        ]
        left = [float(room[i, j]) for room, (i, j) in zip(rooms, pairwise(free[0]), strict=True)]
        if min(left) >= 0:
            return free[0], True, left
        bound = least_bottleneck([np.where(room >= 0, cost, np.inf) for cost, room in zip(costs, rooms, strict=True)])
        return None if bound is None else bound[0], False, left

    def _more_tensor(
        self, firsts: Sequence[int], sizes: Sequence[int], degrees: list[int], left: list[float]
    ) -> list[int] | None:
        """More tensor parallelism for the group with the least left that can have it; None: none can."""
        for s in sorted(range(len(degrees)), key=lambda s: left[s]):
            for ways in self.ways:
                if ways > degrees[s] and self._group(firsts[s], sizes[s], ways) is not None:
                    return [*degrees[:s], ways, *degrees[s + 1 :]]
        return None

    def _predicted_s(self, groups: list[_Group], cuts: list[int]) -> float:
        """Time of an iteration by its own cost model (module text)."""
        stages = list(zip(groups, pairwise(cuts), strict=True))
        lengths_s = [float((group.running_s[j] - group.running_s[i]).max()) for group, (i, j) in stages]
        moved_s = sum(
            self.micro / group.replicas * float(self.layers.cut_bytes[j])
            / self.row.bytes_per_s(group.first, group.size + after.size)
            for (group, (_, j)), (after, _) in pairwise(stages)
        )
        sum_s, step_s = (
            max(float(running[j] - running[i]) for running, (i, j) in zip(of, pairwise(cuts), strict=True))
            for of in ([group.sum_s for group in groups], [group.step_s for group in groups])
        )
        return (self.m - 1) * max(lengths_s) + sum(lengths_s) + moved_s + sum_s + step_s

    def _plan(self, groups: list[_Group], cuts: list[int]) -> Plan | None:
        return self.style.plan([
            self.row.stage(self.layers.span(i, j), group.first, group.size, tensor=group.ways,
                           shares=[share for _, _, share in group.parts])
            for group, (i, j) in zip(groups, pairwise(cuts), strict=True)
        ], self.m)  # fmt: skip
