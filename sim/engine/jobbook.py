"""The book of jobs: what each has done, what it holds, since when and how fast: the one place where work is counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.api import Placement, View
from sim.cluster.spec import Ledger
from sim.cluster.tenants import TenantLedger
from sim.engine.terms import Agreed
from sim.kernels.lanejobs import END, FIRST, HEAP_AT, LAUNCH, RUNNING, TRIES, add_running
from sim.kernels.service import SERVED
from sim.results.recorder import Recorder
from sim.results.schema import END_REASONS
from sim.settings.config import EngineConfig
from sim.workload.progress import Truth
from traces.columns import MAX_TIME_S
from traces.trace import Trace

WHY = ("done", "failed", "preempted", "migrated", "")
"""What ended a job's last segment, in the numbers of the fast lane (the last: it has none)."""


_GIVEN = ("_num_gpus", "asked_milli", "_milli", "_vc", "_total", "_reference", "_attempts")
"""What is given of each job, and read one at a time."""
_LENT = (
    "done", "target", "_rate", "_stood", "_saved", "_worked", "_try", "_ended_by", "_starts", "_held", "_held_gpu",
    "_begin", "_overhead",
)
"""Accounts of jobs that whoever borrows the book keeps: in `sums`, `marks` and the view's `service`."""


def overheads(config: EngineConfig) -> dict[str, float]:
    """Seconds without progress at a start, by what ended the job's last segment ('': it starts for the first time)."""
    usual = config.preemption_overhead_s
    resize, move = config.resize_overhead_s, config.move_overhead_s
    return {
        **dict.fromkeys(END_REASONS, usual), "": config.cold_start_s,
        "resized": usual if resize is None else resize, "migrated": usual if move is None else move,
    }


