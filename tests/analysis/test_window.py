"""A measuring window: by hand, by law (windows add up, the whole is the run), and as users ask for it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from analysis.measuring_window import asked, in_words, windowed
from analysis.metrics.occupancy import free_gpu_s, partly_free_gpu_s, stranded_gpu_s
from analysis.metrics.offered import offered_load
from analysis.metrics.series import capacity, gpus_in_use, queue_length
from analysis.run import RunError
from tests.analysis.smallruns import HORIZON_S, small_run
from tests.conftest import ONE_FOLDER

relaxed = settings(
    max_examples=40, suppress_health_check=ONE_FOLDER
)


def test_the_middle_of_the_story(story):
    """From 5 to 60 s nobody is submitted: jobs hold GPUs and wait, but none counts."""
    run = windowed(story.load(), 5, 60)
    assert run.window_s == (5, 60)
    assert run.jobs["job_id"].tolist() == ["a", "b", "c", "e"]  # d was refused before; f and g come later
    assert not run.counted.any()
    assert run.segments[["job_id", "begin_s", "end_s"]].to_numpy().tolist() == [
        ["a", 5, 10], ["b", 5, 20], ["c", 20, 38], ["e", 10, 50],
    ]
    assert metrics.held_gpu_s(run).tolist() == [2 * 5 + 40, 0.5 * (15 + 18)]
    assert metrics.capacity_gpu_s(run).tolist() == [2 * 45, 2 * 55]
    row = metrics.measures(run)
    assert (row["jobs"], row["jobs_finished"], row["jct_mean_s"], row["preemptions"]) == (0, 0, None, 0)
    assert row["node_failures"] == 1
    assert run.info["window"] == {
        "begin_s": 5, "end_s": 60, "to_the_end": False, "jobs_counted": 0, "jobs_cut": 0, "jobs_there_at_begin": 4,
        "jobs_there_at_end": 0, "jobs_before": 1, "jobs_after": 2, "follow": False,
    }


def test_a_job_that_outlasts_the_window_is_unfinished(story):
    """From 0 to 40 s: e, submitted at 2 s, runs on until 130 s."""
    run = windowed(story.load(), 0, 40)
    e = run.jobs.set_index("job_id").loc["e"]
    assert (e["state"], e["reason"]) == ("unfinished", "had not left when the measuring window ended")
    assert np.isnan(e["end_s"])
    assert run.segments.set_index("job_id").loc["e", ["end_s", "end_reason"]].tolist() == [40, "horizon"]
    assert metrics.jct_s(run)[metrics.finished(run)].tolist() == [10, 20, 37]
    assert run.info["window"]["jobs_there_at_end"] == 1
    assert "1 had not left" in in_words(run).replace("of which ", "")
    assert in_words(story.load()) == ""


def test_overhead_comes_first_and_lost_work_last(run_files):
    """A segment of 20 s: 4 s of restart, then 10 s of work that lasts, then 6 s that are lost at its end."""
    run = run_files().node().job("a", 0, 20)
    run.segment("a", 0, 20, [0], overhead_s=4, work_lost=6, end_reason="node_failed")
    run = run.segment("a", 20, 30, [0]).load()
    cut = windowed(run, 3, 16).segments.iloc[0]
    assert cut[["begin_s", "end_s", "overhead_s", "work_done", "work_lost"]].tolist() == [3, 16, 1, 12, 2]
    cut = windowed(run, 5, 12).segments.iloc[0]
    assert cut[["overhead_s", "work_done", "work_lost", "end_reason"]].tolist() == [0, 7, 0, "horizon"]
    late = windowed(run, 18, 30).segments[["begin_s", "overhead_s", "work_done", "work_lost"]]
    assert late.to_numpy().tolist() == [[18, 0, 2, 2], [20, 0, 10, 0]]


def test_work_lost_later_is_put_where_it_was_done(run_files):
    """Both segments' work is lost at the end of the second; a window over the first alone shows its loss."""
    run = run_files().node().job("a", 0, 20).segment("a", 0, 10, [0], end_reason="preempted")
    run = run.segment("a", 10, 20, [0], work_lost=20, end_reason="failed").segment("a", 20, 40, [0]).load()
    assert metrics.wasted_gpu_s(windowed(run, 0, 10)) == {"overhead": 0, "lost": 10}
    assert metrics.wasted_gpu_s(windowed(run, 5, 15)) == {"overhead": 0, "lost": 10}


