"""Least attained service, preemptive: needs no estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.mechanisms import ByForm
from sim.api import View, param
from sim.kernels.keys import QUANTA, Terms


@dataclass
class Las(ByForm):
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

    def terms(self, view: View) -> Terms:
        gang = view.jobs.gpus if self.by == "gpu-time" else np.ones(len(view.jobs))
        turn_s = self.turn_restarts * view.preemption_overhead_s
        quanta = np.maximum(1.0, np.ceil(turn_s * gang / self.quantum_s))
        return QUANTA, np.array([self.quantum_s, float(self.by == "gpu-time")]), np.empty(0), quanta
