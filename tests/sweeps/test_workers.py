"""Worker processes: the same bytes by however many, and nothing lost when one is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sim.sweeps.cell import Outcome, Task
from sim.sweeps.executors import DEATHS, Here, Processes, may_fork
from sim.sweeps.kept import TRACES
from sim.sweeps.store import Store, columns_of
from tests.sweeps.conftest import content, played

EIGHT = 'policy = ["fifo", "srtf"]\nseed = [0, 1, 2, 3]'


class KillsOne(Processes):
    """Workers of which one is killed while it plays."""

    killed = 0

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        for number, outcome in enumerate(super().outcomes(tasks)):
            if number == 1:
                os.kill(next(iter(self._at_work.values())).process.pid, signal.SIGKILL)
                self.killed += 1
            yield outcome


class Bomb:
    """What ends the process that unpacks it."""

    def __reduce__(self):
        return os._exit, (3,)


@pytest.mark.slow  # most of it is the start of the workers
def test_p64_the_number_of_workers_changes_no_byte_and_a_killed_one_loses_nothing(grid):
    """1, 2 and 4 of them; of the two, one is killed in the middle of a cell, which is played again."""
    made = grid(EIGHT)
    played(made, "one", Here)
    two, four = KillsOne(2), Processes(4)
    for folder, executor in (("two", two), ("four", four)):
        now = played(made, folder, lambda executor=executor: executor)
        assert (now.done, now.failed) == (8, [])
        assert content(folder) == content("one")
    assert two.killed == 1


def test_a_cell_that_ends_its_worker_twice_has_failed_and_others_go_on(grid):
    made = grid("seed = [0, 1]")
    tasks = tasks_of(made)
    executor = Processes(1)
    try:
        outcomes = list(executor.outcomes(iter([replace(tasks[0], config=Bomb()), tasks[1]])))
    finally:
        executor.close()
    assert [(outcome.cell, outcome.error) for outcome in outcomes] == [
        (tasks[0].cell, f"its worker ended {DEATHS} times (exit code 3)"), (tasks[1].cell, "")]


def test_closing_ends_the_workers(grid):
    made = grid("seed = [0, 1]")
    tasks = (Task(cell.id, cell.config, (), (), {}, cell.sources, os.getcwd()) for cell in made.cells)
    executor = Processes(1)
    next(executor.outcomes(tasks))
    (worker,) = (*executor._idle, *executor._at_work.values())
    pid = worker.process.pid
    executor.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def tasks_of(made):
    return [Task(cell.id, cell.config, columns_of(made, cell), (), {}, cell.sources, os.getcwd())
            for cell in made.cells]


def test_beside_another_thread_workers_are_spawned_and_yield_the_same_bytes(grid):
    """A copy of a process whose other thread holds a lock would wait for it for ever."""
    made, stop = grid("seed = [0, 1]"), threading.Event()
    played(made, "alone", lambda: Processes(1))
    beside = threading.Thread(target=stop.wait)
    beside.start()
    try:
        assert not may_fork()
        played(made, "beside", lambda: Processes(1))
    finally:
        stop.set()
        beside.join()
    assert content("beside") == content("alone")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forked, whatever threads other tests have left in this process."""
    if sys.platform != "linux":
        pytest.skip("workers are spawned here")
    monkeypatch.setattr("sim.sweeps.executors.may_fork", lambda: True)


def test_a_forked_worker_has_the_traces_that_were_read_and_reads_none(grid, forked, monkeypatch):
    made = grid('trace = ["jobs.csv"]\ncluster = ["v100:2"]')
    monkeypatch.setattr("sim.sweeps.kept.whole_trace", None)  # who reads a trace fails
    executor = Processes(1)
    try:
        (outcome,) = executor.outcomes(iter(tasks_of(made)))
    finally:
        executor.close()
    assert (outcome.error, len(TRACES._kept) > 0) == ("", True)


def test_a_forked_worker_keeps_no_file_of_who_began_the_sweep(grid, forked):
    """A copy that kept the lock of the folder would hold it after a kill -9 of the sweep."""
    store = Store(Path("out"))
    with store.opened():
        executor = Processes(2)
        try:
            for worker in executor._idle:
                worker.begin(tasks_of(grid("seed = [0]"))[0])
                assert isinstance(worker.outcome(), Outcome)  # it has begun
            held = [os.readlink(file) for worker in executor._idle
                    for file in Path(f"/proc/{worker.process.pid}/fd").iterdir()]
        finally:
            executor.close()
    assert not [file for file in held if file.endswith(".lock")]
    assert sum(file.startswith("socket:") for file in held) == 2, held
