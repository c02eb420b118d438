"""A run's folder is read, and refused where it is damaged: what is loaded keeps the laws of form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis.run.form import malformed
from analysis.run.one_run import Run, RunError
from sim.results.schema import FILES, READABLE, with_further
from traces.reading.limits import Room, deeper_than, plain_bytes
from traces.reading.parquet_tables import read_parquet

DEEPEST = 50
"""Levels of nesting in run.json: more than any writer makes, less than what a reader's recursion bears."""


def load_run(path: str | Path, check: bool = True) -> Run:
    """Load a run folder; what is loaded keeps the laws of form (`analysis.run.form`).

    Parameters
    ----------
    check : bool
        False: read what can be read, for who examines the laws (the audit).

    Raises
    ------
    RunError
        No such folder, a missing or damaged file, a missing column or one of another type, another schema version;
        with `check` a broken law of form: a null, a number that is not finite or out of range, an unknown word, job,
        node or GPU, a job twice, a time out of order, a key of run.json of another type. The message names the file,
        the column and row or the key, and what to do.

    Examples
    --------
    >>> from sim.settings.config import RunConfig
    >>> from sim.sweeps.replay import Replay
    >>> Replay(RunConfig(policy="fifo", trace="philly", jobs=50, work="recorded")).play().write(Path("fifo"))
    >>> run = load_run("fifo")
    >>> sorted(run.tables), run.info["policy"]
    (['decisions', 'jobs', 'nodes', 'plans', 'segments'], 'fifo')
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunError(
            "no such run folder", where=str(folder), todo="Name a folder that `hetsim run` has written."
        )
    info = _read_json(folder / "run.json")
    if str(info.get("schema_version")) not in READABLE:
        raise RunError(
            "results of another schema version",
            where=str(folder / "run.json"),
            got=info.get("schema_version"),
            allowed=", ".join(READABLE),
            todo="Read it with the version that wrote it, or run it again.",
        )
    timing = _read_json(folder / "timing.json") if (folder / "timing.json").exists() else {}
    run = Run(folder, {name: _read_table(folder, name) for name in FILES}, info, timing)
    if check:
        _refuse_malformed(run)
    return run


def _refuse_malformed(run: Run) -> None:
    found = malformed(run)
    if found is not None:
        raise RunError(
            found.text,
            where=str(run.path / found.where) + (f", {found.place}" if found.place else ""),
            got=found.got,
            allowed=found.allowed,
            todo=f"The file was damaged or edited: run it again. The broken law is {found.law!r} (see `hetsim audit`).",
        )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = plain_bytes(file, RunError)
        Room.of(file, RunError).take_json(data)
        content = json.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise _missing(file) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            "not readable as JSON", where=str(file), got=str(error), todo="Run it again."
        ) from None
    if not isinstance(content, dict):
        raise RunError("not a JSON object", where=str(file), got=type(content).__name__, todo="Run it again.")
    if deeper_than(content, DEEPEST):
        raise RunError("nested too deeply", where=str(file), allowed=f"{DEEPEST} levels", todo="Run it again.")
    return content


def _missing(file: Path) -> RunError:
    return RunError(
        "file is missing",
        where=str(file),
        allowed=", ".join(f"{n}.parquet" for n in FILES) + ", run.json",
        todo="The run did not finish, or this is no run folder; run it again.",
    )


def _read_table(folder: Path, name: str) -> pa.Table:
    """One table with exactly the columns of its schema; those that a later version added are null where they lack."""
    file = folder / f"{name}.parquet"
    if not file.is_file():
        raise _missing(file)
    try:
        table = read_parquet(file, Room.of(file, RunError), arrays=True)
        table.validate(full=True)  # text that is no UTF-8, lists that point outside
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise RunError(
            "not readable as Parquet (truncated or damaged)",
            where=str(file),
            got=str(error).split("\n")[0],
            todo="Run it again.",
        ) from None
    schema = with_further(name, table.column_names)
    for name_twice in (name for name in schema.names if table.column_names.count(name) > 1):
        raise RunError(f"column {name_twice!r} is there twice", where=str(file), allowed="each column once",
                       todo="Run it again.")
    for field in schema:
        if field.name not in table.column_names and field.metadata[b"since"]:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        if field.name not in table.column_names:
            raise RunError(
                f"column {field.name!r} is missing",
                where=str(file),
                got=", ".join(table.column_names),
                allowed=", ".join(schema.names),
                todo="Run it again.",
            )
    try:
        return table.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise RunError(
            "a column has another type",
            where=str(file),
            got=str(error).split("\n")[0],
            allowed="the types of docs/results.md",
            todo="Run it again.",
        ) from None
