"""The mechanism that `hetero` and `homogeneous` share: GPUs have prices, a job takes the plan that costs it least.

Prices
    At each decision the price of each GPU type moves towards that at which all jobs, waiting and running, would take
    what there is (`policies.recommend.market.gpu_prices`). What a plan costs a job is its own time and the GPUs.
Order
    Of the queue: submission, or fewest GPUs, or least cost of what is left of a job, which needs run times. There a job
    lets another one pass that is x USD cheaper and comes up to x `patience_h` hours later: none waits for ever, and as
    all age alike, a key holds while a job waits.
Start
    Jobs are looked at in queue order; one that does not fit is passed over. A job starts on the plan of least cost
    among those that fit what is free, on the GPUs that it would get: plans are worked out for full nodes, and where
    free GPUs lie on more nodes another plan may cost less.
Move
    Running jobs are looked at in submit order: one moves to the plan of least cost that fits what is free and its own
    GPUs, if the restart pays (`sim.kernels.bidding.first_move`), also on the GPUs that it would get. So jobs spread
    over idle GPUs, shrink when others come, and leave a type that others need more. Whatever is left so is offered to
    the waiting jobs again.

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

TRIES = 16
"""Plans that are placed before a job starts, where the GPUs of the first lie on more nodes than it was planned for."""


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
    order: str = param(
        "fifo", choices=("fifo", "smallest", "cost"), help="queue order: submission, fewest GPUs, or least cost of "
        "what is left, at the lowest prices (it needs estimates of run times)",
    )
    patience_h: float = param(
        1.0, unit="h/USD", low=0.0, help="with order=cost: how much later a job may come and still go first, for each "
        "USD that it costs less; 0: submission; inf: the cheapest first, however long others wait",
    )
    depth: int = param(1000, unit="jobs", low=1, help="waiting jobs to look at; 1: strict order, none passed over")

    def __post_init__(self) -> None:
        if self.order == "cost":
            vars(self).update(needs_estimates=True, needs_throughput=True)

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
        # Time of an iteration on the GPUs that each job has, or had last.
        self._time_s = np.full(len(jobs), np.nan)
        # When a running job is looked at again whose move paid on full nodes only.
        self._again_s = np.full(len(jobs), -np.inf)
        self._dearest_usd = 0.0

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
        """Submission order, the GPUs asked for, or what is left to pay (ties: submission)."""
        if self.order == "fifo":
            return super().key(view, rows)
        if self.order == "smallest":
            return view.jobs.num_gpus[rows] * (view.jobs.gpu_milli[rows] / 1000.0)
        usd = self._left_usd(view, rows)
        return usd if self.patience_h == np.inf else view.jobs.submit_s[rows] + 3600.0 * self.patience_h * usd

    def _left_usd(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Cost of what is left of jobs, each on the plan of least cost at the lowest prices; 0 where none can run.

        A job of unknown run time counts as the dearest that came before it.
        """
        self._learn(view, rows)
        classes = self._class_of[rows]
        each = np.array([self._market.least_usd(number) for number in self._number[classes].tolist()])
        usd = np.asarray(view.remaining_work(rows) * np.where(self._never[classes], 0.0, each))
        self._dearest_usd = float(np.fmax.reduce(usd, initial=self._dearest_usd))
        return np.where(np.isnan(usd), self._dearest_usd, usd)

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
        quota = int(free.vc_left[vc]) // 1000
        plan = self._market.cheapest(number, free.type_idle, quota)
        if plan < 0:
            return None
        placement = self._take(view, row, plan, free)
        if self._time_s[row] > self._market.iteration_s[plan] * (1 + 1e-9):
            free.give(placement.gpus, vc=vc)
            placement = self._take(view, row, self._cheapest_here(view, row, plan, free), free)
        return placement

    def _cheapest_here(self, view: View, row: int, plan: int, free: Scratch) -> int:
        """The plan of least cost on the GPUs that it would get; `plan` is that of least cost on full nodes.

        Nowhere is one faster than on full nodes. So no more are tried once those cost more there than the best here.
        """
        market, vc, number = self._market, int(view.jobs.vc[row]), int(self._number[self._class_of[row]])
        best, least = plan, market.cost[plan] * self._time_s[row]
        for other in market.ranked(number, free.type_idle, int(free.vc_left[vc]) // 1000)[:TRIES]:
            if market.cost[other] * market.iteration_s[other] >= least:
                break
            free.give(self._take(view, row, other, free).gpus, vc=vc)
            if market.cost[other] * self._time_s[row] < least:
                best, least = other, market.cost[other] * self._time_s[row]
        return best

    def _take(self, view: View, row: int, plan_row: int, free: Scratch) -> Placement:
        """GPUs for one of the job's plans, a row of the market's table; there are enough. The time is noted."""
        number = int(self._class_of[row])
        known, index = self._classes[number], plan_row - int(self._market.first[self._number[number]])
        gpus, plan = free.place_by_type(known.counts[index], 1000, int(view.jobs.vc[row])), known.plans[index]
        assert gpus is not None and plan is not None
        ends = list(accumulate(known.counts[index].tolist(), initial=0))
        parts = [gpus[begin:end] for begin, end in pairwise(ends)]
        of_type = {gpu.name: part for gpu, part in zip(view.cluster.types, parts, strict=True)}
        placement = Placement(in_stage_order(plan, of_type), plan)
        self._plan_of[row], self._time_s[row] = plan_row, self._plans.time_s(known, index, placement.gpus)
        return placement

    # -- move ----------------------------------------------------------------------------------------

    def _move(self, view: View, free: Scratch) -> list[tuple[int, Placement]]:
        """Plans of less cost for running jobs, the first in submit order first, on what is free and their own GPUs."""
        rows = np.sort(view.running)
        rows = rows[(self._plan_of[rows] >= 0) & (self._again_s[rows] <= view.now_s)]
        if (view.free_milli < 0).any():  # what a job gives back on a closed GPU, it cannot take again
            open_ = [(view.free_milli[view.gpus_of(row)] >= 0).all() for row in rows.tolist()]
            rows = rows[np.array(open_, dtype=bool)]
        numbers, stretch_s = self._number[self._class_of[rows]], view.now_s - view.begin_s[rows]
        overhead_s = self.move_gain * view.preemption_overhead_s
        moved: list[tuple[int, Placement]] = []
        while len(moved) < MOST_MOVES:
            idle = free.type_idle.astype(np.int64)
            quota = free.vc_left[view.jobs.vc[rows]] // 1000
            times_s = self._time_s[rows]
            i, plan = self._market.first_move(self._plan_of[rows], numbers, times_s, stretch_s, idle, quota, overhead_s)
            if i < 0:
                break
            row, vc = int(rows[i]), int(view.jobs.vc[rows[i]])
            before = self._plan_of[row], self._time_s[row]
            free.give(view.gpus_of(row), vc=vc)
            placement = self._take(view, row, plan, free)
            cost, slower = self._market.cost, self._time_s[row] / before[1]
            gain = cost[before[0]] - cost[plan] * slower
            if gain <= 1e-9 * cost[before[0]] or stretch_s[i] * gain <= overhead_s * cost[plan]:
                # It does not pay on these GPUs; it may when the job has been as long again where it is.
                free.give(placement.gpus, vc=vc)
                free.take(view.gpus_of(row), vc=vc)
                self._plan_of[row], self._time_s[row] = before
                self._again_s[row] = view.now_s + stretch_s[i]
            else:
                moved.append((row, placement))
            # What it left may serve one that came before it, so the walk begins anew; its own stretch does, too.
            stretch_s[i] = 0.0
        return moved
