"""Give jobs a model and a batch size where the trace has none, so that a recorded run time becomes work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traces.digests import digests
from traces.errors import TraceError
from traces.trace import Trace


@dataclass(frozen=True)
class ModelChoice:
    """A model that jobs may get.

    Attributes
    ----------
    name : str
    weight : float
        How often it is chosen, relative to the others that a job may get.
    batch_per_gpu : tuple of int
        Batch sizes of one GPU, each as likely.
    min_gpus, max_gpus : int
        Gang sizes that train it, both included: large models start at several GPUs, small ones end at few.
    """

    name: str
    weight: float
    batch_per_gpu: tuple[int, ...]
    min_gpus: int = 1
    max_gpus: int = 1_000_000


def assign(trace: Trace, models: Sequence[ModelChoice], seed: int) -> Trace:
    """Fill `model` and `batch_size` of the jobs whose model is ''.

    A job may get the models whose range of gang sizes holds its num_gpus; where it takes a fraction of a GPU,
    of these only the smallest, that is those with the smallest max_gpus. One is drawn by weight, then one of
    its batch sizes; batch_size = batch of a GPU x num_gpus. The draw is a hash of seed and job id (BLAKE2b,
    the same on every machine): it depends neither on the order of rows nor on the other jobs.

    Raises
    ------
    TraceError
        A choice that cannot be used, or a job that no choice fits: names the job and its GPU count.
    """
    todo = np.flatnonzero(trace.model == "")
    which, batch_of = drawn(trace.job_id[todo], trace.num_gpus[todo], trace.gpu_milli[todo], models, seed)
    model, batch = trace.model.copy(), trace.batch_size.astype(np.int64)
    model[todo] = np.array([m.name for m in models], dtype=object)[which]
    batch[todo] = batch_of
    note = f"models assigned to {len(todo)} of {len(trace)} jobs (seed {seed})"
    provenance = replace(trace.provenance, notes=(*trace.provenance.notes, note))
    return trace.replace(provenance, model=model, batch_size=batch)


def drawn(
    job_id: Sequence[str] | np.ndarray, num_gpus: np.ndarray, gpu_milli: np.ndarray, models: Sequence[ModelChoice],
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """What `assign` draws for jobs without a model: number of the choice, and global batch.

    Raises
    ------
    TraceError
        See there.
    """
    _check(models)
    draws = uniforms(job_id, seed)
    choice, batch = np.empty(len(job_id), dtype=np.int64), np.empty(len(job_id), dtype=np.int64)
    shared = gpu_milli < 1000
    for gpus, part in (divmod(one, 2) for one in np.unique(2 * num_gpus.astype(np.int64) + shared).tolist()):
        group = np.flatnonzero((num_gpus == gpus) & (shared == part))
        fitting = [index for index, m in enumerate(models) if m.min_gpus <= gpus <= m.max_gpus]
        if not fitting:
            raise TraceError(
                "no model fits the job", where=f"job {job_id[group[0]]!r}", got=f"{gpus} GPUs",
                allowed="; ".join(f"{m.name}: {m.min_gpus} to {m.max_gpus}" for m in models),
                todo="Add a model for gangs of this size.",
            )
        if part:
            smallest = min(models[index].max_gpus for index in fitting)
            fitting = [index for index in fitting if models[index].max_gpus == smallest]
        shares = np.cumsum([models[index].weight for index in fitting])
        which = np.searchsorted(shares / shares[-1], draws[group, 0], side="right")
        for place, index in enumerate(fitting):
            rows = group[np.minimum(which, len(fitting) - 1) == place]
            sizes = np.array(models[index].batch_per_gpu)
            choice[rows] = index
            batch[rows] = sizes[(draws[rows, 1] * len(sizes)).astype(np.int64)] * gpus
    return choice, batch


def uniforms(job_ids: Iterable[str], seed: int, purpose: str = "") -> np.ndarray:
    """Two numbers in [0, 1) a job, float64[jobs, 2], from a hash of seed, purpose and id.

    Draws of one purpose (up to 30 ASCII characters) say nothing of those of another.
    """
    key = f"{seed} {purpose}".strip().encode()
    hashes = digests(job_ids, key, 16)
    # 53 bits, as many as a float holds, so that 1.0 is never reached.
    return (np.frombuffer(hashes, dtype="<u8").reshape(-1, 2) >> np.uint64(11)) * 2.0**-53


def _check(models: Sequence[ModelChoice]) -> None:
    if not models:
        raise TraceError("no models to choose from", where="assign", got=0, allowed="one or more")
    for m in models:
        where = f"model {m.name!r}"
        if not (np.isfinite(m.weight) and m.weight > 0):
            raise TraceError("weight not allowed", where=where, got=m.weight, allowed="a number above 0")
        if not m.batch_per_gpu or min(m.batch_per_gpu) < 1:
            raise TraceError("batch_per_gpu not allowed", where=where, got=m.batch_per_gpu,
                             allowed="integers from 1")
        if not 1 <= m.min_gpus <= m.max_gpus:
            raise TraceError("gang sizes not allowed", where=where, got=f"{m.min_gpus} to {m.max_gpus} GPUs",
                             allowed="1 <= min_gpus <= max_gpus")
