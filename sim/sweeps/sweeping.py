"""A sweep from its grid to a full folder: skip what is done, play the rest, write what comes, say how it goes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sim.results.schema import CELL_DONE, CELL_FAILED, CELL_WAITING
from sim.sweeps.backlog import Backlog
from sim.sweeps.cell import Outcome, Task
from sim.sweeps.executors import Executor
from sim.sweeps.grid import Cell, Grid, check_jobs
from sim.sweeps.store import Store, columns_of


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
        tried = (CELL_WAITING, CELL_FAILED) if retry_failed else (CELL_WAITING,)
        waiting = [cell for cell in asked if states[cell.id] in tried]
        check_jobs(waiting)
        playing = executor() if waiting else None  # may refuse: before anything is written
        try:
            store.describe(grid)
            for cell in grid.cells:
                if states[cell.id] == CELL_DONE:
                    store.redress(grid, cell)
            now = Progress(len(asked), sum(states[cell.id] == CELL_DONE for cell in asked), stale)
            if not retry_failed:
                now.failed = [(cell, store.records[cell.id]["error"]) for cell in asked
                              if states[cell.id] == CELL_FAILED]
                now.failed_before = len(now.failed)
            if playing is not None:
                _play(grid, store, playing, waiting, now, stop_on_error, on_progress)
        finally:
            if playing is not None:
                playing.close()
    return now


def _play(
    grid: Grid, store: Store, executor: Executor, cells: list[Cell], now: Progress, stop_on_error: bool,
    on_progress: Callable[[Progress], None],
) -> None:
    by_id = {cell.id: cell for cell in grid.cells}
    waiting = Backlog(cells, [(by_id[id_], record["wall_s"]) for id_, record in store.records.items()
                              if id_ in by_id and record.get("state") == CELL_DONE])
    stopped = False

    def tasks() -> Iterator[Task]:
        while not stopped and (cell := waiting.take()):
            yield Task(cell.id, cell.config, columns_of(grid, cell), grid.tables, grid.window, cell.sources,
                       os.getcwd())

    def tell() -> None:
        now.wall_s, now.workers, now.busy = time.monotonic() - now.began_s, executor.workers, executor.busy
        left_s = waiting.left_s()
        now.left_s = None if left_s is None else left_s / max(now.workers, 1)
        on_progress(now)

    now.began_s = time.monotonic()
    tell()
    for outcome in executor.outcomes(tasks()):
        cell = by_id[outcome.cell]
        _note(outcome, cell, now, waiting)
        stopped = stopped or (stop_on_error and bool(outcome.error))
        store.write(grid, cell, outcome)
        tell()


def _note(outcome: Outcome, cell: Cell, now: Progress, waiting: Backlog) -> None:
    now.cpu_s += outcome.cpu_s
    if outcome.error:
        now.failed.append((cell, outcome.error))
    else:
        now.done += 1
        waiting.learn(cell, outcome.wall_s)
