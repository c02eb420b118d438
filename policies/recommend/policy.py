"""The mechanism that `hetero` and `homogeneous` share: plan each job, start the best plan that fits, move up later.

Start
    Jobs are looked at in queue order; one that does not fit is passed over. A job starts with the best plan (by
    `objective`) that fits what is free, among those that are efficient enough: the more GPUs others ask for, the
    less a plan may waste (`floors`, `classes.efficiencies`).
Move
    GPUs that no waiting job can use now go to running jobs, in submit order: a job moves to the best plan that
    fits them and its own GPUs, is efficient enough, and is so much better than its present one that the restart
    pays (`classes.worth_after_s`). A move is always to a better plan, so that a job moves less often than it has
    plans, and never back. GPUs that are left so are offered to the waiting jobs again.

`worker_gpus` is not used: a plan sizes the gang, and the GPUs of each type lie on as few nodes as possible,
fullest first. A job that takes a share of a GPU is not partitioned and does not move; its slots go to one GPU type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.recommend.classes import Classes, JobClass
from policies.recommend.free import Free
from policies.recommend.layout import in_stage_order
from policies.recommend.planner import OBJECTIVES, ranked
from policies.recommend.request import Recommendation
from sim.api import Decision, Placement, Policy, PolicyError, View, param

EASING = 0.25
"""Power of the share of GPUs that others ask for, in `floors`; chosen by measurement, as was `efficiency`."""
MOST_MOVES = 16
"""Moves in one decision; what more would pay waits for the next one."""


@dataclass
class RecommendPolicy(Policy):
    """Base of the two policies; `single_type` is all that they differ in."""

    needs_performance: ClassVar[bool] = True
    sizes_gangs: ClassVar[bool] = True
    single_type: ClassVar[bool] = False

    objective: str = param("time", choices=OBJECTIVES, help="what makes a plan better: its time, or its cost")
    within: float = param(2.0, unit="x best time", help="with objective cost: the slowest plan allowed")
    patience: float = param(
        np.inf, unit="x best", help="the worst plan, by its objective, that a job starts with, against its best "
        "one on the empty cluster; otherwise it waits",
    )
    efficiency: float = param(
        0.95, help="least efficiency of a plan while others ask for all GPUs (less where they ask for fewer): its "
        "speed against what its GPUs can do for the model, each type by itself; 0: no bound",
    )
    move_gain: float = param(
        4.0, unit="x overhead", help="a running job moves to a better plan if that saves so many times what the "
        "restart costs, should it run as long again as it has; inf: never",
    )
    max_scale: float = param(1.0, unit="x gang", help="GPUs that a plan may use, against the gang asked for")
    order: str = param("fifo", choices=("fifo", "smallest"), help="queue order: submission, or fewest GPUs")
    depth: int = param(1000, unit="jobs", help="waiting jobs to look at; 1: strict order, none passed over")

    def prepare(self, view: View) -> None:
        """Check settings and jobs, and sort the jobs into classes.

        Raises
        ------
        PolicyError
            A setting out of range, or a job without a model or batch size.
        HetsimError
            A model that the performance model does not know.
        """
        assert view.performance is not None
        self._check_settings()
        self._check_jobs(view)
        jobs = view.jobs
        shared = jobs.gpu_milli < 1000
        quota = view.vc_left[jobs.vc]
        # A plan may use fewer GPUs than asked for; shares come as asked. Budget 0: never within the quota.
        planned = np.minimum(np.ceil(jobs.num_gpus * self.max_scale - 1e-9), quota // 1000)
        slots = np.where(jobs.num_gpus.astype(np.int64) * jobs.gpu_milli <= quota, jobs.num_gpus, 0)
        budget = np.where(shared, slots, planned).astype(np.int64)
        columns = (jobs.model, jobs.batch_size, budget, jobs.gpu_milli, jobs.types, jobs.gpus)
        keys: dict[tuple, int] = {}
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._class_of = np.array([keys.setdefault(key, len(keys)) for key in rows], dtype=np.int64)
        self._keys, self._asked = list(keys), np.array([key[-1] for key in keys])
        self._plans = Classes(view, self.single_type, self.objective == "cost", self._acceptable)
        self._classes: dict[int, JobClass] = {}
        self._learnt, self._never, self._shared = np.zeros((3, len(keys)), dtype=np.bool_)
        self._shared[self._class_of[shared]] = True
        # The plans of all classes learnt so far in one table: one comparison finds the classes that fit.
        self._need = np.zeros((0, len(view.cluster.types)), dtype=np.int32)
        self._need_class, self._need_grade = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._plan_of = np.zeros(len(jobs), dtype=np.int64)
        self._out = np.empty(view.cluster.num_gpus * (1000 // int(jobs.gpu_milli.min())), dtype=np.int32)

    def _check_settings(self) -> None:
        lows = (("within", 1.0), ("patience", 1.0), ("efficiency", 0.0), ("move_gain", 0.0), ("max_scale", 1e-3),
                ("depth", 1))
        for name, low in lows:
            if not getattr(self, name) >= low:
                raise PolicyError("value not allowed", where=f"policy {self.name!r}, setting {name!r}",
                                  got=getattr(self, name), allowed=f"a number from {low:g}")

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

    def _acceptable(self, front: Sequence[Recommendation]) -> list[Recommendation]:
        """The plans that are good enough to start with, best first."""
        if self.objective == "time":
            order = ranked(front)
            return [r for r in order if r.iteration_s <= self.patience * order[0].iteration_s]
        order = ranked(front, "cost", self.within)
        return [r for r in order if r.usd_per_iteration <= self.patience * order[0].usd_per_iteration]

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Submission order, or the GPUs asked for (ties: submission)."""
        if self.order == "fifo":
            return super().key(view, rows)
        return view.jobs.num_gpus[rows] * (view.jobs.gpu_milli[rows] / 1000.0)

    def floors(self, view: View) -> np.ndarray:
        """Least efficiency of a plan now, float64 [classes]:

            efficiency x min(1, GPUs that other jobs ask for, waiting and running / GPUs) ** EASING

        A job by itself may be fast at any waste; where GPUs are short, others wait for what one job wastes. The
        most efficient plan of a class is always allowed.
        """
        asked = view.jobs.gpus[view.queued].sum() + view.jobs.gpus[view.running].sum()
        share = np.clip((asked - self._asked) / view.cluster.num_gpus, 0.0, 1.0)
        # A plan that wastes nothing may have 1 - 1e-16.
        return np.asarray(self.efficiency * share**EASING - 1e-9)

    def decide(self, view: View) -> Decision:
        """Start what fits, move up what it pays to, and reject what can never run."""
        rows = view.queued[: self.depth]
        classes = self._class_of[rows]
        if not self._learnt[classes].all():
            self._learn(np.unique(classes[~self._learnt[classes]]))
        never = self._never[classes]
        reject = [(row, self._classes[self._class_of[row]].reason) for row in rows[never].tolist()]
        free, floors = Free(view, self._out), self.floors(view)
        decision = Decision(start=self._start(view, rows[~never], free, floors), reject=reject)
        if free.type_idle.any() and view.running.size and self.move_gain < np.inf:
            decision.move = self._move(view, free, floors)
        if decision.move:
            rest = rows[~(never | np.isin(rows, [row for row, _ in decision.start]))]
            decision.start += self._start(view, rest, free, floors)
        return decision

    def _learn(self, indices: np.ndarray) -> None:
        """Work out the plans of classes that are seen for the first time."""
        for index in indices.tolist():
            known = self._classes[index] = self._plans.learn(self._keys[index])
            self._learnt[index], self._never[index] = True, bool(known.reason)
            if known.milli == 1000 and not known.reason:
                self._need = np.concatenate((self._need, known.counts))
                self._need_class = np.concatenate((self._need_class, np.full(len(known.counts), index)))
                self._need_grade = np.concatenate((self._need_grade, known.grade))

    # -- start ---------------------------------------------------------------------------------------

    def _start(self, view: View, rows: np.ndarray, free: Free, floors: np.ndarray) -> list[tuple[int, Placement]]:
        """Walk the jobs; each takes its GPUs from what is free."""
        possible = self._shared & bool(free.milli.any())
        if free.type_idle.any():
            fit = (self._need <= free.type_idle).all(axis=1) & (self._need_grade >= floors[self._need_class])
            possible[self._need_class[fit]] = True
        rows = rows[possible[self._class_of[rows]]]
        started: list[tuple[int, Placement]] = []
        full: set[tuple[int, int]] = set()
        kinds = zip(self._class_of[rows].tolist(), view.jobs.vc[rows].tolist(), strict=True)
        for row, kind in zip(rows.tolist(), kinds, strict=True):
            if kind in full:
                continue
            placement = self._place(view, row, free, floors)
            if placement is None:
                # What is free only shrinks from here on, so the rest of its kind need not be tried.
                full.add(kind)
                continue
            started.append((row, placement))
            if not free.milli.any():
                break
        return started

    def _place(self, view: View, row: int, free: Free, floors: np.ndarray) -> Placement | None:
        """GPUs for the best plan that fits, or None."""
        index, vc = int(self._class_of[row]), int(view.jobs.vc[row])
        known = self._classes[index]
        within = known.counts.sum(axis=1) * known.milli <= free.vc_left[vc]
        if known.milli < 1000:
            for need in known.counts[within]:
                gpus = free.take(need, known.milli, vc)
                if gpus is not None:
                    return Placement(gpus)
            return None
        fits = within & (known.counts <= free.type_idle).all(axis=1) & (known.grade >= floors[index])
        best = int(fits.argmax())
        return self._take(view, row, best, free) if fits[best] else None

    def _take(self, view: View, row: int, index: int, free: Free) -> Placement:
        """GPUs for one of the job's plans; there are enough."""
        known = self._classes[self._class_of[row]]
        gpus, plan = free.take(known.counts[index], 1000, int(view.jobs.vc[row])), known.plans[index]
        assert gpus is not None and plan is not None
        parts = np.split(gpus, np.cumsum(known.counts[index])[:-1])
        of_type = {gpu.name: part for gpu, part in zip(view.cluster.types, parts, strict=True)}
        self._plan_of[row] = index
        return Placement(in_stage_order(plan, of_type), plan)

    # -- move ----------------------------------------------------------------------------------------

    def _move(self, view: View, free: Free, floors: np.ndarray) -> list[tuple[int, Placement]]:
        """Better plans for running jobs, the first in submit order first, on what is free and their own GPUs."""
        rows = np.sort(view.running)
        rows = rows[self._plan_of[rows] > 0]
        # Work done, as time on the present GPUs.
        worked_s = view.progress_s(rows) / view.speed[rows]
        moved: list[tuple[int, Placement]] = []
        while len(moved) < MOST_MOVES:
            i, plan = self._first_that_pays(view, rows, worked_s, free, floors)
            if i < 0:
                break
            row = int(rows[i])
            free.give(view.gpus_of(row), int(view.jobs.vc[row]))
            moved.append((row, self._take(view, row, plan, free)))
            # What it left may serve one that came before it, so the walk begins anew.
            rows, worked_s = np.delete(rows, i), np.delete(worked_s, i)
        return moved

    def _first_that_pays(
        self, view: View, rows: np.ndarray, worked_s: np.ndarray, free: Free, floors: np.ndarray
    ) -> tuple[int, int]:
        """Position in `rows` of the first job that a move pays for, and its best plan; (-1, -1): none."""
        cost_s = self.move_gain * view.preemption_overhead_s
        tried: dict[tuple[int, int, int], float] = {}
        kinds = (self._class_of[rows], self._plan_of[rows], view.jobs.vc[rows], worked_s)
        for i, (index, now, vc, done_s) in enumerate(zip(*(kind.tolist() for kind in kinds), strict=True)):
            # One of its kind that has worked longer was not worth it.
            if done_s <= tried.get((index, now, vc), 0.0):
                continue
            known = self._classes[index]
            extra = known.counts[:now] - known.counts[now]
            fits = (extra <= free.type_idle).all(axis=1) & (known.grade[:now] >= floors[index])
            fits &= extra.sum(axis=1) * 1000 <= free.vc_left[vc]
            pays = fits & (done_s > cost_s * known.worth_s[now, :now])
            best = int(pays.argmax())
            if pays[best]:
                return i, best
            tried[index, now, vc] = done_s
        return -1, -1
