"""Fit a calibration to measured rows: operators timed alone, or whole training steps (`calibration_rows`).

Both minimise the sum of a robust function of log(predicted / measured), so that twice too slow weighs as much as
twice too fast and a few odd rows do not rule. Each parameter is drawn to its start a little (`PULL`): what the rows
do not tell stays where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from sim.hardware.gputypes import gpu_type
from sim.performance.calibration import KINDS, Calibration, FitError, KindFit, shipped
from sim.performance.calibration_rows import ModelRow, OperatorRow, read_rows
from sim.performance.graph import MATRIX_KINDS, OperatorGraph, PerformanceError
from sim.performance.operator_time import operator_times_s, update_time_s
from sim.performance.zoo import MODELS, zoo_graph
from traces.errors import did_you_mean

PULL = 0.03
"""Weight of log(parameter / start) beside a row's log(predicted / measured)."""
SCALE = 0.1
"""Log errors above this count less than squared."""


def fit_file(
    path: str | Path, start: Calibration | str = "tuned", name: str = ""
) -> tuple[Calibration, dict[str, tuple[int, float, float]]]:
    """Fit the rows of a file that are of the start's precision, or of the only one in it.

    Returns the calibration, named after the file unless `name` is given, and the error by kind of operator or by
    model: times, mean, worst.

    Raises
    ------
    PerformanceError
        A file, row or model that cannot be used, rows of several precisions of which none is the start's, too few.
    """
    start = shipped(start) if isinstance(start, str) else start
    name, source = name or Path(path).stem, Path(path).name
    rows = read_rows(path)
    precisions = {row.precision for row in rows}
    if start.precision in precisions:
        rows = [row for row in rows if row.precision == start.precision]  # type: ignore[assignment]
    operators = [row for row in rows if isinstance(row, OperatorRow)]
    models = [row for row in rows if isinstance(row, ModelRow)]
    if operators:
        fit = fit_operators(operators, name, source, start)
        table = _OperatorTable(operators, fit.precision)
        predicted, measured, of = table.times_s(fit), table.time_s, table.kind
    else:
        for row in models:
            if row.model not in MODELS:
                todo = did_you_mean(row.model, MODELS)
                known = ", ".join(MODELS)
                raise PerformanceError("unknown model", where=str(path), got=row.model, allowed=known, todo=todo)
        fit = fit_models(models, zoo_graph, name, source, start)
        predicted = predicted_s(models, fit, zoo_graph)
        measured, of = np.array([row.time_s for row in models]), np.array([row.model for row in models])
    error = np.abs(predicted / measured - 1)
    groups = {str(g): error[of == g] for g in dict.fromkeys(of.tolist())}
    return fit, {g: (len(e), float(e.mean()), float(e.max())) for g, e in groups.items()}


def fit_operators(rows: Sequence[OperatorRow], name: str, source: str, start: Calibration | None = None) -> Calibration:
    """Fit each kind's compute, memory and fill, and the launch; the host's time is the median of 'launch' rows.

    Kinds of which there are fewer than three times keep the parameters of `start` ('tuned'). The error is of single
    times forward and backward (an embedding's: forward only); `held_out_mean` is the mean over five folds, each left
    out once.
    """
    start = start or shipped("tuned")
    precision = _one_precision(rows)
    hosts = [row.fwd_s for row in rows if row.kind == "launch"]
    table = _OperatorTable(rows, precision)
    kinds = [kind for kind in KINDS if (table.kind == kind).sum() >= 3]
    if not kinds:
        raise PerformanceError("too few rows to fit", got=len(rows), allowed="3 times of one kind of operator")
    chosen = np.isin(table.kind, kinds)
    # A parameter of zero has no logarithm.
    given = (start.launch_s, *(value for kind in kinds for value in astuple(start.kinds[kind])))
    first = np.log(np.maximum(given, 1e-9))
    base = Calibration(
        name, precision, start.kinds, start.launch_s, float(np.median(hosts)) if hosts else start.host_s, source,
        tuple(sorted({row.gpu for row in rows})),
    )  # fmt: skip

    def found(log: np.ndarray) -> Calibration:
        launch_s, *values = np.exp(log).tolist()
        fits = {kind: KindFit(*values[3 * i : 3 * i + 3]) for i, kind in enumerate(kinds)}
        return replace(base, kinds={**start.kinds, **fits}, launch_s=launch_s)

    def fitted(used: np.ndarray) -> Calibration:
        return found(_least(lambda log: table.times_s(found(log))[used], table.time_s[used], first))

    fit, held = fitted(chosen), np.full(len(chosen), np.nan)
    for fold in range(5):
        out = chosen & (np.arange(len(chosen)) % 5 == fold)
        if out.any() and (chosen & ~out).sum() >= 3:
            held[out] = np.abs(table.times_s(fitted(chosen & ~out))[out] / table.time_s[out] - 1)
    known = held[~np.isnan(held)]
    held_out = float(known.mean()) if len(known) else math.nan
    return replace(fit, error=FitError.of(table.times_s(fit)[chosen], table.time_s[chosen], held_out))