def test_outages_are_cut_with_all_else(run_files):
    run = run_files().node(gpus=2, down=[10.0, 60.0], up=[30.0]).job("a", 0, 5).job("b", 100, 0)
    run = run.segment("a", 0, 5, [0]).segment("b", 100, 100, [0]).load()
    cut = windowed(run, 20, 80)
    assert cut.nodes.loc[0, ["down_s", "up_s"]].map(list).tolist() == [[20, 60], [30]]
    assert capacity(cut).to_numpy().tolist() == [[20, 0], [30, 2], [60, 0]]
    assert metrics.capacity_gpu_s(cut).tolist() == [2 * 30]
    # An outage that ends after the window has no end in it.
    assert windowed(run, 0, 20).nodes.loc[0, ["down_s", "up_s"]].map(list).tolist() == [[10], []]


def test_plans_and_decisions_of_the_window(story):
    run = story.load()
    assert windowed(run, 0, 40).decisions["now_s"].tolist() == [0, 1, 2, 5, 10, 20, 38]
    assert len(windowed(run, 5, 40).plans) == 1  # a's segment is cut; its plan is as it began
    assert len(windowed(run, 10, 40).plans) == 0


def test_the_load_of_a_window_is_that_of_the_jobs_that_count(run_files):
    run = run_files().node(gpus=1).job("a", 0, 50).job("b", 60, 10).job("c", 70, 10)
    run = run.segment("a", 0, 50, [0]).segment("b", 60, 70, [0]).segment("c", 70, 80, [0]).load()
    load = offered_load(windowed(run, 55, 80)).loc["all"]
    assert (load["span_load"], load["load"]) == (20 / 10, 20 / (10 + 10))


@pytest.mark.parametrize(("begin", "end"), [(-1, 10), (10, 10), (20, 10), (0, 141), (float("nan"), 10)])
def test_a_window_that_is_none_is_an_error(story, begin, end):
    with pytest.raises(RunError, match="no such measuring window"):
        windowed(story.load(), begin, end)


# -- jobs followed to their end ------------------------------------------------------------


def test_a_followed_job_is_told_of_its_whole_life_and_gpu_time_ends_with_the_window(story):
    """From 0 to 40 s: e, submitted at 2 s, waits 18 s in all and ends at 130 s."""
    whole = story.load()
    cut, run = windowed(whole, 0, 40), windowed(whole, 0, 40, follow=True)
    e = run.jobs.set_index("job_id").loc["e"]
    assert (e["state"], e["end_s"]) == ("done", 130)
    job = metrics.per_job(run)
    assert job.loc["e", ["jct_s", "queue_s", "finished"]].tolist() == [128, 8 + 10, True]
    assert job.loc["e", "gpu_s"] == 30 == metrics.per_job(cut).loc["e", "gpu_s"]
    assert job["rho"].tolist() == pytest.approx(metrics.per_job(whole)["rho"][:5].tolist(), nan_ok=True)
    censored, followed = metrics.measures(cut), metrics.measures(run)
    assert [row["jobs_censored"] for row in (censored, followed)] == [1, 0]
    assert [row["jobs_finished"] for row in (censored, followed)] == [3, 4]
    assert [row["makespan_s"] for row in (censored, followed)] == [None, 130]
    assert followed["jct_mean_s"] == (10 + 20 + 37 + 128) / 4
    assert "they are followed to their end" in in_words(run)
    assert "--clip" in in_words(cut) and "of which 1 outlast it; they are followed" in in_words(run)


def test_a_preemption_and_a_deadline_after_the_window_are_those_of_a_followed_job(run_files):
    files = run_files().node(gpus=1).job("a", 0, 20).job("b", 1, 1)
    files.segment("a", 0, 15, [0], end_reason="preempted").segment("b", 15, 16, [0]).segment("a", 16, 21, [0])
    files.of("a")["deadline_s"] = 20.0
    run = files.load()
    cut, followed = windowed(run, 0, 10), windowed(run, 0, 10, follow=True)
    assert metrics.deadline_met(cut).isna().all()
    assert metrics.deadline_met(followed)[0] == False  # noqa: E712, a nullable boolean
    assert [metrics.per_job(part)["preemptions"].tolist() for part in (cut, followed)] == [[0, 0], [1, 0]]
    assert [metrics.measures(part)["preemptions"] for part in (cut, followed)] == [0, 0], "of the window"
    assert metrics.lateness_s(followed)[0] == 1


def test_backlog_and_drain_of_followed_jobs_pass_the_window_s_end(run_files):
    """One GPU, two jobs of 10 s at once: load 2 over 10 s, 10 GPU-s late then, drained 10 s later."""
    run = run_files().node(gpus=1).job("a", 0, 10).job("b", 0, 10)
    run = run.segment("a", 0, 10, [0]).segment("b", 10, 20, [0]).load()
    cut, followed = (offered_load(windowed(run, 0, 5, follow)).loc["all"] for follow in (False, True))
    assert (cut["backlog_gpu_h"] * 3600, cut["drain_s"]) == (pytest.approx(5), None)
    assert (followed["backlog_gpu_h"] * 3600, followed["drain_s"]) == (pytest.approx(10), 10)


