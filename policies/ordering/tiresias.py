"""Tiresias: discretised two-dimensional LAS (Gu et al., NSDI'19, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.mechanisms import Preemptive
from sim.api import Decision, FastLane, PolicyError, View, param
from sim.kernels.keys import QUEUES


@dataclass
class Tiresias(Preemptive):
    """Jobs descend through queues as they attain service; within a queue nobody preempts.

    Key: the number of `queue_limits` that the attained service has reached. A waiting job rises back to the first queue
    once its last wait is `promote` times what it has executed since it last rose (0: never).

    With `semantics=as-simulated` the policy repeats what the authors' simulator does, to compare with its results: a
    demotion is noticed at executed + floor((limit - executed) / GPUs), which is late for gangs (limit / GPUs is
    right); the lists persist (running before pending, else in the order of entry); waits add up over all earlier
    waits; times are whole seconds. Its placement is `count`.
    """

    queue_limits: str = param(
        "3250,7200", unit="s or GPU-s", help="service at which a job leaves each queue, ascending"
    )
    by: str = param("gpu-time", choices=("gpu-time", "time"), help="what counts as service (2D-LAS: GPU time)")
    promote: float = param(0.0, low=0, help="rise when the last wait is this many times the executed time; 0: never")
    semantics: str = param(
        "as-published", choices=("as-published", "as-simulated"), help="see the policy's description"
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        try:
            self._limits = np.array([float(part) for part in self.queue_limits.split(",")])
        except ValueError:
            self._limits = np.array([np.nan])
        if not (self._limits > 0).all() or not (np.diff(self._limits) > 0).all():
            raise PolicyError(
                "value not allowed",
                where="policy 'tiresias'",
                got=self.queue_limits,
                allowed="ascending positive numbers joined by commas",
            )
        n = len(view.jobs)
        self._base_s = np.zeros(n)  # executed time when the job last rose
        self._waits_since_s = np.full(n, np.nan)
        self._lists: list[list[int]] = [[] for _ in range(len(self._limits) + 1)]
        self._level: dict[int, int] = {}
        self._waited_s = np.zeros(n)
        self._seen_s = np.zeros(n)

    def fast_lane(self, view: View) -> FastLane | None:
        if self.promote > 0 or self.semantics == "as-simulated":
            return None
        gang = self._gang(view, np.arange(len(view.jobs)))
        return self.in_lane(Tiresias, (QUEUES, self._limits, gang, np.empty(0)))

    def _executed_s(self, view: View, rows: np.ndarray) -> np.ndarray:
        return view.attained_s(rows) - self._base_s[rows]

    def _gang(self, view: View, rows: np.ndarray) -> np.ndarray:
        return view.jobs.gpus[rows] if self.by == "gpu-time" else np.ones(rows.size)

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        service = self._executed_s(view, rows) * self._gang(view, rows)
        return np.searchsorted(self._limits, service * (1 + 1e-12), side="right").astype(np.float64)

    def wake_s(self, view: View, running: np.ndarray, bar: np.ndarray) -> float | None:
        """When the first running job falls below a waiting one, or a waiting one rises."""
        times = []
        falls = np.flatnonzero(bar < len(self._limits))  # out of the last queue nobody falls
        if falls.size:
            those = running[falls]
            limit = self._limits[bar[falls].astype(np.int64)]
            lacking = limit / self._gang(view, those) - self._executed_s(view, those)
            later = lacking[lacking > 1e-9]
            if later.size:
                times.append(float(view.now_s + later.min()))
        if self.promote > 0:
            stopped = np.setdiff1d(view.running, running)
            self._waits_since_s[stopped] = view.now_s
            rises = self._rises_s(view, np.concatenate((view.queued, stopped)))
            times += rises[np.isfinite(rises) & (rises > view.now_s)].tolist()
        return min(times, default=None)

    def _rises_s(self, view: View, rows: np.ndarray) -> np.ndarray:
        executed = self._executed_s(view, rows)
        rises = self._waits_since_s[rows] + self.promote * executed
        return np.where((executed > 0) & (self.key(view, rows) > 0), rises, np.inf)

    def decide(self, view: View) -> Decision:
        if self.semantics == "as-simulated":
            return self._decide_as_simulated(view)
        risen = []
        if self.promote > 0:
            waiting = view.queued
            fresh = waiting[np.isnan(self._waits_since_s[waiting])]
            self._waits_since_s[fresh] = view.now_s
            self._waits_since_s[view.running] = np.nan
            due = waiting[self._rises_s(view, waiting) <= view.now_s]
            self._base_s[due] = view.attained_s(due)
            risen = due.tolist()
        if risen:  # their places in the queue change: decide again at once by the new order
            keys = self.key(view, view.queued)
            order = np.lexsort((view.queued, keys))
            run_key = self.key(view, view.running)
            by_run = np.lexsort((view.running, run_key))
            decision = self.choose(view, view.running[by_run], run_key[by_run], view.queued[order], keys[order])
            started = {row for row, _ in decision.start}
            decision.rekey = [row for row in risen if row not in started]
            return decision
        return super().decide(view)

    # -- as simulated -------------------------------------------------------------------------------------------------

    def _decide_as_simulated(self, view: View) -> Decision:
        running = set(view.running.tolist())
        present = running | set(view.queued.tolist())
        for entries in self._lists:
            entries[:] = [row for row in entries if row in present]
        self._level = {row: level for row, level in self._level.items() if row in present}
        arrived = sorted(present - self._level.keys())
        for row in arrived:
            self._lists[0].append(row)
            self._level[row], self._seen_s[row] = 0, view.now_s
        self._age(view, running)
        order = np.array([row for entries in self._lists for row in entries], dtype=np.int32)
        decision = self.choose_ranked(view, order) if order.size else Decision()
        runs = (running - set(decision.stop)) | {row for row, _ in decision.start}
        for entries in self._lists:
            entries.sort(key=lambda row: row not in runs)
        decision.wake_s = self._jump_s(view, runs)
        return decision

    def _age(self, view: View, running: set[int]) -> None:
        """Demote and promote, in the order in which jobs were submitted."""
        last = len(self._limits)
        rows = np.array(sorted(self._level), dtype=np.int32)
        executed_s, gang = self._executed_s(view, rows), self._gang(view, rows)
        waits = np.isin(rows, view.running, invert=True)
        self._waited_s[rows] += np.where(waits & (executed_s > 0), view.now_s - self._seen_s[rows], 0.0)
        self._seen_s[rows] = view.now_s
        for row, executed, gpus in zip(rows.tolist(), executed_s.astype(int).tolist(), gang.tolist(), strict=True):
            level = self._level[row]
            if row in running:
                if level < last and executed * gpus >= self._limits[level]:
                    self._shift(row, level + 1)
            elif (
                self.promote > 0 and level > 0 and executed > 0 and self._waited_s[row] >= int(executed * self.promote)
            ):
                self._base_s[row] += executed
                self._waited_s[row] = 0
                self._shift(row, 0)

    def _shift(self, row: int, level: int) -> None:
        self._lists[self._level[row]].remove(row)
        self._lists[level].append(row)
        self._level[row] = level

    def _jump_s(self, view: View, runs: set[int]) -> float | None:
        """When their simulator looks again, by its own formula."""
        times = []
        rows = np.fromiter(self._level, dtype=np.int32, count=len(self._level))
        executed_s, gang = self._executed_s(view, rows), self._gang(view, rows)
        for row, executed, gpus in zip(rows.tolist(), executed_s.astype(int).tolist(), gang.tolist(), strict=True):
            level = self._level[row]
            if row in runs:
                if level < len(self._limits):
                    times.append(view.now_s + (self._limits[level] - executed) // gpus)
            elif self.promote > 0 and level > 0 and executed > 0:
                wait = int(executed * self.promote - self._waited_s[row])
                if wait > 0:
                    times.append(view.now_s + wait)
        return min((t for t in times if t > view.now_s), default=None)
