"""The mechanism that `hetero` and `homogeneous` share: plan each job, then start the best plan that fits now.

Jobs are looked at in queue order; one that does not fit is passed over. Plans are worked out for the empty
cluster, once for all jobs of a class: same model, batch, GPU budget, share of a GPU and allowed types. At a
decision, a class is looked at only if one of its plans fits the GPUs that are free.

`worker_gpus` is not used: a plan sizes the gang, and the GPUs of each type lie on as few nodes as possible,
fullest first. A job that takes a share of a GPU is not partitioned; its slots go to one GPU type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.recommend.errors import RecommendError
from policies.recommend.layout import in_stage_order
from policies.recommend.planner import OBJECTIVES, Planner, Recommendation, ranked
from sim.api import Decision, Placement, Plan, Policy, PolicyError, View, param
from sim.kernels.placement import CONSOLIDATE, place


@dataclass(frozen=True, eq=False)
class JobClass:
    """What jobs of one class share.

    Attributes
    ----------
    milli : share of a GPU that a slot takes.
    plans : plans that such a job starts with, best first; None: without a plan (shares of a GPU).
    counts : int32 [plans, types], GPUs or slots of each type.
    reason : why no such job can ever run; empty where it can.
    """

    milli: int
    plans: tuple[Plan | None, ...]
    counts: np.ndarray
    reason: str = ""


@dataclass
class RecommendPolicy(Policy):
    """Base of the two policies; `single_type` is all that they differ in."""

    needs_performance: ClassVar[bool] = True
    sizes_gangs: ClassVar[bool] = True
    single_type: ClassVar[bool] = False

    objective: str = param("time", choices=OBJECTIVES, help="what makes a plan better: its time, or its cost")
    within: float = param(2.0, unit="x best time", help="with objective cost: the slowest plan allowed")
    patience: float = param(
        4.0, unit="x best", help="the worst plan, by its objective, that a job starts with, against its best "
        "one on the empty cluster; otherwise it waits",
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
        jobs = view.jobs
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
        shared = jobs.gpu_milli < 1000
        quota = view.vc_left[jobs.vc]
        # A plan may use fewer GPUs than asked for; shares come as asked. Budget 0: never within the quota.
        planned = np.minimum(np.ceil(jobs.num_gpus * self.max_scale - 1e-9), quota // 1000)
        slots = np.where(jobs.num_gpus.astype(np.int64) * jobs.gpu_milli <= quota, jobs.num_gpus, 0)
        budget = np.where(shared, slots, planned).astype(np.int64)
        columns = (jobs.model, jobs.batch_size, budget, jobs.gpu_milli, jobs.types)
        keys: dict[tuple, int] = {}
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._class_of = np.array([keys.setdefault(key, len(keys)) for key in rows], dtype=np.int64)
        self._keys = list(keys)
        self._classes: dict[int, JobClass] = {}
        self._planners: dict[int, Planner] = {}
        self._learnt = np.zeros(len(keys), dtype=np.bool_)
        self._never = np.zeros(len(keys), dtype=np.bool_)
        self._shared = np.zeros(len(keys), dtype=np.bool_)
        self._shared[self._class_of[shared]] = True
        # The plans of all classes learnt so far in one table: one comparison finds the classes that fit.
        self._need = np.zeros((0, len(view.cluster.types)), dtype=np.int32)
        self._need_class = np.zeros(0, dtype=np.int64)
        self._out = np.empty(view.cluster.num_gpus * (1000 // int(jobs.gpu_milli.min())), dtype=np.int32)

    def _check_settings(self) -> None:
        for name, low in (("within", 1.0), ("patience", 1.0), ("max_scale", 1e-3), ("depth", 1)):
            if not getattr(self, name) >= low:
                raise PolicyError("value not allowed", where=f"policy {self.name!r}, setting {name!r}",
                                  got=getattr(self, name), allowed=f"a number from {low:g}")

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Submission order, or the GPUs asked for (ties: submission)."""
        if self.order == "fifo":
            return super().key(view, rows)
        return view.jobs.num_gpus[rows] * (view.jobs.gpu_milli[rows] / 1000.0)

    def decide(self, view: View) -> Decision:
        """Start what fits; reject what can never run."""
        rows = view.queued[: self.depth]
        classes = self._class_of[rows]
        if not self._learnt[classes].all():
            self._learn(view, np.unique(classes[~self._learnt[classes]]))
        never = self._never[classes]
        reject = [(row, self._classes[self._class_of[row]].reason) for row in rows[never].tolist()]
        return Decision(start=self._start(view, rows[self._possible(view)[classes] & ~never]), reject=reject)

    def _possible(self, view: View) -> np.ndarray:
        """Mask of the classes of which a plan may fit what is free now."""
        possible = self._shared & bool(view.free_milli.any())
        if view.type_idle.any():
            possible[self._need_class[(self._need <= view.type_idle).all(axis=1)]] = True
        return possible

    def _start(self, view: View, rows: np.ndarray) -> list[tuple[int, Placement]]:
        """Walk the jobs; each takes its GPUs from a copy of what is free, so that no two starts collide."""
        started: list[tuple[int, Placement]] = []
        if not rows.size:
            return started
        spec = view.cluster
        state = (view.free_milli.copy(), view.idle.copy(), view.type_idle.copy(),
                 spec.node_first, spec.node_type, spec.node_gpus, spec.gpu_node)
        left = view.vc_left.copy()
        full: set[tuple[int, int]] = set()
        kinds = zip(self._class_of[rows].tolist(), view.jobs.vc[rows].tolist(), strict=True)
        for row, kind in zip(rows.tolist(), kinds, strict=True):
            if kind in full:
                continue
            index, vc = kind
            placement = self._place(view, self._classes[index], int(left[vc]), state)
            if placement is None:
                # What is free only shrinks from here on, so the rest of its kind need not be tried.
                full.add(kind)
                continue
            left[vc] -= placement.gpus.size * self._classes[index].milli
            started.append((row, placement))
            if not state[0].any():
                break
        return started

    def _place(
        self, view: View, job_class: JobClass, left_milli: int, state: tuple[np.ndarray, ...]
    ) -> Placement | None:
        """GPUs for the best plan that fits what is free (`state`, taken from), or None."""
        milli, counts = job_class.milli, job_class.counts
        if milli < 1000:
            for need in counts if counts[0].sum() * milli <= left_milli else ():
                gpus = self._take(need, milli, state)
                if gpus is not None:
                    return Placement(gpus)
            return None
        fits = (counts <= state[2]).all(axis=1) & (counts.sum(axis=1) * 1000 <= left_milli)
        best = int(fits.argmax())
        if not fits[best]:
            return None
        gpus, plan = self._take(counts[best], 1000, state), job_class.plans[best]
        assert gpus is not None and plan is not None
        parts = np.split(gpus, np.cumsum(counts[best])[:-1])
        of_type = {gpu.name: part for gpu, part in zip(view.cluster.types, parts, strict=True)}
        return Placement(in_stage_order(plan, of_type), plan)

    def _take(self, counts: np.ndarray, milli: int, state: tuple[np.ndarray, ...]) -> np.ndarray | None:
        """Take slots of each type on as few nodes as possible: GPUs in the order of the types, or None."""
        at = 0
        for t in np.flatnonzero(counts).tolist():
            at = place(CONSOLIDATE, int(counts[t]), milli, 1, np.uint64(1 << t), *state, self._out, at)
            if at < 0:
                return None
        return self._out[:at].copy()

    # -- what a class of jobs accepts ----------------------------------------------------------------

    def _learn(self, view: View, indices: np.ndarray) -> None:
        """Work out the plans of classes that are seen for the first time."""
        for index in indices.tolist():
            model, batch, budget, milli, mask = self._keys[index]
            kinds = len(view.cluster.types)
            try:
                if budget == 0:
                    raise RecommendError("the job is larger than the quota of its virtual cluster")
                plan = self._on_shares if milli < 1000 else self._planned
                options = plan(view, model, batch, budget, mask, milli)
                counts = np.array([r.counts for r in options], dtype=np.int32)
                plans = tuple(None if milli < 1000 else r.plan for r in options)
                self._classes[index] = JobClass(milli, plans, counts)
                if milli == 1000:
                    self._need = np.concatenate((self._need, counts))
                    self._need_class = np.concatenate((self._need_class, np.full(len(counts), index)))
            except RecommendError as error:
                self._classes[index] = JobClass(milli, (), np.zeros((0, kinds), dtype=np.int32), str(error))
                self._never[index] = True
            self._learnt[index] = True

    def _planned(
        self, view: View, model: str, batch: int, budget: int, mask: int, milli: int
    ) -> list[Recommendation]:
        """Plans that a job starts with, best first."""
        front = self._planner(view, mask).front(model, batch, budget, single_type=self.single_type)
        return self._acceptable(front)

    def _on_shares(
        self, view: View, model: str, batch: int, slots: int, mask: int, milli: int
    ) -> list[Recommendation]:
        """GPU types for a job with shares of GPUs, best first; it runs data-parallel, without a plan.

        Time and cost are those of whole GPUs: a share takes longer by the same factor on each type.
        """
        assert view.performance is not None
        options, reasons, types = [], [], view.cluster.types
        for t, (gpu, there) in enumerate(zip(types, view.cluster.gpus_by_type().tolist(), strict=True)):
            if mask >> t & 1 and slots > there * (1000 // milli):
                reasons.append(f"{gpu.name}: {there * (1000 // milli)} slots of {milli / 1000:g} GPU in the cluster")
            elif mask >> t & 1:
                iteration = view.performance.data_parallel(model, batch, gpu, (slots,))
                if iteration.fits:
                    time_s, counts = iteration.iteration_s, tuple(slots * (u == t) for u in range(len(types)))
                    usd = time_s / 3600 * gpu.price_or_nan * slots
                    options.append(Recommendation(Plan(()), time_s, usd, counts))
                else:
                    reasons.append(f"{gpu.name}: {iteration.reason}")
        if not options:
            raise RecommendError("no GPU type that the job allows can run it",
                                 where=f"model {model!r}, batch {batch}, {slots} slots",
                                 got="; ".join(reasons) or "none of them in the cluster")
        return self._acceptable(options)

    def _acceptable(self, plans: Sequence[Recommendation]) -> list[Recommendation]:
        """The plans that are good enough to start with, best first."""
        if self.objective == "time":
            order = ranked(plans)
            return [r for r in order if r.iteration_s <= self.patience * order[0].iteration_s]
        order = ranked(plans, "cost", self.within)
        return [r for r in order if r.usd_per_iteration <= self.patience * order[0].usd_per_iteration]

    def _planner(self, view: View, mask: int) -> Planner:
        """The planner for the GPU types of a mask, on the whole, empty cluster."""
        if mask not in self._planners:
            spec = view.cluster
            assert view.performance is not None
            counts = [int(n) if mask >> t & 1 else 0 for t, n in enumerate(spec.gpus_by_type())]
            sizes = [int(spec.node_gpus[spec.node_type == t].max(initial=1)) for t in range(len(spec.types))]
            self._planners[mask] = Planner(view.performance, spec.types, counts, sizes)
        return self._planners[mask]
