"""What the Philly files hold besides jobs: missing times, retries, clock changes, a wrong machine list."""

from __future__ import annotations

import json

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import load_trace
from traces.machines.philly_nodes import read_machines


def job(jobid, attempts, *, status="Pass", submitted="2017-10-07 01:00:00", user="u", vc="v"):
    return {
        "status": status,
        "vc": vc,
        "jobid": jobid,
        "attempts": attempts,
        "submitted_time": submitted,
        "user": user,
    }


def attempt(start, end, gpus=1, machine="m1"):
    return {
        "start_time": start,
        "end_time": end,
        "detail": [{"ip": machine, "gpus": [f"gpu{i}" for i in range(gpus)]}],
    }


def log(tmp_path, *jobs):
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(jobs))
    return path


GOOD = job("good", [attempt("2017-10-07 02:00:00", "2017-10-07 02:01:00")])


def test_each_kind_of_missing_time_has_an_outcome_and_a_count(tmp_path):
    path = log(
        tmp_path,
        GOOD,
        job("none", []),
        job("null", None),
        job("open", [attempt("2017-10-07 02:00:00", None)]),
        job("open text", [attempt("2017-10-07 02:00:00", "None")]),
        job("no start", [attempt("None", "2017-10-07 02:00:00")]),
        job(
            "retried",
            [attempt("2017-10-07 02:00:00", "None"), attempt("2017-10-07 03:00:00", "2017-10-07 03:00:09")],
        ),
    )
    trace = load_trace(path)
    assert dict(zip(trace.job_id, trace.duration_s, strict=True)) == {"good": 60, "retried": 9}
    assert trace.provenance.counts == {
        "attempts without an end": 3,
        "attempts with an end and no start": 1,
        "jobs without attempts dropped": 2,
        "unfinished jobs dropped (last attempt has no end)": 2,
        "jobs without a usable attempt dropped": 1,
    }
    assert trace.provenance.rows_read == 7 == len(trace) + 2 + 2 + 1


def test_unfinished_backwards_and_zero_length_are_three_things(tmp_path):
    path = log(
        tmp_path,
        job("unfinished", [attempt("2017-10-07 02:00:00", "None")]),
        job("backwards", [attempt("2017-10-07 02:00:00", "2017-10-07 01:59:50")]),
        job("zero", [attempt("2017-10-07 02:00:00", "2017-10-07 02:00:00")]),
    )
    for rule in ("sum", "last", "span"):
        trace = load_trace(path, attempts=rule)
        assert trace.job_id.tolist() == ["zero"] and trace.duration_s.tolist() == [0]
        assert trace.provenance.counts == {
            "attempts without an end": 1,
            "attempts that end before they start": 1,
            "zero-length attempts": 1,
            "unfinished jobs dropped (last attempt has no end)": 1,
            "jobs without a usable attempt dropped": 1,
            "zero-length jobs kept": 1,
        }


def test_gpus_are_those_of_the_last_attempt_that_lists_any(tmp_path):
    last = attempt("2017-10-07 04:00:00", "2017-10-07 05:00:00", gpus=0)
    path = log(
        tmp_path,
        job(
            "a",
            [
                attempt("2017-10-07 02:00:00", "2017-10-07 02:30:00", gpus=8),
                attempt("2017-10-07 03:00:00", "2017-10-07 03:30:00", gpus=4),
                last,
            ],
        ),
        job("no gpus", [last]),
    )
    trace = load_trace(path)
    assert trace.num_gpus.tolist() == [4] and trace.attempts.tolist() == [3]
    assert trace.provenance.counts == {
        "jobs that list no GPU dropped": 1,
        "jobs whose attempts differ in GPUs: those of the last one taken": 1,
    }


def test_a_run_over_the_end_of_daylight_saving_time_is_an_hour_longer_in_pacific_time(tmp_path):
    path = log(tmp_path, job("a", [attempt("2017-11-04 23:00:00", "2017-11-05 05:00:00")]))
    assert load_trace(path, tz="naive").duration_s[0] == 21_600
    assert load_trace(path).duration_s[0] == 21_600
    assert load_trace(path, tz="America/Los_Angeles").duration_s[0] == 25_200
    assert "America/Los_Angeles" in load_trace(path, tz="America/Los_Angeles").provenance.notes[1]


def test_a_time_in_the_repeated_hour_is_read_as_daylight_time_and_counted(tmp_path):
    path = log(tmp_path, job("a", [attempt("2017-11-05 01:30:00", "2017-11-05 03:00:00")]))
    trace = load_trace(path, tz="America/Los_Angeles")
    assert trace.duration_s[0] == 9000  # 01:30 PDT is 08:30Z, 03:00 PST is 11:00Z
    assert trace.provenance.counts == {"times made unclear by a clock change": 1}


def test_the_three_words_for_an_end_and_one_that_is_unknown(tmp_path):
    good = GOOD["attempts"]
    jobs = [job(w, good, status=w) for w in ("Pass", "Killed", "Failed")]
    trace = load_trace(log(tmp_path, *jobs))
    assert dict(zip(trace.job_id, trace.status, strict=True)) == {
        "Pass": "passed",
        "Killed": "killed",
        "Failed": "failed",
    }
    with pytest.raises(
        TraceError, match=r"job 4, status: unknown status; got 'Evicted'; allowed: pass, killed"
    ):
        load_trace(log(tmp_path, *jobs, job("x", good, status="Evicted")))


