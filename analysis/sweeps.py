"""A sweep, loaded from its folder: its axes, its tables put together, and what failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.run import RunError
from sim.results.schema import CELL_DONE, CELL_FAILED, CELL_WAITING, FILES, SWEEP_LAYOUT
from traces.errors import did_you_mean
from traces.reading.limits import Room, plain_bytes
from traces.reading.parquet_tables import read_parquet

_READ = {"int64": int, "double": float, "bool": bool, "string": str}

CellId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Value = bool | int | float | str | None
Table = Literal["jobs", "segments", "nodes", "decisions", "plans", "runs"]
_Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
assert set(FILES) < set(get_args(Table))


class _Form(BaseModel):
    """What a file of a sweep's folder has to hold: whoever edits one by hand is told where it went wrong."""

    model_config = ConfigDict(strict=True, extra="allow")


class Record(_Form):
    """`cells/<cell>.json`; `files` has the SHA-256 of each of its files, by table or `runs/<file>`."""

    cell: CellId
    state: Literal["done", "failed"]
    error: str
    axes: dict[str, Value]
    columns: list[Annotated[list[Value], Field(min_length=3, max_length=3)]]
    tables: list[Table]
    files: dict[Annotated[str, Field(pattern=r"^[a-z]+$|^runs/[A-Za-z0-9_][A-Za-z0-9_.-]*$")], str]
    wall_s: _Time
    cpu_s: _Time
    peak_mib: _Time
    worker: str


class Description(_Form):
    """`sweep.json`."""

    axes: dict[str, list[Value]]
    columns: dict[str, str]
    kinds: dict[str, Literal["bool", "int64", "double", "string"]]
    tables: list[Table]
    cells: list[CellId]


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep's folder.

    Attributes
    ----------
    path : the folder.
    info : `sweep.json`.
    records : record of each cell of the sweep that was played, by id; what else lies in the folder is not read.
    """

    path: Path
    info: Mapping[str, Any]
    records: Mapping[str, Mapping[str, Any]]

    @property
    def axes(self) -> dict[str, list[Any]]:
        """Name of each setting that varies -> its values, in the order of the file (None: not set)."""
        return {name: list(values) for name, values in self.info["axes"].items()}

    @property
    def columns(self) -> dict[str, str]:
        """Name of each setting that varies -> its column in the tables."""
        return dict(self.info["columns"])

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row a cell of the sweep, in its order.

        Columns: cell, the axes; state (done, failed, waiting), error; wall_s, cpu_s, peak_mib (NaN: unknown), worker.
        """
        rows = []
        for cell in self.info["cells"]:
            record = self.records.get(cell, {})
            axes = record.get("axes", {})
            rows.append({
                "cell": cell,
                **{column: axes.get(name) for name, column in self.columns.items()},
                "state": record.get("state", CELL_WAITING),
                "error": record.get("error", ""),
                **{name: float(record.get(name, "nan")) for name in ("wall_s", "cpu_s", "peak_mib")},
                "worker": record.get("worker", ""),
            })
        return pd.DataFrame(rows)

    @property
    def failed(self) -> pd.DataFrame:
        """The cells that failed, with their errors."""
        return self.cells[self.cells["state"] == CELL_FAILED].reset_index(drop=True)

    def table(self, name: str = "metrics") -> pd.DataFrame:
        """A table of all cells that are done, put together in the order of the sweep: `metrics`, or one that was kept.

        Each row has its cell, its policy (text) and its value of each axis; a column that a cell has no values of is
        null there. The axis of a policy stands where it stands among the axes.

        Raises
        ------
        RunError
            The sweep does not keep such a table, a file is damaged, or no cell is done.
        """
        frame: pd.DataFrame = self.arrow(name).to_pandas()
        return frame

    def arrow(self, name: str = "metrics") -> pa.Table:
        """The same as an Arrow table."""
        kept = ["metrics", *(table for table in self.info["tables"] if table != "runs")]
        if name not in kept:
            raise RunError("the sweep does not keep this table", where=str(self.path), got=name, todo=did_you_mean(
                name, kept) or "Name it in [results] tables, and sweep again.", allowed=", ".join(kept))
        done = [cell for cell in self.info["cells"] if self.records.get(cell, {}).get("state") == CELL_DONE]
        if not done:
            raise RunError("no cell is done", where=str(self.path), todo="See its failed cells: hetsim sweep FILE.")
        files = {file.stem: file for file in (self.path / name).glob("policy=*/[!.]*.parquet")}
        parts = [files[cell] for cell in done if cell in files]
        if len(parts) < len(done):
            raise RunError("a file is missing", where=str(self.path / name), todo="Sweep again: it makes what lacks.",
                           got=next(cell for cell in done if cell not in files))
        try:
            table = pa.concat_tables([_of_policy(file) for file in parts], promote_options="permissive")
            axes = [column for column in self.columns.values() if column != "policy"]
            front = ["cell", "policy", *axes] if "policy" not in self.columns else ["cell", *self.columns.values()]
            return table.select([*front, *(column for column in table.column_names if column not in front)])
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise RunError("not readable as Parquet (truncated or damaged)", where=str(self.path / name),
                           got=str(error).split("\n")[0], todo="Sweep again: it makes damaged files anew.") from None


