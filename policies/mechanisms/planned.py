"""Plan by believed run times which job goes on which GPU type when, and start what the plan begins with."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from policies.matching.machines import Machines
from policies.mechanisms.informed import Informed
from policies.mechanisms.placing import nothing_to_do
from sim.api import Decision, Gang, Placement, Scratch, View

WHOLE = 1000
"""milli-GPU of a GPU."""


class Entry(NamedTuple):
    """What a plan says of one job: its row, on which type, in how many s it begins, on how many slots (0: its own)."""

    row: int
    on: int
    start_s: float
    slots: int = 0


@dataclass
class Planned(Informed):
    """Starts waiting jobs as a plan says that is made anew at each decision; a job that runs goes on to its end.

    A policy plans (`plan`) on GPUs that come free when the running jobs are believed to end. GPUs that are kept for a
    gang that begins later are lent to jobs outside the plan that are believed to end by then, the shortest first.
    Shares of a GPU are planned as whole ones. A job that no type is believed to run is rejected, one without a quota
    left is not planned.
    """

    needs_estimates: ClassVar[bool] = True

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._demand = view.jobs.num_gpus.astype(np.int64) * view.jobs.gpu_milli
        self._width = -(-self._demand // WHOLE)
        self._counts: Counter[str] = Counter()

    def counted(self) -> Mapping[str, int]:
        return {**super().counted(), **self._counts}

    @abstractmethod
    def plan(self, view: View, rows: np.ndarray, time_s: np.ndarray, machines: Machines) -> Iterable[Entry]:
        """Which of the waiting jobs `rows` begins where and when, in turn, each taken from `machines`.

        Parameters
        ----------
        rows : int32, in submit order, one or more; time_s : float64 [rows, types], believed time left of each (inf:
        cannot run there). Some type has room for each of them, free or not. The plan may end where no GPU is free now.
        """

    def decide(self, view: View) -> Decision:
        decision = Decision()
        if nothing_to_do(view):
            return decision
        waiting = np.sort(view.queued)
        self.turn_away(view, decision)
        scratch = view.scratch()
        machines = self._machines(view, scratch)
        rows, time_s = self._able(view, scratch, waiting, machines)
        planned = set()
        for entry in self.plan(view, rows, time_s, machines) if rows.size else ():
            planned.add(entry.row)
            if entry.start_s == 0:
                self._start(decision, scratch, entry)
        self._lend(decision, scratch, rows, time_s, machines, planned)
        return self.never_fits(view, decision)

    def _able(
        self, view: View, scratch: Scratch, rows: np.ndarray, machines: Machines
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those of the jobs that some type can hold and their quota lets in, and their time left on each type."""
        time_s = self._left_s.of(view, rows)
        there = np.array([len(free) for free in machines.free_s])
        time_s[self._width[rows][:, None] > there] = np.inf
        able = np.isfinite(time_s).any(axis=1) & (self._demand[rows] <= scratch.vc_left[view.jobs.vc[rows]])
        return rows[able], time_s[able]

    def _machines(self, view: View, scratch: Scratch) -> Machines:
        """GPUs of each type, free ones and those whose jobs are believed to end."""
        free_s = [[0.0] * (free // WHOLE) for free in scratch.type_milli().tolist()]
        if view.running.size:
            left_s = self._left_s.of(view, view.running)
            for row, by_type in zip(view.running.tolist(), left_s.tolist(), strict=True):
                on = view.type_of(row)
                free_s[on] += [by_type[on]] * -(-int(view.slot_n[row]) * int(view.jobs.gpu_milli[row]) // WHOLE)
        return Machines(free_s)

    def _start(self, decision: Decision, scratch: Scratch, entry: Entry) -> None:
        gpus = scratch.place(self._gang(scratch, entry), self.placement)
        if gpus is not None:
            decision.start.append((entry.row, Placement(gpus)))

    def _gang(self, scratch: Scratch, entry: Entry) -> Gang:
        gang = scratch.gang(entry.row)._replace(types=1 << entry.on)
        return gang._replace(num_gpus=entry.slots) if entry.slots else gang

    def _lend(
        self, decision: Decision, scratch: Scratch, rows: np.ndarray, time_s: np.ndarray, machines: Machines,
        planned: set[int],
    ) -> None:
        """GPUs that are kept for later gangs go to others that end before these begin."""
        kept_s = np.array([kept_s if kept_s < np.inf else 0.0 for kept_s in machines.kept_s])
        if not kept_s.any():
            return
        on = np.where(time_s <= kept_s, time_s, np.inf)
        for i in np.argsort(on.min(axis=1), kind="stable").tolist():
            t = int(on[i].argmin())
            if not on[i, t] < np.inf:
                break
            if int(rows[i]) not in planned:
                self._start(decision, scratch, Entry(int(rows[i]), t, 0.0))