class JobBook:
    """Accounts of all jobs by row; keeps the view's standing arrays and the ledger in step with them.

    A job's work is split evenly over its attempts; `target[row]` is where the present attempt ends.
    Numbers that are read one at a time live in lists (three times as fast as arrays); policies read the view's arrays.
    Where the fast lane takes them first (not `in_lists`) they are one value for all until it gives them back: of a
    million jobs that all leave on it no list is ever made.
    """

    def __init__(
        self, trace: Trace, truth: Truth, config: EngineConfig, recorder: Recorder, view: View, ledger: Ledger,
        tenants: TenantLedger | None = None, in_lists: bool = True,
    ) -> None:
        n = len(trace)
        self._tenants = tenants
        self._config, self._recorder, self._view, self._ledger, self._truth = config, recorder, view, ledger, truth
        self._num_gpus: Any = trace.num_gpus
        self.asked_milli: Any = trace.gpu_milli
        """Share of each of its GPUs that a job asks for."""
        self._milli: Any = trace.gpu_milli.copy()
        """Share of each of its GPUs that a job holds, or held last."""
        self._ended_by: Any = [""] * n if in_lists else np.broadcast_to(np.array("", dtype=object), n)
        self._overhead_after = overheads(config)
        self._load_gib_per_s = config.restart_gib_per_s
        self._terms: dict[int, Agreed] = {}
        self.leases: dict[int, float] = {}
        """When the GPUs of running jobs fall back, where they were given for a time."""
        self.egress: dict[int, float] = {}
        """USD a unit of work of running jobs whose GPUs are in several zones; NaN: unknown."""
        self._vc: Any = view.jobs.vc
        self.vc_left: list[int] = view.vc_left.tolist()
        """What each virtual cluster may still take (milli-GPU): the truth, of which the view's array is a copy."""
        self._total: Any = truth.work_total
        self._reference: Any = truth.reference_rate
        self._attempts: Any = trace.attempts if config.retries else np.ones(n, dtype=np.int32)
        self.target: Any = truth.work_total / self._attempts
        if in_lists:
            self._as_lists("target", *_GIVEN)

        def zeros(kind: type = float) -> Any:
            return [kind()] * n if in_lists else np.broadcast_to(np.zeros((), dtype=kind), n)

        self.done, self._try = zeros(), zeros(int)
        self._begin, self._overhead, self._rate = zeros(), zeros(), zeros()
        # Of the present launch, over the changes of speed in it: work that stood when it began, work that its last
        # checkpoint holds, and working time until the present segment.
        self._stood, self._saved, self._worked = zeros(), zeros(), zeros()
        self._held, self._held_gpu, self._starts = zeros(), zeros(), zeros(int)
        self.first_start_s = np.full(n, np.nan)
        self.gpus: dict[int, np.ndarray] = {}
        """GPUs of each running job."""
        self._running = np.empty(min(n, 1024), dtype=np.int32)
        self._running_at: dict[int, int] = {}
        self._slots_used = len(view.slots)

    def _as_lists(self, *names: str) -> None:
        for name in names:
            column = getattr(self, name)
            setattr(self, name, column if isinstance(column, list) else column.tolist())

    @property
    def running(self) -> np.ndarray:
        """Rows that run, in no particular order."""
        return self._running[: len(self.gpus)]

    def on_gpus(self, some: np.ndarray) -> list[int]:
        """Running jobs that hold some of these GPUs, in the order of their starts."""
        if not self.gpus:
            return []
        rows, gpus = list(self.gpus), list(self.gpus.values())
        slot_job = np.repeat(np.arange(len(rows)), [held.size for held in gpus])
        among = np.zeros(self._ledger.gpu_node.size, dtype=bool)
        among[some] = True
        hit = among[np.concatenate(gpus)]
        return [rows[i] for i in np.unique(slot_job[hit]).tolist()]

    # -- start --------------------------------------------------------------------------------------------------------

    def launch(
        self, row: int, gpus: np.ndarray, placement: Placement, rate: float, now_s: float, agreed: Agreed | None
    ) -> float:
        """Note that a job runs from now on, on GPUs that the ledger has given; returns when it will end."""
        view, milli = self._view, self.asked_milli[row]
        if agreed is not None:
            milli = agreed.milli
            self._terms[row] = agreed
        self._milli[row] = milli
        overhead = self._overhead_after[self._ended_by[row]]
        if self._load_gib_per_s is not None:
            overhead = min(MAX_TIME_S, overhead + self._load_s(row, self._load_gib_per_s))
        if view.profiling is not None:
            overhead = min(MAX_TIME_S, view.profiling.begin(row, now_s, overhead))
        if not self._starts[row]:
            self.first_start_s[row] = now_s
        self._starts[row] += 1
        self._stood[row] = self._saved[row] = self.done[row]
        self._worked[row] = 0.0
        self._begin_segment(row, now_s, overhead, rate)
        view.slots_gpu[row] = gpus.size * milli / 1000.0
        self._charge(row, gpus, milli)
        self._hold(row, gpus)
        count = len(self.gpus)
        if count == len(self._running):
            self._running = np.concatenate((self._running, np.empty_like(self._running)))
        self._running[count], self._running_at[row] = row, count
        self.gpus[row] = gpus
        if agreed is not None or placement.plan is not None:
            view.placed[row] = placement
        if placement.plan is not None:
            per_iteration = 1.0 if agreed is None else agreed.per_iteration
            self._recorder.plan(row, now_s, placement.plan, self._truth.iteration_s(row, rate / per_iteration))
        return self._end_s(row)

    def _load_s(self, row: int, gib_per_s: float) -> float:
        """Time to load a job's state at a restart; none where it is unknown, or at the first start."""
        gib = self._truth.state_gib(row) if self._starts[row] else 0.0
        return 0.0 if np.isnan(gib) else gib / gib_per_s

    def respeed(self, row: int, now_s: float, rate: float) -> float:
        """A job goes on where it is, at another rate; returns when it will now end.

        What is left of its overhead, its attempt and its checkpoints go on as if nothing had happened. At the instant
        at which it got its GPUs there is nothing to close: it begins at this rate.
        """
        overhead = self._overhead[row]
        if now_s > self._begin[row]:
            worked_s = max(0.0, now_s - self._begin[row] - overhead)
            worked = worked_s * self._rate[row]
            self._saved[row] = self._checkpointed(row, worked)
            self._worked[row] += worked_s
            self._record(row, now_s, self.gpus[row], worked, 0.0, "respeed")
            self.done[row] += worked
            self._view.served_s[row] = self.done[row] / self._reference[row]
            overhead = max(0.0, self._begin[row] + overhead - now_s)
        self._begin_segment(row, now_s, overhead, rate)
        return self._end_s(row)

    def _begin_segment(self, row: int, now_s: float, overhead_s: float, rate: float) -> None:
        view = self._view
        self._begin[row], self._overhead[row], self._rate[row] = now_s, overhead_s, rate
        view.begin_s[row], view.overhead_s[row] = now_s, overhead_s
        view.speed[row] = rate / self._reference[row]

    def _end_s(self, row: int) -> float:
        """When a running job has done the work of its attempt."""
        left = max(0.0, self.target[row] - self.done[row])  # rounding may leave -1e-12
        return self._begin[row] + self._overhead[row] + left / self._rate[row]

    def overdue(self, now_s: float) -> list[int]:
        """Running jobs whose attempt was done before now: none, unless an end was lost."""
        return [row for row in self.gpus if self._end_s(row) < now_s]

    def _hold(self, row: int, gpus: np.ndarray) -> None:
        """Note a job's GPUs in the standing arrays that policies read."""
        view, n = self._view, gpus.size
        if n > self._num_gpus[row]:
            # A policy that sizes gangs may exceed the request: such a job gets a new place at the end.
            if self._slots_used + n > len(view.slots):
                view.slots = np.concatenate((view.slots, np.empty(len(view.slots) + n, dtype=np.int32)))
            view.slot_at[row] = self._slots_used
            self._slots_used += n
        first = view.slot_at[row]
        view.slots[first : first + n] = gpus
        view.slot_n[row] = n

    def _charge(self, row: int, gpus: np.ndarray, milli: int) -> None:
        """Count what a job takes of each GPU (or, negative, gives back) against its virtual cluster."""
        vc = self._vc[row]
        self.vc_left[vc] -= gpus.size * milli
        self._view.vc_left[vc] = self.vc_left[vc]
        if self._tenants is not None:
            for gpu_type, count in self._ledger.count_by_type(gpus).items():
                self._tenants.take(row, gpu_type, count * milli)

    def change_quota(self, vc: int, by_milli: int) -> None:
        """A virtual cluster's quota grows, or shrinks: below what runs, what it may take becomes negative."""
        self.vc_left[vc] += by_milli
        self._view.vc_left[vc] = self.vc_left[vc]
        if self._tenants is not None:
            self._tenants.change_ceiling(vc, by_milli)

    # -- end ----------------------------------------------------------------------------------------------------------

    def finish(self, row: int, now_s: float) -> bool:
        """Close the present attempt of a running job, its work done. True where it was the last one."""
        self._try[row] += 1
        last: bool = self._try[row] >= self._attempts[row]
        kept = self.target[row]
        self._close(row, now_s, "done" if last else "failed", kept - self.done[row], kept)
        if not last:
            self.target[row] = self._total[row] * (self._try[row] + 1) / self._attempts[row]
        return last

    def interrupt(self, row: int, now_s: float, why: str) -> bool:
        """Take a running job off its GPUs before its attempt is done. True where it keeps more than at its start.

        Preempted, moved or taken off by maintenance, it saves its work first (or falls back to its last checkpoint, by
        setting); when its node fails it falls back.
        """
        worked = max(0.0, now_s - self._begin[row] - self._overhead[row]) * self._rate[row]
        saves = why == "horizon" or (why != "node_failed" and self._config.preempted_work == "kept")
        kept = self.done[row] + worked if saves else self._checkpointed(row, worked)
        self._close(row, now_s, why, worked, kept)
        return kept > self._stood[row]

    def _checkpointed(self, row: int, worked: float) -> float:
        """Work that the last checkpoint holds, full intervals since the launch, when the segment has done `worked`."""
        interval, rate, earlier_s = self._config.checkpoint_interval_s, self._rate[row], self._worked[row]
        if interval == 0:
            return self.done[row] + worked
        if interval == np.inf:
            return self._saved[row]
        full_s = float(np.floor((earlier_s + worked / rate) / interval)) * interval - earlier_s
        return self.done[row] + min(worked, full_s * rate) if full_s > 0 else self._saved[row]

    def _close(self, row: int, now_s: float, why: str, worked: float, kept: float) -> None:
        """Close a running job's segment and give its GPUs back; `kept` of its work stands from now on."""
        milli = self._milli[row]
        gpus = self.gpus.pop(row)
        self._ledger.give(gpus, milli)
        self._charge(row, gpus, -milli)
        self._record(row, now_s, gpus, worked, max(0.0, self.done[row] + worked - kept), why)
        view = self._view
        if view.profiling is not None:
            view.profiling.end(row, now_s)
        self.done[row], self._ended_by[row] = kept, why
        if self._terms:
            self._terms.pop(row, None)
        if self.leases:
            self.leases.pop(row, None)
        if self.egress:
            self.egress.pop(row, None)
        view.served_s[row] = kept / self._reference[row]
        view.begin_s[row] = np.nan
        view.slot_n[row] = 0
        if view.placed:
            view.placed.pop(row, None)
        # The last of the running rows fills the gap.
        at, last = self._running_at.pop(row), len(self.gpus)
        if at < last:
            other = int(self._running[last])
            self._running[at], self._running_at[other] = other, at

    def _record(self, row: int, now_s: float, gpus: np.ndarray, worked: float, lost: float, why: str) -> None:
        """Write down a segment that ends now, and count the time that it held its GPUs."""
        view, begin, milli = self._view, self._begin[row], self._milli[row]
        self._recorder.segment(row, begin, now_s, gpus, milli, self._overhead[row], self._rate[row], worked, lost, why)
        if self._terms or self.leases:
            agreed, until_s = self._terms.get(row), self.leases.get(row, np.nan)
            if agreed is not None:
                self._recorder.terms(agreed.batch_size, agreed.cap_w, until_s)
            elif not np.isnan(until_s):
                self._recorder.terms(0, 0.0, until_s)
        if row in self.egress:
            self._recorder.egress(self.egress[row])
        if view.by_type_s is not None:
            view.by_type_s[row, np.unique(self._ledger.node_type[self._ledger.gpu_node[gpus]])] += now_s - begin
        self._held[row] += now_s - begin
        self._held_gpu[row] += (now_s - begin) * (gpus.size * milli / 1000.0)
        view.held_s[row], view.held_gpu_s[row] = self._held[row], self._held_gpu[row]

    # -- the fast lane ------------------------------------------------------------------------------------------------

    def lend(self, launch: list[int], gone: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The accounts as `sums`, `marks` and `live` of `sim.kernels.lane`, for a kernel that keeps them.

        `launch`: number of each job's present launch; `gone`: bool [jobs], jobs that can never run.
        """
        number = {why: i for i, why in enumerate(WHY)}
        ended_by = np.fromiter(map(number.__getitem__, self._ended_by), dtype=np.int32, count=len(gone))
        sums, marks = np.empty((END + 1, len(gone))), np.empty((HEAP_AT + 1, len(gone)), dtype=np.int32)
        for kept, columns in ((sums, (self.done, self.target, self._rate, self._stood, self.first_start_s)),
                              (marks, (self._attempts, gone, self._try, ended_by, self._starts, launch))):
            for index, column in enumerate(columns):
                kept[index] = column
            kept[len(columns):] = -1 if kept is marks else np.nan
        slots = len(self._ledger.gpu_node) * (1000 // int(np.min(self.asked_milli)))
        live, count = np.empty((2, slots + 1), dtype=np.int32), np.zeros(RUNNING + 1, dtype=np.int64)
        for row in self.running.tolist():
            sums[END, row] = self._end_s(row)
            add_running(row, live, sums, marks, count)
        for name in (*_LENT, "first_start_s"):
            setattr(self, name, None)  # `take_back` makes them anew: of a million jobs 100 MiB
        return sums, marks, live

    def take_back(
        self, sums: np.ndarray, marks: np.ndarray, live: np.ndarray, running: int, launch: list[int],
        some_left: bool,
    ) -> list[tuple[float, int]]:
        """Keep the accounts again, of so many running jobs. Returns when each ends, and its row, in order of starts.

        Where all jobs have left (not `some_left`) nobody asks for more than when they first started.
        """
        view, self.first_start_s = self._view, sums[FIRST].copy()
        if not some_left:
            self._running, self.gpus = live[0], {}
            return []
        self._as_lists(*_GIVEN)
        self.done, self.target, self._rate, self._stood = sums[:FIRST].tolist()
        self._saved, self._worked = list(self._stood), [0.0] * len(self.done)
        self._try, ended_by, self._starts = marks[TRIES:LAUNCH].tolist()
        self._ended_by = [WHY[i] for i in ended_by]
        self._held, self._held_gpu, self._begin, self._overhead = view.service[:SERVED].tolist()
        self.vc_left = view.vc_left.tolist()
        self._running = live[0]
        rows = self._running[:running].tolist()
        self._running_at = {row: i for i, row in enumerate(rows)}
        launch[:] = [-1] * len(launch)
        for row in rows:
            launch[row] = int(marks[LAUNCH, row])
        rows.sort(key=launch.__getitem__)
        self.gpus = {row: view.gpus_of(row).copy() for row in rows}
        return [(float(sums[END, row]), row) for row in rows]