def _of_policy(file: Path) -> pa.Table:
    """A table of one cell, with the policy that its folder is named after."""
    table = read_parquet(file, Room.of(file, RunError), arrays=True)
    policy = unquote(file.parent.name.removeprefix("policy="))
    return table.append_column("policy", pa.array([policy] * len(table), pa.string()))


def load_sweep(folder: str | Path) -> Sweep:
    """Load a sweep's folder.

    Raises
    ------
    RunError
        No such folder, not one that `hetsim sweep` has written, of another layout, or a file of it is damaged.
    """
    path = Path(folder)
    file = path / "sweep.json"
    if not file.is_file():
        raise RunError("no sweep", where=str(path), allowed="a folder with sweep.json",
                       todo="Name a folder that `hetsim sweep` has written.")
    info = _json(file)
    if info.get("layout") != SWEEP_LAYOUT:
        raise RunError("a sweep of another layout", where=str(file), got=info.get("layout"), allowed=str(SWEEP_LAYOUT),
                       todo="Read it with the version that wrote it, or sweep again.")
    info = _formed(Description, info, file)
    kinds = info["kinds"]
    info["axes"] = {name: [_read(kinds.get(name), one, file) for one in found] for name, found in info["axes"].items()}
    if not info["axes"].keys() == info["columns"].keys() == kinds.keys():
        raise RunError("axes, columns and kinds are not of the same names", where=str(file), todo="Sweep again.")
    records = {}
    for cell in info["cells"]:
        place = path / "cells" / f"{cell}.json"
        if place.is_file():
            record = records[cell] = read_record(place)
            record["axes"] = {name: _read(kinds.get(name), one, place) for name, one in record["axes"].items()}
    return Sweep(path, info, records)


def read_record(file: Path) -> dict[str, Any]:
    """The record of a cell, as `Record` has it.

    Raises
    ------
    RunError
        It cannot be read, or was damaged or edited: something lacks, is of another kind, or of another cell.
    """
    record = _formed(Record, _json(file), file)
    if record["cell"] != file.stem:
        raise RunError("the record of another cell", where=str(file), got=record["cell"], allowed=file.stem,
                       todo="Sweep again.")
    return record


def _formed(form: type[_Form], content: dict[str, Any], file: Path) -> dict[str, Any]:
    try:
        return form.model_validate(content).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RunError("damaged", where=f"{file}, {'.'.join(map(str, first['loc']))}", got=first["msg"],
                       todo="Sweep again.") from None


def _read(kind: str | None, value: Any, file: Path) -> Any:
    """A value of an axis out of JSON, which has infinity as text."""
    try:
        return None if value is None else _READ[kind or "string"](value)
    except (ValueError, OverflowError):
        raise RunError("damaged: not a value of the axis", where=str(file), got=value, allowed=str(kind),
                       todo="Sweep again.") from None


def _json(file: Path) -> dict[str, Any]:
    try:
        if not file.is_file():
            raise OSError("no file")
        data = plain_bytes(file, RunError)
        Room.of(file, RunError).take_json(data)
        content = json.loads(data.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError("not readable as JSON", where=str(file), got=str(error), todo="Sweep again.") from None
    except RecursionError:
        raise RunError("not readable as JSON", where=str(file), got="nested too deeply", todo="Sweep again.") from None
    if not isinstance(content, dict):
        raise RunError("not a JSON object", where=str(file), got=type(content).__name__, todo="Sweep again.")
    return content
