"""The view: one standing object whose arrays are the engine's own, read-only, never copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from sim.cluster.maintenance import Window
from sim.cluster.plan import Placement, Plan
from sim.cluster.scratch import Scratch, numbered
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.tenants import Tenants
from sim.kernels.ledger import give_held
from sim.kernels.service import attained, progress
from sim.performance import Performance
from sim.performance.throughput import Throughput
from sim.settings.policysettings import PolicyError
from sim.view.profile_time import Profiling
from sim.view.submitted import Jobs
from traces.given_back import zeros

T = TypeVar("T")


@dataclass(slots=True)
class Happened:
    """What has happened since the last decision, rows in the order of events."""

    arrived: list[int] = field(default_factory=list)
    """Jobs that were submitted."""
    finished: list[tuple[int, str]] = field(default_factory=list)
    """Jobs that have left, and how: done, killed, failed; rejected or refused; unfinished."""
    interrupted: list[tuple[int, str]] = field(default_factory=list)
    """Jobs that were taken off their GPUs, and why: an end reason of segments (docs/results.md) other than those that
    the policy's own decisions have."""


def _writable(column: np.ndarray) -> np.ndarray:
    """A column as kernels want it: to Numba a read-only array is another type, and they would compile twice. It is what
    the column is a view of, or a copy."""
    base = column.base
    if isinstance(base, np.ndarray) and (base.shape, base.dtype, base.flags.writeable) == (
            column.shape, column.dtype, True):
        return base
    return column.copy()


