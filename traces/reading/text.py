"""CSV read strictly: every cell is text until a reader asks for a number, and every message names the line.

No cell is ever taken for a missing value because of how it is spelled: users are called "NA" and "null", and
an id above 2**53 must not become a float.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pa_csv

from traces.arrow import as_numpy, word
from traces.errors import TraceError, did_you_mean
from traces.reading.unpack import Unpacked, room_of

#: Longest run that a published log can hold, in s (ten years): beyond it the unit is not seconds.
LONGEST_RUN_S = 3.2e8

PARQUET = b"PAR1"
BLOCK_BYTES = 1 << 24

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Table:
    """The cells of a CSV file as text. `lines` is the line number of each row in the file (from 1).

    `word` is what they count where they are no lines, in the words of a user: "row".
    """

    source: str
    cells: dict[str, pa.ChunkedArray]
    lines: np.ndarray
    word: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, name: str) -> bool:
        return name in self.cells

    def where(self, index: int, name: str) -> str:
        """The place of one cell, for a message."""
        return f"{self.source}, {self.word} {self.lines[index]}, column {name!r}"

    def text(self, name: str) -> np.ndarray:
        """A column as an object array of `str`, surrounding blanks stripped."""
        text: np.ndarray = as_numpy(pc.utf8_trim_whitespace(self.cells[name]))
        return text

    def number(
        self, name: str, *, low: float = 0.0, high: float = np.inf, integer: bool = False, blank: bool = False
    ) -> np.ndarray:
        """A column as float64.

        Parameters
        ----------
        low, high : float
            Bounds, both allowed.
        integer : bool
            Whether the values must be whole (12 and 12.0 are).
        blank : bool
            Whether an empty cell is allowed; it becomes NaN.

        Raises
        ------
        TraceError
            A cell is not a number, not finite, or out of bounds.
        """
        values, text = self._parse(name, blank)
        wrong = ~np.isfinite(values) | (values < low) | (values > high)
        if integer:
            wrong |= values != np.floor(values)
        if blank:
            wrong &= ~as_numpy(pc.equal(text, word("")))
        if wrong.any():
            index = int(np.flatnonzero(wrong)[0])
            bounds = f" from {low:g}" + (f" to {high:g}" if np.isfinite(high) else "")
            raise TraceError(
                "value not allowed", where=self.where(index, name), got=text[index].as_py(),
                allowed=("an integer" if integer else "a finite number") + bounds + ", or blank" * blank,
                todo="Check the unit and the column order, or correct the row.",
            )
        return values

    def _parse(self, name: str, blank: bool) -> tuple[np.ndarray, pa.ChunkedArray]:
        """The cells of a column as floats (NaN: blank or no number), and as stripped text."""
        text = pc.utf8_trim_whitespace(self.cells[name])
        given = pc.if_else(pc.equal(text, word("")), pa.nulls(1, pa.string())[0], text) if blank else text
        try:
            return as_numpy(pc.cast(given, pa.float64())), text
        except pa.ArrowInvalid:  # a cell is no number, or spelled as only Python reads it: "+5"
            cells = text.to_pylist()
            return np.array([float(c) if _NUMBER.fullmatch(c) else np.nan for c in cells]), text


def read_table(
    path: Path, required: Sequence[str], *, names: Sequence[str] | None = None, delimiter: str = ",",
    what: str = "",
) -> Table:
    """Read a CSV file with a header as text.

    Blank lines are skipped; a byte-order mark, CRLF and a missing last newline are accepted.

    Parameters
    ----------
    required : sequence of str
        Columns that must be there.
    names : sequence of str, optional
        Names of the columns of a file without a header.
    delimiter : str
        What stands between cells: one character.
    what : str
        What the file is, where it is no trace: "capacity file".

    Raises
    ------
    TraceError
        The file cannot be opened, is empty or no UTF-8 text, has no such column, names a column twice, or has
        a row with too few or too many cells.
    """
    source = str(path)
    data = read_bytes(path)
    if not data.strip():
        raise TraceError("the file is empty", where=source, got=f"{len(data)} bytes",
                         allowed="a header and at least one row")
    check_text(data, source)
    if names is None:
        first, _, body = data.partition(b"\n")
        names, above = read_header(first.decode("utf-8"), source, required, delimiter), 1
    else:
        body, above = data.removeprefix(codecs.BOM_UTF8), 0
    if not body.strip():
        raise no_rows(source, what)
    return parse_rows(body, names, source, delimiter, above)


def no_rows(source: str, what: str = "") -> TraceError:
    """The error of a file with a header alone; `what` it is, where it is no trace."""
    return TraceError(f"the {what} has no rows" if what else "the trace has no jobs", where=source,
                      got="a header and no rows", allowed="at least one row",
                      todo="Check the file." if what else "Check the file and the filters.")


def read_bytes(path: Path) -> bytes:
    """The whole file, unpacked where it is a gzip or tar, or a TraceError that says why not.

    Its lines are counted as rows, but for Parquet and JSON, where lines say nothing: those are counted by who parses.
    """
    found: list[bytes] = []
    with Unpacked(path) as stream:
        room = room_of(path)
        while block := stream.read(BLOCK_BYTES):
            found.append(block)
            in_rows = not found[0].lstrip().startswith((PARQUET, b"{", b"["))
            room.take(len(block), block.count(b"\n") if in_rows else 0)
    return found[0] if len(found) == 1 else b"".join(found)


def read_json(path: Path, allowed: str) -> Any:
    """The content of a JSON file, unpacked where it is packed; `allowed` says what it should be.

    Raises
    ------
    TraceError
        It cannot be read, is no JSON (names the line), nests too deep, holds a number that is too long, or an object
        that has a key twice: which of the two values counts is not told.
    """
    data = read_bytes(path)
    room_of(path).take_json(data)
    try:
        return json.loads(data, object_pairs_hook=_object, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise TraceError("the file is no valid JSON", where=f"{path}, line {error.lineno}, column {error.colno}",
                         got=error.msg, allowed=allowed, todo="Fetch the file again: it may be cut short.") from None
    except UnicodeDecodeError:
        raise TraceError("the file is no valid JSON", where=str(path), got="bytes that are no UTF-8",
                         allowed=allowed) from None
    except RecursionError:
        raise TraceError("the file is no valid JSON", where=str(path), got="lists in lists without end",
                         allowed=allowed) from None
    except _NotAllowedError as error:
        raise TraceError(str(error), where=str(path), got=error.got, allowed=allowed) from None


class _NotAllowedError(Exception):
    """What JSON allows and we do not."""

    def __init__(self, what: str, got: str) -> None:
        super().__init__(what)
        self.got = got


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        values = [str(value)[:60] for name, value in pairs if name == twice]
        raise _NotAllowedError(f"an object has key {twice[:60]!r} twice", ", ".join(values[:5]))
    return found


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python reads some thousands
        raise _NotAllowedError("a number is too long", f"{len(digits):,} digits: {digits[:20]}…") from None


def check_text(data: bytes, source: str, above: int = 0) -> None:
    """Raise a TraceError that names the line if `data`, which comes after `above` lines, is no UTF-8 text."""
    try:
        data.decode("utf-8")
        at = data.find(b"\0")
    except UnicodeDecodeError as error:
        at = error.start
    if at >= 0:
        raise TraceError("the file is not UTF-8 text", where=f"{source}, line {above + data.count(10, 0, at) + 1}",
                         got=data[at : at + 8], allowed="CSV as UTF-8 text",
                         todo="Decompress or convert the file, or name another --format.")


def read_header(line: str, source: str, required: Sequence[str], delimiter: str = ",") -> list[str]:
    """The column names of a header line; a TraceError where a required one is missing or there twice."""
    try:
        cells = csv.reader([line.removeprefix("\ufeff").rstrip("\r")], delimiter=delimiter)
        names = [n.strip() for n in next(cells, [])]
    except csv.Error as error:
        raise TraceError("the header is no CSV", where=f"{source}, line 1", got=str(error)) from None
    for name in required:
        if name not in names:
            check_header_first(line, source)
            raise TraceError(
                f"column {name!r} is missing", where=f"{source}, line 1", got=", ".join(names)[:200],
                allowed="a header with " + ", ".join(required),
                todo=did_you_mean(name, names) or "Name the right --format, or rename the column.",
            )
        if names.count(name) > 1:
            raise TraceError(f"column {name!r} is there twice", where=f"{source}, line 1",
                             got=", ".join(names)[:200], allowed="each column once")
    return names


def check_header_first(text: str, source: str) -> None:
    """Raise a TraceError if a text begins with lines that are comments to other programs: the header comes first."""
    if text.lstrip("\ufeff").startswith("#"):
        line = text.split("\n", 1)[0].rstrip("\r")
        raise TraceError("lines that begin with # stand above the header", where=f"{source}, line 1", got=line[:80],
                         allowed="the header in the first line", todo="Remove them, or the # before the header.")


def parse_rows(
    body: bytes, names: Sequence[str], source: str, delimiter: str, above: int, keep: Sequence[str] | None = None
) -> Table:
    """The rows of `body`, which comes after `above` lines of the file; of the columns, those to `keep` (default: all).

    Raises
    ------
    TraceError
        A row has too few or too many cells (names the line), or the text is no CSV.
    """
    ragged: list[pa_csv.InvalidRow] = []

    def note(row: pa_csv.InvalidRow) -> str:
        ragged.append(row)
        return "skip"

    # Arrow wants unlike names; the true ones are put back by position.
    labels = [f"c{i}" for i in range(len(names))]
    kept = {f"c{i}": name for i, name in enumerate(names) if keep is None or name in keep}
    # It drops a byte-order mark at the start of what it reads: here that would be part of the first row's text.
    mark = codecs.BOM_UTF8 if body.startswith(codecs.BOM_UTF8) else b""
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(mark + body),
            read_options=pa_csv.ReadOptions(column_names=labels, use_threads=False, block_size=1 << 24),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=b'"' in body, invalid_row_handler=note),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(labels, pa.string()), strings_can_be_null=False, check_utf8=False,
                include_columns=list(kept)),
        )
    except pa.ArrowInvalid as error:
        raise TraceError("the file is no CSV", where=source, got=str(error)[:200],
                         todo="Check quotes and line ends, or name another --format.") from None
    if ragged:
        row = ragged[0]
        lines = _lines(body, len(table) + len(ragged), above)
        line = lines[row.number - 1] if row.number and row.number <= len(lines) else "?"
        raise TraceError(
            "a row has the wrong number of cells", where=f"{source}, line {line}",
            got=f"{row.actual_columns}: {row.text[:80]}",
            allowed=f"{row.expected_columns} cells, as in the header",
            todo="Correct the row (a trailing comma counts as a cell).",
        )
    return Table(source, {name: table.column(label) for label, name in kept.items()}, _lines(body, len(table), above))


def _lines(body: bytes, rows: int, above: int) -> np.ndarray:
    """Line number of each row, with `above` lines before the first; blank lines count though they are no rows."""
    if body.count(b"\n") + (not body.endswith(b"\n")) != rows:
        full = np.array([i for i, line in enumerate(body.splitlines(), start=above + 1) if line])
        if len(full) == rows:  # else a quoted cell holds line ends, and rows are counted instead
            return full
    return np.arange(above + 1, above + 1 + rows)
