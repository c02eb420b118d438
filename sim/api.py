"""All that a policy may know: what it sees (View), what it answers (Decision), and how it introduces itself (Policy).

Once per instant at which something happened, the engine calls `policy.decide(view)`. The view is one standing object
whose arrays are the engine's own, read-only, never copied. A job is a row number of the trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from sim.cluster.maintenance import Window
from sim.cluster.plan import Part, Placement, Plan, Stage
from sim.cluster.scratch import Gang, Scratch
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.target import Counts, steps_toward
from sim.cluster.tenants import Tenants
from sim.kernels.ledger import give_held
from sim.kernels.service import attained, first_to_reach, progress
from sim.performance import Performance
from sim.performance.throughput import Throughput
from sim.settings.policysettings import PolicyError, param, read_settings
from traces.errors import HetsimError

__all__ = [
    "ClusterSpec",
    "Decision",
    "Gang",
    "Happened",
    "HetsimError",
    "IllegalDecisionError",
    "Jobs",
    "Part",
    "Placement",
    "Plan",
    "Policy",
    "PolicyError",
    "Scratch",
    "Stage",
    "Tenants",
    "View",
    "Window",
    "param",
]


class IllegalDecisionError(HetsimError):
    """A policy asked for something impossible. Names the simulated time, the job, what was wanted, what was free."""

    exit_code = 1


@dataclass(slots=True)
class Decision:
    """What to change now. Whatever is not named stays as it is.

    Stops, rejections and refusals come first, then the old GPUs of moved jobs are freed, then moves and starts take
    theirs in the order given, then leases are granted.
    """

    start: list[tuple[int, Placement]] = field(default_factory=list)
    stop: list[int] = field(default_factory=list)
    """Preempt: back into the queue."""
    move: list[tuple[int, Placement]] = field(default_factory=list)
    """Migrate, or resize where the count differs: other GPUs, or other terms, at once, at the cost of a restart."""
    reject: list[tuple[int, str]] = field(default_factory=list)
    """Queued jobs that can never run, each with the reason."""
    rekey: list[int] = field(default_factory=list)
    """Queued jobs whose key has changed after all (aging, promotion): the engine asks for it anew."""
    refuse: list[tuple[int, str]] = field(default_factory=list)
    """Admission control: queued jobs that could run and are turned away for good, each with the reason, by a policy
    that `refuses_jobs`. One that has run before leaves unfinished."""
    lease: list[tuple[int, float]] = field(default_factory=list)
    """Running jobs, also those that start now, and when their GPUs fall back, by a policy that `leases_gpus`. At that
    instant the policy decides first; a lease that it does not renew then ends, and its job waits again. Infinity takes
    the lease back: the job stays. A lease ends with its placement: a moved job needs a new one."""
    wake_s: float | None = None
    """Decide again at that time even if nothing happens before. None: no alarm. There is one alarm at a time, so each
    decision replaces that of the one before, and None takes it back."""

    @classmethod
    def toward(
        cls, view: View, target: Mapping[int, Placement | Counts], rule: str = "consolidate", *,
        wake_s: float | None = None,
    ) -> Decision:
        """The fewest commands that lead to a whole target: what each job should hold from now on.

        `target` gives the rows that run from now on, each with a placement or with GPUs by type (name or index of the
        type: count). A running job that is not in it is stopped; one that has what it should have stays where it is;
        others move, and waiting ones start. Counts are placed by `rule` in the order of the target, on all GPUs but
        those of named placements and of jobs that stay; of several types they get GPUs in the order of
        `cluster.types`. Counts that cannot be placed leave a running job as it is where nobody took its GPUs, else
        stop it; a waiting job waits.

        Raises
        ------
        HetsimError
            A GPU type that the cluster does not have, or a count below 0.
        """
        held = {row: view.placement(row) for row in view.running.tolist()}
        stop, move, start = steps_toward(target, held, view.scratch(view.running), view.cluster, rule)
        return cls(start=start, stop=stop, move=move, wake_s=wake_s)


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


@dataclass(frozen=True, eq=False)
class Jobs:
    """All that a submission says of each job: read-only columns, indexed by row. True run times are not among them."""

    job_id: np.ndarray
    submit_s: np.ndarray
    num_gpus: np.ndarray
    gpu_milli: np.ndarray
    worker_gpus: np.ndarray
    gpus: np.ndarray
    """float64: GPUs that the gang asks for, num_gpus × gpu_milli / 1000."""
    types: np.ndarray
    """uint64: bit t set: the job may run on `cluster.types[t]`: its own wish and, unless the policy sizes gangs, its
    gang's memory fits there."""
    vc: np.ndarray
    """int32: index of the virtual cluster into `vc_names`."""
    vc_names: tuple[str, ...]
    user: np.ndarray
    group: np.ndarray
    """object array: name that jobs submitted as one share, such as a parameter search; '' alone."""
    recurrence: np.ndarray
    """object array: the recurring job that this is a run of; '' where none is known."""
    deadline_s: np.ndarray
    """float64: when the job should have ended, on the clock of `now_s`; NaN: no deadline."""
    deadline_kind: np.ndarray
    """object array: 'strict' (worth nothing once it has passed), 'soft' (worth less), '' where there is no deadline."""
    priority: np.ndarray
    """float64: weight of the job, a larger one matters more; 1 where nothing is said."""
    cpus: np.ndarray
    """float64: CPU cores asked for, all workers together; NaN: unknown."""
    memory_gib: np.ndarray
    """float64: host memory asked for, all workers together, in GiB; NaN: unknown."""
    min_gpus: np.ndarray
    max_gpus: np.ndarray
    """int32: fewest and most slots that the job may be resized to, around num_gpus; both 0: not elastic."""
    model: np.ndarray
    """object array of model names, '' where unknown."""
    batch_size: np.ndarray
    """int32: samples an iteration, all GPUs together; 0: unknown."""
    min_batch_size: np.ndarray
    max_batch_size: np.ndarray
    """int32: smallest and largest batch that the job may be given, around batch_size; both 0: it is fixed."""

    def __len__(self) -> int:
        return len(self.submit_s)


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
    ) -> None:
        n = len(jobs)
        self.now_s = -np.inf
        self.jobs, self.cluster = jobs, cluster
        self.free_milli, self.idle, self.type_idle = ledger.free_milli, ledger.idle, ledger.type_idle
        self.performance = performance
        self.preemption_overhead_s = preemption_overhead_s
        self._estimate_s, self._tenants = estimate_s, tenants
        self._throughput = throughput
        self._reference_rate = np.empty(0) if reference_rate is None else reference_rate
        self.announced: list[Window] | None = None
        self.queued = np.empty(0, dtype=np.int32)
        self.queued_key = np.empty(0, dtype=np.float64)
        self.running = np.empty(0, dtype=np.int32)
        self.slots = np.empty(int(jobs.num_gpus.sum()), dtype=np.int32)
        self.slot_at = np.concatenate(([0], np.cumsum(jobs.num_gpus)[:-1])).astype(np.int64)
        self.slot_n = np.zeros(n, dtype=np.int32)
        self.vc_left = np.full(max(1, len(jobs.vc_names)), np.iinfo(np.int64).max, dtype=np.int64)
        # Per job, true up to begin_s; the methods below add what has passed since.
        self.begin_s = np.full(n, np.nan)
        self.held_s = np.zeros(n)
        self.held_gpu_s = np.zeros(n)
        self.served_s = np.zeros(n)
        self.speed = np.zeros(n)
        self.overhead_s = np.zeros(n)
        self.slots_gpu = np.zeros(n)
        self.placed: dict[int, Placement] = {}
        self._one = np.ones(n)
        # Only where the policy declares that it reads them (`declare`).
        self._happened: Happened | None = None
        self.by_type_s: np.ndarray | None = None
        self._free_gib: np.ndarray | None = None
        self._state, self._shape = ledger.state, ledger.shape
        # Own, writable copies: to Numba a read-only array is another type, and kernels would compile twice.
        columns = (jobs.num_gpus, jobs.gpu_milli, jobs.worker_gpus, jobs.types, jobs.vc)
        self._gangs = tuple(column.copy() for column in columns)

    def declare(self, policy: type[Policy] | Policy) -> None:
        """Keep what the policy says that it reads, and nothing else."""
        if policy.reads_happened:
            self._happened = Happened()
        if policy.reads_time_by_type:
            self.by_type_s = np.zeros((len(self.jobs), len(self.cluster.types)))
        if policy.shares_gpus:
            self._free_gib = np.array([t.memory_gib for t in self.cluster.types])[self.cluster.gpu_type]

    @property
    def held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`slots`, `slot_at` and `slot_n`, as kernels want them."""
        return self.slots, self.slot_at, self.slot_n

    def scratch(self, without: Sequence[int] | np.ndarray = ()) -> Scratch:
        """What would be free if the running jobs `without` were not there (default: what is free), as a copy.

        A policy takes from it and gives to it while it decides, so that what it starts does not collide.
        """
        scratch = Scratch(self._state, self.vc_left, self._shape, self._gangs)
        if len(without):
            rows = np.asarray(without, dtype=np.int32)
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

    @property
    def estimate_s(self) -> np.ndarray:
        return _declared(self._estimate_s, "run-time estimates", "needs_estimates")

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
        return attained(rows, self.now_s, self.held_s, self.begin_s, self._one)

    def attained_gpu_s(self, rows: np.ndarray) -> np.ndarray:
        """GPU time that each job has held until now, in GPU-s."""
        return attained(rows, self.now_s, self.held_gpu_s, self.begin_s, self.slots_gpu)

    def reach_s(self, limit: float, rows: np.ndarray, gpu_time: bool) -> float:
        """Seconds until the first of `rows`, if they all run from now on, has attained `limit` (s, or GPU-s)."""
        held, rate = (self.held_gpu_s, self.jobs.gpus) if gpu_time else (self.held_s, self._one)
        return float(first_to_reach(limit, rows, self.now_s, held, self.begin_s, rate))

    def progress_s(self, rows: np.ndarray) -> np.ndarray:
        """Work done until now, as seconds on the job's reference GPUs (overheads bring none)."""
        return progress(rows, self.now_s, self.served_s, self.begin_s, self.overhead_s, self.speed)

    def remaining_s(self, rows: np.ndarray) -> np.ndarray:
        """Believed work left, max(estimate_s - progress_s, 0), in seconds on the reference GPUs (NaN: unknown)."""
        return np.maximum(self.estimate_s[rows] - self.progress_s(rows), 0.0)

    def throughput(self, rows: np.ndarray, gpu_type: str | int, gpus: int | np.ndarray) -> np.ndarray:
        """Believed work a second of each job on `gpus` GPUs (or slots) of a type, by name or index in `cluster.types`.

        Iterations a second, or recorded seconds a second (1) where durations are replayed; packed on as few nodes of
        the empty cluster as hold them, without neighbours. 0 where the job does not fit the memory or the cluster; NaN
        where nothing is believed. A type that the job does not allow has a rate all the same (`jobs.types`).

        Parameters: gpus, one number or int [rows]. Returns: float64 [rows].
        """
        return self._rates().of(rows, gpu_type, gpus)

    def throughput_of_plan(self, row: int, plan: Plan) -> float:
        """The same of one job by a plan."""
        return self._rates().of_plan(row, plan)

    def attained_work(self, rows: np.ndarray) -> np.ndarray:
        """Work done until now, progress_s × reference rate: iterations, or recorded seconds. float64 [rows]."""
        self._rates()
        return np.asarray(self.progress_s(rows) * self._reference_rate[rows])

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


