"""The referee: which jobs can never run here, and which decisions are illegal. It knows rules, not policies."""

from __future__ import annotations

import numpy as np

from sim.api import IllegalDecisionError, Placement, Policy, View
from sim.cluster import ClusterSpec, Ledger
from sim.kernels.ledger import type_bits, whole_workers
from sim.progress import Truth
from traces.trace import Trace


class Referee:
    """Checks each placement before the ledger takes its GPUs."""

    def __init__(
        self,
        trace: Trace,
        cluster: ClusterSpec,
        policy: Policy,
        truth: Truth,
        view: View,
        ledger: Ledger,
        vc_left: list[int],
    ) -> None:
        self._trace, self._cluster, self._policy, self._truth = trace, cluster, policy, truth
        self._ledger, self._vc_left = ledger, vc_left
        # Columns as lists: reading one number from a list is three times as fast as from an array.
        self._num_gpus, self._milli = trace.num_gpus.tolist(), trace.gpu_milli.tolist()
        self._worker, self._mask = trace.worker_gpus.tolist(), view.jobs.types.tolist()
        self._vc = view.jobs.vc.tolist()
        self._quota: list[int] = view.vc_left.tolist()
        self._widest_of: dict[tuple[int, int, int], int] = {}

    def where(self, now_s: float, row: int | None = None) -> str:
        """Time, policy and job, as messages open."""
        text = f"policy {self._policy.name!r} at {now_s:.12g} s"
        return text if row is None else f"{text}, job {self._trace.job_id[row]!r}"

    def impossible(self, row: int) -> str:
        """Why a job can never run here, or an empty string."""
        if row in self._truth.why_not:
            return self._truth.why_not[row]
        if self._policy.sizes_gangs:
            return ""
        need, milli, worker, mask = self._num_gpus[row], self._milli[row], self._worker[row], self._mask[row]
        if not mask:
            wish = self._trace.gpu_type[row]
            return (
                f"no GPU type of the cluster is allowed ({wish})"
                if wish
                else "its memory fits no GPU type of the cluster"
            )
        quota = self._quota[self._vc[row]]
        if need * milli > quota:
            return f"asks for {need * milli / 1000:g} GPUs, more than its virtual cluster's quota of {quota / 1000:g}"
        best = self._widest(mask, milli, worker)
        if need > best:
            wish = self._trace.gpu_type[row] or "any one type"
            return f"asks for {need} slots of {milli / 1000:g} GPU on {wish}; the cluster has {best}"
        return ""

    def _widest(self, mask: int, milli: int, worker: int) -> int:
        """Slots of the widest gang that one allowed type of the (empty) cluster holds."""
        key = (mask, milli, worker)
        if key not in self._widest_of:
            best = 0
            for t, capacity in enumerate(self._cluster.gpus_by_type().tolist()):
                if mask >> t & 1:
                    sizes = self._cluster.node_gpus[self._cluster.node_type == t]
                    best = max(
                        best, int((sizes // worker).sum()) * worker if worker > 1 else capacity * (1000 // milli)
                    )
            self._widest_of[key] = best
        return self._widest_of[key]

    def check(self, now_s: float, row: int, placement: Placement) -> None:
        """A gang is whole, of allowed types, of one type unless a plan says otherwise, and within its quota.

        Raises
        ------
        IllegalDecisionError
        """
        gpus, plan = placement.gpus, placement.plan
        if gpus.dtype != np.int32 or gpus.ndim != 1 or gpus.size == 0:
            self._refuse("a placement is a non-empty int32 array of GPU numbers", now_s, row, gpus)
        if not self._policy.sizes_gangs and gpus.size != self._num_gpus[row]:
            self._refuse("a gang starts whole", now_s, row, gpus.size, self._num_gpus[row])
        bits = type_bits(gpus, self._ledger.gpu_node, self._ledger.node_type)
        if bits < 0:
            self._refuse("no such GPU", now_s, row, gpus.tolist(), f"0 to {self._cluster.num_gpus - 1}")
        if plan is not None:
            self._check_plan(now_s, row, placement)
        elif bits & (bits - 1):
            self._refuse("a gang without a plan lies on one GPU type", now_s, row, self.types_of(gpus))
        elif bits & ~self._mask[row]:
            self._refuse("the job may not run on this GPU type", now_s, row, self.types_of(gpus))
        elif self._worker[row] > 1 and not whole_workers(gpus, self._worker[row], self._ledger.gpu_node):
            self._refuse(
                "slots of one worker lie on one node",
                now_s,
                row,
                gpus.tolist(),
                f"multiples of {self._worker[row]} on each node",
            )
        wanted, left = gpus.size * self._milli[row], self._vc_left[self._vc[row]]
        if wanted > left:
            self._refuse("the virtual cluster's quota is used up", now_s, row, f"{wanted} milli", f"{left} milli")

    def _check_plan(self, now_s: float, row: int, placement: Placement) -> None:
        """Each part's GPUs are of the type that the plan names, and of a type that the job's own wish allows."""
        plan, gpus = placement.plan, placement.gpus
        assert plan is not None
        if plan.num_gpus != gpus.size:
            self._refuse("plan and placement differ in GPUs", now_s, row, gpus.size, plan.num_gpus)
        wish = self._trace.gpu_type[row]
        allowed = {name.strip().lower() for name in wish.split("|")} if wish else None
        at = 0
        for part in plan.parts:
            types = self.types_of(gpus[at : at + part.gpus])
            at += part.gpus
            if types != part.gpu_type or (allowed is not None and types.lower() not in allowed):
                self._refuse(
                    "a stage lies on a GPU type that its plan or the job's wish excludes",
                    now_s,
                    row,
                    types,
                    wish or part.gpu_type,
                )

    def types_of(self, gpus: np.ndarray) -> str:
        """Names of the GPU types among some GPUs, sorted, as one text."""
        return ", ".join(sorted({self._cluster.types[t].name for t in self._cluster.gpu_type[gpus].tolist()}))

    def _refuse(self, what: str, now_s: float, row: int, got: object, allowed: object = "") -> None:
        raise IllegalDecisionError(what, where=self.where(now_s, row), got=got, allowed=str(allowed))
