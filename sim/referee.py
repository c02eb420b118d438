"""The referee: which jobs can never run here, and which decisions are illegal. It knows rules, not policies."""

from __future__ import annotations

import numpy as np

from sim.api import IllegalDecisionError, Placement, Policy, View
from sim.cluster import ClusterSpec, Ledger
from sim.kernels.ledger import type_bits, whole_workers
from sim.progress import Truth
from sim.timetable import Timetable
from traces.trace import Trace


class Referee:
    """Checks each placement before the ledger takes its GPUs.

    `step` is the present step of the timetable: the engine keeps it true.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: ClusterSpec,
        policy: Policy,
        truth: Truth,
        view: View,
        ledger: Ledger,
        vc_left: list[int],
        timetable: Timetable,
    ) -> None:
        self._trace, self._cluster, self._policy, self._truth = trace, cluster, policy, truth
        self._ledger, self._vc_left = ledger, vc_left
        # Columns as lists: reading one number from a list is three times as fast as from an array.
        self._num_gpus, self._milli = trace.num_gpus.tolist(), trace.gpu_milli.tolist()
        self._worker, self._mask = trace.worker_gpus.tolist(), view.jobs.types.tolist()
        self._vc = view.jobs.vc.tolist()
        self._timetable, self.step = timetable, 0
        # Of each virtual cluster, and of each kind of gang, from each step on: lists are read one number at a time.
        self._quota = {vc: timetable.quota_ahead(vc).tolist() for vc in timetable.quotas}
        self._widest_of: dict[tuple[int, int, int], list[int]] = {}

    def where(self, now_s: float, row: int | None = None) -> str:
        """Time, policy and job, as messages open."""
        text = f"policy {self._policy.name!r} at {now_s:.12g} s"
        return text if row is None else f"{text}, job {self._trace.job_id[row]!r}"

    def impossible(self, row: int) -> str:
        """Why a job can never run here, now or at a later step of the timetable, or an empty string.

        A policy that sizes gangs judges them by itself, from what there is at most; here only that nothing is left.
        """
        if row in self._truth.why_not:
            return self._truth.why_not[row]
        need, milli, worker, mask = self._num_gpus[row], self._milli[row], self._worker[row], self._mask[row]
        if self._policy.sizes_gangs:
            if self._timetable.steps == 0:
                return ""
            need, worker = 1, 1
        if not mask:
            wish = self._trace.gpu_type[row]
            return (
                f"no GPU type of the cluster is allowed ({wish})"
                if wish
                else "its memory fits no GPU type of the cluster"
            )
        quota = self._quota[self._vc[row]][self.step] if self._vc[row] in self._quota else need * milli
        if need * milli > quota:
            return (f"asks for {need * milli / 1000:g} GPUs, more than its virtual cluster's quota of "
                    f"{quota / 1000:g}{self._from_now_on()}")
        best = self._widest(mask, milli, worker)
        if need > best:
            wish = self._trace.gpu_type[row] or "any one type"
            together, so = (f", {worker} at a time on a node", " that lie so") if worker > 1 else ("", "")
            return (f"asks for {need} slots of {milli / 1000:g} GPU on {wish}{together}; the cluster has {best}{so}"
                    f"{self._from_now_on()}")
        return ""

    def _from_now_on(self) -> str:
        """What a reason ends with where it was, or could have been, otherwise at another time."""
        return f" from {self._timetable.time_s[self.step]:.12g} s on" if self._timetable.steps else ""

    def _widest(self, mask: int, milli: int, worker: int) -> int:
        """Slots of the widest gang that one allowed type of the (empty) cluster holds, at its best from now on."""
        key = (mask, milli, worker)
        if key not in self._widest_of:
            slots = self._cluster.node_gpus.astype(np.int64) // worker * worker
            slots *= 1000 // milli if worker == 1 else 1
            ahead = [self._timetable.slots_ahead(np.where(self._cluster.node_type == t, slots, 0))
                     for t in range(len(self._cluster.types)) if mask >> t & 1]
            self._widest_of[key] = np.max(ahead, axis=0).tolist()
        return self._widest_of[key][self.step]

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
