"""The door for side tables that tell of the cluster: `read_machines` finds out the form, or is told it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from traces import machines
from traces.errors import TraceError, did_you_mean
from traces.machines.capacity import Capacity, MachineReader, Machines
from traces.reading.discovery import discovered
from traces.reading.reader import Head


@cache
def forms() -> dict[str, MachineReader]:
    """The MACHINES of each module of `traces.machines`, by name."""
    return discovered(machines, "MACHINES")


def read_machines(path: str | Path, format: str | None = None, **options: Any) -> Machines | Capacity:
    """Read a machine list, or a table of GPUs over time.

    Parameters
    ----------
    path : path
        Where the table is.
    format : str, optional
        A name of `forms()`; default: found out from the content.
    **options
        The form's own, listed in `forms()[name].options`.

    Raises
    ------
    TraceError
        Nothing is there, the form is unknown, more than one fits, an option is unknown, or the content is not allowed.
    """
    path, known = Path(path), forms()
    if format is not None and format not in known:
        raise TraceError("unknown form of machine list", where="--format", got=format, allowed=", ".join(known),
                         todo=did_you_mean(format, known))
    if not path.exists():
        raise TraceError("no such file", where=str(path), allowed=f"a table of form {', '.join(known)}")
    reader = known[format] if format is not None else _detect(path)
    for name in options:
        if name not in reader.options:
            raise TraceError(f"form {reader.name!r} has no such option", where=str(path), got=name,
                             allowed=", ".join(reader.options) or "none", todo=did_you_mean(name, reader.options))
    return reader.read(path, **options)


def _detect(path: Path) -> MachineReader:
    try:
        start = Head.of(path)
        fitting = [reader for reader in forms().values() if reader.knows(start)]
    except OSError as error:
        raise TraceError("cannot read the file", where=str(path), got=error.strerror or str(error)) from None
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise TraceError("more than one form fits", where=str(path), got=", ".join(r.name for r in fitting),
                         allowed="one form", todo="Name it with --format.")
    raise TraceError(
        "not a machine list that is known", where=str(path), got=", ".join(start.header)[:200] or start.first[:40],
        allowed="; ".join(f"{r.name}: {r.description}" for r in forms().values()),
    )
