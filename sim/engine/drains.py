"""Maintenance windows on the clock: GPUs are drained, go out of service, and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.api import View
from sim.cluster.maintenance import Window
from sim.cluster.spec import Ledger
from sim.engine.clock import CHANGE, Clock
from sim.engine.outages import Outages
from sim.results.schema import BACK, DRAINED, OUT


class Drains:
    """Keeps the ledger true: from drain_s until up_s of a window nobody takes of its GPUs.

    The engine frees the jobs that still run there at down_s (`on_out`) and is asked for a decision after each change
    (`ask`), also when the policy is told of a window, if it declared that it wants to know.
    """

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        windows: tuple[Window, ...],
        view: View,
        on_out: Callable[[np.ndarray, str], None],
        ask: Callable[[], None],
    ) -> None:
        self._clock, self._ledger, self._windows = clock, ledger, windows
        self._announced, self._on_out, self._ask = view.announced, on_out, ask
        self.news_to_come = 0
        """Windows that the policy is still to be told of."""
        self.closed: set[int] = set()
        """GPUs that are drained, or out."""
        self.changes: list[tuple[int, float, int, str]] = []
        """What happened so far: node, when, GPU, and what."""

    def begin(self) -> None:
        """Plan all changes; what lies before the start is due now. At one instant GPUs come back first."""
        now = float(self._clock.now)
        due = [(time_s, rank, at) for at, window in enumerate(self._windows)
               for rank, time_s in enumerate((window.up_s, window.drain_s, window.down_s)) if time_s < np.inf]
        for time_s, rank, at in sorted(due):
            change = (self._back, self._drain, self._out)[rank]
            self._clock.at(max(now, time_s), change, self._windows[at], priority=CHANGE)
        if self._announced is not None:
            for window in self._windows:
                if window.known_s > now:
                    self.news_to_come += 1
                    self._clock.at(window.known_s, self._announce, window, priority=CHANGE)

    def _announce(self, event: Any) -> None:
        assert self._announced is not None
        self._announced.append(event.value)
        self.news_to_come -= 1
        self._ask()

    def _drain(self, event: Any) -> None:
        gpus = event.value.gpus
        self._ledger.close(gpus)
        self.closed.update(gpus.tolist())
        self._note(event.value, DRAINED)

    def _out(self, event: Any) -> None:
        self._on_out(event.value.gpus, "maintenance")
        self._note(event.value, OUT)

    def _back(self, event: Any) -> None:
        gpus = event.value.gpus
        self._ledger.reopen(gpus)
        self.closed.difference_update(gpus.tolist())
        self._note(event.value, BACK)

    def _note(self, window: Window, what: str) -> None:
        now = float(self._clock.now)
        self.changes += [(window.node, now, gpu, what) for gpu in window.gpus.tolist()]
        self._ask()


def why_it_stands(outages: Outages, drains: Drains) -> str:
    """Why jobs wait for ever where nothing is to come."""
    if outages.num_failed:
        return "nodes fail faster than a job can start"
    counts = (outages.num_absent, "nodes are away"), (len(drains.closed), "GPUs are in maintenance")
    away = " and ".join(f"{count} {what}" for count, what in counts if count)
    return "the policy leaves it waiting on an idle cluster" + (f", of which {away}" if away else "")
