"""Which jobs are taken, by hand: each step, their order, what is counted; and the same trace at other loads."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.columns import COLUMNS
from traces.errors import TraceError
from traces.load import load_trace
from traces.offered_load import DAY_S, WEEK_S, demand_gpu_s, offered_load, scale_load
from traces.select import Selection, asked_for
from traces.synthetic.generate import generate
from traces.trace import Provenance, Trace


def trace_of(submit_s, duration_s, num_gpus, provenance=None, **more):
    ids = [f"j{i}" for i in range(len(submit_s))]
    columns = {"job_id": ids, "submit_s": submit_s, "duration_s": duration_s, "num_gpus": num_gpus, **more}
    return Trace.from_columns(columns, provenance)


def small(**about):
    """Four jobs at 0, 10, 20 and 30 s of two virtual clusters and three users, one of them called NA."""
    return trace_of(
        [0, 10, 20, 30], [100, 5, 50, 5], [1, 2, 4, 8], Provenance(source="log", **about),
        vc=["a", "b", "a", ""], user=["NA", "u", "v", "u"], status=["passed", "killed", "failed", "passed"],
    )


def taken(trace, **selection):
    return Selection(**selection).apply(trace)


def test_nothing_asked_for_is_the_whole_trace():
    trace = small()
    assert taken(trace) is trace
    assert Selection().text() == ""


@pytest.mark.parametrize(
    ("selection", "jobs"),
    [
        ({"status": ("passed",)}, ["j0", "j3"]),
        ({"status": ("failed", "killed")}, ["j1", "j2"]),
        ({"vc": ("a",)}, ["j0", "j2"]),
        ({"vc": ("",)}, ["j3"]),
        ({"user": ("NA",)}, ["j0"]),
        ({"submitted_from": 10, "submitted_to": 30}, ["j1", "j2"]),
        ({"jobs": 3}, ["j0", "j1", "j2"]),
        ({"status": ("passed",), "jobs": 2}, ["j0", "j3"]),
        ({"skip": 1, "jobs": 2}, ["j1", "j2"]),
        ({"vc": ("a",), "skip": 1}, ["j2"]),
        ({"submitted_from": 1, "user": ("u",), "jobs": 1}, ["j1"]),
    ],
    ids=str,
)
def test_what_is_taken(selection, jobs):
    assert taken(small(), **selection).job_id.tolist() == jobs


def test_each_step_is_noted_and_counted_with_its_first_jobs():
    about = taken(small(), submitted_from=10, status=("killed", "passed"), jobs=1).provenance
    assert about.notes == (
        "only jobs submitted from 10 on: 3 of 4 jobs", "only status killed, passed: 2 of 3 jobs", "first 1 of 2 jobs")
    assert about.counts == {
        "as asked, left out: jobs submitted before the window": 1,
        "as asked, left out: of these, jobs that may still have run when it begins": 1,
        "as asked, left out: jobs of another status": 1,
        "as asked, left out: jobs after the first 1": 1,
    }
    assert about.first["as asked, left out: jobs of another status"] == ("job j2",)
    assert all(asked_for(what) for what in about.counts)
    text = Selection(submitted_from=10, status=("killed", "passed"), jobs=1).text()
    assert text == "submitted from 10; status killed, passed; first 1 jobs"


def test_jobs_that_were_skipped_and_may_still_have_run_are_counted():
    """j0 runs until 100 s and j1 until 15 s; the window begins with j2 at 20 s, whose time stays as it is."""
    window = taken(small(), skip=2, jobs=1)
    assert window.submit_s.tolist() == [20.0]
    assert window.provenance.counts["as asked, left out: jobs submitted before the window"] == 2
    assert window.provenance.counts["as asked, left out: of these, jobs that may still have run when it begins"] == 1
    assert Selection(skip=2, jobs=1).text() == "without the first 2 jobs; first 1 jobs"


def test_counts_of_the_reader_stay():
    about = taken(small(counts={"CPU-only jobs dropped": 7}, first={"CPU-only jobs dropped": ("line 3",)}),
                  vc=("a",)).provenance
    assert about.counts["CPU-only jobs dropped"] == 7
    assert about.first["CPU-only jobs dropped"] == ("line 3",)
    assert not asked_for("CPU-only jobs dropped")


@pytest.mark.parametrize("bound", [3600, 3600.0, "3600", "3600s", "60min", "1h", " 1 H ", "3.6e3"])
def test_a_time_may_be_written_in_several_units(bound):
    trace = trace_of([0, 3599, 3600], [1, 1, 1], [1, 1, 1])
    assert taken(trace, submitted_from=bound).job_id.tolist() == ["j2"]
    assert taken(trace, submitted_to=bound).job_id.tolist() == ["j0", "j1"]


def test_a_date_is_read_in_the_zone_of_the_trace_unless_it_names_its_own():
    """submit_s = 0 is 2017-10-09 00:00 UTC, which is 08:00 in Shanghai."""
    epoch = 1_507_507_200.0
    utc, shanghai = (trace_of([0, 3600, 7200], [1, 1, 1], [1, 1, 1], Provenance(epoch_s=epoch, tz=tz))
                     for tz in ("UTC", "Asia/Shanghai"))
    assert len(taken(utc, submitted_from="2017-10-09 01:00:00")) == 2
    assert len(taken(shanghai, submitted_from="2017-10-09 09:00:00")) == 2
    assert len(taken(shanghai, submitted_from="2017-10-09T02:00:00+00:00")) == 1
    assert len(taken(utc, submitted_from="2017-10-09", submitted_to="2017-10-10")) == 3


@pytest.mark.parametrize(
    ("about", "selection", "part"),
    [
        ({}, {"status": ("pass",)}, r"no such status; got 'pass'.*did you mean 'passed'"),
        ({}, {"vc": ("A",)}, "log: no such vc; got 'A'; allowed: a, b"),
        ({}, {"user": ("nobody",)}, "no such user"),
        ({}, {"gangs": "expand"}, "gangs: value not allowed; got 'expand'; allowed: keep, split"),
        ({}, {"submitted_from": "monday"}, "from: not a time; got 'monday'"),
        ({}, {"submitted_from": 20, "submitted_to": 20}, "the window is empty"),
        ({}, {"submitted_from": 31}, r"no jobs left.*0 of 4 jobs"),
        ({}, {"status": ("killed",), "vc": ("a",)}, r"no jobs left; got 'only vc a: 0 of 1 jobs'"),
        ({}, {"jobs": 0}, "no jobs left; got 0"),
        ({}, {"skip": 4}, r"no jobs left; got 'all but the first 4 jobs: 0 of 4 jobs'"),
        ({}, {"submitted_from": "2017-10-09"}, "a date, and the trace has no calendar"),
        ({"epoch_s": 0.0, "date_is_real": False}, {"submitted_to": "1970-01-07"}, "made-up dates"),
    ],
    ids=str,
)
def test_what_cannot_be_taken_is_said(about, selection, part):
    with pytest.raises(TraceError, match=part):
        taken(small(**about), **selection)


# --- gangs --------------------------------------------------------------------------------------------------


def test_a_gang_becomes_jobs_of_one_worker_and_no_gpu_time_is_lost():
    trace = trace_of([0, 5, 9], [10, 20, 30], [6, 3, 1], worker_gpus=[2, 1, 1], gpu_milli=[1000, 250, 1000],
                     batch_size=[96, 2, 7], work_iters=[50, 60, 70], deadline_s=[40, 50, 60])
    split = taken(trace, gangs="split")
    assert split.job_id.tolist() == ["j0/0", "j0/1", "j0/2", "j1/0", "j1/1", "j1/2", "j2"]
    assert split.num_gpus.tolist() == [2, 2, 2, 1, 1, 1, 1] == split.worker_gpus.tolist()
    assert split.gpu_milli.tolist() == [1000] * 3 + [250] * 3 + [1000]
    assert split.submit_s.tolist() == [0, 0, 0, 5, 5, 5, 9]
    assert split.batch_size.tolist() == [32, 32, 32, 1, 1, 1, 7]
    assert split.work_iters.tolist() == [50, 50, 50, 60, 60, 60, 70]
    assert split.deadline_s.tolist() == [40, 40, 40, 50, 50, 50, 60]
    assert demand_gpu_s(split).sum() == demand_gpu_s(trace).sum()
    assert split.provenance.counts == {"as asked, split: gangs into jobs of one worker": 2}
    assert taken(trace, gangs="split", jobs=2).job_id.tolist() == ["j0/0", "j0/1"]


def test_an_id_that_a_part_of_a_gang_would_take_is_not_given_twice():
    trace = Trace.from_columns(
        {"job_id": ["x", "x/1"], "submit_s": [0, 1], "duration_s": [1, 1], "num_gpus": [2, 1]})
    with pytest.raises(TraceError, match="duplicate job id"):
        taken(trace, gangs="split")


@given(seed=st.integers(0, 50), status=st.sampled_from([("passed",), ("passed", "failed"), ()]),
       gangs=st.sampled_from(["keep", "split"]), jobs=st.integers(1, 60) | st.none())
@settings(max_examples=60)
def test_the_jobs_taken_are_those_of_the_trace_unchanged(seed, status, gangs, jobs):
    trace = generate("pai", 40, seed)
    chosen = taken(trace, status=status, gangs=gangs, jobs=jobs)
    row = {name: i for i, name in enumerate(trace.job_id.tolist())}
    source = [row[name.split("/")[0]] for name in chosen.job_id]
    for name in ("submit_s", "duration_s", "gpu_milli", "user", "status", "wait_s"):
        np.testing.assert_array_equal(getattr(chosen, name), getattr(trace, name)[source])
    assert not status or set(chosen.status) <= set(status)
    if jobs is None:
        left = trace if not status else trace.select(np.isin(trace.status, status))
        assert demand_gpu_s(chosen).sum() == pytest.approx(demand_gpu_s(left).sum(), rel=1e-12)


# --- other loads --------------------------------------------------------------------------------------------


def test_a_deadline_and_the_window_of_the_log_move_with_the_jobs_and_the_calendar_is_gone():
    about = Provenance(epoch_s=1e9, window_s=(0.0, 300.0))
    trace = trace_of([100, 200], [10, 10], [1, 1], about, deadline_s=[150, np.nan])
    twice = scale_load(trace, 1, 2 * offered_load(trace, 1))
    assert twice.submit_s.tolist() == [100, 150]
    assert twice.deadline_s[0] == 150 and np.isnan(twice.deadline_s[1])
    slower = scale_load(trace, 1, offered_load(trace, 1) / 2)
    assert slower.submit_s.tolist() == [100, 300] and slower.deadline_s[0] == 150
    assert slower.provenance.window_s == (-100.0, 500.0) and slower.provenance.epoch_s is None


def test_thinning_keeps_the_times_and_comes_as_near_as_whole_jobs_allow():
    trace = generate("philly", 3000, 1)
    now, largest = offered_load(trace, 100), demand_gpu_s(trace).max()
    thin = scale_load(trace, 100, now / 2, "thin", seed=3)
    assert 0 < len(thin) < len(trace)
    assert np.isin(thin.job_id, trace.job_id).all() and len(set(thin.job_id)) == len(thin)
    span = trace.submit_s[-1] - trace.submit_s[0]
    assert abs(demand_gpu_s(thin).sum() / (span * 100) - now / 2) <= largest / (span * 100)
    assert f"{len(thin)} of 3000 jobs kept by a hash of their ids (seed 3)" in thin.provenance.notes[-1]
    assert f"to {offered_load(thin, 100):.4g} on 100 GPUs" in thin.provenance.notes[-1]


def test_a_lower_load_takes_a_part_of_the_same_jobs_and_another_seed_others():
    trace = generate("philly", 2000, 1)
    now = offered_load(trace, 100)
    kept = [set(scale_load(trace, 100, part * now, "thin", seed=3).job_id) for part in (0.2, 0.5, 0.9)]
    assert kept[0] < kept[1] < kept[2]
    assert set(scale_load(trace, 100, 0.5 * now, "thin", seed=4).job_id) != kept[1]


def test_what_becomes_of_a_job_does_not_hang_on_the_order_of_rows():
    trace = generate("pai", 300, 2)
    backwards = Trace.from_columns({c.name: getattr(trace, c.name)[::-1] for c in COLUMNS})
    one, other = (scale_load(t, 10, 0.5 * offered_load(t, 10), "thin").content_hash() for t in (trace, backwards))
    assert one == other


@given(times=st.floats(1, 6), seed=st.integers(0, 20), jobs=st.integers(20, 60))
@settings(max_examples=40)
def test_repeating_reaches_the_load_and_holds_the_whole_trace(times, seed, jobs):
    trace = generate("pai", jobs, seed)
    now, largest = offered_load(trace, 50), demand_gpu_s(trace).max()
    more = scale_load(trace, 50, times * now, "repeat", seed)
    span = trace.submit_s[-1] - trace.submit_s[0]
    assert abs(demand_gpu_s(more).sum() / (50 * span) - times * now) <= largest / (50 * span) * (1 + 1e-9)
    assert np.isin(trace.job_id, more.job_id).all()
    assert trace.submit_s[0] <= more.submit_s.min() and more.submit_s.max() <= trace.submit_s[-1] + 1e-6
    copy = more.select(np.char.find(more.job_id.astype(str), "~") >= 0)
    original = {name: i for i, name in enumerate(trace.job_id.tolist())}
    rows = [original[name.split("~")[0]] for name in copy.job_id]
    for name in ("duration_s", "num_gpus", "user", "status"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(trace, name)[rows])


def test_copies_go_round_by_whole_weeks_so_that_hours_stay_true_and_no_two_are_moved_alike():
    """A job an hour for eight weeks: a copy moves on by weeks, and half an hour at most; what goes over the 55 whole
    days comes in at the beginning."""
    hours = np.arange(8 * 7 * 24) * 3600.0
    trace = trace_of(hours, np.ones(len(hours)), np.ones(len(hours), dtype=int))
    more = scale_load(trace, 1, 4 * offered_load(trace, 1), "repeat", seed=1)
    begins = dict(zip(more.job_id.tolist(), more.submit_s.tolist(), strict=True))
    weeks = set()
    for number in (1, 2, 3):
        moved = np.array([begins[f"j{i}~{number}"] for i in range(len(hours))]) - hours
        on, back = moved[0], moved[moved < 0]
        assert abs(on - WEEK_S * round(on / WEEK_S)) <= 1800
        assert np.allclose(moved[moved > 0], on)
        assert np.allclose(on - back[-25], 55 * DAY_S)  # the last day but one: later ones went round twice
        assert (np.abs(moved - np.round(moved / DAY_S) * DAY_S) <= 1800).all()
        weeks.add(round(on / WEEK_S))
    assert len(weeks) == 3


def test_copies_in_a_short_trace_and_ids_with_the_mark_in_them():
    trace = Trace.from_columns(
        {"job_id": ["a~1", "b"], "submit_s": [0, 100], "duration_s": [10, 10], "num_gpus": [1, 1]})
    more = scale_load(trace, 1, 2 * offered_load(trace, 1), "repeat")
    assert sorted(more.job_id) == ["a~1", "a~1~~1", "b", "b~~1"]
    assert scale_load(trace, 1, offered_load(trace, 1), "repeat").job_id.tolist() == ["a~1", "b"]


@pytest.mark.parametrize("by", ["thin", "repeat", "compress"])
def test_the_same_seed_gives_the_same_trace(by):
    trace = generate("pai", 2000, 5)
    load = offered_load(trace, 8) * (0.5 if by == "thin" else 2.5)
    one, same = (scale_load(trace, 8, load, by, seed=7).content_hash() for _ in range(2))
    assert one == same
    assert (scale_load(trace, 8, load, by, seed=8).content_hash() == one) == (by == "compress")


@pytest.mark.parametrize(
    ("by", "times", "part"),
    [("thin", 2.0, "thinning only lowers"), ("repeat", 0.5, "repeating only raises"), ("copy", 1.0, "load_by"),
     ("repeat", 1e8, "too many jobs")],
)
def test_a_load_that_a_way_does_not_lead_to_is_refused(by, times, part):
    trace = small()
    with pytest.raises(TraceError, match=part):
        scale_load(trace, 4, times * offered_load(trace, 4), by)


def test_a_week_of_the_real_philly_file(data_dir):
    trace = load_trace(data_dir / "philly" / "philly.csv")
    week = taken(trace, submitted_from="2017-10-09", submitted_to="2017-10-16")
    assert len(week) == 12_751
    one = taken(trace, vc=("ee9e8c",))
    assert len(one) == 1_511 and set(one.vc) == {"ee9e8c"}
    assert scale_load(one, 320, 0.5 * offered_load(one, 320), "thin").provenance.notes[-1].startswith("6")


def test_gpu_types_that_the_log_made_up_are_taken_for_others():
    columns = {"job_id": list("abcd"), "submit_s": [0, 1, 2, 3], "duration_s": [1] * 4, "num_gpus": [1] * 4,
               "gpu_type": ["G2", "G2|T4", "T4", ""]}
    trace = Selection(gpu_types={"G2": "A10"}).apply(Trace.from_columns(columns))
    assert trace.gpu_type.tolist() == ["A10", "A10|T4", "T4", ""]
    assert trace.provenance.counts == {"as asked, jobs that ask for G2: taken for A10": 2}
    merged = Selection(gpu_types={"G2": "T4"}).apply(Trace.from_columns(columns))
    assert merged.gpu_type.tolist() == ["T4", "T4", "T4", ""]
    lifted = Selection(gpu_types={"G2": ""}).apply(Trace.from_columns(columns))
    assert lifted.gpu_type.tolist() == ["", "", "T4", ""]
    with pytest.raises(TraceError, match="did you mean 'G2'"):
        Selection(gpu_types={"G1": "A10"}).apply(Trace.from_columns(columns))


@given(st.integers(0, 40), st.floats(0.05, 0.95))
@settings(max_examples=25)
def test_a_thinned_trace_has_the_load_asked_for_over_its_own_time(seed, part):
    """Many jobs alike: the nearest whole number of them is near, whatever is cut off at the ends."""
    n = 2000
    trace = Trace.from_columns({"job_id": np.arange(n).astype(str), "submit_s": np.arange(n) * 7.0,
                                "duration_s": np.full(n, 50.0), "num_gpus": np.ones(n)})
    load = part * offered_load(trace, 4)
    thin = scale_load(trace, 4, load, "thin", seed)
    assert offered_load(thin, 4) == pytest.approx(load, rel=0.02)
    assert set(thin.job_id) < set(trace.job_id)


@pytest.mark.parametrize("bound", ["20171009", "2017", 20171010])
def test_a_bare_number_that_looks_like_a_date_is_not_taken_for_seconds(bound):
    dated = dataclasses.replace(small().provenance, epoch_s=1_507_500_000.0)
    with pytest.raises(TraceError, match="2017-10-09 for a date, 20171009s for seconds"):
        taken(small().replace(dated), submitted_to=bound)
    assert len(taken(small(), submitted_to=bound)) == 4  # no calendar, no doubt
