"""The clock: SimPy's environment, with events at absolute times and priorities."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy

NORMAL, CHANGE, LATE, OVER = 1, 2, 3, 4
"""What happens at an instant; what the timetable changes then (a job that ends as its node leaves has ended); what is
decided once all of that has happened; and what ends because nobody renewed it then."""


class Clock(simpy.Environment):
    """SimPy's calendar. `at` takes the time itself: now + (t - now) is not t in floating point, and two things that
    are due at the same instant must be at the same instant."""

    def at(self, time_s: float, callback: Callable[[Any], None], value: Any = None, priority: int = NORMAL) -> None:
        """Call callback(event) at a time; event.value is `value`. Equal times: by priority, then by order of calls."""
        event = simpy.Event(self)
        event._ok, event._value = True, value
        event.callbacks.append(callback)
        entry: Any = (time_s, priority, next(self._eid), event)
        heappush(self._queue, entry)

    def stop_at(self, time_s: float) -> None:
        """Set the time without handling what is still due (used once, at the horizon)."""
        self._now = time_s

    def begin_anew(self, time_s: float) -> None:
        """Set the time, and forget all that is due."""
        self._now = time_s
        self._queue.clear()
