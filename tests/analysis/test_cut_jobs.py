"""Jobs of which a log shows a part: readers mark them, they hold GPUs in a run, and they are in no time of jobs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from analysis.audit import audit
from analysis.compare import compare
from analysis.measuring_window import windowed
from analysis.metrics import measures, per_job
from analysis.metrics.measures import MEASURES
from analysis.run import Run, RunError, load_run
from analysis.tables import cut_in_words, notices
from sim.api import PolicyError
from sim.engine.simulate import RunResult
from tests.helpers import jobs, nodes, run
from traces.load import load_trace, write_trace
from traces.offered_load import offered_load
from traces.select import Selection

DLRM = "instance_sn,role,app_name,gpu_request,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
FOUR = DLRM + "always,HN,a,1,1,,,\nold,HN,a,1,1,,,300\nstays,HN,a,1,1,100,150,\nseen,HN,a,1,1,200,210,1000\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
DAY = "2020-09-01 08:"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def loaded(result: RunResult) -> Run:
    return Run(Path("run"), result.tables, result.info, {})


def cuts(path: Path, **options: str) -> dict[str, tuple[str, float]]:
    """By job: what is cut, and the run time."""
    trace = load_trace(path, **options)
    return dict(zip(trace.job_id, zip(trace.cut, trace.duration_s.tolist(), strict=True), strict=True))


def test_of_four_rows_one_is_whole_and_n_is_one(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, "disaggregated_DLRM_trace.csv", FOUR))
    assert dict(zip(trace.job_id, trace.cut, strict=True)) == {
        "always": "both", "old": "before", "stays": "after", "seen": ""}
    played = loaded(run(trace, nodes(("A10", 1, 4)), "fifo"))
    row, job = measures(played), per_job(played)
    assert (row["jobs"], row["jobs_cut"], row["jobs_finished"], row["jobs_done"]) == (1, 3, 1, 1)
    assert row["jct_mean_s"] == row["jct_p99_s"] == 790 and row["queue_mean_s"] == 0
    told = ["jct_s", "queue_s", "slowdown", "bounded_slowdown", "rho"]
    assert job.loc[["always", "old", "stays"], told].isna().all(axis=None)
    assert job["finished"].sum() == 1
    assert row["held_gpu_h"] == pytest.approx((1000 + 300 + 850 + 790) / 3600), "they hold their GPUs"
    assert row["makespan_s"] == 1000 and row["unsuccessful_gpu_h"] == 0
    assert cut_in_words(played) == (
        "4 jobs, 1 counted; 2 cut at the begin of the log, 2 at its end, 1 of these at both: these hold GPUs, and "
        "their times are in no JCT.")
    assert cut_in_words(played) in notices(played)
    assert audit(played).ok


def test_what_is_offered_is_what_all_of_them_ask() -> None:
    trace = jobs([(0, 100, 1), (100, 100, 1)], cut=["before", ""])
    whole, cluster = jobs([(0, 100, 1), (100, 100, 1)]), nodes(("V100", 1, 2))
    row, other = (measures(loaded(run(one, cluster, "fifo"))) for one in (trace, whole))
    assert row["offered_load"] == other["offered_load"] and row["offered_load_span"] == other["offered_load_span"]
    assert row["fragmented_share"] == other["fragmented_share"]
    assert offered_load(trace, cluster.num_gpus) == offered_load(whole, cluster.num_gpus)


def test_deadlines_and_rejections_of_cut_jobs() -> None:
    """A cut job's deadline counts neither way; that it was turned away is told all the same."""
    trace = jobs([(0, 9, 1), (1, 9, 4)], deadline_s=[5.0, 5.0], cut=["", "after"])
    played = loaded(run(trace, nodes(("V100", 1, 2)), "fifo"))
    row = measures(played)
    assert (row["deadline_jobs"], row["deadline_met_share"], row["jobs_rejected"]) == (1, 0, 0)
    assert any("1 job rejected" in text for text in notices(played))


def test_in_a_window_they_are_apart_too() -> None:
    trace = jobs([(0, 50, 1), (10, 50, 1), (20, 50, 1)], cut=["before", "", "after"])
    played = loaded(run(trace, nodes(("V100", 1, 4)), "fifo"))
    row = measures(windowed(played, 5, 40))
    assert (row["jobs"], row["jobs_cut"]) == (1, 1)
    assert windowed(played, 5, 40).info["window"]["jobs_counted"] == 1
    assert cut_in_words(windowed(played, 5, 40)).startswith("2 jobs, 1 counted; 0 cut at the begin of the log, 1 at")


