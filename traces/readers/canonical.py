"""hetsim's own trace files: the columns of `traces.columns` as Parquet or CSV, with a description beside."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traces import arrow
from traces.columns import BY_NAME, REQUIRED
from traces.errors import HetsimError, TraceError, did_you_mean
from traces.outfile import refuse_existing, written
from traces.reading.parquet_tables import read_parquet
from traces.reading.reader import Head, Reader
from traces.reading.text import read_bytes, read_table
from traces.reading.times import EARLIEST_S, LATEST_S
from traces.reading.unpack import room_of
from traces.study.description import described, description, sidecar
from traces.trace import Provenance, Trace

PARQUET_MAGIC = b"PAR1"


def write_trace(
    trace: Trace, path: Path, *, selection: str = "", recipe: Mapping[str, Any] | None = None
) -> Path:
    """Write a trace as Parquet or CSV, by the ending of `path`, and its description beside it.

    Columns that are there only `if_said` (`traces.columns.Column`) are left out where no job says anything.
    Both are written under temporary names and renamed when whole, the table last: who finds it finds its description,
    too. Reading gives the same trace: numbers bit by bit, texts character by character.

    Parameters
    ----------
    selection : str
        What was selected from the source ("first 1000 jobs"), for the description.
    recipe : mapping, optional
        From what, and how, the same trace can be made again: settings by name, kept as they are.

    Raises
    ------
    TraceError
        Another ending, or a file that cannot be written.
    """
    path = Path(path)
    write = _writer(path)
    text = json.dumps(description(trace, selection, recipe), indent=2, ensure_ascii=True) + "\n"
    try:
        for file in (path, sidecar(path)):
            refuse_existing(file, force=True)  # seen before either is replaced
        with written(path) as table, written(sidecar(path)) as words:
            with table.open("wb") as stream:
                write(trace, stream)
            words.write_bytes(text.encode())
    except UnicodeEncodeError as error:
        raise TraceError("cannot write the trace", where=str(path), got=str(error)) from None
    except HetsimError as error:
        raise TraceError(f"cannot write the trace: {error.what}", where=error.where, got=error.got,
                         allowed=error.allowed, todo=error.todo) from None
    return path


def check_ending(path: Path) -> None:
    """Raise TraceError if `write_trace` cannot write a file of this ending."""
    _writer(Path(path))


def read_canonical(path: Path) -> Trace:
    """Read a trace that `write_trace` wrote, or one made by hand with the columns of `traces.columns`.

    Only job_id, submit_s, duration_s and num_gpus must be there; others get their default. The rule, counts and
    calendar of the description beside the file are kept; a note says if the content is no longer what was described.
    Without one, `submit_s` in seconds since 1970 (all from 2000 to 2099) is a calendar in UTC, as a note says.

    Raises
    ------
    TraceError
        The file is damaged or cut short, has an unknown column, or lacks one; or a value is not allowed.
    """
    parquet = _starts(path)
    columns, rows = _read_parquet(path) if parquet else _read_csv(path)
    n = len(next(iter(columns.values()), ()))
    about, content = described(path, n)
    if not sidecar(path).is_file():
        about = _dated(about, columns.get("submit_s", np.empty(0)))
    trace = Trace.from_columns(columns, about, rows=rows, row_word="row" if parquet else "line")
    if content and content != trace.content_hash():
        changed = f"the content is not what {sidecar(path).name} describes: edited since it was written"
        counts = {**about.counts, "files edited since they were described": 1}
        return replace(trace, provenance=replace(about, notes=(*about.notes, changed), counts=counts))
    return trace


def _dated(about: Provenance, submit_s: np.ndarray) -> Provenance:
    """Without a description, submissions that all are from 2000 to 2099 as POSIX seconds are taken for those."""
    if len(submit_s) and submit_s.dtype.kind in "if" and submit_s.min() >= EARLIEST_S and submit_s.max() < LATEST_S:
        note = "submit_s from 2000 to 2099 as seconds since 1970: a calendar, in UTC"
        return replace(about, epoch_s=0.0, notes=(*about.notes, note))
    return about


def _read_parquet(path: Path) -> tuple[dict[str, np.ndarray], None]:
    try:
        table = read_parquet(pa.BufferReader(read_bytes(path)), room_of(path))
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
            columns[name] = arrow.as_numpy(pc.fill_null(cells, arrow.word("")) if target else cells)
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
            columns[name] = arrow.as_numpy(table.cells[name])
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
    said = trace.said()
    columns = [BY_NAME[name] for name in said]
    arrays = [arrow.column(said[c.name], pa.string() if c.dtype == "text" else None) for c in columns]
    fields = [pa.field(c.name, a.type, metadata={"unit": c.unit, "meaning": c.meaning})
              for c, a in zip(columns, arrays, strict=True)]
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), stream, compression="zstd")


def _write_csv(trace: Trace, stream: BinaryIO) -> None:
    # A bare carriage return ends a line for most readers; pandas quotes it only if told to quote all text.
    said = trace.said()
    quote_all = any("\r" in "".join(values) for name, values in said.items() if BY_NAME[name].dtype == "text")
    table = trace.to_frame()[list(said)].to_csv(index=False, lineterminator="\n",
                                                quoting=csv.QUOTE_NONNUMERIC if quote_all else csv.QUOTE_MINIMAL)
    stream.write(table.encode())


def _writer(path: Path) -> Callable[[Trace, BinaryIO], None]:
    writers = {".parquet": _write_parquet, ".csv": _write_csv}
    if path.suffix not in writers:
        raise TraceError("unknown file ending", where=str(path), got=path.suffix, allowed=", ".join(writers))
    return writers[path.suffix]


def _starts(path: Path) -> bool:
    return Head.of(path).first.startswith(PARQUET_MAGIC)


def _sniff(head: Head) -> bool:
    own = not head.header or set(head.header) & set(BY_NAME)  # others publish Parquet, too
    return bool(head.first.startswith(PARQUET_MAGIC) and own) or set(REQUIRED) <= set(head.header)


READER = Reader(
    name="canonical",
    description="hetsim's own table, Parquet or CSV: " + ",".join(REQUIRED) + " and more (traces/columns.py)",
    public="written by hetsim (traces.load.write_trace), or by hand",
    header=REQUIRED,
    read=read_canonical,
    sniff=_sniff,
)
