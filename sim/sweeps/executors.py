"""Who plays cells: this process, processes of this machine, or a Dask cluster. One interface, the same bytes."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Protocol

from sim.sweeps.cell import Outcome, Task, play

DEATHS = 2
"""A cell that has ended its worker so often is given up."""


class Executor(Protocol):
    """Plays cells."""

    @property
    def workers(self) -> int:
        """Cells that can be played at once; 0: not known yet."""

    @property
    def busy(self) -> int:
        """Cells that are being played."""

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Play cells; each outcome as it comes, in any order. A task is taken when a worker is free for it."""

    def close(self) -> None:
        """End the workers, whatever they do; what they were playing is lost."""


class Here:
    """This process, one cell after the other; for who calls from Python: a policy that ends its process ends it."""

    workers = 1

    def __init__(self) -> None:
        self.busy = 0

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        self.busy = 1
        for task in tasks:
            yield play(task)
        self.busy = 0

    def close(self) -> None:
        pass


class Processes:
    """Processes of this machine. Each has a pipe of its own, so that it is known which cell ended its worker.

    A worker that ends (killed, out of memory) is replaced, and its cell is tried again; after `DEATHS` deaths the cell
    has failed. Where this process may be forked, all begin at once, as copies of it: what it has imported and the
    traces that it has read are theirs, and no start is paid for again. Else each is spawned when it is needed.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._idle = [_Worker() for _ in range(workers)] if may_fork() else []
        self._at_work: dict[Connection, _Worker] = {}

    @property
    def busy(self) -> int:
        return len(self._at_work)

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        again: list[Task] = []
        deaths: dict[str, int] = {}

        def hand_out() -> None:
            while len(self._at_work) < self.workers and (task := again.pop() if again else next(tasks, None)):
                worker = self._idle.pop() if self._idle else _Worker()
                worker.begin(task)
                self._at_work[worker.pipe] = worker

        hand_out()
        while self._at_work:
            ended = []
            heard = wait(list(self._at_work))
            for worker in [worker for pipe, worker in self._at_work.items() if pipe in heard]:
                del self._at_work[worker.pipe]
                outcome = worker.outcome()
                if isinstance(outcome, Outcome):
                    self._idle.append(worker)
                    ended.append(outcome)
                    continue
                task = worker.task
                deaths[task.cell] = deaths.get(task.cell, 0) + 1
                if deaths[task.cell] < DEATHS:
                    again.append(task)
                else:
                    ended.append(Outcome(task.cell, error=f"its worker ended {DEATHS} times ({outcome})"))
            hand_out()  # first, so that no worker waits for what is done with the outcomes
            yield from ended

    def close(self) -> None:
        for worker in (*self._idle, *self._at_work.values()):
            worker.end()
        self._idle, self._at_work = [], {}


class _Worker:
    """A process that plays cells, and this end of its pipe."""

    task: Task

    def __init__(self) -> None:
        forks = may_fork()
        context = multiprocessing.get_context("fork" if forks else "spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_copied if forks else _serve, args=(there,), daemon=True)  # type: ignore[attr-defined]
        with _uninterrupted():
            self.process.start()
        there.close()  # so that its end is seen here

    def begin(self, task: Task) -> None:
        self.task = task
        with contextlib.suppress(OSError):  # it has ended meanwhile, which `outcome` will say
            self.pipe.send(task)

    def outcome(self) -> Outcome | str:
        """What came of the cell; if the worker ended, how."""
        try:
            outcome: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            self.pipe.close()
            return signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return outcome

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A process that is begun meanwhile ignores Ctrl-C, which is for the one that began the sweep. A signal to end
    waits: a process of which half is begun would complain."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say so; `_serve` does, a little later
        return
    ended: list[int] = []
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
              signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in ended:
            signal.raise_signal(number)


def may_fork() -> bool:
    """Whether a copy of this process can go on alone: on Linux, while no other thread could hold a lock in it.

    Threads of libraries are no matter: those of Arrow and OpenBLAS begin anew in a copy.
    """
    return sys.platform == "linux" and threading.active_count() == 1


def _copied(pipe: Connection) -> None:
    """`_serve` in a copy of who began the sweep, whose open files, the lock of the folder and the pipes of the other
    workers among them, and signals are not its own: when that one ends, nothing here may keep them."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()  # what was there before is not looked at again, and so not copied
    _serve(pipe)


def _serve(pipe: Connection) -> None:
    """Play what comes through the pipe until it is closed. Standard output is the command's alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # stderr may be closed
        os.dup2(2, 1)
    try:
        while True:
            pipe.send(play(pipe.recv(), worker=True))
    except (EOFError, OSError):
        return


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
