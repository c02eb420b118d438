"""Fitting `sim.performance.steptime.StepTimeLaw` to measured steps.

Parameters are those of least soft-L1 loss of log(predicted / measured): nearly the mean relative error, and one bad
row does not bend the rest. What rows do not show (an exchange that computation hides, say) stays at a plain value, to
which each parameter is drawn by `DRAWN`; a hundred rows outweigh it. Starts are drawn from a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np
from scipy.optimize import least_squares

from sim.performance.calibration import FitError
from sim.performance.graph import PerformanceError
from sim.performance.steptime import FREE, Network, StepRows, StepTimeLaw

DRAWN = 0.1
"""Pull to the plain value: log error that a parameter as far off as its scale is worth, once."""
LOSS = 0.05
"""Log errors above this count linearly, below it quadratically."""
NETWORK = tuple(f.name for f in fields(Network))
# Parameter -> lowest, highest, start, plain value, scale of the pull (0: none). Those in s are in steps of one GPU.
_BOX: Mapping[str, tuple[float, float, float, float, float]] = {
    "host_s": (0, np.inf, 0.3, 0, 0),
    "sample_s": (0, np.inf, 0.7, 0, 0),
    "growth": (0.02, 1.6, 1, 1, 1),
    "straggling": (0, 3, 0.05, 0.1, 1),
    "serial": (0, 0.95, 0.3, 1 / 3, 0.3),
    "bus_s": (0, np.inf, 0.1, 0, 1),
    "bus_gpu_s": (0, np.inf, 0.05, 0, 1),
    "ring_s": (0, np.inf, 0.3, 0, 1),
    "ring_gpu_s": (0, np.inf, 0.1, 0, 1),
    "tree_s": (0, np.inf, 0.05, 0, 1),
    "pair": (0.05, 4, 1, 1, 1),
    "input_s": (0, np.inf, 0.05, 0, 1),
}


def fit_law(
    rows: StepRows, work: Mapping[int, float] | None = None, source: str = "", starts: int = 4, folds: int = 0
) -> StepTimeLaw:
    """The law of least loss for the rows; without a network where all are on one node.

    With `folds`, its error says also how far rows are off that were left out, a part of so many at a time.

    Raises
    ------
    PerformanceError
        Fewer rows than parameters.
    """
    names = FREE + (NETWORK if (rows.nodes > 1).any() else ())
    if len(rows) < len(names):
        raise PerformanceError("too few rows to fit a step-time law", where=source, got=len(rows),
                               allowed=f"{len(names)} or more")
    low, high, start, plain, scale = (np.array([_BOX[name][i] for name in names]) for i in range(5))
    alone = rows.step_s[rows.replicas == rows.replicas.min()]
    unit = np.where([name.endswith("_s") for name in names], float(np.median(alone)), 1.0)
    batch = float(np.exp(np.log(rows.local_bsz).mean()))
    blank = StepTimeLaw(batch, 0.0, 0.0, 1.0, work=dict(work or {}), source=source)
    pull = np.divide(DRAWN, scale, out=np.zeros(len(names)), where=scale > 0)

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([_log_errors(_law(blank, names, x * unit), rows), pull * (x - plain)])

    best = _least(residuals, start, low, high, starts)
    law = _law(blank, names, best * unit)
    predicted = law.step_time_s(rows.nodes, rows.replicas, rows.local_bsz)
    held = held_out(rows, random_parts(len(rows), folds), work) if folds else math.nan
    return replace(law, error=FitError.of(predicted, rows.step_s, held))


def random_parts(rows: int, parts: int = 5) -> np.ndarray:
    """Which of equal random parts each row is in, the same at every call: int64 [rows], from 0."""
    return np.asarray(np.random.default_rng(0).permutation(rows) % parts)


def held_out(rows: StepRows, part: np.ndarray, work: Mapping[int, float] | None = None) -> float:
    """Mean relative error of the rows of each part (int [rows]; -1: always fitted) by a fit to all but that part."""
    errors = [fit_law(rows.where(part != i), work).errors(rows.where(part == i)) for i in np.unique(part[part >= 0])]
    return float(np.concatenate(errors).mean())


def fit_network(
    jobs: Mapping[str, tuple[StepTimeLaw, StepRows, float]], pull: float = 0.5, starts: int = 2
) -> Network:
    """What leaving a node costs for each byte of gradients, from several jobs on one kind of machine.

    Parameters
    ----------
    jobs : for each, its law (what it says of a node is kept), steps, of which those on several nodes are used, and
        gradient bytes. Each job counts as much as any other.
    pull : draws the terms to 0 and `pair` to 1.

    Returns
    -------
    Network : seconds a byte; `scaled` by a job's bytes it is that job's.
    """
    apart = [(law, rows.where(rows.nodes > 1), size) for law, rows, size in jobs.values() if (rows.nodes > 1).any()]
    if not apart:
        raise PerformanceError("no job left its node", where="fit of a network", got=", ".join(jobs) or None,
                               allowed="steps on 2 nodes or more")
    names = NETWORK[:4]
    low, high = (np.array([_BOX[name][i] for name in names]) for i in (0, 1))
    start, plain = np.array([1.0, 0.3, 0.2, 1.0]), np.array([0.0, 0.0, 0.0, 1.0])  # s a Gbyte; pair

    def network(x: np.ndarray) -> Network:
        ring, ring_gpu, tree = (x[:3] * 1e-9).tolist()
        return Network(ring, ring_gpu, tree, float(x[3]))

    def residuals(x: np.ndarray) -> np.ndarray:
        parts = [_log_errors(law.with_network(network(x).scaled(size)), rows) / np.sqrt(len(rows) / 100)
                 for law, rows, size in apart]
        return np.concatenate([*parts, pull * (x - plain)])

    return network(_least(residuals, start, low, high, starts))


def shared_work(machines: Mapping[str, StepRows], rounds: int = 4) -> dict[int, float]:
    """Work of a batch of so many samples, relative to the smooth law, that a job has on all kinds of machines alike.

    The mean over machines of each one's median residual at that batch size, added up over `rounds` of fitting.
    """
    work = dict.fromkeys(sorted({int(b) for rows in machines.values() for b in rows.local_bsz}), 1.0)
    for _ in range(rounds):
        found: dict[int, list[float]] = {size: [] for size in work}
        for rows in machines.values():
            missed = -_log_errors(fit_law(rows, work, starts=2), rows)
            for size in np.unique(rows.local_bsz):
                found[int(size)].append(float(np.median(missed[rows.local_bsz == size])))
        work = {size: factor * float(np.exp(np.mean(found[size]))) for size, factor in work.items()}
    return work


def _law(blank: StepTimeLaw, names: tuple[str, ...], values: np.ndarray) -> StepTimeLaw:
    given = dict(zip(names, values.tolist(), strict=True))
    network = Network(**{name: given[name] for name in NETWORK}) if "pair" in given else None
    return replace(blank, network=network, **{name: given[name] for name in FREE})


def _log_errors(law: StepTimeLaw, rows: StepRows) -> np.ndarray:
    return np.asarray(np.log(law.step_time_s(rows.nodes, rows.replicas, rows.local_bsz) / rows.step_s))


def _least(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, low: np.ndarray, high: np.ndarray, starts: int
) -> np.ndarray:
    """The point of least loss inside the box, best of several starts."""
    rng, best = np.random.default_rng(0), None
    for i in range(starts):
        x = start * np.exp(rng.normal(0, 0.7 * (i > 0), len(start)))
        x = np.clip(x, low + 1e-6, np.minimum(high, 1e9) - 1e-6)
        found = least_squares(residuals, x, bounds=(low, high), loss="soft_l1", f_scale=LOSS,
                              x_scale=np.maximum(x, 1e-3), max_nfev=300)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return np.asarray(best.x)
