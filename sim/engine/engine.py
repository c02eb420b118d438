"""The loop: SimPy is the clock, a policy decides once an instant, the referee and the ledger refuse what is impossible.

Submissions, ends, node failures and repairs are SimPy events of normal priority. Each asks for one *late* decision at
that instant, so that the policy decides exactly once after everything that is due then (and again only where it turned
a job away, since those behind it are due too). An end carries the number of the launch it belongs to; a stale one is
ignored. One alarm at a time: a newer decision replaces it. Once a decision is carried out, jobs whose neighbours have
come or gone go on at their new rates, where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from sim.api import IllegalDecisionError, Policy, View
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.tenants import TenantLedger
from sim.cluster.timetable import Timetable
from sim.engine.alarm import Alarm
from sim.engine.asking import decision_of, keys_of
from sim.engine.balancing import must_balance, must_be_there, must_end
from sim.engine.clock import LATE, Clock
from sim.engine.desk import Desk
from sim.engine.drains import Drains, why_it_stands
from sim.engine.fastlane import MOST_CHANGES, Lane, may_run
from sim.engine.jobbook import JobBook
from sim.engine.jobqueue import JobQueue
from sim.engine.outages import Outages
from sim.engine.outcome import END_STATE, ENDED, Outcome, described
from sim.engine.referee import Referee
from sim.kernels.lane import MAX_IN_VAIN
from sim.results.recorder import Recorder
from sim.settings.config import EngineConfig
from sim.workload.progress import Truth
from traces.columns import MAX_TIME_S
from traces.trace import Trace

FORM = (
    "a Decision: start and move of (row, Placement of an int32 array), stop and rekey of rows, reject and refuse of "
    "(row, reason), lease of (row, until_s)"
)


class Engine:
    """One run of one trace on one cluster under one policy. Make it, then call `run` once."""

    def __init__(
        self,
        trace: Trace,
        cluster: ClusterSpec,
        policy: Policy,
        truth: Truth,
        config: EngineConfig,
        recorder: Recorder,
        view: View,
        ledger: Ledger,
        timetable: Timetable,
        *,
        tenants: TenantLedger | None = None,
        seed: int = 0,
        on_progress: Callable[[int, float], None] | None = None,
    ) -> None:
        n = len(trace)
        self._trace, self._policy, self._truth, self._view = trace, policy, truth, view
        self._recorder, self._ledger, self._on_progress = recorder, ledger, on_progress
        self._clock = Clock(initial_time=float(trace.submit_s[0]))
        self._queue = JobQueue(n)
        self._timetable, self._quota = timetable, dict(timetable.quotas_at(0))
        for vc, milli in self._quota.items():
            view.vc_left[vc] = milli
        by_lane = may_run(policy, truth, config, view, cluster, timetable, tenants)
        self._book = JobBook(trace, truth, config, recorder, view, ledger, tenants, in_lists=not by_lane)
        self._referee = Referee(trace, cluster, policy, truth, view, ledger, self._book.vc_left, timetable, tenants)
        if not by_lane:
            self._referee.in_lists()
        self._desk = Desk(
            trace, cluster, policy, truth, config, view, ledger, self._clock, self._queue, self._book, self._referee,
            on_finish=self._on_finish, enqueue=self._enqueue, leave=self._leave, ask=self._ask,
            on_lease_end=self._on_lease_end,
        )
        self._happened = view.happened if policy.reads_happened else None
        self._outages = Outages(
            cluster, self._clock, ledger, config, seed, timetable, self._vacate, self._on_step, self._ask
        )
        self._drains = Drains(self._clock, ledger, timetable.windows, view, self._vacate, self._ask)
        self._submit = trace.submit_s if by_lane else trace.submit_s.tolist()
        self._end_s = np.full(n, np.nan)
        self._state, self._reason = [""] * n, [""] * n
        self._open, self._next, self._decisions = n, 0, 0
        self._asked, self._alarm = False, Alarm(self._clock, self._on_alarm, self._desk.where)
        self._decided_in_vain = 0
        # No run goes beyond the times that traces and results have.
        over_s = np.inf if config.horizon_s is None else config.horizon_s
        self._horizon = min(MAX_TIME_S, float(trace.submit_s[0]) + over_s)
        self._lane: Lane | None = None
        if by_lane:
            self._lane = Lane(trace, cluster, policy, truth, config, recorder, view, ledger, self._queue, self._book,
                              self._desk, self._referee, self._clock, self._horizon, self._state, self._reason,
                              self._end_s, on_progress)  # fmt: skip

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run until each job has left, nothing can happen any more, or the horizon is reached."""
        self._clock.at(float(self._submit[0]), self._on_submit)
        self._outages.begin()
        self._drains.begin()
        while self._open and self._clock.peek() <= self._horizon:
            if self._lane is not None and not self._asked and (self._book.gpus or not len(self._queue)):
                self._by_lane(self._lane)
                continue
            self._clock.step()
            if self._stuck():
                self._close(why_it_stands(self._outages, self._drains))
                break
        else:
            if self._open:
                self._clock.stop_at(self._horizon)
                self._close("still waiting at the horizon")
        lost = {row for row, state in enumerate(self._state) if not state} if "" in self._state else ()
        must_balance(lost or self._queue.rows.tolist(), self._ledger, self._outages.down, self._desk.where)
        down_s, up_s, changes = self._outages.down_s, self._outages.up_s, self._drains.changes
        return Outcome(self._book.first_start_s, self._end_s, self._state, self._reason, down_s, up_s, changes,
                       float(self._clock.now), self._decisions)  # fmt: skip

    def _by_lane(self, lane: Lane) -> None:
        """Let the lane go on from here, and put what is due where it stops on the calendar."""
        left = lane.run(self._next, self._open)
        if left.open and not isinstance(self._submit, list):
            self._submit = self._submit.tolist()
        self._next, self._open, self._decisions = left.next_row, left.open, self._decisions + left.decisions
        for end_s, row in left.ends:
            self._clock.at(end_s, self._on_finish, (row, self._desk.launch[row]))
        if self._next < len(self._submit):
            self._clock.at(self._submit[self._next], self._on_submit)
        if left.asks:
            self._ask()
        elif left.alarm_s < np.inf:
            self._alarm.set(left.alarm_s)
        if lane.changes == MOST_CHANGES or not left.asks:
            self._lane = None

    def _stuck(self) -> bool:
        """True where jobs wait, none runs, none comes, and no alarm, repair or step of the timetable changes that."""
        if self._book.gpus or self._asked or self._next < len(self._submit):
            return False
        to_come = self._alarm.is_set or self._outages.change_to_come or self._drains.news_to_come
        return not to_come or self._decided_in_vain > MAX_IN_VAIN

    def _ask(self) -> None:
        """Ask for a decision at this instant, after all that is due now."""
        if not self._asked:
            self._asked = True
            self._clock.at(self._clock.now, self._on_decide, priority=LATE)

    def _on_submit(self, _: Any) -> None:
        now, row = self._clock.now, self._next
        come = []
        while row < len(self._submit) and self._submit[row] == now:
            come.append(row)
            row += 1
        if self._happened is not None:
            self._happened.arrived += come
        self._enqueue(come)
        self._next = row
        if row < len(self._submit):
            self._clock.at(self._submit[row], self._on_submit)
        self._ask()

    def _on_finish(self, event: Any) -> None:
        row, launch = event.value
        if self._desk.launch[row] != launch:
            return
        if self._desk.finish(row):
            self._leave(row, END_STATE[self._trace.status[row]])
        else:
            self._came_back([row], "failed")
        self._ask()

    def _on_alarm(self, event: Any) -> None:
        if self._alarm.rings(event):
            self._asked = True
            self._on_decide(event)

    def _vacate(self, gpus: np.ndarray, why: str) -> None:
        """The jobs on GPUs that go out of service are interrupted and wait again."""
        hit = self._book.on_gpus(gpus)
        for row in hit:
            self._desk.interrupt(row, why)
        self._came_back(hit, why)

    def _on_lease_end(self, rows: list[int]) -> None:
        """The GPUs of jobs whose leases are over fall back; they wait again."""
        for row in rows:
            self._desk.interrupt(row, "lease_ended")
        self._came_back(rows, "lease_ended")
        self._ask()

    def _came_back(self, rows: list[int], why: str) -> None:
        """Jobs wait again, for no decision of the policy's."""
        if self._happened is not None:
            self._happened.interrupted += [(row, why) for row in rows]
        self._enqueue(rows)

    def _on_step(self, step: int) -> None:
        """A step of the timetable: quotas change, and what waits but can never run any more leaves with the reason.

        Running jobs above a quota that shrank go on: what their virtual cluster may take is negative until they end.
        """
        self._referee.step = step
        less = step in self._timetable.fewer
        for vc, milli in self._timetable.quotas_at(step):
            self._book.change_quota(vc, milli - self._quota[vc])
            less |= milli < self._quota[vc]
            self._quota[vc] = milli
        for row in self._queue.rows.tolist() if less else ():
            if self._sent_away(row):
                self._queue.discard(row)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _on_decide(self, _: Any) -> None:
        if not self._asked:
            return  # an alarm at this same instant has decided already
        view, now = self._view, float(self._clock.now)
        self._asked = False
        self._alarm.off()
        view.now_s = now
        view.queued, view.queued_key, view.running = self._queue.rows, self._queue.keys, self._book.running
        queued, running = view.queued.size, view.running.size
        decision = decision_of(self._policy, view, self._desk.where)
        self._decisions += 1
        if self._happened is not None:  # what comes of this decision is told with the next
            self._happened = view.forget()
        try:
            changed = self._desk.apply(decision, self._state)
            wake_s = decision.wake_s
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, NumbaError) as error:
            raise IllegalDecisionError(
                "the decision has not the form of sim.api.Decision", where=self._desk.where(), got=described(error),
                allowed=FORM,
            ) from error
        moved = len(decision.move)
        self._recorder.decision(now, queued, running, len(decision.start) + moved, len(decision.stop) + moved)
        self._decided_in_vain = 0 if changed or self._book.gpus else self._decided_in_vain + 1
        if decision.reject or decision.refuse:
            self._ask()
        self._alarm.decided(changed, wake_s)
        if self._decisions % 512 == 0:
            must_end(self._book.overdue(now), self._desk.where)
            if self._on_progress is not None:
                self._on_progress(len(self._submit) - self._open, now)

    # -- coming and going ---------------------------------------------------------------------------------------------

    def _enqueue(self, rows: list[int]) -> None:
        """Put jobs into the queue, at the places of their keys; those that can never run from now on leave instead."""
        rows = rows and [row for row in rows if not self._sent_away(row)]
        if not rows:
            return
        self._view.now_s = float(self._clock.now)
        for row, key in zip(rows, keys_of(self._policy, self._view, rows, self._desk.where), strict=True):
            self._queue.add(row, key)

    def _sent_away(self, row: int) -> bool:
        """True where a job that waits can never run from now on: it has left, with the reason."""
        reason = self._referee.impossible(row)
        if reason:
            self._leave(row, "rejected" if isnan(self._book.first_start_s[row]) else "unfinished", reason)
            self._ask()  # those behind it are due
        return bool(reason)

    def _leave(self, row: int, state: str, reason: str = "") -> None:
        """A job leaves for good."""
        self._state[row], self._reason[row] = state, reason
        self._desk.launch[row] = -1
        if self._happened is not None:
            self._happened.finished.append((row, state))
        if state in ENDED:
            self._end_s[row] = self._clock.now
        self._open -= 1

    def _close(self, waiting: str) -> None:
        """End the run with jobs left: what runs is cut off, the rest has the reason given."""
        must_end(self._book.overdue(float(self._clock.now)), self._desk.where)
        wait = {row for row in range(self._next) if not self._state[row]} - self._book.gpus.keys()
        must_be_there(wait ^ set(self._queue.rows.tolist()), self._desk.where)
        for row in list(self._book.gpus):
            self._desk.interrupt(row, "horizon")
            self._state[row], self._reason[row] = "unfinished", "still running at the horizon"
        for row, state in enumerate(self._state):
            if not state:
                reason = waiting if row < self._next else "submitted after the horizon"
                self._state[row], self._reason[row] = "unfinished", reason
                self._queue.discard(row)