DECLARED = ("shares_gpus", "sets_batch", "caps_power", "refuses_jobs", "leases_gpus")
"""What a policy may say only where it declares it; run.json lists it, and the audit holds the files against it."""
T = TypeVar("T")


def _declared(value: T | None, what: str, declaration: str) -> T:
    if value is None:
        raise PolicyError(f"the policy reads {what} without declaring {declaration} = True")
    return value


@dataclass
class Policy(ABC):
    """A scheduler. Subclass it as a dataclass; every field made with `param` is a setting (`-P name=value`).

    The class attributes declare what the policy is, so that the engine never asks for its name.
    """

    name: ClassVar[str] = ""
    """Set by the registry from the file name."""
    needs_estimates: ClassVar[bool] = False
    """Reads `view.estimate_s` (run times: the run is marked with the kind of estimate used)."""
    needs_performance: ClassVar[bool] = False
    """Plans with `view.performance`: jobs must have a model."""
    needs_throughput: ClassVar[bool] = False
    """Reads `view.throughput` (by the belief of speed, with which the run is marked), `attained_work` or `rate_now`."""
    knows_maintenance: ClassVar[bool] = False
    """Reads `view.maintenance`, and is asked when a window becomes known."""
    needs_columns: ClassVar[tuple[str, ...]] = ()
    """Trace columns that must not be at their default throughout."""
    knows_tenants: ClassVar[bool] = False
    """Reads `view.tenants`, and keeps to quotas by GPU type and of outer queues; else they are refused before a run."""
    sizes_gangs: ClassVar[bool] = False
    """Chooses the GPU count itself: the request is advice, and a gang may span GPU types by plan. Without a plan a gang
    of any size is data parallel; a job that says `max_gpus` bounds it."""
    shares_gpus: ClassVar[bool] = False
    """Gives shares of GPUs (`Placement.milli`). Memory of the jobs that meet on a GPU is checked, and their mutual
    interference is that of the run (`engine.sharing`)."""
    sets_batch: ClassVar[bool] = False
    """Changes batch sizes (`Placement.batch_size`) within what the job allows."""
    caps_power: ClassVar[bool] = False
    """Caps the power of GPUs (`Placement.cap_w`)."""
    refuses_jobs: ClassVar[bool] = False
    """May turn away jobs that could run (`Decision.refuse`)."""
    leases_gpus: ClassVar[bool] = False
    """Gives GPUs for a time (`Decision.lease`)."""
    reads_happened: ClassVar[bool] = False
    """Reads `view.happened`."""
    reads_time_by_type: ClassVar[bool] = False
    """Reads `view.held_by_type_s`."""

    def prepare(self, view: View) -> None:  # noqa: B027 - optional hook
        """Called once before the run."""

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Order of the queue, smallest first, as the jobs `rows` enter it; a waiting job's key must not change.

        Default: submit order.
        """
        return rows.astype(np.float64)

    @abstractmethod
    def decide(self, view: View) -> Decision:
        """Answer for this instant."""

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """The policy's settings: name -> dataclass field (its default; unit and help in its metadata)."""
        return {f.name: f for f in fields(cls) if "help" in f.metadata}

    @classmethod
    def from_settings(cls, given: dict[str, Any]) -> Policy:
        """Make the policy from names and values (text is read as the type of the default).

        Raises
        ------
        PolicyError
            Unknown name, or a value that is not of the default's type or not among the choices.
        """
        return cls(**read_settings(given, cls.settings(), f"policy {cls.name!r}"))
