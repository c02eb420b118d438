"""The Standard Workload Format: 18 numbers a line, -1 for unknown."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.load import detect, load_trace

HEADER = """; Version: 2.2
; Computer: Some Cluster
;UnixStartTime: 1000000000
; TimeZoneString: Europe/Paris
; MaxProcs: 128
"""


def row(job=1, submit=0, wait=5, run=100, allocated=4, requested=4, requested_s=3600, status=1, user=7, partition=2):
    return (f"{job} {submit} {wait} {run} {allocated} -1 -1 {requested} {requested_s} -1 {status} {user} 3 -1 1 "
            f"{partition} -1 -1")


def written(folder, *rows, header=HEADER, name="log.swf"):
    path = folder / name
    path.write_text(header + "\n".join(rows) + "\n")
    return path


def test_every_field_by_hand(tmp_path):
    path = written(tmp_path, row(), row(job=2, submit=60, wait=-1, requested_s=-1, user=-1, partition=-1, status=0))
    assert detect(path).name == "swf"
    trace = load_trace(path)
    assert trace.job_id.tolist() == ["1", "2"] and trace.submit_s.tolist() == [0, 60]
    assert trace.duration_s.tolist() == [100, 100] and trace.num_gpus.tolist() == [4, 4]
    assert trace.wait_s[0] == 5 and np.isnan(trace.wait_s[1])
    assert trace.estimate_s[0] == 3600 and np.isnan(trace.estimate_s[1])
    assert trace.user.tolist() == ["7", ""] and trace.vc.tolist() == ["2", ""]
    assert trace.status.tolist() == ["passed", "failed"] and trace.provenance.counts == {}
    assert trace.provenance.epoch_s == 1e9 and trace.provenance.tz == "Europe/Paris"
    assert trace.provenance.notes == ("a GPU is 1 processor", "Computer Some Cluster", "MaxProcs 128")


def test_what_is_unknown_is_dropped_and_counted(tmp_path):
    trace = load_trace(written(
        tmp_path, row(), row(job=2, run=-1), row(job=3, allocated=-1, requested=-1), row(job=4, run=0),
        row(job=5, requested=-1, allocated=2), row(job=6, requested=0), row(job=7, status=-1), row(job=8, status=5)))
    assert dict(zip(trace.job_id, trace.status, strict=True)) == {
        "1": "passed", "4": "passed", "5": "passed", "7": "unknown", "8": "killed"}
    assert trace.provenance.counts == {
        "jobs by allocated processors, since requested ones are unknown": 1, "jobs without a run time dropped": 1,
        "jobs without processors dropped": 2, "zero-length jobs kept": 1}
    assert trace.provenance.first["jobs without processors dropped"] == ("line 8", "line 11")
    assert trace.provenance.rows_read == 8


def test_pieces_of_a_job_are_not_counted_beside_its_sum(tmp_path):
    trace = load_trace(written(tmp_path, row(run=30), row(run=10, status=2), row(run=20, status=3)))
    assert len(trace) == 1 and trace.duration_s.tolist() == [30]
    assert trace.provenance.counts == {"pieces of jobs (status 2, 3, 4) dropped: their sum has a row": 2}


def test_requested_or_used_and_cores_of_a_gpu(tmp_path):
    path = written(tmp_path, row(requested=16, allocated=20), row(job=2, requested=15, allocated=7))
    assert load_trace(path).num_gpus.tolist() == [16, 15]
    assert load_trace(path, gpus="used").num_gpus.tolist() == [20, 7]
    trace = load_trace(path, cores_per_gpu=8)
    assert trace.num_gpus.tolist() == [2, 2] and trace.provenance.notes[0] == "a GPU is 8 processors"
    assert trace.provenance.counts == {"processors rounded up to whole GPUs": 1}
    for options in ({"cores_per_gpu": 0}, {"cores_per_gpu": "few"}, {"gpus": "asked"}):
        with pytest.raises(TraceError, match=next(iter(options))):
            load_trace(path, **options)


@pytest.mark.parametrize(("bad", "where"), [
    ("1 0 5 100", "line 6: a row has the wrong number of fields; got '4: 1 0 5 100'"), (row() + " 9", "line 6"),
    (row(run="long"), "line 6, column 'run'"), (row(status=6), "line 6, column 'status'"),
    (row(submit=-2), "line 6, column 'submit'"), (row(run=1e10), "line 6, column 'run'"),
])
def test_a_bad_line_is_named(tmp_path, bad, where):
    with pytest.raises(TraceError, match=where):
        load_trace(written(tmp_path, bad), "swf")


def test_comments_only_and_strange_comments(tmp_path):
    with pytest.raises(TraceError, match="the trace has no jobs"):
        load_trace(written(tmp_path))
    strange = "; UnixStartTime: unknown\n;\n; TimeZoneString: Mars/Olympus\n\n"
    trace = load_trace(written(tmp_path, row(), header=strange))
    assert trace.provenance.epoch_s is None and trace.provenance.tz == "UTC"
    assert "time zone 'Mars/Olympus' is unknown: UTC is taken" in trace.provenance.notes


def test_without_an_ending_it_is_told_from_the_content(tmp_path):
    assert detect(written(tmp_path, row(), name="log.txt")).name == "swf"
    assert detect(written(tmp_path, row().replace(" ", "\t"), header="", name="log")).name == "swf"


jobs = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(-1, 10**5), st.integers(-1, 64), st.integers(-1, 64),
              st.sampled_from([-1, 0, 1, 2, 3, 4, 5])), min_size=1, max_size=12)


@given(jobs)
@settings(max_examples=60)
def test_every_row_is_a_job_or_counted_as_dropped(rows):
    """By law: jobs kept + pieces + without run time + without processors = rows read, and no unknown becomes 0."""
    lines = [row(job=i, submit=s, run=r, allocated=a, requested=q, status=c) for i, (s, r, a, q, c) in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), *lines)
        try:
            trace = load_trace(path)
        except TraceError as error:
            assert "the trace has no jobs" in str(error)
            assert all(c in (2, 3, 4) or r < 0 or max(a, q) < 1 or q == 0 for _, r, a, q, c in rows)
            return
    dropped = sum(n for what, n in trace.provenance.counts.items() if "dropped" in what)
    assert len(trace) + dropped == len(rows) == trace.provenance.rows_read
    for job, run_s, gpus in zip(trace.job_id, trace.duration_s, trace.num_gpus, strict=True):
        _, run, allocated, requested, _ = rows[int(job)]
        assert run_s == run >= 0 and gpus == (requested if requested >= 0 else allocated) > 0


def test_r2_03_jobs_that_wait_for_another_one_are_counted(tmp_path):
    """Field 17: job 2 comes after job 1 with 20 s to think; it is replayed at its own time, and that is said."""
    after = row(job=2, submit=10, run=50).removesuffix("-1 -1") + "1 20"
    trace = load_trace(written(tmp_path, row(), after, row(job=3, run=-1).removesuffix("-1 -1") + "1 20"))
    what = "jobs that wait for another one by the log (field 17): replayed at their own time of submission"
    assert trace.submit_s.tolist() == [0, 10]
    assert trace.provenance.counts == {"jobs without a run time dropped": 1, what: 1}
    assert trace.provenance.first[what] == ("line 7",)
