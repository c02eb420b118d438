"""A CSV file of measurements, read strictly: cells are text until a number is asked for; messages name the line."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.performance.graph import PerformanceError
from traces.reading.limits import plain_bytes

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_text(path: str | Path) -> str:
    """The text of a file.

    Raises
    ------
    PerformanceError
        No such file, a folder, a device, or not UTF-8 text.
    """

    def refused(got: str, todo: str = "") -> PerformanceError:
        return PerformanceError(
            "the measured table cannot be read", where=str(path), got=got, allowed="a JSON or CSV file", todo=todo
        )

    file = Path(path)
    try:
        if file.is_dir():
            raise refused("a folder", "Name one file of it.")
        if file.exists() and not file.is_file():
            raise refused("a pipe, socket or device")
        text = plain_bytes(file, PerformanceError).decode("utf-8-sig")
    except OSError as error:
        raise refused(error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise refused(f"no UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a NUL in the name
        raise refused(str(error)) from None
    if "\0" in text:
        raise refused("no text: it holds a zero byte")
    if not text.strip():
        raise refused("an empty file")
    return text


@dataclass(frozen=True)
class Row:
    """One row; `where` opens its messages."""

    cells: dict[str, str]
    source: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.source}, line {self.line}"

    def text(self, name: str) -> str:
        """A cell that must not be blank."""
        if not self.cells[name]:
            raise PerformanceError("a cell is blank", where=f"{self.where}, column {name!r}", allowed="a name")
        return self.cells[name]

    def number(self, name: str, *, above: bool = False) -> float:
        """A finite number from 0, or above 0."""
        cell = self.cells[name]
        value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
        if not math.isfinite(value) or value < 0 or (above and value == 0):
            raise PerformanceError(
                "value not allowed",
                where=f"{self.where}, column {name!r}",
                got=cell,
                allowed="a finite number above 0" if above else "a finite number from 0",
            )
        return value

    def integer(self, name: str, most: int = 10**9) -> int:
        """A whole number from 1."""
        cell = self.cells[name]
        value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
        if not 1 <= value <= most or value != math.floor(value):
            raise PerformanceError(
                "value not allowed",
                where=f"{self.where}, column {name!r}",
                got=cell,
                allowed=f"an integer from 1 to {most:,}",
            )
        return int(value)


def header_of(text: str) -> list[str]:
    """Column names in the first line that is not blank."""
    return [name.strip() for name in next(csv.reader(line for line in text.splitlines() if line.strip()))]


def rows_of(text: str, source: str) -> Iterator[Row]:
    """The rows below the header, blanks around cells stripped, blank lines left out.

    Raises
    ------
    PerformanceError
        A column twice, a row with more or fewer cells than the header, quotes that do not close, no rows.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    names: list[str] = []
    any_row = False
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if not any(cells) and len(cells) <= 1:
                continue
            if not names:
                names = cells
                if len(set(names)) < len(names):
                    raise PerformanceError("a column is there twice", where=f"{source}, line {reader.line_num}",
                                           got=", ".join(names)[:200], allowed="each column once")
                continue
            if len(cells) != len(names):
                raise PerformanceError("a row has the wrong number of cells",
                                       where=f"{source}, line {reader.line_num}", got=len(cells),
                                       allowed=f"{len(names)}, as in the header")
            any_row = True
            yield Row(dict(zip(names, cells, strict=True)), source, reader.line_num)
    except csv.Error as error:
        raise PerformanceError("the file is no CSV", where=f"{source}, line {reader.line_num}",
                               got=str(error)) from None
    if not any_row:
        raise PerformanceError("the measured table has no rows", where=source, allowed="a row a measurement")
