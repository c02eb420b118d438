"""What a submission says beside its GPUs: how each reader fills it, what must agree, and what becomes of it."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.columns import BY_NAME, COLUMNS, CUTS, shared
from traces.errors import TraceError
from traces.load import load_trace, write_trace
from traces.offered_load import offered_load, scale_load
from traces.recipes import assign_recipe
from traces.select import split_gangs
from traces.trace import Trace

NEW = tuple(c.name for c in COLUMNS if c.if_said)


def trace_of(num_gpus, **more):
    n = len(num_gpus)
    columns = {"job_id": [f"j{i}" for i in range(n)], "submit_s": np.arange(n) * 100.0, "duration_s": [50.0] * n,
               "num_gpus": num_gpus}
    return Trace.from_columns(columns | more)


def written(folder, name, *lines):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def cells(trace, name):
    """A column as a list, with None for NaN."""
    return [None if v != v else v for v in getattr(trace, name).tolist()]  # noqa: PLR0124 - NaN


# --- what each log says -------------------------------------------------------------------------------------


def test_pai_s_cpus_are_those_of_all_instances(tmp_path):
    trace = load_trace(written(
        tmp_path, "jobs.csv", "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user",
        "1,12.0,3,6.0,0.25,T4,15748,u", "2,2,7,,2,V100,500,u"))
    assert cells(trace, "cpus") == [72.0, None] and not BY_NAME["memory_gib"].said(trace.memory_gib)


def pai_raw(folder):
    """Two jobs of the raw tables: one of two GPU tasks, one of a task that does not say what memory it asks for."""
    tables = {
        "pai_task_table.csv": ("a,worker,2,Terminated,100,400,600.0,29.296875,100,T4",
                               "a,chief,1,Terminated,100,400,150.0,10,100,T4",
                               "b,worker,4,Terminated,100,400,50.0,,50,T4"),
        "pai_job_table.csv": ("a,ia,u,Terminated,90,410", "b,ib,u,Terminated,95,410"),
        "pai_group_tag_table.csv": ("ia,u,,fbeb14,nmt", "ib,u,,,"),
    }
    for name, rows in tables.items():
        written(folder, name, *rows)
    return folder


def test_pai_s_raw_tables_say_cpus_memory_and_which_tasks_recur(tmp_path):
    trace = load_trace(pai_raw(tmp_path))
    by_task = dict(zip(trace.job_id, zip(cells(trace, "cpus"), cells(trace, "memory_gib"), trace.recurrence,
                                         strict=True), strict=True))
    assert by_task == {"a/worker": (12.0, 58.59375, "fbeb14"), "a/chief": (1.5, 10.0, "fbeb14"),
                       "b/worker": (2.0, None, "")}
    assert not BY_NAME["group"].said(trace.group)  # PAI's group is of like jobs at other times, not of one submission


def test_a_pai_job_asks_for_what_its_tasks_ask_for_and_for_an_unknown_sum_where_one_is_unknown(tmp_path):
    trace = load_trace(pai_raw(tmp_path), unit="job")
    assert trace.job_id.tolist() == ["a", "b"] and trace.recurrence.tolist() == ["fbeb14", ""]
    assert cells(trace, "cpus") == [13.5, 2.0] and cells(trace, "memory_gib") == [68.59375, None]


def test_openb_s_thousandths_and_mib(tmp_path):
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    trace = load_trace(written(tmp_path, "pods.csv", header + "scheduled_time",
                               "a,12500,16384,1,460,,LS,Running,0,90,0", "b,0,512,8,1000,,LS,Running,1,90,1"))
    assert cells(trace, "cpus") == [12.5, 0.0] and cells(trace, "memory_gib") == [16.0, 0.5]


def test_alibaba_2025_and_2026(tmp_path):
    header = "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,max_instance_per_node,"
    trace = load_trace(written(tmp_path, "dlrm.csv", header + "creation_time,scheduled_time,deletion_time",
                               "i1,HN,app_0,12,1,120.5,8,100,160,1000"))
    assert cells(trace, "cpus") == [12.0] and cells(trace, "memory_gib") == [120.5]
    header = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type"
    trace = load_trace(written(tmp_path, "spot.csv", header, "7,13,A10,15,1,94,0,60,Spot"))
    assert cells(trace, "cpus") == [15.0 * 94] and not BY_NAME["memory_gib"].said(trace.memory_gib)


def test_helios_and_acme_count_cpus_by_job(tmp_path):
    times = "2020-09-01 08:00:00,2020-09-01 08:00:30,2020-09-01 09:00:30,3600,30"
    trace = load_trace(written(
        tmp_path, "cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        f"7,u,v,16,64,2,COMPLETED,{times}", f"8,u,v,1,,1,COMPLETED,{times}"))
    assert cells(trace, "cpus") == [64.0, None]
    trace = load_trace(written(
        tmp_path, "trace_kalos.csv",
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,duration,queue,gpu_time",
        "d,u,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,18,10.0,1152.0"))
    assert cells(trace, "cpus") == [960.0] and not BY_NAME["memory_gib"].said(trace.memory_gib)  # of how many pods?


def test_swf_s_memory_is_by_processor(tmp_path):
    rows = [f"{job} {job} 5 100 4 -1 -1 {asked} 3600 {kb} 1 7 3 -1 1 2 -1 -1"
            for job, asked, kb in ((1, 4, 524_288), (2, -1, 1_048_576), (3, 8, -1))]
    trace = load_trace(written(tmp_path, "log.swf", *rows))
    assert cells(trace, "memory_gib") == [2.0, 4.0, None]
    assert not BY_NAME["cpus"].said(trace.cpus) and not BY_NAME["group"].said(trace.group)


def test_chronus_says_strict_and_several_deadlines_are_soft(tmp_path):
    trace = load_trace(written(
        tmp_path, "jobs.csv", "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
        "expect_time_list,expect_value_list,best_effort,job_type",
        "a,u,1,0,5,vgg16,2,1,45,10,0,strict", "b,u,1,1,5,vgg16,2,1,9-30,10-5,0,strict",
        "c,u,1,2,5,vgg16,2,1,9-30,10-5,1,best", "d,u,1,3,5,vgg16,2,1,9,10,0,urgent"))
    assert trace.deadline_kind.tolist() == ["strict", "soft", "", ""]
    assert cells(trace, "deadline_s") == [2700.0, 600.0, None, 720.0]


@pytest.mark.parametrize("cell", ["many", "-1", "inf", "1e13"])
def test_a_demand_that_is_no_number_is_named(tmp_path, cell):
    path = written(tmp_path, "jobs.csv", "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user",
                   f"1,1,3,{cell},1,T4,15748,u")
    with pytest.raises(TraceError, match=r"line 2, column 'num_cpu': value not allowed.*from 0 to 1e\+12, or blank"):
        load_trace(path)


# --- our own files ------------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
unknown = st.just(float("nan"))


@st.composite
def submissions(draw):
    """Up to six jobs, each with or without bounds, a deadline and its kind, and demands."""
    rows = []
    for index in range(draw(st.integers(1, 6))):
        gpus, batch = draw(st.integers(1, 64)), draw(st.integers(1, 4096))
        deadline_s = draw(st.floats(-1e9, 1e9) | unknown)
        elastic, adaptive = draw(st.booleans()), draw(st.booleans())
        rows.append({
            "job_id": f"j{index}", "submit_s": draw(st.integers(0, 9)), "duration_s": 1.0, "num_gpus": gpus,
            "batch_size": batch, "deadline_s": deadline_s,
            "deadline_kind": "" if deadline_s != deadline_s else draw(st.sampled_from(["", "strict", "soft"])),  # noqa: PLR0124
            "group": draw(words), "recurrence": draw(words), "cut": draw(st.sampled_from(CUTS)),
            "cpus": draw(st.floats(0, 1e6) | unknown),
            "memory_gib": draw(st.floats(0, 1e6) | unknown),
            "min_gpus": draw(st.integers(1, gpus)) if elastic else 0,
            "max_gpus": draw(st.integers(gpus, 1000)) if elastic else 0,
            "min_batch_size": draw(st.integers(1, batch)) if adaptive else 0,
            "max_batch_size": draw(st.integers(batch, 2**31 - 1)) if adaptive else 0,
        })
    return Trace.from_columns({name: [row[name] for row in rows] for name in rows[0]})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=submissions(), ending=st.sampled_from([".csv", ".parquet"]))
def test_what_was_submitted_is_read_again(tmp_path, trace, ending):
    again = load_trace(write_trace(trace, tmp_path / f"trace{ending}"))
    for column in COLUMNS:
        one, other = getattr(trace, column.name), getattr(again, column.name)
        assert one.dtype == other.dtype and np.array_equal(one, other, equal_nan=column.dtype != "text"), column.name
    assert again.content_hash() == trace.content_hash() and again.provenance.counts == {}  # nor taken for edited


@settings(max_examples=50, deadline=None)
@given(trace=submissions(), data=st.data())
def test_jobs_that_are_taken_keep_what_they_said_and_agree(trace, data):
    """Any rows are a trace again, bit by bit the same when checked anew; so are its parts and its copies."""
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(trace))), min_size=1, unique=True).map(sorted)))
    some = trace.select(rows)
    assert Trace.from_columns(some.said()).content_hash() == some.content_hash()
    assert all(np.array_equal(getattr(some, name), getattr(trace, name)[rows], equal_nan=BY_NAME[name].nan_ok)
               for name in NEW)
    parts = split_gangs(trace)  # checked in it
    for name in ("cpus", "memory_gib"):
        assert np.nansum(getattr(parts, name)) == pytest.approx(np.nansum(getattr(trace, name)))


def test_files_and_hashes_have_no_column_of_which_no_job_says_anything(tmp_path):
    plain = trace_of([1, 2])
    silent = trace_of([1, 2], **{name: [BY_NAME[name].default] * 2 for name in NEW})
    said = trace_of([1, 2], cpus=[np.nan, 4])
    assert plain.content_hash() == silent.content_hash() != said.content_hash()
    files = [write_trace(trace, tmp_path / f"{i}.parquet") for i, trace in enumerate((plain, silent))]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not set(NEW) & set(pq.read_schema(files[0]).names)
    assert pq.read_schema(write_trace(said, tmp_path / "said.parquet")).names == list(said.said())
    assert [name for name in said.said() if name in NEW] == ["cpus"]
    assert (tmp_path / "said.parquet.json").read_text().count('"cpus"') == 1  # its unit


def test_what_no_job_says_is_kept_once():
    trace = trace_of([1] * 1000)
    for kept in (trace, trace.select(slice(0, 10)), trace.replace(user=["u"] * 1000)):
        assert all(shared(getattr(kept, name)) and len(getattr(kept, name)) == len(kept) for name in NEW)
        assert not any(getattr(kept, c.name).flags.writeable for c in COLUMNS)


# --- what must agree ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "message"), [
    ({"deadline_kind": ["", "hard"], "deadline_s": [1, 2]},
     r"memory, row 2, column 'deadline_kind': unknown deadline_kind; got 'hard'; allowed: blank, strict, soft"),
    ({"deadline_kind": ["strict", "soft"], "deadline_s": [9, np.nan]},
     r"row 2, column 'deadline_kind': a kind of deadline without a deadline; got 'soft'; allowed: blank where"),
    ({"min_gpus": [1, 3], "max_gpus": [4, 4]},
     r"row 2: num_gpus is not within the job's own bounds; got 'min_gpus 3, num_gpus 2, max_gpus 4'; "
     r"allowed: 1 <= min_gpus <= num_gpus <= max_gpus, or both bounds 0: not elastic"),
    ({"max_gpus": [0, 1]}, r"row 2: num_gpus .* got 'min_gpus 0, num_gpus 2, max_gpus 1'"),
    ({"max_gpus": [8, 8]}, r"row 1: num_gpus .* got 'min_gpus 0, num_gpus 1, max_gpus 8'"),
    ({"batch_size": [32, 0], "min_batch_size": [16, 16], "max_batch_size": [64, 64]},
     r"row 2: batch_size is not within .* got 'min_batch_size 16, batch_size 0, max_batch_size 64'; .*a fixed batch"),
    ({"cpus": [1, -2]}, r"row 2, column 'cpus': value not allowed; got -2; allowed: .* or blank for unknown"),
    ({"memory_gib": [np.inf, 2]}, "row 1, column 'memory_gib': value not allowed; got inf"),
    ({"min_gpus": [1.5, 1], "max_gpus": [2, 2]}, "row 1, column 'min_gpus': value not allowed; got 1.5; .* an integer"),
])
def test_what_does_not_agree_names_the_row_and_what_is_allowed(columns, message):
    with pytest.raises(TraceError, match=message):
        trace_of([1, 2], **columns)


def test_a_job_on_its_bounds_is_within_them():
    trace = trace_of([2, 4], min_gpus=[2, 1], max_gpus=[2, 4], batch_size=[8, 8], min_batch_size=[8, 0],
                     max_batch_size=[8, 0])
    assert trace.min_gpus.tolist() == [2, 1] and trace.max_batch_size.tolist() == [8, 0]


# --- what becomes of it -------------------------------------------------------------------------------------


def test_bounds_that_a_new_value_is_outside_of_are_let_go():
    trace = trace_of([2, 2], min_gpus=[1, 1], max_gpus=[8, 2], batch_size=[32, 32], min_batch_size=[16, 16],
                     max_batch_size=[64, 32], deadline_s=[9, 9], deadline_kind=["soft", "strict"])
    other = trace.replace(num_gpus=[4, 4], batch_size=[64, 64], deadline_s=[np.nan, 5])
    assert other.min_gpus.tolist() == [1, 0] and other.max_gpus.tolist() == [8, 0]
    assert other.min_batch_size.tolist() == [16, 0] and other.max_batch_size.tolist() == [64, 0]
    assert other.deadline_kind.tolist() == ["", "strict"]
    with pytest.raises(TraceError, match="row 2: num_gpus is not within"):  # a bound that is given is not let go
        trace.replace(num_gpus=[4, 4], max_gpus=[8, 2])


@pytest.mark.parametrize("settings", [{"name": "gavel", "jobs": "drawn", "deadlines": True}, {"name": "pollux"},
                                      {"name": "pollux", "configuration": "tuned"}, {"name": "elasticflow"}])
def test_a_recipe_that_overwrites_leaves_jobs_that_agree(settings):
    n = 40
    trace = trace_of([4] * n, min_gpus=[4] * n, max_gpus=[4] * n, batch_size=[7] * n, min_batch_size=[7] * n,
                     max_batch_size=[7] * n, deadline_s=[1e6] * n, deadline_kind=["soft"] * n)
    name = settings["name"]
    rest = {key: value for key, value in settings.items() if key != "name"}
    made = assign_recipe(trace, name, 0, overwrite=True, **rest)
    same = made.num_gpus == 4
    assert made.min_gpus.tolist() == np.where(same, 4, 0).tolist()
    assert (made.min_batch_size > 0).tolist() == (made.batch_size == 7).tolist()


def test_a_gang_that_is_split_shares_out_what_it_asked_for():
    trace = trace_of([4, 1], min_gpus=[2, 1], max_gpus=[8, 2], batch_size=[10, 10], min_batch_size=[2, 5],
                     max_batch_size=[40, 20], cpus=[16, 3], memory_gib=[64, np.nan], group=["g", ""])
    parts = split_gangs(trace)
    assert parts.job_id.tolist() == ["j0/0", "j0/1", "j0/2", "j0/3", "j1"]
    assert parts.cpus.tolist() == [4, 4, 4, 4, 3] and cells(parts, "memory_gib") == [16, 16, 16, 16, None]
    assert parts.min_gpus.tolist() == [0, 0, 0, 0, 1] and parts.max_gpus.tolist() == [0, 0, 0, 0, 2]
    assert parts.batch_size.tolist() == [2, 2, 2, 2, 10] and parts.min_batch_size.tolist() == [1, 1, 1, 1, 5]
    assert parts.max_batch_size.tolist() == [10, 10, 10, 10, 20] and parts.group.tolist() == ["g"] * 4 + [""]


def test_a_copy_of_a_group_is_another_group_and_recurs_as_before():
    trace = trace_of([1, 1, 1], group=["g", "g", ""], recurrence=["r", "", "r"])
    twice = scale_load(trace, 10, 2 * offered_load(trace, 10), "repeat")
    assert sorted(twice.group) == ["", "", "g", "g", "g~1", "g~1"]
    assert sorted(twice.recurrence) == ["", "", "r", "r", "r", "r"]
    of = dict(zip(twice.job_id, twice.group, strict=True))
    assert of["j0"] == of["j1"] == "g" and of["j0~1"] == of["j1~1"] == "g~1"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=8), st.data())
def test_a_trace_with_columns_replaced_is_the_one_made_of_them_anew(jobs, data):
    """Also where the order changes; what is not replaced is the same memory, unless it is sorted anew."""
    when, gangs, spans = zip(*jobs, strict=True)
    trace = Trace.from_columns({"job_id": [f"j{i}" for i in range(len(jobs))], "submit_s": when, "duration_s": spans,
                                "num_gpus": gangs, "status": ["passed"] * len(jobs)})
    given_now = {
        "submit_s": data.draw(st.permutations(when)), "duration_s": data.draw(st.permutations(spans)),
        "status": data.draw(st.lists(st.sampled_from(["passed", "failed"]), min_size=len(jobs), max_size=len(jobs))),
    }
    given_now = {name: given_now[name] for name in data.draw(st.sets(st.sampled_from(sorted(given_now))))}
    new = trace.replace(**given_now)
    assert new.content_hash() == Trace.from_columns(trace.said() | given_now).content_hash()
    if "submit_s" not in given_now:
        assert new.num_gpus is trace.num_gpus
    with pytest.raises(TraceError, match="unknown status"):
        trace.replace(status=["odd"] * len(jobs))
    if len(jobs) > 1:
        with pytest.raises(TraceError, match="duplicate job id"):
            trace.replace(job_id=["a", "a", *trace.job_id[2:]])
