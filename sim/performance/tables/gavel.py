"""Gavel's throughputs: steps a second of whole jobs, packed or spread over more nodes than they need.

Source: the Gavel project's `simulation_throughputs.json` and `physical_cluster_throughputs.json` (MIT licence), and a
tidy CSV of both. Rates of jobs that share a GPU with another are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from sim.performance.graph import PerformanceError
from sim.performance.tables.cells import header_of, read_text, rows_of
from sim.performance.tables.points import SPREAD, Measurement, Point, catalogue_name
from traces.errors import did_you_mean
from traces.reading.limits import Room, is_amount

CLUSTERS = ("physical", "simulation")
"""Of the tidy file. The simulation file's V100 rates of Recommendation are 8 to 12 times too low."""

_KEY = re.compile(r"^\('(?P<job>.+)', (?P<count>[1-9]\d{0,5})\)$")
_SPREAD = "_unconsolidated"


def points(path: str | Path, gpus_per_node: int = 4, cluster: str = "physical") -> dict[Point, Measurement]:
    """Read either file. A job type such as 'ResNet-50 (batch size 64)' has its batch in its name.

    Parameters
    ----------
    gpus_per_node : GPUs on a node there; a gang on the fewest such nodes is packed (Gavel: consolidated).
    cluster : of the tidy file: 'physical' or 'simulation'.

    Raises
    ------
    PerformanceError
        Not such a file, or a rate that is not a number from 0 up (0: did not fit).
    """
    text, source = read_text(path), str(path)
    if cluster not in CLUSTERS:
        raise PerformanceError("no such cluster in Gavel's table", where=source, got=cluster,
                               allowed=", ".join(CLUSTERS), todo=did_you_mean(cluster, CLUSTERS))
    found = {}
    entries = _of_csv(text, source, cluster) if not text.lstrip().startswith(("{", "[")) else _of_json(text, source)
    for job, gpu, count, rate, where in entries:
        nodes = SPREAD if gpu.endswith(_SPREAD) else -(-count // gpus_per_node)
        name = catalogue_name(gpu.removesuffix(_SPREAD), where)
        found[Point(job, 0, name, count, nodes)] = Measurement(rate)
    if not found:
        raise PerformanceError("the measured table has no rows", where=source, allowed="a rate at least")
    return found


def _of_json(text: str, source: str) -> Iterator[tuple[str, str, int, float, str]]:
    """(job type, GPU type, GPUs, rate, place) of GPU type -> "('job type', GPUs)" -> {"null": rate alone, ...}."""
    Room(source, len(text), error=PerformanceError).take_json(text)
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PerformanceError("the measured table cannot be read", where=source, got=str(error)[:200],
                               allowed="a JSON or CSV file") from None
    if not isinstance(raw, dict) or not all(isinstance(entries, dict) for entries in raw.values()):
        raise PerformanceError("not a throughput table", where=source, got=type(raw).__name__,
                               allowed="GPU type -> job type and GPUs -> rates")
    for gpu, entries in raw.items():
        for key, values in entries.items():
            match, where = _KEY.match(key), f"{source}, {gpu}, {key}"
            if match is None:
                raise PerformanceError("a key cannot be read", where=where, got=key, allowed="('job type', GPUs)")
            rate = values.get("null") if isinstance(values, dict) else None
            if not is_amount(rate):
                raise PerformanceError("a rate cannot be used", where=where, got=rate,
                                       allowed="steps a second, 0 or more")
            yield match["job"], gpu, int(match["count"]), float(rate), where


def _of_csv(text: str, source: str, cluster: str) -> Iterator[tuple[str, str, int, float, str]]:
    """The same of the tidy file: model, batch_size, scale_factor, then a column a cluster and GPU type."""
    names = header_of(text)
    rates = [name for name in names if name.startswith(cluster + "_")]
    for needed in ("model", "batch_size", "scale_factor"):
        if needed not in names or not rates:
            raise PerformanceError("not a throughput table", where=source, got=", ".join(names)[:200],
                                   allowed=f"model, batch_size, scale_factor and {cluster}_v100 and the like")
    for row in rows_of(text, source):
        batch = f" (batch size {row.integer('batch_size')})" if row.cells["batch_size"] else ""
        for name in rates:
            if row.cells[name]:  # blank: not measured
                gpu = name.removeprefix(cluster + "_")
                count = row.integer("scale_factor", 10**6)
                yield row.text("model") + batch, gpu, count, row.number(name), f"{row.where}, column {name!r}"
