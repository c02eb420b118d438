"""Each job starts when the log started it: a run that can be held against its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import Ordered
from sim.api import Decision, View


@dataclass
class Recorded(Ordered):
    """Each job starts at its recorded start, or as soon after it as its GPUs are free.

    With --work recorded it also ends as in the log.

    Key: submission + recorded wait (a wait that is unknown is 0: a job that was there when the log began starts then).
    A job that does not fit is skipped. No scheduler: it is told what happened, so that GPUs held over time can be
    compared with the log's; what waits beyond its start shows where this cluster or its placement is not the log's.
    """

    needs_starts: ClassVar[bool] = True

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        return view.recorded_start_s[rows]

    def decide(self, view: View) -> Decision:
        starts_s = view.recorded_start_s[view.queued]  # in their order
        due = int(np.searchsorted(starts_s, view.now_s, side="right"))
        decision = Decision(start=self.admit(view, view.queued[:due], self.skip))
        if due < len(starts_s):
            decision.wake_s = float(starts_s[due])
        return self.never_fits(view, decision)
