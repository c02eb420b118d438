"""A sweep from its file to its folder, in this process: what is played, what is kept, what fails, what is read back."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measuring_window import asked
from analysis.metrics import measures, per_job
from analysis.run import Run, RunError, load_run
from analysis.sweeps import load_sweep
from policies.registry import find
from sim.sweeps.backlog import Backlog
from sim.sweeps.cell import Task, play
from sim.sweeps.kept import SweepError
from sim.sweeps.replay import Replay
from sim.sweeps.store import Store, columns_of
from tests.sweeps.conftest import RUN, content, played
from traces.errors import HetsimError

TWO = 'policy = ["fifo", "srtf"]\nseed = [0, 1]'


def test_what_is_kept_of_a_cell_is_what_a_run_of_the_same_settings_yields(grid, tmp_path):
    """Row by row: metrics, jobs with what is worked out for each, segments; and the run's folder itself."""
    made = grid(TWO + '\n[results]\ntables = ["jobs", "segments", "runs"]')
    played(made, "out")
    for cell in made.cells:
        Replay(cell.config).play().write(tmp_path / "run")
        run = load_run(tmp_path / "run")
        where = f"policy={cell.policy}/{cell.id}.parquet"
        metrics = pq.ParquetFile(f"out/metrics/{where}").read().to_pylist()
        assert metrics == [{"cell": cell.id, "seed": cell.axes["seed"], **measures(run)}]
        jobs = pq.ParquetFile(f"out/jobs/{where}").read()
        assert jobs.column_names == ["cell", "seed", *run.jobs.columns, *per_job(run).columns]
        assert jobs["job_id"].to_pylist() == run.jobs["job_id"].tolist()
        np.testing.assert_array_equal(jobs["jct_s"].to_numpy(), per_job(run)["jct_s"].to_numpy())
        assert set(jobs["cell"].to_pylist()) == {cell.id}
        assert pq.ParquetFile(f"out/segments/{where}").read().num_rows == len(run.segments)
        kept = load_run(f"out/runs/{cell.id}")
        assert kept.info == run.info
        pd.testing.assert_frame_equal(kept.segments, run.segments)


def test_the_reader_puts_tables_together_in_the_order_of_the_sweep(grid):
    made = grid(TWO)
    played(made, "out")
    sweep = load_sweep("out")
    assert sweep.axes == {"policy": ["fifo", "srtf"], "seed": [0, 1]}
    metrics, jobs = sweep.table(), sweep.table("jobs")
    assert metrics[["cell", "policy", "seed"]].to_numpy().tolist() == [
        [cell.id, cell.policy, cell.axes["seed"]] for cell in made.cells]
    assert (len(jobs), jobs["seed"].dtype, metrics["jct_mean_s"].dtype) == (4 * 40, np.int64, np.float64)
    means = jobs.groupby(["policy", "seed"])["jct_s"].mean()
    np.testing.assert_allclose(metrics.set_index(["policy", "seed"])["jct_mean_s"], means.loc[list(means.index)])
    assert sweep.cells["state"].tolist() == ["done"] * 4
    assert sweep.failed.empty
    with pytest.raises(RunError, match="does not keep this table; got 'segments'"):
        sweep.table("segments")


def test_p64_replicas_differ_and_cells_that_differ_in_the_policy_have_the_same_jobs(grid):
    played(grid('policy = ["fifo", "srtf"]\nseed = [0, 1, 2, 3, 4, 5, 6, 7]'), "out")
    sweep = load_sweep("out")
    assert sweep.table().groupby("policy")["jct_mean_s"].nunique().tolist() == [8, 8]
    submits = sweep.table("jobs").groupby(["policy", "seed"])["submit_s"].agg(tuple)
    assert submits["fifo"].tolist() == submits["srtf"].tolist()
    assert submits["fifo"].nunique() == 8


def test_what_is_done_is_not_played_again(grid, monkeypatch):
    made = grid(TWO)
    first = played(made, "out")
    before = content("out")
    monkeypatch.setattr("sim.sweeps.executors.play", lambda *_: pytest.fail("played again"))
    again = played(grid(TWO), "out")
    assert (first.before, first.done, again.before, again.done) == (0, 4, 4, 0)
    assert content("out") == before


def test_a_longer_list_plays_what_is_new_only(grid):
    played(grid(TWO), "out")
    more = played(grid(TWO.replace("[0, 1]", "[0, 1, 2]")), "out")
    assert (more.cells, more.before, more.done) == (6, 4, 2)
    assert load_sweep("out").table()["seed"].tolist() == [0, 1, 2, 0, 1, 2]


