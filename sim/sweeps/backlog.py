"""Cells that are yet to be played: which comes next, and how long all of them take."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from sim.sweeps.grid import Cell


@dataclass
class _Times:
    """What cells alike took, in s."""

    total_s: float = 0.0
    count: int = 0

    def add(self, wall_s: float) -> None:
        self.total_s, self.count = self.total_s + wall_s, self.count + 1

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count


@dataclass
class _Group:
    """Cells that differ in the seed only; `number` is its place in the file."""

    number: int
    cells: deque[Cell] = field(default_factory=deque)
    times: _Times = field(default_factory=_Times)


@dataclass
class _Policy:
    """Its groups of which nothing is known yet, in the order of the file, with others among them; and their cells."""

    times: _Times = field(default_factory=_Times)
    strange: deque[_Group] = field(default_factory=deque)
    cells: int = 0

    def first(self) -> _Group | None:
        while self.strange and (self.strange[0].times.count or not self.strange[0].cells):
            self.strange.popleft()
        return self.strange[0] if self.strange else None


class Backlog:
    """Cells that are yet to be played; next is that which should take longest, as others like it did.

    Alike are cells that differ in the seed only, then those of one policy. Of a policy that nothing is known of, the
    cells come first, in the order of the file. So no long cell is left for the end, when other workers have none.

    A cell costs O(log groups + policies): groups of known times are in a heap, in which what is out of date is passed
    over, and all other groups of a policy rank alike.
    """

    def __init__(self, cells: Iterable[Cell], known: Iterable[tuple[Cell, float]]) -> None:
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._policies: dict[str, _Policy] = {}
        self._known: list[tuple[float, int, _Group]] = []  # (-mean_s, place in the file, the group)
        self._left_s = 0.0  # of groups of known times
        for cell in cells:
            policy = self._policies.setdefault(cell.policy, _Policy())
            if (alike := _alike(cell)) not in self._groups:
                self._groups[alike] = _Group(len(self._groups))
                policy.strange.append(self._groups[alike])
            self._groups[alike].cells.append(cell)
            policy.cells += 1
        for cell, wall_s in known:
            self.learn(cell, wall_s)

    def learn(self, cell: Cell, wall_s: float) -> None:
        """A cell took so long."""
        group, policy = self._groups.get(_alike(cell)), self._policies.get(cell.policy)
        if policy is not None:
            policy.times.add(wall_s)
        if group is None or policy is None:
            return
        if group.times.count:
            self._left_s -= group.times.mean_s * len(group.cells)
        else:
            policy.cells -= len(group.cells)
        group.times.add(wall_s)
        self._left_s += group.times.mean_s * len(group.cells)
        heappush(self._known, (-group.times.mean_s, group.number, group))

    def take(self) -> Cell | None:
        """The next cell; None: there is none."""
        best = min(self._firsts(), key=lambda one: one[:2], default=None)
        if best is None:
            return None
        _, _, group, policy = best
        if policy is None:
            self._left_s -= group.times.mean_s
        else:
            policy.cells -= 1
        return group.cells.popleft()

    def _firsts(self) -> Iterator[tuple[float, int, _Group, _Policy | None]]:
        """The first of the groups of known times, and of the others of each policy: (-what a cell takes, place, …)."""
        while self._known and (not self._known[0][2].cells or -self._known[0][0] != self._known[0][2].times.mean_s):
            heappop(self._known)
        if self._known:
            yield (*self._known[0], None)
        for policy in self._policies.values():
            if group := policy.first():
                yield -policy.times.mean_s if policy.times.count else -float("inf"), group.number, group, policy

    def left_s(self) -> float | None:
        """Time that all of them need, one after the other; None: of some, nothing is known."""
        strange = [policy for policy in self._policies.values() if policy.cells]
        if not all(policy.times.count for policy in strange):
            return None
        return self._left_s + sum(policy.cells * policy.times.mean_s for policy in strange)


def _alike(cell: Cell) -> tuple[object, ...]:
    return (cell.policy, *(value for name, value in cell.axes.items() if name != "seed"))
