"""The policy's alarm: one at a time, replaced by each decision. Who is woken again and again for nothing is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.api import IllegalDecisionError
from sim.engine.clock import LATE, Clock
from sim.kernels.lane import MAX_IN_VAIN
from traces.columns import MAX_TIME_S

IN_VAIN_S = 1e-3
"""Time that an alarm for nothing should bring in the mean, in s: 100,000 in less are no policy's intent."""


class Alarm:
    """Wakes the policy at the time that it asked for. `wake` is called with the event; `where` names the place."""

    def __init__(self, clock: Clock, wake: Callable[[Any], None], where: Callable[..., str]) -> None:
        self._clock, self._wake, self._where = clock, wake, where
        self._number, self.is_set = 0, False
        self._rang, self._in_vain, self._since_s = False, 0, 0.0

    def rings(self, event: Any) -> bool:
        """Whether an event is of the alarm that is set now."""
        self._rang = self.is_set and event.value == self._number
        return bool(self._rang)

    def off(self) -> None:
        """A decision is made: what was set before counts no more."""
        self.is_set = False

    def decided(self, changed: bool, wake_s: float | None) -> None:
        """A decision has changed something, or nothing, and asks to be woken (None: not).

        Raises
        ------
        IllegalDecisionError
            A time that is not in the future, or the last of too many alarms in a row that did nothing in no time.
        """
        if changed:
            self._in_vain = 0
        elif self._rang:
            self._in_vain += 1
            if self._in_vain == 1:
                self._since_s = self._clock.now
        self._rang = False
        if self._in_vain > MAX_IN_VAIN:
            passed_s = self._clock.now - self._since_s
            if passed_s < IN_VAIN_S * MAX_IN_VAIN:
                raise IllegalDecisionError(
                    f"the policy was woken {MAX_IN_VAIN:,} times in a row, and did nothing", where=self._where(),
                    got=f"{passed_s:.6g} s in which it was", todo="Set the alarm to the time at which it will act.",
                )
            self._in_vain = 0
        if wake_s is not None:
            self.set(wake_s)

    def set(self, wake_s: float) -> None:
        """Wake the policy at a time; beyond all times of results it never comes."""
        number = isinstance(wake_s, float | int | np.floating | np.integer) and not isinstance(wake_s, bool)
        if not number or not wake_s > self._clock.now:
            raise IllegalDecisionError("an alarm must lie in the future", where=self._where(), got=wake_s,
                                       allowed=f"a time after {self._clock.now:.12g}")  # fmt: skip
        self._number += 1
        if wake_s <= MAX_TIME_S:
            self.is_set = True
            self._clock.at(wake_s, self._wake, self._number, priority=LATE)
