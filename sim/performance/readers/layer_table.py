"""Tables of measured layers: a CSV file, a row a run of equal layers on a GPU type (docs/measured-tables.md).

    model, layer, tensor           which: a number from 0, or first-last; of one of `tensor` GPUs
    value_bytes                    of a value in what was measured: 2 (mixed precision) or 4 (single)
    params, border_bytes, kept_bytes, in_bytes, flops_fwd, reads
                                   sizes, of a sample but for params; blank where another row of the layer has them
    gpu_type, micro_batch          on which, and samples at once; both blank: a row of sizes alone
    fwd_s, bwd_s, update_s         seconds

The files of Sailor (Strati et al. 2025, SOSP) are read as well: a folder with `layer_times.csv` and `layer_sizes.csv`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sim.hardware.gputypes import gpu_type
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError, Profile
from sim.performance.layer_times import Timing
from sim.performance.readers.operators import Op, assemble
from sim.performance.readers.sailor_files import is_sailor, sailor_rows
from sim.performance.tables.cells import Row, header_of, read_text, rows_of
from sim.performance.tables.points import catalogue_name
from traces.errors import did_you_mean

SIZES = ("params", "border_bytes", "kept_bytes", "in_bytes", "flops_fwd", "reads")
REQUIRED = ("model", "layer", "tensor", "value_bytes", "params", "border_bytes", "kept_bytes", "gpu_type",
            "micro_batch", "fwd_s", "bwd_s")  # fmt: skip
COLUMNS = (*REQUIRED, "update_s", "in_bytes", "flops_fwd", "reads")
MOST_LAYERS = 10_000
"""More layers than any real model has."""
_LAYERS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


@dataclass
class _Model:
    """The rows of one model: by (degree, layer) its sizes, by (type, degree, micro-batch, layer) its times."""

    value_bytes: int
    first: Row
    sizes: dict[tuple[int, int], dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    size_rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    times: dict[tuple[str, int, int], dict[int, tuple[float, float, float | None]]] = field(
        default_factory=lambda: defaultdict(dict))
    time_rows: dict[tuple[str, int, int, int], Row] = field(default_factory=dict)
    reads: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Of each layer, which ones it reads: text -> a degree whose row says so."""
    last: int = 0


def read_layers(path: str | Path, scaled_from: str | None = None) -> dict[str, OperatorGraph]:
    """The models of a table of measured layers, by name.

    Parameters
    ----------
    path : a CSV file as above, or a folder of Sailor's.
    scaled_from : GPU type from which those without measured layers are predicted; None: they are refused.

    Raises
    ------
    PerformanceError
        No such table; a cell that is not allowed; a size or a time that is there twice and differs; a layer without
        sizes or times that its neighbours have; a type without any layer to predict from.
    """
    source = str(path)
    rows = sailor_rows(Path(path)) if is_sailor(Path(path)) else _own_rows(source)
    found: dict[str, _Model] = {}
    for row in rows:
        _take(row, found)
    wanted = gpu_type(scaled_from).name if scaled_from is not None else None
    graphs = {name: _graph(name, model, source, wanted) for name, model in found.items()}
    if wanted is not None:
        types = sorted({gpu for graph in graphs.values() if graph.profile for gpu in graph.profile.gpus})
        if wanted not in types:
            raise PerformanceError("no layer was measured on the type to predict from", where=source, got=wanted,
                                   allowed=", ".join(types), todo="Name one of these with --layers-from.")
    return graphs


def _own_rows(source: str) -> Iterator[Row]:
    text = read_text(source)
    names = header_of(text)
    lacking = [name for name in REQUIRED if name not in names]
    strange = [name for name in names if name not in COLUMNS]
    if lacking:
        raise PerformanceError(f"column {lacking[0]!r} is missing", where=f"{source}, header",
                               got=", ".join(names)[:200], allowed=", ".join(COLUMNS),
                               todo=did_you_mean(lacking[0], strange) or "A table of measured layers has these columns "
                               "(docs/measured-tables.md).")  # fmt: skip
    if strange:
        raise PerformanceError("unknown column", where=f"{source}, header", got=strange[0],
                               allowed=", ".join(COLUMNS), todo=did_you_mean(strange[0], COLUMNS))
    for row in rows_of(text, source):
        # Optional columns that are not there are blank.
        yield replace(row, cells={name: row.cells.get(name, "") for name in COLUMNS})


