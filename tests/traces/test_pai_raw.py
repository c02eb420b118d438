"""The raw tables of PAI 2020: what each row becomes, by hand, on small made-up tables in the published layout."""

from __future__ import annotations

import gzip
import io
import tarfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.load import detect, load_trace
from traces.machines.any_form import read_machines
from traces.machines.capacity import Capacity
from traces.readers import pai_tables
from traces.readers.pai_tables import COLUMNS, instance_spans, occupancy
from traces.reading.stream import pieces
from traces.reading.tally import Tally

JOB, TASK, INSTANCE, SENSOR, TAG = (f"pai_{n}" for n in (
    "job_table", "task_table", "instance_table", "sensor_table", "group_tag_table"))


def folder(path: Path, **tables: list[str]) -> Path:
    """A folder with some of the tables: job, task, instance, sensor, group_tag."""
    for name, rows in tables.items():
        full = f"pai_{name}_table"
        (path / f"{full}.csv").write_text("".join(row + "\n" for row in rows))
    return path


def task(job: str, *, name: str = "worker", n: object = 1, status: str = "Terminated", start: object = 100,
         end: object = 200, gpu: object = 100, kind: str = "T4") -> str:
    return f"{job},{name},{n},{status},{start},{end},600.0,29.3,{gpu},{kind}"


def instance(job: str, start: object, end: object, *, worker: str = "w") -> str:
    return f"{job},worker,i,{worker},id_{job},Terminated,{start},{end},m"


def job(name: str, start: object = 100, end: object = 200, *, user: str = "u", status: str = "Terminated") -> str:
    return f"{name},id_{name},{user},{status},{start},{end}"


def sensor(worker: str, machine: str, gpu: str, used: object, *, job: str = "a") -> str:
    return f"{job},worker,{worker},id,{machine},{gpu},1,{used},1,1,1,1,1,1,1,1"


P10 = {"job": [job("a", 0, 150)], "task": [task("a", start=30, end=150)], "instance": [instance("a", "40.0", "140.0")]}


@pytest.mark.parametrize(("options", "run_s", "wait_s"), [
    ({}, 100, 40), ({"run_time": "instance"}, 100, 40), ({"run_time": "task"}, 120, 30), ({"run_time": "job"}, 150, 0),
])
def test_p10_run_time_of_instance_task_or_job_and_the_wait_of_each(tmp_path, options, run_s, wait_s):
    trace = load_trace(folder(tmp_path, **P10), **options)
    assert (trace.duration_s.tolist(), trace.wait_s.tolist()) == ([run_s], [wait_s])
    assert trace.provenance.format == "pai-raw"
    assert (options or {"run_time": "instance"})["run_time"] in trace.provenance.rule


def test_without_the_instance_table_the_run_time_is_the_task_s(tmp_path):
    trace = load_trace(folder(tmp_path, job=P10["job"], task=P10["task"]))
    assert trace.duration_s.tolist() == [120] and "of the task" in trace.provenance.rule


def test_every_column_of_one_task(tmp_path):
    trace = load_trace(folder(
        tmp_path, job=[job("a", 1000, 5000, user="NA")], task=[task("a", n="3.0", gpu="50.0", kind="MISC")],
        instance=[instance("a", 1010, 1100), instance("a", 1020, 1250), instance("a", 1030, 1100)],
    ))
    assert trace.job_id.tolist() == ["a/worker"] and trace.user.tolist() == ["NA"]
    assert (trace.num_gpus.tolist(), trace.gpu_milli.tolist(), trace.worker_gpus.tolist()) == ([3], [500], [1])
    assert trace.gpu_type.tolist() == [""] and trace.status.tolist() == ["passed"]
    assert trace.submit_s.tolist() == [0] and trace.provenance.epoch_s == 1000
    # from the first start to the last end: 240 s, of which the three ran 90, 230 and 70 s
    assert trace.duration_s.tolist() == [240] and trace.wait_s.tolist() == [10]
    assert f"instances ran {390 / 720:.1%} of the GPU time" in " ".join(trace.provenance.notes)


def test_p09_hours_are_true_in_utc8_and_the_date_is_not(tmp_path):
    trace = load_trace(folder(tmp_path, job=[job("a", "494319.0", 494500)], task=[task("a", start=494400, end=494500)]))
    about = trace.provenance
    first = datetime.fromtimestamp(about.epoch_s + trace.submit_s[0], UTC)
    assert first.astimezone(ZoneInfo(about.tz)).strftime("%H:%M:%S") == "01:18:39" and first.hour == 17
    assert not about.date_is_real
    assert "1970" not in str(about)


