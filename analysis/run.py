"""One run, loaded from its folder: five tables, the settings, the timing. All of `analysis` starts here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sim.results.schema import FILES, READABLE
from traces.errors import HetsimError, did_you_mean

FINISHED = ("done", "killed", "failed")
"""States of jobs that ran to their recorded end."""
DEEPEST = 50
"""Levels of nesting in run.json: more than any writer makes, less than what a reader's recursion bears."""

MOST_COMPARED = 20_000
"""Among more ids the nearest to a wrong one is not looked for: that takes longer than a user waits."""


class RunError(HetsimError):
    """A run folder that cannot be read: missing, incomplete, damaged, or of another schema."""


@dataclass(frozen=True)
class Held:
    """What segments hold on nodes: one entry for each node of each segment.

    Attributes
    ----------
    segment : int64, row of the segments table.
    node : int64, node number.
    milli : int64, share held on the node, 1/1000 GPU (integers, so that sums are exact).
    """

    segment: np.ndarray
    node: np.ndarray
    milli: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """A run's files. Frames are made when first asked for; arrays derived from list columns are kept.

    Attributes
    ----------
    path : the folder.
    tables : Arrow tables by name, with the columns and types of `sim.results.schema.FILES`.
    info : `run.json`.
    timing : `timing.json`, the one file that varies between equal runs; empty where it is missing.
    life : of a measuring window (`analysis.measuring_window`), the whole run, in which the same jobs count, and int64
        [jobs], the row there of each job of the window.
    """

    path: Path
    tables: Mapping[str, pa.Table]
    info: Mapping[str, Any]
    timing: Mapping[str, Any]
    life: tuple[Run, np.ndarray] | None = None

    @cached_property
    def jobs(self) -> pd.DataFrame:
        return self._frame("jobs")

    @cached_property
    def segments(self) -> pd.DataFrame:
        return self._frame("segments")

    @cached_property
    def nodes(self) -> pd.DataFrame:
        return self._frame("nodes")

    @cached_property
    def decisions(self) -> pd.DataFrame:
        return self._frame("decisions")

    @cached_property
    def plans(self) -> pd.DataFrame:
        return self._frame("plans")

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self.tables[name].to_pandas()
        return frame

    @property
    def policy(self) -> str:
        return str(self.info.get("policy", "unknown"))

    @property
    def window_s(self) -> tuple[float, float]:
        """First submit and last event of the run, in s on the trace's clock."""
        return float(self.info["start_s"]), float(self.info["end_s"])

    @cached_property
    def counted(self) -> np.ndarray:
        """bool [jobs]: jobs that count in what is said of jobs: all, or those submitted in the measuring window.

        `analysis.measuring_window.windowed` sets the window; other jobs in its tables hold GPUs and wait, no more.
        """
        submit, window = self.column("jobs", "submit_s"), self.info.get("window")
        if window is None:
            return np.ones(len(submit), dtype=bool)
        until_s = np.inf if window["to_the_end"] else window["end_s"]
        inside: np.ndarray = (submit >= window["begin_s"]) & (submit < until_s)
        return inside

    @property
    def followed(self) -> tuple[Run, np.ndarray] | None:
        """`life`, where the jobs that count are followed to their end beyond the measuring window."""
        return self.life if self.info.get("window", {}).get("follow") else None

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types of the cluster, in node order."""
        return tuple(dict.fromkeys(self.tables["nodes"]["gpu_type"].to_pylist()))

    @cached_property
    def node_type(self) -> np.ndarray:
        """int64 [nodes]: index of each node's GPU type into `types`."""
        index = {name: i for i, name in enumerate(self.types)}
        return np.array(
            [index[name] for name in self.tables["nodes"]["gpu_type"].to_pylist()], dtype=np.int64
        )

    def row_of(self, job_id: str) -> int:
        """Row of a job in the jobs table.

        Raises
        ------
        RunError
            The run has no such job.
        """
        ids = self.tables["jobs"]["job_id"]
        row: int = pc.index(ids, job_id).as_py()
        if row < 0:
            raise RunError("the run has no such job", where=str(self.path), got=job_id, allowed="an id of jobs.parquet",
                           todo=did_you_mean(job_id, ids.to_pylist()) if len(ids) <= MOST_COMPARED else "")
        return row

    def column(self, table: str, name: str) -> np.ndarray:
        """One flat column as a NumPy array (null numbers become NaN)."""
        values: np.ndarray = self.tables[table][name].to_numpy()
        return values

    @cached_property
    def segment_job(self) -> np.ndarray:
        """int64 [segments]: row of the jobs table that each segment belongs to, -1 where there is none."""
        index = pc.index_in(self.tables["segments"]["job_id"], self.tables["jobs"]["job_id"].combine_chunks())
        rows: np.ndarray = pc.fill_null(index, -1).to_numpy().astype(np.int64)
        return rows

    @cached_property
    def held(self) -> Held:
        """Nodes and shares of all segments, exploded."""
        segment, node = explode(self.tables["segments"]["nodes"])
        _, gpus = explode(self.tables["segments"]["gpus"])
        return Held(segment, node.astype(np.int64), np.rint(gpus * 1000.0).astype(np.int64))

    @cached_property
    def outages(self) -> pd.DataFrame:
        """Times at which nodes were out of service: node, down_s, up_s (infinite if it never came back)."""
        down_node, down = explode(self.tables["nodes"]["down_s"])
        up_node, up = explode(self.tables["nodes"]["up_s"])
        frame = pd.DataFrame({"node": down_node, "down_s": down})
        frame["k"] = frame.groupby("node").cumcount()
        back = pd.DataFrame({"node": up_node, "up_s": up})
        back["k"] = back.groupby("node").cumcount()
        frame = frame.merge(back, on=["node", "k"], how="left").drop(columns="k")
        frame["up_s"] = frame["up_s"].fillna(np.inf)
        return frame


