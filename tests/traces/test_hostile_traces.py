"""Files as nobody should write them: refused with what and where, or read with a count; never hung, never silent."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import PATIENCE_S
from traces.errors import TraceError
from traces.load import files_hash, load_trace
from traces.machines.any_form import read_machines
from traces.machines.capacity import Capacity
from traces.machines.own_tables import read_capacity, read_outages
from traces.machines.philly_nodes import observed_gpus
from traces.readers.gavel_rates import read_rates
from traces.reading.text import read_bytes, read_json
from traces.reading.unpack import inner_name, parts

ITP = "job_id,submission_time,duration,num_gpu\n"
DRAWN = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
HELIOS = ("job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
          "{},u,v,8,1,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:10,2020-04-01 00:01:10,60,10\n")
TASK = "j,t,1,Terminated,10,70,600,30,{gpu},V100\n"
POLLUX = "name,time,application,num_replicas,batch_size\na,0,bert,2,32\n"


@pytest.fixture
def soon():
    """A read that waits for a pipe fails instead of holding up every test."""
    def late(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(int(PATIENCE_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def philly(path: Path, *attempts: dict, **more: object) -> Path:
    job = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": list(attempts), "user": "u",
           "submitted_time": "2017-10-07 00:00:00"}
    return put(path / "log.json", json.dumps([job | more]))


def attempt(detail: object, start: str = "00:10:00", end: str = "00:20:00") -> dict:
    return {"start_time": f"2017-10-07 {start}", "end_time": f"2017-10-07 {end}", "detail": detail}


# --- the Philly log -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", ["gpu0gpu1", {"gpu0": 1}, [0, 1], [["gpu0"]], None])
def test_gpus_that_are_no_list_of_text_are_refused(tmp_path, gpus):
    path = philly(tmp_path, attempt([{"ip": "m", "gpus": gpus}]))
    with pytest.raises(TraceError, match=r"job 1.*attempts not as expected"):
        load_trace(path)
    with pytest.raises(TraceError, match=r"job 1.*attempts not as expected"):
        observed_gpus(path)


@pytest.mark.parametrize(("detail", "gpus", "again"), [
    ([{"ip": "m", "gpus": ["gpu0", "gpu0"]}], 1, 1),
    ([{"ip": "m", "gpus": ["gpu0"]}, {"ip": "m", "gpus": ["gpu0", "gpu1"]}], 2, 1),
    ([{"ip": "m", "gpus": ["gpu0"]}, {"ip": "n", "gpus": ["gpu0"]}], 2, 0),
])
def test_a_gpu_that_is_listed_twice_is_one(tmp_path, detail, gpus, again):
    trace = load_trace(philly(tmp_path, attempt(detail)))
    assert trace.num_gpus.tolist() == [gpus]
    assert trace.provenance.counts.get("attempts that list a GPU twice: counted once", 0) == again


def test_attempts_that_overlap_are_counted_whatever_their_order(tmp_path):
    one = [{"ip": "m", "gpus": ["gpu0"]}]
    tries = [attempt(one, "02:00:00", "03:00:00"), attempt(one, "00:00:00", "01:00:00"),
             attempt(one, "00:10:00", "00:20:00"), attempt(one, "00:59:59", "02:00:00")]
    trace = load_trace(philly(tmp_path, *tries))
    assert trace.provenance.counts["attempts that overlap an earlier one of the job"] == 2
    assert trace.duration_s.tolist() == [3600 + 3600 + 600 + 3601]
    apart = load_trace(philly(tmp_path / "apart", tries[0], tries[1]))
    assert "attempts that overlap an earlier one of the job" not in apart.provenance.counts


def test_more_attempts_than_the_table_holds_are_cut_with_a_count(tmp_path):
    many = [attempt([{"ip": "m", "gpus": ["gpu0"]}])] * 10_001
    trace = load_trace(philly(tmp_path, *many))
    assert trace.attempts.tolist() == [10_000]
    assert trace.provenance.counts["jobs tried more than 10,000 times: taken for 10,000"] == 1


def test_a_key_that_a_json_object_has_twice_is_refused_with_both_values(tmp_path):
    path = philly(tmp_path, attempt([{"ip": "m", "gpus": ["gpu0"]}]))
    path.write_text(path.read_text().replace('"jobid": "a"', '"jobid": "a", "jobid": "b"'))
    with pytest.raises(TraceError, match=r"log.json: an object has key 'jobid' twice; got 'a, b'"):
        load_trace(path)


def test_a_number_of_thousands_of_digits_is_refused_in_our_words(tmp_path):
    with pytest.raises(TraceError, match="a number is too long; got '5,000 digits") as caught:
        read_json(put(tmp_path / "x.json", f"[{'1' * 5000}]"), "a list")
    assert "sys" not in str(caught.value)
    with pytest.raises(TraceError, match="a number is too long"):
        read_rates(put(tmp_path / "rates.json", f'{{"v100": {"1" * 5000}}}'))


# --- SWF ----------------------------------------------------------------------------------------------------

SWF = "{job} {submit} 0 60 4 -1 -1 4 60 -1 1 1 1 -1 1 1 -1 -1\n"


def test_an_swf_job_without_a_time_of_submission_is_dropped_and_counted(tmp_path):
    trace = load_trace(put(tmp_path / "a.swf", SWF.format(job=1, submit=-1) + SWF.format(job=2, submit=5)))
    assert trace.job_id.tolist() == ["2"] and trace.submit_s.tolist() == [5]
    assert trace.provenance.counts == {"jobs without a time of submission dropped": 1}
    assert trace.provenance.first["jobs without a time of submission dropped"] == ("line 1",)


@pytest.mark.parametrize("start", ["1e18", "1e300", "99999999999", "-5", "inf", "nan", "12"])
def test_an_swf_calendar_that_cannot_be_is_left_out_with_a_note(tmp_path, start):
    trace = load_trace(put(tmp_path / "a.swf", f"; UnixStartTime: {start}\n" + SWF.format(job=1, submit=5)))
    assert trace.provenance.epoch_s is None
    assert any("the log has no calendar" in note and start in note for note in trace.provenance.notes)


@pytest.mark.parametrize("start", [748_000_000, 1_000_000_000])
def test_an_swf_calendar_from_the_archive_s_years_is_taken(tmp_path, start):
    trace = load_trace(put(tmp_path / "a.swf", f"; UnixStartTime: {start}\n" + SWF.format(job=1, submit=5)))
    assert trace.provenance.epoch_s == start


# --- folders ------------------------------------------------------------------------------------------------


def test_packed_files_of_an_itp_folder_are_read_too_and_what_is_not_is_said(tmp_path):
    put(tmp_path / "cluster01.csv", ITP + "a,20,700,8\n")
    packed = gzip.compress((ITP + "b,10,60,1\n").encode())
    put(tmp_path / "cluster02.csv.gz", packed)
    put(tmp_path / "cluster03.csv.gz.partaa", gzip.compress((ITP + "c,15,60,1\n").encode())[:30])
    put(tmp_path / "cluster03.csv.gz.partab", gzip.compress((ITP + "c,15,60,1\n").encode())[30:])
    put(tmp_path / "README.md", "words")
    put(tmp_path / "._cluster01.csv", b"\0")
    trace = load_trace(tmp_path)
    assert dict(zip(trace.job_id, trace.vc, strict=True)) == {"a": "cluster01", "b": "cluster02", "c": "cluster03"}
    assert "in the folder and not read: README.md" in trace.provenance.notes


def test_two_files_of_one_itp_cluster_are_refused_by_name(tmp_path):
    put(tmp_path / "cluster01.csv", ITP + "a,20,700,8\n")
    put(tmp_path / "cluster01.csv.gz", gzip.compress((ITP + "b,10,60,1\n").encode()))
    with pytest.raises(TraceError, match=r"more than one file of the same table.*cluster01.csv, cluster01.csv.gz"):
        load_trace(tmp_path)


def test_an_itp_folder_of_two_layouts_is_refused_with_a_file_of_each(tmp_path):
    put(tmp_path / "cluster01.csv", ITP + "a,20,700,8\n")
    put(tmp_path / "cluster02.csv", DRAWN + "b,100,40285,bert,4900,64,4,3890\n")
    with pytest.raises(TraceError, match=r"two layouts.*got 'cluster02.csv with .*, cluster01.csv without"):
        load_trace(tmp_path)


def test_an_id_that_is_in_two_itp_files_is_named_with_both(tmp_path):
    put(tmp_path / "cluster01.csv", ITP + "x,1,1,1\na,20,700,8\n")
    put(tmp_path / "cluster02.csv", ITP + "a,10,100,1\n")
    with pytest.raises(TraceError, match=r"cluster02.csv, line 2.*first seen in file cluster01.csv, line 3"):
        load_trace(tmp_path)


def test_a_helios_log_both_in_a_folder_and_below_is_refused(tmp_path):
    for name in ("cluster_log.csv", "Venus/cluster_log.csv"):
        put(tmp_path / name, HELIOS.format(1))
    with pytest.raises(TraceError, match=r"both in the folder and below it.*'cluster_log.csv, Venus/cluster_log.csv'"):
        load_trace(tmp_path)


def test_packed_logs_of_helios_clusters_are_read_like_plain_ones(tmp_path):
    put(tmp_path / "Venus" / "cluster_log.csv", HELIOS.format(1))
    put(tmp_path / "Earth" / "cluster_log.csv.gz", gzip.compress(HELIOS.format(2).encode()))
    assert sorted(load_trace(tmp_path).job_id) == ["Earth/2", "Venus/1"]
    (tmp_path / "Venus" / "cluster_log.csv").unlink()
    assert load_trace(tmp_path).job_id.tolist() == ["Earth/2"]


def test_two_files_of_one_raw_pai_table_are_refused_by_name(tmp_path):
    put(tmp_path / "pai_task_table.csv", TASK.format(gpu=100))
    put(tmp_path / "pai_task_table.csv.gz", gzip.compress(TASK.format(gpu=50).encode()))
    with pytest.raises(TraceError, match=r"more than one file.*'pai_task_table.csv, pai_task_table.csv.gz'"):
        load_trace(tmp_path)
    (tmp_path / "pai_task_table.csv.gz").unlink()
    put(tmp_path / "pai_task_table.csv.md5", "0")
    assert load_trace(tmp_path).num_gpus.tolist() == [1]


def test_the_hash_of_a_folder_is_of_what_was_read_and_of_nothing_else(tmp_path, soon):
    files = [put(tmp_path / f"cluster0{i}.csv", ITP + f"a{i},20,700,8\n") for i in (1, 2)]
    before = load_trace(tmp_path).provenance.sha256
    assert before == files_hash(tmp_path, files)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    put(tmp_path / "deep" / "notes.txt", "x")
    assert load_trace(tmp_path).provenance.sha256 == before
    put(files[1], ITP + "a2,21,700,8\n")
    assert load_trace(tmp_path).provenance.sha256 != before


def test_the_hash_of_a_file_in_parts_is_of_all_its_parts(tmp_path):
    packed = gzip.compress((ITP + "a,1,60,1\n").encode())
    first, second = put(tmp_path / "x.csv.gz.partaa", packed[:20]), put(tmp_path / "x.csv.gz.partab", packed[20:])
    assert load_trace(first).provenance.sha256 == files_hash(tmp_path, [second, first])


# --- pipes and devices --------------------------------------------------------------------------------------


def in_folder(path, pipe):
    put(path / "cluster01.csv", ITP + "a,20,700,8\n")
    pipe(path / "cluster02.csv")
    load_trace(path)


def as_run_times(path, pipe):
    load_trace(put(path / "a.csv", POLLUX), run_times=str(pipe(path / "b.csv")))


def as_job_log(path, pipe):
    listed = put(path / "m.csv", "machineId,number of GPUs,single GPU mem\nm,8,24GB\n")
    read_machines(listed, job_log=pipe(path / "log.json"))


def as_sizes(path, pipe):
    for name in ("Earth", "Venus"):
        put(path / name / "cluster_log.csv", HELIOS.format(1))
    put(path / "Earth" / "cluster_gpu_number.csv", "date,v,total\n2020-04-01,8,8\n")
    pipe(path / "Venus" / "cluster_gpu_number.csv")
    load_trace(path)


def as_part(path, pipe):
    pipe(path / "a.csv.gz.partab")
    load_trace(put(path / "a.csv.gz.partaa", b"\x1f\x8b"), "itp")


def as_hour(path, pipe):
    (path / "day=0" / "hour=1").mkdir(parents=True)
    pipe(path / "day=0" / "hour=1" / "a.parquet")
    read_machines(path, "alibaba-2026")


READS = (in_folder, as_run_times, as_job_log, as_sizes, as_part, as_hour,
         lambda path, pipe: read_capacity(pipe(path / "c.csv")),
         lambda path, pipe: read_outages(pipe(path / "o.csv"), 2),
         lambda path, pipe: read_rates(pipe(path / "r.json")), lambda path, pipe: read_machines(pipe(path / "m.csv")))


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("read", READS)
def test_a_pipe_or_device_is_refused_wherever_it_is_opened(tmp_path, soon, read, kind):
    def pipe(path: Path) -> Path:
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
        return path

    with pytest.raises(TraceError, match="a pipe, socket or device"):
        read(tmp_path, pipe)


# --- parts and archives -------------------------------------------------------------------------------------


def test_characters_of_a_pattern_in_a_name_are_themselves(tmp_path):
    for name, content in (("a[1].csv.partaa", "x"), ("a[1].csv.partab", "y"), ("a1.csv.partaa", "no")):
        put(tmp_path / name, content)
    put(tmp_path / "a[1].csv.partaa.md5", "no part")
    assert read_bytes(tmp_path / "a[1].csv.partaa") == b"xy"


@pytest.mark.parametrize(("names", "words"), [
    (("aa", "ac"), "x.csv.partaa, then x.csv.partac"), (("ab", "ac"), "none before x.csv.partab"),
    (("00", "01", "03"), "x.csv.part01, then x.csv.part03"), (("2", "3"), "none before x.csv.part2"),
    (("az", "bb"), "none before x.csv.partaz"),
])
def test_a_missing_part_is_named(tmp_path, names, words):
    files = [put(tmp_path / f"x.csv.part{name}", name) for name in names]
    with pytest.raises(TraceError, match=f"a part of the file is missing; got '{words}'"):
        read_bytes(files[-1])


@pytest.mark.parametrize("names", [[f"{i}" for i in range(1, 12)], ["az", "ba"], ["0f", "10"]])
def test_parts_are_taken_in_their_order(tmp_path, names):
    if names == ["az", "ba"]:
        names = [f"a{chr(97 + i)}" for i in range(26)] + ["ba"]
    if names == ["0f", "10"]:
        names = [f"{i:02x}" for i in range(17)]
    files = [put(tmp_path / f"x.csv.part{name}", name) for name in names]
    assert parts(files[3]) == files


def test_a_name_that_only_looks_like_a_part_is_a_file(tmp_path):
    assert read_bytes(put(tmp_path / "jobs.partial", "x")) == b"x"


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_an_archive_of_nothing_has_no_file_in_it(tmp_path, packing):
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w").close()
    data = gzip.compress(buffer.getvalue()) if packing else buffer.getvalue()
    with pytest.raises(TraceError, match="the archive is not one table; got 'no file in it'"):
        load_trace(put(tmp_path / f"a.tar{packing}", data))


@pytest.mark.parametrize("packing", ["", ".gz", ".tar", ".tar.gz", ".tgz", ".csv.gz.partab"])
def test_the_name_inside_is_without_the_packing(packing):
    assert inner_name(f"a.b{packing}") == ("a.b.csv" if packing.startswith(".csv") else "a.b")


# --- tables beside the jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["20", "10"])
def test_two_run_times_of_one_combination_are_refused_with_both_lines(tmp_path, second):
    header = "application,num_replicas,batch_size,duration_s\n"
    times = put(tmp_path / "t.csv", header + f"bert,2,32,10\nbert,2,32,{second}\n")
    with pytest.raises(TraceError, match=r"t.csv, line 3.*two run times.*bert on 2 GPUs.*as in line 2"):
        load_trace(put(tmp_path / "a.csv", POLLUX), run_times=str(times))


def test_two_rows_of_rates_of_one_combination_are_refused_with_both_lines(tmp_path):
    path = put(tmp_path / "r.csv", "model,batch_size,scale_factor,physical_v100\nA3C,4,1,5\nA3C,4,1,6\n")
    with pytest.raises(TraceError, match=r"r.csv, line 3.*two rows of rates.*as in line 2"):
        read_rates(path)


@pytest.mark.parametrize(("header", "read", "what"), [
    ("time_s,vc,gpu_type,gpus", read_capacity, "capacity file"),
    ("time_s,node,up", lambda path: read_outages(path, 2), "outage file"),
    ("date,a,total", read_machines, "table of sizes"),
    ("machineId,number of GPUs,single GPU mem", read_machines, "list of machines"),
])
def test_a_side_table_without_rows_says_what_it_is(tmp_path, header, read, what):
    with pytest.raises(TraceError, match=f"the {what} has no rows"):
        read(put(tmp_path / "a.csv", header + "\n"))


def test_two_counts_at_one_time_are_named_by_line_and_the_beginning_in_words(tmp_path):
    path = put(tmp_path / "c.csv", "time_s,vc,gpu_type,gpus\n,,,8\n5,,,9\n,,,4\n")
    with pytest.raises(TraceError, match=r"c.csv, line 4: two counts at one time; got .*from the beginning: 4 GPUs"):
        read_capacity(path)
    dates = put(tmp_path / "d.csv", "date,a,b,total\n2020-04-01,1,2,3\n2020-04-01,1,2,3\n")
    with pytest.raises(TraceError, match=r"d.csv, line 3: two counts at one time; got .*at 0 s"):
        read_machines(dates)


# --- Alibaba 2026, servers by hour --------------------------------------------------------------------------


def servers(folder: Path, hour: str, rows: list[tuple[str, float]], name: str = "a.parquet") -> None:
    part = folder / "day=0" / f"hour={hour}"
    part.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=["server_id", "gpu_count"])
    frame.assign(cluster_id="c", gpu_spec_public="A10").to_parquet(part / name)


def hours(folder: Path) -> Capacity:
    capacity = read_machines(folder, "alibaba-2026")
    assert isinstance(capacity, Capacity)
    return capacity


def test_a_server_with_a_fraction_of_a_gpu_is_left_out_and_counted(tmp_path):
    servers(tmp_path, "0", [("s", 8.0), ("t", 0.5)])
    capacity = hours(tmp_path)
    assert capacity.peak() == 8 and capacity.about.counts == {"servers with a fraction of a GPU: left out": 1}


def test_hours_that_are_missing_are_told_and_as_the_hour_before(tmp_path):
    for hour in ("0", "1", "5"):
        servers(tmp_path, hour, [("s", 8.0 if hour != "5" else 4.0)])
    capacity = hours(tmp_path)
    assert [capacity.at(3600 * h) for h in range(6)] == [8, 8, 8, 8, 8, 4]
    assert "3 hours in between are missing: each is taken to be as the hour before" in capacity.about.notes


@pytest.mark.parametrize("hour", ["24", "99", "-1", "x"])
def test_an_hour_that_no_day_has_is_refused(tmp_path, hour):
    servers(tmp_path, hour, [("s", 8.0)])
    with pytest.raises(TraceError, match=f"no hour of a day; got 'day=0/hour={hour}/a.parquet'"):
        hours(tmp_path)


def test_files_of_one_hour_are_added_up_and_a_server_in_both_counts_once(tmp_path):
    servers(tmp_path, "0", [("s", 8.0), ("t", 4.0)])
    servers(tmp_path, "0", [("t", 4.0), ("u", 2.0)], "b.parquet")
    capacity = hours(tmp_path)
    assert np.array_equal(capacity.gpus, [14]) and capacity.distinct() == 14
    assert capacity.about.counts == {"servers listed twice in an hour: counted once": 1}


# --- shares -------------------------------------------------------------------------------------------------


def test_a_share_below_a_thousandth_of_a_gpu_is_taken_for_one_and_counted(tmp_path):
    text = ("job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
            "a,1,0,1,0.0001,T4,60,u\nb,1,0,1,0.001,T4,60,u\n")
    trace = load_trace(put(tmp_path / "a.csv", text))
    assert trace.gpu_milli.tolist() == [1, 1]
    assert trace.provenance.counts == {"shares below a thousandth of a GPU taken for one": 1}
    raw = load_trace(put(tmp_path / "raw" / "pai_task_table.csv", TASK.format(gpu=0.01)))
    assert raw.provenance.counts == {"shares below a thousandth of a GPU taken for one": 1}
