"""Neighbours: the rates of running jobs that share GPUs or links, as others come and go.

A job alone has the rate that `sim.workload.progress.Truth` gives; its neighbours stretch its iteration

    1 / rate  =  slowdown / rate alone  -  network_s  +  network_s d / r

`slowdown` is what it loses to those on its GPUs (`sim.performance.sharing`), d / r what it loses to those on its links
(`sim.performance.contention`). Alone again, it has its rate alone again, to the last bit.

A job counts as there from its start to its end, through restarts too. In slices of time a job has its share of its
rate, even if the rest of the GPU is idle. Side by side it has all of its rate, and shares only say which jobs may meet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sim.api import Plan
from sim.cluster.spec import WHOLE, ClusterSpec
from sim.performance import PerformanceError
from sim.performance.contention import Network
from sim.performance.sharing import PairTable, beside, crowding, gpu_use, read_pairs, slicing
from sim.settings.config import EngineConfig
from sim.workload.progress import ProgressError, Truth
from traces.trace import Trace

CHANGE = 1e-9
"""Relative change of a rate below which a job goes on as before: it is rounding, not a neighbour."""


@dataclass
class _Job:
    alone: float
    """Rate without neighbours."""
    slots: Counter[int]
    """Slots on each GPU, where the job holds shares of GPUs."""
    rate: float
    width: int
    """GPUs that it holds."""
    network_alone_s: float = 0.0
    slowdown: float = 1.0
    network_s: float = 0.0

    def rate_now(self) -> float:
        if self.slowdown == 1.0 and self.network_s == self.network_alone_s:
            return self.alone
        return 1.0 / (self.slowdown / self.alone - self.network_alone_s + self.network_s)


def neighbours(
    trace: Trace, truth: Truth, cluster: ClusterSpec, config: EngineConfig, shares: bool = False
) -> Neighbours | None:
    """The neighbours by the engine's settings; None where jobs do not slow each other down.

    `shares`: the policy gives shares of GPUs, whatever jobs ask for.

    Raises
    ------
    ProgressError
        What the setting needs to know of the jobs is unknown, or jobs of different width would lie side by side.
    """
    off = config.contention == "none" and config.sharing in ("free", "slice")
    return None if off else Neighbours(trace, truth, cluster, config, shares)


class Neighbours:
    """Running jobs by row, and who slows whom. The engine tells who comes and goes, and asks whose rate has changed."""

    def __init__(
        self, trace: Trace, truth: Truth, cluster: ClusterSpec, config: EngineConfig, shares: bool = False
    ) -> None:
        self._trace, self._truth, self._cluster, self._sharing = trace, truth, cluster, config.sharing
        self._loss = config.switching_loss
        self._network: Network | None = None
        self._pairs: PairTable | None = None
        self._jobs: dict[int, _Job] = {}
        self._on: dict[int, set[int]] = {}
        """Jobs with a share of each GPU."""
        self._touched: set[int] = set()
        """Jobs whose GPUs have seen others come or go, or who have come, since they were last asked for."""
        if config.contention == "network":
            self._know("network", "how long jobs use the network is unknown", "contention = none")
            self._network = Network(cluster)
        if config.sharing == "spatial":
            self._know("whole", "how fast jobs are on whole GPUs is unknown", "sharing = time")
            if not shares:
                self._one_width(trace)
            self._pairs = None if config.pairs is None else read_pairs(config.pairs)

    def _know(self, what: str, unknown: str, instead: str) -> None:
        if lacks := self._truth.lacks(what):
            raise ProgressError(unknown, got=lacks, allowed="work in iterations, by modelled rates",
                                todo=f"Use --work iterations and no measured table, or engine.{instead}.")  # fmt: skip

    def _one_width(self, trace: Trace) -> None:
        widths = np.unique(trace.num_gpus[trace.gpu_milli < WHOLE]).tolist()
        if len(widths) > 1:
            raise ProgressError(
                "jobs of different width are not put side by side on a GPU: the wider would wait for the narrower",
                where=trace.provenance.source, got=f"jobs with shares of {', '.join(map(str, widths[:6]))} GPUs",
                allowed="one number of GPUs for all jobs with shares", todo="Use engine.sharing = time, or free.",
            )  # fmt: skip

    def join(self, row: int, gpus: np.ndarray, plan: Plan | None, rate: float, milli: int) -> None:
        """A job begins, with this rate alone (of its share, `milli` of each GPU)."""
        shared = milli < WHOLE and self._sharing in ("time", "spatial")
        alone = rate * WHOLE / milli if shared and self._sharing == "spatial" else rate
        slots = Counter[int](gpus.tolist() if shared else ())
        job = self._jobs[row] = _Job(alone, slots, rate, gpus.size)
        if self._network is not None and gpus.size > 1:
            job.network_alone_s = job.network_s = self._truth.network_s(row, gpus, plan)
            self._network.join(row, 1.0 / alone - job.network_s, job.network_s, gpus)
        self._touched.add(row)
        for gpu in slots:
            there = self._on.setdefault(gpu, set())
            self._touched |= there
            there.add(row)

    def leave(self, row: int) -> None:
        """A job gives its GPUs back."""
        for gpu in self._jobs.pop(row).slots:
            self._on[gpu].discard(row)
            self._touched |= self._on[gpu]
        if self._network is not None:
            self._network.leave(row)

    def changed(self) -> list[tuple[int, float]]:
        """Jobs whose rate is another than when last asked (or than the one with which they came), in order of rows."""
        touched, self._touched = self._touched & self._jobs.keys(), set()
        for row in sorted(touched):
            job = self._jobs[row]
            slowdown = self._slowdown(row, job)
            if slowdown != job.slowdown:
                job.slowdown = slowdown
                if self._network is not None:
                    self._network.pace(row, slowdown / job.alone - job.network_alone_s)
        if self._network is not None:
            for row, network_s in self._network.settle().items():
                self._jobs[row].network_s = network_s
                touched.add(row)
        changed = []
        for row in sorted(touched):
            job = self._jobs[row]
            rate = job.rate_now()
            if abs(rate - job.rate) > CHANGE * job.rate:
                job.rate = rate
                changed.append((row, rate))
        return changed

    def _slowdown(self, row: int, job: _Job) -> float:
        """What a job loses to those on its GPUs; it is as slow as on the slowest of them."""
        if self._sharing == "time":
            return slicing(any(len(self._on[gpu]) > 1 for gpu in job.slots), self._loss)
        return max((self._crowding(row, gpu) for gpu in job.slots), default=1.0)

    def _crowding(self, row: int, gpu: int) -> float:
        """Slowdown of a job on one of its GPUs: by measured pairs where each of its pairs was, else by use."""
        name = self._cluster.types[self._cluster.node_type[self._cluster.gpu_node[gpu]]].name
        others = sorted(self._on[gpu] - {row})
        width = self._jobs[row].width
        keys = [(name, self._kind(row), self._kind(other), width) for other in others]
        alike = all(self._jobs[other].width == width for other in others)
        if self._pairs is None or not others or not alike or not all(key in self._pairs for key in keys):
            slots = sum(self._jobs[one].slots[gpu] for one in self._on[gpu])
            return crowding([gpu_use(name)] * slots)
        rates = [self._pairs.rates(name, a, b, width, width)[0] for _, a, b, _ in keys]
        if 0.0 in rates:
            ids = self._trace.job_id
            raise PerformanceError(
                "two jobs on a GPU did not run together where they were measured", where=self._pairs.source,
                got=f"jobs {ids[row]!r} and {ids[others[rates.index(0.0)]]!r} on GPU {gpu} ({name})",
                allowed="pairs with a rate above 0", todo="Use engine.sharing = time, or give such jobs whole GPUs.",
            )  # fmt: skip
        return beside(rates)

    def _kind(self, row: int) -> tuple[str, int]:
        return self._trace.model[row], int(self._trace.batch_size[row])
