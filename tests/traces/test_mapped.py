"""A log of one's own: columns, units, words and calendar are named by a map; each value here is reckoned by hand."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.fuzz_seeds import SEEDS
from tests.conftest import ROOT
from traces.columns import COLUMNS
from traces.errors import TraceError
from traces.load import load_trace
from traces.reading.logguess import guessed, proposal
from traces.reading.logmap import log_map, settled
from traces.study.check import check

SECTION = (ROOT / "docs" / "traces.md").read_text("utf-8").split("### `mapped`")[1].split("\n### ")[0]
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL))
LINE = re.search(r"--map (\S+)", BLOCKS["sh"])[1]


def put(folder, *lines, name="mine.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def refused(path, words, **options):
    with pytest.raises(TraceError, match=words):
        load_trace(path, **options)


# -- the example of docs/traces.md -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["line", "file"])
def test_the_example_of_the_page_is_read_by_its_line_and_by_its_file(tmp_path, kind):
    path = put(tmp_path, BLOCKS["csv"].rstrip())
    (tmp_path / "my-log.toml").write_text(BLOCKS["toml"])
    trace = load_trace(path, map=LINE if kind == "line" else str(tmp_path / "my-log.toml"))
    assert trace.job_id.tolist() == ["a", "c"]
    assert trace.submit_s.tolist() == [0.0, 7200.5]  # milliseconds since 1970, from the first that is kept
    assert trace.duration_s.tolist() == [600.0, 90.0]
    assert trace.num_gpus.tolist() == [4, 1] and trace.gpu_milli.tolist() == [1000, 500]
    assert trace.vc.tolist() == ["x", "y"] and trace.status.tolist() == ["passed", "killed"]
    about = trace.provenance
    assert (about.epoch_s, about.tz, about.format) == (1507532515.0, "Asia/Shanghai", "mapped")
    assert about.rows_read == 4
    assert about.counts == {"CPU-only jobs dropped": 1, "jobs without a duration dropped": 1}
    assert about.first["jobs without a duration dropped"] == ("line 5",)


def test_a_setting_holds_what_a_map_says_and_not_where_it_is(tmp_path):
    from sim.settings.config import load_config

    file = tmp_path / "my-log.toml"
    file.write_text(BLOCKS["toml"] + "start = 2020-04-01\n")
    kept = load_config(None, {"read.map": str(file)}).read["map"]
    assert "my-log" not in kept and log_map(kept) == log_map(settled(kept))
    assert log_map(kept).start == "2020-04-01" and log_map(kept).columns["submit"] == "submit_time"


# -- times, units, calendar --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "cells"), [
    ("ns", (0, 1_500_000_000)), ("us", (0, 1_500_000)), ("ms", (0, 1500)), ("s", (0, 1.5)), ("min", (0, 0.025)),
])
def test_each_unit_of_time_is_seconds(tmp_path, unit, cells):
    path = put(tmp_path, "t,r,g", f"{cells[0]},1,1", f"{cells[1]},1,1")
    assert load_trace(path, map=f"submit=t:{unit},duration=r:h,gpus=g").submit_s.tolist() == [0.0, 1.5]


def test_long_units_and_a_run_beyond_ten_years(tmp_path):
    path = put(tmp_path, "t,r,g", "0,0.5,1", "1,2,1")
    trace = load_trace(path, map="submit=t:d,duration=r:h,gpus=g")
    assert trace.submit_s.tolist() == [0, 86_400] and trace.duration_s.tolist() == [1800, 7200]
    refused(put(tmp_path, "t,r,g", "0,9e9,1"), "line 2, column 'r': value not allowed.*unit",
            map="submit=t,duration=r,gpus=g")


def test_duration_is_end_less_start_and_wait_is_start_less_submission(tmp_path):
    path = put(tmp_path, "sub,beg,fin,g", "10,30,130,2", "20,5,50,1", "30,,99,1", "40,50,null,1", "50,60,55,1")
    trace = load_trace(path, map="submit=sub,start=beg,end=fin,gpus=g")
    assert trace.duration_s.tolist() == [100, 45]
    assert trace.wait_s[0] == 20 and np.isnan(trace.wait_s[1])
    assert trace.submit_s.tolist() == [10, 20] and trace.provenance.epoch_s is None
    assert trace.provenance.counts == {
        "jobs never started dropped": 1, "jobs not ended when the log was taken dropped": 1,
        "jobs that end before they start dropped": 1, "jobs that start before their submission: wait unknown": 1}
    waited = put(tmp_path, "sub,w,fin,g", "10,2,130,2")
    trace = load_trace(waited, map="submit=sub,wait=w:min,end=fin,gpus=g")
    assert (trace.duration_s[0], trace.wait_s[0]) == (0, 120)


def test_dates_are_of_their_offset_or_of_the_zone_and_the_night_of_the_clock_is_true(tmp_path):
    """06:01:55Z, and 14:01:55 in Shanghai, are one time; in Los Angeles the night of 2017-11-05 has an hour more."""
    path = put(tmp_path, "at,r,g", "2017-10-09T06:01:55Z,1,1", "2017-10-09 14:01:55.5,1,1")
    trace = load_trace(path, map="submit=at,duration=r,gpus=g,zone=Asia/Shanghai")
    assert trace.submit_s.tolist() == [0, 0.5] and trace.provenance.epoch_s == 1507528915
    night = put(tmp_path, "a,b,c,g", "2017-11-05 00:00,2017-11-05 00:30:00,2017-11-05 04:30:00,1")
    trace = load_trace(night, map="submit=a,start=b,end=c,gpus=g,zone=America/Los_Angeles")
    assert (trace.duration_s[0], trace.wait_s[0]) == (5 * 3600, 1800)
    named = put(tmp_path, "a,r,g", "09/10/2017 14:00,1,1", "10/10/2017 14:00,1,1")
    trace = load_trace(named, map="submit=a:%d/%m/%Y %H:%M,duration=r,gpus=g")
    assert trace.submit_s.tolist() == [0, 86_400] and trace.provenance.epoch_s == 1507557600


def test_the_date_of_time_0_makes_a_calendar_of_plain_seconds(tmp_path):
    path = put(tmp_path, "t,r,g", "0,1,1", "90000,1,1")
    trace = load_trace(path, map="submit=t,duration=r,gpus=g,calendar.start=2020-04-01,zone=Asia/Shanghai")
    assert trace.submit_s.tolist() == [0, 90_000]
    assert trace.provenance.epoch_s == 1585670400  # 2020-03-31 16:00 UTC


def test_what_is_not_told_is_said_in_a_note(tmp_path):
    path = put(tmp_path, "t,r,g", "0,1,1")
    assert load_trace(path, map="submit=t:ms,duration=r,gpus=g").provenance.notes == \
        ("no unit named, read as seconds: duration",)


def test_a_unit_that_was_named_is_not_doubted(tmp_path):
    """Whole minutes are no oddity where the map says minutes."""
    path = put(tmp_path, "t,r,g", *(f"{t},{1 + t % 5},1" for t in range(200)))

    def doubted(unit):
        trace = load_trace(path, map=f"submit=t,duration=r{unit},gpus=g")
        return any("minutes" in odd.what for odd in check(trace))

    assert not doubted(":min") and not doubted(":h")
    path = put(tmp_path, "t,r,g", *(f"{t},{60 + 60 * (t % 5)},1" for t in range(200)))
    assert doubted("")


# -- GPUs, words, constants --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("named", "cells", "gpus", "milli", "worker"), [
    ("gpus=g:percent", "700,1", 7, 1000, 1), ("gpus=g:percent", "25,1", 1, 250, 1), ("gpus=g", "1.5,1", 2, 1000, 1),
    ("worker_gpus=g,workers=w", "4,3", 12, 1000, 4), ("worker_gpus=g,workers=w", "0.5,3", 3, 500, 1),
    ("gpus=g,workers=w", "8,2", 8, 1000, 4), ("gpus=g,workers=w", "8,3", 8, 1000, 1),
    ("gpus=3", "0,0", 3, 1000, 1), ("num_gpus=g:milli", "2000,1", 2, 1000, 1),
])
def test_gpus_are_counted_shared_or_lie_on_workers(tmp_path, named, cells, gpus, milli, worker):
    path = put(tmp_path, "t,r,g,w", f"0,1,{cells}")
    trace = load_trace(path, map=f"submit=t,duration=r,{named}")
    assert (trace.num_gpus[0], trace.gpu_milli[0], trace.worker_gpus[0]) == (gpus, milli, worker)


KNOWN = {
    "itp": "id=job_id,submit=submission_time,duration=duration,gpus=num_gpu,constants.vc=cluster01",
    "blox": "id=job,submit=submit_s,duration=duration_s,gpus=gpus",
    "pai": "id=job_id,submit=submit_time,duration=duration,workers=num_inst,worker_gpus=num_gpu,user=user,"
           "gpu_type=gpu_type",
    "openb": "id=name,submit=creation_time,start=scheduled_time,end=deletion_time,gpus=num_gpu,workers=1,"
             "gpu_milli=gpu_milli,gpu_type=gpu_spec,status=pod_phase,cpus=cpu_milli:milli,memory=memory_mib:MiB",
    "helios": "id=job_id,user=user,vc=vc,submit=submit_time,start=start_time,end=end_time,gpus=gpu_num,"
              "workers=node_num,cpus=cpu_num,status=state,zone=Asia/Shanghai",
}


@pytest.mark.parametrize("format", KNOWN)
def test_a_known_format_read_by_a_map_is_what_its_own_reader_makes_of_it(tmp_path, format):
    seed = next(seed for seed in SEEDS if seed.format == format and not seed.folder)
    (tmp_path / seed.name).write_bytes(seed.data)
    own, mapped = load_trace(tmp_path / seed.name, format), load_trace(tmp_path / seed.name, map=KNOWN[format])
    # Of pai: of one instance; with a word for any type. Of openb: what its reader knows of the log's last second.
    untold = {"pai": ("cpus", "gpu_type"), "openb": ("cut",)}.get(format, ())
    told = [c.name for c in COLUMNS if c.name not in untold]
    for name in told:
        one, other = getattr(own, name), getattr(mapped, name)
        assert one.tolist() == other.tolist() if one.dtype == object else np.allclose(one, other, equal_nan=True), name
    assert own.provenance.epoch_s == mapped.provenance.epoch_s


def test_rows_without_gpus_are_two_counts(tmp_path):
    path = put(tmp_path, "t,r,g", "0,1,0", "0,1,", "0,1,2")
    assert load_trace(path, map="submit=t,duration=r,gpus=g").provenance.counts == {
        "CPU-only jobs dropped": 1, "jobs without a number of GPUs dropped": 1}


def test_other_columns_constants_types_and_blank_cells(tmp_path):
    path = put(tmp_path, "t,r,g,kind,cpu,mem,limit,prio", "0,1,1,V100M32,64000,2048,2,", "1,1,1,A10|T4,,,NaN,3")
    trace = load_trace(path, map="submit=t,duration=r,gpus=g,gpu_type=kind,cpus=cpu:milli,memory=mem:MiB,"
                       "estimate=limit:h,priority=prio,constants.vc=prod")
    assert trace.gpu_type.tolist() == ["V100-32", "A10|T4"] and trace.vc.tolist() == ["prod", "prod"]
    assert trace.cpus[0] == 64 and trace.memory_gib[0] == 2 and np.isnan(trace.cpus[1])
    assert trace.estimate_s[0] == 7200 and np.isnan(trace.estimate_s[1])
    assert trace.priority.tolist() == [1, 3] and trace.status.tolist() == ["unknown", "unknown"]
    assert trace.job_id.tolist() == ["0", "1"]


def test_words_of_the_map_go_before_those_of_other_logs(tmp_path):
    path = put(tmp_path, "t,r,g,s", "0,1,1,Done", "1,1,1,failed", "2,1,1,timeout", "3,1,1,", "4,1,0,odd")
    trace = load_trace(path, map="submit=t,duration=r,gpus=g,status=s,passed=DONE|OK,failed=timeout")
    assert trace.status.tolist() == ["passed", "failed", "failed", "unknown"]
    refused(path, r"line 2, status: unknown status; got 'Done'.*failed=Done", map="submit=t,duration=r,gpus=g,status=s")


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_what_stands_between_cells_is_told_from_the_header(tmp_path, delimiter):
    path = put(tmp_path, delimiter.join(("t a", "r", "g")), delimiter.join(("0", "5", "2")))
    assert load_trace(path, map="submit=t a,duration=r,gpus=g").duration_s.tolist() == [5]


def test_a_delimiter_is_named_where_the_header_does_not_tell(tmp_path):
    path = put(tmp_path, "t~r~g", "0~5~2")
    assert load_trace(path, map="submit=t,duration=r,gpus=g,delimiter=~").duration_s.tolist() == [5]


def test_parquet_is_read_with_its_timestamps_and_spans_are_refused(tmp_path):
    at = [datetime.datetime(2017, 10, 9, 6, 1, 55, 500_000), datetime.datetime(2017, 10, 9, 6, 1, 55)]
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({
        "at": pa.array(at, pa.timestamp("ns", "UTC")), "r": [60, 30], "g": pa.array([2, None], pa.int8()),
        "vc": pa.array(["a", "b"]).dictionary_encode(), "span": pa.array([1, 2], pa.duration("us")),
    }), path)
    trace = load_trace(path, map="submit=at,duration=r,gpus=g,vc=vc")
    assert trace.duration_s.tolist() == [60] and trace.provenance.epoch_s == 1507528915.5
    assert trace.provenance.first == {"jobs without a number of GPUs dropped": ("row 2",)}
    refused(path, r"column 'span': column of another type; got 'duration\[us\]'", map="submit=at,duration=span,gpus=g")


# -- what is refused, and proposed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "words"), [
    ("submit=tt,duration=r,gpus=g", r"no column 'tt' for submit.*allowed: t, r, g, v.*did you mean 't'"),
    ("submit=t,duration=r,gpus=g,vc=prod", r"no column 'prod' for vc.*constants.vc=prod"),
    ("submit=t:sec,duration=r,gpus=g", r"--map, submit: unknown unit; got 'sec'; allowed: ns, us, ms, s, min, h, d, "),
    ("submit=t,duration=r,gpus=g,vc=v:ms", r"'vc' has no unit"),
    ("submit=t,gpus=g", r"does not name duration .*columns of the file: t, r, g, v.*--map submit=t,duration=COLUMN"),
    ("duration=r,gpus=g", r"does not name submit"), ("submit=t,duration=r", r"does not name gpus.*gpus=COLUMN"),
    ("submit=t,duration=r,end=r,gpus=g", r"duration and end both"),
    ("submit=t,submit=r,gpus=g", r"'submit' is mapped twice"), ("submit=t,submit_s=r", r"'submit' is mapped twice"),
    ("submitted=t", r"nothing of that name in a job; got 'submitted'.*did you mean 'submit'"),
    ("submit=t,oops", r"a part of the map without a value; got 'oops'"), ("", r"no map of the columns.*Perhaps: --map"),
    ("submit=t,duration=r,gpus=g,zone=Mars/Base", r"unknown time zone"),
    ("submit=t,duration=r,gpus=g,zone=Asia/Shanghai", r"a zone without a calendar.*calendar.start"),
    ("submit=t:epoch,duration=r,gpus=g", r"line 2, column 't': value not allowed; got '0'"),
    ("submit=v,start=t,end=t,gpus=g", r"line 2, column 'v': not a time; got 'x'"),
    ("submit=t,duration=r,gpus=g,passed=A,failed=a", r"a word with two meanings"),
    ("submit=t,duration=r,gpus=g,done=A", r"nothing of that name"),
    ("submit=t,duration=r,gpus=g,delimiter=ab", r"no delimiter"), ("{", r"no map"), ("{\"a\": {}}", r"unknown section"),
    ("none.toml", r"--map, none.toml: no such file"),
])
def test_a_map_that_cannot_be_says_what_is_wrong_and_what_to_do(tmp_path, text, words):
    refused(put(tmp_path, "t,r,g,v", "0,1,1,x"), words, map=text)


@pytest.mark.parametrize(("line", "words"), [
    ("0,1,x", "line 3, column 'g': value not allowed; got 'x'"), ("0,-1,1", "line 3, column 'r'.*got '-1'"),
    ("zero,1,1", "line 3, column 't'.*got 'zero'"), ("0,1", "line 3: a row has the wrong number of cells"),
    ("1e12,1,1", "line 3, column 't'.*got '1e12'"),
])
def test_a_bad_cell_is_named_by_line_and_column(tmp_path, line, words):
    refused(put(tmp_path, "t,r,g", "0,1,1", line), words, map="submit=t,duration=r,gpus=g")


def test_times_on_two_clocks_are_refused(tmp_path):
    path = put(tmp_path, "day,sec,g", "2017-10-09 00:00:00,5,1")
    refused(path, "dates in submit, none in start", map="submit=day,start=sec,end=sec,gpus=g")
    refused(path, "dates in start, none in submit", map="submit=sec,start=day,end=day,gpus=g")
    refused(path, "two calendars", map="submit=day,duration=sec,gpus=g,calendar.start=2020-01-01")


def test_an_unknown_file_is_told_the_map_that_its_header_suggests(tmp_path):
    path = put(tmp_path, "task_id;submission_ms;run_minutes;n_gpus;partition", "a;0;1;1;x")
    refused(path, "format not recognised.*"
            "--map submit=submission_ms:ms,duration=run_minutes:min,gpus=n_gpus,id=task_id,vc=partition")
    with pytest.raises(TraceError) as told:
        load_trace(put(tmp_path, "colour,weight", "red,3"))
    assert "--map" not in str(told.value)


@pytest.mark.parametrize(("header", "found"), [
    (("JobID", "Submit Time", "Start Time", "End Time", "GPUs"),
     {"id": "JobID", "submit": "Submit Time", "start": "Start Time", "end": "End Time", "gpus": "GPUs"}),
    (("arrival_time", "duration_h", "num_gpu", "gpu_type", "gpu_milli", "owner", "job_state"),
     {"submit": "arrival_time", "duration": "duration_h:h", "gpus": "num_gpu", "gpu_type": "gpu_type", "user": "owner",
      "status": "job_state"}),
    (("created_at", "runtime_ms", "end_time", "queue_time"),
     {"submit": "created_at", "duration": "runtime_ms:ms", "wait": "queue_time"}),
])
def test_columns_are_guessed_by_their_names(header, found):
    assert guessed(header) == found


def test_what_was_given_stays_in_the_proposal():
    assert proposal(("a", "run_time", "gpus"), {"submit": "a:ms"}) == "--map submit=a:ms,duration=run_time,gpus=gpus"
    assert proposal(("x y", "z")) == "--map submit=COLUMN,duration=COLUMN,gpus=COLUMN"
