"""Metrics by hand on a small run, and by law on random ones."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from analysis.metrics.jobtimes import of_jobs
from analysis.metrics.offered import offered_load
from analysis.metrics.series import averages, capacity, gpus_in_use, queue_length, steps
from analysis.run import load_run
from tests.conftest import ONE_FOLDER

SUMMARY_KEYS = [
    "jobs_finished",
    "jobs_rejected",
    "jobs_refused",
    "jobs_unfinished",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p99_s",
    "queue_mean_s",
    "makespan_s",
    "utilisation",
    "gpu_hours",
    "cost_usd",
    "preemptions",
    "wall_s",
    "peak_mib",
    "run_dir",
]
relaxed = settings(
    max_examples=20, suppress_health_check=ONE_FOLDER
)


def test_the_story_in_numbers(story):
    """Jobs a, b, c, e have JCT 10, 20, 37, 128 s; c waits 15 s after its preemption, e 8 s and then 10 s."""
    run = story.load()
    assert metrics.jct_s(run)[metrics.finished(run)].tolist() == [10, 20, 37, 128]
    assert metrics.queue_s(run)[metrics.finished(run)].tolist() == [0, 0, 15, 18]
    assert metrics.held_gpu_s(run).tolist() == [20 + 40 + 70, 0.5 * (20 + 4 + 18) + 20]
    assert metrics.capacity_gpu_s(run).tolist() == [2 * 130, 2 * 140]
    assert metrics.utilisation(run) == {"all": 171 / 540, "V100": 130 / 260, "T4": 41 / 280}
    assert metrics.gpu_hours(run) == {"V100": 130 / 3600, "T4": 41 / 3600}
    assert metrics.cost_usd(run) == pytest.approx((130 * 2 + 41) / 3600, rel=1e-12)
    assert metrics.end_reasons(run) == {"done": 4, "horizon": 1, "node_failed": 1, "preempted": 1}
    assert metrics.preemptions(run) == 1
    assert metrics.makespan_s(run) == 140
    # Bounded by 10 s: 10/10, 20/20, 37/20, 128/100.
    assert metrics.bounded_slowdown(run)[metrics.finished(run)].tolist() == [1, 1, 1.85, 1.28]


def test_summary_has_its_keys_in_order_and_is_json(story):
    run = story.load()
    summary = metrics.summary(run)
    assert list(summary) == SUMMARY_KEYS
    assert (summary["jobs_finished"], summary["jobs_rejected"], summary["jobs_unfinished"]) == (4, 1, 2)
    assert (summary["jct_mean_s"], summary["jct_p50_s"], summary["queue_mean_s"]) == (48.75, 28.5, 8.25)
    assert (summary["wall_s"], summary["peak_mib"], summary["run_dir"]) == (0.5, 100.0, str(run.path))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_what_has_no_value_is_none_not_nan(run_files):
    run = run_files().node(price=None).job("a", 0, 1, 9, state="rejected", reason="too large")
    run.timing = None
    summary = metrics.summary(run.load())
    assert summary["jobs_rejected"] == 1
    for key in ("jct_mean_s", "jct_p50_s", "jct_p99_s", "queue_mean_s", "makespan_s", "wall_s", "peak_mib"):
        assert summary[key] is None
    assert summary["utilisation"] == {"all": None, "V100": None}  # a window of no length offers nothing
    assert summary["cost_usd"] == 0  # no GPU time was held, so nothing of unknown price was
    json.dumps(summary, allow_nan=False)


def test_an_unknown_price_makes_the_cost_unknown_but_keeps_its_known_part(run_files):
    run = run_files().node("V100", 1, 3.6).node("T4", 1, None)
    run.job("a", 0, 1000).job("b", 0, 1000).segment("a", 0, 1000, [0]).segment("b", 0, 1000, [1])
    loaded = run.load()
    assert metrics.cost_usd(loaded) is None
    assert metrics.cost_known_usd(loaded) == pytest.approx(1.0, rel=1e-12)
    # Where only the priced type was used, the cost is known.
    run = (
        run_files("priced")
        .node("V100", 1, 3.6)
        .node("T4", 1, None)
        .job("a", 0, 1000)
        .segment("a", 0, 1000, [0])
    )
    assert metrics.cost_usd(run.load()) == pytest.approx(1.0, rel=1e-12)


def test_a_node_price_counts_each_gpu_once(run_files):
    """Eight GPUs of 2 USD an hour, held for an hour, cost 16 USD."""
    run = run_files().node("V100", 8, 2.0).job("a", 0, 3600, 8).segment("a", 0, 3600, list(range(8)))
    assert metrics.cost_usd(run.load()) == 16.0


def test_jobs_that_ended_badly_count_as_done_with_their_recorded_time(run_files):
    run = run_files().node().job("k", 0, 5, state="killed").job("f", 0, 7, state="failed")
    run.segment("k", 0, 5, [0]).segment("f", 0, 7, [1])
    summary = metrics.summary(run.load())
    assert (summary["jobs_finished"], summary["jct_mean_s"]) == (2, 6.0)


def test_jain_index():
    assert metrics.jain_index(np.array([3.0, 3.0, 3.0])) == 1.0
    assert metrics.jain_index(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert metrics.jain_index(np.array([1.0, 2.0, np.nan])) == 0.9
    assert metrics.jain_index(np.array([1e200, 1e200])) == 1.0
    assert metrics.jain_index(np.array([0.0, 0.0])) is None
    assert metrics.jain_index(np.array([])) is None


def test_group_tables_count_every_job(story):
    run = story.load()
    by_vc = metrics.by_group(run, "vc")
    assert by_vc["jobs"].to_dict() == {"y": 2, "x": 2, "": 3}
    assert by_vc["jobs_finished"].to_dict() == {"y": 2, "x": 2, "": 0}
    assert by_vc.loc["x", "jct_mean_s"] == 15
    assert by_vc.loc["y", "held_gpu_h"] == pytest.approx((110 + 11) / 3600, rel=1e-12)
    by_user = metrics.by_group(run, "user")
    assert by_user["jobs"].sum() == 7
    assert by_user.loc["bob", "queue_mean_s"] == 7.5
    assert by_user["held_gpu_h"].sum() == pytest.approx(sum(metrics.gpu_hours(run).values()), rel=1e-12)


# -- offered load ------------------------------------------------------------


def test_offered_load_backlog_and_drain_of_three_jobs_on_two_gpus(run_files):
    """Three 1-GPU jobs of 100 s at once, two A10: load 1.5 over 100 s, full until then, drained at 200 s."""
    run = run_files().node("A10", 2)
    for name, begin, gpu in (("a", 0, 0), ("b", 0, 1), ("c", 100, 0)):
        run.job(name, 0, 100).segment(name, begin, begin + 100, [gpu])
    loaded = run.load()
    load = offered_load(loaded).loc["A10"]
    assert (load["load"], load["window_s"], load["drain_s"]) == (1.5, 100.0, 100.0)
    assert load["backlog_gpu_h"] == pytest.approx(100 / 3600, rel=1e-12)
    assert offered_load(loaded).loc["all"].to_dict() == load.to_dict()
    used = gpus_in_use(loaded)
    assert used["time_s"].tolist() == [0, 100, 200]
    assert used["all"].tolist() == [2, 1, 0]


def test_backlog_is_work_not_done_however_long_gpus_were_held(run_files):
    """Two jobs of 100 s at once on one GPU of half the speed: a has done half by 100 s, b nothing."""
    run = run_files().node("K80", 1).job("a", 0, 100).job("b", 0, 100)
    run.segment("a", 0, 200, [0]).segment("b", 200, 400, [0])
    for segment in run.segments:
        segment |= {"rate": 0.5, "work_done": 100.0}
    assert offered_load(run.load()).loc["all", "backlog_gpu_h"] == pytest.approx(150 / 3600, rel=1e-12)


def test_a_fast_job_makes_up_for_no_job_that_waits(run_files):
    """One GPU, jobs of 300 s and 20 s at once, a at double speed: by 160 s it has done 140 s more than was due, b 10 s
    less."""
    run = run_files().node("A100", 1).job("a", 0, 300).job("b", 0, 20).segment("a", 0, 150, [0])
    run.segments[0] |= {"rate": 2.0, "work_done": 300.0}
    load = offered_load(run.segment("b", 150, 170, [0]).load()).loc["all"]
    assert (load["window_s"], load["drain_s"]) == (160, 10)
    assert load["backlog_gpu_h"] == pytest.approx(10 / 3600, rel=1e-12)


def test_work_lost_by_then_is_not_done_and_work_lost_later_is(run_files):
    """a of 100 s loses all at 40 s and, from 90 s on, at 120 s all again; by 100 s it had done 10 s of work."""
    run = run_files().node("A10", 1).job("a", 0, 100).segment("a", 0, 40, [0], work_lost=40, end_reason="node_failed")
    run.segment("a", 90, 120, [0], work_lost=30, end_reason="node_failed").segment("a", 120, 220, [0])
    assert offered_load(run.load()).loc["all", "backlog_gpu_h"] == pytest.approx(90 / 3600, rel=1e-12)


def test_jobs_that_fit_all_at_once_are_no_overload(run_files):
    run = run_files().node(gpus=4).job("a", 0, 10, 3).job("b", 0, 500)
    run.segment("a", 0, 10, [0, 1, 2]).segment("b", 0, 500, [3])
    load = offered_load(run.load()).loc["V100"]
    assert (load["load"], load["backlog_gpu_h"], load["drain_s"] > 0) == (1.0, 0.0, True)


def test_jobs_of_any_type_go_where_the_load_is_least(run_files):
    """V100 jobs ask for 300 GPU-s; the 500 GPU-s that may go anywhere level both types at 400."""
    run = run_files().node("V100", 1).node("T4", 1)
    run.job("v", 0, 300, gpu_type="V100", state="unfinished", reason="horizon")
    run.job("any", 0, 500, state="unfinished", reason="horizon").job("last", 1000, 0).segment(
        "last", 1000, 1000, [0]
    )
    load = offered_load(run.load())
    # window = 1000 s between submits + D / G, D = 400; of the 2 GPUs that may be anywhere a fifth is V100:
    # G = 1 + 0.4 (V100), 1.6 (T4)
    assert load.loc["V100", "load"] == pytest.approx(400 / (1000 + 400 / 1.4), rel=1e-9)
    assert load.loc["T4", "load"] == pytest.approx(400 / (1000 + 400 / 1.6), rel=1e-9)


def test_a_type_that_nobody_asks_for_has_no_load(run_files):
    run = run_files().node("V100", 1).node("T4", 1).job("a", 0, 9, gpu_type="v100").segment("a", 0, 9, [0])
    load = offered_load(run.load())
    assert load.loc["T4", "load"] is None
    assert load.loc["V100", "load"] == 1.0


# -- time series ------------------------------------------------------------


def test_one_state_for_each_instant(run_files):
    """Three events at 5 s (an end and two begins) give one state; the integral is the GPU time held."""
    run = run_files().node(gpus=2)
    run.job("a", 0, 5, 2).job("b", 0, 5).job("c", 5, 1).segment("a", 0, 5, [0, 1]).segment(
        "b", 5, 10, [0]
    ).segment("c", 5, 6, [1])
    loaded = run.load()
    used, queue = gpus_in_use(loaded), queue_length(loaded)
    assert used["time_s"].tolist() == [0, 5, 6, 10]
    assert used["all"].tolist() == [2, 2, 1, 0]
    assert float((used["all"][:-1] * np.diff(used["time_s"])).sum()) == metrics.held_gpu_s(loaded).sum() == 16
    assert queue["time_s"].tolist() == [0, 5, 6, 10]
    assert queue["all"].tolist() == [1, 0, 0, 0]


def test_series_of_the_story_by_type(story):
    run = story.load()
    there = capacity(run)
    assert there[["time_s", "V100", "T4"]].to_numpy().tolist() == [[0, 2, 2], [50, 0, 2], [60, 2, 2]]
    used = gpus_in_use(run, by_type=True).set_index("time_s")
    assert used.loc[1.0].to_dict() == {"V100": 2.0, "T4": 1.0}
    assert used.loc[50.0, "V100"] == 0
    queue = queue_length(run, by_type=True).set_index("time_s")
    assert list(queue.columns) == ["V100", "any"]
    assert queue.loc[2.0].to_dict() == {"V100": 1, "any": 0}  # e waits for a
    assert queue.loc[5.0].to_dict() == {"V100": 1, "any": 1}  # and c, preempted
    assert queue.loc[50.0, "V100"] == 1  # e, after the failure
    assert queue.iloc[-1].to_dict() == {"V100": 0, "any": 1}  # g; f was cut off while it ran


@relaxed
@given(seed=st.integers(0, 10_000))
def test_laws_of_random_runs(many_jobs, seed):
    """Integrals equal sums: GPUs in use to GPU time held, queue length to time waited (Little's law)."""
    run = many_jobs(60, seed, nodes=2, name=f"law{seed}").load()
    for by_type, expected in ((False, metrics.held_gpu_s(run).sum()), (True, metrics.held_gpu_s(run).sum())):
        used = gpus_in_use(run, by_type)
        assert (np.diff(used["time_s"]) > 0).all()
        states = used.drop(columns="time_s").to_numpy()
        assert states.min() >= 0
        assert (states[-1] == 0).all()
        area = (states[:-1].sum(axis=1) * np.diff(used["time_s"])).sum()
        assert area == pytest.approx(expected, rel=1e-9)
    queue = queue_length(run)
    assert (np.diff(queue["time_s"]) > 0).all()
    assert queue["all"].min() >= 0
    waited = (queue["all"].to_numpy()[:-1] * np.diff(queue["time_s"])).sum()
    assert waited == pytest.approx(np.nansum(metrics.queue_s(run)), rel=1e-9, abs=1e-6)
    held_s = run.column("segments", "end_s") - run.column("segments", "begin_s")
    assert metrics.jct_s(run) == pytest.approx(metrics.queue_s(run) + of_jobs(run, held_s), rel=1e-9)
    assert (metrics.queue_s(run) >= 0).all()
    assert metrics.utilisation(run)["all"] <= 1
    wait_free = run.jobs["first_start_s"] == run.jobs["submit_s"]
    assert (metrics.queue_s(run)[wait_free] == 0).all()


@relaxed
@given(
    times=st.lists(st.integers(0, 50), min_size=1, max_size=30),
    cuts=st.lists(st.integers(-5, 60), min_size=2, max_size=6, unique=True),
)
def test_bin_means_keep_the_integral(times, cuts):
    """Against a twin that adds up second by second (all times are whole seconds)."""
    changes = np.arange(1, len(times) + 1)[:, None]
    time_s, state = steps(np.array(times, dtype=float), changes)
    edges = np.array(sorted(cuts), dtype=float)
    at = {second: sum(i + 1 for i, t in enumerate(times) if t <= second) for second in range(-5, 61)}
    expected = [np.mean([at[s] for s in range(int(a), int(b))]) for a, b in pairwise(edges)]
    assert averages(time_s, state[:, 0].astype(float), edges) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_eighty_thousand_jobs(big_run):
    run = load_run(big_run)
    used, queue = gpus_in_use(run, by_type=True), queue_length(run, by_type=True)
    assert len(used) == len(np.unique(np.concatenate((run.segments["begin_s"], run.segments["end_s"]))))
    assert queue["any"].iloc[-1] == 0
