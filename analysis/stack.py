"""Tables of several runs under one schema: rows below rows, with the run that each came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.run import Run, RunError, labels, load_run
from sim.results.schema import FILES
from traces.errors import did_you_mean
from traces.reading.limits import Room
from traces.reading.parquet_tables import read_parquet

LEADING = pa.schema([
    pa.field("run", pa.string(), metadata={"unit": "", "meaning": "the run: its policy, made unique where need be"}),
    pa.field("policy", pa.string(), metadata={"unit": "", "meaning": "its policy"}),
    pa.field("seed", pa.int64(), metadata={"unit": "", "meaning": "its seed; null: unknown"}),
])
"""Columns that `stack` puts first. They are text, never categories, so that groups by them are those that occur."""


def stack(runs: Sequence[Run | str | Path], table: str = "jobs", columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one table of several runs, in order, under one schema.

    Columns are `LEADING`, those of `sim.results.schema` with their declared types (also where a column is null
    throughout, or where an earlier version had none), then those that any run has beside them, by name. A column that a
    run lacks is null in its rows. Integers and floats become floats if that loses nothing.

    Parameters
    ----------
    runs : run folders, or loaded runs; of the latter the columns that they hold.
    table : name of a file of a run: jobs, segments, nodes, decisions, plans.
    columns : those to keep beside the leading ones, in this order; left out: all.

    Raises
    ------
    RunError
        No runs, a run that cannot be read, no such table or column, a column whose types in two runs have none in
        common, or one that is called like a leading one.
    """
    if table not in FILES:
        raise RunError("no such table", got=table, allowed=", ".join(FILES), todo=did_you_mean(table, FILES))
    if not runs:
        raise RunError("no runs to stack", todo="Name at least one run folder.")
    loaded = [run if isinstance(run, Run) else load_run(run) for run in runs]
    parts = [_whole(run, table, isinstance(given, Run)) for run, given in zip(loaded, runs, strict=True)]
    if columns is not None:
        there = dict.fromkeys(name for part in parts for name in part.column_names)
        for name in columns:
            if name not in there:
                raise RunError("no such column in any of the runs", where=f"{table}.parquet", got=name,
                               allowed=", ".join(there), todo=did_you_mean(name, there))
        parts = [part.select([name for name in columns if name in part.column_names]) for part in parts]
    schema = _union(parts, loaded, table)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
    stacked = [_fitted(part, schema, run, table) for part, run in zip(parts, loaded, strict=True)]
    fronts = [_leading(run, label, len(part)) for run, label, part in zip(loaded, labels(loaded), parts, strict=True)]
    whole = pa.schema([*LEADING, *schema], schema.metadata)
    return pa.concat_tables(
        pa.Table.from_arrays([*front.columns, *part.columns], schema=whole)
        for front, part in zip(fronts, stacked, strict=True)
    )


def _whole(run: Run, table: str, as_held: bool) -> pa.Table:
    """The table with what a guest wrote beside the columns of the schema; dictionaries become plain values."""
    held = run.tables[table]
    if as_held:
        return held
    file = run.path / f"{table}.parquet"
    further = sorted(set(pq.read_schema(file).names) - set(held.column_names))
    extra = read_parquet(file, Room.of(file, RunError), further, arrays=True) if further else held.select([])
    for name in further:
        if name in LEADING.names:
            raise RunError("a column has a name that is taken", where=f"{run.path}/{table}.parquet", got=name,
                           todo="Give it another name.")
        field, column = extra.schema.field(name), extra[name]
        if pa.types.is_dictionary(field.type):
            column, field = column.cast(field.type.value_type), field.with_type(field.type.value_type)
        held = held.append_column(field, column)
    return held


def _union(parts: list[pa.Table], runs: list[Run], table: str) -> pa.Schema:
    """The schema's columns as declared, then each other one with the type that all runs' values go into."""
    declared = FILES[table]
    further: dict[str, pa.Field] = {}
    for part, run in zip(parts, runs, strict=True):
        for field in part.schema:
            if field.name not in declared.names:
                known = further.get(field.name)
                further[field.name] = field if known is None else _common(known, field, run, table)
    kept = [field for field in declared if any(field.name in part.column_names for part in parts)]
    return pa.schema([*kept, *(further[name] for name in sorted(further))], declared.metadata)


def _common(one: pa.Field, other: pa.Field, run: Run, table: str) -> pa.Field:
    """The field whose type holds both: nulls fit everywhere, numbers go to the wider, integers to floats."""
    try:
        merged = pa.unify_schemas([pa.schema([f.remove_metadata()]) for f in (one, other)],
                                  promote_options="permissive")
    except pa.ArrowException:
        raise RunError("a column has types that do not go together", where=f"{run.path}/{table}.parquet",
                       got=f"{other.name}: {other.type}", allowed=f"{one.type}, as in a run before it",
                       todo="Stack without it (columns=…), or write it alike in all runs.") from None
    return one.with_type(merged.field(0).type)


def _fitted(part: pa.Table, schema: pa.Schema, run: Run, table: str) -> pa.Table:
    """The part with exactly these columns."""
    arrays = []
    for field in schema:
        try:
            arrays.append(part[field.name].cast(field.type) if field.name in part.column_names
                          else pa.nulls(part.num_rows, field.type))
        except pa.ArrowException as error:
            raise RunError("a column cannot be turned into the type that it has in other runs without loss",
                           where=f"{run.path}/{table}.parquet", got=f"{field.name}: {part[field.name].type}",
                           allowed=str(field.type), todo=str(error).split("\n")[0]) from None
    return pa.Table.from_arrays(arrays, schema=schema)


def _leading(run: Run, label: str, rows: int) -> pa.Table:
    values = (label, run.policy, run.info.get("seed"))
    arrays = [pa.array([value] * rows, field.type) for value, field in zip(values, LEADING, strict=True)]
    return pa.Table.from_arrays(arrays, schema=LEADING)