def test_p07_end_zero_end_before_start_and_zero_length_are_three_outcomes(tmp_path):
    trace = load_trace(folder(
        tmp_path, task=[task("a", end=0), task("b", end=90), task("c", end=100), task("d")]))
    assert trace.job_id.tolist() == ["c/worker", "d/worker"] and trace.duration_s.tolist() == [0, 100]
    assert trace.provenance.counts == {
        "tasks not ended when the log was taken dropped": 1, "tasks that end before they start dropped": 1,
        "zero-length tasks kept": 1,
    }
    assert trace.provenance.first["zero-length tasks kept"] == ("pai_task_table.csv line 3",)


def test_p20_running_and_waiting_rows_without_times_are_counted_apart(tmp_path):
    trace = load_trace(folder(tmp_path, task=[
        task("a"), task("b", status="Running", start="", end=""), task("c", status="Waiting", start="", end="")]))
    assert trace.job_id.tolist() == ["a/worker"]
    assert trace.provenance.counts == {"unfinished tasks (Running) dropped": 1, "tasks never started dropped": 1}


def test_a_task_of_which_some_instances_still_run_is_unfinished(tmp_path):
    trace = load_trace(folder(
        tmp_path, job=[job("a"), job("b")], task=[task("a", n=2, status="Running", end=""), task("b")],
        instance=[instance("a", 110, 190), instance("a", 110, ""), instance("b", 120, 180)]))
    assert trace.job_id.tolist() == ["b/worker"]
    assert trace.provenance.counts == {"unfinished tasks (Running) dropped": 1, "instances without both times": 1}


def test_p17_only_terminated_tasks_passed(tmp_path):
    trace = load_trace(folder(tmp_path, task=[task("a"), task("b", status="Failed")]))
    assert trace.status.tolist() == ["passed", "failed"]
    with pytest.raises(TraceError, match=r"pai_task_table\.csv, line 2, status: unknown status; got 'Dead'"):
        load_trace(folder(tmp_path, task=[task("a"), task("b", status="Dead")]))


def test_tasks_without_gpus_are_dropped_and_counted(tmp_path):
    trace = load_trace(folder(tmp_path, task=[task("a", name="ps", gpu=""), task("a"), task("b", gpu="0.0")]))
    assert trace.job_id.tolist() == ["a/worker"] and trace.provenance.counts == {"tasks without GPUs dropped": 2}


def test_an_instance_of_several_gpus_is_a_worker_on_one_node(tmp_path):
    trace = load_trace(folder(tmp_path, task=[task("a", n=4, gpu=200), task("b", n=2, gpu=150, kind="V100M32")]))
    assert trace.num_gpus.tolist() == [8, 4] and trace.worker_gpus.tolist() == [2, 2]
    assert trace.gpu_type.tolist() == ["T4", "V100-32"]
    assert trace.provenance.counts == {"fractions above one GPU rounded up": 1}


def test_a_gang_wider_than_any_cluster_is_refused(tmp_path):
    with pytest.raises(TraceError, match="line 1, column 'inst_num': a job wider than any cluster"):
        load_trace(folder(tmp_path, task=[task("a", n=1_000_000, gpu=800)]))


TWO_ROLES = {
    "job": [job("a", 100, 900, status="Failed"), job("b", 300, 900)],
    "task": [task("a", name="chief", n=1, gpu=100, start=150, end=800, kind="T4"),
             task("a", name="worker", n=3, gpu=100, start=200, end=850, kind="P100"),
             task("a", name="ps", n=2, gpu="", kind=""), task("b", name="x", n=2, gpu=50, start=310, end=400),
             task("b", name="y", n=1, gpu=200, start=310, end=410, kind="MISC")],
}


def test_tasks_of_a_job_are_jobs_of_their_own_or_one_gang(tmp_path):
    path = folder(tmp_path, **TWO_ROLES)
    tasks = load_trace(path)
    assert tasks.job_id.tolist() == ["a/chief", "a/worker", "b/x", "b/y"] and tasks.status[0] == "passed"
    jobs = load_trace(path, unit="job")
    assert jobs.job_id.tolist() == ["a", "b"]
    assert jobs.num_gpus.tolist() == [4, 4] and jobs.gpu_milli.tolist() == [1000, 1000]  # b: 2 x 1/2 and 2: four GPUs
    assert jobs.worker_gpus.tolist() == [1, 1]
    assert jobs.gpu_type.tolist() == ["T4|P100", ""] and jobs.status.tolist() == ["failed", "passed"]
    assert jobs.duration_s.tolist() == [700, 100] and jobs.wait_s.tolist() == [50, 10]
    assert jobs.provenance.counts["jobs whose tasks ask for different shares: as single GPUs"] == 1


