"""What all mechanisms need: the placement setting, and the arrays into which kernels write what they place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.api import Decision, Placement, Policy, View, param
from sim.kernels.placement import RULES

_PLACEMENT_HELP = (
    "count: anywhere; first-fit: lowest node that holds the gang; best-fit: fullest such node; consolidate: best-fit, "
    "else spread over the fewest nodes"
)


Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, ends and GPUs of a kernel's answer (`sim.kernels.ledger`)."""


@dataclass
class Placing(Policy):
    """A policy that places gangs by rule; keeps the arrays of its answer so that decisions allocate little."""

    placement: str = param("consolidate", help=_PLACEMENT_HELP, choices=tuple(RULES))

    def prepare(self, view: View) -> None:
        jobs = view.jobs
        # A decision starts at most one job a share of a GPU that could be free.
        slots = min(view.cluster.num_gpus * int(1000 // jobs.gpu_milli.min()), int(jobs.num_gpus.sum()))
        most = min(slots, len(jobs)) + 1
        self._found: Found = (
            np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int64),
            np.empty(slots + int(jobs.num_gpus.max()) + 1, dtype=np.int32),
        )  # fmt: skip

    def _placements(self, count: int, found: Found | None = None) -> list[tuple[int, Placement]]:
        """A kernel's answer as (row, placement) pairs."""
        if count == 0:
            return []
        rows, at, out = self._found if found is None else found
        ends = at[:count].tolist()
        gpus = out[: ends[-1]].copy()
        begin, pairs = 0, []
        for row, end in zip(rows[:count].tolist(), ends, strict=True):
            pairs.append((row, Placement(gpus[begin:end])))
            begin = end
        return pairs

    def never_fits(self, view: View, decision: Decision) -> Decision:
        """Reject the first waiting job where nothing runs and the rule cannot place it even on all of the cluster.

        Nodes that are away may come back and a quota may grow: they count as there.
        """
        if view.running.size or decision.start or not view.queued.size:
            return decision
        row = int(view.queued[0])
        if any(row == gone for gone, _ in (*decision.reject, *decision.refuse)):
            return decision  # the policy has turned it away itself, and is asked again at this instant
        if view.scratch().emptied().place(row, self.placement) is None:
            slots = view.jobs.num_gpus[row]
            decision.reject.append(
                (row, f"placement {self.placement!r} cannot place {slots} slots even on the idle cluster"))
        return decision


def nothing_to_do(view: View) -> bool:
    """True where no job waits, or no share of any GPU is free."""
    # Counting is ten times as fast as asking for any. (A closed GPU counts, though nothing of it can be had.)
    return view.queued.size == 0 or not (np.count_nonzero(view.type_idle) or np.count_nonzero(view.free_milli))


def as_in(policy: Policy, mechanism: type, *methods: str) -> bool:
    """True where a policy has these methods from the mechanism, and has not made its own."""
    return all(getattr(type(policy), name) is getattr(mechanism, name) for name in methods)
