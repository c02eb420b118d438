"""Classes of jobs and the plans of each: same model, batch, gang, share of a GPU and allowed types.

Plans are worked out for the empty cluster, once a class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policies.recommend.errors import RecommendError
from policies.recommend.planner import Planner
from policies.recommend.request import Recommendation
from sim.api import Plan, View

Key = tuple[str, int, int, int, int, float]
"""Model, batch, GPU budget (or slots), milli-GPU of a slot, mask of allowed types, GPUs asked for."""


@dataclass(frozen=True, eq=False)
class JobClass:
    """What jobs of one class share.

    Attributes
    ----------
    key : what makes the class.
    plans : plans that such a job may run by, best first; None: without a plan (shares of a GPU).
    counts : int32 [plans, types], GPUs or slots of each type.
    iteration_s : float64 [plans].
    price : float64 [plans], what a second on the plan counts for: 1, or USD where cost is the objective.
    grade : float64 [plans], the plan's efficiency (`efficiencies`); inf for the most efficient one.
    reason : why no such job can ever run; empty where it can.
    """

    key: Key
    plans: tuple[Plan | None, ...]
    counts: np.ndarray
    iteration_s: np.ndarray
    price: np.ndarray
    grade: np.ndarray
    reason: str = ""

    @property
    def milli(self) -> int:
        return self.key[3]

    @cached_property
    def worth_s(self) -> np.ndarray:
        """float64 [plans, plans]: a job that has worked longer than [k, j] s x what a move costs goes from k to j.

        See `worth_after_s`; inf where j is not better than k.
        """
        return worth_after_s(self.iteration_s[:, None], self.price[:, None], self.iteration_s, self.price)


def worth_after_s(now_s: np.ndarray, price: np.ndarray, new_s: np.ndarray, new_price: np.ndarray) -> np.ndarray:
    """Time that a job must have worked for a move to pay, for each second that the move costs.

    How long a job goes on is not known; run times have heavy tails, so it is taken to have as much work before
    it as behind it. Let all that it has done take r on its present plan, an iteration T there and T' on the new
    plan, and a second p and p' (1, or USD a second). The same again costs r p where it stays and
    (r T' / T + overhead) p' where it moves. Moving pays where

        r (p - p' T' / T) > overhead p'    or    r > overhead p' / (p - p' T' / T).

    Returns that factor of overhead; inf where the new plan is no better (by a billionth, as numbers are rounded).
    """
    gain = price - new_price * new_s / now_s
    better = gain > 1e-9 * price
    return np.where(better, new_price / np.where(better, gain, 1.0), np.inf)


def efficiencies(counts: np.ndarray, iteration_s: np.ndarray) -> np.ndarray:
    """Iterations a second of each plan against what its GPUs could do for the same model: float64 [plans].

        efficiency = (1 / iteration_s) / sum over types (GPUs of the type x r),
        r = the most iterations a second and GPU of a plan on that type alone.

    A wide gang that mostly waits for its network, and a mixture that is slower than its parts, have little. It
    tells nothing of which type is better: on each type one plan has 1. A type that cannot hold the model alone
    has r = 0, so a plan may have more than 1 (inf where no type holds it alone).
    """
    rate, total = 1.0 / iteration_s, counts.sum(axis=1)
    alone = counts == total[:, None]
    per_gpu = np.where(alone, (rate / total)[:, None], 0.0).max(axis=0)
    possible = counts @ per_gpu
    return np.where(possible > 0, rate / np.where(possible > 0, possible, 1.0), np.inf)


class Classes:
    """The plans of classes, by the planner on the whole, empty cluster.

    Parameters
    ----------
    view : the run's view; its performance model is the belief.
    single_type : one GPU type for the whole job.
    accept : the plans of a front that a job may run by, best first.
    by_cost : a second of a plan counts by its price; else all count the same.
    """

    def __init__(
        self, view: View, single_type: bool, by_cost: bool,
        accept: Callable[[Sequence[Recommendation]], list[Recommendation]],
    ) -> None:
        self._view, self._single_type, self._by_cost, self._accept = view, single_type, by_cost, accept
        self._planners: dict[int, Planner] = {}

    def learn(self, key: Key) -> JobClass:
        """Work out the plans of a class; `reason` is set where there is none."""
        try:
            if key[2] == 0:
                raise RecommendError("the job is larger than the quota of its virtual cluster")
            front = self._planned(key) if key[3] == 1000 else self._on_shares(key)
            plans = self._accept(front)
        except RecommendError as error:
            none, kinds = np.zeros(0), len(self._view.cluster.types)
            return JobClass(key, (), np.zeros((0, kinds), dtype=np.int32), none, none, none, str(error))
        time_s = np.array([r.iteration_s for r in plans])
        price = np.array([r.usd_per_iteration for r in plans]) / time_s if self._by_cost else np.ones(len(plans))
        efficiency_of = dict(zip(map(id, front), efficiencies(np.array([r.counts for r in front]),
                                 np.array([r.iteration_s for r in front])).tolist(), strict=True))
        efficiency = np.array([efficiency_of[id(r)] for r in plans])
        return JobClass(
            key, tuple(r.plan if r.plan.stages else None for r in plans),
            np.array([r.counts for r in plans], dtype=np.int32), time_s, price,
            np.where(efficiency == efficiency.max(), np.inf, efficiency),
        )

    def _planned(self, key: Key) -> Sequence[Recommendation]:
        model, batch, budget, _, mask, _ = key
        return self._planner(mask).front(model, batch, budget, single_type=self._single_type)

    def _on_shares(self, key: Key) -> list[Recommendation]:
        """GPU types for a job with shares of GPUs; it runs data-parallel, without a plan.

        Time and cost are those of whole GPUs: a share takes longer by the same factor on each type.
        """
        model, batch, slots, milli, mask, _ = key
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
            self._planners[mask] = Planner(performance, spec.types, counts, sizes)
        return self._planners[mask]