class View:
    """The cluster and its jobs at one instant, as the policy may see them. Made once a run; the engine keeps it true.

    Attributes
    ----------
    now_s : float
        The instant.
    jobs, cluster : Jobs, ClusterSpec
        What does not change.
    queued : int32 array
        Rows that wait, in the order of the policy's key (ties: submit order). `queued_key` holds the keys beside.
    running : int32 array
        Rows that run, in no particular order (the same one in each run).
    free_milli, idle, type_idle : int32 arrays
        Free share of each GPU, wholly free GPUs of each node, of each type. Read-only. A GPU that is drained or out
        for maintenance has less than nothing free, even if all that is held of it were given back.
    slots, slot_at, slot_n : int32, int64, int32 arrays
        Running job `row` holds the GPUs slots[slot_at[row] : slot_at[row] + slot_n[row]] (`gpus_of`).
    placed : dict of Placement
        Of each running job that has a plan or terms of its own, by row: what it was placed with.
    vc_left : int64 array
        GPUs (in milli) that each virtual cluster may still take; huge where there is no quota.
    tenants : Tenants
        Guarantees and ceilings of all queues, by type, and what each holds. Only if the policy `knows_tenants`.
    estimate_s : float64 array
        Believed run time of each job on its reference GPUs (NaN: unknown). Only if the policy `needs_estimates`.
    performance : Performance or None
        The belief of speed (`--speed-belief`), for policies that plan; None where durations are replayed as recorded.
    preemption_overhead_s : float
        What a preempted or moved job loses at its next start.
    """

    def __init__(
        self,
        jobs: Jobs,
        cluster: ClusterSpec,
        ledger: Ledger,
        *,
        performance: Performance | None = None,
        estimate_s: np.ndarray | None = None,
        preemption_overhead_s: float = 0.0,
        throughput: Throughput | None = None,
        reference_rate: np.ndarray | None = None,
        tenants: Tenants | None = None,
        recorded_start_s: np.ndarray | None = None,
    ) -> None:
        n = len(jobs)
        self.now_s = -np.inf
        self.jobs, self.cluster = jobs, cluster
        self.free_milli, self.idle, self.type_idle = ledger.free_milli, ledger.idle, ledger.type_idle
        self.performance = performance
        self.preemption_overhead_s = preemption_overhead_s
        self._estimate_s, self._tenants, self._recorded_start_s = estimate_s, tenants, recorded_start_s
        self._throughput = throughput
        self._reference_rate = np.empty(0) if reference_rate is None else reference_rate
        self.announced: list[Window] | None = None
        self.queued = np.empty(0, dtype=np.int32)
        self.queued_key = np.empty(0, dtype=np.float64)
        self.running = np.empty(0, dtype=np.int32)
        self.slots = np.empty(int(jobs.num_gpus.sum()), dtype=np.int32)
        self.slot_at = np.concatenate(([0], np.cumsum(jobs.num_gpus)[:-1])).astype(np.int64)
        self.slot_n = zeros(n, np.int32)
        self.vc_left = np.full(max(1, len(jobs.vc_names)), np.iinfo(np.int64).max, dtype=np.int64)
        # Per job, true up to begin_s; the methods below add what has passed since.
        self.service = zeros((7, n))
        (self.held_s, self.held_gpu_s, self.begin_s, self.overhead_s, self.served_s, self.speed,
         self.slots_gpu) = self.service
        self.begin_s[:] = np.nan
        self.placed: dict[int, Placement] = {}
        self.profiling: Profiling | None = None
        # Only where the policy declares that it reads them (`keep`).
        self._happened: Happened | None = None
        self.by_type_s: np.ndarray | None = None
        self._free_gib: np.ndarray | None = None
        self._state, self._shape = ledger.state, ledger.shape
        columns = (jobs.num_gpus, jobs.gpu_milli, jobs.worker_gpus, jobs.types, jobs.vc)
        self.gangs = tuple(map(_writable, columns))

    def keep(self, *, happened: bool, time_by_type: bool, memory: bool) -> None:
        """The engine's: keep what the policy says that it reads, and nothing else."""
        if happened:
            self._happened = Happened()
        if time_by_type:
            self.by_type_s = np.zeros((len(self.jobs), len(self.cluster.types)))
        if memory:
            self._free_gib = np.array([t.memory_gib for t in self.cluster.types])[self.cluster.gpu_type]

    @property
    def held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`slots`, `slot_at` and `slot_n`, as kernels want them."""
        return self.slots, self.slot_at, self.slot_n

    def scratch(self, without: Sequence[int] | np.ndarray = ()) -> Scratch:
        """What would be free if the running jobs `without` were not there (default: what is free), as a copy.

        A policy takes from it and gives to it while it decides, so that what it starts does not collide.
        """
        scratch = Scratch(self._state, self.vc_left, self._shape, self.gangs)
        if len(without):
            rows = np.asarray(without)
            numbered(rows, len(self.slot_n), "jobs")
            rows = rows.astype(np.int32, copy=False)
            other = [row for row in rows.tolist() if row in self.placed and self.placed[row].milli]
            for row in other:  # on another share than they ask for
                scratch.give(self.gpus_of(row), self.placed[row].milli, int(self.jobs.vc[row]))
            if other:
                rows = rows[~np.isin(rows, other)]
            gangs, vc_left, state, shape = scratch.arrays
            give_held(rows, self.held, gangs, vc_left, state, shape)
        return scratch

    def placement(self, row: int) -> Placement:
        """What a running job holds, and on what terms; its GPUs are a view of `slots`."""
        own = self.placed.get(row)
        return Placement(self.gpus_of(row)) if own is None else replace(own, gpus=self.gpus_of(row))

    def gpus_of(self, row: int) -> np.ndarray:
        """GPUs that a running job holds, one a slot; empty where it does not run."""
        first = self.slot_at[row]
        return self.slots[first : first + self.slot_n[row]]

    def type_of(self, row: int) -> int:
        """GPU type, of `cluster.types`, of the first GPU that a job holds; -1 where it does not run."""
        return int(self.cluster.gpu_type[self.slots[self.slot_at[row]]]) if self.slot_n[row] else -1

    @property
    def estimate_s(self) -> np.ndarray:
        return _declared(self._estimate_s, "run-time estimates", "needs_estimates")

    @property
    def recorded_start_s(self) -> np.ndarray:
        """float64 [jobs]: when the log started each job; its submission where it does not say."""
        return _declared(self._recorded_start_s, "recorded starts", "needs_starts")

    @property
    def happened(self) -> Happened:
        """What has happened since the last decision."""
        return _declared(self._happened, "what has happened", "reads_happened")

    def forget(self) -> Happened:
        """The engine's: a decision has been made, from now on other things happen."""
        self._happened = Happened()
        return self._happened

    @property
    def free_gib(self) -> np.ndarray:
        """float64 [GPUs]: memory that jobs with a share of a GPU leave on it; NaN where the card's is unknown."""
        return _declared(self._free_gib, "free memory", "shares_gpus")

    def held_by_type_s(self, rows: np.ndarray) -> np.ndarray:
        """float64 [rows, types]: time that each job has held GPUs of each type until now, in s."""
        held = _declared(self.by_type_s, "the time held on each GPU type", "reads_time_by_type")[rows]
        for i, row in enumerate(np.asarray(rows).tolist()):
            if self.slot_n[row]:
                held[i, np.unique(self.cluster.gpu_type[self.gpus_of(row)])] += self.now_s - self.begin_s[row]
        return held

    def milli_of(self, row: int) -> int:
        """Share of each of its GPUs that a running job holds, 1/1000; of a waiting one, the share that it asks for."""
        slots = self.slot_n[row]
        return int(np.rint(1000.0 * self.slots_gpu[row] / slots)) if slots else int(self.jobs.gpu_milli[row])

    @property
    def tenants(self) -> Tenants:
        if self._tenants is None:
            raise PolicyError("the policy reads the tenants without declaring knows_tenants = True")
        return self._tenants

    @property
    def maintenance(self) -> tuple[Window, ...]:
        """Maintenance windows that are known by now and not over. Only if the policy `knows_maintenance`."""
        if self.announced is None:
            raise PolicyError("the policy reads maintenance windows without declaring knows_maintenance = True")
        return tuple(window for window in self.announced if window.up_s > self.now_s)

    def attained_s(self, rows: np.ndarray) -> np.ndarray:
        """Time that each job has held its GPUs until now, in s."""
        return attained(rows, self.now_s, False, self.service)

    def attained_gpu_s(self, rows: np.ndarray) -> np.ndarray:
        """GPU time that each job has held until now, in GPU-s."""
        return attained(rows, self.now_s, True, self.service)

    def progress_s(self, rows: np.ndarray) -> np.ndarray:
        """Work done until now, as seconds on the job's reference GPUs (overheads bring none)."""
        return progress(rows, self.now_s, self.service)

    def remaining_s(self, rows: np.ndarray) -> np.ndarray:
        """Believed work left, max(estimate_s - progress_s, 0), in seconds on the reference GPUs (NaN: unknown)."""
        return np.maximum(self.estimate_s[rows] - self.progress_s(rows), 0.0)

    def throughput(self, rows: np.ndarray, gpu_type: str | int, gpus: int | np.ndarray) -> np.ndarray:
        """Believed work a second of each job on `gpus` GPUs (or slots) of a type, by name or index in `cluster.types`.

        Iterations a second, or recorded seconds a second (1) where durations are replayed; packed on as few nodes of
        the empty cluster as hold them, without neighbours. 0 where the job does not fit the memory or the cluster; NaN
        where nothing is believed. A type that the job does not allow has a rate all the same (`jobs.types`). Where
        jobs are profiled first (`--speed-belief profiled:SECONDS`), one that is not yet known is believed to be as fast
        on each type as on its reference GPUs, in proportion to their number: ask again when it may be known.

        Parameters: gpus, one number or int [rows]. Returns: float64 [rows].
        """
        rates = self._rates().of(rows, gpu_type, gpus)
        if self.profiling is None:
            return rates
        return self.profiling.believed(rows, self.now_s, rates, self._prior(rows, gpus))

    def speed_known(self, rows: np.ndarray) -> np.ndarray:
        """Whether what is believed of each job's speed will stay as it is: False until it is profiled. bool [rows]."""
        if self.profiling is None:
            return np.ones(len(rows), dtype=bool)
        return np.asarray(self.profiling.known_s[rows] <= self.now_s)

    def throughput_of_plan(self, row: int, plan: Plan) -> float:
        """The same of one job by a plan."""
        rate = self._rates().of_plan(row, plan)
        if self.profiling is None:
            return rate
        one = np.array([row])
        return float(self.profiling.believed(one, self.now_s, np.array([rate]), self._prior(one, plan.num_gpus))[0])

    def _prior(self, rows: np.ndarray, gpus: int | np.ndarray) -> np.ndarray:
        """What is believed of jobs before they are profiled."""
        return np.asarray(self._reference_rate[rows] * gpus / self.jobs.num_gpus[rows])

    def attained_work(self, rows: np.ndarray) -> np.ndarray:
        """Work done until now, progress_s × reference rate: iterations, or recorded seconds. float64 [rows]."""
        self._rates()
        return np.asarray(self.progress_s(rows) * self._reference_rate[rows])

    def remaining_work(self, rows: np.ndarray) -> np.ndarray:
        """Believed work left, remaining_s × reference rate: over `throughput`, the time left on any GPUs.

        float64 [rows]. For policies with needs_estimates and needs_throughput.
        """
        self._rates()
        return np.asarray(self.remaining_s(rows) * self._reference_rate[rows])

    def rate_now(self, rows: np.ndarray) -> np.ndarray:
        """Work a second that each job does now, as one sees it: 0 where it waits or restarts. float64 [rows]."""
        self._rates()
        works = self.now_s >= self.begin_s[rows] + self.overhead_s[rows]  # NaN where it waits
        return np.where(works, self.speed[rows] * self._reference_rate[rows], 0.0)

    def beside(self, row: int) -> np.ndarray:
        """Other running jobs with a share of a GPU that a job holds, ascending: int32 [rows]."""
        others = self.running[self.running != row]
        lengths = self.slot_n[others]
        held = np.repeat(self.slot_at[others] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        found = np.repeat(others, lengths)[np.isin(self.slots[held], self.gpus_of(row))]
        return np.unique(found)

    def _rates(self) -> Throughput:
        return _declared(self._throughput, "rates", "needs_throughput")


def _declared(value: T | None, what: str, declaration: str) -> T:
    if value is None:
        raise PolicyError(f"the policy reads {what} without declaring {declaration} = True")
    return value