class _OperatorTable:
    """Forward and backward times of rows as columns; without rows of kind 'launch' and of unknown launches."""

    def __init__(self, rows: Sequence[OperatorRow], precision: str) -> None:
        rows = [row for row in rows if row.kind != "launch" and row.launches > 0]
        passes = [(row, False) for row in rows]
        # Backward, an embedding writes a gradient as large as its table, which the bytes of a row do not tell.
        passes += [(row, True) for row in rows if row.kind != "embedding" and not math.isnan(row.bwd_s)]
        self.kind = np.array([row.kind for row, _ in passes])
        self.matrix = np.isin(self.kind, MATRIX_KINDS)
        back = np.array([b for _, b in passes], dtype=bool)
        self.time_s = np.array([row.bwd_s if b else row.fwd_s for row, b in passes])
        twice = np.where(back & self.matrix, 2.0, 1.0)
        self.flops = twice * np.array([row.flops for row, _ in passes])
        self.launches = twice * np.array([row.launches for row, _ in passes])
        # Input read, gradient read, gradient written: 3 / 2 of reading and writing once where both are as large.
        self.bytes = np.array([row.bytes for row, _ in passes]) * np.where(
            back, np.where(self.matrix, 2.0, 1.5), 1.0
        )
        types = [gpu_type(row.gpu) for row, _ in passes]
        peaks = np.array([t.matrix_tflops(precision) for t in types]).reshape(-1, 2)
        self.peak, self.efficiency = peaks[:, 0] * 1e12, peaks[:, 1]
        self.bandwidth = np.array([t.memory_efficiency * t.mem_gbytes_per_s * 1e9 for t in types])
        # Kinds recur: parameters are looked up once a kind.
        self.kinds, self.at = np.unique(self.kind, return_inverse=True)

    def times_s(self, fit: Calibration) -> np.ndarray:
        """Seconds by the formula of `operator_time`, without the host: float64 [times]."""
        kinds = tuple(self.kinds.tolist())
        compute, memory, fill_s = (fit.column(kinds, name)[self.at] for name in ("compute", "memory", "fill_s"))
        rate = np.minimum(compute * self.efficiency, 1.0) * self.peak
        arithmetic = np.where(self.matrix, self.flops / rate + self.launches * fill_s, 0.0)
        return np.maximum(arithmetic, self.bytes / (memory * self.bandwidth)) + self.launches * fit.launch_s


GraphOf = Callable[[str], OperatorGraph]


def step_time_s(graph: OperatorGraph, samples: float, gpu: str, precision: str, fit: Calibration) -> float:
    """Seconds of a training step on one GPU: all operators forward and backward, then the optimizer."""
    kind = gpu_type(gpu)
    fwd, bwd = operator_times_s(graph, samples, kind, precision=precision, calibration=fit)
    dense = float((graph.weight_params - graph.sparse_params).sum())
    return float(fwd.sum() + bwd.sum()) + update_time_s(dense, kind, fit)


def predicted_s(rows: Sequence[ModelRow], fit: Calibration, graph_of: GraphOf) -> np.ndarray:
    """Step times of whole-model rows: float64 [rows]."""
    return np.array([step_time_s(graph_of(r.model), r.batch_size, r.gpu, r.precision, fit) for r in rows])


