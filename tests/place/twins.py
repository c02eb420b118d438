"""Operators on devices played by processes in SimPy: the slow twin of `sim.kernels.place.run_schedule`.

Devices and channels are resources; nothing is computed ahead. All that happens at one instant is settled when no other
event is left at it: sends first, then what is ready, each by rank, then free devices take their next operator.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import simpy

from policies.place.placement_problem import Devices, PlacementGraph, costs, ranks

AFTER_ALL = 2
"""Priority of the calendar, behind SimPy's 0 (urgent) and 1 (normal)."""


class PlayedPlacement:
    """One execution; `start`, `end` by operator and `arrival` by edge are its result."""

    def __init__(
        self, graph: PlacementGraph, devices: Devices, device: np.ndarray, priority: np.ndarray | None, strict: bool
    ) -> None:
        self.graph, self.devices, self.device, self.strict = graph, devices, device.tolist(), strict
        self.eager = priority is None
        self.rank = (graph.rank if priority is None else ranks(graph, priority)).tolist()
        self.env = simpy.Environment()
        work, transfer = costs(graph, devices, device)
        self.work, self.transfer = work.tolist(), transfer.tolist()
        self.channel: dict[tuple[int, ...], simpy.Resource] = {}
        self.start, self.end, self.arrival = {}, {}, {}
        self.free_at = [0.0] * devices.count
        self.queue: list[list[int]] = [[] for _ in range(devices.count)]
        self.turn = [sorted(np.flatnonzero(device == d), key=self.rank.__getitem__) for d in range(devices.count)]
        self.copies: dict[tuple[int, int, int], tuple[simpy.Event, float]] = {}
        self.missing = np.bincount(graph.edges[:, 1], minlength=len(graph)).tolist()
        self.sending, self.ready = [], [op for op in range(len(graph)) if not self.missing[op]]
        self.settling = False
        self._ask()
        self.env.run()

    def _ask(self) -> None:
        """Settle this instant once, when all else of it is done."""
        if not self.settling:
            self.settling = True
            event = self.env.event()
            event.callbacks.append(self._settle)
            event._ok, event._value = True, None
            self.env.schedule(event, priority=AFTER_ALL)

    def _settle(self, _: simpy.Event) -> None:
        """One step; what follows from it at this instant comes before the next."""
        self.settling = False
        if self.sending:
            self._send(self._first(self.sending))
            self._ask()
        elif self.ready:
            self._is_ready(self._first(self.ready))
            self._ask()
        elif not self.eager:
            for d in range(self.devices.count):
                self._take(d)

    def _first(self, ops: list[int]) -> int:
        op = min(ops, key=self.rank.__getitem__)
        ops.remove(op)
        return op

    def _is_ready(self, op: int) -> None:
        d = self.device[op]
        if self.eager:
            self.start[op] = max(self.env.now, self.free_at[d])
            self.free_at[d] = self.end[op] = self.start[op] + self.work[op]
            self.sending.append(op)
        else:
            self.queue[d].append(op)

    def _take(self, d: int) -> None:
        if self.free_at[d] > self.env.now or not self.queue[d]:
            return
        if self.strict and self.turn[d][0] not in self.queue[d]:
            return
        op = self._first(self.queue[d])
        self.turn[d].remove(op)
        self.start[op] = self.env.now
        self.free_at[d] = self.end[op] = self.env.now + self.work[op]
        self.env.process(self._run(op))

    def _run(self, op: int) -> Generator:
        yield self.env.timeout(self.work[op])
        self.sending.append(op)
        self._ask()

    def _send(self, op: int) -> None:
        edges = np.flatnonzero(self.graph.edges[:, 0] == op)
        if not self.eager:
            edges = sorted(edges, key=lambda e: (self.rank[self.graph.edges[e, 1]], e))
        for e in map(int, edges):
            here, there = self.device[op], self.device[self.graph.edges[e, 1]]
            if here == there:
                self.env.process(self._deliver(e, self._at(self.end[op])))
                continue
            tensor = int(self.graph.tensor[e]) if self.devices.cache else e
            if (op, tensor, there) not in self.copies:
                done = self.env.event()
                self.copies[op, tensor, there] = done
                self._transfer(self.transfer[e], self.end[op], here, there, done)
            self.env.process(self._deliver(e, self.copies[op, tensor, there]))

    def _at(self, time: float) -> simpy.Event:
        return self.env.timeout(time - self.env.now)

    def _resource(self, *key: int) -> simpy.Resource:
        return self.channel.setdefault(key, simpy.Resource(self.env))

    def _transfer(self, length: float, from_s: float, here: int, there: int, done: simpy.Event) -> None:
        """Queue at both channels at once; they serve in the order of requests."""
        shared = self.devices.links == "shared"
        out = self._resource(here) if shared else self._resource(here, there)
        into = self._resource(there) if shared else None
        asked = out.request(), into.request() if into else None

        def sender() -> Generator:
            yield asked[0]
            yield self._at(max(from_s, self.env.now))
            began.succeed()
            yield self.env.timeout(length)
            out.release(asked[0])
            if not into:
                done.succeed()

        def receiver() -> Generator:
            yield began & asked[1]
            yield self.env.timeout(length)
            into.release(asked[1])
            done.succeed()

        began = self.env.event()
        self.env.process(sender())
        if into:
            self.env.process(receiver())

    def _deliver(self, e: int, event: simpy.Event) -> Generator:
        yield event
        self.arrival[e] = self.env.now
        reader = int(self.graph.edges[e, 1])
        self.missing[reader] -= 1
        if not self.missing[reader]:
            self.ready.append(reader)
            self._ask()