def test_a_job_of_equal_tasks_keeps_its_shares(tmp_path):
    rows = [task("a", name="x", n=2, gpu=25), task("a", name="y", n=1, gpu=25)]
    trace = load_trace(folder(tmp_path, job=[job("a")], task=rows), unit="job")
    assert (trace.num_gpus.tolist(), trace.gpu_milli.tolist()) == ([3], [250])


def test_without_the_job_table_submission_is_the_start_of_the_task_and_the_wait_unknown(tmp_path):
    trace = load_trace(folder(tmp_path, task=[task("a"), task("b", start=150)]) / "pai_task_table.csv")
    assert trace.submit_s.tolist() == [0, 50] and np.isnan(trace.wait_s).all() and (trace.user == "").all()
    assert any("no pai_job_table" in note for note in trace.provenance.notes)


def test_a_task_whose_job_is_not_in_the_job_table_is_counted(tmp_path):
    trace = load_trace(folder(tmp_path, job=[job("a", 90)], task=[task("a"), task("b", start=150)]))
    assert trace.submit_s.tolist() == [0, 60] and trace.wait_s[0] == 10 and np.isnan(trace.wait_s[1])
    assert trace.provenance.counts == {
        "tasks of jobs without a time of submission: their own start stands for it": 1}


def test_a_job_that_is_not_in_the_job_table_has_an_unknown_end(tmp_path):
    path = folder(tmp_path, job=[job("a", 90)], task=[task("a"), task("b", start=150)])
    assert load_trace(path, unit="job").status.tolist() == ["passed", "unknown"]
    assert load_trace(path, run_time="job").job_id.tolist() == ["a/worker"]


def test_the_log_s_window_is_from_the_first_submission_to_the_last_end_that_it_shows(tmp_path):
    trace = load_trace(folder(tmp_path, job=[job("a", 90), job("b", 50), job("c", 95)], task=[
        task("a"), task("b", status="Running", start=60, end=""), task("c", start=300, end=250)]))
    assert trace.job_id.tolist() == ["a/worker"]  # submitted at 90: time 0 of the trace
    assert trace.provenance.window_s == (-40, 160)


def test_the_type_that_was_asked_for_goes_before_the_one_assigned(tmp_path):
    tables = {"job": [job(n) for n in "abc"], "task": [task("a"), task("b", kind="MISC"), task("c", kind="P100")],
              "group_tag": ["id_b,u,V100M32,g,nmt", "id_c,u,,g,ctr"]}
    path = folder(tmp_path, **tables)
    assert load_trace(path).gpu_type.tolist() == ["T4", "V100-32", "P100"]
    assert load_trace(path, types="requested").gpu_type.tolist() == ["", "V100-32", ""]


def test_used_gpus_come_from_the_sensor_table(tmp_path):
    path = folder(
        tmp_path, job=[job(n) for n in "abcd"], task=[task("a", n=2), task("b"), task("c"), task("d", gpu=200)],
        sensor=[sensor("1", "m", "g0", 20), sensor("2", "m", "g1", 40), sensor("3", "m", "g2", 0, job="b"),
                sensor("4", "m", "g3", "", job="c"), sensor("5", "m", "g4", "130.5", job="d")])
    assert load_trace(path).gpu_milli.tolist() == [1000] * 4
    used = load_trace(path, gpus="used")
    assert used.gpu_milli.tolist() == [300, 1, 1000, 1000]
    assert used.num_gpus.tolist() == [2, 1, 1, 2]
    assert used.provenance.counts == {
        "tasks without a sensor: they take the GPUs that they asked for": 1,
        "tasks that used no GPU: they take a thousandth": 1, "fractions above one GPU rounded up": 1}


def test_gangs_that_are_not_as_announced_are_counted(tmp_path):
    trace = load_trace(folder(
        tmp_path, job=[job("a"), job("b")], task=[task("a", n=2), task("b")],
        instance=[instance("a", 110, 190), instance("a", 110, 90), instance("a", 120, 180), instance("b", 110, 130)]))
    assert trace.duration_s.tolist() == [80, 20]
    assert trace.provenance.counts == {
        "instances that end before they start": 1, "tasks with other than inst_num rows of instances": 1}


def test_ids_that_numbers_could_not_hold_stay_apart(tmp_path):
    trace = load_trace(folder(tmp_path, job=[job("1925036343869802844"), job("1925036343869802843", user="null")],
                              task=[task("1925036343869802844"), task("1925036343869802843")]))
    assert len(set(trace.job_id)) == 2 and set(trace.user) == {"u", "null"}


