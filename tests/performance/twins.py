"""Slow twins of the pipeline kernels: the same machine played event by event with SimPy.

GPUs are processes that work through a list; each border between neighbours has a channel a direction (a resource that
serves one message at a time, first come, first served).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

Pass = tuple[str, int, int]
"""'f' or 'b', stage, micro-batch."""


def order(schedule: str, g: int, p: int, m: int, chunks: int = 1) -> list[Pass]:
    """What GPU g of p does, written as a list."""
    if schedule == "interleaved":
        return _interleaved(g, p, m, chunks)
    if schedule == "gpipe":
        return [("f", g, k) for k in range(m)] + [("b", g, k) for k in range(m)]
    warm = min(m, p - g)
    todo: list[Pass] = [("f", g, k) for k in range(warm)]
    for k in range(m):
        todo.append(("b", g, k))
        if warm + k < m:
            todo.append(("f", g, warm + k))
    return todo


def _interleaved(g: int, p: int, m: int, chunks: int) -> list[Pass]:
    forwards: list[Pass] = []
    backwards: list[Pass] = []
    for group in range(0, m, p):
        for chunk in range(chunks):
            forwards += [("f", chunk * p + g, group + k) for k in range(p)]
            backwards += [("b", (chunks - 1 - chunk) * p + g, group + k) for k in range(p)]
    warm = min(m * chunks, 2 * (p - g - 1) + (chunks - 1) * p)
    todo, forwards = forwards[:warm], forwards[warm:]
    while backwards:
        if forwards:
            todo.append(forwards.pop(0))
        todo.append(backwards.pop(0))
    return todo


class Twin:
    """A pipeline, played to its end.

    Attributes
    ----------
    last_end : end of each stage's last backward (of its message, where transfers block).
    ends : of stage 0, the end of each backward.
    most_held : of each GPU, the most passes whose activations it held at once.
    most_stored : of each GPU, the most that they took, if a pass of stage q stores stored[q].
    """

    def __init__(
        self,
        schedule: str,
        fwd: Any,
        bwd: Any,
        comm_fwd: Any,
        comm_bwd: Any,
        m: int,
        *,
        chunks: int = 1,
        blocking: bool = False,
        sync: Any = None,
        stored: Any = None,
    ) -> None:
        self.env, self.stages, self.p = simpy.Environment(), len(fwd), len(fwd) // chunks
        self.time = {"f": fwd, "b": bwd}
        self.comm = {"f": comm_fwd, "b": comm_bwd}
        self.blocking, self.sync = blocking, sync
        self.ready = {(kind, q, k): self.env.event() for kind in "fb" for q in range(self.stages) for k in range(m)}
        self.channel = {(kind, g): simpy.Resource(self.env) for kind in "fb" for g in range(self.p)}
        self.held, self.most_held = [0] * self.p, [0] * self.p
        self.stored = [0.0] * self.stages if stored is None else stored
        self.takes, self.most_stored = [0.0] * self.p, [0.0] * self.p
        self.last_end: list[float] = [0.0] * self.stages
        self.ends: list[float] = []
        for k in range(m):
            self.ready["f", 0, k].succeed()
        for g in range(self.p):
            self.env.process(self.gpu(g, order(schedule, g, self.p, m, chunks)))
        self.env.run()
        assert all(event.processed for event in self.ready.values()), "the schedule stopped before its end"

    def gpu(self, g: int, todo: list[Pass]) -> Generator:
        for kind, q, k in todo:
            yield self.ready[kind, q, k]
            if kind == "f":
                self.hold(g, 1, self.stored[q])
            yield self.env.timeout(self.time[kind][q])
            if kind == "f" and q == self.stages - 1:
                self.ready["b", q, k].succeed()
            elif (target := q + 1 if kind == "f" else q - 1) >= 0:
                seconds = self.comm[kind][min(q, target)]
                if self.blocking:
                    yield self.env.timeout(seconds)
                    self.ready[kind, target, k].succeed()
                else:
                    self.env.process(self.send(kind, g, seconds, self.ready[kind, target, k]))
            if kind == "b":
                self.hold(g, -1, -self.stored[q])
                self.last_end[q] = self.env.now
                if self.sync is not None:
                    yield self.env.timeout(self.sync[q])
                if q == 0:
                    self.ends.append(self.env.now)

    def hold(self, g: int, passes: int, stored: float) -> None:
        self.held[g] += passes
        self.takes[g] += stored
        self.most_held[g] = max(self.most_held[g], self.held[g])
        self.most_stored[g] = max(self.most_stored[g], self.takes[g])

    def send(self, kind: str, g: int, seconds: float, arrived: simpy.Event) -> Generator:
        """GPU g sends in its direction: forward to the next, backward to the one before."""
        with self.channel[kind, g].request() as turn:
            yield turn
            yield self.env.timeout(seconds)
        arrived.succeed()
