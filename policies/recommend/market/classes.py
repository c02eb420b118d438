"""Classes of jobs and the plans of each: same model, batch, gang, share of a GPU and allowed types.

Plans are worked out for the empty cluster, once a class: the front over all vectors of GPU counts has the best plan
for whatever is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation
from policies.recommend.searching.planner import Planner
from sim.api import Plan, View
from sim.performance import PerformanceError

Key = tuple[str, int, int, int, int]
"""Model, batch, GPU budget (or slots), milli-GPU of a slot, mask of allowed types."""


@dataclass(frozen=True, eq=False)
class JobClass:
    """What jobs of one class share.

    Attributes
    ----------
    key : what makes the class.
    plans : plans that such a job may run by, fastest first; None: without a plan (shares of a GPU).
    counts : int32 [plans, types], GPUs or slots of each type.
    iteration_s : float64 [plans].
    reason : why no such job can ever run; empty where it can.
    """

    key: Key
    plans: tuple[Plan | None, ...]
    counts: np.ndarray
    iteration_s: np.ndarray
    reason: str = ""

    @property
    def milli(self) -> int:
        return self.key[3]


class Classes:
    """The plans of classes, by the planner on the whole, empty cluster.

    Parameters
    ----------
    view : the run's view; its performance model is the belief.
    methods : what proposes plans (`policies.recommend.methods`).
    single_type : one GPU type for the whole job.
    """

    def __init__(self, view: View, methods: Sequence[str], single_type: bool) -> None:
        self._view, self._methods, self._single_type = view, methods, single_type
        self._planners: dict[int, Planner] = {}

    def learn(self, key: Key) -> JobClass:
        """Work out the plans of a class; `reason` is set where there is none."""
        try:
            if key[2] == 0:
                raise RecommendError("the job is larger than the quota of its virtual cluster")
            front = self._planned(key) if key[3] == 1000 else self._on_shares(key)
        except RecommendError as error:
            kinds = len(self._view.cluster.types)
            return JobClass(key, (), np.zeros((0, kinds), dtype=np.int32), np.zeros(0), str(error))
        return JobClass(
            key, tuple(r.plan if r.plan.stages else None for r in front),
            np.array([r.counts for r in front], dtype=np.int32), np.array([r.iteration_s for r in front]),
        )

    def time_s(self, known: JobClass, index: int, gpus: np.ndarray) -> float:
        """Time of an iteration of a plan of a class on these GPUs of the cluster (int32, in stage order); that on full
        nodes where it was never measured on such GPUs."""
        plan, (model, batch, *_) = known.plans[index], known.key
        assert plan is not None and self._view.performance is not None
        try:
            return self._view.performance.plan(model, batch, plan, gpus, self._view.cluster).iteration_s
        except PerformanceError:
            return float(known.iteration_s[index])

    def _planned(self, key: Key) -> Sequence[Recommendation]:
        model, batch, budget, _, mask = key
        return self._planner(mask).front(model, batch, budget, single_type=self._single_type)

    def _on_shares(self, key: Key) -> list[Recommendation]:
        """GPU types for a job with shares of GPUs; it runs data-parallel, without a plan.

        Time and cost are those of whole GPUs: a share takes longer by the same factor on each type.
        """
        model, batch, slots, milli, mask = key
        performance, spec = self._view.performance, self._view.cluster
        assert performance is not None
        options, reasons, kinds = [], [], len(spec.types)
        for t, (gpu, there) in enumerate(zip(spec.types, spec.gpus_by_type().tolist(), strict=True)):
            if mask >> t & 1 and slots > there * (1000 // milli):
                reasons.append(f"{gpu.name}: {there * (1000 // milli)} slots of {milli / 1000:g} GPU in the cluster")
            elif mask >> t & 1:
                iteration = performance.data_parallel(model, batch, gpu, (slots,))
                if iteration.fits:
                    time_s, counts = iteration.iteration_s, tuple(slots * (u == t) for u in range(kinds))
                    usd = time_s / 3600 * gpu.price_or_nan * slots
                    options.append(Recommendation(Plan(()), time_s, usd, counts))
                else:
                    reasons.append(f"{gpu.name}: {iteration.reason}")
        if not options:
            raise RecommendError("no GPU type that the job allows can run it",
                                 where=f"model {model!r}, batch {batch}, {slots} slots",
                                 got="; ".join(reasons) or "none of them in the cluster")
        return options

    def _planner(self, mask: int) -> Planner:
        """The planner for the GPU types of a mask."""
        if mask not in self._planners:
            spec, performance = self._view.cluster, self._view.performance
            assert performance is not None
            counts = [int(n) if mask >> t & 1 else 0 for t, n in enumerate(spec.gpus_by_type())]
            sizes = [int(spec.node_gpus[spec.node_type == t].max(initial=1)) for t in range(len(spec.types))]
            self._planners[mask] = Planner(performance, spec.types, counts, sizes, methods=self._methods, keep=True)
        return self._planners[mask]
