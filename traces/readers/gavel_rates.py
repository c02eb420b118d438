"""Gavel's measured throughputs, as far as its traces need them: how long so many steps take on a GPU type.

The full reader of these files, for runs at measured rates, is `sim.performance.tables.gavel`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from traces.errors import TraceError
from traces.reading.limits import is_amount
from traces.reading.text import read_json, read_table

NAME = "simulation_throughputs.json"
"""The file that Gavel simulates with: looked for beside a trace and in `ABOVE` folders above it."""

ABOVE = 3

Rates = Mapping[tuple[str, int], float]
"""(job type, GPUs) -> steps a second of the whole job, alone, on as few nodes as it needs; 0: did not fit."""

_KEY = re.compile(r"\('(?P<job>.+)', (?P<gpus>[1-9]\d{0,5})\)")


def beside(trace: Path) -> Path | None:
    """The nearest file `NAME` in the trace's folder or those above it; None where there is none."""
    folders = trace.absolute().parents[: ABOVE + 1]
    return next((folder / NAME for folder in folders if (folder / NAME).is_file()), None)


def read_rates(path: Path) -> dict[str, Rates]:
    """Rates by GPU type, such as v100, from Gavel's JSON or the tidy CSV of it (its physical cluster).

    Raises
    ------
    TraceError
        Not such a file, or a rate that is no number from 0 up.
    """
    return _of_csv(path) if path.suffix == ".csv" else _of_json(path)


def _of_json(path: Path) -> dict[str, Rates]:
    """GPU type -> "('job type', GPUs)" -> {"null": rate alone, other job: rates of both}."""
    raw = read_json(path, "simulation_throughputs.json, or its tidy CSV")
    if not isinstance(raw, dict) or not all(isinstance(entries, dict) for entries in raw.values()):
        raise TraceError("not a throughput table", where=str(path), got=type(raw).__name__,
                         allowed="GPU type -> job type and GPUs -> rates")
    found: dict[str, Rates] = {}
    for gpu, entries in raw.items():
        rates = {}
        for key, values in entries.items():
            match = _KEY.fullmatch(key)
            rate = values.get("null") if isinstance(values, dict) else None
            if match is None or not is_amount(rate):
                raise TraceError("a rate cannot be used", where=f"{path}, {gpu}, {key}", got=rate,
                                 allowed="('job type', GPUs) -> {\"null\": steps a second, 0 or more}")
            rates[match["job"], int(match["gpus"])] = float(rate)
        found[gpu] = rates
    return found


def _of_csv(path: Path) -> dict[str, Rates]:
    """The tidy file: model, batch_size, scale_factor, then columns such as physical_v100; a blank: not measured."""
    prefix = "physical_"
    table = read_table(path, ("model", "batch_size", "scale_factor", prefix + "v100"), what="table of throughputs")
    batches = table.text("batch_size").tolist()
    jobs = [model + (f" (batch size {batch})" if batch else "")
            for model, batch in zip(table.text("model").tolist(), batches, strict=True)]
    gpus = table.number("scale_factor", low=1, high=1e6, integer=True).astype(int).tolist()
    at: dict[tuple[str, int], int] = {}
    for index, key in enumerate(zip(jobs, gpus, strict=True)):
        if (first := at.setdefault(key, index)) != index:
            raise TraceError("two rows of rates for the same jobs", where=table.where(index, "model"),
                             got=f"{key[0]} on {key[1]} GPUs, as in line {table.lines[first]}", allowed="one row each")
    found: dict[str, Rates] = {}
    for column in (name for name in table.cells if name.startswith(prefix)):
        rows = zip(jobs, gpus, table.number(column, blank=True).tolist(), strict=True)
        found[column.removeprefix(prefix)] = {(job, n): rate for job, n, rate in rows if not math.isnan(rate)}
    return found