def test_p11_instances_share_a_gpu_only_on_one_machine_and_one_device(tmp_path):
    path = folder(tmp_path, sensor=[
        sensor("1", "m1", "/dev/nvidia0", 50), sensor("2", "m1", "/dev/nvidia0", 50),
        sensor("3", "m2", "/dev/nvidia0", 50), sensor("4", "m2", "/dev/nvidia1", 50), sensor("5", "m3", "", 0)],
        instance=[instance("a", 10, 20, worker="1"), instance("a", 15, 30, worker="2")])
    table = occupancy(path / "pai_sensor_table.csv")
    assert sorted(table.itertuples(index=False, name=None)) == [
        ("m1", "/dev/nvidia0", 2, 1.0), ("m2", "/dev/nvidia0", 1, 0.5), ("m2", "/dev/nvidia1", 1, 0.5)]
    for at_s, count in ((12, 1), (17, 2), (25, 1), (30, 0)):
        now = occupancy(path / "pai_sensor_table.csv", path / "pai_instance_table.csv", at_s)
        assert now["instances"].sum() == count, at_s
    with pytest.raises(TraceError, match="pai_instance_table is missing"):
        occupancy(path / "pai_sensor_table.csv", at_s=5)


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60),
       piece=st.integers(20, 400), held=st.integers(1, 10))
