"""HEFT: the longest job first, into the first gap in which it ends earliest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import ByEnds
from sim.api import View, param


@dataclass
class Heft(ByEnds):
    """Plans jobs by falling rank, each where it ends earliest, in gaps too (Topcuoglu et al., IEEE TPDS 2002).

        rank = mean over its types of (work left / believed speed), the paper's upward rank of a task that none follows
        type = argmin_t (begin of the first gap on t that is wide and long enough + work left / believed speed on t)

    Ties: the order of submission, then the cluster's order of types. Only those whose gap begins now start, so a gang
    that waits for its GPUs is not delayed by whoever slips in before it. Must know: run times and speeds. Departs: jobs
    depend on none, so nothing is communicated; of gangs, the paper's tasks have one processor.
    """

    rank: str = param("time", choices=("time", "gpu-time"), help="largest first: run time, or run time times GPUs")

    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        known = np.isfinite(run_s)
        rank = np.where(known, run_s, 0.0).sum(axis=1) / known.sum(axis=1)
        if self.rank == "gpu-time":
            rank *= view.jobs.gpus[rows]
        return self.in_gaps(view, rows, run_s, np.lexsort((rows, -rank)).tolist())
