"""Queues of tenants, each in order of submission: guaranteed first, idle GPUs lent, and reclaimed when claimed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from policies.mechanisms.placing import Placing
from sim.api import Decision, Placement, Tenants, View

NOBODY = -1


@dataclass
class TenantQueues(Placing):
    """Queues of tenants with guarantees, ceilings and borrowing.

    - In each virtual cluster jobs start in the order of submission; one that does not fit blocks those behind it.
    - Jobs that a guarantee covers go first. What is idle after them is lent, within the ceilings, to the others.
    - A job that a guarantee covers and that finds too few free GPUs reclaims: jobs on borrowed GPUs of a type that it
      may use are preempted until it fits, those of the nearest queue first (a neighbour in the same outer queue before
      a stranger), of these the youngest (last submitted). A preempted job is again the first of its queue.

    A subclass says whose turn it is among the virtual clusters (`turn`). A gang larger than what its queue is owed
    borrows as a whole: it waits until as much is idle, and nothing is set apart for it.
    """

    knows_tenants: ClassVar[bool] = True

    @abstractmethod
    def turn(self, tenants: Tenants, vc: int) -> Any:
        """Whose head is looked at next among virtual clusters with equal claims: the smallest; ties: submission."""

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        """By virtual cluster, then submission: the queue is made of the virtual clusters' own, one after another."""
        return view.jobs.vc[rows] * float(len(view.jobs)) + rows

    def decide(self, view: View) -> Decision:
        if view.queued.size == 0:
            return Decision()
        draft = _Draft(view, self.placement)
        waiting, in_vain = draft.waiting(), set[int]()
        while waiting:
            heads = [(draft.head(vc), vc) for vc in sorted(waiting)]
            heads.sort(key=lambda head: (not draft.claims(head[0]), self.turn(draft.tenants, head[1]), head[0]))
            for row, vc in heads:
                if draft.start(row):
                    if draft.head(vc) == NOBODY:
                        waiting.discard(vc)
                    waiting |= in_vain  # what was lent just now may be what they claim, or make its queue a borrower
                    in_vain.clear()
                    break
                if draft.reclaim(row):
                    waiting = draft.waiting()  # others may fit into what the preempted gangs leave over
                    in_vain.clear()
                    break
                waiting.discard(vc)
                if draft.claims(row):
                    in_vain.add(vc)
        return self.never_fits(view, draft.decision())


