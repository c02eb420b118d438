"""Helios and Acme on made files in the published layout: times, queueing, nodes, clusters, and GPUs day by day."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.load import detect, load_trace
from traces.machines.any_form import read_machines
from traces.machines.helios_quotas import without_gpus
from traces.readers.acme import posix_with_offset
from traces.reading.spans import spans
from traces.reading.tally import Tally

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
KALOS = ("job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
         "end_time,fail_time,stop_time,duration,queue,gpu_time\n")
JOB = "7,uNA,vcA,16,64,2,COMPLETED,2020-09-01 08:00:00,2020-09-01 08:00:30,2020-09-01 09:00:30,3600,30\n"


def written(folder, text, name):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


# --- Helios -------------------------------------------------------------------------------------------------


def test_each_column_of_a_helios_job(tmp_path):
    trace = load_trace(written(tmp_path, HELIOS + JOB + (
        "8,null,vcB,12,9,5,NODE_FAIL,2020-09-01 08:00:10,2020-09-01 08:00:10,2020-09-01 08:00:20,10,0\n"
        "9,uB,vcB,1,1,1,TIMEOUT,2020-09-01 08:01:00,2020-09-01 08:01:00,2020-09-02 08:01:00,86400,0\n"
    ), "cluster_log.csv"))
    assert trace.job_id.tolist() == ["7", "8", "9"] and trace.user.tolist() == ["uNA", "null", "uB"]
    assert trace.vc.tolist() == ["vcA", "vcB", "vcB"] and trace.submit_s.tolist() == [0, 10, 60]
    assert trace.duration_s.tolist() == [3600, 10, 86_400] and trace.wait_s.tolist() == [30, 0, 0]
    assert trace.num_gpus.tolist() == [16, 12, 1] and trace.worker_gpus.tolist() == [8, 1, 1]
    assert trace.status.tolist() == ["passed", "failed", "killed"]
    assert trace.provenance.counts == {"jobs whose GPUs do not lie evenly on their nodes: may lie anywhere": 1}
    assert trace.provenance.tz == "Asia/Shanghai" and trace.provenance.date_is_real
    assert trace.provenance.epoch_s == 1_598_918_400  # 2020-09-01 00:00:00 UTC is 08:00 in Shanghai


def test_helios_times_in_another_zone_move_the_calendar_and_nothing_else(tmp_path):
    path = written(tmp_path, HELIOS + JOB, "cluster_log.csv")
    here, naive = load_trace(path), load_trace(path, tz="naive")
    assert naive.provenance.epoch_s - here.provenance.epoch_s == 8 * 3600
    assert naive.content_hash() == here.content_hash()


def test_helios_jobs_that_give_no_run_time_are_counted_by_reason(tmp_path):
    trace = load_trace(written(tmp_path, HELIOS + JOB + (
        "1,u,vcA,0,1,1,COMPLETED,2020-09-01 08:00:00,2020-09-01 08:00:00,2020-09-01 08:00:01,1,0\n"
        "2,u,vcA,1,1,1,CANCELLED,2020-09-01 08:00:00,,,0,0\n"
        "3,u,vcA,1,1,1,RUNNING,2020-09-01 08:00:00,2020-09-01 08:00:00,Unknown,,0\n"
        "4,u,vcA,1,1,1,FAILED,2020-09-01 08:00:00,2020-09-01 08:00:00,2020-09-01 07:00:00,-3600,0\n"
        "5,u,vcA,1,1,,FAILED,2020-09-01 08:00:00,2020-09-01 08:00:05,2020-09-01 08:00:05,0,5\n"
    ), "cluster_log.csv"))
    assert trace.job_id.tolist() == ["5", "7"]
    assert trace.provenance.rows_read == 6
    assert trace.provenance.counts == {
        "CPU-only jobs dropped": 1,
        "jobs never started dropped": 1,
        "jobs not ended when the log was taken dropped": 1,
        "jobs that end before they start dropped": 1,
        "zero-length jobs kept": 1,
        "jobs whose GPUs do not lie evenly on their nodes: may lie anywhere": 1,
    }
    assert trace.provenance.first["jobs that end before they start dropped"] == ("line 6",)


def test_p18_a_folder_of_clusters_names_those_that_are_not_there(tmp_path):
    written(tmp_path / "Venus", HELIOS + JOB, "cluster_log.csv")
    written(tmp_path / "Earth", HELIOS + JOB, "cluster_log.csv")
    assert detect(tmp_path).name == "helios"
    trace = load_trace(tmp_path)
    assert trace.job_id.tolist() == ["Earth/7", "Venus/7"] and trace.vc.tolist() == ["Earth/vcA", "Venus/vcA"]
    assert "clusters read: Earth, Venus" in trace.provenance.notes
    assert "clusters not there: Saturn, Uranus" in trace.provenance.notes
    assert load_trace(tmp_path / "Venus").vc.tolist() == ["vcA"]


def test_a_message_about_one_of_several_clusters_names_its_file(tmp_path):
    written(tmp_path / "Venus", HELIOS + JOB.replace("COMPLETED", "LOST"), "cluster_log.csv")
    written(tmp_path / "Earth", HELIOS + JOB, "cluster_log.csv")
    with pytest.raises(TraceError, match=r"Venus/cluster_log.csv, line 2, status: unknown status; got 'LOST'"):
        load_trace(tmp_path)


SIZES = "date,vcA,vcB,total\n2020-09-01,0,8,8\n2020-09-02,64,8,72\n2020-09-04,64,0,65\n"


def test_p18_gpus_follow_the_date(tmp_path):
    capacity = read_machines(written(tmp_path, SIZES, "cluster_gpu_number.csv"))
    day = 86_400
    assert [capacity.at(t, "vcA") for t in (0, day - 1, day, 5 * day)] == [0, 0, 64, 64]
    assert [capacity.at(t, "vcB") for t in (0, day, 3 * day - 1, 3 * day)] == [8, 8, 8, 0]
    assert capacity.at(day) == 72 and capacity.peak() == 72
    assert capacity.about.epoch_s == 1_598_889_600  # 2020-09-01 00:00 in Shanghai
    assert capacity.about.counts == {
        "days whose total is not the sum of the virtual clusters": 1, "days after a day that is left out": 1,
    }
    with pytest.raises(TraceError, match="no jobs here: GPUs of each virtual cluster and day in Helios"):
        detect(tmp_path / "cluster_gpu_number.csv")


def test_p18_jobs_of_a_virtual_cluster_without_gpus_are_kept_and_reported(tmp_path):
    written(tmp_path, SIZES, "cluster_gpu_number.csv")
    log = written(tmp_path, HELIOS + JOB + JOB.replace("7,uNA,vcA,16,64,2", "8,u,vcB,16,64,2")
                  + JOB.replace("7,uNA,vcA", "9,u,vcZ") + JOB.replace("7,", "6,").replace("2020-09", "2020-08"),
                  "cluster_log.csv")
    trace = load_trace(log)
    assert trace.job_id.tolist() == ["6", "7", "8", "9"]
    prefix = "jobs of a virtual cluster with too few GPUs: "
    assert {k.removeprefix(prefix): v for k, v in trace.provenance.first.items() if k.startswith(prefix)} == {
        "not enough on that day": ("job 7",),  # vcA has none on this day, and 64 on the next
        "never enough": ("job 8",),  # vcB never has 16
        "not listed": ("job 9",),
        "before the table begins": ("job 6",),
    }


def test_without_gpus_compares_calendars_not_clocks(tmp_path):
    """The trace's second 0 is 08:00, the table's is midnight: a job of 01:00 the next day finds the GPUs."""
    capacity = read_machines(written(tmp_path, SIZES, "cluster_gpu_number.csv"))
    late = JOB.replace("7,", "8,").replace("2020-09-01 08", "2020-09-02 01").replace("2020-09-01 09", "2020-09-02 02")
    trace = load_trace(written(tmp_path / "x", HELIOS + JOB + late, "cluster_log.csv"))
    assert trace.submit_s[1] == 17 * 3600 < 86_400
    assert without_gpus(trace, capacity)["not enough on that day"].tolist() == [True, False]


# --- Acme ---------------------------------------------------------------------------------------------------


def test_each_column_of_a_seren_job(tmp_path):
    trace = load_trace(written(tmp_path, SEREN + (
        "5,u1,4,32,512,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:32+08:00,"
        "2023-03-01 00:02:32+08:00,120,32,3840.0\n"
        "6,u2,1,0,8,Eval,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:00+08:00,"
        "2023-03-01 00:00:09+08:00,9,0,0\n"
    ), "trace_seren.csv"))
    assert trace.job_id.tolist() == ["5"] and trace.user.tolist() == ["u1"] and trace.vc.tolist() == ["seren"]
    assert trace.num_gpus.tolist() == [32] and trace.worker_gpus.tolist() == [8] and trace.gpu_type.tolist() == [""]
    assert trace.duration_s.tolist() == [120] and trace.wait_s.tolist() == [32] and trace.status.tolist() == ["passed"]
    assert trace.provenance.counts == {"CPU-only jobs dropped": 1}
    assert trace.provenance.epoch_s == 1_677_600_000  # 2023-02-28 16:00:00 UTC


def test_kalos_durations_have_the_queueing_in_them_and_are_not_used(tmp_path):
    """As in the README's own example: starts 10 s after submission, ends 8 s later, `duration` says 18."""
    trace = load_trace(written(tmp_path, KALOS + (
        "dlcA,u,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0\n"
        "dlcB,u,1,8,96,1000,100.0,Other,CANCELLED,2023-05-17 12:00:00+00:00,2023-05-17 12:00:00+00:00,"
        "2023-05-17 12:01:00+00:00,,2023-05-17 12:01:00+00:00,77,3,616.0\n"
    ), "trace_kalos.csv"))
    assert trace.duration_s.tolist() == [8, 60] and trace.wait_s.tolist() == [10, 0]
    assert trace.vc.tolist() == ["kalos", "kalos"] and trace.status.tolist() == ["failed", "killed"]
    assert trace.provenance.counts == {
        "rows whose duration has the queueing in it: end - start is used": 1,
        "rows whose duration is not end - start: end - start is used": 1,
        "rows whose queue is not start - submission: start - submission is used": 1,
    }


