"""Give GPUs for a round at a time, so that each job's time on each GPU type comes to what it deserves."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from policies.mechanisms.placing import Placing, nothing_to_do
from sim.api import Decision, Placement, View, param

LEAST_SHARE = 1e-6
"""Shares of time below this are none: what a solver leaves where it means 0 must not win a round."""


@dataclass
class Rounds(Placing):
    """Gives GPUs for a round at a time by an allocation of shares (Gavel: Narayanan et al., OSDI'20, section 5).

    A policy says which share of its time each job deserves on each GPU type (`allocation`), X[job, type]. At the
    begin of a round, pairs of job and type are walked by

        priority = (deserved_s + X round_s) / received_s,

    the largest first (never received: before all others; ties: larger X, then submit order). deserved_s is the
    integral of X over the time in which the job was there, received_s the time for which it held GPUs of that type,
    both until now. With an X that does not change this is Gavel's order, X / (share of the time received). A job gets
    its gang, of one type, for a round; one that keeps its type stays where it is. Who holds GPUs keeps them until the
    round ends; what no job that deserves time can use stays idle. Where nothing runs, a round begins at once.
    """

    round_s: float = param(360.0, unit="s", above=0, help="length of a round")
    between: str = param(
        "wait",
        choices=("wait", "fill"),
        help="GPUs that come free within a round: wait for its end; or fill: they go at once to the waiting jobs that "
        "have the priority, until its end",
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        shape = len(view.jobs), len(view.cluster.types)
        self._deserved_s, self._received_s = np.zeros(shape), np.zeros(shape)
        self._types = view.jobs.types[:, None] >> np.arange(shape[1], dtype=np.uint64) & np.uint64(1) == 1
        self._last_s = self._round_end_s = -np.inf
        # Since the last decision: who is there and deserves what, who holds GPUs of which type.
        self._there, self._share = np.empty(0, dtype=np.int32), np.empty((0, shape[1]))
        self._rows, self._on = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)

    @abstractmethod
    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Share of time that each job deserves on each GPU type: float64 [rows, types], at most 1 in a row.

        `rows` are all jobs that are there, waiting and running, in submit order, one or more; asked for at the begin of
        each round, and where GPUs are to be filled within one. Types that a job may not use count as 0.
        """

    def decide(self, view: View) -> Decision:
        self._account(view)
        target: dict[int, Placement] | None = None
        if view.now_s >= self._round_end_s or not view.running.size:
            self._round_end_s = view.now_s + self.round_s
            pairs = self._by_priority(view)
            winners = self._winners(view, pairs)
            target = self._give(view, pairs, [row for row, t in winners.items() if self._type_of(view, row) == t])
        elif self.between == "fill" and not nothing_to_do(view):
            target = self._give(view, self._by_priority(view), view.running.tolist())
        decision = Decision() if target is None else Decision.toward(view, target)
        self._note(view, decision)
        if self._rows.size:  # else a job that comes begins a round
            decision.wake_s = self._round_end_s
        return self.never_fits(view, decision)

    def _account(self, view: View) -> None:
        """Add what has passed since the last decision; since then nobody's GPUs changed, but some may have left."""
        passed_s = view.now_s - self._last_s
        if self._there.size:
            self._deserved_s[self._there] += self._share * passed_s
            self._received_s[self._rows, self._on] += passed_s
        self._last_s = view.now_s

    def _note(self, view: View, decision: Decision) -> None:
        """Who holds GPUs of which type from now on."""
        gpus = {row: view.slots[view.slot_at[row]] for row in view.running.tolist()}
        for row in decision.stop:
            del gpus[row]
        gpus.update((row, placement.gpus[0]) for row, placement in decision.move + decision.start)
        self._rows = np.fromiter(gpus.keys(), dtype=np.int32, count=len(gpus))
        first = np.fromiter(gpus.values(), dtype=np.int32, count=len(gpus))
        self._on = view.cluster.gpu_type[first]

    def _winners(self, view: View, pairs: list[tuple[int, int]]) -> dict[int, int]:
        """The type that each job wins where only counts and quotas matter."""
        scratch = view.scratch(view.running)
        left, quota = scratch.type_milli(), scratch.vc_left
        demand = view.jobs.num_gpus.astype(np.int64) * view.jobs.gpu_milli
        won: dict[int, int] = {}
        for row, t in pairs:
            vc = view.jobs.vc[row]
            if row not in won and demand[row] <= min(left[t], quota[vc]):
                won[row] = t
                left[t] -= demand[row]
                quota[vc] -= demand[row]
        return won

    def _give(self, view: View, pairs: list[tuple[int, int]], stay: list[int]) -> dict[int, Placement]:
        """What each job holds from now on: some stay, the others take what is left by their priority."""
        scratch = view.scratch(np.setdiff1d(view.running, stay))
        target = {row: view.placement(row) for row in stay}
        for row, t in pairs:
            if not (scratch.milli > 0).any():
                break
            if row in target:
                continue
            gang, own = scratch.gang(row), view.gpus_of(row)
            if self._type_of(view, row) == t and scratch.take(own, gang.gpu_milli, gang.vc):
                target[row] = Placement(own)
            elif (gpus := scratch.place(gang._replace(types=1 << t), self.placement)) is not None:
                target[row] = Placement(gpus)
        return target

    def _type_of(self, view: View, row: int) -> int:
        """GPU type that a job runs on; -1 where it waits."""
        return int(view.cluster.node_type[view.cluster.gpu_node[view.gpus_of(row)[0]]]) if view.slot_n[row] else -1

    def _by_priority(self, view: View) -> list[tuple[int, int]]:
        """Pairs of row and type that deserve time, by falling priority."""
        rows = np.sort(np.concatenate((view.queued, view.running)))
        deserved = self.allocation(view, rows) if rows.size else np.empty((0, self._types.shape[1]))
        share = np.where(self._types[rows], deserved, 0.0)
        self._there, self._share = rows, np.where(share >= LEAST_SHARE, share, 0.0)
        i, t = np.nonzero(self._share)
        deserved_s = self._deserved_s[rows[i], t] + self._share[i, t] * self.round_s
        with np.errstate(divide="ignore"):
            priority = deserved_s / self._received_s[rows[i], t]
        order = np.lexsort((t, i, -self._share[i, t], -priority))
        return list(zip(rows[i[order]].tolist(), t[order].tolist(), strict=True))
