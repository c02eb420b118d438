"""Leases: GPUs given for a time. When it is over the policy decides first; what it does not renew falls back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.engine.clock import OVER, Clock


class Leases:
    """Grants leases and ends them.

    `until_s` is the book's account of when the GPUs of running jobs fall back, by row; jobs without a lease are not in
    it, and a job that gives its GPUs back leaves it. `ask` asks the policy for a decision, `end` takes the GPUs of jobs
    whose leases are over.
    """

    def __init__(
        self, clock: Clock, until_s: dict[int, float], ask: Callable[[], None], end: Callable[[list[int]], None]
    ) -> None:
        self._clock, self._until_s, self._ask, self._end = clock, until_s, ask, end
        self._planned: set[float] = set()
        """Instants that have an event: one for all leases that end then."""

    def grant(self, row: int, until_s: float) -> None:
        """Give, renew or (infinity) take back the lease of a running job."""
        if until_s == np.inf:
            self._until_s.pop(row, None)
            return
        self._until_s[row] = until_s
        if until_s not in self._planned:
            self._planned.add(until_s)
            self._clock.at(until_s, self._due)

    def _due(self, event: Any) -> None:
        self._planned.discard(float(self._clock.now))
        if self._over():
            self._ask()
            self._clock.at(self._clock.now, self._expire, priority=OVER)

    def _expire(self, event: Any) -> None:
        if over := self._over():
            self._end(over)

    def _over(self) -> list[int]:
        """Jobs whose leases are over now, in order of rows."""
        now = float(self._clock.now)
        return sorted(row for row, until_s in self._until_s.items() if until_s <= now)
