"""Give GPUs for a round at a time, so that each job's time on each GPU type comes to what it deserves."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policies.mechanisms.placing import Placing, nothing_to_do
from policies.mechanisms.round_accounts import ACCOUNTS, Accounts
from sim.api import Decision, Gang, Placement, PolicyError, Scratch, View, param

LEAST_SHARE = 1e-6
"""Shares of time below this are none: what a solver leaves where it means 0 must not win a round."""

Pairs = list[tuple[int, int]]
"""Jobs (rows), each with a GPU type."""


@dataclass
class Rounds(Placing):
    """Gives GPUs for a round at a time by an allocation of shares (Gavel: Narayanan et al., OSDI'20, section 5).

    A policy says which share of its time each job deserves on each GPU type (`allocation`), X[job, type]. At the
    begin of a round, pairs of job and type are walked by a priority, the largest first (ties: larger X, then submit
    order); as a rule

        priority = (deserved_s + X round_s) / received_s,

    what the job will deserve by the end of the round over what it has had (`accounting`: `round_accounts`). A job gets
    its gang, of one type, for a round; one that keeps its type stays where it is. Who holds GPUs keeps them until the
    round ends; what no job that deserves time can use stays idle. Where nothing runs, a round begins at once. The
    settings say what a mechanism like Gavel's does otherwise.
    """

    round_s: float = param(360.0, unit="s", above=0, help="length of a round")
    between: str = param(
        "wait",
        choices=("wait", "fill"),
        help="GPUs that come free within a round: wait for its end; or fill: they go at once to the waiting jobs that "
        "have the priority, until its end",
    )
    accounting: str = param(
        "integrals",
        choices=tuple(ACCOUNTS),
        help="what priorities compare: integrals of time deserved and received; since-solve: shares of the time since "
        "the last solve, then deficits (Gavel); gavel-simulator: the same with that simulator's faults",
    )
    solve_every_s: float = param(
        0.0, unit="s", low=0, help="shares are found anew once a job has come or gone and so much time has passed "
        "since the last time, nothing runs, or spare = idle; 0: at the begin of each round (accounting = integrals)"
    )
    spare: str = param(
        "idle",
        choices=("idle", "fill"),
        help="GPUs that no job deserves: stay idle; or fill: go to other jobs, as if at priority 0",
    )
    walk: str = param(
        "pairs",
        choices=("pairs", "types", "shuffled"),
        help="pairs: all pairs of job and type by priority; types: type by type, in the cluster's order; shuffled: in "
        "an order drawn for each round",
    )
    shuffle_seed: int = param(5, low=0, help="seed of the orders that are drawn (walk = shuffled)")
    wide_first: bool = param(False, help="of the jobs that win, wider gangs choose their GPUs first, even from others")
    whole_steps: bool = param(
        False, help="a job stops at the last whole step (unit of work) before its round ends, one at least, and a "
        "round ends with the last of them; who waits for it is preempted, and pays for a restart"
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        if self.whole_steps and (self.between == "fill" or not self.needs_throughput):
            raise PolicyError(
                "whole steps cannot be", where=f"policy {self.name!r}", got="whole_steps = True",
                allowed="between = 'wait', in a policy that declares needs_throughput = True",
                todo="Leave whole_steps out, or change the other.",
            )
        jobs, types = len(view.jobs), len(view.cluster.types)
        self._accounts: Accounts = ACCOUNTS[self.accounting](jobs, types, self.round_s)
        self._gpu_type, self._gang = view.cluster.gpu_type, dict[int, Gang]()
        self._demand = view.jobs.num_gpus.astype(np.int64) * view.jobs.gpu_milli
        self._types = view.jobs.may_use(types)
        # Who holds GPUs since the last decision; of which type, since when, until when.
        self._rows = np.empty(0, dtype=np.int32)
        self._on = np.zeros(jobs, dtype=np.int32)
        self._since_s, self._until_s = np.zeros(jobs), np.zeros(jobs)
        self._round_end_s = -np.inf
        self._left: dict[int, np.ndarray] = {}  # of jobs that have stopped in this round
        # Python's own generator, as Gavel's simulator has it: a run can be held against that one's.
        self._random = random.Random(self.shuffle_seed)

    @abstractmethod
    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Share of time that each job deserves on each GPU type: float64 [rows, types], at most 1 in a row.

        `rows` are all jobs that are there, waiting and running, in submit order, one or more; asked for at the begin of
        each round (`solve_every_s`: of some), and where GPUs are to be filled within one. Types that a job may not use
        count as 0.
        """

    def able(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Types on which each job may be given GPUs, deserved or idle ones: bool [rows, types]; those that it allows.

        A policy that knows speeds leaves out those on which it believes that the job does not run.
        """
        return np.asarray(self._types[rows])

    def decide(self, view: View) -> Decision:
        now_s, decision = view.now_s, Decision()
        self._accounts.until(now_s)
        gone = view.slot_n[self._rows] == 0
        self._receive(now_s, self._rows[gone])
        self._rows = self._rows[~gone]
        over = self._until_s[self._rows] <= now_s
        if over.all():  # or none is there
            decision = self._begin(view)
        elif self.between == "fill" and not nothing_to_do(view):
            decision = self._go_on(view)
        elif over.any():
            decision = self._stop(view, over)
        if self._rows.size:  # else a job that comes begins a round
            decision.wake_s = float(self._until_s[self._rows].min())
        return self.never_fits(view, decision)

    def _begin(self, view: View) -> Decision:
        """A round begins: who holds GPUs until it ends."""
        self._receive(view.now_s, self._rows)
        self._round_end_s = view.now_s + self.round_s
        pairs, scratch = self._pairs(view), view.scratch(view.running)
        winners = self._winners(view, scratch, pairs)
        if self._all_stay(view, scratch, winners):
            self._left.clear()
            self._last_until(view, self._rows)
            return Decision()
        target = self._give(view, scratch, pairs, winners)
        self._rows = self._rows[:0]
        self._left.clear()
        self._note(view, target)
        return self._toward(view, target)

    def _all_stay(self, view: View, scratch: Scratch, winners: dict[int, int]) -> bool:
        """Whether nobody need be placed: those who win run already, on the types that they win, and no GPU is closed
        (what the rest of the round's begin would find out, too)."""
        if len(winners) != self._rows.size or not (scratch.milli > 0).all():
            return False
        rows = np.fromiter(winners, dtype=np.int32, count=len(winners))
        won = np.fromiter(winners.values(), dtype=np.int32, count=len(winners))
        return bool((view.slot_n[rows] > 0).all() and (self._on[rows] == won).all())

    def _go_on(self, view: View) -> Decision:
        """Within a round, who takes the GPUs that have come free."""
        self._receive(view.now_s, self._rows)
        scratch, target = view.scratch(), {row: view.placement(row) for row in self._rows.tolist()}
        self._fill(view, scratch, target, self._pairs(view))
        self._note(view, {row: target[row] for row in target if not view.slot_n[row]})
        return self._toward(view, target)

    def _toward(self, view: View, target: dict[int, Placement]) -> Decision:
        """As `Decision.toward`, where all is placed already and a job that stays has its own GPUs in the target."""
        own = {row: view.gpus_of(row).tolist() for row in view.running.tolist()}
        return Decision(
            stop=[row for row in own if row not in target],
            move=[(row, to) for row, to in target.items() if row in own and to.gpus.tolist() != own[row]],
            start=[(row, to) for row, to in target.items() if row not in own],
        )

    def _stop(self, view: View, over: np.ndarray) -> Decision:
        """Jobs whose last whole step of this round is done; the round goes on."""
        rows = self._rows[over]
        self._receive(view.now_s, rows)
        self._rows = self._rows[~over]
        self._left.update((row, view.gpus_of(row).copy()) for row in rows.tolist())
        return Decision(stop=rows.tolist())

    def _receive(self, now_s: float, rows: np.ndarray) -> None:
        """Count the time that jobs held their GPUs until now, and from now on anew."""
        if rows.size:
            self._accounts.receive(rows, self._on[rows], now_s - self._since_s[rows])
            self._since_s[rows] = now_s

    def _note(self, view: View, given: dict[int, Placement]) -> None:
        """Jobs that hold GPUs from now on, besides those that hold them already."""
        rows = np.fromiter(given, dtype=np.int32, count=len(given))
        on = self._gpu_type[np.array([placement.gpus[0] for placement in given.values()], dtype=np.int32)]
        self._rows = np.concatenate((self._rows, rows))
        self._on[rows], self._since_s[rows] = on, view.now_s
        self._last_until(view, rows)

    def _last_until(self, view: View, rows: np.ndarray) -> None:
        """When these jobs stop in this round."""
        self._until_s[rows] = self._round_end_s
        if self.whole_steps:
            self._until_s[rows] = view.now_s + self._whole_steps_s(view, rows, self._on[rows])

    def _whole_steps_s(self, view: View, rows: np.ndarray, on: np.ndarray) -> np.ndarray:
        """Time of the whole steps within a round, of one at least; of the round where the rate is unknown."""
        took_s = np.full(rows.size, self.round_s)
        for t in np.unique(on).tolist():
            here = on == t
            rate = view.throughput(rows[here], t, view.jobs.num_gpus[rows[here]])
            with np.errstate(divide="ignore", invalid="ignore"):
                whole_s = np.maximum(np.floor(rate * self.round_s), 1.0) / rate
            took_s[here] = np.where(np.isfinite(whole_s), whole_s, self.round_s)
        return took_s

    def _winners(self, view: View, scratch: Scratch, pairs: Pairs) -> dict[int, int]:
        """The type that each job wins where only counts and quotas matter."""
        left, quota = scratch.type_milli().tolist(), scratch.vc_left.tolist()
        demand = self._demand
        won: dict[int, int] = {}
        for row, t in pairs:
            if row not in won and (need := int(demand[row])) <= min(left[t], quota[vc := int(view.jobs.vc[row])]):
                won[row] = t
                left[t] -= need
                quota[vc] -= need
                if not any(left):
                    break
        return won

    def _give(
        self, view: View, scratch: Scratch, pairs: Pairs, winners: dict[int, int]
    ) -> dict[int, Placement]:
        """What each job holds from now on: who wins his type stays there, then the others take what is left."""
        target = dict[int, Placement]()
        if barred := set(self._accounts.without_gpus(list(winners))):
            winners = {row: t for row, t in winners.items() if row not in barred}
            pairs = [(row, t) for row, t in pairs if row not in barred]
        for group in self._groups(view, winners):
            for row, t in group:
                if (own := self._own(view, scratch, row, t)) is not None:
                    target[row] = Placement(own)
            if self.wide_first:
                self._fill(view, scratch, target, group)
        if len(target) < len(winners):  # else by count nobody fits any more
            self._fill(view, scratch, target, pairs)
        return target

    def _groups(self, view: View, winners: dict[int, int]) -> Iterable[Pairs]:
        """Winners that choose their GPUs together, in turn."""
        pairs = list(winners.items())
        if not self.wide_first:
            return [pairs]
        width = view.jobs.num_gpus[[row for row, _ in pairs]].tolist() if pairs else []
        return [[pair for pair, own in zip(pairs, width, strict=True) if own == one]
                for one in sorted(set(width), reverse=True)]

    def _fill(self, view: View, scratch: Scratch, target: dict[int, Placement], pairs: Pairs) -> None:
        """Jobs take what is left by the order of their pairs."""
        left = (scratch.milli > 0).any()
        for row, t in pairs:
            if row in target:
                continue
            if not left:
                break
            gpus = self._own(view, scratch, row, t)
            if gpus is None:
                gpus = scratch.place(self._gang_of(scratch, row)._replace(types=1 << t), self.placement)
            if gpus is not None:
                target[row] = Placement(gpus)
                left = (scratch.milli > 0).any()

    def _own(self, view: View, scratch: Scratch, row: int, t: int) -> np.ndarray | None:
        """Take the GPUs that a job holds, or held until its last step in this round: of type t, and still free."""
        own = view.gpus_of(row) if view.slot_n[row] else self._left.get(row)
        if own is None or self._gpu_type[own[0]] != t:
            return None
        gang = self._gang_of(scratch, row)
        # Others of its tenant may have come first.
        return own if scratch.take(own, gang.gpu_milli, gang.vc, within_quota=True) else None

    def _gang_of(self, scratch: Scratch, row: int) -> Gang:
        if row not in self._gang:
            self._gang[row] = scratch.gang(row)
        return self._gang[row]

    def _pairs(self, view: View) -> Pairs:
        """Pairs of row and type, in the order in which they may win; those that deserve no time last, or not at all."""
        rows = np.sort(np.concatenate((view.queued, view.running)))
        accounts, able = self._accounts, self.able(view, rows)
        # Where none fills GPUs, who comes would wait for shares beside idle ones.
        at_once = not view.running.size or (self.spare == "idle" and not accounts.waits)
        if accounts.due(view.now_s, rows, self.solve_every_s, at_once):
            share = np.where(able, self.allocation(view, rows), 0.0) if rows.size else np.empty(able.shape)
            if self.spare == "idle" or self.accounting == "integrals":  # else they only order those who fill
                share[share < LEAST_SHARE] = 0.0
            accounts.solve(view.now_s, rows, share)
        standing = accounts.standing(rows)
        i, t = np.nonzero(able & ((standing.priority > 0) | (self.spare == "fill")))
        turn = np.zeros(able.shape[1])
        if self.walk != "pairs":
            order = list(range(turn.size))
            if self.walk == "shuffled":
                self._random.shuffle(order)
            turn[order] = np.arange(turn.size)
        by = np.lexsort((t, i, -standing.share[i, t], -standing.deficit_s[i, t], -standing.priority[i, t], turn[t]))
        return list(zip(rows[i[by]].tolist(), t[by].tolist(), strict=True))


def rounds_param(name: str, default: Any) -> Any:
    """A setting of `Rounds` with another default: a field of the same name in a class derived from it."""
    return field(default=default, metadata=Rounds.settings()[name].metadata)


@dataclass
class GavelRounds(Rounds):
    """Rounds as Gavel gives them, by other defaults: shares are found anew after an event and 1,920 s at the earliest,
    priorities and deficits count from then on, GPUs are walked type by type, and none stays idle while a job could
    use it.

    What its public simulator does beyond that are settings, too: with accounting = gavel-simulator, whole_steps,
    placement = first-fit and no overheads a run is that simulator's, job by job (`walk`: types for its policies named
    'perf', shuffled for the others).
    """

    accounting: str = rounds_param("accounting", "since-solve")
    solve_every_s: float = rounds_param("solve_every_s", 1920.0)
    spare: str = rounds_param("spare", "fill")
    walk: str = rounds_param("walk", "types")
    wide_first: bool = rounds_param("wide_first", True)