def test_a_comparison_is_of_jobs_that_count(tmp_path: Path) -> None:
    trace = jobs([(0, 50, 1), (1, 70, 1), (2, 50, 1)], cut=["before", "", ""])
    folders = [tmp_path / policy for policy in ("fifo", "sjf")]
    for folder in folders:
        run(trace, nodes(("V100", 1, 1)), folder.name).write(folder)
    found = compare([load_run(folder) for folder in folders])
    assert "2 of 2 jobs" in str(found.text) and any("1 cut at the begin" in note for note in found.notes)


def test_f56_cut_jobs_ask_in_each_load_and_the_words_of_the_measures_say_so() -> None:
    """Two GPUs; 50 + 70 + 50 GPU-s come in 20 s, 50 of them of a job that the log cuts: it counts in nothing else."""
    trace = jobs([(0, 50, 1), (10, 70, 1), (20, 50, 1)], cut=["before", "", ""])
    two = nodes(("V100", 1, 2))
    row = measures(loaded(run(trace, two, "fifo")))
    assert row["jobs"] == 2
    assert row["offered_load_span"] == pytest.approx(170 / (2 * 20))
    assert row["offered_load"] == pytest.approx(170 / (2 * (20 + 170 / 3)))
    trace = jobs([(0, 50, 1), (10, 70, 1), (20, 500, 1)], cut=["", "", "after"])
    later = measures(loaded(run(trace, two, "fifo")))
    assert later["drain_s"] == pytest.approx(50 + 500 - (20 + 620 / 3))
    for name in ("modelled_load", "drain_s"):
        assert "that count" not in MEASURES[name].meaning and "cut ones too" in MEASURES[name].meaning


def test_runs_of_older_versions_cut_nothing_and_unknown_words_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = run(jobs([(0, 50, 1), (1, 70, 1)]), nodes(("V100", 1, 1)), "fifo")
    result.write(folder)
    table = result.tables["jobs"]
    at = table.schema.get_field_index("cut")
    pa.parquet.write_table(table.drop_columns("cut"), folder / "jobs.parquet")
    settings = folder / "run.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"schema_version": "4"}))
    old = load_run(folder)
    assert old.counted.all() and measures(old)["jobs_cut"] == 0 and cut_in_words(old) == ""
    pa.parquet.write_table(table.set_column(at, table.schema.field(at), [["", "left"]]), folder / "jobs.parquet")
    with pytest.raises(RunError, match="unknown word; got 'left'; allowed: blank, before, after, both"):
        load_run(folder)


def test_jobs_start_when_the_log_started_them(tmp_path: Path) -> None:
    """The one that was there when the log began at its begin, others after their recorded waits, late if full."""
    waits = [np.nan, 50.0, 10.0, 0.0, 0.0]
    trace = jobs([(0, 300, 1), (10, 50, 1), (20, 100, 1), (70, 20, 2), (200, 10, 1)], wait_s=waits,
                 cut=["before", "", "", "", ""])
    result = run(trace, nodes(("V100", 1, 3)), "recorded")
    assert result.tables["jobs"]["first_start_s"].to_pylist() == [0, 60, 30, 130, 200], "job 3 waits for GPUs"
    assert result.tables["jobs"]["end_s"].to_pylist() == [300, 110, 130, 150, 210]
    assert audit(loaded(result)).ok
    with pytest.raises(PolicyError, match="this trace records no waits"):
        run(jobs([(0, 300, 1)]), nodes(("V100", 1, 3)), "recorded")


# --- what readers know --------------------------------------------------------------------------------------


