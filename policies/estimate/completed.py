"""Speeds on GPU types that a model was not profiled on, completed from models that were: Gavel's estimator.

A new model m is profiled on K of the T types; l[m, t] is the logarithm of its samples a second on one GPU. Of the
reference models r, which are known on all types, D[r, t] = l[r, t] - mean_t l[r, t] says how speed hangs on the type.

1. Completion: D has low rank, D[r] ~ mu + sum_q c[r, q] v[q] (the first K - 1 singular vectors at most, two of them).
   For m, offset a and coefficients c minimise, over the profiled types,

       sum_t (l[m, t] - a - mu[t] - sum_q c[q] v[q, t])^2 / e^2 + sum_q c[q]^2 / s[q]^2,

   s the spread of the references' coefficients and e that of what the vectors leave.
2. Fingerprint: the reference whose D[r] is nearest to the completed row lends m its row, shifted so that it agrees with
   what was profiled on average. What was profiled is believed as measured, so that with K = T all is exact.

Source: Narayanan et al., OSDI 2020, section 6 (after Paragon and Quasar). There the matrix is of pairs of jobs that
share a GPU; here its columns are GPU types. The references are all other models of the zoo and of the run's table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sim.performance import MODELS, GpuType, Performance
from traces.digests import digests

STREAM = 21
"""Of the types that are profiled: `default_rng([seed, STREAM, hash of the model])`."""
MOST_RANK = 2


def completed_errors(
    truth: Performance, types: Sequence[GpuType], profiled: int, seed: int
) -> Callable[[str, str], float]:
    """(model, GPU type) -> believed over true time of a model that was profiled on so many of the types.

    A type on which nothing is known of the model, or nothing of others, is believed as it is.
    """
    names = [gpu.name for gpu in types]
    every = dict.fromkeys((*MODELS, *truth.graphs, *(truth.table.job_types if truth.table else ())))
    logs = {model: log_rates(truth, model, types) for model in every}
    errors: dict[str, np.ndarray] = {}

    def factor(model: str, gpu: str) -> float:
        if gpu not in names:
            return 1.0
        if model not in errors:
            own = logs[model] if model in logs else log_rates(truth, model, types)
            others = [row for name, row in logs.items() if name != model and not np.isnan(row).any()]
            known = np.flatnonzero(~np.isnan(own))
            hashed = int.from_bytes(digests([model], b"profiled", 8), "big")
            order = np.random.default_rng([seed, STREAM, hashed]).permutation(known)
            among = np.zeros(len(names), dtype=bool)
            among[order[:profiled]] = True
            told = completed(own, among, np.array(others)) if others and among.any() else own
            errors[model] = np.exp(np.where(np.isnan(own), 0.0, own - told))
        return float(errors[model][names.index(gpu)])

    return factor


def mean_error(believed: Performance, truth: Performance, models: Iterable[str], types: Sequence[GpuType]) -> float:
    """Mean of |believed / true time - 1| over models and types of which a speed is known; NaN: of none."""
    off = [np.abs(np.expm1(log_rates(truth, model, types) - log_rates(believed, model, types)))
           for model in dict.fromkeys(models)]
    known = np.concatenate(off) if off else np.empty(0)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else np.nan


def completed(own: np.ndarray, profiled: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Logarithms of a model's rates on all types, from those on the profiled ones. float64 [types].

    Parameters
    ----------
    own : float64 [types]; read where profiled.
    profiled : bool [types], one or more.
    references : float64 [models, types], of models that are known on all types, one or more.
    """
    if profiled.all():
        return own.copy()
    shape = references - references.mean(axis=1, keepdims=True)
    mean = shape.mean(axis=0)
    _, spread, vectors = np.linalg.svd(shape - mean, full_matrices=False)
    rank = min(MOST_RANK, int(profiled.sum()) - 1, len(references) - 1)
    s = spread / np.sqrt(max(1, len(references) - 1))
    e2 = max(float((s[rank:] ** 2).sum()) / profiled.size, 1e-9)
    at = np.column_stack([np.ones(int(profiled.sum())), vectors[:rank, profiled].T])
    ridge = np.diag([0.0, *(e2 / np.maximum(s[:rank] ** 2, 1e-12))])
    found = np.linalg.solve(at.T @ at + ridge, at.T @ (own[profiled] - mean[profiled]))
    row = np.where(profiled, own, found[0] + mean + found[1:] @ vectors[:rank])
    nearest = references[np.argmin(((row - row.mean() - shape) ** 2).sum(axis=1))]
    return np.where(profiled, own, nearest + (own - nearest)[profiled].mean())


def log_rates(truth: Performance, model: str, types: Sequence[GpuType]) -> np.ndarray:
    """Logarithm of samples (of a measured model: iterations) a second on each type, float64 [types]; NaN: unknown.

    Of a model with operators on one GPU, its largest batch of a GPU; of a measured one the mean over the batches and
    gangs that were measured on all of the types on which it was measured at all.
    """
    if not truth.undivided(model):
        batch = max(MODELS[model].gpu_batch_sizes, default=1) if model in MODELS else 1
        return np.array([np.log(batch / sum(float(part.sum()) for part in truth.op_times_s(model, batch, gpu)))
                         for gpu in types])
    at: dict[str, dict[tuple[int, int], float]] = {gpu.name: {} for gpu in types}
    for point, one in (truth.table.points.items() if truth.table else ()):
        if point.model == model and point.gpu in at and one.iterations_per_s > 0:
            key, rate = (point.batch_size, point.gpus), float(np.log(one.iterations_per_s))
            at[point.gpu][key] = max(at[point.gpu].get(key, -np.inf), rate)
    there = [set(keys) for keys in at.values() if keys]
    common = sorted(set.intersection(*there)) if there else []
    return np.array([np.mean([keys[key] for key in common]) if keys and common else np.nan for keys in at.values()])
