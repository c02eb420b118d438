"""Measured rows that a calibration is fitted to, read from CSV files.

Times in seconds, with a header; columns in any order, others are ignored:

    gpu,precision,kind,name,flops,bytes,fwd_s,bwd_s[,launches]     an operator: FLOPs, bytes, kernels are those forward
    gpu,precision,model,batch_size,mode,time_s                     a training step of a model on one GPU

Without `launches` an attention counts as 5 kernels, an LSTM is left out (it starts one for each step), any other as
1. `bwd_s` is a difference (with backward, less without): empty, or below NOISE_S, it is unknown. Rows of kind
'launch' are the host's time for one tiny operator.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from sim.hardware.gputypes import PRECISIONS, catalogue
from sim.performance.calibration import KINDS
from sim.performance.graph import PerformanceError
from traces.errors import did_you_mean
from traces.reading.limits import plain_bytes

NOISE_S = 1e-6
"""No kernel takes less."""
ATTENTION_LAUNCHES = 5
OPERATOR_COLUMNS = ("gpu", "precision", "kind", "name", "flops", "bytes", "fwd_s", "bwd_s")
MODEL_COLUMNS = ("gpu", "precision", "model", "batch_size", "mode", "time_s")


@dataclass(frozen=True)
class OperatorRow:
    """An operator timed alone; a `bwd_s` or `launches` of NaN is unknown."""

    gpu: str
    precision: str
    kind: str
    name: str
    flops: float
    bytes: float
    fwd_s: float
    bwd_s: float
    launches: float


@dataclass(frozen=True)
class ModelRow:
    """A training step on one GPU."""

    gpu: str
    precision: str
    model: str
    batch_size: float
    mode: str
    time_s: float


def read_rows(path: str | Path) -> list[OperatorRow] | list[ModelRow]:
    """Read a file of either format; which one, its header says.

    Raises
    ------
    PerformanceError
        No such file, no rows, a column lacks, or a cell that is impossible: named with its line.
    """
    where = str(path)
    try:
        text = plain_bytes(Path(path), PerformanceError).decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, ValueError, csv.Error) as error:
        raise PerformanceError("the rows cannot be read", where=where, got=str(error), allowed="a CSV file") from None
    header = [cell.strip() for cell in lines[0]] if lines else []
    columns = OPERATOR_COLUMNS if "kind" in header else MODEL_COLUMNS
    for name in columns:
        if name not in header:
            todo = did_you_mean(name, header)
            raise PerformanceError("a column is missing", where=where, got=header, allowed=",".join(columns), todo=todo)
    rows: list = []
    for number, cells in enumerate(lines[1:], start=2):
        at = f"{where}, line {number}"
        if not any(cells):
            continue
        if len(cells) != len(header):
            what, allowed = "a row has not as many cells as the header", str(len(header))
            raise PerformanceError(what, where=at, got=len(cells), allowed=allowed)
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        rows.append(_operator_row(row, at) if columns is OPERATOR_COLUMNS else _model_row(row, at))
    if not rows:
        raise PerformanceError("the file has no rows", where=where, got=len(lines), allowed="a header and rows")
    return rows


def _operator_row(row: dict[str, str], at: str) -> OperatorRow:
    kind = _name(row, "kind", ("launch", *KINDS), at)
    launches = _number(row, "launches", at, empty=True) if "launches" in row else math.nan
    if math.isnan(launches):
        launches = math.nan if kind == "lstm" else float(ATTENTION_LAUNCHES) if kind == "attention" else 1.0
    return OperatorRow(
        _name(row, "gpu", tuple(catalogue()), at),
        _name(row, "precision", PRECISIONS, at),
        kind,
        row["name"],
        _number(row, "flops", at, zero=True),
        _number(row, "bytes", at, zero=True),
        _number(row, "fwd_s", at),
        _backward_s(row, at),
        launches,
    )


def _model_row(row: dict[str, str], at: str) -> ModelRow:
    return ModelRow(
        _name(row, "gpu", tuple(catalogue()), at),
        _name(row, "precision", PRECISIONS, at),
        row["model"],
        _number(row, "batch_size", at),
        row["mode"],
        _number(row, "time_s", at),
    )


def _backward_s(row: dict[str, str], at: str) -> float:
    try:
        value = float(row["bwd_s"] or math.nan)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise PerformanceError("bwd_s cannot be used", where=at, got=row["bwd_s"], allowed="seconds, or empty")
    return value if value >= NOISE_S else math.nan


def _name(row: dict[str, str], column: str, known: tuple[str, ...], at: str) -> str:
    if row[column] not in known:
        todo = did_you_mean(row[column], known)
        raise PerformanceError(f"unknown {column}", where=at, got=row[column], allowed=", ".join(known), todo=todo)
    return row[column]


def _number(row: dict[str, str], column: str, at: str, *, empty: bool = False, zero: bool = False) -> float:
    text = row[column]
    if empty and not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf or (zero and value == 0)):
        allowed = "a number, 0 or more" if zero else "a number above 0"
        raise PerformanceError(f"{column} cannot be used", where=at, got=text, allowed=allowed)
    return value