def test_cells_that_fail_are_recorded_and_the_rest_goes_on(grid):
    """A GPU is too few for any of two jobs that want two; the third runs where it may."""
    Path("jobs.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,5,2\nb,1,5,2\n")
    run = '[run]\nwork = "recorded"\ntrace = "jobs.csv"\n'
    made = grid('cluster = ["v100:1", "v100:2"]\npolicy = ["fifo", "srtf"]', run)
    now = played(made, "out")
    assert (now.done, len(now.failed)) == (2, 2)
    failed = load_sweep("out").failed
    assert failed[["cluster", "policy"]].to_numpy().tolist() == [["v100:1", "fifo"], ["v100:1", "srtf"]]
    assert failed["error"].str.startswith("no job ran").all()
    assert load_sweep("out").table()["cluster"].tolist() == ["v100:2", "v100:2"]


def test_a_policy_that_fails_is_told_of_and_tried_again_when_asked(grid, monkeypatch):
    made, policy = grid(TWO), find("srtf")
    whole = policy.decide

    def broken(self, view):
        raise RuntimeError("oh no")

    monkeypatch.setattr(policy, "decide", broken)
    now = played(made, "out")
    assert [(cell.policy, cell.axes["seed"]) for cell, _ in now.failed] == [("srtf", 0), ("srtf", 1)]
    assert all("oh no" in error for _, error in now.failed)
    monkeypatch.setattr(policy, "decide", whole)
    told = played(made, "out")
    assert (told.before, told.done, told.failed_before, len(told.failed)) == (2, 0, 2, 2)
    retried = played(made, "out", retry_failed=True)
    assert (retried.before, retried.done, retried.failed) == (2, 2, [])
    played(made, "fresh")
    assert content("out") == content("fresh")


def test_a_worker_with_other_code_or_files_refuses(grid):
    made = grid('trace = "jobs.csv"\ncluster = "v100:2"')
    (cell,) = made.cells
    task = Task(cell.id, cell.config, columns_of(made, cell), (), {}, cell.sources, os.getcwd())
    assert play(task).error == ""
    assert "the worker's code is" in play(replace(task, sources=replace(cell.sources, code="older"))).error
    assert "the worker's files are" in play(replace(task, sources=replace(cell.sources, cluster="other"))).error
    assert "the trace is not that with which the sweep was checked" in \
        play(replace(task, sources=replace(cell.sources, trace="0" * 64))).error
    assert "the folder in which the sweep was begun is not there" in play(replace(task, folder="/nowhere")).error


def test_nothing_is_begun_after_an_error_where_that_was_asked(grid, monkeypatch):
    monkeypatch.setattr(find("fifo"), "decide", lambda self, view: 1 / 0)
    now = played(grid('policy = ["srtf", "fifo"]\nseed = [0, 1, 2]'), "out", stop_on_error=True)
    assert len(now.failed) == 1
    states = load_sweep("out").cells["state"].tolist()
    assert states.count("failed") == 1
    assert states.count("waiting") == 6 - 1 - now.done


def test_jobs_that_a_trace_does_not_have_are_found_before_anything_is_played(grid):
    made = grid('trace = "jobs.csv"\nuser = [["u"], ["w"]]')
    with pytest.raises(HetsimError, match=r"user = w.*no such user; got 'w'"):
        played(made, "out")
    assert not list(Path("out").rglob("*.parquet"))


def test_cells_of_before_are_put_aside_brought_back_and_removed(grid):
    """Who reads all files of a table reads the present sweep only."""
    played(grid(TWO), "out")
    first = content("out")
    other = grid(TWO, RUN.replace("40", "41"))
    now = played(other, "out")
    assert (now.before, now.done, now.stale) == (0, 4, 4)
    assert {file.stem for file in Path("out/metrics").rglob("*.parquet")} == {cell.id for cell in other.cells}
    back = played(grid(TWO), "out")
    assert (back.before, back.done, back.stale) == (4, 0, 4)
    assert {name: sha for name, sha in content("out").items() if "stale" not in name} == first
    assert played(grid(TWO), "out", prune=True).stale == 0
    assert content("out") == first
    assert not Path("out/stale").exists()