def explode(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Flatten a list column: int64 row of each element, and the elements (null lists have none)."""
    whole = column.combine_chunks()
    row, value = pc.list_parent_indices(whole), pc.list_flatten(whole)
    return row.to_numpy().astype(np.int64), value.to_numpy(zero_copy_only=False)


def load_run(path: str | Path, check: bool = True) -> Run:
    """Load a run folder; what is loaded keeps the laws of form (`analysis.audit.form`).

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
    from analysis.audit.form import malformed  # the laws are about runs: they import this module

    found = malformed(run)
    if found is not None:
        raise RunError(
            found.text,
            where=str(run.path / found.where) + (f", {found.place}" if found.place else ""),
            got=found.got,
            allowed=found.allowed,
            todo=f"The file was damaged or edited: run it again. The broken law is {found.law!r} (see `hetsim audit`).",
        )


def wishes(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """What jobs say of GPU types: int64 [jobs], each job's wish; bool [wishes, types], what it allows.

    A wish is the text of `gpu_type`: names in any case, joined by '|'; empty allows every type.
    """
    codes, texts = pd.factorize(run.jobs["gpu_type"].fillna(""))
    names = [{name.strip().lower() for name in text.split("|")} for text in texts]
    rows = [[wish == {""} or kind.lower() in wish for kind in run.types] for wish in names]
    return codes.astype(np.int64), np.array(rows, dtype=bool).reshape(len(rows), len(run.types))


def labels(runs: Sequence[Run]) -> list[str]:
    """A short, unique name for each run: its policy, with the folder's name or a number where need be."""
    names = [run.policy for run in runs]
    for wider in (
        [f"{r.policy} ({r.path.name})" for r in runs],
        [f"{r.policy} #{i + 1}" for i, r in enumerate(runs)],
    ):
        if len(set(names)) == len(names):
            break
        names = [w if names.count(n) > 1 else n for n, w in zip(names, wider, strict=True)]
    return names


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise _missing(file) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            "not readable as JSON", where=str(file), got=str(error), todo="Run it again."
        ) from None
    if not isinstance(content, dict):
        raise RunError("not a JSON object", where=str(file), got=type(content).__name__, todo="Run it again.")
    layer: list[Any] = [content]
    for _ in range(DEEPEST):
        layer = [entry for part in layer for entry in _entries(part)]
    if layer:
        raise RunError("nested too deeply", where=str(file), allowed=f"{DEEPEST} levels", todo="Run it again.")
    return content


def _entries(part: Any) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _missing(file: Path) -> RunError:
    return RunError(
        "file is missing",
        where=str(file),
        allowed=", ".join(f"{n}.parquet" for n in FILES) + ", run.json",
        todo="The run did not finish, or this is no run folder; run it again.",
    )


def _read_table(folder: Path, name: str) -> pa.Table:
    """One table with exactly the columns of its schema; those that a later version added are null where they lack."""
    file, schema = folder / f"{name}.parquet", FILES[name]
    if not file.is_file():
        raise _missing(file)
    try:
        # ParquetFile, not read_table: a folder called 'lr=1' must not become a partition column.
        with pq.ParquetFile(file) as source:
            table = source.read()
        table.validate(full=True)  # text that is no UTF-8, lists that point outside
    except (pa.ArrowException, OSError) as error:
        raise RunError(
            "not readable as Parquet (truncated or damaged)",
            where=str(file),
            got=str(error).split("\n")[0],
            todo="Run it again.",
        ) from None
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
