"""What jobs deserve and have received of rounds, and which of them come first: three ways to keep accounts."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np


class Standing(NamedTuple):
    """How jobs stand on each GPU type, each float64 [rows, types]: the largest priority first, then the largest of the
    other two in turn."""

    priority: np.ndarray
    deficit_s: np.ndarray
    share: np.ndarray


class Accounts:
    """Accounts by integrals over the whole time that a job was there.

        priority = (deserved_s + X round_s) / received_s

    deserved_s is the integral of X over the time in which the job was there, received_s the time for which it held
    GPUs of that type, both until now (never received: before all others). With an X that does not change this is
    Gavel's order, X / (share of the time received). There is no deficit beside it.

    Attributes
    ----------
    share : float64 [jobs, types], X by the last solve; 0 of jobs that were not there.
    received_s : float64 [jobs, types].
    """

    each_round: ClassVar[bool] = True
    waits: ClassVar[bool] = False
    """Whether shares wait for `every_s` even where no job may fill idle GPUs in the meantime."""

    def __init__(self, jobs: int, types: int, round_s: float) -> None:
        self._round_s = round_s
        self.share, self.received_s = np.zeros((jobs, types)), np.zeros((jobs, types))
        self._deserved_s = np.zeros((jobs, types))
        self._there = self._solved = np.empty(0, dtype=np.int32)
        self._news = False
        self._last_s = self._solved_s = -np.inf

    def due(self, now_s: float, rows: np.ndarray, every_s: float, at_once: bool) -> bool:
        """Whether shares are to be found anew at the begin of a round: once a job has come or gone, and `every_s` has
        passed or it is to be `at_once`; always where `every_s` is 0 and the accounts bear it (`each_round`)."""
        self._news = self._news or not np.array_equal(rows, self._there)
        self._there = rows
        elapsed = at_once or now_s - self._solved_s >= every_s
        return rows.size > 0 and ((every_s == 0 and self.each_round) or (self._news and elapsed))

    def solve(self, now_s: float, rows: np.ndarray, share: np.ndarray) -> None:
        """From now on jobs deserve these shares: float64 [rows, types]."""
        self.share[self._solved] = 0.0
        self.share[rows] = share
        self._there = self._solved = rows
        self._news, self._solved_s = False, now_s

    def until(self, now_s: float) -> None:
        """Nothing changed since the last call, and time has passed."""
        if self._there.size:
            self._deserved_s[self._there] += self.share[self._there] * (now_s - self._last_s)
        self._last_s = now_s

    def receive(self, rows: np.ndarray, on: np.ndarray, held_s: np.ndarray) -> None:
        """Jobs have held GPUs of these types for so long."""
        self.received_s[rows, on] += held_s

    def standing(self, rows: np.ndarray) -> Standing:
        share = self.share[rows]
        deserved_s = self._deserved_s[rows] + share * self._round_s
        with np.errstate(divide="ignore", invalid="ignore"):
            priority = np.where(share > 0, deserved_s / self.received_s[rows], 0.0)
        return Standing(priority, np.zeros_like(share), share)

    def without_gpus(self, rows: list[int]) -> list[int]:
        """Those of the winners of a round that get no GPUs all the same."""
        return []


class SinceSolve(Accounts):
    """Accounts since the last solve, as Gavel keeps them (Narayanan et al., OSDI'20, section 5, and its public code).

        priority = X / (received_s / sum of received_s over jobs),

    received_s of each job and type beginning, at each solve, with half a round of credit, so that nobody's is 0; of a
    job of many GPUs time counts once. What the last shares owed, X × (time since then) - received_s, is added to the
    job's deficit, which orders jobs of one priority. A job that came since the last solve has priority 0.
    """

    each_round: ClassVar[bool] = False  # who begins anew at each round would always serve the largest share

    def __init__(self, jobs: int, types: int, round_s: float) -> None:
        super().__init__(jobs, types, round_s)
        self.received_s += round_s / 2.0
        self._by_all_s = np.zeros(types)
        self._deficit_s = np.zeros((jobs, types))
        self._known = np.zeros(jobs, dtype=bool)

    def solve(self, now_s: float, rows: np.ndarray, share: np.ndarray) -> None:
        passed_s, credit_s = (now_s - self._solved_s if self._solved.size else 0.0), self._round_s / 2.0
        self._deficit_s[rows] += self.share[rows] * passed_s - (self.received_s[rows] - credit_s)
        self.received_s[rows] = credit_s
        self._by_all_s[:] = credit_s * rows.size
        self._known[self._solved] = False
        self._known[rows] = True
        super().solve(now_s, rows, share)

    def until(self, now_s: float) -> None:
        pass

    def receive(self, rows: np.ndarray, on: np.ndarray, held_s: np.ndarray) -> None:
        super().receive(rows, on, held_s)
        np.add.at(self._by_all_s, on, held_s)

    def standing(self, rows: np.ndarray) -> Standing:
        share = self.share[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            priority = np.where(share > 0, share / (self.received_s[rows] / self._by_all_s), 0.0)
        return Standing(priority, self._deficit_s[rows], share)


class GavelSimulator(SinceSolve):
    """Accounts since the last solve, with two faults of Gavel's public simulator without which its results differ.

    - Jobs that come between two solves get nothing before the next, not even idle GPUs (whatever `spare` is), and keep
      others from those that they would win.
    - A solve at time 0 counts as none: the next one need not wait for `solve_every_s`.
    """

    waits: ClassVar[bool] = True

    def due(self, now_s: float, rows: np.ndarray, every_s: float, at_once: bool) -> bool:
        return super().due(now_s, rows, every_s, at_once or self._solved_s == 0)

    def without_gpus(self, rows: list[int]) -> list[int]:
        return [row for row in rows if not self._known[row]]


ACCOUNTS: dict[str, type[Accounts]] = {
    "integrals": Accounts, "since-solve": SinceSolve, "gavel-simulator": GavelSimulator,
}
