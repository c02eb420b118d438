"""What schedulers share: walk the queue and start (`Ordered`), or choose anew who runs (`Preemptive`).

A scheduler adds its key, and little else. Both mechanisms place gangs by one of the rules of
`sim.kernels.placement`: count, first-fit, best-fit, consolidate.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sim.api import Decision, Placement, Policy, View, param
from sim.kernels.admit import admit
from sim.kernels.placement import RULES
from sim.kernels.preempt import select

_PLACEMENT_HELP = (
    "count: anywhere; first-fit: lowest node that holds the gang; best-fit: fullest such node; consolidate: best-fit, "
    "else spread over the fewest nodes"
)


@dataclass
class Placing(Policy):
    """A policy that places gangs by rule; keeps scratch arrays so that decisions allocate little."""

    placement: str = param("consolidate", help=_PLACEMENT_HELP, choices=tuple(RULES))

    def prepare(self, view: View) -> None:
        # Own, writable copies: to Numba a read-only array is another type, and kernels would compile twice.
        jobs, spec = view.jobs, view.cluster
        self._jobs = tuple(a.copy() for a in (jobs.num_gpus, jobs.gpu_milli, jobs.worker_gpus, jobs.types, jobs.vc))
        self._shape = tuple(a.copy() for a in (spec.node_first, spec.node_type, spec.node_gpus, spec.gpu_node))
        # A decision starts at most one job a share of a GPU that could be free.
        slots = min(spec.num_gpus * int(1000 // jobs.gpu_milli.min()), int(jobs.num_gpus.sum()))
        most = min(slots, len(jobs)) + 1
        self._rows, self._ends = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int64)
        self._out = np.empty(slots + int(jobs.num_gpus.max()) + 1, dtype=np.int32)

    def _state(self, view: View) -> tuple[np.ndarray, ...]:
        """Copies of what is free, and the cluster's shape, as the kernels want them."""
        return (view.free_milli.copy(), view.idle.copy(), view.type_idle.copy(), *self._shape)

    def _columns(self, view: View) -> tuple[np.ndarray, ...]:
        return (*self._jobs, view.vc_left.copy())

    def _buffers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, ends and GPUs of the kernel's answer."""
        return self._rows, self._ends, self._out

    def _placements(self, count: int) -> list[tuple[int, Placement]]:
        """The kernel's answer as (row, placement) pairs."""
        if count == 0:
            return []
        ends = self._ends[:count].tolist()
        gpus = self._out[: ends[-1]].copy()
        begin, found = 0, []
        for row, end in zip(self._rows[:count].tolist(), ends, strict=True):
            found.append((row, Placement(gpus[begin:end])))
            begin = end
        return found

    def never_fits(self, view: View, decision: Decision) -> Decision:
        """Reject the first waiting job where nothing runs and the rule cannot place it even on all of the cluster.

        Nodes that are away may come back and a quota may grow: they count as there.
        """
        if view.running.size or decision.start or not view.queued.size:
            return decision
        spec, head = view.cluster, view.queued[:1]
        no_quota = np.full_like(view.vc_left, np.iinfo(np.int64).max)
        idle = (np.full_like(view.free_milli, 1000), spec.node_gpus.astype(view.idle.dtype),
                spec.gpus_by_type().astype(view.type_idle.dtype))
        rule = RULES[self.placement]
        if not admit(head, False, rule, *self._jobs, no_quota, *idle, *self._shape, *self._buffers()):
            row = int(head[0])
            decision.reject = [(row, f"placement {self.placement!r} cannot place {view.jobs.num_gpus[row]} slots even "
                                     "on the idle cluster")]
        return decision


def nothing_to_do(view: View) -> bool:
    """True where no job waits, or no share of any GPU is free."""
    return view.queued.size == 0 or (not view.type_idle.any() and not view.free_milli.any())


