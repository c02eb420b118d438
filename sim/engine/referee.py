"""The referee: which jobs can never run here, and which decisions are illegal. It knows rules, not policies."""

from __future__ import annotations

from bisect import bisect_left
from operator import neg
from typing import Any

import numpy as np

from sim.api import IllegalDecisionError, Placement, Policy, View
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.tenants import NO_QUOTA, Tenants
from sim.cluster.timetable import Timetable, ahead
from sim.kernels.ledger import type_bits, whole_workers
from sim.workload.progress import Truth
from traces.trace import Trace


class Limit:
    """What there is of something at each step of the timetable; `most[step]` is the most from that step on."""

    def __init__(self, value: np.ndarray, time_s: np.ndarray) -> None:
        self._value, self._time_s = value, time_s
        self.most: list[int] = ahead(value).tolist()  # a list: read one number at a time

    def since(self, step: int) -> tuple[str, str]:
        """Words around the most from a step on: ("at most ", " from 50 s on"), where it begins, if anything changes."""
        began = bisect_left(self.most, -self.most[step], key=neg)
        at_most = "" if self._value[began] == self.most[began] else "at most "
        return at_most, f" from {self._time_s[began]:.12g} s on" if len(self._time_s) > 1 else ""


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
        tenants: Tenants | None = None,
    ) -> None:
        self._trace, self._cluster, self._policy, self._truth = trace, cluster, policy, truth
        self._ledger, self._vc_left, self._tenants = ledger, vc_left, tenants
        self._num_gpus: Any
        self._worker: Any
        self._vc: Any
        self._num_gpus, self._worker, self._vc = trace.num_gpus, trace.worker_gpus, view.jobs.vc
        self._mask = view.jobs.types
        self._gangs = trace.num_gpus, trace.gpu_milli, trace.worker_gpus, self._mask
        self._timetable, self.step, self._sizes_gangs = timetable, 0, policy.sizes_gangs
        self._bounded = policy.sizes_gangs and bool(trace.min_gpus.any() or trace.max_gpus.any())
        self._possible_at: Any = np.full(len(trace), -1, dtype=np.int32)
        # Of each virtual cluster, and of each kind of gang.
        self._quota = {vc: Limit(timetable.quota(vc), timetable.time_s) for vc in timetable.quotas}
        self._widest_of: dict[tuple[int, int, int], Limit] = {}
        self._within_of: dict[tuple[int, int, int, int], Limit] = {}

    def in_lists(self) -> None:
        """Keep columns as lists: reading one number from a list is three times as fast as from an array, and they are
        as large again. Before the first decision is checked; where the fast lane goes all the way there is none."""
        for name in ("_num_gpus", "_worker", "_vc", "_possible_at"):
            column = getattr(self, name)
            setattr(self, name, column if isinstance(column, list) else column.tolist())

    def where(self, now_s: float, row: int | None = None) -> str:
        """Time, policy and job, as messages open."""
        text = f"policy {self._policy.name!r} at {now_s:.12g} s"
        return text if row is None else f"{text}, job {self._trace.job_id[row]!r}"

    def impossible(self, row: int) -> str:
        """Why a job can never run here, now or at a later step of the timetable, or an empty string.

        A policy that sizes gangs judges them by itself, from what there is at most; here only that nothing is left.
        """
        if self._possible_at[row] == self.step:  # a job that comes back within a step
            return ""
        if row in self._truth.why_not:
            return self._truth.why_not[row]
        asked, milli, worker, mask = (column.item(row) for column in self._gangs)
        if not mask:
            wish = self._trace.gpu_type[row]
            return (
                f"no GPU type of the cluster is allowed ({wish})"
                if wish
                else "its memory fits no GPU type of the cluster"
            )
        need, lying = (1, 1) if self._sizes_gangs else (asked, worker)
        quota, widest = self._quota.get(self._vc[row]), self._widest_of.get((mask, milli, lying))
        if widest is None:
            widest = self._widest_of[mask, milli, lying] = self._widest(mask, milli, lying)
        if quota is not None and need * milli > quota.most[self.step]:
            at_most, since = quota.since(self.step)
            return (f"asks for {asked * milli / 1000:g} GPUs, more than its virtual cluster's quota of {at_most}"
                    f"{quota.most[self.step] / 1000:g}{since}")
        if need > widest.most[self.step]:
            wish = self._trace.gpu_type[row] or "any one type"
            at_most, since = widest.since(self.step)
            together, so = (f", {worker} at a time on a node", " that lie so") if worker > 1 else ("", "")
            return (f"asks for {asked} slots of {milli / 1000:g} GPU on {wish}{together}; the cluster has {at_most}"
                    f"{widest.most[self.step]}{so}{since}")
        if self._tenants is not None and (short := self._beyond_ceilings(row, need, mask, milli, lying)):
            return short
        self._possible_at[row] = self.step
        return ""

    def _beyond_ceilings(self, row: int, need: int, mask: int, milli: int, worker: int) -> str:
        """Why the ceilings of its queue and of those around it never allow a job, or an empty string."""
        assert self._tenants is not None
        vc = self._vc[row]
        within = self._within_of.get((vc, mask, milli, worker))
        if within is None:
            most = self._tenants.most_milli(vc, fixed_only=vc in self._quota)
            within = self._within_of[vc, mask, milli, worker] = self._widest(mask, milli, worker, most)
        if need <= within.most[self.step]:
            return ""
        wish, at_most = self._trace.gpu_type[row] or "any one type", within.most[self.step] * milli / 1000
        return (f"asks for {self._num_gpus[row] * milli / 1000:g} GPUs on {wish}; quotas by GPU type, or of the queues "
                f"around {self._tenants.names[vc]!r}, allow at most {at_most:g}{within.since(self.step)[1]}")

    def _widest(self, mask: int, milli: int, worker: int, most_milli: list[int] | None = None) -> Limit:
        """Slots of the widest gang that one allowed type of the (empty) cluster holds, within `most_milli` of each."""
        most = [NO_QUOTA] * len(self._cluster.types) if most_milli is None else most_milli
        per_gpu = 1000 // milli if worker == 1 else 1
        there = [np.minimum(self._timetable.gpus(self._cluster.node_type == t, worker) * per_gpu,
                            most[t] // milli // worker * worker)
                 for t in range(len(self._cluster.types)) if mask >> t & 1]
        return Limit(np.max(there, axis=0), self._timetable.time_s)

    def check(self, now_s: float, row: int, placement: Placement, milli: int) -> None:
        """A gang is whole, of allowed types, of one type unless a plan says otherwise, and within quotas.

        `milli`: the share that it takes of each GPU.

        Raises
        ------
        IllegalDecisionError
        """
        gpus, plan = placement.gpus, placement.plan
        if gpus.dtype != np.int32 or gpus.ndim != 1 or gpus.size == 0:
            self._refuse("a placement is a non-empty int32 array of GPU numbers", now_s, row, gpus)
        if not self._policy.sizes_gangs and gpus.size != self._num_gpus[row]:
            self._refuse("a gang starts whole", now_s, row, gpus.size, self._num_gpus[row])
        if plan is None and self._bounded:
            self._check_size(now_s, row, gpus.size)
        bits = type_bits(gpus, self._ledger.gpu_node, self._ledger.node_type)
        if bits < 0:
            self._refuse("no such GPU", now_s, row, gpus.tolist(), f"0 to {self._cluster.num_gpus - 1}")
        if plan is not None:
            self._check_plan(now_s, row, placement)
        elif bits & (bits - 1):
            self._refuse("a gang without a plan lies on one GPU type", now_s, row, self.types_of(gpus))
        elif bits & ~self._mask.item(row):
            self._refuse("the job may not run on this GPU type", now_s, row, self.types_of(gpus))
        elif self._worker[row] > 1 and not whole_workers(gpus, self._worker[row], self._ledger.gpu_node):
            self._refuse(
                "slots of one worker lie on one node",
                now_s,
                row,
                gpus.tolist(),
                f"multiples of {self._worker[row]} on each node",
            )
        wanted, left = gpus.size * milli, self._vc_left[self._vc[row]]
        if wanted > left:
            self._refuse("the virtual cluster's quota is used up", now_s, row, f"{wanted} milli", f"{left} milli")
        if self._tenants is not None:
            self._check_ceilings(now_s, row, gpus, milli)

    def _check_ceilings(self, now_s: float, row: int, gpus: np.ndarray, share: int) -> None:
        """No queue, neither the job's nor one around it, comes to hold more of a type, or in all, than its quota."""
        assert self._tenants is not None
        milli = {t: n * share for t, n in self._ledger.count_by_type(gpus).items()}
        over = self._tenants.over(self._vc[row], milli)
        if over is None:
            return
        queue, column, left = over
        names = [*(t.name for t in self._cluster.types), "any type"]
        self._refuse(f"the quota of queue {self._tenants.names[queue]!r} on {names[column]} is used up", now_s, row,
                     f"{milli.get(column, sum(milli.values()))} milli", f"{left} milli")

    def _check_size(self, now_s: float, row: int, gpus: int) -> None:
        """A gang whose size the policy chooses keeps to what its job says of sizes."""
        low, high = int(self._trace.min_gpus[row]), int(self._trace.max_gpus[row])
        if gpus < low or 0 < high < gpus:
            allowed = f"{low} to {high}" if low and high else f"{low} or more" if low else f"up to {high}"
            self._refuse("the job does not run on so many GPUs", now_s, row, gpus, allowed)

    def _check_plan(self, now_s: float, row: int, placement: Placement) -> None:
        """Each part's GPUs are of the type that the plan names, and of a type that the job's own wish allows."""
        plan, gpus = placement.plan, placement.gpus
        assert plan is not None
        if any(stage.sharded for stage in plan.stages):
            self._refuse("a run's tables cannot tell a stage that is divided among its replicas", now_s, row, "sharded",
                         "stages that are not: hetsim perf and recommend plan such jobs")  # fmt: skip
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