def _take(row: Row, found: dict[str, _Model]) -> None:
    """Put a row to the others of its model."""
    name, size = row.text("model"), row.integer("value_bytes", 4)
    if size not in (2, 4):
        raise _refused(row, "value_bytes", "2 (mixed precision) or 4 (single)")
    model = found.setdefault(name, _Model(size, row))
    if model.value_bytes != size:
        raise _refused(row, "value_bytes", f"{model.value_bytes}, as in line {model.first.line} of the model")
    first, last = _span(row)
    ways = row.integer("tensor", 1024)
    model.last = max(model.last, last)
    given = {part: row.cells[part] for part in SIZES if row.cells[part]}
    for part in given:
        if part != "reads":
            row.number(part)
    timed = bool(row.cells["gpu_type"] or row.cells["micro_batch"])
    if timed:
        gpu = catalogue_name(row.text("gpu_type"), f"{row.where}, column 'gpu_type'")
        at = gpu, ways, row.integer("micro_batch", 10**6)
        update = row.number("update_s") if row.cells["update_s"] else None
        time = row.number("fwd_s"), row.number("bwd_s"), update
    for layer in range(first, last + 1):
        here = model.sizes[ways, layer]
        for part, cell in given.items():
            if here.setdefault(part, cell) != cell and (part == "reads" or float(here[part]) != float(cell)):
                raise _refused(row, part, f"{here[part]}, as in line {model.size_rows[ways, layer].line}, or blank")
        model.size_rows.setdefault((ways, layer), row)
        if "reads" in given:
            model.reads[layer].setdefault(given["reads"], ways)
        if timed:
            if layer in model.times[at]:
                raise PerformanceError(
                    "a layer is there twice", where=row.where, got=f"{name} layer {layer}, {gpu}, tensor {ways}, "
                    f"micro-batch {at[2]}", allowed=f"once (first in line {model.time_rows[*at, layer].line})",
                    todo="Average repeated measurements.",
                )  # fmt: skip
            model.times[at][layer], model.time_rows[*at, layer] = time, row


def _span(row: Row) -> tuple[int, int]:
    """`3` or `1-24`: first and last layer."""
    match = _LAYERS.fullmatch(row.text("layer"))
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last < MOST_LAYERS:
        raise _refused(row, "layer", f"a number from 0 to {MOST_LAYERS - 1:,}, or first-last")
    return first, last


def _refused(row: Row, column: str, allowed: str) -> PerformanceError:
    return PerformanceError("value not allowed", where=f"{row.where}, column {column!r}", got=row.cells[column],
                            allowed=allowed)  # fmt: skip


def _graph(name: str, model: _Model, source: str, scaled_from: str | None) -> OperatorGraph:
    """The graph of a model: a chain, but where `reads` says otherwise."""
    count, where = model.last + 1, f"{source}, model {name!r}"
    ways_known = sorted({ways for ways, _ in model.sizes} | {1})
    columns = {ways: _columns(model, ways, count, where) for ways in ways_known}
    if not model.times:
        raise PerformanceError("a model without measured times", where=where, allowed="rows with gpu_type, micro_batch")
    inputs = [_reads(model, layer) for layer in range(count)]
    base = columns[1]
    ops = [
        Op(f"layer {i}", "gemm", inputs[i], base["out_bytes"][i], flops=float(base["flops_fwd"][i]),
           params=base["weight_params"][i], stored_bytes=base["stored_bytes"][i])
        for i in range(count)
    ]  # fmt: skip
    timings: dict[tuple[str, int], list[Timing]] = defaultdict(list)
    for (gpu, ways, samples), layers in sorted(model.times.items()):
        _whole(layers, count, where, f"times on {gpu}, tensor {ways}, micro-batch {samples}")
        fwd, bwd, update = zip(*(layers[i] for i in range(count)), strict=True)
        step = None if None in update else _fixed(np.array(update, dtype=np.float64))
        timings[gpu, ways].append(Timing(samples, _fixed(np.array(fwd)), _fixed(np.array(bwd)), step))
    profile = Profile(
        {key: tuple(many) for key, many in timings.items()}, source, model.value_bytes,
        {ways: columns[ways] for ways in ways_known[1:]}, scaled_from,
    )  # fmt: skip
    graph = assemble(name, "a sample of the table", 0.0, ops, profile=profile)
    # What enters the first layer is not in a graph of operators; the table may say it, as of any other layer.
    return replace(graph, in_bytes=base["in_bytes"])


