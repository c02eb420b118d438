"""All that a policy may know: what it sees (View), what it answers (Decision), and how it introduces itself (Policy).

Once per instant at which something happened, the engine calls `policy.decide(view)`. The view is one standing object
whose arrays are the engine's own, read-only, never copied. A job is a row number of the trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from sim.cluster.maintenance import Window
from sim.cluster.plan import Part, Placement, Plan, Stage
from sim.cluster.scratch import Gang, Scratch
from sim.cluster.spec import ClusterSpec
from sim.cluster.target import Counts, steps_toward
from sim.cluster.tenants import Tenants
from sim.kernels.keys import Terms
from sim.settings.policysettings import PolicyError, param, read_settings
from sim.view.submitted import Jobs
from sim.view.view import Happened, View
from traces.errors import HetsimError

__all__ = [
    "ClusterSpec",
    "Decision",
    "FastLane",
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
            A GPU type that the cluster does not have, or a count that is no whole number from 0 on.
        """
        held = {row: view.placement(row) for row in view.running.tolist()}
        stop, move, start = steps_toward(target, held, view.scratch(view.running), view.cluster, rule)
        return cls(start=start, stop=stop, move=move, wake_s=wake_s)


@dataclass(frozen=True)
class FastLane:
    """How a policy decides, in words that a kernel knows (`sim.kernels.lane`).

    Attributes
    ----------
    rule : placement rule, of `sim.kernels.placement`.
    terms : keys of jobs: form, numbers, weight, other (`sim.kernels.keys`).
    preempts : jobs with the smallest keys hold the GPUs (`select`); else waiting jobs start in that order (`admit`).
    skip : without preemption, a job that does not fit is skipped; else it blocks those behind it.
    backfills : jobs that do not delay the first blocked one start, by the run times in `terms` (`fill_behind`).
    keep : with preemption, a running job that goes on stays on its GPUs.
    """

    rule: int
    terms: Terms
    preempts: bool = False
    skip: bool = True
    backfills: bool = False
    keep: bool = True


DECLARED = ("shares_gpus", "sets_batch", "caps_power", "refuses_jobs", "leases_gpus")
"""What a policy may say only where it declares it; run.json lists it, and the audit holds the files against it."""


@dataclass
class Policy(ABC):
    """A scheduler. Subclass it as a dataclass; every field made with `param` is a setting (`-P name=value`).

    The class attributes declare what the policy is, so that the engine never asks for its name.
    """

    name: ClassVar[str] = ""
    """Set by the registry from the file name."""
    needs_estimates: ClassVar[bool] = False
    """Reads `view.estimate_s` (run times: the run is marked with the kind of estimate used)."""
    needs_starts: ClassVar[bool] = False
    """Reads `view.recorded_start_s`: when the log started each job. No scheduler knows that: it replays the log."""
    needs_performance: ClassVar[bool] = False
    """Plans with `view.performance`: jobs must have a model."""
    needs_throughput: ClassVar[bool] = False
    """Reads `view.throughput` (by the belief of speed, with which the run is marked), `attained_work`, `rate_now` or,
    with `needs_estimates`, `remaining_work`."""
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

    def fast_lane(self, view: View) -> FastLane | None:
        """How the policy decides, where a kernel makes the same decisions; None: only `decide` knows."""
        return None

    def counted(self) -> Mapping[str, int]:
        """What the policy counted in a run and run.json keeps (`policy_counts`): fallbacks taken, by their words."""
        return {}

    @classmethod
    def blind_to_speed(cls) -> bool:
        """True where it looks at no speeds: a job gets the first of the cluster's types that has room
        (`type_order`)."""
        return not (cls.needs_performance or cls.needs_throughput)

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
