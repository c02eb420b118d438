"""What is in a trace and what is odd about it, by hand: tenants, calendar, edges of the log, oddities."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.load import load_trace, write_trace
from traces.offered_load import demand_gpu_s
from traces.study.check import check, in_sevenths, told
from traces.study.describe import describe
from traces.study.edges import edges, gpus_in_use
from traces.study.summary import as_text
from traces.synthetic.generate import generate
from traces.trace import Provenance, Trace


def trace_of(submit_s, duration_s, num_gpus, provenance=None, **more):
    ids = [f"j{i}" for i in range(len(submit_s))]
    columns = {"job_id": ids, "submit_s": submit_s, "duration_s": duration_s, "num_gpus": num_gpus, **more}
    return Trace.from_columns(columns, provenance)


def found_in(trace, **options):
    return {oddity.what: (oddity.count, oddity.first) for oddity in check(trace, **options)}


# --- description --------------------------------------------------------------------------------------------


def test_description_of_three_jobs():
    trace = trace_of(
        [0, 3600, 90_000], [3600, 7200, 3600], [1, 2, 1], vc=["a", "b", "a"], user=["NA", "nan", "uA"]
    )
    summary = describe(trace)
    assert summary["gpu_hours"] == 1 + 4 + 1 and summary["users"] == 3 and summary["span_s"] == 90_000
    assert summary["duration_s"]["p50"] == 3600 and summary["duration_s"]["mean"] == 4800
    assert summary["vcs"] == [
        {"value": "a", "jobs": 2, "jobs_share": 2 / 3, "gpu_hours": 2.0, "gpu_hours_share": 2 / 6,
         "duration_p50_s": 3600.0, "users": 2},
        {"value": "b", "jobs": 1, "jobs_share": 1 / 3, "gpu_hours": 4.0, "gpu_hours_share": 4 / 6,
         "duration_p50_s": 7200.0, "users": 1},
    ]
    assert [row["value"] for row in summary["gpus"]] == [1.0, 2.0]
    assert summary["hours"][:2] == [1, 2] and summary["weekdays"] == [2, 1, 0, 0, 0, 0, 0]
    assert sum(row["jobs"] for row in summary["vcs"]) == len(trace)


def test_jobs_that_all_come_at_once_span_no_time():
    """Nothing lies between first and last submission; a load is still taken over the longest run."""
    summary = describe(trace_of([5, 5], [3600, 18_000], [1, 1]), {"T4": 1})
    assert summary["span_s"] == 0 and "0.00 days from first to last" in as_text(summary)
    assert summary["load"]["span_s"] == 18_000 and summary["load"]["total"] == pytest.approx(21_600 / 18_000)


def test_p22_users_called_na_nan_and_null_are_users():
    """Per user a row, and the jobs of all rows add up."""
    names = ["NA", "nan", "null", "None", "uA", "uA"]
    summary = describe(trace_of(range(6), [60] * 6, [1] * 6, user=names))
    assert {row["value"]: row["jobs"] for row in summary["top_users"]} == {
        "uA": 2, "NA": 1, "nan": 1, "null": 1, "None": 1}
    assert summary["users"] == 5
    text = as_text(summary)
    assert all(f"user      {name} " in text for name in set(names))


def test_users_that_are_not_recorded_are_not_one_user():
    summary = describe(trace_of([0, 1], [1, 1], [1, 1]))
    assert (summary["users"], summary["top_users"], summary["skew"]) == (0, [], None)
    assert "users are not recorded" in as_text(summary)


def test_skew_is_the_share_of_the_first_users_by_each_measure():
    """Twenty users; u0 has 81 of 100 jobs of a second each, u1 one job of an hour."""
    user = ["u0"] * 81 + [f"u{i}" for i in range(1, 20)]
    duration = [1.0] * 81 + [3600.0] + [1.0] * 18
    skew = describe(trace_of(range(100), duration, [1] * 100, user=user))["skew"]
    assert skew["jobs"] == pytest.approx({"1%": 0.81, "5%": 0.81, "10%": 0.82})
    assert skew["gpu_hours"]["1%"] == pytest.approx(3600 / 3699)
    assert skew["gpu_hours"]["10%"] == pytest.approx(3681 / 3699)


def test_waits_are_those_that_are_recorded():
    summary = describe(trace_of([0, 1, 2], [1, 1, 1], [1, 1, 1], wait_s=[10, np.nan, 30]))
    assert summary["wait_s"]["known"] == 2 and summary["wait_s"]["mean"] == 20
    assert "recorded of 2 jobs" in as_text(summary)
    assert describe(trace_of([0], [1], [1]))["wait_s"] == {"known": 0}


def test_p09_hours_are_those_of_the_trace_and_a_made_up_date_is_never_shown():
    """494,319 s after a made-up 1970-01-01 is 01:18:39 of a Wednesday in Shanghai, and 17:18:39 in UTC."""
    made_up = Provenance(epoch_s=0.0, tz="Asia/Shanghai", date_is_real=False)
    trace = trace_of([494_319.0], [10], [1], made_up)
    summary = describe(trace)
    assert np.flatnonzero(summary["hours"]).tolist() == [1]
    assert np.flatnonzero(summary["weekdays"]).tolist() == [2]
    assert summary["calendar"] == {"tz": "Asia/Shanghai", "first": None, "last": None}
    assert "1970" not in json.dumps(summary) and "1970" not in as_text(summary)
    assert "hours and weekdays are true in Asia/Shanghai; the dates are made up" in as_text(summary)
    in_utc = describe(trace_of([494_319.0], [10], [1], Provenance(epoch_s=0.0)))
    assert np.flatnonzero(in_utc["hours"]).tolist() == [17]


def test_a_real_date_is_shown_in_its_zone_whatever_the_clocks_did():
    """2017-11-05 in Los Angeles: 08:30 UTC is 01:30, and so is 09:30, an hour later."""
    epoch = 1_509_870_600.0
    summary = describe(trace_of([0, 3600], [1, 1], [1, 1], Provenance(epoch_s=epoch, tz="America/Los_Angeles")))
    assert summary["hours"][1] == 2
    assert summary["calendar"]["first"] == "2017-11-05 01:30:00-07:00"
    assert summary["calendar"]["last"] == "2017-11-05 01:30:00-08:00"


def test_a_trace_without_a_calendar_counts_from_its_time_0():
    summary = describe(trace_of([-1, 0, 86_400], [1, 1, 1], [1, 1, 1]))
    assert summary["hours"][0] == 2 and summary["hours"][23] == 1
    assert summary["weekdays"] == [1, 1, 0, 0, 0, 0, 1]
    assert summary["calendar"]["tz"] is None
    assert "none; hours and days are counted from submit_s = 0" in as_text(summary)


def test_a_trace_of_one_job_and_one_without_time_can_be_described():
    for duration in (0, 10):
        summary = describe(trace_of([7], [duration], [1]), {"T4": 1})
        assert summary["load"]["total"] == (1.0 if duration else 0.0) and "1; 0 rows" in as_text(summary)
        json.dumps(summary, allow_nan=False)


@given(seed=st.integers(0, 100), jobs=st.integers(1, 80), name=st.sampled_from(["philly", "pai"]))
@settings(max_examples=40)
def test_each_breakdown_adds_up_to_the_whole(seed, jobs, name):
    trace = generate(name, jobs, seed)
    summary = describe(trace, {"V100": 8, "T4": 4})
    json.dumps(summary, allow_nan=False)
    for table in ("gpus", "vcs", "gpu_types"):
        assert sum(row["jobs"] for row in summary[table]) == jobs
        assert sum(row["gpu_hours"] for row in summary[table]) == pytest.approx(summary["gpu_hours"])
    assert sum(summary["hours"]) == sum(summary["weekdays"]) == sum(summary["status"].values()) == jobs
    assert sum(summary["over_time"]["jobs"]) in (0, jobs)
    curve = summary["curves"]["all"]
    assert curve == sorted(curve) and curve[-1] == trace.duration_s.max()


# --- the edges of a log -------------------------------------------------------------------------------------


def seen(trace):
    return edges(trace, demand_gpu_s(trace))


def test_gpus_in_use_by_hand():
    """Two GPUs from 0 to 10, one from 5 to 25: in [0, 10) 2.5 on average, in [10, 30) 0.75."""
    use = gpus_in_use(np.array([0.0, 5.0]), np.array([10.0, 25.0]), np.array([2.0, 1.0]), np.array([0.0, 10, 30]))
    assert use.tolist() == [2.5, 0.75]


def test_jobs_that_end_after_the_log_are_counted_with_their_part_of_the_time():
    """The log ends at 100: one of 3 GPU jobs runs from 90 (it waited 10) to 130, 3/4 of its 120 GPU-s beyond."""
    about = Provenance(window_s=(0.0, 100.0))
    trace = trace_of([-5, 0, 80], [10, 80, 40], [1, 1, 3], about, wait_s=[np.nan, np.nan, 10])
    found = seen(trace)
    assert found["known"] and (found["begin_s"], found["end_s"]) == (0.0, 100.0)
    assert found["submitted_before"] == 1
    assert found["end_after"] == {
        "jobs": 1, "gpu_share": pytest.approx(120 / 210), "beyond_share": pytest.approx(90 / 210)}
    assert "1 jobs end after the end of the log" in as_text(describe(trace))
    unknown = trace.replace(Provenance())
    assert not seen(unknown)["known"] and seen(unknown)["end_s"] == 80.0
    assert "when the log begins and ends is not recorded" in as_text(describe(unknown))


def test_a_log_that_leaves_out_what_had_not_ended_lacks_long_runs_at_its_end():
    """A job each 10 s; one in ten runs 60,000 s and up to 9,990 s more, the others 60 s. A log taken at the last
    submission has none of the long runs of its last 60,000 s."""
    number = np.arange(40_000)
    submit = number * 10.0
    more_s = np.random.default_rng([0, 2]).integers(0, 1000, len(number)) * 10.0
    duration = np.where(number % 10 == 0, 60_000.0 + more_s, 60.0)
    whole = trace_of(submit, duration, np.ones(len(number), dtype=int))
    assert {row["missing"] for row in seen(whole)["late"]} == {0.0}
    ended = submit + duration <= submit[-1]
    short, longest = seen(whole.select(ended))["late"]
    assert short["within_s"] == 60 and short["missing"] == 0
    assert 60_000 < longest["within_s"] < 70_000 and longest["longer"] == 0
    assert longest["jobs"] == pytest.approx(0.9 * longest["within_s"] / 10, rel=0.05)
    left_out = (duration > longest["within_s"]) & (submit > submit[-1] - longest["within_s"])
    # Counted in the last X only; of 60 or so, a few standard deviations.
    assert longest["missing"] == pytest.approx(left_out.sum(), abs=3 * np.sqrt(left_out.sum()))


def test_a_log_that_begins_empty_says_how_empty():
    """A GPU more each hour for 100 hours, for ever: in the first twentieth 2 of the later 52 on average."""
    hours = np.arange(101) * 3600.0
    fill = seen(trace_of(hours, np.full(101, 1e7), np.ones(101, dtype=int)))["fill"]
    assert fill == pytest.approx(3.0 / 53.0, rel=0.02)
    assert seen(trace_of([5, 5], [1, 1], [1, 1]))["fill"] is None


# --- oddities -----------------------------------------------------------------------------------------------


def test_oddities_are_counted_and_the_first_jobs_named():
    trace = trace_of(
        [-1, 5, 5, 5, 9],
        [0, 7, 7, 4e8, 1],
        [1, 2, 2, 64, 4],
        gpu_milli=[500, 1000, 1000, 1000, 1000],
        estimate_s=[np.nan, 7, 3, 4e8, np.nan],
        worker_gpus=[1, 1, 1, 1, 2],
        attempts=[1, 1, 1, 1, 3],
    )
    assert found_in(trace, wider_than=32) == {
        "zero-length jobs": (1, ("j0",)),
        "jobs that share their time of submission": (3, ("j1", "j2", "j3")),
        "jobs equal to an earlier one in all but the id": (1, ("j2",)),
        "jobs longer than 3.16224e+07 s: is the unit seconds?": (1, ("j3",)),
        "jobs submitted before time 0": (1, ("j0",)),
        "jobs on a fraction of a GPU": (1, ("j0",)),
        "gangs of several workers that each need several GPUs of one node": (1, ("j4",)),
        "jobs tried more than once": (1, ("j4",)),
        "jobs without an estimate": (2, ("j0", "j4")),
        "jobs whose estimate is below their run time": (1, ("j2",)),
        "jobs wider than 32 GPUs: they can never run": (1, ("j3",)),
    }
    assert check(trace_of([0, 1], [1, 1], [1, 1])) == []


def test_names_like_missing_values_and_cells_that_are_empty():
    trace = trace_of([0, 1, 2, 3], [1, 1, 1, 1], [1] * 4, user=["NA", "nan", "u", ""], vc=["", "v", "v", "None"],
                     wait_s=[1, np.nan, 1, 1], model=["m", "m", "", "m"])
    assert found_in(trace) == {
        "jobs without a user": (1, ("j3",)),
        "jobs without a virtual cluster": (1, ("j0",)),
        "jobs without a model": (1, ("j2",)),
        "jobs without a recorded wait": (1, ("j1",)),
        "jobs whose user is spelled like a missing value (NA, nan), and is a name": (2, ("j0", "j1")),
        "jobs whose virtual cluster is spelled like a missing value (None), and is a name": (1, ("j3",)),
    }


def test_a_deadline_that_nobody_could_meet():
    trace = trace_of([0, 0.5, 1], [10, 10, 10], [1, 1, 1], deadline_s=[9, 11, np.nan])
    assert found_in(trace) == {"jobs whose deadline is before they could end, had they never waited": (1, ("j0",))}


def test_minutes_and_milliseconds_taken_for_seconds_are_doubted():
    rng = np.random.default_rng([0, 1])
    submit = np.arange(30) + 0.5
    duration = np.round(rng.uniform(60, 9e5, 30))
    assert found_in(trace_of(submit, duration, [1] * 30)) == {}
    assert "jobs, all of whole minutes: was the unit minutes?" in found_in(
        trace_of(submit, duration * 60, [1] * 30))
    assert "jobs, half of them longer than ten days: is the unit milliseconds?" in found_in(
        trace_of(submit, duration * 10 + 1, [1] * 30))


def test_minutes_that_the_reader_made_seconds_of_are_not_doubted(tmp_path):
    rows = "".join(f"j{i},u,1,{i},m,{3 + i},0,1\n" for i in range(30))
    path = tmp_path / "minutes.csv"
    path.write_text("job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,best_effort\n" + rows)
    doubt = "jobs, all of whole minutes: was the unit minutes?"
    for read in (load_trace(path), load_trace(write_trace(load_trace(path), tmp_path / "own.csv"))):
        assert read.duration_s[0] == 180 and doubt not in found_in(read)
    assert doubt in found_in(trace_of(range(30), 60.0 * np.arange(3, 33), [1] * 30))


def test_a_hole_in_the_log_is_found():
    submit = np.arange(40) * 10.0
    submit[25:] += 2 * 86_400
    found = found_in(trace_of(submit, np.arange(40) + 0.5, [1] * 40))
    assert found == {"jobs after more than a day without any: is the log whole?": (1, ("j25",))}


def test_jobs_that_can_never_run_on_a_cluster():
    trace = trace_of([0, 1, 2, 3], [1, 1, 1, 1], [2, 9, 1, 20], gpu_type=["T4", "V100|t4", "K80", ""])
    assert found_in(trace, gpus_by_type={"T4": 4, "V100": 4, "A10": 8}) == {
        "jobs wider than 16 GPUs: they can never run": (1, ("j3",)),
        "jobs that ask for GPU types which the cluster lacks: they can never run": (1, ("j2",)),
        "jobs wider than the GPUs of the types that they ask for: they can never run": (1, ("j1",)),
    }


def test_a_worker_that_no_node_of_its_types_can_hold():
    trace = trace_of([0, 1, 2], [1, 1, 1], [8, 8, 8], worker_gpus=[8, 4, 8], gpu_type=["T4", "T4", ""])
    found = found_in(trace, largest_nodes={"T4": 4, "V100": 8})
    assert found["jobs with a worker larger than any node: they can never run"] == (1, ("j0",))


def test_what_the_reader_did_is_told_with_its_first_rows_and_what_was_asked_for_is_not():
    about = Provenance(counts={"CPU-only jobs dropped": 3, "as asked, left out: jobs of another vc": 2},
                       first={"CPU-only jobs dropped": ("line 2", "line 5")})
    (only,) = told(trace_of([0], [1], [1], about))
    assert (only.what, only.count, only.first) == ("CPU-only jobs dropped", 3, ("line 2", "line 5"))


# --- the real file ------------------------------------------------------------------------------------------


def test_description_of_philly_agrees_with_what_is_published_of_it(data_dir):
    trace = load_trace(data_dir / "philly" / "philly.csv")
    summary = describe(trace, {"P100": 447})
    shares = {row["value"]: row["gpu_hours_share"] for row in summary["gpus"]}
    assert shares[1.0] == pytest.approx(0.181, abs=0.001) and shares[8.0] == pytest.approx(0.484, abs=0.001)
    quantiles = summary["duration_s"]
    assert [quantiles[f"p{q}"] for q in (10, 50, 90, 99)] == pytest.approx([61, 1144, 11_265, 254_758], abs=1)
    assert summary["vcs"][0]["value"] == "6214e9" and summary["vcs"][0]["jobs"] == 41_226
    friday = np.argmax(summary["weekdays"])
    assert friday in (3, 4) and min(summary["weekdays"]) in summary["weekdays"][5:]
    text = as_text(summary)
    assert "82,247; 82,247 rows were read" in text and "65 exact duplicate rows kept" in text


def test_the_philly_file_begins_empty_and_lacks_long_runs_at_its_end(data_dir):
    found = seen(load_trace(data_dir / "philly" / "philly.csv"))
    assert found["fill"] < 0.05
    assert [row["longer"] for row in found["late"]][1:] == [0, 0]
    assert found["late"][-1]["missing"] > 10


def test_oddities_of_the_real_philly_file(data_dir):
    found = {o.what: o.count for o in check(load_trace(data_dir / "philly" / "philly.csv"), wider_than=64)}
    assert found == {
        "jobs that share their time of submission": 12_049,
        "jobs equal to an earlier one in all but the id": 65,
        "jobs after more than a day without any: is the log whole?": 5,
        "jobs wider than 64 GPUs: they can never run": 3,
    }


def test_r2_15_sevenths_of_a_gpu_are_known_however_they_were_rounded():
    sevenths = {round_(k * 1000 / 7) for k in range(1, 7) for round_ in (math.floor, math.ceil)}
    shares = sorted({*sevenths, 1, 100, 125, 141, 144, 250, 333, 500, 700, 750, 999, 1000})
    trace = trace_of([0] * len(shares), [1] * len(shares), [1] * len(shares), gpu_milli=shares)
    assert set(trace.gpu_milli[in_sevenths(trace)].tolist()) == sevenths
