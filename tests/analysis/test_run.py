"""Loading a run: what is there comes back as it was written, what is wrong is said without a traceback."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.explain import explain
from analysis.figures.planfigure import plan_of
from analysis.run import Run, RunError, explode, labels, load_run
from analysis.timeline.tracks import timeline
from sim.results.schema import FILES, READABLE
from traces.errors import HetsimError


def test_frames_come_back_as_written(story):
    run = story.load()
    assert run.jobs["job_id"].tolist() == list("abcdefg")
    assert run.segments["work_done"].tolist() == [s["work_done"] for s in story.segments]
    assert run.nodes["gpus"].tolist() == [2, 2]
    assert len(run.decisions) == 12
    assert run.plans["gpu_type"].tolist() == ["V100"]
    assert (run.types, run.node_type.tolist()) == (("V100", "T4"), [0, 1])
    assert (run.policy, run.window_s) == ("fifo", (0.0, 140.0))
    assert run.outages.to_numpy().tolist() == [[0, 50, 60]]
    assert run.segment_job.tolist() == [2, 0, 1, 2, 4, 4, 5]


def test_a_job_that_is_not_there_is_refused_in_the_same_words_everywhere(run_files, monkeypatch):
    run = run_files().node().job("4456", 0, 1).job("x", 0, 1)
    run = run.segment("4456", 0, 1, [0]).segment("x", 0, 1, [1]).load()
    assert (run.row_of("4456"), run.row_of("x")) == (0, 1)
    said = set()
    for asked in (run.row_of, partial(plan_of, run), partial(explain, run), lambda job: timeline(run, jobs=[job])):
        with pytest.raises(RunError, match=r"no such job; got '4457'; .*did you mean '4456'\?") as refused:
            asked("4457")
        said.add(str(refused.value))
    assert len(said) == 1
    monkeypatch.setattr("analysis.run.one_run.MOST_COMPARED", 1)
    with pytest.raises(RunError, match=r"got '4457'; allowed: an id of jobs\.parquet$"):
        run.row_of("4457")


def test_a_node_that_stays_down_is_down_for_good(run_files):
    run = run_files().node(down=[1.0, 5.0], up=[2.0]).job("a", 0, 1).segment("a", 0, 1, [0]).load()
    assert run.outages.to_numpy().tolist() == [[0, 1, 2], [0, 5, np.inf]]


TIMES = st.none() | st.lists(st.none() | st.floats(0, 100), max_size=4)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=4))
def test_the_kth_return_of_a_node_ends_its_kth_outage(nodes):
    """Whatever the lists hold: none at all, more returns than outages, times that are missing."""
    columns = {name: pa.array(times, pa.list_(pa.float64()))
               for name, times in zip(("down_s", "up_s"), zip(*nodes, strict=True), strict=True)}
    outages = Run(Path("run"), {"nodes": pa.table(columns)}, {}, {}).outages
    by_hand = []
    for node, (downs, ups) in enumerate(nodes):
        for k, down_s in enumerate(downs or ()):
            up_s = ups[k] if ups and k < len(ups) else None
            by_hand.append([node, np.nan if down_s is None else down_s, np.inf if up_s is None else up_s])
    assert np.array_equal(outages.to_numpy(float), np.array(by_hand).reshape(-1, 3), equal_nan=True)


def test_explode_keeps_the_rows_of_empty_and_chunked_lists():
    column = pa.chunked_array([[[1, 2], []], [[3]]], type=pa.list_(pa.int32()))
    row, value = explode(column)
    assert (row.tolist(), value.tolist()) == ([0, 0, 2], [1, 2, 3])


def test_a_folder_with_an_equals_sign_is_no_partition(run_files):
    run = run_files("lr=1").node().job("a", 0, 1).segment("a", 0, 1, [0]).load()
    assert list(run.jobs.columns) == FILES["jobs"].names


def test_no_such_folder(tmp_path):
    with pytest.raises(RunError, match="no such run folder"):
        load_run(tmp_path / "nothing")


@pytest.mark.parametrize("name", [*(f"{n}.parquet" for n in FILES), "run.json"])
def test_a_missing_file_is_named(story, name):
    (story.write() / name).unlink()
    with pytest.raises(HetsimError, match="file is missing") as caught:
        load_run(story.folder)
    assert caught.value.where == str(story.folder / name)


@pytest.mark.parametrize("name", [f"{n}.parquet" for n in FILES])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_truncated_table_is_named(story, name, keep):
    file = story.write() / name
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(RunError, match="truncated or damaged") as caught:
        load_run(story.folder)
    assert caught.value.where == str(file)


def test_timing_may_be_missing(story):
    story.timing = None
    assert story.load().timing == {}


def test_another_schema_version_is_refused(story):
    story.info["schema_version"] = "0"
    with pytest.raises(RunError, match=f"another schema version; got '0'; allowed: {', '.join(READABLE)}"):
        story.load()


@pytest.mark.parametrize("content", ["{", "[]", '{"schema_version": "1"}'])
def test_a_run_json_that_cannot_be_used(story, content):
    (story.write() / "run.json").write_text(content)
    with pytest.raises(RunError, match=r"run\.json"):
        load_run(story.folder)


def test_a_missing_column_and_one_of_another_type_are_named(story):
    file = story.write() / "jobs.parquet"
    table = pq.read_table(file)
    pq.write_table(table.drop_columns(["state"]), file)
    with pytest.raises(RunError, match="column 'state' is missing"):
        load_run(story.folder)
    index = table.column_names.index("submit_s")
    pq.write_table(table.set_column(index, "submit_s", pa.array(["soon"] * len(table))), file)
    with pytest.raises(RunError, match="another type"):
        load_run(story.folder)


def test_further_columns_do_no_harm(story):
    file = story.write() / "jobs.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("extra", pa.array(range(len(table)))), file)
    assert list(load_run(story.folder).jobs.columns) == FILES["jobs"].names


def test_labels_are_unique(run_files, tmp_path):
    def run(folder, policy):
        files = run_files(folder).node().job("a", 0, 1).segment("a", 0, 1, [0])
        files.info["policy"] = policy
        return files.load()

    one, two, three = run("x/r1", "fifo"), run("x/r2", "fifo"), run("y/r1", "las")
    assert labels([one, three]) == ["fifo", "las"]
    assert labels([one, two, three]) == ["fifo (r1)", "fifo (r2)", "las"]
    assert labels([one, run("z/r1", "fifo")]) == ["fifo #1", "fifo #2"]
    assert json.loads((one.path / "run.json").read_text())["policy"] == "fifo"
