"""Alibaba 2025 and 2026 on made files in the published layout; tables without arrivals; coverage of a join."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.load import detect, load_trace
from traces.machines.any_form import read_machines
from traces.machines.capacity import Capacity
from traces.study.check import check
from traces.study.coverage import coverage, coverage_break, coverage_notes
from traces.study.describe import describe
from traces.study.executions import read_executions
from traces.study.summary import as_text

DLRM = ("instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n")
SPOT = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
DAY_S = 86_400


def written(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def instance(name, gpus, created, scheduled, deleted):
    role = "HN" if gpus else "CN"
    return f"{name},{role},app_0,12,12,{gpus},{gpus},25,25,1.0,1.0,6.0,8.0,8,{created},{scheduled},{deleted}\n"


# --- 2025: instances of services ----------------------------------------------------------------------------


def test_each_column_of_an_instance(tmp_path):
    trace = load_trace(written(tmp_path, DLRM + instance("i1", 1, 100.0, 160.0, 1000.0)
                               + instance("i2", 0, 1.0, 2.0, 3.0)))
    assert trace.job_id.tolist() == ["i1"] and trace.user.tolist() == ["app_0"]
    assert trace.submit_s.tolist() == [100] and trace.wait_s.tolist() == [60] and trace.duration_s.tolist() == [840]
    assert trace.num_gpus.tolist() == [1] and trace.gpu_milli.tolist() == [1000]
    assert trace.status.tolist() == ["unknown"]
    assert trace.provenance.counts == {"CPU-only instances dropped": 1} and trace.provenance.window_s == (0, 1000)


EDGES = DLRM + (instance("always", 1, "", "", "") + instance("old", 1, "", "", 300.0)
                + instance("stays", 1, 100.0, 150.0, "") + instance("seen", 1, 200.0, 210.0, 1000.0))


def test_instances_over_the_edge_of_the_log_hold_their_gpus_inside_it(tmp_path):
    trace = load_trace(written(tmp_path, EDGES))
    at = {name: i for i, name in enumerate(trace.job_id)}
    order = [at[name] for name in ("always", "old", "stays", "seen")]
    assert trace.submit_s[order].tolist() == [0, 0, 100, 200]
    assert trace.duration_s[order].tolist() == [1000, 300, 850, 790]
    assert np.isnan(trace.wait_s[order[:2]]).all() and trace.wait_s[order[2:]].tolist() == [50, 10]
    assert trace.provenance.counts == {
        "instances there before the log began: run time cut there": 2,
        "instances still there when the log ended: run time cut there": 2,
    }


def test_what_the_reader_cut_is_counted_once_and_doubted_no_more(tmp_path):
    """200 instances, one begun every 12 h from 50 days before a log of 50 days on, all but every second for 40 days."""
    log_d, text = 50, ""
    for i in range(200):
        begin_d = i / 2 - log_d
        end_d = begin_d + (40 if i % 2 else 1)
        created = "" if begin_d < 0 else DAY_S * begin_d
        if end_d > 0:
            text += instance(f"i{i}", 1, created, created, "" if end_d > log_d else DAY_S * end_d)
    text += instance("last", 1, 100, 100, DAY_S * log_d)
    trace = load_trace(written(tmp_path, DLRM + text))
    summary = describe(trace)
    assert summary["edges"]["cut"] == {"begin": 40, "end": 40} and len(trace) > 120
    assert [row["missing"] for row in summary["edges"]["late"]] == [0] * len(summary["edges"]["late"]) != []
    told = as_text(summary)
    assert "40 jobs at its begin" in told and "are missing" not in told and "are not in it" not in told
    assert check(trace) == []


def test_or_they_are_dropped_when_asked(tmp_path):
    trace = load_trace(written(tmp_path, EDGES), edges="drop")
    assert trace.job_id.tolist() == ["seen"]
    assert trace.provenance.counts == {
        "instances there before the log began: dropped": 2, "instances still there when the log ended: dropped": 2,
    }
    with pytest.raises(TraceError, match=r"option 'edges'.*allowed: cut, drop"):
        load_trace(written(tmp_path, EDGES), edges="keep")


# --- 2026: the spot trace -----------------------------------------------------------------------------------


def test_each_column_of_a_job_with_workers(tmp_path):
    trace = load_trace(written(tmp_path, SPOT + (
        "1,13,A10,20,0.5,3,0,100,HP\n"
        "2,57,A100-SXM4-80GB,15,8,4,50,1000,Spot\n"
        "3,57,GPU-series-1,15,0,1,60,10,HP\n"
        "4,57,GPU-series-1,15,1.5,1,70,10,HP\n"
    )))
    assert trace.job_id.tolist() == ["1", "2", "4"] and trace.vc.tolist() == ["13", "57", "57"]
    assert trace.num_gpus.tolist() == [3, 32, 2] and trace.gpu_milli.tolist() == [500, 1000, 1000]
    assert trace.worker_gpus.tolist() == [1, 8, 2]
    assert trace.gpu_type.tolist() == ["A10", "A100-80", "GPU-series-1"]
    assert trace.submit_s.tolist() == [0, 50, 70] and trace.duration_s.tolist() == [100, 1000, 10]
    assert trace.priority.tolist() == [2, 1, 2] and set(trace.status) == {"unknown"}
    assert trace.provenance.counts == {
        "CPU-only jobs dropped": 1, "fractions above one GPU rounded up": 1,
        "jobs submitted in the first second: perhaps older": 1,
        "jobs that end in the last second: perhaps cut off there": 1,
    }


def test_a_kind_of_job_that_is_not_known_is_named(tmp_path):
    with pytest.raises(TraceError, match="line 2, column 'job_type': unknown job_type; got 'LP'"):
        load_trace(written(tmp_path, SPOT + "1,13,A10,20,1,1,0,100,LP\n"))


def test_nodes_of_the_spot_trace_in_any_order_of_columns(tmp_path):
    path = written(tmp_path, "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nH800,8,192,1\nA10,1,128,2\n")
    with pytest.raises(TraceError, match="no jobs here: the nodes of Alibaba's spot trace"):
        detect(path)
    machines = read_machines(path)
    assert machines.name.tolist() == ["0", "1", "2"] and machines.cpu_cores.tolist() == [128, 192, 128]
    capacity = Capacity.of(machines)
    assert capacity.peak() == 10 and capacity.peak(gpu_type="A10") == 2


def servers(folder, day, hour, rows):
    part = folder / f"day={day}" / f"hour={hour:02}"
    part.mkdir(parents=True)
    frame = pd.DataFrame(rows, columns=["server_id", "gpu_count"])
    frame.assign(cluster_id="c", asw_id="a", gpu_spec_public="A10", cpu_capacity_cores=64.0).to_parquet(
        part / "part-000.parquet")


def test_p15_servers_that_take_turns_are_one_server_at_every_hour(tmp_path):
    for hour in range(10):
        servers(tmp_path, 0, hour, [("s1" if hour < 5 else "s2", 8.0)])
    capacity = read_machines(tmp_path)
    assert [capacity.at(3600 * h) for h in range(10)] == [8] * 10
    assert capacity.peak() == 8 and capacity.distinct() == 16
    assert capacity.about.notes == ("10 hours, 2 different servers",)


def test_servers_that_go_and_odd_rows_are_seen(tmp_path):
    servers(tmp_path, 0, 23, [("s1", 8.0), ("s2", 4.0), ("s2", 4.0), ("s3", None)])
    servers(tmp_path, 1, 0, [("s1", 8.0)])
    capacity = read_machines(tmp_path)
    assert capacity.at(23 * 3600, "c", "A10") == 12 and capacity.at(DAY_S, "c") == 8 and capacity.at(0) == 0
    assert capacity.about.counts == {
        "servers without a number of GPUs": 1, "servers listed twice in an hour: counted once": 1,
    }
    (tmp_path / "day=1" / "hour=00" / "part-000.parquet").write_bytes(b"PAR1")
    with pytest.raises(TraceError, match=r"hour=00/part-000.parquet: not the servers of an hour"):
        read_machines(tmp_path, "alibaba-2026")


# --- P-13: no arrival time ----------------------------------------------------------------------------------

SUMMARY = pd.DataFrame({
    "pod_id": ["9007199254740993", "9007199254740992"], "workload_id": ["w", None], "server_id": ["s", None],
    "gpu_spec_public": ["V100M32", "A10"], "priority_class": ["HP", "LP"], "job_type_public": ["training", "dev"],
    "model_type_public": ["genai", "cv"], "is_genai_request": [True, False], "gpu_request": [8.0, 0.5],
    "duration_hours": [2.0, 0.25], "schedule_delay_sec": pd.array([30, None], dtype="Int64"),
    "ready_delay_sec": [1, 2], "ready_status": [True, True], "schedule_status": [True, True],
})


@pytest.fixture(params=["parquet", "csv"])
def summary(request, tmp_path):
    path = tmp_path / f"part-000.{request.param}"
    SUMMARY.to_parquet(path) if request.param == "parquet" else SUMMARY.to_csv(path, index=False)
    return path


def test_p13_a_table_without_arrivals_is_refused_and_the_alternative_named(summary):
    with pytest.raises(TraceError, match=r"no arrival time in this table.*job_info_df\.csv"):
        load_trace(summary)


def test_p13_also_when_the_format_is_named(summary):
    with pytest.raises(TraceError, match=r"no arrival time in this table.*traces\.study\.executions"):
        load_trace(summary, "alibaba-2026")


def test_p13_it_serves_for_distributions(summary):
    table = read_executions(summary)
    assert table["job_id"].tolist() == ["9007199254740993", "9007199254740992"]  # text: no digit is lost
    assert table["duration_s"].tolist() == [7200, 900] and table["gpus"].tolist() == [8, 0.5]
    assert table["wait_s"][0] == 30 and np.isnan(table["wait_s"][1])
    assert table["gpu_type"].tolist() == ["V100-32", "A10"] and table["priority"].tolist() == ["HP", "LP"]
    assert table["kind"].tolist() == ["training", "dev"] and table["model_kind"].tolist() == ["genai", "cv"]
    assert "submit_s" not in table


def test_executions_say_what_is_missing_or_damaged(tmp_path):
    lacking = tmp_path / "lacking.parquet"
    SUMMARY.drop(columns="duration_hours").to_parquet(lacking)
    with pytest.raises(TraceError, match="column 'duration_hours' is missing"):
        read_executions(lacking)
    whole = tmp_path / "whole.parquet"
    SUMMARY.to_parquet(whole)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(TraceError, match="no whole Parquet file"):
        read_executions(cut)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("timestamp_anon,value,container_ip", "readings of services over time"),
        ("gmt_create,predict_type,predict_status,exec_time_seconds", "requests to served models"),
        ("server_id,cluster_id,asw_id,gpu_spec_public,gpu_count", "servers hour by hour"),
    ],
)
def test_the_other_tables_of_2026_are_refused_for_what_they_are(tmp_path, header, words):
    with pytest.raises(TraceError, match=f"no jobs here: .*{words}"):
        detect(written(tmp_path, header + "\n" + ",".join("1" * len(header.split(","))) + "\n"))


# --- P-14: coverage of a join -------------------------------------------------------------------------------


def test_p14_a_gap_in_a_join_is_found_with_its_day():
    time_s = np.concatenate([np.linspace(0, 4.9, 10), np.linspace(109, 113.9, 10)]) * DAY_S
    joined = np.repeat([False, True], 10)
    table = coverage(time_s, joined)
    assert table.rows.sum() == 20 and table.joined.sum() == 10
    assert table.share[0] == 0 and np.isnan(table.share[50]) and table.share[109] == 1
    change = coverage_break(table)
    assert (change.time_s / DAY_S, change.before, change.after) == (109, 0, 1)
    assert coverage_notes(table, "pods in the summary") == (
        "pods in the summary: 10 of 20 rows joined (50.00%); 0.00% before day 109, 100.00% from then on",
    )


def test_a_join_that_covers_all_or_evenly_little_has_no_break():
    time_s = np.arange(100) * DAY_S / 4
    assert coverage_notes(coverage(time_s, np.ones(100, dtype=bool)), "rows") == ()
    half = coverage(time_s, np.arange(100) % 2 == 0)
    assert coverage_break(half) is None
    assert coverage_notes(half, "rows") == ("rows: 50 of 100 rows joined (50.00%)",)


def test_nothing_to_join_has_no_coverage():
    empty = coverage(np.zeros(0), np.zeros(0, dtype=bool))
    assert len(empty.rows) == 0 and coverage_break(empty) is None and coverage_notes(empty, "rows") == ()


@given(st.lists(st.tuples(st.integers(-40, 40), st.booleans()), min_size=2, max_size=60))
def test_the_break_is_the_border_of_greatest_likelihood(rows):
    """Against every border tried by hand, with the likelihood written out row by row."""
    day, hit = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    change = coverage_break(coverage(day * DAY_S, hit), least=0.0)

    def likelihood(border):
        total = 0.0
        for side in (hit[day < border], hit[day >= border]):
            p = side.mean()
            total += sum(np.log(p if h else 1 - p) for h in side)
        return total

    borders = range(day.min() + 1, day.max() + 1)
    if not borders:
        assert change is None
    else:
        best = max(likelihood(b) for b in borders)
        assert likelihood(change.time_s / DAY_S) == pytest.approx(best, abs=1e-9)
