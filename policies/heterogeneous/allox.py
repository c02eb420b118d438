"""AlloX: jobs are matched to GPUs and to positions in their sequence, so that completion times sum to least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.matching.positions import matched, turns
from policies.mechanisms import Informed, Rounds, rounds_param
from policies.mechanisms.planned import WHOLE
from sim.api import Decision, Scratch, View, param


@dataclass
class AlloX(Rounds, Informed):
    """Starts the jobs that are first on their GPU in the matching of jobs to GPUs that costs least.

    Job i as the k-th from the end of what a GPU of type j does, free in r_j, costs

        k p_ij + r_j + age_i,  p_ij = believed work left / believed work a second there, in s

    (Le, Sun, Chowdhury, Liu: AlloX, EuroSys'20: on each GPU a job counts as often as there are jobs from
    it on, so the least cost is the least sum of completion times). A job's age is the same wherever it goes: it
    chooses nothing. Who runs goes on where it is; with `preempts` all jobs are matched anew at the begin of a round.
    For fairness only a part `alpha` of the waiting jobs is matched, those least served, and as many at least as GPUs
    are free.

    Must know: run times (unknown: the mean of those known) and speeds (unknown: equally fast on all its types; both
    are counted in run.json). A job that no type is believed to run is rejected.

    Departs from the paper: jobs there are of one worker (an assertion in Gavel's code). Here one of g GPUs counts as
    g times its time in the matching, its work in GPU-seconds; it starts when so many GPUs of its type are free, and
    whom it lets pass by then passes. Resources there are CPU or GPU, here types of GPU. As in Gavel's simulator
    (`Rounds`, `docs/add-a-policy.md`): accounting = gavel-simulator, solve_every_s = 1920,
    spare = fill, walk = types, wide_first, whole_steps, between = wait, busy = left-out.
    """

    needs_estimates: ClassVar[bool] = True

    between: str = rounds_param("between", "fill")
    busy: str = param(
        "counted",
        choices=("counted", "left-out"),
        help="GPUs on which others run: may be waited for, if they are worth it; or only free GPUs are matched",
    )
    alpha: float = param(1.0, low=0, high=1, help="part of the waiting jobs that is matched, the least served ones")
    fair_to: str = param("jobs", choices=("jobs", "users"), help="whose GPU time until now says who is least served")
    preempts: bool = param(False, help="at the begin of a round running jobs are matched anew, too")

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._user = np.unique(view.jobs.user.astype(str), return_inverse=True)[1]
        self._place = np.full(len(view.jobs), -1)

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        self.turn_away(view, decision)
        return decision

    def able(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.asarray(super().able(view, rows) & (self.rates(view, rows) > 0))

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        time_s = self._left_s.of(view, rows)
        place = self._kept(view, rows)
        scratch = self._others(view, rows, place)
        room = -(-np.maximum(scratch.type_milli(), 0) // WHOLE)
        kind, ready_s = np.repeat(np.arange(room.size), room), np.zeros(room.sum())
        if self.busy == "counted":
            held = np.flatnonzero(place >= 0)
            held = np.repeat(held, np.ceil(view.jobs.gpus[rows[held]]).astype(int))
            kind = np.concatenate((kind, place[held]))
            ready_s = np.concatenate((ready_s, time_s[held, place[held]]))
        waits = self._least_served(view, rows, np.flatnonzero(place < 0), int(room.sum()))
        if waits.size and room.any():
            machine, position = matched(time_s[waits] * view.jobs.gpus[rows[waits], None], kind, ready_s)
            turn, now = turns(machine, position), (machine >= 0) & (ready_s[machine] == 0)
            for i in np.lexsort((waits, -position, turn)).tolist():
                row, t = int(rows[waits[i]]), int(kind[machine[i]])
                if now[i] and scratch.place(scratch.gang(row)._replace(types=1 << t), self.placement) is not None:
                    place[waits[i]] = t
        self._place[rows] = place
        return np.asarray(place[:, None] == np.arange(room.size), dtype=float)

    def _kept(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Type on which each job goes on, -1 where it is to be matched: int64 [rows].

        Who was given a place keeps it while he runs; where jobs stop after whole steps, at other times, too.
        """
        if self.preempts and self._round_end_s == view.now_s + self.round_s:  # it begins
            return np.full(rows.size, -1)
        return np.where(self.whole_steps | (view.slot_n[rows] > 0), self._place[rows], -1)

    def _others(self, view: View, rows: np.ndarray, place: np.ndarray) -> Scratch:
        """What those who keep their places leave free, wherever they are now. Who finds no room there loses his."""
        on = np.array([view.type_of(row) for row in rows.tolist()])
        scratch = view.scratch(rows[(on >= 0) & (on != place)])
        for i in np.flatnonzero((place >= 0) & (on != place)).tolist():
            gang = scratch.gang(int(rows[i]))._replace(types=1 << int(place[i]))
            if scratch.place(gang, self.placement) is None:
                place[i] = -1
        return scratch

    def _least_served(self, view: View, rows: np.ndarray, waits: np.ndarray, free: int) -> np.ndarray:
        """Who is matched (indices into rows): of those who wait the part `alpha`, as many at least as are free GPUs."""
        count = max(free, int(self.alpha * waits.size))
        if count >= waits.size:
            return waits
        served = view.attained_gpu_s(rows)
        if self.fair_to == "users":
            served = np.bincount(self._user[rows], served)[self._user[rows]]
        return np.sort(waits[np.argsort(served[waits], kind="stable")[:count]])
