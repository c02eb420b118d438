"""Plan each waiting job on a GPU type by believed ends, and start those whose turn it is there; without preemption."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms.informed import Informed
from policies.mechanisms.placing import nothing_to_do
from policies.mechanisms.ready import Gaps, Release
from sim.api import Decision, Gang, Placement, View


@dataclass
class ByEnds(Informed):
    """Gives each waiting job a GPU type by when it would end there, on believed speeds and run times.

    A policy says on which type each job is planned, and in which order they start there (`plan`). On each type they
    start in that order as far as they find room; the first that does not holds up those behind it there. A job that its
    virtual cluster's quota keeps waiting holds up nobody. Plans are made anew at each instant, from what is then known:
    a job that runs longer than believed is believed to end at once, from then on. GPUs are counted in plans (pieces of
    GPUs, too), placed by rule only at the start. Nodes that are away are not counted on. A job that no type is believed
    to run is rejected.
    """

    needs_estimates: ClassVar[bool] = True
    least_s: ClassVar[float] = 0.0

    def prepare(self, view: View) -> None:
        super().prepare(view)
        jobs, types = len(view.jobs), len(view.cluster.types)
        # Of each job once it was asked for: places on the idle cluster do not change within a run.
        self._room, self._tried = np.zeros((jobs, types), dtype=bool), np.zeros(jobs, dtype=bool)
        self._fits: dict[tuple[int, int, int, int], bool] = {}

    @abstractmethod
    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        """Jobs (rows) with their types, in the order in which they start on each; asked for only as far as needed.

        `rows` wait, in the queue's order; `run_s` is what each would run on each type (`run_s`), finite on one
        type at least.
        """

    def decide(self, view: View) -> Decision:
        decision = Decision()
        if not nothing_to_do(view):
            self.turn_away(view, decision)
            decision.start = self._starts(view)
        return self.never_fits(view, decision)

    def _starts(self, view: View) -> list[tuple[int, Placement]]:
        rows, run_s = self.waiting(view)
        scratch, starts = view.scratch(), list[tuple[int, Placement]]()
        left = scratch.type_milli().tolist()
        if not rows.size:
            return starts
        for row, t in self.plan(view, rows, run_s):
            gang = scratch.gang(row)
            need = gang.num_gpus * gang.gpu_milli
            if not left[t] or need > scratch.vc_left[view.jobs.vc[row]]:
                continue
            gpus = scratch.place(gang._replace(types=1 << t), self.placement)
            if gpus is None:
                left[t] = 0  # it holds up those behind it
            else:
                starts.append((row, Placement(gpus)))
                left[t] -= need
            if not any(left):
                break
        return starts

    def in_gaps(
        self, view: View, rows: np.ndarray, run_s: np.ndarray, order: Iterable[int]
    ) -> Iterator[tuple[int, int]]:
        """Plan by places in `rows`, each job where it ends earliest, in gaps too; those whose gap begins now start."""
        gaps = [Gaps(view.now_s, releases) for releases in self.releases(view)]
        milli = self.need(view, rows).tolist()
        for i in order:
            begins_s = np.array([
                there.start_s(milli[i], float(time_s)) if time_s < np.inf else np.inf
                for there, time_s in zip(gaps, run_s[i], strict=True)
            ])
            t = int(np.argmin(begins_s + run_s[i]))
            if begins_s[t] < np.inf:
                gaps[t].take(milli[i], float(run_s[i, t]), float(begins_s[t]))
                if begins_s[t] <= view.now_s:
                    yield int(rows[i]), t

    def waiting(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Jobs that wait for GPUs, not for their quota, and what each would run on each type."""
        queue = view.queued
        rows = queue[self.need(view, queue) <= view.vc_left[view.jobs.vc[queue]]]
        run_s = self.run_s(view, rows)
        able = np.isfinite(run_s).any(axis=1)
        return rows[able], run_s[able]

    def run_s(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed time that each job has left to run on each type, in s: float64 [rows, types].

        inf where it cannot run (`TimeLeft`), or has no place even on the idle cluster.
        """
        return np.where(self._places(view, rows), self._left_s.of(view, rows), np.inf)

    def _places(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Whether the placement rule finds each gang a place on each type of the idle cluster: bool [rows, types]."""
        jobs, new = view.jobs, rows[~self._tried[rows]]
        shapes = zip(jobs.num_gpus[new].tolist(), jobs.gpu_milli[new].tolist(), jobs.worker_gpus[new].tolist(),
                     strict=True)
        runs = self.rates(view, new) > 0
        for row, shape, able in zip(new.tolist(), shapes, runs, strict=True):
            for t in np.flatnonzero(able).tolist():
                if (*shape, t) not in self._fits:
                    gang = Gang(*shape, types=1 << t)
                    self._fits[*shape, t] = view.scratch().emptied().place(gang, self.placement) is not None
                self._room[row, t] = self._fits[*shape, t]
        self._tried[new] = True
        return np.asarray(self._room[rows])

    def need(self, view: View, rows: np.ndarray) -> np.ndarray:
        """milli-GPU of each gang."""
        return view.jobs.num_gpus[rows].astype(np.int64) * view.jobs.gpu_milli[rows]

    def releases(self, view: View) -> list[list[Release]]:
        """Of each type, what is free now and what comes free when running jobs end, as believed."""
        now_s = view.now_s
        found: list[list[Release]] = [[(now_s, free)] if free else [] for free in view.scratch().type_milli().tolist()]
        running = view.running
        if running.size:
            on = view.cluster.gpu_type[view.slots[view.slot_at[running]]]
            left_s = self.run_s(view, running)[np.arange(running.size), on]
            end_s = np.maximum(now_s, view.begin_s[running] + view.overhead_s[running]) + left_s
            ends = zip(on.tolist(), end_s.tolist(), self.need(view, running).tolist(), strict=True)
            for t, at_s, milli in ends:
                if np.isfinite(at_s):
                    found[t].append((at_s, milli))
        return found
