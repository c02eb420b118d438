"""hetsim's own trace files: the columns of `traces.schema` as Parquet or CSV, with a description beside."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traces.errors import TraceError, did_you_mean
from traces.reader import Head, Reader
from traces.schema import BY_NAME, COLUMNS, REQUIRED
from traces.text import read_bytes, read_table
from traces.trace import Provenance, Trace

VERSION = 1
PARQUET_MAGIC = b"PAR1"


def sidecar(path: Path) -> Path:
    """Where the description of a trace file is: its name with .json added."""
    return path.with_name(path.name + ".json")


def write_trace(trace: Trace, path: Path, *, selection: str = "") -> Path:
    """Write a trace as Parquet or CSV, by the ending of `path`, and its description beside it.

    Each file is written under a temporary name and renamed when whole. Reading gives the same trace: numbers
    bit by bit, texts character by character.

    Parameters
    ----------
    selection : str
        What was selected from the source ("first 1000 jobs"), for the description.

    Raises
    ------
    TraceError
        Another ending, or a folder that cannot be written.
    """
    path = Path(path)
    writers = {".parquet": _write_parquet, ".csv": _write_csv}
    if path.suffix not in writers:
        raise TraceError("unknown file ending", where=str(path), got=path.suffix, allowed=", ".join(writers))
    about = {
        "hetsim_trace": VERSION, "jobs": len(trace), "sha256": trace.content_hash(), "selection": selection,
        "source": trace.provenance.source, "format": trace.provenance.format, "rule": trace.provenance.rule,
        "seed": trace.provenance.seed, "rows_read": trace.provenance.rows_read,
        "epoch_s": trace.provenance.epoch_s,
        "counts": dict(trace.provenance.counts), "notes": list(trace.provenance.notes),
        "units": {c.name: c.unit for c in COLUMNS if c.unit},
    }
    text = json.dumps(about, indent=2, ensure_ascii=True) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, lambda stream: writers[path.suffix](trace, stream))
        _replace(sidecar(path), lambda stream: stream.write(text.encode()))
    except (OSError, UnicodeEncodeError) as error:
        raise TraceError("cannot write the trace", where=str(path), got=str(error)) from None
    return path


def read_canonical(path: Path) -> Trace:
    """Read a trace that `write_trace` wrote, or one made by hand with the columns of `traces.schema`.

    Only job_id, submit_s, duration_s and num_gpus must be there; others get their default. The source, rule
    and counts of the description beside the file are kept; a note says if the content is no longer what was
    described.

    Raises
    ------
    TraceError
        The file is damaged or cut short, has an unknown column, or lacks one; or a value is not allowed.
    """
    parquet = _starts(path)
    columns, rows = _read_parquet(path) if parquet else _read_csv(path)
    n = len(next(iter(columns.values()), ()))
    about, notes = _about(path)
    provenance = Provenance(
        source=str(path), format="canonical", rule=about.get("rule", "duration_s as given"),
        seed=about.get("seed"), rows_read=about.get("rows_read", n), counts=about.get("counts", {}),
        notes=notes, epoch_s=about.get("epoch_s"),
    )
    trace = Trace.from_columns(columns, provenance, rows=rows, row_word="row" if parquet else "line")
    if "sha256" in about and about["sha256"] != trace.content_hash():
        changed = f"the content is not what {sidecar(path).name} describes: edited since it was written"
        return trace.replace(Provenance(**{**vars(provenance), "notes": (*notes, changed)}))
    return trace


def _read_parquet(path: Path) -> tuple[dict[str, np.ndarray], None]:
    try:
        table = pq.read_table(pa.BufferReader(read_bytes(path)))
        names = list(table.column_names)  # decodes them: a damaged name fails here
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError("the file is no whole Parquet file", where=str(path), got=str(error)[:150],
                         todo="Write it again: it may be cut short.") from None
    _check_names(names, path)
    columns = {}
    for name in names:
        target = pa.string() if BY_NAME[name].dtype == "text" else None
        kind = table.column(name).type
        if target is None and not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            # A timestamp or duration is a number of its own unit underneath: it would be wrong by a thousand, silently.
            raise TraceError("column of another type", where=f"{path}, column {name!r}", got=str(kind),
                             allowed=BY_NAME[name].allowed, todo="Write it as a number in the unit of its name.")
        try:
            cells = table.column(name).cast(target) if target else table.column(name)
            columns[name] = (pc.fill_null(cells, "") if target else cells).to_numpy()
        except (pa.ArrowException, ValueError) as error:
            raise TraceError("column of another type", where=f"{path}, column {name!r}", got=str(error)[:100],
                             allowed=BY_NAME[name].allowed) from None
    return columns, None


def _read_csv(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    table = read_table(path, REQUIRED)
    _check_names(list(table.cells), path)
    columns = {}
    for name in table.cells:
        column = BY_NAME[name]
        if column.dtype == "text":
            columns[name] = table.cells[name].to_numpy()
        else:
            columns[name] = table.number(name, low=column.low, high=column.high, blank=column.nan_ok,
                                         integer=column.dtype.startswith("int"))
    return columns, table.lines


def _check_names(names: list[str], path: Path) -> None:
    for name in names:
        if name not in BY_NAME:
            near = did_you_mean(name, BY_NAME)
            raise TraceError("unknown column", where=str(path), got=name, allowed=", ".join(BY_NAME),
                             todo=near or "Remove the column, or name the right --format.")
        if names.count(name) > 1:
            raise TraceError(f"column {name!r} is there twice", where=str(path), allowed="each column once")


def _write_parquet(trace: Trace, stream: BinaryIO) -> None:
    arrays = [pa.array(getattr(trace, c.name), pa.string() if c.dtype == "text" else None) for c in COLUMNS]
    fields = [pa.field(c.name, a.type, metadata={"unit": c.unit, "meaning": c.meaning})
              for c, a in zip(COLUMNS, arrays, strict=True)]
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), stream, compression="zstd")


def _write_csv(trace: Trace, stream: BinaryIO) -> None:
    # A bare carriage return ends a line for most readers; pandas quotes it only if told to quote all text.
    texts = (getattr(trace, c.name) for c in COLUMNS if c.dtype == "text")
    quote_all = any("\r" in "".join(t) for t in texts)
    table = trace.to_frame().to_csv(index=False, lineterminator="\n",
                                    quoting=csv.QUOTE_NONNUMERIC if quote_all else csv.QUOTE_MINIMAL)
    stream.write(table.encode())


def _replace(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write to a temporary name in the same folder, then rename: nobody sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _about(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The description beside a trace file, and notes made from it."""
    beside = sidecar(path)
    if not beside.is_file():
        return {}, ()
    try:
        about = json.loads(beside.read_text("utf-8"))
        source = f"made from {about['source']} ({about['format']})"
        selection = [about["selection"]] if about["selection"] else []
        kinds = isinstance(about["counts"], dict) and isinstance(about["rule"], str)
        notes = (source, *selection, *map(str, about["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        kinds, about, notes = False, {}, ()
    return (about, notes) if kinds else ({}, (f"{beside.name} is no description of a trace, ignored",))


def _starts(path: Path) -> bool:
    return Head.of(path).first.startswith(PARQUET_MAGIC)


def _sniff(head: Head) -> bool:
    return head.first.startswith(PARQUET_MAGIC) or set(REQUIRED) <= set(head.header)


READER = Reader(
    name="canonical",
    description="hetsim's own table, Parquet or CSV: " + ",".join(REQUIRED) + " and more (traces/schema.py)",
    public="written by hetsim (traces.load.write_trace), or by hand",
    header=REQUIRED,
    read=read_canonical,
    sniff=_sniff,
)
