"""The door for trace files: `load_trace` finds out the format, or is told it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from traces import readers
from traces.errors import TraceError, did_you_mean
from traces.reader import Head, Reader
from traces.readers.canonical import write_trace
from traces.trace import Trace
from traces.window import head, offered_load, scale_load

__all__ = ["FORMATS", "detect", "head", "load_trace", "offered_load", "scale_load", "write_trace"]

def _formats() -> dict[str, Reader]:
    """The READER of each module of `traces.readers`: a new format is a new file, and nothing else changes."""
    names = sorted(info.name for info in iter_modules(readers.__path__))
    found = [import_module(f"traces.readers.{name}") for name in names]
    return {module.READER.name: module.READER for module in found if hasattr(module, "READER")}


#: Every format by name.
FORMATS: dict[str, Reader] = _formats()


def load_trace(path: str | Path, format: str | None = None, **options: Any) -> Trace:
    """Read a trace file (for some formats, a folder of files).

    Parameters
    ----------
    path : path
        Where the trace is.
    format : str, optional
        A name of `FORMATS`; default: found out from the content.
    **options
        The format's own, listed in `FORMATS[name].options`.

    Raises
    ------
    TraceError
        Nothing is there, the format is unknown or not the file's, an option is unknown, or the content is not
        allowed. The message names the place and what to do.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise TraceError("unknown trace format", where="--format", got=format, allowed=", ".join(FORMATS),
                         todo=did_you_mean(format, FORMATS))
    _check_there(path)
    reader = FORMATS[format] if format is not None else detect(path)
    if path.is_dir() and not reader.folders:
        raise TraceError("a folder, not a file", where=str(path), allowed=f"a file of format {reader.name!r}")
    for name in options:
        if name not in reader.options:
            raise TraceError(
                f"format {reader.name!r} has no such option", where=str(path), got=name,
                allowed=", ".join(reader.options) or "none", todo=did_you_mean(name, reader.options),
            )
    return reader.read(path, **options)


def detect(path: str | Path) -> Reader:
    """Return the reader whose format the file has.

    Raises
    ------
    TraceError
        Nothing is there, or no format fits; the message names the nearest and what the file lacks for it.
    """
    path = Path(path)
    _check_there(path)
    try:
        start = Head.of(path)
    except OSError as error:
        raise TraceError("cannot read the file", where=str(path), got=error.strerror or str(error),
                         todo="Check the path and its permissions.") from None
    if not start.first.strip():
        got = "a folder without CSV files" if path.is_dir() else "an empty file"
        raise TraceError("nothing to read", where=str(path), got=got, allowed="a trace with at least one job")
    knowing = [reader for reader in FORMATS.values() if reader.knows(start)]
    if len(knowing) > 1:
        raise TraceError("more than one format fits", where=str(path), got=", ".join(r.name for r in knowing),
                         allowed="one format", todo="Name it with --format.")
    if knowing:
        return knowing[0]
    for reader in FORMATS.values():
        for side in reader.side_tables:
            if side.knows(start):
                raise TraceError(f"no jobs here: {side.what}", where=str(path), got=", ".join(start.header)[:200],
                                 allowed=f"the jobs, format {reader.name!r}", todo=side.todo)
    if start.first.startswith((b"\x1f\x8b", b"PK", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd")):
        raise TraceError("the file is compressed", where=str(path), allowed="plain CSV, JSON or Parquet",
                         todo="Unpack it first.")
    raise TraceError(
        "format not recognised", where=str(path), got=", ".join(start.header)[:200] or start.first[:40],
        allowed="; ".join(r.description for r in FORMATS.values()), todo=_nearest(start),
    )


def _check_there(path: Path) -> None:
    if not path.exists():
        known = "; ".join(f"{r.name}: {r.public}" for r in FORMATS.values())
        raise TraceError(
            "no such file", where=str(path), got=str(path.absolute()),
            allowed=f"a trace of format {', '.join(FORMATS)}", todo=f"Public files are at: {known}",
        )
    if not (path.is_file() or path.is_dir()):  # a pipe that nobody writes to would be waited for
        raise TraceError("neither a file nor a folder", where=str(path), got="a pipe, socket or device",
                         allowed="a file", todo="Write the trace to a file first.")


def _nearest(start: Head) -> str:
    """Which format the header comes nearest to, and what it lacks."""
    def overlap(reader: Reader) -> float:
        return len(set(reader.header) & set(start.header)) / max(len(reader.header), 1)

    best = max(FORMATS.values(), key=overlap)
    if overlap(best) < 0.5:
        return "Name the format with --format if it is one of these."
    missing = [name for name in best.header if name not in start.header]
    return f"Nearest is {best.name!r}, for which column {', '.join(map(repr, missing))} is missing."