def test_a_window_of_a_window_is_that_of_the_run(story):
    whole = story.load()
    for follow in (False, True):
        inner = windowed(windowed(whole, 0, 100, not follow), 0, 40, follow)
        assert metrics.measures(inner) == metrics.measures(windowed(whole, 0, 40, follow))
        assert metrics.per_job(inner).equals(metrics.per_job(windowed(whole, 0, 40, follow)))


def test_to_follow_needs_a_window(story):
    from sim.cli.windowoptions import measured
    from traces.errors import HetsimError

    for follow, flag in ((True, "--follow"), (False, "--clip")):
        with pytest.raises(HetsimError, match=f"{flag}.*there is no window"):
            measured([story.load()], None, None, None, None, follow)
    asked_for = {given: measured([story.load()], None, "40", None, None, given)[0].info["window"]["follow"]
                 for given in (None, True, False)}
    assert asked_for == {None: True, True: True, False: False}


# -- laws ------------------------------------------------------------

SUMS = ("capacity_gpu_h", "held_gpu_h", "wasted_overhead_gpu_h", "wasted_lost_gpu_h", "cost_usd", "cost_node_usd",
        "cost_cluster_usd", "cost_spot_usd", "cost_reserved_usd", "energy_kwh", "energy_held_kwh", "preemptions",
        "moves", "node_failures", "unsuccessful_gpu_h", "jobs", "jobs_rejected", "window_s")


def known(row):
    """A row to compare: NaN for what has no value."""
    return {name: np.nan if value is None else value for name, value in row.items()}


def integrals(run):
    """All that is a sum over time."""
    row = metrics.measures(run)
    queue = queue_length(run)
    lasts = np.diff(np.append(queue["time_s"], run.window_s[1]))
    return {
        **{name: row[name] for name in SUMS},
        "free": free_gpu_s(run).sum(),
        "partly": partly_free_gpu_s(run).sum(),
        "stranded": sum(stranded_gpu_s(run).values()),
        "queue": float(queue["all"].to_numpy() @ lasts),
        "per job": metrics.per_job(run)["gpu_s"].sum(),
    }


@relaxed
@given(seed=st.integers(0, 10_000), cuts=st.sets(st.integers(50, 2 * HORIZON_S - 1), min_size=1, max_size=3))
def test_adjacent_windows_add_up_to_the_whole(run_files, seed, cuts):
    """At whole and half seconds: so at ends and begins of segments, and between them."""
    run = small_run(run_files(f"adds{seed}"), seed).in_memory()
    edges = [run.window_s[0], *sorted(c / 2 for c in cuts if c / 2 > run.window_s[0]), run.window_s[1]]
    parts = [windowed(run, a, b) for a, b in pairwise(edges)]
    rows = [integrals(part) for part in parts]
    added = {name: sum(row[name] for row in rows) for name in rows[0]}
    assert added == pytest.approx(integrals(run), rel=1e-9, abs=1e-12)
    counted = [name for part in parts for name in part.jobs.loc[part.counted, "job_id"]]
    assert counted == run.jobs["job_id"].tolist()


@relaxed
@given(seed=st.integers(0, 10_000), begin=st.integers(0, 10), length=st.integers(5, 15))
def test_following_changes_what_is_said_of_jobs_and_no_sum_over_time(run_files, seed, begin, length):
    run = small_run(run_files(f"follows{seed}"), seed).in_memory()
    begin = max(begin, run.window_s[0])
    cut, followed = (windowed(run, begin, min(begin + length, HORIZON_S), follow) for follow in (False, True))
    assert integrals(followed) == integrals(cut)
    counts = followed.counted
    of_run = metrics.per_job(run).loc[followed.jobs["job_id"]][counts]
    columns = ["jct_s", "queue_s", "slowdown", "rho", "preemptions", "deadline_met", "finished"]
    assert metrics.per_job(followed)[counts][columns].equals(of_run[columns])
    told = ["job_id", "state", "reason", "first_start_s", "end_s"]
    alone = run.jobs.set_index("job_id", drop=False).loc[followed.jobs["job_id"], told].reset_index(drop=True)
    assert followed.jobs[told][counts].equals(alone[counts])
    assert metrics.measures(cut)["jobs_censored"] == cut.info["window"]["jobs_there_at_end"] * (
        not cut.info["window"]["to_the_end"])


