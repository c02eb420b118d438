"""Max-load: a graph over accelerators and CPUs such that the slowest device is as fast as can be.

The problem of Tarnawski et al. (2020, 'Efficient Algorithms for Device Placement of DNN Graph Operators', sections 3
and 5): with many samples under way, the time of a sample is the load of the slowest device,

    load of an accelerator = sum of its operators' times
                           + transfer time of each operator on it that a reader elsewhere needs (out, once)
                           + transfer time of each operator elsewhere that it reads (in, once),
    load of a CPU          = sum of its operators' times.

Operators of one colour are on one device; memory binds accelerators only. Splits are found by
`policies.recommend.algorithms.maxload_solve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policies.recommend.request.recommend_error import RecommendError

TOLERANCE = 1e-6
"""A load is optimal where the bound is not farther below it than this part of it: CP-SAT counts in whole numbers."""


@dataclass(frozen=True, eq=False)
class MaxLoad:
    """A max-load problem on n operators. Times are in one unit, whichever.

    Attributes
    ----------
    accelerator, cpu : float64 [n]; time on a device of each kind, inf where an operator cannot be on it.
    memory : float64 [n]; what it takes on an accelerator.
    transfer : float64 [n]; time of a transfer of its output.
    edges : (source, reader).
    colour : int64 [n]; operators of one colour are on one device.
    backward : bool [n]
    accelerators, cpus : devices; accelerators are numbered first.
    capacity : memory of an accelerator, in the unit of `memory`.

    Raises
    ------
    RecommendError
        No device; a time, a memory or a transfer that is negative or unknown; an edge of no operator.
    """

    accelerator: np.ndarray
    cpu: np.ndarray
    memory: np.ndarray
    transfer: np.ndarray
    edges: tuple[tuple[int, int], ...]
    colour: np.ndarray
    backward: np.ndarray
    accelerators: int
    cpus: int
    capacity: float

    def __post_init__(self) -> None:
        n = len(self.accelerator)
        columns = (self.accelerator, self.cpu, self.memory, self.transfer)
        if any(len(c) != n for c in (*columns, self.colour, self.backward)):
            raise RecommendError("the columns of a max-load problem differ in length", where="max-load problem")
        if min(self.accelerators, self.cpus) < 0 or self.accelerators + self.cpus < 1:
            raise RecommendError("no device to place operators on", where="max-load problem",
                                 got=f"{self.accelerators} accelerators, {self.cpus} CPUs", allowed="1 or more")
        for name, column in zip(("accelerator", "cpu", "memory", "transfer"), columns, strict=True):
            bad = np.flatnonzero(~(column >= 0))
            if len(bad):
                raise RecommendError("a figure of an operator is negative or unknown",
                                     where=f"operator {bad[0]}, {name}", got=float(column[bad[0]]), allowed="0 or more")
        if n == 0 or not self.capacity >= 0:
            raise RecommendError("a max-load problem needs operators, and memory that is known",
                                 got=f"{n} operators, capacity {self.capacity}", allowed="1 or more, from 0")
        if any(not 0 <= end < n for edge in self.edges for end in edge):
            raise RecommendError("an edge names no operator", where="max-load problem", allowed=f"0..{n - 1}")

    def loads(self, device: Sequence[int] | np.ndarray) -> np.ndarray:
        """Load of each device, float64 [accelerators + cpus], by the definition; inf where its memory is exceeded."""
        at = np.asarray(device)
        on_cpu = at >= self.accelerators
        load = np.bincount(at, np.where(on_cpu, self.cpu, self.accelerator), minlength=self.accelerators + self.cpus)
        held = np.bincount(at, self.memory, minlength=len(load))
        touched: dict[int, set[int]] = {}
        for source, reader in self.edges:
            if at[source] != at[reader]:
                touched.setdefault(source, {int(at[source])}).add(int(at[reader]))
        for source, devices in touched.items():
            for d in devices:
                if d < self.accelerators:
                    load[d] += self.transfer[source]
        load[: self.accelerators][held[: self.accelerators] > self.capacity * (1 + 1e-12)] = np.inf
        return load

    @cached_property
    def forward_inputs(self) -> tuple[np.ndarray, list[list[int]]]:
        """Colour of each operator, numbered from 0, and the colours that each colour reads in the forward graph.

        An edge between backward operators counts, reversed, where one of its colours has no forward operator.
        """
        colour = np.unique(self.colour, return_inverse=True)[1]
        count = int(colour.max()) + 1 if len(colour) else 0
        has_forward = np.zeros(count, dtype=bool)
        has_forward[colour[~self.backward]] = True
        inputs: list[list[int]] = [[] for _ in range(count)]
        for source, reader in self.edges:
            a, b = int(colour[source]), int(colour[reader])
            if a == b:
                continue
            if not self.backward[source] and not self.backward[reader]:
                inputs[b].append(a)
            elif self.backward[source] and self.backward[reader] and not (has_forward[a] and has_forward[b]):
                inputs[a].append(b)
        return colour, inputs

    @cached_property
    def floor(self) -> float:
        """A load that no split beats: the slowest operator, and all the work shared without a rest or a transfer."""
        least = np.minimum(self.accelerator, self.cpu)
        floor = float(least.max(initial=0.0))
        low, high = floor, max(floor, float(least.sum()))
        for _ in range(60):
            middle = (low + high) / 2
            needed = _work(self.accelerator) - self.cpus * cpu_relief(self.accelerator, self.cpu, middle)
            low, high = (low, middle) if needed <= self.accelerators * middle else (middle, high)
        return low


@dataclass(frozen=True, eq=False)
class Split:
    """Where each operator is.

    Attributes
    ----------
    device : int64 [n]
    load : of the slowest device; inf: no split is known that fits.
    bound : no split of the kind that was asked for is better.
    down_sets : that were listed; 0: there were too many (the answer is of a few topological orders only), or none
        were needed.
    """

    device: np.ndarray
    load: float
    bound: float
    down_sets: int = 0

    @property
    def gap(self) -> float:
        """(load - bound) / load: how much better another split may be at most."""
        return 1.0 if self.load == np.inf else max(0.0, 1 - self.bound / self.load) if self.load else 0.0

    @property
    def optimal(self) -> bool:
        """Whether nothing better exists (but for `TOLERANCE`)."""
        return self.gap <= TOLERANCE


def _work(accelerator: np.ndarray) -> float:
    """What accelerators would have to do; what they cannot do is none."""
    return float(accelerator[np.isfinite(accelerator)].sum())


def cpu_relief(accelerator: np.ndarray, cpu: np.ndarray, load: float) -> float:
    """Most accelerator work that a CPU takes off within a load: a fractional knapsack."""
    can = np.isfinite(accelerator) & np.isfinite(cpu) & (accelerator > 0)
    work, time = accelerator[can], cpu[can]
    order = np.argsort(time / work, kind="stable")
    used = np.concatenate([[0.0], np.cumsum(time[order])])
    done = np.concatenate([[0.0], np.cumsum(work[order])])
    return float(np.interp(load, used, done)) if len(work) else 0.0


@dataclass(frozen=True, eq=False)
class Parts:
    """A problem on groups of operators that stay together: columns by group, and nets of more than one pin.

    A net is an output: its writer and its readers are its pins, and `weight` is its transfer time.
    """

    problem: MaxLoad
    of: np.ndarray  # group of each operator
    accelerator: np.ndarray
    cpu: np.ndarray
    memory: np.ndarray
    pins: tuple[tuple[int, ...], ...]
    weight: np.ndarray

    @staticmethod
    def build(problem: MaxLoad, of: np.ndarray) -> Parts:
        """Nets of equal pins are one."""
        n = int(of.max()) + 1 if len(of) else 0
        touched: dict[int, set[int]] = {}
        for source, reader in problem.edges:
            touched.setdefault(source, {int(of[source])}).add(int(of[reader]))
        nets: dict[tuple[int, ...], float] = {}
        for source, groups in sorted(touched.items()):
            if len(groups) > 1 and problem.transfer[source] > 0:
                key = tuple(sorted(groups))
                nets[key] = nets.get(key, 0.0) + float(problem.transfer[source])
        accelerator, cpu, memory = (
            np.bincount(of, column, minlength=n) for column in (problem.accelerator, problem.cpu, problem.memory)
        )
        return Parts(problem, of, accelerator, cpu, memory, tuple(nets), np.array(list(nets.values()), dtype=float))

    @cached_property
    def net_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Nets of each group and groups of each net: where each begins, and all in a row."""
        of_group: list[list[int]] = [[] for _ in self.accelerator]
        for e, groups in enumerate(self.pins):
            for g in groups:
                of_group[g].append(e)
        return *_rows(of_group), *_rows(self.pins)

    def devices(self, split: Split) -> np.ndarray:
        """Device of each group: where its operators are, or, should they be apart, the longest of them."""
        device = np.zeros(len(self.accelerator), dtype=np.int64)
        for op in np.argsort(self.problem.accelerator, kind="stable").tolist():
            device[self.of[op]] = split.device[op]
        return device

    def split(self, device: np.ndarray, bound: float, sets: int = 0) -> Split:
        """A split of the groups as one of the operators, its load by the definition."""
        operators = device[self.of]
        return Split(operators, float(self.problem.loads(operators).max(initial=0.0)), bound, sets)