def test_acme_folder_has_both_clusters_and_can_be_cut_to_a_kind_of_work(tmp_path):
    cells = "COMPLETED,2023-03-01 00:00:0{0}+08:00,2023-03-01 00:00:0{0}+08:00,2023-03-01 01:00:0{0}+08:00"
    written(tmp_path, SEREN + f"1,u,1,8,1,Eval,{cells.format(1)},3600,0,1\n2,u,1,8,1,SFT,{cells.format(2)},3600,0,1\n",
            "trace_seren.csv")
    written(tmp_path, KALOS + f"d,u,1,8,1,1,1,Eval,{cells.format(3)},,,3600,0,1\n", "trace_kalos.csv")
    assert detect(tmp_path).name == "acme"
    assert load_trace(tmp_path).vc.tolist() == ["seren", "seren", "kalos"]
    evals = load_trace(tmp_path, type="eval")
    assert evals.job_id.tolist() == ["1", "d"] and evals.provenance.counts == {"jobs of other types dropped": 1}
    assert load_trace(tmp_path, type="SFT").job_id.tolist() == ["2"]  # Kalos has none
    with pytest.raises(TraceError, match=r"the trace has no jobs.*jobs of other types dropped: 3"):
        load_trace(tmp_path, type="Train")


def test_acme_times_need_their_offset(tmp_path):
    row = "5,u,1,8,1,Eval,FAILED,2023-03-01 00:00:00,2023-03-01 00:00:00+08:00,2023-03-01 00:01:00+08:00,60,0,1\n"
    with pytest.raises(TraceError, match="line 2, column 'submit_time': a time without an offset from UTC"):
        load_trace(written(tmp_path, SEREN + row, "trace_seren.csv"))