def _columns(model: _Model, ways: int, count: int, where: str) -> dict[str, np.ndarray]:
    """Sizes on one of `ways` GPUs, as columns of a graph: bytes of values of `VALUE_BYTES`."""
    sizes = {layer: of for (degree, layer), of in model.sizes.items() if degree == ways}
    for part in ("params", "border_bytes", "kept_bytes"):
        _whole({layer for layer, of in sizes.items() if part in of}, count, where, f"{part} of tensor {ways}")
    scale = VALUE_BYTES / model.value_bytes

    def column(part: str, missing: float = np.nan) -> np.ndarray:
        return np.array([float(sizes[layer].get(part, missing)) for layer in range(count)])

    out = scale * column("border_bytes")
    sources = [_reads(model, layer) for layer in range(count)]
    read = np.array([sum(out[i] for i in of if i >= 0) for of in sources])
    entering = scale * column("in_bytes")
    found = {
        "out_bytes": out, "weight_params": column("params"), "stored_bytes": scale * column("kept_bytes"),
        "in_bytes": np.where(np.isnan(entering), read, entering), "flops_fwd": column("flops_fwd"),
    }  # fmt: skip
    return {name: _fixed(array) for name, array in found.items()}


def _reads(model: _Model, layer: int) -> tuple[int, ...]:
    """Layers that a layer reads: those named, separated by blanks; else the one before it."""
    cells = model.reads.get(layer)
    if not cells:
        return (layer - 1,)
    if len(cells) > 1:
        row = model.size_rows[max(cells.values()), layer]
        raise PerformanceError("a layer reads others in another tensor degree", where=row.where,
                               got="; ".join(cells), allowed="the same in all degrees")
    text = next(iter(cells))
    parts = text.split()
    good = all(re.fullmatch(r"-1|\d{1,6}", part, re.ASCII) and int(part) < layer for part in parts)
    if not good:
        row = model.size_rows[cells[text], layer]
        raise _refused(row, "reads", f"layers before {layer}, by blanks; -1: the sample")
    return tuple(dict.fromkeys(map(int, parts)))


def _whole(layers: Iterable[int], count: int, where: str, what: str) -> None:
    """Refuse where a layer has nothing."""
    lacking = sorted(set(range(count)) - set(layers))
    if lacking:
        raise PerformanceError(
            f"a layer is missing: {what}", where=where, got=", ".join(f"no layer {i}" for i in lacking[:5]),
            allowed=f"each of the layers 0 to {count - 1}", todo="Add its row, or leave out the others.",
        )  # fmt: skip


def _fixed(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def as_layers(graphs: Mapping[str, OperatorGraph]) -> str:
    """Profiled graphs as such a table; `read_layers` reads the same times and sizes back.

    Raises
    ------
    PerformanceError
        A graph has no measured times, its type is not named, or its times were measured for a fraction of a sample.
    """
    lines = [",".join(COLUMNS)]
    for name, graph in graphs.items():
        profile = graph.profile
        if profile is None or "" in profile.gpus:
            raise PerformanceError("no measured layers to write", where=f"model {name!r}",
                                   got="no times" if profile is None else "no GPU type")
        quoted = '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name
        scale = profile.value_bytes / VALUE_BYTES
        for ways in sorted({1} | set(profile.degrees)):
            share = graph.tensor_parallel(ways)
            sizes = [share.weight_params, share.out_bytes * scale, share.stored_bytes * scale]
            rest = [share.in_bytes * scale, share.flops_fwd]
            blank = Timing(1, *(2 * (np.full(len(graph), np.nan),)))
            rows = [(gpu, one) for (gpu, of), many in profile.timings.items() if of == ways for one in many]
            for gpu, one in rows or [("", blank)]:
                if one.samples != int(one.samples):
                    raise PerformanceError("a micro-batch is no whole number", where=f"model {name!r}", got=one.samples)
                for i in range(len(graph)):
                    times = [one.fwd_s[i], one.bwd_s[i]]
                    update = "" if one.update_s is None else _cell(one.update_s[i])
                    reads = " ".join(map(str, graph.inputs[i]))
                    cells = [quoted, str(i), str(ways), str(profile.value_bytes), *(_cell(a[i]) for a in sizes), gpu,
                             str(int(one.samples)) if gpu else "", *map(_cell, times), update,
                             *(_cell(a[i]) for a in rest), reads]  # fmt: skip
                    lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _cell(value: float) -> str:
    """A number; unknown is blank."""
    return "" if np.isnan(value) else repr(float(value))
