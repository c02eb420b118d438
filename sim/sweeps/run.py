"""A sweep from its grid to a full folder: skip what is done, play the rest, write what comes, say how it goes."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sim.sweeps.cell import Outcome, Task
from sim.sweeps.executors import Executor
from sim.sweeps.grid import Cell, Grid, check_jobs
from sim.sweeps.store import DONE, FAILED, WAITING, Store, columns_of


@dataclass
class Progress:
    """How far a sweep is.

    Attributes
    ----------
    cells : that were asked for.
    before : of these, done before.
    done, failed : of the others, by now; `failed` has each with its error, also those that failed before.
    failed_before : that were not tried again.
    stale : cells of other settings, files or code that were put aside.
    began_s : on the clock of `time.monotonic`.
    wall_s : since then.
    cpu_s : processor time of the cells played.
    left_s : time still needed, as cells alike have needed; None: nothing is known yet.
    workers, busy : of the executor.
    """

    cells: int
    before: int
    stale: int
    failed_before: int = 0
    done: int = 0
    failed: list[tuple[Cell, str]] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    left_s: float | None = None
    workers: int = 0
    busy: int = 0

    @property
    def played(self) -> int:
        """Cells that were played by now."""
        return self.done + len(self.failed) - self.failed_before

    @property
    def busy_share(self) -> float | None:
        """Processor time of the cells / (time × workers): 1 where each worker always computed; None: nothing ran."""
        offered_s = self.wall_s * self.workers
        return self.cpu_s / offered_s if offered_s > 0 and self.played else None


class Waiting:
    """Cells that are yet to be played; next is that which should take longest, as others like it did.

    Alike are cells that differ in the seed only, then those of one policy. Of a policy that nothing is known of, the
    cells come first, in the order of the file. So no long cell is left for the end, when other workers have none.
    """

    def __init__(self, cells: Iterable[Cell], known: Iterable[tuple[Cell, float]]) -> None:
        self._groups: dict[tuple[object, ...], deque[Cell]] = {}
        for cell in cells:
            self._groups.setdefault(_alike(cell), deque()).append(cell)
        self._time: dict[object, tuple[float, int]] = {}
        for cell, wall_s in known:
            self.learn(cell, wall_s)

    def learn(self, cell: Cell, wall_s: float) -> None:
        """A cell took so long."""
        for key in (_alike(cell), cell.policy):
            total, count = self._time.get(key, (0.0, 0))
            self._time[key] = total + wall_s, count + 1

    def expected_s(self, alike: tuple[object, ...], policy: str) -> float | None:
        total, count = self._time.get(alike) or self._time.get(policy) or (0.0, 0)
        return total / count if count else None

    def take(self) -> Cell | None:
        if not self._groups:
            return None
        alike = max(self._groups, key=self._rank)  # the first of equals
        cells = self._groups[alike]
        cell = cells.popleft()
        if not cells:
            del self._groups[alike]
        return cell

    def _rank(self, alike: tuple[object, ...]) -> float:
        expected = self.expected_s(alike, self._groups[alike][0].policy)
        return float("inf") if expected is None else expected

    def left_s(self) -> float | None:
        """Time that all of them need, one after the other; None: of some, nothing is known."""
        total = 0.0
        for alike, cells in self._groups.items():
            expected = self.expected_s(alike, cells[0].policy)
            if expected is None:
                return None
            total += expected * len(cells)
        return total


def _alike(cell: Cell) -> tuple[object, ...]:
    return (cell.policy, *(value for name, value in cell.axes.items() if name != "seed"))


def sweep(
    grid: Grid, store: Store, executor: Callable[[], Executor], cells: Iterable[Cell] | None = None, *,
    retry_failed: bool = False, stop_on_error: bool = False, prune: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Play what is not done yet.

    Parameters
    ----------
    executor : makes who plays; it is not called where nothing is left.
    cells : those that are asked for; default: all of the grid.
    retry_failed : play cells again that failed before; else they are told of, and stay.
    stop_on_error : begin no cell after one has failed.
    prune : remove what was put aside: cells that are not of the grid.
    on_progress : called as cells begin to be played, and with each that ends.

    Raises
    ------
    HetsimError
        Jobs that cannot be taken, a folder that cannot be written.
    """
    asked = list(grid.cells if cells is None else cells)
    with store.opened():
        stale = store.sort_out(grid)
        if prune:
            store.prune()
            stale = 0
        states = {cell.id: store.state(grid, cell) for cell in grid.cells}
        tried = (WAITING, FAILED) if retry_failed else (WAITING,)
        waiting = [cell for cell in asked if states[cell.id] in tried]
        check_jobs(waiting)
        store.describe(grid)
        for cell in grid.cells:
            if states[cell.id] == DONE:
                store.redress(grid, cell)
        now = Progress(len(asked), sum(states[cell.id] == DONE for cell in asked), stale)
        if not retry_failed:
            now.failed = [(cell, store.records[cell.id]["error"]) for cell in asked if states[cell.id] == FAILED]
            now.failed_before = len(now.failed)
        if waiting:
            _play(grid, store, executor(), waiting, now, stop_on_error, on_progress)
    return now


def _play(
    grid: Grid, store: Store, executor: Executor, cells: list[Cell], now: Progress, stop_on_error: bool,
    on_progress: Callable[[Progress], None],
) -> None:
    by_id = {cell.id: cell for cell in grid.cells}
    waiting = Waiting(cells, [(by_id[id_], record["wall_s"]) for id_, record in store.records.items()
                              if id_ in by_id and record.get("state") == DONE])
    stopped = False

    def tasks() -> Iterator[Task]:
        while not stopped and (cell := waiting.take()):
            yield Task(cell.id, cell.config, columns_of(grid, cell), grid.tables, cell.sources, os.getcwd())

    def tell() -> None:
        now.wall_s, now.workers, now.busy = time.monotonic() - now.began_s, executor.workers, executor.busy
        left_s = waiting.left_s()
        now.left_s = None if left_s is None else left_s / max(now.workers, 1)
        on_progress(now)

    now.began_s = time.monotonic()
    try:
        tell()
        for outcome in executor.outcomes(tasks()):
            cell = by_id[outcome.cell]
            _note(outcome, cell, now, waiting)
            stopped = stopped or (stop_on_error and bool(outcome.error))
            store.write(grid, cell, outcome)
            tell()
    finally:
        executor.close()


def _note(outcome: Outcome, cell: Cell, now: Progress, waiting: Waiting) -> None:
    now.cpu_s += outcome.cpu_s
    if outcome.error:
        now.failed.append((cell, outcome.error))
    else:
        now.done += 1
        waiting.learn(cell, outcome.wall_s)
