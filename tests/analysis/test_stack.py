"""Several runs under one schema (P-60), times that stay what they are (P-61), groups that occur (P-62)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.run import RunError, load_run
from analysis.stack import LEADING, stack
from sim.results.schema import FILES
from tests.analysis.conftest import RunFiles

Story = Callable[..., RunFiles]


def with_column(folder: Path, name: str, values: pa.Array, table: str = "jobs") -> Path:
    """What a guest does: a further column in a file of the run."""
    file = folder / f"{table}.parquet"
    pq.write_table(pq.read_table(file).append_column(name, values), file)
    return folder


def without_column(folder: Path, name: str, table: str = "jobs") -> Path:
    file = folder / f"{table}.parquet"
    pq.write_table(pq.read_table(file).drop_columns(name), file)
    return folder


@pytest.fixture
def calm(run_files: Story) -> Path:
    """A run in which nothing fails: `reason` has no value at all."""
    run = run_files("calm").node().job("a", 0, 10).job("b", 1, 5).segment("a", 0, 10, [0]).segment("b", 1, 6, [1])
    for job in run.jobs:
        job["reason"] = None
    run.info["seed"] = 1
    return run.write()


@pytest.fixture
def rough(run_files: Story) -> Path:
    """A run in which a job is rejected, by another policy."""
    run = run_files("rough").node().job("a", 0, 10).job("b", 1, 5, 8, state="rejected", reason="too wide")
    run.info |= {"policy": "srtf", "seed": 2}
    return run.segment("a", 0, 10, [0]).write()


def test_p60_rows_of_two_runs_with_a_null_column_and_a_further_one_are_under_one_schema(
        calm: Path, rough: Path) -> None:
    with_column(rough, "energy", pa.array([1.5, None]))
    for order in ([calm, rough], [rough, calm]):
        table = stack(order)
        assert table.schema.names == [*LEADING.names, *FILES["jobs"].names, "energy"]
        assert [table.schema.field(f.name).type for f in FILES["jobs"]] == [f.type for f in FILES["jobs"]]
        rows = {(row["run"], row["job_id"]): row for row in table.to_pylist()}
        assert [rows["fifo", "a"]["reason"], rows["srtf", "b"]["reason"]] == [None, "too wide"]
        assert [rows[key]["energy"] for key in (("fifo", "a"), ("srtf", "a"), ("srtf", "b"))] == [None, 1.5, None]
        assert [rows["fifo", "a"]["seed"], rows["srtf", "a"]["seed"]] == [1, 2]


@pytest.mark.parametrize("table", FILES)
def test_each_table_stacks_and_its_rows_come_back(story: RunFiles, rough: Path, table: str) -> None:
    first, second = load_run(story.write()), load_run(rough)
    stacked = stack([first.path, second.path], table)
    assert stacked.schema.metadata[b"schema_version"] == FILES[table].metadata[b"schema_version"]
    assert [f.metadata for f in stacked.schema][len(LEADING) :] == [f.metadata for f in FILES[table]]
    n = first.tables[table].num_rows
    own = stacked.drop_columns(LEADING.names)
    assert own.slice(0, n).to_pylist() == first.tables[table].to_pylist()
    assert own.slice(n).to_pylist() == second.tables[table].to_pylist()


def test_a_run_of_an_earlier_version_stacks_with_one_of_today(calm: Path, run_files: Story) -> None:
    old = run_files("old").node().job("a", 0, 10).segment("a", 0, 10, [0])
    old.info["schema_version"] = "2"
    folder = without_column(without_column(old.write(), "deadline_s"), "priority")
    table = stack([folder, calm])
    assert table["deadline_s"].null_count == 3
    assert table.schema.field("deadline_s").type == pa.float64()


def test_two_runs_of_one_policy_are_told_apart(calm: Path, run_files: Story) -> None:
    again = run_files("again").node().job("a", 0, 10).segment("a", 0, 10, [0]).write()
    table = stack([calm, again])
    assert table["run"].unique().to_pylist() == ["fifo (calm)", "fifo (again)"]
    assert table["policy"].unique().to_pylist() == ["fifo"]
    assert table["seed"].unique().to_pylist() == [1, None]


@pytest.mark.parametrize(("one", "other", "kind", "values"), [
    (pa.array([1, 2], pa.int32()), pa.array([0.5, None]), pa.float64(), [1, 2, 0.5, None]),
    (pa.array([1, 2], pa.int32()), pa.array([2**40, 3]), pa.int64(), [1, 2, 2**40, 3]),
    (pa.nulls(2), pa.array(["x", "y"]), pa.string(), [None, None, "x", "y"]),
    (pa.array(["x", "x"]).dictionary_encode(), pa.array(["y", "x"]), pa.string(), ["x", "x", "y", "x"]),
    (pa.array([[1], []], pa.list_(pa.int32())), pa.array([[.5], None]), pa.list_(pa.float64()), [[1], [], [.5], None]),
])  # fmt: skip
def test_further_columns_go_to_the_type_that_holds_both(
        calm: Path, rough: Path, one: pa.Array, other: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    with_column(calm, "x", one), with_column(rough, "x", other)
    column = stack([calm, rough])["x"]
    assert (column.type, column.to_pylist()) == (kind, values)


@pytest.mark.parametrize(("one", "other"), [
    (pa.array([2**53 + 1, 0]), pa.array([0.5, 1.0])),
    (pa.array([1, 0]), pa.array(["1", "0"])),
    (pa.array([True, False]), pa.array([1, 0])),
    (pa.array([2**63, 0], pa.uint64()), pa.array([1, 0], pa.int64())),
])  # fmt: skip
def test_what_would_lose_something_is_refused_by_name(calm: Path, rough: Path, one: pa.Array, other: pa.Array) -> None:
    with_column(calm, "x", one), with_column(rough, "x", other)
    with pytest.raises(RunError, match=r"jobs\.parquet.*'x: "):
        stack([calm, rough])
    assert stack([calm, rough], columns=["job_id"]).num_rows == 4, "the others are still there to be had"


def test_columns_are_those_asked_for_in_that_order(calm: Path, rough: Path) -> None:
    assert stack([calm, rough], columns=["end_s", "job_id"]).column_names == [*LEADING.names, "end_s", "job_id"]


def test_wrong_questions_are_answered_with_what_is_right(calm: Path) -> None:
    for runs, table, columns, words in (
        ([], "jobs", None, "no runs"),
        ([calm], "job", None, "did you mean 'jobs'"),
        ([calm], "jobs", ["end"], "did you mean 'end_s'"),
        ([calm.with_name("none")], "jobs", None, "no such run folder"),
    ):
        with pytest.raises(RunError, match=words):
            stack(runs, table, columns)
    with pytest.raises(RunError, match="name that is taken"):
        stack([with_column(calm, "seed", pa.array([1, 2]))])


def test_p61_times_are_floats_in_seconds_in_every_reader(calm: Path, tmp_path: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    times = [0.1 + 0.2, 1_504_521_041.123456]
    file = tmp_path / "jobs.parquet"
    pq.write_table(stack([with_column(calm, "seen_s", pa.array(times))]), file)
    frame = pd.read_parquet(file)
    assert frame["seen_s"].dtype == np.float64 and frame["seen_s"].tolist() == times
    frame.to_parquet(file)
    assert pq.read_table(file)["seen_s"].to_pylist() == times
    assert duckdb.sql(f"select seen_s, typeof(seen_s) from '{file}'").fetchall() == [(t, "DOUBLE") for t in times]
    column = polars.read_parquet(file)["seen_s"]
    assert (column.dtype, column.to_list()) == (polars.Float64, times)
    named = [f for schema in FILES.values() for f in schema if f.metadata[b"unit"] == b"s"]
    assert named and all(f.name.endswith("_s") and f.type in (pa.float64(), pa.list_(pa.float64())) for f in named)


def test_p62_groups_are_those_that_occur(calm: Path, rough: Path) -> None:
    frame = stack([calm, rough]).to_pandas()
    counts = frame.groupby(["policy", "state"]).size()
    assert counts.to_dict() == {("fifo", "done"): 2, ("srtf", "done"): 1, ("srtf", "rejected"): 1}
    assert not [name for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)]