@given(st.integers(946_800_000, 4_000_000_000), st.integers(-56, 56))
def test_the_same_instant_in_any_offset_is_the_same_second(posix, quarters):
    shift_s = quarters * 900
    local = np.datetime64(posix + shift_s, "s").item().strftime("%Y-%m-%d %H:%M:%S")
    sign, size = "-" if shift_s < 0 else "+", abs(shift_s)
    cells = np.array([f"{local}{sign}{size // 3600:02}:{size % 3600 // 60:02}", ""], dtype=object)
    seconds = posix_with_offset(cells, lambda i: f"line {i}")
    assert seconds[0] == posix and np.isnan(seconds[1])


def test_summaries_and_readings_are_refused_for_what_they_are(tmp_path):
    summary = written(tmp_path, "id,job_num,cpu_job_num,gpu_job_num\nSeren,1,1,0\n", "cluster_summary.csv")
    with pytest.raises(TraceError, match="no jobs here: a summary of whole clusters"):
        detect(summary)
    readings = written(tmp_path, "Time,10.140.1.10\n2023-07-01 08:00:00+08:00,8.1\n", "GPU_UTIL.csv")
    with pytest.raises(TraceError, match="no jobs here: readings of Acme's machines"):
        detect(readings)


# --- times to run times -------------------------------------------------------------------------------------

times = st.one_of(st.just(np.nan), st.floats(0, 100))


@given(st.lists(st.tuples(times, times, times, st.booleans()), min_size=1, max_size=30))
def test_every_row_is_kept_or_counted_once_and_no_run_time_is_negative(rows):
    submit_s, start_s, end_s = (np.array([r[i] for r in rows]) for i in range(3))
    asked = np.array([r[3] for r in rows])
    tally = Tally()
    found = spans(tally, submit_s, start_s, end_s, asked)
    dropped = sum(n for what, n in tally.counts.items() if what.endswith("dropped"))
    assert found.kept.sum() + dropped == asked.sum()
    assert (found.duration_s[found.kept] >= 0).all() and not (found.wait_s[found.kept] < 0).any()
    assert np.isnan(found.duration_s[~found.kept]).all()
