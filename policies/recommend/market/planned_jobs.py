"""The mechanism that `hetero` and `homogeneous` share: GPUs have prices, a job takes the plan that costs it least.

Prices
    At each decision the price of each GPU type moves towards that at which all jobs, waiting and running, would take
    what there is (`policies.recommend.market.gpu_prices`). What a plan costs a job is its own time and the GPUs.
Start
    Jobs are looked at in queue order; one that does not fit is passed over. A job starts on the plan of least cost
    among those that fit what is free.
Move
    Running jobs are looked at in submit order: one moves to the plan of least cost that fits what is free and its own
    GPUs, if the restart pays (`sim.kernels.bidding.first_move`). So jobs spread over idle GPUs, shrink when others
    come, and leave a type that others need more. Whatever is left so is offered to the waiting jobs again.

`worker_gpus` is not used: a plan sizes the gang, and the GPUs of each type lie on as few nodes as possible,
fullest first. A job that takes a share of a GPU is not partitioned and does not move; its slots go to one GPU type.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

from policies.recommend.market.classes import Classes, JobClass
from policies.recommend.market.gpu_prices import Market
from sim.api import Decision, Placement, Policy, PolicyError, Scratch, View, param
from sim.performance.stage_sites import in_stage_order

MOST_MOVES = 16
"""Moves in one decision; what more would pay waits for the next one."""


@dataclass
class RecommendPolicy(Policy):
    """Base of policies that plan; what they differ in is which plans there are (`methods`, `single_type`)."""

    needs_performance: ClassVar[bool] = True
    sizes_gangs: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("exact",)
    single_type: ClassVar[bool] = False

    hour_usd: float = param(
        5.0, unit="USD", low=0.0, help="what an hour of a job's time is worth, against the price of GPUs: more, and "
        "jobs take more and faster GPUs; 0: the cheapest plan, however slow; inf: the fastest",
    )
    max_scale: float = param(4.0, unit="x gang", low=1e-3, help="GPUs that a plan may use, against the gang asked for")
    move_gain: float = param(
        4.0, unit="x overhead", low=0.0, help="a running job moves if that saves so many times what the restart "
        "costs, should it go on for as long again as it has been on its plan; inf: never",
    )
    planning_s: float = param(
        0.0, unit="s", low=0.0, high=1e9, help="time that planning takes where a job is the first of its kind "
        "(model, batch, gang): it cannot start before",
    )
    order: str = param("fifo", choices=("fifo", "smallest"), help="queue order: submission, or fewest GPUs")
    depth: int = param(1000, unit="jobs", low=1, help="waiting jobs to look at; 1: strict order, none passed over")

    def prepare(self, view: View) -> None:
        """Check the jobs and sort them into classes.

        Raises
        ------
        PolicyError
            A job without a model or batch size.
        HetsimError
            A model that the performance model does not know.
        """
        assert view.performance is not None
        self._check_jobs(view)
        jobs = view.jobs
        shared = jobs.gpu_milli < 1000
        quota = view.vc_left[jobs.vc]
        # A plan may use fewer GPUs than asked for; shares come as asked. Budget 0: never within the quota.
        most = np.minimum(quota // 1000, view.cluster.num_gpus)
        planned = np.minimum(np.ceil(jobs.num_gpus * self.max_scale - 1e-9), most)
        slots = np.where(jobs.num_gpus.astype(np.int64) * jobs.gpu_milli <= quota, jobs.num_gpus, 0)
        budget = np.where(shared, slots, planned).astype(np.int64)
        columns = (jobs.model, jobs.batch_size, budget, jobs.gpu_milli, jobs.types)
        keys: dict[tuple, int] = {}
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._class_of = np.array([keys.setdefault(key, len(keys)) for key in rows], dtype=np.int64)
        self._keys = list(keys)
        self._plans = Classes(view, self.methods, self.single_type)
        self._market = Market(view.cluster.types, view.cluster.gpus_by_type(), self.hour_usd)
        self._classes: dict[int, JobClass] = {}
        # Number of each class in the market; -1: not learnt yet.
        self._number = np.full(len(keys), -1, dtype=np.int64)
        self._never, self._shared = np.zeros((2, len(keys)), dtype=np.bool_)
        self._shared[self._class_of[shared]] = True
        self._ready_s = np.zeros(len(keys))
        # Row of each job's plan in the market's table; -1 where it does not move.
        self._plan_of = np.full(len(jobs), -1, dtype=np.int64)

    def _check_jobs(self, view: View) -> None:
        jobs = view.jobs
        assert view.performance is not None
        bad = np.flatnonzero((jobs.model == "") | (jobs.batch_size < 1))
        if len(bad):
            row = int(bad[0])
            raise PolicyError(
                "a job cannot be planned without a model and a batch size", todo="Let hetsim assign models.",
                where=f"policy {self.name!r}, job {jobs.job_id[row]!r}",
                got=f"model {jobs.model[row]!r}, batch_size {jobs.batch_size[row]}",
            )
        for model in dict.fromkeys(jobs.model.tolist()):
            view.performance.resolve(model)

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Submission order, or the GPUs asked for (ties: submission)."""
        if self.order == "fifo":
            return super().key(view, rows)
        return view.jobs.num_gpus[rows] * (view.jobs.gpu_milli[rows] / 1000.0)

    def decide(self, view: View) -> Decision:
        """Start what fits, move what it pays to, and reject what can never run."""
        rows = view.queued[: self.depth]
        self._learn(view, rows)
        never = self._never[self._class_of[rows]]
        reject = [(row, self._classes[self._class_of[row]].reason) for row in rows[never].tolist()]
        rows, decision = rows[~never], Decision(reject=reject)
        size = len(self._classes) or 1
        waiting, running = (np.bincount(self._number[self._class_of[some]], minlength=size)
                            for some in (rows, view.running))
        self._market.update(running, waiting)
        if self.planning_s > 0:
            wait_s = self._ready_s[self._class_of[rows]]
            ready = wait_s <= view.now_s
            decision.wake_s = None if ready.all() else float(wait_s[~ready].min())
            rows = rows[ready]
        free = view.scratch()
        decision.start = self._start(view, rows, free)
        if view.running.size and self.move_gain < np.inf:
            decision.move = self._move(view, free)
        if decision.move:
            rest = rows[~np.isin(rows, [row for row, _ in decision.start])]
            decision.start += self._start(view, rest, free)
        return decision

    def _learn(self, view: View, rows: np.ndarray) -> None:
        """Work out the plans of classes that are seen for the first time."""
        classes = self._class_of[rows]
        new = classes[self._number[classes] < 0]
        for index in np.unique(new).tolist() if len(new) else ():
            known = self._classes[index] = self._plans.learn(self._keys[index])
            self._never[index] = bool(known.reason)
            self._number[index] = self._market.add(known)
            self._ready_s[index] = view.now_s + self.planning_s

    # -- start ---------------------------------------------------------------------------------------

    def _start(self, view: View, rows: np.ndarray, free: Scratch) -> list[tuple[int, Placement]]:
        """Walk the jobs; each takes its GPUs from what is free."""
        if not len(rows):
            return []
        possible = self._shared & bool(free.milli.any())
        if free.type_idle.any():
            learnt = self._number >= 0
            possible[learnt] |= self._market.fits(free.type_idle)[self._number[learnt]]
        rows = rows[possible[self._class_of[rows]]]
        started: list[tuple[int, Placement]] = []
        full: set[tuple[int, int]] = set()
        kinds = zip(self._class_of[rows].tolist(), view.jobs.vc[rows].tolist(), strict=True)
        for row, kind in zip(rows.tolist(), kinds, strict=True):
            if kind in full:
                continue
            placement = self._place(view, row, free)
            if placement is None:
                # What is free only shrinks from here on, so the rest of its kind need not be tried.
                full.add(kind)
                continue
            started.append((row, placement))
            if not free.milli.any():
                break
        return started

    def _place(self, view: View, row: int, free: Scratch) -> Placement | None:
        """GPUs for the plan of least cost that fits, or None."""
        index, vc = int(self._class_of[row]), int(view.jobs.vc[row])
        known, number = self._classes[index], int(self._number[index])
        if known.milli < 1000:
            cost, fits = self._market.costs(number), known.counts.sum(axis=1) * known.milli <= free.vc_left[vc]
            for need in known.counts[np.argsort(np.where(fits, cost, np.inf), kind="stable")[: fits.sum()]]:
                gpus = free.place_by_type(need, known.milli, vc)
                if gpus is not None:
                    return Placement(gpus)
            return None
        plan = self._market.cheapest(number, free.type_idle, int(free.vc_left[vc]) // 1000)
        return self._take(view, row, plan, free) if plan >= 0 else None

    def _take(self, view: View, row: int, plan_row: int, free: Scratch) -> Placement:
        """GPUs for one of the job's plans, a row of the market's table; there are enough."""
        number = int(self._class_of[row])
        known, index = self._classes[number], plan_row - int(self._market.first[self._number[number]])
        gpus, plan = free.place_by_type(known.counts[index], 1000, int(view.jobs.vc[row])), known.plans[index]
        assert gpus is not None and plan is not None
        ends = list(accumulate(known.counts[index].tolist(), initial=0))
        parts = [gpus[begin:end] for begin, end in pairwise(ends)]
        of_type = {gpu.name: part for gpu, part in zip(view.cluster.types, parts, strict=True)}
        self._plan_of[row] = plan_row
        return Placement(in_stage_order(plan, of_type), plan)

    # -- move ----------------------------------------------------------------------------------------

    def _move(self, view: View, free: Scratch) -> list[tuple[int, Placement]]:
        """Plans of less cost for running jobs, the first in submit order first, on what is free and their own GPUs."""
        rows = np.sort(view.running)
        rows = rows[self._plan_of[rows] >= 0]
        if (view.free_milli < 0).any():  # what a job gives back on a closed GPU, it cannot take again
            open_ = [(view.free_milli[view.gpus_of(row)] >= 0).all() for row in rows.tolist()]
            rows = rows[np.array(open_, dtype=bool)]
        numbers, stretch_s = self._number[self._class_of[rows]], view.now_s - view.begin_s[rows]
        overhead_s = self.move_gain * view.preemption_overhead_s
        moved: list[tuple[int, Placement]] = []
        while len(moved) < MOST_MOVES:
            idle = free.type_idle.astype(np.int64)
            quota = free.vc_left[view.jobs.vc[rows]] // 1000
            i, plan = self._market.first_move(self._plan_of[rows], numbers, stretch_s, idle, quota, overhead_s)
            if i < 0:
                break
            row = int(rows[i])
            free.give(view.gpus_of(row), vc=int(view.jobs.vc[row]))
            moved.append((row, self._take(view, row, plan, free)))
            # What it left may serve one that came before it, so the walk begins anew; its own stretch does, too.
            stretch_s[i] = 0.0
        return moved