@dataclass
class Ordered(Placing):
    """Starts waiting jobs in the order of `key`, without preemption."""

    skip: ClassVar[bool] = True
    """Skip a job that does not fit now, instead of blocking those behind it."""

    def decide(self, view: View) -> Decision:
        return self.never_fits(view, Decision(start=self.admit(view, view.queued, self.skip)))

    def admit(self, view: View, queue: np.ndarray, skip: bool) -> list[tuple[int, Placement]]:
        """Start jobs of `queue` in its order."""
        if nothing_to_do(view):
            return []
        buffers = self._buffers()
        count = admit(queue, skip, RULES[self.placement], *self._columns(view), *self._state(view), *buffers)
        return self._placements(count)


@dataclass
class Preemptive(Placing):
    """Lets the jobs with the smallest keys hold the GPUs, running and waiting ones alike.

    At each instant all jobs are walked in the order of their keys and those that fit are chosen; running jobs that are
    not chosen are preempted. Jobs with equal keys never preempt each other.
    """

    replace: str = param(
        "keep",
        choices=("keep", "all"),
        help="keep: a running job that goes on stays on its GPUs, unless a better job takes them and others are "
        "free; all: every job is placed anew at each decision",
    )

    ties: str = param(
        "submit",
        choices=("submit", "previous"),
        help="jobs with equal keys: running ones first, then in submit order; or in the order of the decision before",
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._rank = np.full(len(view.jobs), np.inf)
        self._stops, self._goes_on = np.empty_like(self._rows), np.empty(2 * len(self._rows), dtype=np.int32)
        self._found = np.zeros(4)

    @abstractmethod
    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Priority, smallest first. A waiting job's key must not change; a running one's may."""

    def wake_s(self, view: View, running: np.ndarray, waiting_key: float) -> float | None:
        """When to decide again although nothing happens (keys of running jobs change with time).

        `running` are the rows that run from now on, `waiting_key` the smallest key among those that wait from now on.
        """
        return None

    def decide(self, view: View) -> Decision:
        running, queue, queue_key = view.running, view.queued, view.queued_key
        if queue.size == 0:
            return Decision()
        run_key = self.key(view, running)
        if self.ties == "previous":
            return self._decide_stably(view, running, run_key)
        order = np.lexsort((running, run_key))
        return self.choose(view, running[order], run_key[order], queue, queue_key)

    def choose(
        self, view: View, run: np.ndarray, run_key: np.ndarray, queue: np.ndarray, queue_key: np.ndarray
    ) -> Decision:
        """Decide between running and waiting jobs, both in the order of their keys."""
        count = select(
            run,
            run_key,
            queue,
            queue_key,
            self.replace == "keep",
            RULES[self.placement],
            *self._columns(view),
            view.slots,
            view.slot_at,
            view.slot_n,
            *self._state(view),
            *self._buffers(),
            self._stops,
            self._goes_on,
            self._found,
        )
        stops, going, moves, waiting_key = self._found.tolist()
        decision = Decision(start=self._placements(count), stop=self._stops[: int(stops)].tolist())
        if moves:
            decision.move = [p for p in decision.start if view.slot_n[p[0]]]
            decision.start = [p for p in decision.start if not view.slot_n[p[0]]]
        if waiting_key < np.inf and going:
            decision.wake_s = self.wake_s(view, self._goes_on[: int(going)], waiting_key)
        return self.never_fits(view, decision)

    def _decide_stably(self, view: View, running: np.ndarray, run_key: np.ndarray) -> Decision:
        """The same with ties in the order of the decision before: one stable sort, as of a list that stays."""
        rows = np.concatenate((running, view.queued))
        order = np.lexsort((rows, self._rank[rows], np.concatenate((run_key, view.queued_key))))
        self._rank[rows[order]] = np.arange(rows.size)
        return self.choose_ranked(view, rows[order])

    def choose_ranked(self, view: View, rows: np.ndarray) -> Decision:
        """Decide by an order of all jobs, running and waiting, that the policy made itself."""
        runs = view.slot_n[rows] > 0
        rank = np.arange(rows.size, dtype=np.float64)
        return self.choose(view, rows[runs], rank[runs], rows[~runs], rank[~runs])