def test_slurm_logs_tell_who_still_ran(tmp_path: Path) -> None:
    rows = (f"whole,u,v,1,1,1,COMPLETED,{DAY}00:00,{DAY}00:00,{DAY}01:00,60,0\n"
            f"runs,u,v,1,1,1,RUNNING,{DAY}00:10,{DAY}00:20,Unknown,,10\n"
            f"waits,u,v,1,1,1,PENDING,{DAY}00:30,Unknown,Unknown,,\n"
            f"seen,u,v,1,1,1,RUNNING,{DAY}00:40,{DAY}00:40,{DAY}02:00,80,0\n")
    path = written(tmp_path, "cluster_log.csv", HELIOS + rows)
    assert cuts(path) == {"whole": ("", 60), "seen": ("after", 80)}
    assert cuts(path, edges="cut") == {"whole": ("", 60), "seen": ("after", 80), "runs": ("after", 100)}
    counts = load_trace(path, edges="cut").provenance.counts
    assert counts["jobs not ended when the log was taken: run time cut there"] == 1
    assert counts["jobs that had not ended by their state: run time cut at their end"] == 1
    acme = SEREN + (f"a,u,1,8,1,SFT,RUNNING,{DAY}00:00+08:00,{DAY}00:00+08:00,,,0,\n"
                    f"b,u,1,8,1,SFT,COMPLETED,{DAY}00:00+08:00,{DAY}00:00+08:00,{DAY}03:00+08:00,180,0,\n")
    assert cuts(written(tmp_path, "trace_seren.csv", acme), edges="cut") == {"a": ("after", 180), "b": ("", 180)}


def test_the_philly_log_tells_whose_last_attempt_has_no_end(tmp_path: Path) -> None:
    def job(name: str, *spans: tuple[str, str | None]) -> dict[str, object]:
        detail = [{"ip": "m", "gpus": ["gpu0"]}]
        tries = [{"start_time": start, "end_time": end, "detail": detail} for start, end in spans]
        return {"status": "Killed", "vc": "v", "jobid": name, "attempts": tries, "user": "u",
                "submitted_time": f"{DAY}00:00"}

    log = [job("whole", (f"{DAY}00:00", f"{DAY}10:00")),
           job("again", (f"{DAY}00:00", None), (f"{DAY}02:00", f"{DAY}03:00")),
           job("runs", (f"{DAY}00:00", f"{DAY}01:00"), (f"{DAY}04:00", None))]
    path = written(tmp_path, "cluster_job_log", json.dumps(log))
    assert cuts(path) == {"whole": ("", 600), "again": ("", 60)}
    assert cuts(path, edges="cut") == {"whole": ("", 600), "again": ("", 60), "runs": ("after", 60 + 360)}
    assert cuts(path, edges="cut", attempts="last")["runs"] == ("after", 360)


def test_pai_and_openb_tell_who_was_running(tmp_path: Path) -> None:
    tasks = "a,w,1,Terminated,100,200,600,29,100,T4\nb,w,1,Running,150,,600,29,100,T4\nc,w,1,Running,,,600,29,100,T4\n"
    raw = written(tmp_path, "pai_task_table.csv", tasks)
    assert cuts(raw) == {"a/w": ("", 100)}
    assert cuts(raw, edges="cut") == {"a/w": ("", 100), "b/w": ("after", 50)}
    pai = ("job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,status\n"
           "a,1,0,6,1,T4,10,u,Terminated\nb,1,0,6,1,T4,20,u,Running\n")
    assert cuts(written(tmp_path, "pai.csv", pai)) == {"a": ("", 10), "b": ("after", 20)}
    pods = ("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
            "scheduled_time\n"
            "a,1,1,1,1000,,LS,Running,0,50,0\nb,1,1,1,1000,,LS,Running,10,90,10\nc,1,1,1,1000,,LS,Succeeded,10,90,10\n")
    assert cuts(written(tmp_path, "pods.csv", pods)) == {"a": ("", 50), "b": ("after", 80), "c": ("", 80)}


def test_a_trace_keeps_the_word_in_files_and_selections(tmp_path: Path) -> None:
    trace = jobs([(0, 50, 1), (10, 50, 2), (20, 50, 1)], cut=["before", "", "both"])
    for name in ("jobs.parquet", "jobs.csv"):
        assert load_trace(write_trace(trace, tmp_path / name)).cut.tolist() == ["before", "", "both"]
    assert Selection(submitted_from=5).apply(trace).cut.tolist() == ["", "both"]
    older = written(tmp_path, "old.csv", "job_id,submit_s,duration_s,num_gpus\na,0,9,1\n")
    assert load_trace(older).cut.tolist() == [""] and np.all(trace.wait_s != 0)
