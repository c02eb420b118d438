"""Isolated: each job gets its equal part of each GPU type, whatever it is worth to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mechanisms import GavelRounds, rounds_param
from policies.shares.demand import equal_shares
from sim.api import View


@dataclass
class Isolated(GavelRounds):
    """Gives each of m jobs its m-th of each GPU type, by rounds: what others are held against when fairness is told.

    Share of time of a job with a gang of g GPUs on a type that has N of them,

        X = N / (m g),  a job's shares scaled down to a sum of 1 where it is larger

    (Narayanan et al., Gavel, OSDI'20, X_isolated of section 4.2, and the policy of that name of its public code). GPUs
    that a job cannot use are part of its m-th all the same. It is blind to speed; throughputs are read for
    `whole_steps` only. As in that code GPUs that nobody deserves are filled, and types are walked in a drawn order;
    strictly isolated jobs take spare = idle.
    """

    needs_throughput: ClassVar[bool] = True
    walk: str = rounds_param("walk", "shuffled")

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        # Added up in the order of their names, as in that code: whose priority is the larger can hang on the last bit.
        by_name = np.argsort([gpu.name for gpu in view.cluster.types])
        shares = equal_shares(view.jobs.gpus[rows], rows.size, view.cluster.gpus_by_type()[by_name])
        return shares[:, np.argsort(by_name)]
