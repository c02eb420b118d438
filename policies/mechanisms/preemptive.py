"""Choose anew, at each instant, who holds the GPUs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from policies.mechanisms.placing import Placing, as_in
from sim.api import Decision, FastLane, View, param
from sim.kernels.keys import Terms, keys_of, next_yield_s
from sim.kernels.placement import RULES
from sim.kernels.preempt import select


@dataclass
class Preemptive(Placing):
    """Lets the jobs with the smallest keys hold the GPUs, running and waiting ones alike.

    At each instant all jobs are walked in the order of their keys and those that fit are chosen; running jobs that are
    not chosen are preempted. Jobs with equal keys never preempt each other.
    """

    replace: str = param(
        "keep",
        choices=("keep", "all"),
        help="keep: a running job that goes on stays on its GPUs, unless a better job takes them and others are "
        "free; all: every job is placed anew at each decision",
    )

    ties: str = param(
        "submit",
        choices=("submit", "previous"),
        help="jobs with equal keys: running ones first, then in submit order; or in the order of the decision before",
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._rank = np.full(len(view.jobs), np.inf)
        rows = self._found[0]
        most = 2 * rows.size
        self._chosen = np.empty_like(rows), np.empty(most, dtype=np.int32), np.empty(most), np.zeros(3)

    @abstractmethod
    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Priority, smallest first. A waiting job's key must not change; a running one's may."""

    def wake_s(self, view: View, running: np.ndarray, bar: np.ndarray) -> float | None:
        """When to decide again although nothing happens (keys of running jobs change with time).

        `running` are the rows that run from now on, `bar` of each the smallest key, not below its own, of a job that
        waits from now on: when its key rises above that, it may have to yield (inf: never).
        """
        return None

    def decide(self, view: View) -> Decision:
        running, queue, queue_key = view.running, view.queued, view.queued_key
        if queue.size == 0:
            return Decision()
        run_key = self.key(view, running)
        if self.ties == "previous":
            return self._decide_stably(view, running, run_key)
        order = np.lexsort((running, run_key))
        return self.choose(view, running[order], run_key[order], queue, queue_key)

    def choose(
        self, view: View, run: np.ndarray, run_key: np.ndarray, queue: np.ndarray, queue_key: np.ndarray,
        keys: np.ndarray | None = None,
    ) -> Decision:
        """Decide between running and waiting jobs, both in the order of their keys (or of their ranks in `keys`)."""
        queues = run, run_key, queue, queue_key
        count = select(
            *queues, self.replace == "keep", RULES[self.placement], view.held, *view.scratch().arrays, self._found,
            self._chosen,
        )  # fmt: skip
        stopped, goes_on, bars, totals = self._chosen
        stops, going, moves = (int(total) for total in totals.tolist())
        decision = Decision(start=self._placements(count), stop=stopped[:stops].tolist())
        if moves:
            decision.move = [p for p in decision.start if view.slot_n[p[0]]]
            decision.start = [p for p in decision.start if not view.slot_n[p[0]]]
        if going and len(decision.start) < queue.size + stops:  # else nobody waits
            bar = bars[:going]
            if keys is not None:
                bar = np.append(keys, np.inf)[np.minimum(bar, keys.size).astype(np.int64)]
            decision.wake_s = self.wake_s(view, goes_on[:going], bar)
        return self.never_fits(view, decision)

    def _decide_stably(self, view: View, running: np.ndarray, run_key: np.ndarray) -> Decision:
        """The same with ties in the order of the decision before: one stable sort, as of a list that stays."""
        rows = np.concatenate((running, view.queued))
        keys = np.concatenate((run_key, view.queued_key))
        order = np.lexsort((rows, self._rank[rows], keys))
        self._rank[rows[order]] = np.arange(rows.size)
        return self.choose_ranked(view, rows[order], keys[order])

    def choose_ranked(self, view: View, rows: np.ndarray, keys: np.ndarray | None = None) -> Decision:
        """Decide by an order of all jobs, running and waiting, that the policy made itself; `keys`: what it goes by."""
        runs = view.slot_n[rows] > 0
        rank = np.arange(rows.size, dtype=np.float64)
        return self.choose(view, rows[runs], rank[runs], rows[~runs], rank[~runs], keys)

    def in_lane(self, mechanism: type, terms: Terms) -> FastLane | None:
        """The fast lane of a policy that has not changed how `mechanism` decides and orders jobs."""
        if self.ties != "submit" or not as_in(self, mechanism, "decide", "choose", "key", "wake_s", "never_fits"):
            return None
        return FastLane(RULES[self.placement], terms, preempts=True, keep=self.replace == "keep")


@dataclass
class ByForm(Preemptive):
    """Preemptive, with keys of a form that kernels know (`sim.kernels.keys`)."""

    @abstractmethod
    def terms(self, view: View) -> Terms:
        """The form of the keys, and what it needs."""

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._terms, self._gpus = self.terms(view), view.jobs.gpus.astype(np.float64)

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.asarray(keys_of(rows, view.now_s, self._terms, view.service))

    def wake_s(self, view: View, running: np.ndarray, bar: np.ndarray) -> float | None:
        then_s = next_yield_s(running, bar, self._gpus, view.now_s, self._terms, view.service)
        return float(then_s) if then_s < np.inf else None

    def fast_lane(self, view: View) -> FastLane | None:
        return self.in_lane(ByForm, self._terms)
