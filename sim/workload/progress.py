"""The truth about progress: what a recorded duration is as work, and how fast a job does it on what it gets.

One rule a run, printed with its result:

recorded
    Work is the recorded duration in seconds; a job does one second of it a second wherever it runs.
iterations
    Work is iterations: `work_iters` where the trace has it, else duration_s × the rate that the performance model gives
    on the reference GPU type for the gang asked for (on as few 8-GPU nodes as hold it). A job then runs at the rate
    that the model gives on the GPUs it gets. A slot of a share of a GPU runs at that share of the rate, in the log too;
    side by side (`engine.sharing=spatial`) at all of it in both: a job alone takes as long as its log says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.api import Plan
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance import Iteration, Performance
from sim.performance.contention import network_s
from sim.performance.optimizer import ADAM
from sim.performance.throughput import iteration_on
from traces.errors import HetsimError
from traces.trace import Trace

REFERENCE_NODE_GPUS = 8


def reference_layout(num_gpus: int) -> tuple[int, ...]:
    """GPUs of a reference gang on each node: as few 8-GPU nodes as hold it."""
    full, rest = divmod(num_gpus, REFERENCE_NODE_GPUS)
    return (REFERENCE_NODE_GPUS,) * full + ((rest,) if rest else ())


class ProgressError(HetsimError):
    """A trace whose jobs cannot be turned into work by the rule asked for."""


class Truth(Protocol):
    """How much work each job has and how fast it does it.

    Attributes
    ----------
    work_total : float64 array, work of each row (NaN: cannot run; `why_not` has the reason)
    reference_rate : float64 array, work a second on the reference gang: turns work into reference seconds
    """

    mode: str
    unit: str
    rule: str
    work_total: np.ndarray
    reference_rate: np.ndarray
    why_not: dict[int, str]

    def types(self, row: int) -> int:
        """Bit t set: the job's gang as asked for fits the memory of `cluster.types[t]`."""

    def rate(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        """Work a second on these GPUs, without neighbours."""

    def egress_usd(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int = 0) -> float:
        """USD of an iteration (of another batch size than the job's own) for bytes that leave a zone; NaN: unknown."""

    def iteration_s(self, row: int, rate: float) -> float:
        """Seconds of an iteration of a job that does `rate` work a second; NaN where work is not iterations."""

    def alike(self) -> float | np.ndarray | None:
        """What the rate hangs on, where that is little: one rate of all jobs, or int64 [jobs] kinds of jobs of which
        each has one rate on a GPU type, on so many GPUs on each node, in so many racks. None: on more than that."""

    # What neighbours and terms (`sim.engine`) need to know of jobs; only asked where `lacks` names nothing.

    def lacks(self, what: str) -> str:
        """Why the 'network' time of jobs, the rate of one on 'whole' GPUs or at another 'batch' is unknown, or ''."""

    def rate_at(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> float:
        """Iterations a second of this batch size on these GPUs, times the share of a GPU that the job asks for."""

    def memory_gib(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> np.ndarray:
        """float64 [slots]: memory that each slot needs; NaN where it is unknown."""

    def state_gib(self, row: int) -> float:
        """What a job saves and loads at a restart: weights and optimizer; NaN where it is unknown."""

    def network_s(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        """Seconds of an iteration (a unit of work) that the job spends on the network."""


class Recorded:
    """Durations replayed as recorded: one second of work a second, on any GPUs."""

    mode, unit = "recorded", "s"
    rule = "durations replayed as recorded: a job runs as long as its log says, on whatever GPUs it gets"

    def __init__(self, trace: Trace, cluster: ClusterSpec) -> None:
        self.work_total = trace.duration_s
        self.reference_rate = np.ones(len(trace))
        self.why_not: dict[int, str] = {}
        self._all = (1 << len(cluster.types)) - 1

    def types(self, row: int) -> int:
        return self._all

    def rate(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return 1.0

    def egress_usd(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int = 0) -> float:
        return math.nan

    def alike(self) -> float | np.ndarray | None:
        return 1.0

    def iteration_s(self, row: int, rate: float) -> float:
        return math.nan

    def lacks(self, what: str) -> str:
        return "durations replayed as recorded do not tell it"

    def network_s(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        raise ProgressError("the network time of a job is unknown", got=self.rule, allowed="work in iterations")

    def rate_at(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> float:
        raise ProgressError("what a batch size does is unknown", got=self.rule, allowed="work in iterations")

    def memory_gib(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> np.ndarray:
        return np.full(gpus.size, np.nan)

    def state_gib(self, row: int) -> float:
        return math.nan


@dataclass(frozen=True)
class _Class:
    """What jobs of one (model, batch, gang) share."""

    types: int
    reference_rate: float
    why_not: str


class Modelled:
    """Iterations at the rate of the performance model."""

    mode, unit = "iterations", "iterations"

    def __init__(
        self, trace: Trace, cluster: ClusterSpec, performance: Performance, reference: GpuType,
        side_by_side: bool = False,
    ) -> None:
        self.rule = (
            f"durations turned into iterations on {reference.name} GPUs (the gang asked for), "
            "then run at the modelled speed of whatever GPUs the job gets"
        )
        fit = performance.calibration
        far = ", ".join(fit.not_fitted_to([reference.name, *(gpu.name for gpu in cluster.types)]))
        self.rule += f" (calibration {fit.name}{f', not fitted to {far}' if far else ''})"
        if performance.optimizer != ADAM:
            self.rule += f" (optimizer {performance.optimizer.name})"
        self._trace, self._cluster, self._performance = trace, cluster, performance
        # Default links: what a job has to do must not depend on the cluster that it is replayed on.
        self._yardstick = Performance(
            table=performance.table, schedule=performance.schedule, calibration=performance.calibration,
            optimizer=performance.optimizer, graphs=performance.graphs, context_gib=performance.context_gib,
        )
        self._model, self._batch = trace.model.tolist(), trace.batch_size.tolist()
        self._share = (trace.gpu_milli / 1000.0).tolist()
        classes: dict[tuple[str, int, int], _Class] = {}
        self._class: list[_Class] = []
        self.why_not = {}
        for row, key in enumerate(zip(self._model, self._batch, trace.num_gpus.tolist(), strict=True)):
            if key not in classes:
                classes[key] = self._classify(*key, reference)
            self._class.append(classes[key])
            if classes[key].why_not:
                self.why_not[row] = classes[key].why_not
        whole = np.array([c.reference_rate for c in self._class])
        self.reference_rate = whole if side_by_side else whole * self._share
        given = trace.work_iters
        self.work_total = np.where(np.isnan(given), trace.duration_s * self.reference_rate, given)

    def _classify(self, model: str, batch: int, num_gpus: int, reference: GpuType) -> _Class:
        if not model or batch <= 0:
            raise ProgressError(
                "jobs without a model or batch size cannot be turned into iterations",
                where=self._trace.provenance.source,
                got=f"model {model!r}, batch_size {batch}",
                allowed="both on each job",
                todo="Let hetsim assign models, or use --work recorded.",
            )
        on_reference = self._yardstick.data_parallel(model, batch, reference, reference_layout(num_gpus))
        types = 0
        for t, gpu in enumerate(self._cluster.types):
            if self._performance.fits(model, batch, gpu, num_gpus):
                types |= 1 << t
        why_not = (
            ""
            if on_reference.fits
            else f"{model} with batch {batch} on {num_gpus} {reference.name}: {on_reference.reason}"
        )
        return _Class(types, on_reference.rate if on_reference.fits else np.nan, why_not)

    def types(self, row: int) -> int:
        return self._class[row].types

    def rate(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return self._iteration(row, gpus, plan).rate * self._share[row]

    def egress_usd(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int = 0) -> float:
        found = self._iteration(row, gpus, plan, batch_size)
        return found.egress_usd if found.memory_gib else math.nan  # as `memory_gib`: at measured rates

    def alike(self) -> float | np.ndarray | None:
        if not self._cluster.links.alike or self._cluster.node_site:
            return None
        kinds: dict[tuple[str, int, float], int] = {}
        keys = zip(self._model, self._batch, self._share, strict=True)
        return np.array([kinds.setdefault(key, len(kinds)) for key in keys], dtype=np.int64)

    def iteration_s(self, row: int, rate: float) -> float:
        return self._share[row] / rate if rate > 0 else math.nan

    def rate_at(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> float:
        return self._iteration(row, gpus, plan, batch_size).rate * self._share[row]

    def memory_gib(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> np.ndarray:
        stages = self._iteration(row, gpus, plan, batch_size).memory_gib
        if not stages:  # of models at measured rates nothing but the rate is known
            return np.full(gpus.size, np.nan)
        return np.repeat(stages[: 1 if plan is None else len(plan.devices)],
                         gpus.size if plan is None else [stage.gpus for stage in plan.devices])

    def state_gib(self, row: int) -> float:
        return self._performance.state_gib(self._model[row])

    def lacks(self, what: str) -> str:
        table = self._performance.table if what == "network" else None
        measured = table is not None and bool(set(table.job_types) & set(self._model))
        return "of models at measured rates nothing but the rate is known" if measured else ""

    def network_s(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return network_s(self._iteration(row, gpus, plan), len(np.unique(self._cluster.gpu_node[gpus])))

    def _iteration(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int = 0) -> Iteration:
        """The job's iteration on whole GPUs, at its own batch size or another."""
        batch = batch_size or self._batch[row]
        return iteration_on(self._performance, self._model[row], batch, gpus, plan, self._cluster)