@relaxed
@given(seed=st.integers(0, 10_000))
def test_the_whole_window_is_the_run(run_files, seed):
    run = small_run(run_files(f"whole{seed}"), seed).in_memory()
    whole = windowed(run, *run.window_s)
    row, expected = known(metrics.measures(whole)), known(metrics.measures(run))
    assert row == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)
    assert whole.jobs.equals(run.jobs)
    assert metrics.per_job(whole).equals(metrics.per_job(run)) or np.allclose(
        metrics.per_job(whole).drop(columns="deadline_met").to_numpy(float),
        metrics.per_job(run).drop(columns="deadline_met").to_numpy(float), rtol=1e-12, atol=1e-12, equal_nan=True,
    )


@relaxed
@given(seed=st.integers(0, 10_000), shift=st.integers(-100, 100_000))
def test_another_clock_shifts_nothing_else(run_files, seed, shift):
    """The same run, begun at another time, in the same window."""
    here, there = (small_run(run_files(f"shift{seed}at{at}"), seed, at).in_memory() for at in (0, shift))
    assert there.window_s == (here.window_s[0] + shift, here.window_s[1] + shift)
    one, other = windowed(here, 24.5, 33), windowed(there, shift + 24.5, shift + 33)
    row, expected = known(metrics.measures(other)), known(metrics.measures(one))
    assert row == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


@relaxed
@given(seed=st.integers(0, 10_000), begin=st.integers(24, 30), length=st.integers(1, 10))
def test_a_window_shows_the_run_as_it_was(run_files, seed, begin, length):
    """The same GPUs are held, in service and asked for at each instant; who finished has the JCT that they had."""
    run = small_run(run_files(f"shows{seed}"), seed).in_memory()
    part = windowed(run, begin, begin + length)
    for series in (gpus_in_use, capacity, queue_length):
        whole, cut = series(run), series(part)
        for second in np.arange(begin, begin + length) + 0.5:
            states = [s.loc[s["time_s"] <= second].iloc[-1].drop("time_s").tolist() for s in (whole, cut)]
            assert states[0] == states[1], (series.__name__, second)
    everyone = metrics.per_job(run).loc[part.jobs["job_id"]]
    ended = metrics.finished(part)
    assert metrics.jct_s(part)[ended].tolist() == everyone["jct_s"][ended].tolist()
    assert metrics.queue_s(part)[ended] == pytest.approx(everyone["queue_s"][ended].to_numpy(), abs=1e-9)
    assert metrics.rho(part)[ended] == pytest.approx(everyone["rho"][ended].to_numpy(), rel=1e-9, nan_ok=True)
    table, rate = part.segments, part.segments["rate"].to_numpy()
    law = np.maximum(0, table["end_s"] - table["begin_s"] - table["overhead_s"]) * rate
    assert table["work_done"].to_numpy() == pytest.approx(law.to_numpy(), abs=1e-9)
    assert (table["work_lost"] <= table["work_done"] + 1e-9).all()


# -- as users ask for it ------------------------------------------------------------


@pytest.fixture
def day(run_files):
    """Submissions from 1000 s to 11,000 s; the run ends at 11,500 s."""
    run = run_files().node(gpus=2)
    for k in range(11):
        run.job(f"j{k}", 1000 + 1000 * k, 500).segment(f"j{k}", 1000 + 1000 * k, 1500 + 1000 * k, [0])
    return run.load()


@pytest.mark.parametrize(
    ("words", "window"),
    [
        ({"begin": "2500"}, (2500, 11_500)),
        ({"begin": "1h"}, (4600, 11_500)),
        ({"begin": "10%", "end": "60%"}, (2000, 7000)),
        ({"end": "90min"}, (1000, 6400)),
        ({"warmup": "10%"}, (2000, 11_500)),
        ({"warmup": "600", "cooldown": "600 s"}, (1600, 10_400)),
        ({"warmup": ".5h", "cooldown": "20%"}, (2800, 9000)),
        ({}, (1000, 11_500)),
    ],
)
def test_windows_in_words(day, words, window):
    """A plain time is on the trace's clock; a unit counts from the first submission; % are of the submissions' time."""
    assert asked(day, **words).window_s == window


def test_a_run_for_which_no_window_is_asked_is_itself(day):
    assert asked(day) is day


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"begin": "1h", "warmup": "1h"}, "say the same"),
        ({"end": "1h", "cooldown": "1h"}, "say the same"),
        ({"begin": "soon"}, "allowed: a number of seconds"),
        ({"warmup": "10 parsecs"}, "allowed: a number of seconds"),
        ({"end": "1d"}, "within the run, 1000 s to 11500 s"),
        ({"begin": "nan"}, "no such measuring window"),
        ({"warmup": "100%", "cooldown": "100%"}, "no such measuring window"),
    ],
)
def test_words_that_are_no_window(day, words, says):
    with pytest.raises(RunError, match=says):
        asked(day, **words)
