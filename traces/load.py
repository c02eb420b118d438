"""The door for trace files: `load_trace` finds out the format, or is told it."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from traces import readers
from traces.errors import TraceError, did_you_mean
from traces.offered_load import offered_load, scale_load
from traces.readers.canonical import write_trace
from traces.readers.mapped import header_of
from traces.reading.discovery import discovered
from traces.reading.logguess import proposal, tells
from traces.reading.reader import Head, Reader
from traces.reading.sidetables import OTHERS
from traces.reading.text import check_header_first
from traces.reading.unpack import Unpacked, noting, parts
from traces.select import head
from traces.trace import Trace

__all__ = ["FORMATS", "detect", "head", "load_trace", "offered_load", "scale_load", "write_trace"]

#: Every format by name: the READER of each module of `traces.readers`.
FORMATS: dict[str, Reader] = discovered(readers, "READER")


def load_trace(path: str | Path, format: str | None = None, /, **options: Any) -> Trace:
    r"""Read a trace file (for some formats, a folder of files).

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

    Examples
    --------
    >>> _ = Path("jobs.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,60,1\nb,30,600,4\n")
    >>> trace = load_trace("jobs.csv")
    >>> len(trace), trace.num_gpus.tolist(), trace.provenance.format
    (2, [1, 4], 'canonical')
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise TraceError("unknown trace format", where="--format", got=format, allowed=", ".join(FORMATS),
                         todo=did_you_mean(format, FORMATS))
    _check_there(path, format)
    if format is None and "map" in options:
        format = "mapped"
    reader = FORMATS[format] if format is not None else detect(path)
    if path.is_dir() and not reader.folders:
        raise TraceError("a folder, not a file", where=str(path), allowed=f"a file of format {reader.name!r}")
    used = _options(reader, options, path)
    try:
        with noting() as opened:
            trace = reader.read(path, **used)
        several = path.is_dir() or len(parts(path)) > 1
        digest = files_hash(path if path.is_dir() else path.parent, opened) if several else file_hash(path)
    except OSError as error:  # it may vanish, or be cut off, while it is read
        raise TraceError("cannot read the trace", where=str(error.filename or path),
                         got=error.strerror or str(error), todo="Check the path and its permissions.") from None
    told = {name: str(value) for name, value in used.items() if value is not None}
    about = trace.provenance  # a reader that says how it was told to read knows it better
    return replace(trace, provenance=replace(about, options=told | dict(about.options), sha256=digest))