class _Draft:
    """What one decision has come to so far: who waits, who holds what, what is free."""

    def __init__(self, view: View, rule: str) -> None:
        self._view, self._rule, self._free = view, rule, view.scratch()
        self.tenants = view.tenants.scratch()
        # Of each virtual cluster the span of the queue that still waits, and those whom this decision has preempted.
        vcs = len(view.jobs.vc_names)
        bounds = np.searchsorted(view.queued_key, np.arange(vcs + 1) * float(len(view.jobs))).tolist()
        self._span = {vc: bounds[vc : vc + 2] for vc in range(vcs) if bounds[vc] < bounds[vc + 1]}
        self._preempted: dict[int, list[int]] = {}
        self._placed: dict[int, np.ndarray] = {}
        self._gone: set[int] = set()

    # -- who waits ----------------------------------------------------------------------------------------------------

    def waiting(self) -> set[int]:
        """Virtual clusters with a job that waits."""
        return {vc for vc in self._span.keys() | self._preempted.keys() if self.head(vc) != NOBODY}

    def head(self, vc: int) -> int:
        """The first submitted of those who wait in a virtual cluster."""
        first, last = self._span.get(vc, (0, 0))
        queued = [int(self._view.queued[first])] if first < last else []
        return min(queued + self._preempted.get(vc, []), default=NOBODY)

    def claims(self, row: int) -> bool:
        """Whether a guarantee covers the job, on some GPU type that it may use."""
        return bool(self._claimed(row))

    # -- who runs -----------------------------------------------------------------------------------------------------

    def start(self, row: int, allowed: int = -1) -> bool:
        """Place the head of a queue on free GPUs, where a guarantee covers it before it borrows."""
        may = allowed & self._mask(row, self.tenants.may)
        return (self._place(row, may & self._claimed(row)) or self._place(row, may)) if may else False

    def reclaim(self, row: int) -> bool:
        """Preempt jobs on borrowed GPUs of one type until the head of a queue, which claims it, runs there.

        Nothing changes where it does not come to that. Those whose GPUs are not needed in the end go on.
        """
        claimed = self._claimed(row)
        for t in range(len(self._view.cluster.types)):
            found: list[int] = []
            while claimed >> t & 1 and (borrower := self._borrower(row, t, found)) != NOBODY:
                found.append(borrower)
                self._give(borrower)
                if self.start(row, 1 << t):
                    for other in reversed(found):
                        if not self._take(other):
                            self._preempt(other)
                    return True
            for other in reversed(found):
                self._take(other)
        return False

    def decision(self) -> Decision:
        """The draft as commands."""
        new = [(row, Placement(gpus)) for row, gpus in self._placed.items()]
        return Decision(
            stop=sorted(self._gone - self._placed.keys()),
            move=[(row, placement) for row, placement in new if row in self._gone],
            start=[(row, placement) for row, placement in new if row not in self._gone],
        )

    # -- pieces -------------------------------------------------------------------------------------------------------

    def _mask(self, row: int, rule: Callable[[int, int, float], bool]) -> int:
        """Bit t set: the job may use GPU type t, and the rule holds there."""
        types, gpus = int(self._view.jobs.types[row]), float(self._view.jobs.gpus[row])
        return sum(1 << t for t in range(len(self._view.cluster.types)) if types >> t & 1 and rule(row, t, gpus))

    def _claimed(self, row: int) -> int:
        return self._mask(row, self.tenants.claims)

    def _place(self, row: int, mask: int) -> bool:
        """Place a job on one of the types of a mask by the rule; it no longer waits."""
        if not mask:
            return False
        gpus = self._free.place(self._free.gang(row)._replace(types=mask), self._rule)
        if gpus is None:
            return False
        vc = int(self._view.jobs.vc[row])
        self._placed[row] = gpus
        self._count(row, gpus, 1)
        if row in self._preempted.get(vc, ()):
            self._preempted[vc].remove(row)
        else:
            self._span[vc][0] += 1
        return True

    def _borrower(self, row: int, gpu_type: int, found: list[int]) -> int:
        """Whom the job preempts next on a type: of the nearest queue that has borrowed, the youngest."""
        view, gpus = self._view, float(self._view.jobs.gpus[row])
        rows = np.array([r for r in view.running.tolist() if r not in self._gone] + list(self._placed), dtype=np.int32)
        shared = {vc: self.tenants.lends(row, gpu_type, gpus, vc) for vc in np.unique(view.jobs.vc[rows]).tolist()}
        best, nearest = NOBODY, 0
        for other, vc in zip(rows.tolist(), view.jobs.vc[rows].tolist(), strict=True):
            if (shared[vc], other) > (nearest, best) and shared[vc] >= 0 and other not in found \
                    and view.cluster.gpu_type[self._gpus(other)[0]] == gpu_type:
                best, nearest = other, shared[vc]
        return best

    def _gpus(self, row: int) -> np.ndarray:
        """What a job holds by now."""
        return self._placed[row] if row in self._placed else self._view.gpus_of(row)

    def _give(self, row: int) -> None:
        gpus = self._gpus(row)
        self._free.give(gpus, self._free.gang(row).gpu_milli, self._free.gang(row).vc)
        self._count(row, gpus, -1)

    def _take(self, row: int) -> bool:
        """The job goes on where it is, if its GPUs are still free and its queues may hold them."""
        gpus, gang = self._gpus(row), self._free.gang(row)
        gpu_type = int(self._view.cluster.gpu_type[gpus[0]])
        if not self.tenants.may(row, gpu_type, float(self._view.jobs.gpus[row])) or \
                not self._free.take(gpus, gang.gpu_milli, gang.vc):
            return False
        self._count(row, gpus, 1)
        return True

    def _count(self, row: int, gpus: np.ndarray, sign: int) -> None:
        gpu_type = int(self._view.cluster.gpu_type[gpus[0]])
        self.tenants.take(row, gpu_type, sign * gpus.size * self._free.gang(row).gpu_milli)

    def _preempt(self, row: int) -> None:
        """A job that has given back its GPUs waits again, in its place in the queue."""
        self._preempted.setdefault(int(self._view.jobs.vc[row]), []).append(row)
        if row in self._placed:
            del self._placed[row]
        else:
            self._gone.add(row)