def _rows(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    first = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return first, np.array([x for row in lists for x in row], dtype=np.int64)


def together(parts: Parts, upper: float, inputs: Sequence[Sequence[int]]) -> np.ndarray | None:
    """New label of each group where some never need to be apart in a split of load <= `upper`; None: no news.

    - A net that is cut costs its weight on an accelerator, beside a pin's own time, if two CPUs cannot share it.
      If that is above `upper`, it is not cut.
    - A group that takes no time anywhere, and whose memory cannot matter, may as well be with one that is in each of
      its nets, if `inputs` joins it to no other.
    """
    n = len(parts.accelerator)
    label = np.arange(n)

    def unite(groups: Sequence[int]) -> None:
        label[np.isin(label, label[list(groups)])] = label[groups[0]]

    if parts.problem.cpus <= 1:
        for groups, weight in zip(parts.pins, parts.weight, strict=True):
            if weight + parts.accelerator[list(groups)].min() > upper:
                unite(groups)
    roomy = parts.memory.sum() <= parts.problem.capacity
    joined: list[set[int]] = [set() for _ in range(n)]
    for g, sources in enumerate(inputs):
        for s in sources:
            joined[g].add(s)
            joined[s].add(g)
    shared: list[set[int] | None] = [None] * n  # groups that are in each net of a group
    for groups in parts.pins:
        for g in groups:
            known = shared[g]
            shared[g] = set(groups) if known is None else known & set(groups)
    idle = (parts.accelerator == 0) & (parts.cpu == 0) & (roomy | (parts.memory == 0))
    for g in np.flatnonzero(idle).tolist():
        in_nets, in_order = shared[g], joined[g]
        hosts = (set(range(n)) if in_nets is None else in_nets) - {g}
        hosts = hosts & in_order if len(in_order) == 1 else hosts if not in_order else set()
        if hosts:
            unite([min(hosts), g])
    return label if len(np.unique(label)) < n else None