def test_a_new_axis_is_a_new_column_of_cells_that_are_done(grid):
    """The default was played before; the files become those of a sweep that had the axis from the start."""
    played(grid(TWO), "out")
    wider = grid(TWO + '\nestimate = ["oracle", "noisy:0.5"]')
    assert played(wider, "out").done == 4
    played(wider, "fresh")
    assert content("out") == content("fresh")
    assert load_sweep("out").table()["estimate"].tolist() == ["oracle", "noisy:0.5"] * 4


def test_a_table_that_was_not_kept_is_made(grid):
    played(grid(TWO), "out")
    more = played(grid(TWO + '\n[results]\ntables = ["jobs", "decisions"]'), "out")
    assert (more.before, more.done) == (0, 4)
    assert load_sweep("out").table("decisions")["policy"].unique().tolist() == ["fifo", "srtf"]


def test_what_was_being_written_is_not_read(grid):
    """A part of a file, and a file without its record, are as if they were not there."""
    made = grid(TWO)
    played(made, "out")
    whole = content("out")
    last = made.cells[-1]
    part = Path(f"out/metrics/policy=srtf/.{last.id}.parquet.part")
    part.write_bytes(b"PAR1")
    Path(f"out/cells/{last.id}.json").unlink()
    assert load_sweep("out").cells["state"].tolist() == ["done"] * 3 + ["waiting"]
    assert len(load_sweep("out").table()) == 3
    played(made, "out", cells=made.cells[:1])
    assert len(list(Path("out/metrics").rglob("*.parquet"))) == 3
    assert played(made, "out").done == 1
    assert content("out") == whole
    assert not part.exists()


def test_a_damaged_record_or_a_lost_file_is_played_again(grid):
    made = grid(TWO)
    played(made, "out")
    whole = content("out")
    Path(f"out/cells/{made.cells[0].id}.json").write_text("{")
    Path(f"out/jobs/policy=fifo/{made.cells[1].id}.parquet").unlink()
    assert played(made, "out").done == 2
    assert content("out") == whole


def test_a_folder_of_something_else_is_left_alone(grid):
    made = grid(TWO)
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years")
    with pytest.raises(SweepError, match="a folder that is no sweep"):
        played(made, "mine")
    with pytest.raises(SweepError, match="cannot be made"):
        played(made, "jobs.csv")
    assert [file.name for file in Path("mine").iterdir()] == ["thesis.txt"]


def test_two_sweeps_at_once_do_not_share_a_folder(grid):
    made = grid(TWO)
    with Store(Path("out")).opened(), pytest.raises(SweepError, match="a sweep is being played into this folder"):
        played(made, "out")
    assert played(made, "out").done == 4


