"""Least attained service, preemptive: needs no estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.mechanisms import Preemptive
from sim.api import View, param


@dataclass
class Las(Preemptive):
    """The jobs that have had the least service hold the GPUs (two-dimensional LAS of Tiresias, NSDI'19, section 3.2).

    Key: floor(attained service / quantum). Service is GPU time, or time alone; in whole quanta, so that equal jobs
    take turns of that length instead of ever shorter ones. A wide gang has a quantum of GPU time in no time (128 GPUs
    an hour's in 28 s): it counts in as many quanta at once as make its turn `turn_restarts` restarts long.
    """

    quantum_s: float = param(
        3600.0, unit="s or GPU-s", above=0, help="service that a job may gain before it yields to an equal one"
    )
    by: str = param("gpu-time", choices=("gpu-time", "time"), help="what counts as service: GPU time (2D-LAS) or time")
    turn_restarts: float = param(
        10.0, low=0, help="a turn lasts at least this many restarts (preemption_overhead_s); 0: however short"
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        gang = view.jobs.gpus if self.by == "gpu-time" else np.ones(len(view.jobs))
        turn_s = self.turn_restarts * view.preemption_overhead_s
        self._quanta = np.maximum(1.0, np.ceil(turn_s * gang / self.quantum_s))

    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        attained = view.attained_gpu_s(rows) if self.by == "gpu-time" else view.attained_s(rows)
        # A wake-up lies where a quantum is full, up to rounding: a millionth must not cost another round.
        quanta = self._quanta[rows]
        return np.floor(attained / (self.quantum_s * quanta) * (1.0 + 2e-6)) * quanta

    def wake_s(self, view: View, running: np.ndarray, bar: np.ndarray) -> float | None:
        """When the first running job has had so much that a waiting one comes before it."""
        quanta = self._quanta[running]
        limit = (np.floor(bar / quanta) + 1.0) * quanta * self.quantum_s
        then_s = view.now_s + view.reach_s(limit, running, self.by == "gpu-time")
        return then_s if then_s < np.inf else None
