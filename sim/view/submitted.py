"""The jobs as they were submitted: all that a scheduler may know of them from the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Jobs:
    """All that a submission says of each job: read-only columns, indexed by row. True run times are not among them."""

    job_id: np.ndarray
    submit_s: np.ndarray
    num_gpus: np.ndarray
    gpu_milli: np.ndarray
    worker_gpus: np.ndarray
    gpus: np.ndarray
    """float64: GPUs that the gang asks for, num_gpus × gpu_milli / 1000."""
    types: np.ndarray
    """uint64: bit t set: the job may run on `cluster.types[t]`: its own wish and, unless the policy sizes gangs, its
    gang's memory fits there."""
    vc: np.ndarray
    """int32: index of the virtual cluster into `vc_names`."""
    vc_names: tuple[str, ...]
    user: np.ndarray
    group: np.ndarray
    """object array: name that jobs submitted as one share, such as a parameter search; '' alone."""
    recurrence: np.ndarray
    """object array: the recurring job that this is a run of; '' where none is known."""
    deadline_s: np.ndarray
    """float64: when the job should have ended, on the clock of `now_s`; NaN: no deadline."""
    deadline_kind: np.ndarray
    """object array: 'strict' (worth nothing once it has passed), 'soft' (worth less), '' where there is no deadline."""
    priority: np.ndarray
    """float64: weight of the job, a larger one matters more; 1 where nothing is said."""
    cpus: np.ndarray
    """float64: CPU cores asked for, all workers together; NaN: unknown."""
    memory_gib: np.ndarray
    """float64: host memory asked for, all workers together, in GiB; NaN: unknown."""
    min_gpus: np.ndarray
    max_gpus: np.ndarray
    """int32: fewest and most slots that the job may be resized to, around num_gpus; both 0: not elastic."""
    model: np.ndarray
    """object array of model names, '' where unknown."""
    batch_size: np.ndarray
    """int32: samples an iteration, all GPUs together; 0: unknown."""
    min_batch_size: np.ndarray
    max_batch_size: np.ndarray
    """int32: smallest and largest batch that the job may be given, around batch_size; both 0: it is fixed."""

    def __len__(self) -> int:
        return len(self.submit_s)

    def may_use(self, types: int, rows: np.ndarray | None = None) -> np.ndarray:
        """`types` as a table, of all jobs or of some: bool [rows, types] for so many types of the cluster."""
        masks = self.types if rows is None else self.types[rows]
        return np.asarray(masks[:, None] >> np.arange(types, dtype=np.uint64) & np.uint64(1) == 1)
