"""What a trace format is: a name, how to know it when seen, and how to read it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from traces.errors import TraceError, did_you_mean
from traces.reading.unpack import Unpacked
from traces.trace import Trace

HEAD_BYTES = 65_536
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Head:
    """The beginning of a file (or folder): what a reader sees when asked whether the format is its own."""

    path: Path
    first: bytes

    @classmethod
    def of(cls, path: Path) -> Head:
        """Read the first bytes, unpacked, of a file (of a folder: of its first CSV by name, or of its folders')."""
        file = path
        if path.is_dir():
            patterns = ("[!.]*.csv", "[!.]*/[!.]*.csv", "[!.]*.gz*", "[!.]*/[!.]*.gz*")
            inside = next((found for pattern in patterns if (found := sorted(path.glob(pattern)))), None)
            if inside is None:
                return cls(path, b"")
            file = inside[0]
        with Unpacked(file) as stream:
            return cls(path, stream.read(HEAD_BYTES))

    @cached_property
    def header(self) -> tuple[str, ...]:
        """Column names of a Parquet file, or of the first line read as CSV, blanks stripped; empty if it is neither."""
        if self.first.startswith(PARQUET_MAGIC):
            return _parquet_names(self.path)
        line = self.first.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]
        try:
            text = line.decode("utf-8").rstrip("\r")
            names = next(csv.reader([text]), [])
        except (UnicodeDecodeError, csv.Error):
            return ()
        return tuple(name.strip() for name in names) if text.isprintable() else ()


def _parquet_names(path: Path) -> tuple[str, ...]:
    """Names of the columns of a Parquet file; empty where it is damaged."""
    try:
        return tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError):
        return ()


@dataclass(frozen=True)
class SideTable:
    """A file published beside a trace that holds no jobs: what it is, and what it is good for.

    Known by its header, by its name, or by `sniff`.
    """

    what: str
    todo: str = ""
    header: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    sniff: Callable[[Head], bool] | None = None

    def knows(self, head: Head) -> bool:
        """Return whether the file looks like this table."""
        if self.sniff is not None and self.sniff(head):
            return True
        if head.path.name in self.names:
            return True
        return bool(self.header) and set(self.header) <= set(head.header)


@dataclass(frozen=True)
class Reader:
    """One trace format.

    Attributes
    ----------
    name, description : str
        What `--format` is called, and what the format is, in a line.
    public, licence : str
        Where the public file is, and under which licence.
    header : tuple of str
        Columns that a CSV file of this format must have; empty where it is no CSV.
    read : callable (path, **options) -> Trace
    options : mapping of option name to its meaning
    sniff : callable (Head) -> bool
        Whether the file is of this format; default: its header has all columns of `header`.
    folders : bool
        Whether a folder of such files can be read as one trace.
    side_tables : tuple of SideTable
        Files published beside the jobs: recognised, and refused with what they are.
    """

    name: str
    description: str
    public: str
    header: tuple[str, ...]
    read: Callable[..., Trace]
    options: Mapping[str, str] = field(default_factory=dict)
    sniff: Callable[[Head], bool] | None = None
    folders: bool = False
    licence: str = "not stated"
    side_tables: tuple[SideTable, ...] = ()

    def knows(self, head: Head) -> bool:
        """Return whether the file looks like this format."""
        if self.sniff is not None:
            return self.sniff(head)
        return bool(self.header) and set(self.header) <= set(head.header)


def choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return an option's value if it is allowed.

    Raises
    ------
    TraceError
        It is not; the message lists the values and the nearest one.
    """
    if value not in allowed:
        raise TraceError("value not allowed", where=f"option {name!r}", got=value, allowed=", ".join(allowed),
                         todo=did_you_mean(str(value), allowed))
    return value
