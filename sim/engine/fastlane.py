"""The fast lane: while a kernel can decide as the policy does, the run goes on in one compiled loop.

Byte for byte the plain loop's results, at a tenth of its time. It is taken where the policy says how it decides
(`Policy.fast_lane`) and nothing but submissions and ends can happen: no failures, no timetable, no tenants, no terms of
its own, no neighbours. Where only the policy can go on, the engine's own loop takes over, with all accounts in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sim.api import FastLane, Policy, View
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.tenants import TenantLedger
from sim.cluster.timetable import Timetable
from sim.engine.balancing import must_end
from sim.engine.clock import Clock
from sim.engine.desk import Desk
from sim.engine.jobbook import WHY, JobBook, overheads
from sim.engine.jobqueue import JobQueue
from sim.engine.outcome import END_STATE
from sim.engine.referee import Referee
from sim.kernels import lane as kernel
from sim.kernels import lanejobs as at
from sim.kernels.jit import is_kept
from sim.kernels.rates import learn_rate
from sim.results import schema
from sim.results.recorder import Recorder
from sim.settings.config import EngineConfig
from sim.workload.progress import Truth
from traces.trace import Trace
from traces.words import alike

ENTRIES, POOL = 1 << 14, 1 << 18
"""Rates that are remembered, and the nodes that their gangs lie on."""
MOST_CHANGES = 64
"""Times that the policy itself goes on in between: more are not worth the change."""
MOST_LAUNCHES = 2**31 - 2**26
"""Starts after which the lane is left: it numbers them in 32 bits."""
_REASONS = np.array([schema.END_REASONS.index(name or "done") for name in WHY], dtype=np.int8)
WORTH_IT, NO_LOSS = 20_000, 1_000
"""Jobs from which the lane is taken: that are worth its compilation, and, where it is compiled, the change of lane."""
ROWS, IDS = 1 << 16, 1 << 18
"""Segments and GPUs that are recorded before Python fetches them."""


class Left(NamedTuple):
    """Where the lane stops: the next job to come, jobs that have not left, decisions made since, when which jobs end,
    in the order of their starts, whether the policy is asked now, and else the alarm that is set (inf: none)."""

    next_row: int
    open: int
    decisions: int
    ends: list[tuple[float, int]]
    asks: bool
    alarm_s: float


class Lane:
    """One run's fast lane. `run` goes on from where the accounts stand, and leaves them where it stops."""

    def __init__(
        self, trace: Trace, cluster: ClusterSpec, policy: Policy, truth: Truth, config: EngineConfig,
        recorder: Recorder, view: View, ledger: Ledger, queue: JobQueue, book: JobBook, desk: Desk, referee: Referee,
        clock: Clock, horizon_s: float, state: list[str], reason: list[str], end_s: np.ndarray,
        on_progress: Callable[[int, float], None] | None,
    ) -> None:
        said, alike = policy.fast_lane(view), truth.alike()
        assert said is not None and alike is not None
        self._said, self._truth, self._recorder, self._book, self._queue = said, truth, recorder, book, queue
        self._view, self._on_progress, self._horizon_s = view, on_progress, horizon_s
        self._desk, self._referee, self._clock, self._status = desk, referee, clock, trace.status
        self._state, self._reason, self._end_s = state, reason, end_s
        self._gone = _gone(trace, truth, view, referee)
        self.changes = 0
        """Times that the lane was left."""
        self._static = tuple(map(_reading, (trace.submit_s, truth.work_total, truth.reference_rate, view.jobs.gpus)))
        after, saves = overheads(config), config.preempted_work == "kept"
        self._cost = np.array([*(after[why] for why in WHY), config.checkpoint_interval_s, float(saves)])
        self._cluster = view.gangs, view.vc_left, ledger.state, ledger.shape
        self._gpu_milli = view.gangs[1]
        self._slots = slots = cluster.num_gpus * int(1000 // self._gpu_milli.min())
        rows = max(ROWS, 2 * slots)
        self._out = (
            np.empty((2, rows), dtype=np.int32), np.empty((6, rows)), np.empty(rows, dtype=np.int64),
            np.empty(max(IDS, 2 * slots), dtype=np.int32), np.empty((5, rows)),
        )
        flat = np.array([alike if isinstance(alike, float) else 0.0])
        kinds = np.zeros(1, dtype=np.int64) if isinstance(alike, float) else alike
        self._known = (
            flat, kinds, cluster.node_rack.copy(), np.full(4 * ENTRIES, -1, dtype=np.int64),
            np.empty((ENTRIES, 5), dtype=np.int64), np.empty(POOL, dtype=np.int32), np.empty(ENTRIES),
            np.zeros(2, dtype=np.int64),
        )
        most_found = min(slots, len(trace)) + 1
        self._found = (
            np.empty(most_found, dtype=np.int32), np.empty(most_found, dtype=np.int64),
            np.empty(slots + int(trace.num_gpus.max()) + 1, dtype=np.int32),
        )
        self._behind = tuple(np.empty_like(part) for part in self._found)
        self._chosen = (
            np.empty(most_found, dtype=np.int32), np.empty(2 * most_found, dtype=np.int32), np.empty(2 * most_found),
            np.zeros(3),
        )
        self._rates = np.empty(most_found)

    def run(self, next_row: int, open_jobs: int) -> Left:
        """Go on until only Python can; then the accounts of all are whole again, and the calendar is empty."""
        desk, launch = self._desk, self._desk.launch
        sums, marks, live = self._book.lend(launch, self._gone)
        sums[at.KEY, self._queue.rows] = self._queue.keys
        n, f = np.zeros(16, dtype=np.int64), np.array([float(self._clock.now), np.inf, self._horizon_s])
        n[at.NEXT], n[at.OPEN], n[at.LAUNCHES] = next_row, open_jobs, desk.launches
        n[at.RUNNING], n[at.IN_VAIN], n[at.VAIN_ROW] = len(self._book.gpus), desk.in_vain, -1
        n[at.HEAD], n[at.SIZE] = self._queue.head, len(self._queue)
        lane = (
            self._rates, self._cost, self._view.service, self._static, sums, marks, live, self._queue.lend(),
            self._view.held, *self._cluster, self._out, n, f,
        )  # fmt: skip
        said, decisions, go_on = self._said, 0, _kernel(self._said)
        own = (self._behind,) if said.backfills else (self._chosen,) if said.preempts else ()
        first = self._slots, said.terms, self._known, self._found
        stood: tuple[float, ...] = ()
        while True:
            why = go_on(said.rule, said.keep if said.preempts else said.skip, *first, *own, *lane)
            decisions += self._fetch(n)
            stands = float(f[at.NOW]), *n[[at.NEXT, at.OPEN, at.LAUNCHES]].tolist()
            if stands == stood and why == kernel.FULL:  # no run hangs: whose end is due again and again was lost
                must_end(live[1, :1].tolist(), self._desk.where)
            stood = stands
            if self._on_progress is not None:
                self._on_progress(len(launch) - int(n[at.OPEN]), float(f[at.NOW]))
            if why != kernel.FULL and not (why == kernel.UNKNOWN and self._learn(int(n[at.PLACED]))):
                break
            if n[at.LAUNCHES] > MOST_LAUNCHES:
                break
        self.changes += 1
        self._clock.begin_anew(float(f[at.NOW]))
        self._queue.take_back(int(n[at.HEAD]), int(n[at.SIZE]))
        ends = self._book.take_back(sums, marks, live, int(n[at.RUNNING]), launch, bool(n[at.OPEN]))
        desk.launches, desk.in_vain = int(n[at.LAUNCHES]), int(n[at.IN_VAIN])
        self._note(next_row, int(n[at.NEXT]), marks, sums[at.END])
        if n[at.OPEN]:
            self._referee.in_lists()
        if why == kernel.VAIN:
            desk.in_vain_too_often(int(n[at.VAIN_ROW]))
        return Left(int(n[at.NEXT]), int(n[at.OPEN]), decisions, ends, why in (kernel.PLAIN, kernel.UNKNOWN),
                    float(f[at.ALARM]))  # fmt: skip

    def _note(self, first: int, next_row: int, marks: np.ndarray, end_s: np.ndarray) -> None:
        """Write down who has left since, and how."""
        for row in (first + np.flatnonzero(self._gone[first:next_row])).tolist():
            self._state[row], self._reason[row] = "rejected", self._referee.impossible(row)
        left = np.flatnonzero((marks[at.TRIES] >= marks[at.ATTEMPTS]) & np.isnan(self._end_s))
        self._end_s[left] = end_s[left]
        for rows in (left[begin : begin + ROWS] for begin in range(0, len(left), ROWS)):  # lists of all would be large
            for row, status in zip(rows.tolist(), self._status[rows].tolist(), strict=True):
                self._state[row] = END_STATE[status]

    def _learn(self, placed: int) -> bool:
        """Ask for the rates of what is to be placed; False where one is none (the engine then says what is wrong)."""
        rows, ends, gpus = self._found[0].tolist(), self._found[1].tolist(), self._found[2]
        first = 0
        for row, end in zip(rows[:placed], ends[:placed], strict=True):
            those = gpus[first:end]
            rate = self._truth.rate(row, those.copy(), None)
            if not 0 < rate < np.inf:
                return False
            learn_rate(row, those, rate, self._known, self._cluster[3])
            first = end
        return True

    def _fetch(self, n: np.ndarray) -> int:
        """Hand what was recorded to the recorder; returns how many decisions were."""
        segments, decisions = int(n[at.SEGMENTS]), int(n[at.DECISIONS])
        (rows, why), times, ids_end, ids, made = self._out
        self._recorder.segments(
            rows[:segments], self._gpu_milli[rows[:segments]], _REASONS[why[:segments]], times[:, :segments],
            ids_end[:segments], ids,
        )
        self._recorder.decisions(made[0, :decisions], made[1:, :decisions].T.astype(np.int32))
        n[at.SEGMENTS] = n[at.DECISIONS] = 0
        return decisions


def may_run(
    policy: Policy, truth: Truth, config: EngineConfig, view: View, cluster: ClusterSpec, timetable: Timetable,
    tenants: TenantLedger | None,
) -> bool:
    """Whether a run has nothing but submissions, ends and decisions, a kernel makes these, and that is worth it."""
    said = policy.fast_lane(view)
    declared = (
        policy.sizes_gangs, policy.shares_gpus, policy.leases_gpus, policy.reads_happened, policy.reads_time_by_type,
        policy.knows_tenants, policy.knows_maintenance,
    )  # fmt: skip
    happens = (
        config.mtbf_h is not None, timetable.steps > 0, bool(timetable.windows), tenants is not None,
        view.profiling is not None,
        config.restart_gib_per_s is not None, config.contention != "none", config.sharing != "free",
    )  # fmt: skip
    alike = truth.alike()
    if said is None or alike is None or any(declared) or any(happens) or config.fast_lane == "off":
        return False
    jobs = len(view.jobs)
    return config.fast_lane == "on" or jobs >= WORTH_IT or (jobs >= NO_LOSS and is_kept(_kernel(said)))


def _reading(column: np.ndarray) -> np.ndarray:
    """A column as kernels have it that only read it: to Numba it is one type, whoever else may write."""
    column = column.view()
    column.flags.writeable = False
    return column


def _kernel(said: FastLane) -> Any:
    return kernel.run_backfilling if said.backfills else kernel.run_preemptive if said.preempts else kernel.run_ordered


def _gone(trace: Trace, truth: Truth, view: View, referee: Referee) -> np.ndarray:
    """bool [jobs]: jobs that can never run here; the referee is asked once a kind of job."""
    kind, first = alike(*view.gangs)
    gone = np.array([bool(referee.impossible(row)) for row in first.tolist()])[kind]
    gone[list(truth.why_not)] = True
    for row in first[gone[first]].tolist():  # one that its own model keeps out says nothing of its kind
        if row in truth.why_not:
            for other in np.flatnonzero(kind == kind[row]).tolist():
                gone[other] = bool(referee.impossible(other))
    return gone
