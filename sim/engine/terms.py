"""Terms of a placement: share, batch size and power cap, and what they make of a job's rate.

    rate  =  rate of whole GPUs at the batch  ×  share  ×  speed under the cap  ×  progress of an iteration

Share: of a GPU's time or of its multiprocessors; neighbours take their toll apart (`sim.engine.neighbours`). Where
durations are replayed as recorded a larger share than asked for brings nothing. Cap: the slowest of the gang's GPU
types (`sim.hardware.powercaps`). Batch b in place of the job's own B: an iteration is worth b / B × (φ + B) / (φ + b)
of one at B, φ the gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162; Pollux, OSDI 2021, section 3.1): work
is progress, so a larger batch is not free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.api import Placement, Policy, View
from sim.cluster.spec import WHOLE, ClusterSpec
from sim.hardware.gputypes import HardwareError
from sim.hardware.powercaps import speed_under
from sim.settings.config import EngineConfig
from sim.workload.progress import Truth

ROUNDING = 1e-9
"""Of a card's memory: sums of what jobs need, in another order, differ by less."""
Refuse = Callable[..., None]
"""what, row, got, allowed -> raises IllegalDecisionError."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What a placement's terms come to.

    Attributes
    ----------
    milli : share of each slot's GPU.
    rate : work a second, without neighbours.
    worth : work that an iteration brings.
    per_iteration : the same on whole GPUs, times the share.
    batch_size, cap_w : as segments say them; 0 where the placement says nothing.
    memory_gib : float64 [slots], what each slot needs of its GPU's memory; NaN where that is unknown.
    """

    milli: int
    rate: float
    worth: float
    per_iteration: float
    batch_size: int
    cap_w: float
    memory_gib: np.ndarray | None


class Terms:
    """Checks terms and keeps count of the memory of jobs that share GPUs."""

    def __init__(
        self, view: View, cluster: ClusterSpec, policy: Policy, truth: Truth, config: EngineConfig, refuse: Refuse
    ) -> None:
        self._view, self._cluster, self._policy, self._truth, self._config = view, cluster, policy, truth, config
        self._refuse = refuse
        self._card_gib = np.array([t.memory_gib for t in cluster.types])[cluster.gpu_type]
        self._free_gib = self._card_gib.copy()
        """What jobs with a share leave of each GPU's memory: the truth, of which the view's array is a copy."""
        self._held: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        """GPUs and memory of each running job that has a share of a GPU."""

    def agree(self, row: int, placement: Placement, rate: float) -> Agreed:
        """What the terms come to, given the job's rate on these GPUs at its own share and batch.

        Raises
        ------
        IllegalDecisionError
            Terms that the policy did not declare, that the job does not allow, or that the memory does not hold.
        """
        jobs = self._view.jobs
        own = int(jobs.gpu_milli[row])
        milli = self._whole_number(row, "share", placement.milli, 1, WHOLE) or own
        if milli != own and not self._policy.shares_gpus:
            self._refuse("the policy gives a share of GPUs without declaring shares_gpus = True", row, milli)
        own_batch = int(jobs.batch_size[row])
        batch, worth = self._batch(row, placement, own_batch)
        if batch != own_batch:
            rate = worth * self._truth.rate_at(row, placement.gpus, placement.plan, batch)
        part = milli / own
        rate *= min(part, 1.0) if self._truth.mode == "recorded" else part
        if placement.cap_w:
            rate *= self._speed(row, placement)
        memory = None
        if milli < WHOLE and self._policy.shares_gpus:
            memory = self._memory(row, placement, milli, batch)
        return Agreed(milli, rate, worth, worth * part, placement.batch_size, placement.cap_w, memory)

    def _whole_number(self, row: int, what: str, value: Any, low: int, high: int) -> int:
        """A number of a placement; 0: it says nothing."""
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or (value and not low <= value <= high):
            self._refuse(f"the {what} of a placement", row, value, f"an integer from {low} to {high}, or 0")
        return int(value)

    def _batch(self, row: int, placement: Placement, own: int) -> tuple[int, float]:
        """The batch size, and how much of an iteration at the job's own one of it is worth."""
        batch = self._whole_number(row, "batch size", placement.batch_size, 1, 2**31 - 1) or own
        if batch == own:
            return own, 1.0
        jobs = self._view.jobs
        low, high = int(jobs.min_batch_size[row]), int(jobs.max_batch_size[row])
        if not self._policy.sets_batch:
            self._refuse("the policy sets a batch size without declaring sets_batch = True", row, batch)
        if lacks := self._truth.lacks("batch"):
            self._refuse(f"what another batch size does is unknown: {lacks}", row, batch)
        if not (low or own) <= batch <= (high or own):
            self._refuse("the job does not allow this batch size", row, batch,
                         f"{low or own} to {high or own}" if high > low else f"{own}, its own")
        noise = self._config.gradient_noise * own
        return batch, batch / own * (noise + own) / (noise + batch)

    def _speed(self, row: int, placement: Placement) -> float:
        """Speed under the cap, that of the slowest type of the gang."""
        if not self._policy.caps_power:
            self._refuse("the policy caps power without declaring caps_power = True", row, placement.cap_w)
        types = np.unique(self._cluster.gpu_type[placement.gpus]).tolist()
        speed = 0.0
        try:
            speed = min(speed_under(self._cluster.types[t], float(placement.cap_w)) for t in types)
        except (HardwareError, TypeError, ValueError) as error:
            self._refuse("a power cap that cannot be set", row, getattr(error, "got", placement.cap_w),
                         getattr(error, "allowed", "") or str(error))
        return speed

    def _memory(self, row: int, placement: Placement, milli: int, batch: int) -> np.ndarray:
        """Memory of each slot, which the GPU has beside its other jobs (or, in isolated slices, the slice alone)."""
        gpus = placement.gpus
        need = self._truth.memory_gib(row, gpus, placement.plan, batch)
        asked = Counter[int]()
        for gpu, gib in zip(gpus.tolist(), need.tolist(), strict=True):
            asked[gpu] += gib
        sliced = self._config.sharing == "slice"
        for gpu, gib in asked.items():
            slots = int((gpus == gpu).sum())
            there = self._card_gib[gpu] * milli * slots / WHOLE if sliced else self._free_gib[gpu]
            if gib > there + ROUNDING * self._card_gib[gpu]:
                self._refuse("the memory of jobs that share a GPU does not fit on it", row,
                             f"{gib:.2f} GiB on GPU {gpu}", f"{there:.2f} GiB{' of its slice' if sliced else ' free'}")
        return need

    # -- who shares what ------------------------------------------------------------------------------------------

    def join(self, row: int, gpus: np.ndarray, agreed: Agreed) -> None:
        """A job has started on these terms."""
        if agreed.memory_gib is not None:
            known = np.nan_to_num(agreed.memory_gib)
            self._change(gpus, -known)
            self._held[row] = gpus, known

    def leave(self, row: int) -> None:
        """A job gives its GPUs back."""
        if row in self._held:
            self._change(*self._held.pop(row))

    def _change(self, gpus: np.ndarray, by_gib: np.ndarray) -> None:
        np.add.at(self._free_gib, gpus, by_gib)
        self._view.free_gib[gpus] = self._free_gib[gpus]