def test_null_user_is_blank_and_named_users_stay(tmp_path):
    users = ["NA", "nan", "None", "uA", None]
    trace = load_trace(log(tmp_path, *(job(str(i), GOOD["attempts"], user=u) for i, u in enumerate(users))))
    assert trace.user.tolist() == ["NA", "nan", "None", "uA", ""]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[", ["line 1", "no valid JSON", "cut short"]),
        ('[{"status": "Pass"', ["no valid JSON"]),
        ("{}", ["no job log", "dict", "a list of jobs"]),
        ("[3]", ["job 1", "not a job"]),
        ('[{"status": "Pass"}]', ["job 1", "'vc' is missing"]),
        ("[" * 100_000, ["no valid JSON"]),
        (json.dumps([GOOD | {"attempts": 3}]), ["job 1", "attempts not as expected", "detail"]),
        (json.dumps([GOOD | {"attempts": [1]}]), ["job 1", "attempts not as expected"]),
        (json.dumps([GOOD | {"attempts": [{"detail": [{}]}]}]), ["job 1", "attempts not as expected"]),
        (
            json.dumps([GOOD, job("b", [attempt("yesterday", "None")])]),
            ["job 2", "not a time", "yesterday", "YYYY"],
        ),
        (
            json.dumps([job("b", GOOD["attempts"], submitted="1970-01-01 00:00:00")]),
            ["job 1", "submitted_time", "2000"],
        ),
        (json.dumps([job("b", GOOD["attempts"], submitted=1507000000)]), ["job 1", "not a time"]),
        (json.dumps([GOOD, GOOD]), ["job 2", "duplicate job id (first seen in job 1)", "'good'"]),
        (json.dumps([job("", GOOD["attempts"])]), ["job 1", "job_id", "non-empty"]),
        (json.dumps([job("\ud800", GOOD["attempts"])]), ["job 1", "'jobid'", "text"]),
        (json.dumps([job("a", [])]), ["no jobs", "0 of 1 rows", "jobs without attempts dropped: 1"]),
    ],
)
def test_a_log_that_cannot_be_used_says_where_and_why(tmp_path, text, parts):
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        load_trace(path, "philly-log")
    for part in [str(path), *parts]:
        assert part in str(caught.value)


# --- machine list and utilisation --------------------------------------------------------------------------


@pytest.fixture
def two_against_eight(tmp_path):
    """The list says that m51 has 2 GPUs; a job ran on 8 of them. m60 is listed right."""
    listed = tmp_path / "cluster_machine_list"
    listed.write_text("machineId,number of GPUs, single GPU mem\nm51,2, 12GB\nm60,8, 24GB\n")
    runs = [attempt("2017-10-07 02:00:00", "2017-10-07 03:00:00", gpus=8, machine=m) for m in ("m51", "m60")]
    return listed, log(tmp_path, job("wide", runs))


def test_observed_rule_takes_the_gpus_that_were_in_use(two_against_eight):
    machines = read_machines(*two_against_eight)
    assert machines.name.tolist() == ["m51", "m60"] and machines.gpus.tolist() == [8, 8]
    assert machines.gpu_memory_gib.tolist() == [12.0, 24.0] and machines.about.rule == "observed"
    assert machines.about.counts == {"machines seen with more GPUs than listed": 1}
    assert machines.about.first == {"machines seen with more GPUs than listed": ("m51",)}


def test_listed_rule_keeps_the_list_and_still_counts(two_against_eight):
    machines = read_machines(*two_against_eight, rule="listed")
    assert machines.gpus.tolist() == [2, 8]
    assert machines.about.first == {"machines seen with more GPUs than listed": ("m51",)}


def test_strict_rule_refuses_and_names_the_machine(two_against_eight):
    with pytest.raises(TraceError, match=r"machine 'm51' disagrees.*2 GPUs listed, 8 in use"):
        read_machines(*two_against_eight, rule="strict")
    with pytest.raises(TraceError, match="did you mean 'observed'"):
        read_machines(*two_against_eight, rule="observe")


def test_where_attempts_differ_in_gpus_the_user_says_whose_count(tmp_path):
    times = [(f"2017-10-07 0{h}:00:00", f"2017-10-07 0{h}:30:00") for h in (2, 3, 4)]
    path = log(tmp_path, job("j", [attempt(*when, gpus=n) for when, n in zip(times, (2, 8, 4), strict=True)]))
    assert {rule: int(load_trace(path, gpus=rule).num_gpus[0]) for rule in ("first", "most", "last")} == {
        "first": 2, "most": 8, "last": 4}
    assert load_trace(path).provenance.counts["jobs whose attempts differ in GPUs: those of the last one taken"] == 1
    with pytest.raises(TraceError, match="last, first, most"):
        load_trace(path, gpus="all")


def test_recorded_queueing_is_from_submission_to_the_first_start(tmp_path):
    early = job("early", [attempt("2017-10-07 00:59:00", "2017-10-07 02:00:00")])
    trace = load_trace(log(tmp_path, GOOD, early))
    wait_s = dict(zip(trace.job_id, trace.wait_s, strict=True))
    assert wait_s["good"] == 3600
    assert np.isnan(wait_s["early"])  # a clock that was off: not a negative wait
    assert trace.provenance.first["jobs that start before they are submitted: wait taken for unknown"] == ("job 2",)


def test_philly_side_tables_are_named_not_misread(tmp_path):
    (tmp_path / "cluster_machine_list").write_text("machineId,number of GPUs, single GPU mem\nm1,2, 12GB\n")
    (tmp_path / "cluster_cpu_util").write_text("time,machine_id,cpu_util\n2017-11-27 00:04:00 PST,m29,31.8\n")
    for name, what in (("cluster_machine_list", "list of machines"), ("cluster_cpu_util", "samples of GPU, CPU")):
        with pytest.raises(TraceError, match=f"no jobs here: Philly's .*{what}"):
            load_trace(tmp_path / name)
