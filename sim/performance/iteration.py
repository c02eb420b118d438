"""Time and memory of one training iteration, and where the time goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sim.kernels.pipeline import gpipe_s, one_f_one_b_s

SCHEDULES = ("1f1b", "gpipe")


@dataclass(frozen=True)
class Iteration:
    """One iteration, divided as the stage that ends last spends it.

    iteration = compute + bubble + transfer + all-reduce + update

    Attributes
    ----------
    iteration_s : the whole; inf where it does not fit.
    compute_s : the stage computes, m (forward + backward).
    bubble_s : it waits, even if transfers took no time.
    allreduce_s : gradients are summed over its replicas, after its last backward (no overlap).
    transfer_s : what transfers between stages add.
    memory_gib : needed on a GPU of each stage; empty where unknown (measured tables).
    fits, reason : whether memory suffices, and what is lacking.
    update_s : its optimizer step.
    """

    iteration_s: float
    compute_s: float
    bubble_s: float
    allreduce_s: float
    transfer_s: float
    memory_gib: tuple[float, ...]
    fits: bool
    reason: str = ""
    update_s: float = 0.0

    @property
    def rate(self) -> float:
        """Iterations a second; 0 where it does not fit."""
        return 1.0 / self.iteration_s if self.fits else 0.0

    def without_fit(self, reason: str) -> Iteration:
        """The same, refused."""
        return replace(self, iteration_s=math.inf, fits=False, reason=reason)


def pipeline_iteration(
    schedule: str,
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm: np.ndarray,
    micro_batches: int,
    allreduce: np.ndarray,
    update: np.ndarray,
    memory_gib: tuple[float, ...],
) -> Iteration:
    """Run the schedule and add what follows each stage's last backward.

    Parameters
    ----------
    fwd, bwd : float64 [p], seconds of a micro-batch in each stage.
    comm : float64 [p - 1], seconds of a message across each border, either way (gradients are as large as
    activations).
    allreduce, update : float64 [p], seconds after the stage's last backward.
    """
    ends = _last_end_s(schedule, fwd, bwd, comm, micro_batches)
    last = int(np.argmax(ends + allreduce + update))
    busy = micro_batches * float(fwd[last] + bwd[last])
    free_links = _last_end_s(schedule, fwd, bwd, np.zeros_like(comm), micro_batches) if len(comm) else ends
    return Iteration(
        iteration_s=float(ends[last] + allreduce[last] + update[last]),
        compute_s=busy,
        # A single stage never waits: what is left is rounding.
        bubble_s=float(free_links[last]) - busy if len(comm) else 0.0,
        allreduce_s=float(allreduce[last]),
        transfer_s=float(ends[last] - free_links[last]),
        memory_gib=memory_gib,
        fits=True,
        update_s=float(update[last]),
    )


def _last_end_s(
    schedule: str, fwd: np.ndarray, bwd: np.ndarray, comm: np.ndarray, micro_batches: int
) -> np.ndarray:
    if schedule == "gpipe":
        return gpipe_s(fwd, bwd, comm, micro_batches)[1]
    return one_f_one_b_s(fwd, bwd, comm, comm, micro_batches)[1]
