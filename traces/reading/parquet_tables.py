"""Parquet files read within the room of an input file: rows are counted before any is read, text before it unfolds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traces.reading.limits import Room
from traces.reading.parquet_footer import described

BATCH_ROWS = 1 << 16
FEW_ROWS = 1 << 10
"""Rows of a batch with text inside lists, whose length is only known once it is read."""


def read_parquet(
    source: Path | pa.BufferReader, room: Room, columns: Sequence[str] | None = None, *, arrays: bool = False
) -> pa.Table:
    """Read a Parquet file into one table; a folder's name in its path adds no column.

    What the file says of its rows and values is taken from the room before one of them is read. How long its text is
    cannot be told from that, since equal values are stored once: columns of text are read folded, as numbers of unlike
    values, and their length is taken from the room, batch by batch, before they unfold.

    Parameters
    ----------
    columns : those to read; default: all.
    arrays : what is read stays arrays: rows of numbers alone take what their values do, and are not counted as objects
        (millions of decisions, each like the last, are a small file).

    Raises
    ------
    HetsimError
        It holds more than is taken: see `Room.take`.
    pyarrow.ArrowException, OSError, ValueError, KeyError
        It is no whole Parquet file, or has no such column.
    """
    with pa.OSFile(str(source)) if isinstance(source, Path) else source as file:
        take_described(file, room, columns, arrays=arrays)
        # One thread: those that Arrow starts are sometimes still there when the process ends, which then aborts.
        whole = pq.ParquetFile(file, pre_buffer=False)
        schema, rows = whole.schema_arrow, BATCH_ROWS
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        texts = [field.name for field in schema if _is_text(field.type)]
        if any(_holds_text(field.type) for field in schema):
            rows = FEW_ROWS
        tables = []
        folded = pq.ParquetFile(file, metadata=whole.metadata, pre_buffer=False, read_dictionary=texts)
        for batch in folded.iter_batches(rows, columns=None if columns is None else list(columns), use_threads=False):
            room.take(sum(_length_bytes(column) for column in batch.columns))
            cells = [_unfolded(column) if name in texts else column
                     for name, column in zip(batch.schema.names, batch.columns, strict=True)]
            tables.append(pa.table(cells, names=batch.schema.names))
    return pa.concat_tables(tables).cast(schema) if tables else schema.empty_table()


def take_described(
    source: pa.NativeFile, room: Room, columns: Sequence[str] | None = None, *, arrays: bool = False
) -> None:
    """Take from the room what a Parquet file says that it holds; `arrays` as in `read_parquet`.

    Raises
    ------
    HetsimError
        It holds more than is taken: see `Room.take`.
    pyarrow.ArrowInvalid
        Its footer is damaged, or a column is encrypted.
    """
    values_bytes = stored_bytes = 0
    only_numbers = True
    rows, found = described(source)
    for chunk in found:
        if columns is None or chunk.name in columns:
            values_bytes += chunk.values * chunk.value_bytes
            stored_bytes += chunk.unpacked_bytes
            only_numbers &= not chunk.is_text
    room.take(values_bytes, 0 if arrays and only_numbers and values_bytes else rows)
    if stored_bytes > room.bytes:  # a page is unpacked whole
        room.take(stored_bytes)


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
                                       pa.types.is_large_binary, pa.types.is_string_view, pa.types.is_binary_view))


def _holds_text(kind: pa.DataType) -> bool:
    """Whether it is a list, table or map with text in it; numbers in lists are counted by what the file says."""
    return pa.types.is_nested(kind) and any(
        _is_text(inner) or _holds_text(inner) for inner in (kind.field(i).type for i in range(kind.num_fields)))


def _length_bytes(column: pa.Array) -> int:
    """Bytes of text once it is unfolded; of lists with text, all that they take; of numbers 0: those are described."""
    if _holds_text(column.type):
        return int(column.nbytes)
    if not (pa.types.is_dictionary(column.type) and _is_text(column.type.value_type)):
        return 0
    lengths = pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)
    return int(pc.sum(lengths).as_py() or 0)


def _unfolded(column: pa.Array) -> pa.Array:
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column