def test_spans_are_those_of_all_rows_whatever_the_pieces(tmp_path_factory, rows, piece, held):
    path = folder(tmp_path_factory.mktemp("spans"), instance=[instance(str(j), s, e) for j, s, e in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pai_tables, "HELD_TASKS", held)
        patch.setattr(pai_tables, "pieces", partial(pieces, piece_bytes=piece))
        spans = instance_spans(path / "pai_instance_table.csv", Tally())
    for i, name in enumerate(spans.keys.to_pylist()):
        mine = [(s, e) for j, s, e in rows if str(j) == name.split("\0")[0]]
        good = [(s, e) for s, e in mine if s > 0 and e >= s]
        assert spans.columns["rows"][i] == len(mine)
        expected = [np.nan] * 3
        if good:
            expected = [min(s for s, _ in good), max(e for _, e in good), sum(e - s for s, e in good)]
        np.testing.assert_equal([spans.columns[c][i] for c in ("first_s", "last_s", "ran_s")], expected)
    assert len(spans.keys) == len({j for j, _, _ in rows})


def test_tables_are_read_packed_in_parts_and_with_their_own_header_files(tmp_path):
    plain, other = tmp_path / "plain", tmp_path / "packed"
    plain.mkdir(), other.mkdir()
    folder(plain, **P10)
    columns = list(COLUMNS[TASK])
    columns[2], columns[3] = columns[3], columns[2]
    (other / f"{TASK}.header").write_text(",".join(columns) + "\n")
    row = P10["task"][0].split(",")
    row[2], row[3] = row[3], row[2]
    (other / f"{TASK}.csv.gz").write_bytes(gzip.compress((",".join(row) + "\n").encode()))
    for name, parts in ((JOB, 1), (INSTANCE, 2)):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.add(plain / f"{name}.csv", f"{name}.csv")
        data, half = buffer.getvalue(), len(buffer.getvalue()) // parts + 1
        for i in range(parts):
            suffix = ".tar.gz" if parts == 1 else f".tar.gz.parta{'ab'[i]}"
            (other / f"{name}{suffix}").write_bytes(data[i * half : (i + 1) * half])
    assert detect(other).name == "pai-raw"
    assert load_trace(other).content_hash() == load_trace(plain).content_hash()


@pytest.mark.parametrize(("tables", "options", "words"), [
    (("job",), {}, "no jobs here: pai_task_table is missing"),
    (("instance",), {}, r"pai_task_table is missing.*their GPUs \(first 1 rows: 1 Terminated; 0 without times\)"),
    (("task",), {"run_time": "instance"}, "pai_instance_table is missing"),
    (("task",), {"run_time": "job"}, "pai_job_table is missing"),
    (("task",), {"unit": "job"}, "pai_job_table is missing"),
    (("task",), {"gpus": "used"}, "pai_sensor_table is missing"),
    (("task", "job"), {"types": "requested"}, "pai_group_tag_table is missing"),
    (("task",), {"types": "requested"}, "pai_job_table is missing"),
    (("task",), {"run_time": "tasks"}, "value not allowed; got 'tasks'.*did you mean 'task'"),
])
def test_a_table_that_is_needed_and_not_there_is_named(tmp_path, tables, options, words):
    path = folder(tmp_path, **{name: P10[name] for name in tables})
    with pytest.raises(TraceError, match=words):
        load_trace(path, **options)
    if len(options) == 0:
        with pytest.raises(TraceError, match=words):
            load_trace(next(path.glob("*.csv")))


@pytest.mark.parametrize(("row", "words"), [
    (task("a", start="soon"), "line 2, column 'start_time': value not allowed; got 'soon'"),
    (task("a", end="1e9"), "line 2, column 'end_time': value not allowed; got '1e9'"),
    (task("a", n="1.5"), "line 2, column 'inst_num'"), (task("a", gpu=-100), "line 2, column 'plan_gpu'"),
    ("a,b,c", "line 2: a row has the wrong number of cells"),
])
def test_a_bad_cell_is_refused_with_its_place(tmp_path, row, words):
    with pytest.raises(TraceError, match=rf"pai_task_table\.csv, {words}"):
        load_trace(folder(tmp_path, task=[task("z"), row]))


def test_a_task_table_with_nothing_to_run_is_refused_with_its_counts(tmp_path):
    with pytest.raises(TraceError, match=r"the trace has no jobs.*tasks without GPUs dropped: 1"):
        load_trace(folder(tmp_path, task=[task("a", gpu="")]))


def test_of_two_rows_of_one_job_the_first_counts(tmp_path):
    jobs = [job("z", user="y"), job("a", 90, user="x"), job("a", 95)]
    tags = ["id_b,u,P100,g,", "id_a,u,V100,g,", "id_a,u,P100,g,"]
    trace = load_trace(folder(tmp_path, job=jobs, task=[task("a")], group_tag=tags))
    assert trace.user.tolist() == ["x"] and trace.wait_s.tolist() == [10] and trace.gpu_type.tolist() == ["V100"]


def test_a_name_that_is_there_twice_is_counted(tmp_path):
    trace = load_trace(folder(tmp_path, task=[task("a"), task("a", end=300)]))
    assert trace.duration_s.tolist() == [100]
    assert trace.provenance.counts == {"tasks of a name that was there before dropped": 1}


def test_the_real_sample_of_instances_is_refused_for_want_of_gpus(data_dir):
    path = data_dir / "pai" / "pai_instance_table.tail_sample.csv"
    with pytest.raises(TraceError, match=r"pai_task_table is missing.*206 rows: 197 Running, 9 Waiting; 206 without"):
        load_trace(path)
    tally = Tally()
    spans = instance_spans(path, tally)
    assert np.isnan(spans.columns["first_s"]).all() and spans.columns["rows"].sum() == 206
    assert tally.counts == {"instances without both times": 206}


def test_the_real_header_files_are_those_that_are_known(data_dir):
    for name, columns in COLUMNS.items():
        assert (data_dir / "pai" / f"{name}.header").read_text().strip().split(",") == list(columns)


def test_the_real_machines_are_1897_with_6742_gpus(data_dir):
    machines = read_machines(data_dir / "pai" / "pai_machine_spec.tar.gz")
    assert len(machines) == machines.distinct == 1897
    assert machines.gpus.sum() == 6742 and (machines.gpus == 0).sum() == 83
    assert machines.about.counts == {"machines without GPUs": 83}
    capacity = Capacity.of(machines)
    assert {t: capacity.peak(gpu_type=t) for t in ("T4", "P100", "V100", "V100M32", "MISC")} == {
        "T4": 994, "P100": 1596, "V100": 832, "V100M32": 1080, "MISC": 2240}
    with pytest.raises(TraceError, match="no jobs here: PAI's machines"):
        load_trace(data_dir / "pai" / "pai_machine_spec.tar.gz")


def test_p14_a_table_that_covers_the_early_tasks_only_is_told_with_the_day_of_change(tmp_path):
    """Ten tasks a day for four days; the instance table knows those of the last two only."""
    day = 86_400
    starts = {f"j{d}{i}": d * day + 60 * i + 1 for d in range(4) for i in range(10)}
    tasks = [task(name, start=start, end=start + 30) for name, start in starts.items()]
    late = [instance(name, start, start + 20) for name, start in starts.items() if start > 2 * day]
    trace = load_trace(folder(tmp_path, task=tasks, instance=late), run_time="task")
    note = next(note for note in trace.provenance.notes if "pai_instance_table" in note)
    assert note == ("tasks in pai_instance_table: 20 of 40 rows joined (50.00%); 0.00% before day 2, 100.00% from then "
                    "on")
    every = [instance(name, start, start + 20) for name, start in starts.items()]
    whole = load_trace(folder(tmp_path, task=tasks, instance=every), run_time="task")
    assert not any("rows joined" in note for note in whole.provenance.notes)
