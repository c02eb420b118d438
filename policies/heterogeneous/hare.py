"""Hare: jobs in the order of their middles in a linear relaxation, each where and as wide as it ends first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.matching.machines import Machines
from policies.matching.relaxation import relaxed
from policies.mechanisms.planned import WHOLE, Entry, Planned
from sim.api import Decision, Placement, Scratch, View, param

LEAST_WEIGHT = 1e-3
"""A job of less priority counts as of this one."""


@dataclass
class Hare(Planned):
    """Puts jobs one after the other where each ends first, in the order of a relaxation that lets them be divided.

    With y of a linear program (`policies.matching.relaxation`) that may divide jobs over types and time, and minimises
    the weighted sum of completion times (weights: `priority`), the order is that of the middles

        H_i = sum over types and intervals of y_itl × middle of interval l,

    ties by time over weight. In it each job takes the type, and the number of GPUs, with which it ends first, of equal
    ones with the least GPU time (Chen, Li, Wu, Guo: Hare, HPDC'22: order of a relaxation, then list scheduling).

    Hare works on tasks: each of a job's n workers has a task a round, tasks of one round may run one after the other
    on fewer GPUs (relaxed fixed-scale synchronisation), and tasks of several jobs take turns on a GPU, since its
    runtime switches fast. A gang is what is placed here. Tasks in turn on m < n GPUs are data parallelism on m of one
    type (`fewer`: m = n, n/2, n/4, ...); turns are taken when a job comes or goes (`switches`): who is earlier in the
    order then has the GPUs, and who is stopped or moved pays the run's restart (`engine.preemption_overhead_s`; a fast
    switch is a small one). Not here: a gang over GPUs of several types.

    Must know: run times (unknown: the mean of those known) and speeds (unknown: equally fast on all its types, and of
    all sizes only its own). Where the solver finds nothing the order is by time over weight. All are counted in
    run.json. A priority of 0 counts as 0.001. With durations replayed as recorded a gang keeps its size: no speed on
    fewer GPUs is known.
    """

    sizes_gangs: ClassVar[bool] = True

    switches: bool = param(True, help="running jobs are planned anew, too, when a job comes or goes")
    fewer: bool = param(True, help="a gang may run on half of its GPUs, a quarter, and so on, at the speed there")

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._middle_s = np.full(len(view.jobs), np.nan)
        self._rates: dict[tuple[int, int], list[float]] = {}

    def decide(self, view: View) -> Decision:
        decision = self._anew(view) if self.switches else super().decide(view)
        if not (view.running.size or decision.start):  # all of each quota is free
            turned = {row for row, _ in decision.reject}
            wide = view.queued[self._demand[view.queued] > view.vc_left[view.jobs.vc[view.queued]]]
            decision.reject += [(row, "the gang is larger than the quota of its virtual cluster")
                                for row in wide.tolist() if row not in turned]
        return decision

    def _anew(self, view: View) -> Decision:
        """Who has GPUs from now on, running jobs planned anew, too."""
        rows, scratch = np.sort(np.concatenate((view.queued, view.running))), view.scratch(view.running)
        machines = Machines([[0.0] * (milli // WHOLE) for milli in scratch.type_milli().tolist()])
        able, time_s = self._able(view, scratch, rows, machines)
        plan = list(self.plan(view, able, time_s, machines)) if able.size else []
        decision = Decision.toward(view, self._first(view, scratch, plan))
        self.turn_away(view, decision)
        return self.never_fits(view, decision)

    def _first(self, view: View, scratch: Scratch, plan: list[Entry]) -> dict[int, Placement]:
        """Who has GPUs now: what begins now, then those who fit on what others wait for; they can be stopped again."""
        target = dict[int, Placement]()
        now = [entry for entry in plan if entry.start_s == 0]
        for entry in now:  # who stays is not in the way of his own GPUs
            if self._stays(view, entry) and self._take(view, scratch, entry):
                target[entry.row] = view.placement(entry.row)
        for entry in (*now, *(entry for entry in plan if entry.start_s > 0)):
            if entry.row in target:
                continue
            if self._stays(view, entry) and self._take(view, scratch, entry):
                target[entry.row] = view.placement(entry.row)
            elif (gpus := scratch.place(self._gang(scratch, entry), self.placement)) is not None:
                target[entry.row] = Placement(gpus)
        return target

    def _stays(self, view: View, entry: Entry) -> bool:
        own = view.gpus_of(entry.row)
        return own.size == entry.slots and int(view.cluster.gpu_type[own[0]]) == entry.on

    def _take(self, view: View, scratch: Scratch, entry: Entry) -> bool:
        milli, vc = int(view.jobs.gpu_milli[entry.row]), int(view.jobs.vc[entry.row])
        return scratch.take(view.gpus_of(entry.row), milli, vc, within_quota=True)

    def plan(self, view: View, rows: np.ndarray, time_s: np.ndarray, machines: Machines) -> Iterator[Entry]:
        order = self._order(view, rows, time_s, machines)
        for i in order.tolist():
            if not (self.switches or machines.any_free()):
                return
            row = int(rows[i])
            on = view.type_of(row)
            best: tuple[float, float, int, int, float] | None = None
            for slots, width, times_s in self._ways(view, row, time_s[i].tolist()):
                for t, one_s in enumerate(times_s):
                    start_s = machines.start_s(t, width)
                    stays = t == on and slots == view.slot_n[row]
                    end_s = start_s + one_s + (0.0 if stays or on < 0 else view.preemption_overhead_s)
                    way = (end_s, one_s * width, t, slots, one_s)
                    if end_s < np.inf and (best is None or way < best):
                        best = way
            if best is not None:
                _, _, t, slots, one_s = best
                width = int(self._width[row]) * slots // int(view.jobs.num_gpus[row]) or 1
                yield Entry(row, t, machines.take(t, width, one_s), slots)

    def _ways(self, view: View, row: int, own_s: list[float]) -> Iterator[tuple[int, int, list[float]]]:
        """Slots and whole GPUs that the job may have, and its time left on so many of each type."""
        slots, worker = int(view.jobs.num_gpus[row]), int(view.jobs.worker_gpus[row])
        workers, fewest = slots // worker, max(1, int(view.jobs.min_gpus[row]))
        yield slots, int(self._width[row]), own_s
        whole = view.jobs.gpu_milli[row] == WHOLE
        if not (self.fewer and whole) or self._left_s.unknown[row]:
            return
        speeds = self.rates(view, np.array([row]))[0].tolist()
        work = max(one_s * speed for one_s, speed in zip(own_s, speeds, strict=True) if one_s < np.inf)
        while (workers := workers // 2) and (slots := workers * worker) >= fewest:
            rates = self._rates_on(view, row, slots)
            if rates == speeds:  # replayed as recorded: what fewer GPUs would do is not known
                return
            yield slots, slots, [work / rate if rate > 0 else np.inf for rate in rates]

    def _rates_on(self, view: View, row: int, slots: int) -> list[float]:
        """Believed work a second on so many GPUs of each type that the job may use; 0: it cannot run so."""
        key = (row, slots)
        if key not in self._rates:
            allowed, one = int(view.jobs.types[row]), np.array([row])
            self._rates[key] = [float(np.nan_to_num(view.throughput(one, t, slots)[0])) if allowed >> t & 1 else 0.0
                                for t in range(len(view.cluster.types))]
        return self._rates[key]

    def _order(self, view: View, rows: np.ndarray, time_s: np.ndarray, machines: Machines) -> np.ndarray:
        """Indices into rows: by middle, which are found anew once a job has come, then by time over weight."""
        weight = np.maximum(view.jobs.priority[rows], LEAST_WEIGHT)
        ratio = (time_s * self._width[rows, None]).min(axis=1) / weight
        if np.isnan(self._middle_s[rows]).any():
            try:
                self._middle_s[rows] = relaxed(time_s, self._width[rows], weight, machines).middle_s
            except ArithmeticError:
                self._counts["orders by time over weight, since the solver found no other"] += 1
                self._middle_s[rows] = 0.0
        return np.lexsort((rows, ratio, np.round(self._middle_s[rows], 6)))
