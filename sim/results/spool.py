"""Tables too long to be held while a run goes on: their full row groups go to files beside the folder that is to be.

Such a file lies under a hidden name of `traces.leftovers`, `.NAME-TABLE.parquet.HOST-PID.part`, until the run is
written and it becomes one of its files: of a run that was killed no more is left than of any other writer. Its bytes
are those of the table written at once, since row groups begin at the same rows.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from traces.leftovers import beside, hold, let_go
from traces.outfile import followed

ROWS = 1 << 20
"""Rows of a row group, and of a table from which on it is not held whole: Arrow's own number."""


class Spooled:
    """A table in a file, read column by column; whatever else is asked of it is asked of the whole table.

    So it takes the place of an Arrow table for who reads a few columns of many rows, and for nobody else costs more.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._moved = file, False
        self.num_rows: int = pq.read_metadata(file).num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return pq.read_table(self._file, columns=[column])[column]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by copies and pickles before there is a file
            raise AttributeError(name)
        return getattr(self.whole(), name)

    def whole(self) -> pa.Table:
        """All columns, in memory."""
        return pq.read_table(self._file)

    def into(self, file: Path) -> None:
        """Put the file there: the first time it moves, afterwards it is copied."""
        if self._moved:
            shutil.copyfile(self._file, file)
        else:
            self._file.replace(file)
            self._file, self._moved = file, True

    def stands_at(self, file: Path) -> None:
        """The folder that it was put into has got its name."""
        self._file = file


class Spool:
    """Row groups of long tables, by name of the table. As a context it removes what did not become a file of the run.

    Parameters
    ----------
    folder : that the run will be written to.
    rows : of a row group.
    """

    def __init__(self, folder: Path, rows: int = ROWS) -> None:
        self.folder, self.rows = followed(folder), rows
        self._waiting: defaultdict[str, list[pa.Table]] = defaultdict(list)
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._files: dict[str, Path] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for writer in self._writers.values():
            with suppress(OSError, pa.ArrowException):  # the disk is full: the file goes anyway
                writer.close()
        for file in self._files.values():
            with suppress(OSError):
                file.unlink(missing_ok=True)
            let_go(file)

    def add(self, name: str, table: pa.Table) -> None:
        """Further rows of a table; as soon as they are as many as a row group, they go to its file.

        Raises
        ------
        OSError
            The file cannot be written, or the disk is full.
        """
        self._waiting[name].append(table)
        while self.waiting(name) >= self.rows:
            self._write(name, self.rows)

    def waiting(self, name: str) -> int:
        """Rows of a table that wait for a row group to be full."""
        return sum(table.num_rows for table in self._waiting[name])

    def finished(self, name: str, rest: pa.Table) -> pa.Table | Spooled:
        """The whole table, of which these are the last rows: as it is where it never filled a row group.

        Raises
        ------
        OSError
            See `add`.
        """
        if name not in self._writers and self.waiting(name) + rest.num_rows <= self.rows:
            waiting = self._waiting.pop(name, [])
            return pa.concat_tables([*waiting, rest]).combine_chunks() if waiting else rest
        self.add(name, rest)
        if left := self.waiting(name):
            self._write(name, left)
        self._writers.pop(name).close()
        return Spooled(self._files[name])

    def _write(self, name: str, rows: int) -> None:
        """Write the first so many rows that wait, as a row group."""
        waiting = self._waiting[name]
        table = waiting[0] if len(waiting) == 1 else pa.concat_tables(waiting)
        if name not in self._writers:
            self._files[name] = beside(self.folder.with_name(f"{self.folder.name}-{name}.parquet"), "part")
            hold(self._files[name])
            self._writers[name] = pq.ParquetWriter(
                self._files[name], table.schema, compression="zstd", store_schema=True)
        self._writers[name].write_table(table.slice(0, rows).combine_chunks(), row_group_size=rows)
        self._waiting[name] = [table.slice(rows)] if table.num_rows > rows else []
