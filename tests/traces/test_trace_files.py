"""Our own trace files: what is written is read again, whole or not at all; and no bytes cause a traceback."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ONE_FOLDER
from traces.columns import COLUMNS, STATUSES
from traces.errors import TraceError
from traces.load import FORMATS, load_trace, write_trace
from traces.readers.canonical import sidecar
from traces.select import Selection
from traces.study.describe import describe
from traces.synthetic.generate import generate
from traces.trace import Provenance, Trace

SAFE = settings(max_examples=300, suppress_health_check=ONE_FOLDER)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
times = st.floats(0, 1e9)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "job_id": words.filter(lambda t: t != ""),
            "submit_s": st.floats(-1e9, 1e9),
            "duration_s": times,
            "num_gpus": st.integers(1, 10_000),
            "gpu_milli": st.integers(1, 1000),
            "user": words,
            "vc": words,
            "gpu_type": words,
            "model": words,
            "status": st.sampled_from(STATUSES),
            "attempts": st.integers(1, 9),
            "estimate_s": times | st.just(float("nan")),
            "batch_size": st.integers(0, 2**31 - 1),
            "work_iters": times | st.just(float("nan")),
        }
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row["job_id"],
)


def columns(jobs):
    return {name: [job[name] for job in jobs] for name in jobs[0]}


def same(one, other):
    return all(
        np.array_equal(getattr(one, c.name), getattr(other, c.name), equal_nan=c.dtype != "text")
        for c in COLUMNS
    )


@pytest.mark.slow
@SAFE
@given(jobs=rows, ending=st.sampled_from([".csv", ".parquet"]))
def test_what_is_written_is_read_again(tmp_path, jobs, ending):
    trace = Trace.from_columns(columns(jobs))
    again = load_trace(write_trace(trace, tmp_path / f"trace{ending}"))
    assert same(trace, again) and again.content_hash() == trace.content_hash()
    assert all(getattr(again, c.name).dtype == getattr(trace, c.name).dtype for c in COLUMNS)


def test_a_byte_order_mark_in_the_first_row_is_text_and_one_before_the_header_is_not(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffjob_id,submit_s,duration_s,num_gpus\n\ufeff,0,1,1\n\ufeffb,1,1,1\n", "utf-8")
    assert load_trace(tmp_path / "t.csv").job_id.tolist() == ["\ufeff", "\ufeffb"]


@settings(max_examples=100)
@given(jobs=rows, order=st.randoms())
def test_the_order_of_rows_changes_nothing(jobs, order):
    trace = Trace.from_columns(columns(jobs))
    shuffled = list(jobs)
    order.shuffle(shuffled)
    assert Trace.from_columns(columns(shuffled)).content_hash() == trace.content_hash()


def test_the_description_beside_the_file_is_kept(tmp_path):
    made = Provenance(
        source="log",
        format="philly-log",
        rule="sum of attempts",
        seed=3,
        rows_read=9,
        counts={"dropped": 2},
        notes=("a note",),
        epoch_s=1.5e9,
    )
    trace = Trace.from_columns({"job_id": ["a"], "submit_s": [0], "duration_s": [1], "num_gpus": [1]}, made)
    path = write_trace(trace, tmp_path / "new" / "trace.parquet", selection="first job")
    again = load_trace(path).provenance
    assert (again.rule, again.seed, again.rows_read, again.counts, again.epoch_s) == (
        "sum of attempts",
        3,
        9,
        {"dropped": 2},
        1.5e9,
    )
    assert again.notes == ("made from log (philly-log)", "first job", "a note")
    about = json.loads(sidecar(path).read_text())
    assert about["sha256"] == trace.content_hash() and about["units"]["duration_s"] == "s"
    assert sorted(p.name for p in path.parent.iterdir()) == ["trace.parquet", "trace.parquet.json"]


def test_an_edited_file_and_a_broken_description_are_noted(tmp_path):
    path = write_trace(generate("philly", 50), tmp_path / "trace.csv")
    path.write_text(path.read_text().replace("\n0,", "\nfirst,", 1))
    assert "edited since it was written" in load_trace(path).provenance.notes[-1]
    sidecar(path).write_text("{")
    assert "no description of a trace, ignored" in load_trace(path).provenance.notes[-1]


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = write_trace(generate("pai", 200), tmp_path / "trace.parquet")
    data = path.read_bytes()
    for length in range(4, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:length])
        with pytest.raises(TraceError, match="no whole Parquet file"):
            load_trace(path)


def test_where_a_trace_cannot_be_written(tmp_path):
    trace = generate("pai", 2)
    with pytest.raises(TraceError, match=r"unknown file ending; got '.xlsx'; allowed: .parquet, .csv"):
        write_trace(trace, tmp_path / "trace.xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot write the trace"):
        write_trace(trace, tmp_path / "file" / "trace.csv")


def test_writing_the_same_trace_twice_gives_the_same_bytes(tmp_path):
    for ending in (".csv", ".parquet"):
        one, two = (
            write_trace(generate("philly", 300, 1), tmp_path / f"{i}{ending}").read_bytes() for i in "ab"
        )
        assert one == two


# --- fuzz: a TraceError or a Trace, never anything else -----------------------------------------------------

SEEDS = [
    b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,b\n"
    b"2017-11-05 01:30:00,1,2,2,c\n",
    b"job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\na,1.0,0,2,0.25,T4,34,u\nb,2,3,6,8,MISC,1,v\n",
    b"job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n1,8,30,1,a,1,2\n",
    b"job_id,submission_time,duration,num_gpu\nx,5,600,2\ny,6,1,1",
    b'job_id,submit_s,duration_s,num_gpus,estimate_s,status\na,0,1,1,,passed\n"b",0.5,1,2,3,failed\n',
    json.dumps(
        [
            {
                "status": "Pass",
                "vc": "v",
                "jobid": "j",
                "user": "u",
                "submitted_time": "2017-10-07 01:11:39",
                "attempts": [
                    {"start_time": "2017-10-07 01:12:09", "end_time": "None", "detail": []},
                    {
                        "start_time": "2017-10-07 01:12:09",
                        "end_time": "2017-10-07 01:13:23",
                        "detail": [{"ip": "m", "gpus": ["gpu0"]}],
                    },
                ],
            }
        ]
    ).encode(),
]
PIECES = [
    b",",
    b"\n",
    b'"',
    b"nan",
    b"-1",
    b"1e309",
    b"\xff",
    b"\0",
    b"",
    b"None",
    b"null",
    b"{}",
    b"[",
    b"9" * 400,
    b"2017-11-05 01:30:00",
    b"0",
    b"\r",
    b"\r\n",
    b" ",
    b"1.5",
    b"true",
    b"NaN",
    b"\xed\xa0\x80",
    b"\\ud800",
]


@st.composite
def damaged(draw):
    data = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        data = data[:at] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + data[at + length :]
    return data


def loads_or_says_why(path, format=None, **options):
    try:
        trace = load_trace(path, format, **options)
    except TraceError as error:
        assert str(path) in str(error) or "option" in str(error)
    else:
        assert len(trace) > 0 and (trace.duration_s >= 0).all() and np.isfinite(trace.duration_s).all()
        assert np.isfinite(trace.submit_s).all() and (trace.num_gpus > 0).all()
        trace.content_hash()


@SAFE
@given(data=st.binary(max_size=400), format=st.sampled_from([None, *FORMATS]))
def test_random_bytes(tmp_path, data, format):
    path = tmp_path / "noise"
    path.write_bytes(data)
    loads_or_says_why(path, format)


@SAFE
@given(data=damaged(), format=st.sampled_from([None, None, None, *FORMATS]))
def test_damaged_files(tmp_path, data, format):
    path = tmp_path / "damaged"
    path.write_bytes(data)
    loads_or_says_why(path, format)


@SAFE
@given(data=st.binary(max_size=30), at=st.floats(0, 1))
def test_damaged_parquet(tmp_path_factory, data, at):
    folder = tmp_path_factory.getbasetemp()
    path = folder / "whole.parquet"
    if not path.exists():
        write_trace(generate("pai", 30), path)
    whole = path.read_bytes()
    start = int(at * len(whole))
    damaged_path = folder / "damaged.parquet"
    damaged_path.write_bytes(whole[:start] + data + whole[start + len(data) :])
    loads_or_says_why(damaged_path)


def test_the_seeds_of_the_fuzz_are_whole(tmp_path):
    for data in SEEDS:
        (tmp_path / "seed").write_bytes(data)
        assert len(load_trace(tmp_path / "seed")) >= 1


@pytest.mark.parametrize("kind", [pa.duration("ms"), pa.timestamp("ms"), pa.bool_()], ids=str)
def test_times_of_arrow_and_flags_are_not_taken_for_seconds_or_counts(tmp_path, kind):
    """5 s as milliseconds of Arrow's own are 5000 underneath."""
    path = tmp_path / "t.parquet"
    values = {"job_id": ["a"], "submit_s": [0.0], "duration_s": [5.0], "num_gpus": [1]}
    table = pa.table(values)
    column = "num_gpus" if pa.types.is_boolean(kind) else "duration_s"
    cells = pa.array([1 if pa.types.is_boolean(kind) else 5000], pa.int64()).cast(kind)
    pq.write_table(table.set_column(table.column_names.index(column), column, cells), path)
    with pytest.raises(TraceError, match="column of another type"):
        load_trace(path)


def test_seconds_since_1970_are_a_calendar_where_no_description_says_otherwise(tmp_path):
    path = tmp_path / "epoch.csv"
    path.write_text("job_id,submit_s,duration_s,num_gpus\na,1507500000,60,1\nb,1507600000,60,1\n")
    trace = load_trace(path)
    assert trace.provenance.epoch_s == 0 and any("since 1970" in note for note in trace.provenance.notes)
    assert describe(trace)["calendar"]["first"] == "2017-10-08 22:00:00+00:00"
    chosen = Selection(submitted_from="2017-10-09").apply(trace)
    assert chosen.job_id.tolist() == ["b"]
    again = load_trace(write_trace(chosen, tmp_path / "kept.csv"))
    assert again.provenance.epoch_s == 0 and again.submit_s.tolist() == [1_507_600_000]
    path.write_text("job_id,submit_s,duration_s,num_gpus\na,0,60,1\nb,1507600000,60,1\n")
    assert load_trace(path).provenance.epoch_s is None


def test_a_status_that_a_file_does_not_tell_is_unknown_as_in_any_format(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("job_id,submit_s,duration_s,num_gpus\na,0,60,1\n")
    assert load_trace(path).status.tolist() == ["unknown"]