def file_hash(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes; of a folder, as in measured tables, of the CSV files in it: see `files_hash`.

    Raises
    ------
    TraceError
        Nothing is there, or neither a file nor a folder: a device may have no end.
    OSError
        It cannot be read.
    """
    if not path.exists():
        raise TraceError("no such file", where=str(path))
    if path.is_dir():
        inside = [file for file in path.rglob("*.csv") if file.is_file()]
        return files_hash(path, (f for f in inside if not any(p.startswith(".") for p in f.relative_to(path).parts)))
    _check_kind(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_hash(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256 (hex) of the names and hashes of files, in any order: of a trace in several, those that were read."""
    digest = hashlib.sha256()
    for name, file in sorted((Path(os.path.relpath(file, folder)).as_posix(), file) for file in files):
        digest.update(f"{name}\0{file_hash(file)}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def defaults(reader: Reader) -> dict[str, Any]:
    """Default value of each option of a reader, as its function declares it (None: it says what then)."""
    declared = inspect.signature(reader.read).parameters
    return {name: declared[name].default for name in reader.options}


def _options(reader: Reader, given: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """All options of a reader: those given, as the kind of value that the default is, and the others' defaults."""
    values = defaults(reader)
    for name, value in given.items():
        if name not in reader.options:
            raise TraceError(
                f"format {reader.name!r} has no such option", where=str(path), got=name,
                allowed=", ".join(reader.options) or "none",
                todo=did_you_mean(name, reader.options) or f"hetsim trace formats {reader.name} tells what each does.",
            )
        values[name] = _as(type(values[name]), value, f"option {name!r} of format {reader.name!r}")
    return values


def _as(kind: type, value: Any, where: str) -> Any:
    """A value that came as text, as the kind that the reader takes."""
    words = {"true": True, "false": False}
    try:
        if kind is bool:
            return words[str(value).lower()]
        return kind(value) if kind in (int, float) else value if kind is not str else str(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        allowed = {bool: "true or false", int: "an integer"}.get(kind, "a number")
        raise TraceError("value not allowed", where=where, got=value, allowed=allowed) from None


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
        knowing = [reader for reader in FORMATS.values() if reader.knows(start)]
    except OSError as error:
        raise TraceError("cannot read the file", where=str(path), got=error.strerror or str(error),
                         todo="Check the path and its permissions.") from None
    if not start.first.strip():
        got = "a folder without CSV files" if path.is_dir() else "an empty file"
        raise TraceError("nothing to read", where=str(path), got=got, allowed="a trace with at least one job")
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
    for side in OTHERS:
        if side.knows(start):
            raise TraceError(f"no jobs here: {side.what}", where=str(path), allowed="a trace: a table of jobs",
                             got=", ".join(start.header)[:200] or start.first[:40], todo=side.todo)
    if path.is_file():
        with Unpacked(path) as stream:  # of several files in a tar only the first was looked at
            stream.refuse_several()
    below = Head(path, re.sub(rb"\A(\xef\xbb\xbf)?(#[^\n]*(\n|\Z))+", b"", start.first))
    if below.first.strip() and any(reader.knows(below) for reader in FORMATS.values()):
        check_header_first(start.first.decode("utf-8", "replace"), str(path))
    raise TraceError(
        "format not recognised", where=str(path), got=", ".join(start.header)[:200] or start.first[:40],
        allowed=f"{FORMATS['canonical'].description}; or a file of another format: {', '.join(FORMATS)}",
        todo=" ".join(filter(None, (_nearest(start), _own(start)))),
    )


def _check_there(path: Path, format: str | None = None) -> None:
    if not path.exists():
        places: dict[str, list[str]] = {}
        for reader in FORMATS.values() if format is None else [FORMATS[format]]:
            if url := re.search(r"https://[^\s,;)]+", reader.public):
                places.setdefault(url[0], []).append(reader.name)
        known = "; ".join(f"{', '.join(names)}: {url}" for url, names in places.items())
        raise TraceError(
            "no such file", where=str(path), got=str(path.absolute()),
            allowed=f"a trace of format {format or ', '.join(FORMATS)}",
            todo=f"Public files are at: {known} (hetsim trace formats NAME: which of them)" if known else "",
        )
    _check_kind(path)


def _check_kind(path: Path) -> None:
    if not (path.is_file() or path.is_dir()):  # a pipe that nobody writes to would be waited for
        raise TraceError("neither a file nor a folder", where=str(path), got="a pipe, socket or device",
                         allowed="a file", todo="Write what it gives to a file first.")


def _own(start: Head) -> str:
    """What to call a log of one's own with, where its header looks like that of a table."""
    header = header_of(start)
    if not tells(header):
        return ""
    return f"A log of your own is read by a map of its columns, perhaps: {proposal(header)}"


def _nearest(start: Head) -> str:
    """Which format the header comes nearest to, and what it lacks."""
    def overlap(reader: Reader) -> float:
        return len(set(reader.header) & set(start.header)) / max(len(reader.header), 1)

    best = max(FORMATS.values(), key=overlap)
    if overlap(best) < 0.5:
        return "Name the format with --format if it is one of these (hetsim trace formats NAME tells its columns)."
    missing = [name for name in best.header if name not in start.header]
    return f"Nearest is {best.name!r}, for which column {', '.join(map(repr, missing))} is missing."
