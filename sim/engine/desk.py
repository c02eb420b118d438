"""The desk: decisions carried out. What is impossible is refused; the rest goes to ledger, book and clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from sim.api import Decision, IllegalDecisionError, Placement, Plan, Policy, View
from sim.cluster.spec import WHOLE, ClusterSpec, Ledger
from sim.engine.clock import Clock
from sim.engine.jobbook import JobBook
from sim.engine.jobqueue import JobQueue
from sim.engine.leases import Leases
from sim.engine.neighbours import neighbours
from sim.engine.referee import Referee
from sim.engine.terms import Agreed, Terms
from sim.kernels.lane import MAX_IN_VAIN
from sim.performance import PerformanceError
from sim.settings.config import EngineConfig
from sim.workload.progress import Truth
from traces.columns import MAX_TIME_S
from traces.trace import Trace

MOST_SAID = 1_000
"""Characters of a reason: more is no reason."""
MOST_SHOWN = 60
"""Characters of a thing that is no row."""
WORDS = ("start", "stop", "move", "reject", "rekey", "refuse", "lease")


def as_lists(decision: Decision) -> list[list[Any]]:
    """The words of a decision, where a policy gave something else than lists: a generator can be read only once, and
    the truth of an array says nothing of whether it is empty. The decision has lists from then on."""
    for word in WORDS:
        setattr(decision, word, list(getattr(decision, word)))
    return [getattr(decision, word) for word in WORDS]


class Desk:
    """Starts, stops and moves jobs. `leave` and `enqueue` are the engine's: jobs that leave, jobs that wait again."""

    def __init__(
        self, trace: Trace, cluster: ClusterSpec, policy: Policy, truth: Truth, config: EngineConfig, view: View,
        ledger: Ledger, clock: Clock, queue: JobQueue, book: JobBook, referee: Referee, *,
        on_finish: Callable[[Any], None], enqueue: Callable[[list[int]], None], leave: Callable[..., None],
        ask: Callable[[], None], on_lease_end: Callable[[list[int]], None],
    ) -> None:
        self._policy, self._truth, self._view, self._ledger = policy, truth, view, ledger
        self._clock, self._queue, self._book, self._referee = clock, queue, book, referee
        self._on_finish, self._enqueue, self._leave = on_finish, enqueue, leave
        self._shares, self._zone = policy.shares_gpus, cluster.node_zone if cluster.zoned else ()
        self._neighbours = neighbours(trace, truth, cluster, config, policy.shares_gpus)
        self._terms = Terms(view, cluster, policy, truth, config, self._refuse)
        self._leases = Leases(clock, book.leases, ask, on_lease_end) if policy.leases_gpus else None
        self._parts = self._neighbours is not None or policy.shares_gpus
        self.launch, self.launches = [-1] * len(trace), 0
        """Number of each job's present launch; an end on the calendar that belongs to another one is stale."""
        self.in_vain = 0

    # -- a decision -------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision, state: list[str]) -> bool:
        """Carry out a decision; True where it changed anything. `state`: of each job that has left, how."""
        said: Any = decision  # whatever a policy took for lists
        start, stop, move, reject = said.start, said.stop, said.move, said.reject
        rekey, refuse, lease = said.rekey, said.refuse, said.lease
        if not (type(start) is type(stop) is type(move) is type(reject) is type(rekey) is type(refuse) is type(lease)
                is list):  # fmt: skip
            start, stop, move, reject, rekey, refuse, lease = as_lists(decision)
        changed = bool(stop or reject or refuse or move or start)
        if stop or reject or rekey or refuse:
            self._take_out(stop, reject, rekey, refuse, state)
        if move:
            self._move(move)
        for row, placement in start:
            if type(row) is not int or row < 0:
                self._number(row)
            self._must(self._queue.discard(row), "only a queued job can be started", row)
            self._start(row, placement)
        for row, until_s in lease:
            self._grant(row, until_s)
        if self._neighbours is not None:
            self._respeed()
        return changed

    def _take_out(
        self, stop: list[int], reject: list[tuple[int, str]], rekey: list[int], refuse: list[tuple[int, str]],
        state: list[str],
    ) -> None:
        """Stops, rejections and refusals, and new keys."""
        running = self._book.gpus
        for row in stop:
            self._number(row)
            self._must(row in running, "only a running job can be stopped", row)
            self.interrupt(row, "preempted")
        if stop:
            self._enqueue(stop)
            left = {row for row in stop if state[row]}  # by the referee's verdict, before the policy's
            if left:
                reject, rekey = [r for r in reject if r[0] not in left], [row for row in rekey if row not in left]
                refuse = [r for r in refuse if r[0] not in left]
        for row, reason in reject:
            self._turn_away(row, reason, "rejected")
        if refuse:
            self._must(self._policy.refuses_jobs, "a policy that refuses jobs declares refuses_jobs = True",
                       refuse[0][0])
            for row, reason in refuse:
                self._turn_away(row, reason, "refused")
        for row in rekey:
            self._number(row)
            self._must(self._queue.discard(row), "only a queued job has a key", row)
        self._enqueue(rekey)

    def _move(self, move: list[tuple[int, Placement]]) -> None:
        """The old GPUs of all moved jobs are freed first."""
        running = self._book.gpus
        for row, placement in move:
            self._number(row)
            self._must(row in running, "only a running job can be moved", row)
            self.interrupt(row, "migrated" if placement.gpus.size == running[row].size else "resized")
        for row, placement in move:
            self._start(row, placement)

    def _number(self, row: Any) -> None:
        """A job is named by the number of its row: a bool or a list would be an index, and mean other jobs."""
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < len(self.launch):
            raise IllegalDecisionError("there is no such job", where=self.where(), got=repr(row)[:MOST_SHOWN],
                                       allowed=f"a row of the trace, an integer from 0 to {len(self.launch) - 1}")

    def _turn_away(self, row: int, reason: str, word: str) -> None:
        """A queued job leaves by the policy's word; one that has run before leaves unfinished."""
        self._number(row)
        self._must(self._queue.discard(row), f"only a queued job can be {word}", row)
        said = isinstance(reason, str) and bool(reason.strip()) and len(reason) <= MOST_SAID
        self._must(said and reason.encode(errors="replace").decode() == reason,
                   f"a job is {word} with a reason, as text of at most {MOST_SAID:,} characters", row)
        self._leave(row, word if np.isnan(self._book.first_start_s[row]) else "unfinished", reason)

    def _start(self, row: int, placement: Placement) -> None:
        """Give a job its GPUs and set the clock for its end."""
        now, own = float(self._clock.now), self._book.asked_milli[row]
        agreed: Agreed | None = None
        special = placement.milli or placement.batch_size or placement.cap_w
        self._referee.check(now, row, placement, placement.milli or own)
        # A copy: what the policy does with its array later is no concern of the books.
        gpus = placement.gpus.copy()
        plan = placement.plan
        rate = self._truth.rate(row, gpus, None) if plan is None else self._planned(row, gpus, plan)
        if special or (own < WHOLE and self._shares):
            agreed = self._terms.agree(row, placement, rate)
            rate = agreed.rate
        milli = own if agreed is None else agreed.milli
        short = self._ledger.take(gpus, milli)
        if short >= 0:
            g = int(gpus[short])
            raise IllegalDecisionError(
                "a GPU that is not free was asked for",
                where=self.where(row),
                got=f"GPU {g}, wanted {milli} milli",
                allowed=f"{max(0, self._ledger.free_milli[g])} milli free",
            )
        if not 0 < rate < np.inf:
            raise IllegalDecisionError(
                "the job cannot run on these GPUs (its memory does not fit)",
                where=self.where(row),
                got=f"{gpus.size} GPUs of {self._referee.types_of(gpus)}",
            )
        self._set_end(row, self._book.launch(row, gpus, placement, rate, now, agreed))
        if self._zone:
            self._book.egress.update(self._egress(row, gpus, plan, agreed))
        if agreed is not None:
            self._terms.join(row, gpus, agreed)
        if self._neighbours is not None:
            self._neighbours.join(row, gpus, placement.plan, rate, milli)

    def _egress(self, row: int, gpus: np.ndarray, plan: Plan | None, agreed: Agreed | None) -> dict[int, float]:
        """USD a unit of work of a job whose GPUs are in several zones, for bytes that leave one: USD of an iteration /
        work that it brings."""
        if len({self._zone[node] for node in self._ledger.gpu_node[gpus].tolist()}) < 2:
            return {}
        batch, worth = (0, 1.0) if agreed is None else (agreed.batch_size, agreed.worth)
        return {row: self._truth.egress_usd(row, gpus, plan, batch) / worth}

    def _planned(self, row: int, gpus: np.ndarray, plan: Plan) -> float:
        """Work a second by a plan; one that the model cannot have is the policy's mistake."""
        try:
            return self._truth.rate(row, gpus, plan)
        except PerformanceError as error:
            raise IllegalDecisionError(f"an impossible plan: {error}", where=self.where(row)) from error

    def _set_end(self, row: int, end_s: float) -> None:
        """Put a job's end on the calendar; one that is there already no longer counts."""
        self.launches += 1
        self.launch[row] = self.launches
        self._clock.at(end_s, self._on_finish, (row, self.launches))

    def _grant(self, row: int, until_s: float) -> None:
        if self._leases is None:
            raise IllegalDecisionError("a policy that leases GPUs declares leases_gpus = True", where=self.where(row))
        self._number(row)
        self._must(row in self._book.gpus, "only a running job has a lease", row)
        number = isinstance(until_s, float | int | np.floating | np.integer) and not isinstance(until_s, bool)
        if not number or not (self._clock.now < until_s <= MAX_TIME_S or until_s == np.inf):
            self._refuse("a lease ends in the future", row, until_s,
                         f"a time after {self._clock.now:.12g}, up to {MAX_TIME_S:g}, or inf")
        self._leases.grant(row, float(until_s))

    # -- what happens to running jobs -------------------------------------------------------------------------------

    def finish(self, row: int) -> bool:
        """A job's attempt is done; True where it was the last one."""
        if self._parts:
            self._part(row)
        return self._book.finish(row, float(self._clock.now))

    def interrupt(self, row: int, why: str) -> None:
        """Take a job off its GPUs."""
        self.launch[row] = -1
        if self._parts:
            self._part(row)
        gained = self._book.interrupt(row, float(self._clock.now), why)
        self.in_vain = 0 if gained else self.in_vain + 1
        if self.in_vain > MAX_IN_VAIN:
            self.in_vain_too_often(row)

    def in_vain_too_often(self, row: int) -> NoReturn:
        """End the run: jobs are interrupted again and again, and nothing gets done."""
        raise IllegalDecisionError(
            f"jobs were interrupted {MAX_IN_VAIN} times in a row before any got anything done",
            where=self.where(row),
            todo="Lower preemption_overhead_s or checkpoint_interval_s, or let jobs run longer (quantum, mtbf_h).",
        )

    def _part(self, row: int) -> None:
        """A job leaves those that it shares GPUs and links with."""
        if self._neighbours is not None:
            self._neighbours.leave(row)
        self._terms.leave(row)

    def _respeed(self) -> None:
        """Jobs whose neighbours have come or gone go on at their new rates, where they are."""
        assert self._neighbours is not None
        for row, rate in self._neighbours.changed():
            self._set_end(row, self._book.respeed(row, float(self._clock.now), rate))

    # -- refusals ---------------------------------------------------------------------------------------------------

    def where(self, row: int | None = None) -> str:
        """Time, policy and job, as messages open."""
        return self._referee.where(float(self._clock.now), row)

    def _must(self, ok: bool, rule: str, row: int) -> None:
        if not ok:
            raise IllegalDecisionError(rule, where=self.where(row))

    def _refuse(self, what: str, row: int, got: object, allowed: object = "") -> None:
        raise IllegalDecisionError(what, where=self.where(row), got=got, allowed=str(allowed))
