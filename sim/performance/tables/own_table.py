"""A measured table of one's own: a CSV file whose column names say what they hold (docs/measured-tables.md).

    model, gpu_type, gpus            required
    batch_size | batch_size_per_gpu  samples an iteration of the whole job, or of each GPU; neither: not a key
    nodes                            nodes that the GPUs were on; blank: wherever; 'spread': more than needed
    one of `RATES`                   how fast; a name without 'total' or 'per_gpu' would be ambiguous

A rate of 0 means measured not to fit; what was not measured has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sim.performance.graph import PerformanceError
from sim.performance.tables.cells import Row, header_of, read_text, rows_of
from sim.performance.tables.points import ANY_PLACEMENT, SPREAD, Measurement, Point, catalogue_name
from traces.errors import did_you_mean

RATES: Mapping[str, Callable[[float, int, int], float]] = {
    "iterations_per_s_total": lambda value, gpus, batch: value,
    "iterations_per_s_per_gpu": lambda value, gpus, batch: value * gpus,
    "samples_per_s_total": lambda value, gpus, batch: value / batch,
    "samples_per_s_per_gpu": lambda value, gpus, batch: value * gpus / batch,
    "iteration_s": lambda value, gpus, batch: 1.0 / value,
}
"""Rate column -> iterations a second of the whole job, from the cell, the GPUs and the whole job's batch."""

_BATCHES = ("batch_size", "batch_size_per_gpu")
_REQUIRED = ("model", "gpu_type", "gpus")
COLUMNS = (*_REQUIRED, *_BATCHES, "nodes", *RATES)


def points(path: str | Path) -> dict[Point, Measurement]:
    """Read such a file.

    Raises
    ------
    PerformanceError
        Not such a file; no column or several that say the rate, or one without its unit; a cell that is not allowed;
        the same point in two lines (both are named).
    """
    source, text = str(path), read_text(path)
    names = header_of(text)
    rate, batch = _rate_column(names, source), _batch_column(names, source)
    if batch is None and rate.startswith("samples"):
        raise PerformanceError(
            "samples a second are no iterations without a batch size", where=f"{source}, header",
            got=", ".join(names), allowed=" or ".join(_BATCHES),
        )
    found: dict[Point, Measurement] = {}
    lines: dict[Point, int] = {}
    with_batch: dict[str, Row] = {}
    for row in rows_of(text, source):
        point, measured = _point(row, rate, batch)
        if point in lines:
            raise PerformanceError(
                "a point is there twice", where=row.where, got=", ".join(map(str, row.cells.values())),
                allowed=f"each point once (first in line {lines[point]})", todo="Average repeated measurements.",
            )
        first = with_batch.setdefault(point.model, row)
        if bool(point.batch_size) != bool(batch and first.cells[batch]):
            raise PerformanceError(
                "a model with and without a batch size", where=row.where, got=point.model,
                allowed=f"all rows of a model as its first (line {first.line})",
            )
        lines[point], found[point] = row.line, measured
    return found


def _point(row: Row, rate: str, batch: str | None) -> tuple[Point, Measurement]:
    gpus = row.integer("gpus", 10**6)
    samples = row.integer(batch, 2**31 - 1) if batch and row.cells[batch] else 0
    samples *= gpus if batch == "batch_size_per_gpu" else 1
    where = row.cells.get("nodes", "")
    nodes = ANY_PLACEMENT if not where else SPREAD if where == "spread" else row.integer("nodes", gpus)
    value = row.number(rate, above=rate == "iteration_s")
    if rate.startswith("samples") and not samples:
        row.integer(str(batch))  # a blank: says so
    gpu = catalogue_name(row.text("gpu_type"), f"{row.where}, column 'gpu_type'")
    per_s = RATES[rate](value, gpus, samples)
    return Point(row.text("model"), samples, gpu, gpus, nodes), Measurement(per_s)


def _rate_column(names: list[str], source: str) -> str:
    """The one column that says the rate."""
    where = f"{source}, header"
    rates = [name for name in names if name in RATES]
    if len(rates) > 1:
        raise PerformanceError("two columns say the rate", where=where, got=", ".join(rates), allowed="one")
    lacking = [name for name in _REQUIRED if name not in names]
    strange = [name for name in names if name not in COLUMNS]
    if not rates:
        raise PerformanceError(
            "no column says how fast, with its unit and whether it is the whole job's", where=where,
            got=", ".join(names)[:200], allowed="one of " + ", ".join(RATES),
            todo="'total': all GPUs of the job together; 'per_gpu': that, divided by its GPUs.",
        )
    if lacking:
        raise PerformanceError(f"column {lacking[0]!r} is missing", where=where, got=", ".join(names)[:200],
                               allowed=", ".join(COLUMNS), todo=did_you_mean(lacking[0], strange))
    if strange:
        raise PerformanceError("unknown column", where=where, got=strange[0], allowed=", ".join(COLUMNS),
                               todo=did_you_mean(strange[0], COLUMNS))
    return rates[0]


def _batch_column(names: list[str], source: str) -> str | None:
    batches = [name for name in names if name in _BATCHES]
    if len(batches) > 1:
        raise PerformanceError("two columns say the batch size", where=f"{source}, header",
                               got=", ".join(batches), allowed="one")
    return batches[0] if batches else None


def as_text(found: Mapping[Point, Measurement]) -> str:
    """The points as such a file; `points` reads the same back (counts and spreads of measurements are not in it)."""
    lines = ["model,batch_size,gpu_type,gpus,nodes,iterations_per_s_total"]
    for p, measured in found.items():
        model = '"' + p.model.replace('"', '""') + '"' if set(p.model) & set(',"\r\n') else p.model
        nodes = {ANY_PLACEMENT: "", SPREAD: "spread"}.get(p.nodes, str(p.nodes))
        lines.append(f"{model},{p.batch_size or ''},{p.gpu},{p.gpus},{nodes},{measured.iterations_per_s!r}")
    return "\n".join(lines) + "\n"