_SCALED = (
    ("compute", ("conv",)),
    ("compute", ("gemm", "attention", "lstm")),
    ("memory", ("norm", "elementwise", "pool")),
    ("memory", ("conv", "gemm", "attention", "lstm", "embedding", "update")),
    ("fill_s", MATRIX_KINDS),
)
"""What a fit to whole models scales together; beside these, the launch and the host's time for a kernel."""
_UPDATE_APART = (
    *_SCALED[:3], ("memory", ("conv", "gemm", "attention", "lstm", "embedding")), *_SCALED[4:], ("memory", ("update",)),
)
"""The same where steps of few operators tell the optimizer's share: it is of another kind of kernel, or of many."""
HOST_START_S = 10e-6
MOST_COMPUTE = 1.5
"""Efficiencies of the catalogue are 0.37 to 0.9: what is fitted beyond this would only be cut off at the peak."""


def fit_models(
    rows: Sequence[ModelRow], graph_of: GraphOf, name: str, source: str, start: Calibration | None = None,
    update_apart: bool = False,
) -> Calibration:  # fmt: skip
    """Fit seven factors to whole training steps: see `_SCALED`, launch and host; `update_apart`: an eighth.

    `held_out_mean` is the mean error of rows whose model was left out of the fit.
    """
    start = start or shipped("tuned")
    precision = _one_precision(rows)
    if len(rows) < 3:
        raise PerformanceError("too few rows to fit", got=len(rows), allowed="3 or more")
    measured = np.array([row.time_s for row in rows])
    models = np.array([row.model for row in rows])
    scaled = _UPDATE_APART if update_apart else _SCALED

    def fitted(used: np.ndarray) -> Calibration:
        chosen = [row for row, use in zip(rows, used, strict=True) if use]
        log = _least(
            lambda p: predicted_s(chosen, _scaled(start, p, name, precision, scaled), graph_of),
            measured[used],
            np.zeros(len(scaled) + 2),
        )
        return _scaled(start, log, name, precision, scaled)

    found = fitted(np.ones(len(rows), dtype=bool))
    held = np.full(len(rows), np.nan)
    for model in dict.fromkeys(models.tolist()):
        out = models == model
        if (~out).sum() >= 3:
            some = [row for row, o in zip(rows, out, strict=True) if o]
            held[out] = np.abs(predicted_s(some, fitted(~out), graph_of) / measured[out] - 1)
    held_out = float(np.mean(held[~np.isnan(held)])) if not np.isnan(held).all() else math.nan
    error = FitError.of(predicted_s(rows, found, graph_of), measured, held_out)
    return replace(found, source=source, gpus=tuple(sorted({row.gpu for row in rows})), error=error)


def _scaled(
    start: Calibration, log: np.ndarray, name: str, precision: str, scaled: Sequence[tuple[str, Sequence[str]]]
) -> Calibration:
    """The start with its parameters times exp(log)."""
    factor = np.exp(log).tolist()
    kinds = dict(start.kinds)
    for (parameter, members), by in zip(scaled, factor, strict=False):
        for kind in members:
            value = getattr(kinds[kind], parameter) * by
            value = min(value, MOST_COMPUTE) if parameter == "compute" else value
            kinds[kind] = replace(kinds[kind], **{parameter: value})
    launch, host = factor[len(scaled) :]
    host_s = (start.host_s or HOST_START_S) * host
    return Calibration(name, precision, kinds, start.launch_s * launch, host_s, start.source)


def _least(predict: Callable[[np.ndarray], np.ndarray], measured: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Logarithms of parameters that minimise robust log errors, drawn to the start."""

    def residuals(log: np.ndarray) -> np.ndarray:
        # A least step keeps parameters within what can be written: a factor of 1,000 either way.
        log = start + np.clip(log - start, -7.0, 7.0)
        error = np.log(predict(log) / measured) / SCALE
        robust = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1))
        return np.concatenate((robust, PULL / SCALE * (log - start)))

    found = least_squares(residuals, start, diff_step=1e-4)
    return np.asarray(start + np.clip(found.x - start, -7.0, 7.0))


def _one_precision(rows: Sequence[OperatorRow] | Sequence[ModelRow]) -> str:
    found = sorted({row.precision for row in rows})
    if len(found) != 1:
        raise PerformanceError(
            "a fit is of one precision",
            got=found,
            allowed="rows of one precision",
            todo="Fit the rows of each precision apart.",
        )
    return found[0]
