"""CSV files of any size, read strictly in pieces: memory does not grow with the file, and progress can be watched.

    with watching(lambda done, total: ...):
        for table in pieces(path, ("job_name", "start_time"), names=NAMES):
            ...  # a traces.reading.text.Table of some 4 MiB of rows; its lines are those of the file

Plain files, gzip, tar.gz and its parts are read alike (`traces.reading.unpack`). `read_table` of `traces.reading.text`
reads a whole file at once by the same rules.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from traces.errors import TraceError
from traces.reading.text import Table, check_text, no_rows, parse_rows, read_header
from traces.reading.unpack import Unpacked, room_of, watching

__all__ = ["joined", "names_beside", "pieces", "watching", "whole_rows"]

PIECE_BYTES = 1 << 22
LONGEST_ROW_BYTES = 1 << 26


def pieces(
    path: Path, required: Sequence[str], *, names: Sequence[str] | None = None, keep: Sequence[str] | None = None,
    delimiter: str = ",", piece_bytes: int = PIECE_BYTES, held: bool = False,
) -> Iterator[Table]:
    """Read a CSV file piece by piece, each cell as text.

    Parameters
    ----------
    required : sequence of str
        Columns that must be there.
    names : sequence of str, optional
        Names of the columns, in order, of a file that may lack a header. A first line that has all required names is
        taken for a header nevertheless, and goes before `names`.
    keep : sequence of str, optional
        The columns to return (default: the required ones). Others are looked over, but not kept.
    delimiter : str
        What stands between cells: one character.
    piece_bytes : int
        About how much text, unpacked, a piece holds.
    held : bool
        Who asks keeps all pieces: they have the room of a file that is read whole.

    Raises
    ------
    TraceError
        As `traces.reading.text.read_table`: the line that a message names is that of the (unpacked) file. Also: a row
        longer than 64 MiB, or a packed file that is cut short or damaged.
    """
    source, keep = str(path), required if keep is None else keep
    header: Sequence[str] | None = None
    above = 0
    for data in whole_rows(path, piece_bytes, held=held):
        check_text(data, source, above)
        body, skipped = data, 0
        if header is None:
            body = data.removeprefix(codecs.BOM_UTF8)
            first, _, rest = body.partition(b"\n")
            line = first.decode("utf-8")
            if names is None or _has(line, required, delimiter):
                header, body, skipped = read_header(line, source, required, delimiter), rest, 1
            else:
                header = names
        if body.strip():
            yield parse_rows(body, header, source, delimiter, above + skipped, keep)
        above += data.count(b"\n")
    if header is None:
        raise TraceError("the file is empty", where=source, got="0 rows", allowed="a table with at least one row")


def joined(tables: Iterable[Table], source: str) -> Table:
    """Pieces as one table; a TraceError where there are none."""
    found = list(tables)
    if not found:
        raise no_rows(source)
    cells = {name: pa.chunked_array([chunk for table in found for chunk in table.cells[name].chunks], pa.string())
             for name in found[0].cells}
    return Table(source, cells, pa.chunked_array([table.lines for table in found]).to_numpy())


def names_beside(path: Path, known: Sequence[str]) -> list[str]:
    """The column names of a file without a header: from `x.header` beside `x.csv` or `x.tar.gz`, else `known`.

    Raises
    ------
    TraceError
        The header file cannot be read, or lacks one of the known names.
    """
    beside = path.with_name(path.name.split(".", 1)[0] + ".header")
    if not beside.is_file():
        return list(known)
    with Unpacked(beside) as stream:
        data = stream.read(1 << 16)
    check_text(data, str(beside))
    return read_header(data.partition(b"\n")[0].decode("utf-8"), str(beside), known)


def _has(line: str, required: Sequence[str], delimiter: str) -> bool:
    try:
        return set(required) <= {name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])}
    except csv.Error:
        return False


def whole_rows(path: Path, piece_bytes: int, *, held: bool = False) -> Iterator[bytes]:
    """The bytes of a file in pieces that end with a row: a line end outside quotes."""
    with Unpacked(path) as stream:
        left, room = b"", room_of(path, streamed=not held)
        while block := stream.read(piece_bytes):
            room.take(len(block), block.count(b"\n"))
            data = left + block
            end = _row_end(data)
            if end < 0 and len(data) > LONGEST_ROW_BYTES:
                raise TraceError("a row without an end", where=str(path), got=f"{len(data)} bytes in one row",
                                 allowed=f"up to {LONGEST_ROW_BYTES}", todo="Check the quotes, or that it is a CSV.")
            left = data[end + 1 :]
            if end >= 0:
                yield data[: end + 1]
        if left:
            yield left


def _row_end(data: bytes) -> int:
    """Where the last whole row ends (-1: nowhere): the last line end after an even number of quotes."""
    end = data.rfind(b"\n")
    quotes = data.count(b'"', 0, max(end, 0))
    while end >= 0 and quotes % 2:
        before = data.rfind(b"\n", 0, end)
        quotes -= data.count(b'"', max(before, 0), end)
        end = before
    return end