def test_infinity_and_nothing_are_values_of_an_axis(grid):
    made = grid("""
        [[sweep]]
        engine.checkpoint_interval_s = [60, inf]
        [[sweep]]
        engine.mtbf_h = 1000
    """)
    played(made, "out")
    sweep = load_sweep("out")
    assert sweep.axes == {"engine.checkpoint_interval_s": [60.0, np.inf, 0.0], "engine.mtbf_h": [None, 1000.0]}
    table = sweep.table()
    assert table["engine_checkpoint_interval_s"].tolist() == [60.0, np.inf, 0.0]
    assert table["engine_mtbf_h"].isna().tolist() == [True, True, False]
    json.loads(Path("out/sweep.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert played(grid("engine.checkpoint_interval_s = [60, inf]"), "out").done == 0


def test_names_that_datasets_would_mistake_are_written_with_percent_signs(grid):
    """A policy called by a path and a number, as a package might; the cell itself is a common one."""
    made = grid("seed = [0]")
    odd = type(made.cells[0])(**{**vars(made.cells[0]), "policy": "a/b=1 %"})
    file = Store(Path("out")).file("metrics", odd)
    assert file.parent == Path("out/metrics/policy=a%2Fb%3D1%20%25")


def test_the_reader_reads_sweeps_only(grid, tmp_path):
    with pytest.raises(RunError, match="no sweep"):
        load_sweep(tmp_path / "none")
    played(grid(TWO), "out")
    info = json.loads(Path("out/sweep.json").read_text())
    Path("out/sweep.json").write_text(json.dumps(info | {"layout": 99}))
    with pytest.raises(RunError, match="another layout; got 99"):
        load_sweep("out")


def test_the_longest_come_first_once_it_is_known(grid):
    """One of each kind in the order of the file, then by what took longest; seeds are alike."""
    cells = grid('policy = ["fifo", "srtf", "las"]\nseed = [0, 1, 2]').cells
    waiting = Backlog(cells, [])
    time_s = {"fifo": 1.0, "srtf": 5.0, "las": 3.0}
    taken = []
    while cell := waiting.take():
        taken.append((cell.policy, cell.axes["seed"]))
        waiting.learn(cell, time_s[cell.policy])
    assert taken == [("fifo", 0), ("srtf", 0), ("las", 0), ("srtf", 1), ("srtf", 2), ("las", 1), ("las", 2),
                     ("fifo", 1), ("fifo", 2)]


def longest_first(waiting, times):
    """The rule of `Backlog` word by word: each group of cells alike is looked at each time."""
    def expected(group):
        alike = [wall_s for other, wall_s in times if (other.policy, other.axes["load"]) == group]
        took = alike or [wall_s for other, wall_s in times if other.policy == group[0]]
        return sum(took) / len(took) if took else np.inf

    groups = list(dict.fromkeys((cell.policy, cell.axes["load"]) for cell in waiting))
    left = sum(expected((cell.policy, cell.axes["load"])) for cell in waiting)
    first = max(groups, key=expected, default=None)
    return next((cell for cell in waiting if (cell.policy, cell.axes["load"]) == first), None), left


@settings(max_examples=60)
@given(data=st.data())
def test_the_next_cell_is_the_longest_by_what_was_learnt_so_far(data):
    """Cells end in any order, several are under way, and some were played before."""
    cells = [SimpleNamespace(policy=policy, axes={"policy": policy, "load": load, "seed": seed})
             for policy in ("a", "b") for load in (1, 2) for seed in (0, 1, 2)]
    wall_s = st.sampled_from([1.0, 2.0, 2.5, 7.0])
    before = data.draw(st.lists(st.tuples(st.sampled_from(cells), wall_s), max_size=6))
    waiting = [cell for cell in cells if cell not in [one for one, _ in before]]
    backlog, times, playing = Backlog(waiting, before), list(before), []
    while waiting or playing:
        first, left_s = longest_first(waiting, times)
        assert backlog.left_s() == (None if left_s == np.inf else pytest.approx(left_s, abs=1e-9))
        if waiting and (not playing or data.draw(st.booleans())):
            assert backlog.take() is first
            waiting.remove(first)
            playing.append(first)
        else:
            times.append((playing.pop(data.draw(st.integers(0, len(playing) - 1))), data.draw(wall_s)))
            backlog.learn(*times[-1])
    assert backlog.take() is None


def test_time_left_is_that_of_cells_alike_and_unknown_without(grid):
    cells = grid('policy = ["fifo", "srtf"]\nseed = [0, 1, 2]').cells
    assert Backlog(cells, []).left_s() is None
    assert Backlog(cells, [(cells[0], 2.0), (cells[3], 10.0)]).left_s() == 3 * 2.0 + 3 * 10.0


WHOLE = '[results]\ntables = ["jobs", "segments"]\n'
IN_WINDOW = '[results]\ntables = ["jobs", "segments"]\nwarmup = "20%"\ncooldown = "10%"\n'


@pytest.mark.parametrize("follow", [False, True])
def test_a_measuring_window_is_that_of_the_run_and_part_of_the_cell(grid, follow):
    """Metrics and tables are of the window, jobs are those that count; the cells of the whole run are others."""
    whole = grid(TWO, RUN + WHOLE)
    made = grid(TWO, RUN + IN_WINDOW + f"follow = {str(follow).lower()}\n")
    assert not {cell.id for cell in made.cells} & {cell.id for cell in whole.cells}
    played(made, "out")
    sweep = load_sweep("out")
    for cell in made.cells:
        result = Replay(cell.config).play()
        run = asked(Run(Path(), result.tables, result.info, {}), warmup="20%", cooldown="10%", follow=follow)
        row = sweep.table()[sweep.table()["cell"] == cell.id].iloc[0]
        for name, value in measures(run).items():
            assert (pd.isna(row[name]) if value is None else row[name] == value), name
        jobs = sweep.table("jobs")[sweep.table("jobs")["cell"] == cell.id]
        assert 0 < len(jobs) < 40
        assert jobs["job_id"].tolist() == run.jobs["job_id"][run.counted].tolist()
        np.testing.assert_array_equal(jobs["jct_s"], per_job(run)["jct_s"][run.counted])
        assert (sweep.table("segments")["cell"] == cell.id).sum() == len(run.segments)


def test_a_window_that_a_run_does_not_have_fails_its_cell(grid):
    now = played(grid("seed = [0]", RUN + "[results]\nfrom = 1e10\n"), "out")
    assert "no such measuring window" in now.failed[0][1]


@pytest.mark.parametrize("damage", [
    lambda file: file.write_bytes(b"junk"),
    lambda file: file.write_bytes(file.read_bytes()[:-9]),
    lambda file: file.write_bytes(file.read_bytes().replace(b"job", b"jop", 1)),
    lambda file: file.unlink(),
])
@pytest.mark.parametrize("where", ["metrics/*/*.parquet", "jobs/*/*.parquet", "runs/*/segments.parquet"])
def test_a_file_that_is_not_as_it_was_written_is_made_again(grid, where, damage):
    made = grid("seed = [0]", RUN + '[results]\ntables = ["jobs", "runs"]\n')
    played(made, "out")
    whole = content("out")
    damage(next(Path("out").glob(where)))
    assert played(made, "out").done == 1
    assert content("out") == whole


DAMAGE = [
    lambda record: record.pop("columns"), lambda record: record.pop("error"), lambda record: record.pop("files"),
    lambda record: record.update(columns=5), lambda record: record.update(tables=5),
    lambda record: record.update(wall_s="x"), lambda record: record.update(wall_s=-1.0),
    lambda record: record.update(cell="../../x"), lambda record: record.update(cell="0" * 16),
    lambda record: record.update(tables=["../x"]), lambda record: record.update(state="perhaps"),
    lambda record: record["files"].update({"runs/../../x": ""}),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_edited_record_is_refused_by_the_reader_and_played_again(grid, damage):
    made = grid("seed = [0]")
    played(made, "out")
    file = Path(f"out/cells/{made.cells[0].id}.json")
    record = json.loads(file.read_text())
    damage(record)
    file.write_text(json.dumps(record))
    with pytest.raises(RunError, match=f"{file.name}"):
        load_sweep("out")
    assert played(made, "out").done == 1
    assert len(load_sweep("out").table()) == 1


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{", ""])
def test_a_record_that_is_no_json_object_is_as_if_it_were_not_there(grid, text):
    made = grid("seed = [0]")
    played(made, "out")
    Path(f"out/cells/{made.cells[0].id}.json").write_text(text)
    Path("out/cells/*.json").write_text(text or '{"cell": "*", "state": "done"}')
    with pytest.raises(RunError):
        load_sweep("out")
    assert played(made, "out").done == 1


@pytest.mark.parametrize("edit", [
    {"axes": 5}, {"cells": ["../x"]}, {"kinds": {}}, {"tables": ["../x"]}, {"axes": {"seed": ["x"]}},
])
def test_an_edited_description_is_refused(grid, edit):
    played(grid("seed = [0]"), "out")
    info = json.loads(Path("out/sweep.json").read_text())
    Path("out/sweep.json").write_text(json.dumps(info | edit))
    with pytest.raises(RunError, match=r"sweep\.json"):
        load_sweep("out")


def test_folders_named_like_files_of_a_sweep_are_left_alone(grid):
    made = grid("seed = [0]")
    played(made, "out")
    for folder in ("out/cells/.x.part", "out/metrics/policy=fifo/foo.parquet", "out/cells/y.json"):
        Path(folder).mkdir()
    assert played(made, "out").before == 1
    assert len(load_sweep("out").table()) == 1


def test_who_plays_refuses_before_a_folder_is_made(grid):
    def refuses():
        raise SweepError("nobody answers")

    with pytest.raises(SweepError, match="nobody answers"):
        played(grid(TWO), "new/out", refuses)
    assert not Path("new").exists()


def test_what_a_policy_prints_goes_to_stderr(grid, monkeypatch, capsys):
    whole = find("fifo").decide
    monkeypatch.setattr(find("fifo"), "decide", lambda self, view: print("hello") or whole(self, view))
    assert played(grid("seed = [0]"), "out").done == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "hello" in said.err


def test_a_policy_that_interrupts_or_exits_has_failed_where_a_worker_plays(grid, monkeypatch):
    made = grid("seed = [0]")
    (cell,) = made.cells
    task = Task(cell.id, cell.config, columns_of(made, cell), (), {}, cell.sources, os.getcwd())
    for error in (KeyboardInterrupt, SystemExit):
        def ends(self, view, error=error):
            raise error

        monkeypatch.setattr(find("fifo"), "decide", ends)
        assert error.__name__ in play(task, worker=True).error
    monkeypatch.setattr(find("fifo"), "decide", lambda self, view: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C, where this process plays
        play(task)
