"""The measures of a run by name: by hand, against a twin that looks at each second, and by queueing theory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from analysis.metrics.jobtimes import of_jobs
from analysis.metrics.occupancy import fragmented_gpu_s, free_gpu_s, node_states, partly_free_gpu_s, stranded_gpu_s
from analysis.metrics.series import queue_length
from analysis.run import Run
from tests.analysis.smallruns import HORIZON_S, free_at, small_run, waits_at
from tests.conftest import ONE_FOLDER

relaxed = settings(
    max_examples=30, suppress_health_check=ONE_FOLDER
)


def test_measures_are_those_that_are_defined_in_order_and_are_json(story):
    row = metrics.measures(story.load())
    assert list(row) == list(metrics.MEASURES)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    for name, measure in metrics.MEASURES.items():
        assert measure.meaning
        assert measure.formula
        unit = {"s": "_s", "GPU-h": "_gpu_h", "USD": "_usd", "kWh": "_kwh", "share": "_share", "": ""}[measure.unit]
        assert name.endswith(unit), name


def test_how_jobs_ended_is_told_apart(story):
    """Of seven jobs three are done and one was killed; all four finished."""
    run = story.load()
    row = metrics.measures(run)
    states = ("jobs", "jobs_finished", "jobs_done", "jobs_killed", "jobs_failed", "jobs_rejected", "jobs_unfinished")
    assert [row[name] for name in states] == [7, 4, 3, 1, 0, 1, 2]
    assert metrics.summary(run)["jobs_finished"] == 4


def test_the_story_in_measures(story):
    row = metrics.measures(story.load())
    assert (row["jct_mean_s"], row["jct_p50_s"], row["queue_mean_s"], row["window_s"]) == (48.75, 28.5, 8.25, 140)
    assert row["jct_p99_s"] == pytest.approx(37 + 91 * 0.97)  # linear between the two largest
    assert row["jct_p999_s"] == pytest.approx(37 + 91 * 0.997)
    assert row["slowdown_mean"] == pytest.approx((1 + 1 + 37 / 20 + 1.28) / 4)
    assert row["held_gpu_h"] == pytest.approx(171 / 3600)
    # c restarts for 2 s on half a GPU, e loses 10 s of work on one.
    assert row["wasted_overhead_gpu_h"] == pytest.approx(1 / 3600)
    assert row["wasted_lost_gpu_h"] == pytest.approx(10 / 3600)
    assert row["goodput_share"] == pytest.approx(160 / 171)
    assert row["wasted_share"] == pytest.approx(11 / 171)
    assert row["unsuccessful_gpu_h"] == pytest.approx(11 / 3600)  # c was killed; it held half a GPU for 22 s
    assert (row["preemptions"], row["moves"], row["node_failures"]) == (1, 0, 1)


def test_what_has_no_value_is_none(run_files):
    row = metrics.measures(run_files().node(price=None).job("a", 0, 1, 9, state="rejected", reason="large").load())
    assert (row["jobs"], row["jobs_rejected"], row["held_gpu_h"], row["deadline_jobs"]) == (1, 1, 0, 0)
    for name in ("jct_mean_s", "rho_worst", "unfair_share", "goodput_share", "utilisation_share", "jain_speed",
                 "deadline_met_share", "lateness_mean_s", "offered_load", "makespan_s", "jct_weighted_s"):
        assert row[name] is None, name


# -- lost work ------------------------------------------------------------


def test_a_failure_takes_back_work_of_earlier_segments(run_files):
    """Preempted after 10 s with its work kept, then a node fails after 10 s more and 15 s of work are lost."""
    run = run_files().node(gpus=2).job("a", 0, 20, 2)
    run.segment("a", 0, 10, [0, 1], end_reason="preempted")
    run.segment("a", 10, 20, [0, 1], work_lost=15, end_reason="node_failed")
    run.segment("a", 20, 37, [0, 1], overhead_s=2)
    spent = metrics.work(run.load())
    assert spent.lasting_s.tolist() == [5, 0, 15]
    assert spent.lost_s.tolist() == [5, 10, 0]
    assert spent.overhead_s.tolist() == [0, 0, 2]
    assert metrics.wasted_gpu_s(run.load()) == {"overhead": 4, "lost": 30}


def test_lost_work_takes_the_time_in_which_it_was_done(run_files):
    """20 units of work at 2 a second are 10 s; at its end all of them are lost."""
    run = run_files().node().job("a", 0, 30).segment("a", 0, 10, [0], work_lost=20, end_reason="node_failed")
    run.segments[0] |= {"rate": 2.0, "work_done": 20.0}
    run.segment("a", 10, 40, [0])
    assert metrics.work(run.load()).lost_s.tolist() == [10, 0]


def test_an_attempt_that_failed_in_the_trace_is_no_waste_but_its_restart_is(run_files):
    """The recorded run time of 40 s is that of both attempts: the first did its part of the work."""
    run = run_files().node().job("a", 0, 40).segment("a", 0, 10, [0], end_reason="failed")
    run.segment("a", 10, 43, [0], overhead_s=3)
    assert metrics.wasted_gpu_s(run.load()) == {"overhead": 3, "lost": 0}


def test_the_modelled_load_is_the_load_asked_for(tmp_path):
    """Work in iterations: recorded durations on old GPUs say 0.6 where 1.5 was asked for, and run.json tells why."""
    from analysis.tables import notices
    from sim.settings.config import load_config
    from sim.sweeps.replay import Replay

    def played(work):
        asked = {"policy": "fifo", "trace": "philly", "jobs": 60, "cluster": "k80:10x8", "load": 1.5, "work": work,
                 "calibration": "tuned", "load_by": "compress"}
        result = Replay(load_config(None, asked)).play()
        return Run(tmp_path, result.tables, result.info, result.timing)

    run = played("iterations")
    row = metrics.measures(run)
    assert row["jobs_rejected"] == 0
    assert row["modelled_load"] == pytest.approx(1.5, rel=1e-9)
    assert row["offered_load_span"] == pytest.approx(1.5 * run.info["work"]["worth_gpus"] / 80, rel=1e-9)
    assert row["offered_load_span"] < 1
    assert any(text.startswith("Modelled load is 1.50, above 1") for text in notices(run))
    recorded = metrics.measures(played("recorded"))
    assert (recorded["modelled_load"], recorded["offered_load_span"]) == (None, pytest.approx(1.5, rel=1e-9))


def test_the_engine_s_replay_of_attempts_and_failures_is_accounted_for(tmp_path):
    """What the engine writes: overheads and work lost to failing nodes are the waste, attempts are not."""
    from sim.settings.config import load_config
    from sim.sweeps.replay import Replay

    settings_ = {"policy": "srtf", "trace": "philly", "jobs": 150, "work": "recorded", "cluster": "v100:4x4",
                 "engine.mtbf_h": 200.0, "engine.checkpoint_interval_s": 3600.0}
    result = Replay(load_config(None, settings_)).play()
    run = Run(tmp_path, result.tables, result.info, result.timing)
    spent, wasted = metrics.work(run), metrics.wasted_gpu_s(run)
    assert (run.segments["end_reason"] == "node_failed").any()
    assert wasted["overhead"] > 0 < wasted["lost"]
    done = metrics.finished(run)
    lasting = of_jobs(run, spent.lasting_s * run.segments["rate"].to_numpy())
    assert lasting[done] == pytest.approx(run.jobs["work_total"][done].to_numpy(), rel=1e-9)


def test_overhead_longer_than_the_segment_is_the_segment(run_files):
    run = run_files().node().job("a", 0, 5).segment("a", 0, 3, [0], overhead_s=60, end_reason="preempted")
    run.segment("a", 3, 8, [0])
    assert metrics.wasted_gpu_s(run.load()) == {"overhead": 3, "lost": 0}


@relaxed
@given(seed=st.integers(0, 10_000))
def test_lasting_work_is_what_the_job_has_in_the_end(run_files, seed):
    """Lasting work at each segment's rate adds up to ``sum(work_done - work_lost)``; the parts to the time held."""
    run = small_run(run_files(f"lost{seed}"), seed).in_memory()
    spent, length = metrics.work(run), (run.segments["end_s"] - run.segments["begin_s"]).to_numpy()
    assert spent.overhead_s + spent.lost_s + spent.lasting_s == pytest.approx(length, abs=1e-9)
    assert all((part >= -1e-9).all() for part in (spent.overhead_s, spent.lost_s, spent.lasting_s))
    kept = of_jobs(run, spent.lasting_s * run.column("segments", "rate"))
    net = of_jobs(run, run.column("segments", "work_done") - run.column("segments", "work_lost"))
    assert kept == pytest.approx(net, abs=1e-9)


# -- what is free, and of no use -----------------------------------------------------------


def test_free_gpus_of_no_use(run_files):
    """Two nodes of two GPUs, one GPU of each held: no node has two free for b, though the cluster does."""
    run = run_files().node(gpus=2).node(gpus=2)
    run.job("a", 0, 10).job("c", 0, 10).job("b", 0, 10, 2, state="unfinished", reason="waits")
    run.segment("a", 0, 10, [0]).segment("c", 0, 10, [2])
    run = run.load()
    assert free_gpu_s(run).tolist() == [10, 10]
    assert partly_free_gpu_s(run).tolist() == [10, 10]
    # One job in three asks for two GPUs of a node, and each node has one free.
    assert fragmented_gpu_s(run) == pytest.approx([10 / 3, 10 / 3])
    assert stranded_gpu_s(run) == {"V100": 20}
    row = metrics.measures(run)
    assert (row["partly_free_share"], row["stranded_share"]) == (1, 1)
    assert row["fragmented_share"] == pytest.approx(1 / 3)


def test_nobody_is_stranded_where_a_node_has_room_or_too_little_is_free(run_files):
    run = run_files().node(gpus=2).node(gpus=2).job("a", 0, 10).job("b", 0, 10, 2, state="unfinished", reason="x")
    assert stranded_gpu_s(run.segment("a", 0, 10, [0]).load()) == {"V100": 0}
    run = run_files("full").node(gpus=2).job("a", 0, 10).job("b", 0, 10, 2, state="unfinished", reason="x")
    assert stranded_gpu_s(run.segment("a", 0, 10, [0]).load()) == {"V100": 0}


def test_a_share_of_a_gpu_fragments_it(run_files):
    """0.7 of a GPU is held: the 0.3 left are of no use to a job of 0.5, but to one of 0.2."""
    run = run_files().node(gpus=1).job("a", 0, 10, gpu_milli=700).segment("a", 0, 10, [0])
    run.job("b", 10, 10, gpu_milli=500, state="unfinished", reason="x")
    run.job("c", 10, 10, gpu_milli=200, state="unfinished", reason="x")
    run = run.load()
    # To two of three jobs (0.7 and 0.5) the 0.3 GPU free for 10 s are of no use.
    assert fragmented_gpu_s(run) == pytest.approx([2 / 3 * 0.3 * 10])


@relaxed
@given(seed=st.integers(0, 10_000))
def test_free_and_fragmented_time_as_a_look_at_each_second_has_it(run_files, seed):
    files = small_run(run_files(f"frag{seed}"), seed)
    run = files.load()
    begin = int(run.window_s[0])
    asking = [j for j in files.jobs if j["state"] != "rejected"]
    free, partly, fragments = np.zeros((3, len(files.nodes)))
    stranded = dict.fromkeys(run.types, 0.0)
    for second in range(begin, HORIZON_S):
        now, waits = free_at(files, second), waits_at(files, second)
        up = {t: [] for t in run.types}
        for node in files.nodes:
            gpus = now[node["first_gpu"] : node["first_gpu"] + node["gpus"]]
            if gpus[0] < 0:
                continue
            i, kind, total = node["node"], node["gpu_type"], gpus.sum() / 1000
            up[kind].append(int((gpus == 1000).sum()))
            free[i] += total
            partly[i] += total if (gpus < 1000).any() else 0
            able = [j for j in asking if not j["gpu_type"] or kind in j["gpu_type"]]
            for j in able:
                fits = gpus >= j["gpu_milli"]
                lost = gpus[~fits].sum() / 1000 if fits.sum() >= min(j["num_gpus"], node["gpus"]) else total
                fragments[i] += lost / len(able)
        for kind, whole in up.items():
            largest = max(n["gpus"] for n in files.nodes if n["gpu_type"] == kind)
            if any(j["gpu_milli"] == 1000 and (not j["gpu_type"] or kind in j["gpu_type"])
                   and max(whole, default=0) < j["num_gpus"] <= min(largest, sum(whole)) for j in waits):
                stranded[kind] += sum(whole)
    assert free_gpu_s(run) == pytest.approx(free, abs=1e-9)
    assert free_gpu_s(run) == pytest.approx(metrics.capacity_gpu_s(run) - metrics.held_gpu_s(run), abs=1e-9)
    assert partly_free_gpu_s(run) == pytest.approx(partly, abs=1e-9)
    assert fragmented_gpu_s(run) == pytest.approx(fragments, abs=1e-9)
    assert stranded_gpu_s(run) == pytest.approx(stranded, abs=1e-9)


# -- deadlines and weights ------------------------------------------------------------


def test_deadlines(run_files):
    """Met by ending in time, whatever the trace calls the end; missed by being late, rejected, or there past it."""
    run = run_files().node(gpus=8)
    ends = {"in time": (90, "done"), "to the second": (100, "done"), "killed": (50, "killed"), "late": (110, "done")}
    for gpu, (name, (end, state)) in enumerate(ends.items()):
        run.job(name, 0, end, state=state).segment(name, 0, end, [gpu])
    run.job("no deadline", 0, 10).segment("no deadline", 0, 10, [4])
    run.job("refused", 0, 10, state="rejected").job("waits", 0, 10, state="unfinished")
    run.job("has time", 0, 10, state="unfinished")
    for job in run.jobs:
        job["deadline_s"] = {"no deadline": None, "has time": 500.0}.get(job["job_id"], 100.0)
    run = run.load()
    met = metrics.per_job(run)["deadline_met"]
    assert met.astype(object).where(met.notna(), None).to_dict() == {
        "in time": True, "to the second": True, "killed": True, "late": False, "no deadline": None, "refused": False,
        "waits": False, "has time": None,
    }
    row = metrics.measures(run)
    assert (row["deadline_jobs"], row["deadline_met_share"]) == (6, 0.5)
    assert row["lateness_mean_s"] == (-10 + 0 - 50 + 10) / 4
    assert row["tardiness_mean_s"] == 2.5


def test_jct_weighted_by_priority(run_files):
    run = run_files().node(gpus=2).job("a", 0, 10).job("b", 0, 40).segment("a", 0, 10, [0]).segment("b", 0, 40, [1])
    run.of("a")["priority"], run.of("b")["priority"] = 3.0, 1.0
    assert metrics.measures(run.load())["jct_weighted_s"] == 17.5


# -- tables ------------------------------------------------------------


def test_per_job_is_in_the_order_of_the_jobs_and_adds_up(story):
    run = story.load()
    job = metrics.per_job(run)
    assert job.index.tolist() == ["a", "b", "c", "d", "e", "f", "g"]
    assert list(job.columns) == [
        "jct_s", "queue_s", "slowdown", "bounded_slowdown", "rho", "gpu_s", "wasted_gpu_s", "cost_usd", "energy_kwh",
        "preemptions", "deadline_met", "finished",
    ]
    assert job["gpu_s"].tolist() == [20, 10, 11, 0, 110, 20, 0]
    assert job["wasted_gpu_s"].tolist() == [0, 0, 1, 0, 10, 0, 0]
    assert job["cost_usd"].sum() == pytest.approx(metrics.cost_usd(run))
    assert job["preemptions"].to_dict() == {"a": 0, "b": 0, "c": 1, "d": 0, "e": 0, "f": 0, "g": 0}
    assert job.loc[["d", "f", "g"], "jct_s"].isna().all()
    assert job.loc["a", "energy_kwh"] != job.loc["a", "energy_kwh"]  # no power is known
    assert job.loc["d", "energy_kwh"] == 0  # it held nothing


def test_by_type_has_a_row_a_type(story):
    table = metrics.by_type(story.load())
    assert table.index.tolist() == ["V100", "T4"]
    assert table["gpus"].tolist() == [2, 2]
    assert table["utilisation_share"].tolist() == [130 / 260, 41 / 280]
    assert table["cost_usd"].tolist() == pytest.approx([130 * 2 / 3600, 41 / 3600])


def test_p62_only_groups_that_are_there(run_files):
    """Two of six combinations are present: two rows, of users as of virtual clusters, and no empty group."""
    run = run_files().node(gpus=2)
    run.job("a", 0, 1, vc="x", user="ann").job("b", 0, 1, vc="y", user="bob")
    run.segment("a", 0, 1, [0]).segment("b", 0, 1, [1])
    loaded = run.load()
    assert sorted(metrics.by_group(loaded, "vc").index) == ["x", "y"]
    assert sorted(metrics.by_group(loaded, "user").index) == ["ann", "bob"]


def test_groups_with_an_unknown_price_have_no_cost(run_files):
    run = run_files().node("V100", 1, None).node("T4", 1, 3.6)
    run.job("a", 0, 1000, user="ann").job("b", 0, 1000, user="bob")
    run.segment("a", 0, 1000, [0]).segment("b", 0, 1000, [1])
    cost = metrics.by_group(run.load(), "user")["cost_usd"]
    assert np.isnan(cost["ann"])
    assert cost["bob"] == pytest.approx(1.0)


# -- theory ------------------------------------------------------------


def test_little_law_and_the_mean_wait_of_an_m_m_1_queue(run_files):
    """One GPU, Poisson arrivals, exponential run times, load 1/2: the mean wait is one mean run time.

    Over n jobs it has a standard error of sqrt(29 / n) (asymptotic variance r (2 + 5 r - 4 r^2 + r^3) / (1 - r)^4 at
    load r: Daley, "The serial correlation coefficients of waiting times", 1968); three of them are allowed.
    Little: the mean number waiting is the arrival rate times the mean wait, exactly, over a run that ends empty.
    """
    rng = np.random.default_rng([3, 0])
    submit = np.cumsum(rng.exponential(2.0, 20_000))
    length = rng.exponential(1.0, 20_000)
    run, free = run_files().node(gpus=1), 0.0
    for i, (at, needs) in enumerate(zip(submit.tolist(), length.tolist(), strict=True)):
        begin = max(at, free)
        free = begin + needs
        run.jobs.append({"job_id": f"j{i}", "user": "", "vc": "", "submit_s": at, "first_start_s": begin, "end_s": free,
                         "num_gpus": 1, "gpu_milli": 1000, "gpu_type": "", "model": "", "batch_size": 0,
                         "duration_s": needs, "work_total": needs, "state": "done", "reason": ""})
        run.segments.append({"job_id": f"j{i}", "begin_s": begin, "end_s": free, "nodes": [0], "gpus": [1.0],
                             "gpu_ids": [0], "gpu_milli": 1000, "overhead_s": 0.0, "rate": 1.0, "work_done": needs,
                             "work_lost": 0.0, "end_reason": "done"})
    loaded = run.load()
    row, queue = metrics.measures(loaded), queue_length(loaded)
    assert row["queue_mean_s"] == pytest.approx(1.0, abs=3 * (29 / 20_000) ** 0.5)
    assert row["utilisation_share"] == pytest.approx(0.5, rel=0.03)
    assert row["offered_load"] == pytest.approx(0.5, rel=0.03)
    waiting = (queue["all"].to_numpy()[:-1] * np.diff(queue["time_s"])).sum() / row["window_s"]
    assert waiting == pytest.approx(20_000 / row["window_s"] * row["queue_mean_s"], rel=1e-9)


def test_what_is_asked_of_a_run_twice_is_worked_out_once_and_cannot_be_spoilt(story):
    run = story.load()
    assert node_states(run) is node_states(run)
    assert node_states(run) is not node_states(story.load())
    asked = metrics.per_job(run)
    before = asked["jct_s"].tolist()
    asked["jct_s"] = 0.0
    asked["mine"] = 1
    assert (metrics.per_job(run)["jct_s"].dropna().tolist(), "mine" in metrics.per_job(run)) == (
        [one for one in before if not np.isnan(one)], False)
    assert metrics.per_job(run, "max")["rho"].tolist() != metrics.per_job(run, "mean")["rho"].tolist()


def test_summary_says_what_the_measures_say(story):
    run = story.load()
    row, summary = metrics.measures(run), metrics.summary(run)
    shared = [name for name in summary if name in row]
    assert len(shared) == 11
    assert [summary[name] for name in shared] == [row[name] for name in shared]
    assert summary["gpu_hours"] == pytest.approx(row["held_gpu_h"])
    assert summary["utilisation"]["all"] == row["utilisation_share"]


def test_a_column_is_called_as_the_measure_that_it_is(story):
    """Slowdown is JCT / duration, bounded slowdown is bounded, in every table."""
    run = story.load()
    job, group = metrics.per_job(run), metrics.by_group(run, "user")
    assert metrics.slowdown(run).tolist() == pytest.approx(job["slowdown"].tolist(), nan_ok=True)
    assert metrics.bounded_slowdown(run).tolist() == pytest.approx(job["bounded_slowdown"].tolist(), nan_ok=True)
    mine = (run.jobs["user"] == "bob").to_numpy()
    assert group.loc["bob", "bounded_slowdown_mean"] == pytest.approx(job["bounded_slowdown"][mine].mean())
    for table in (group, metrics.by_type(run)):
        assert set(table.columns) <= {*metrics.MEASURES, "gpus"}


def test_the_page_of_metrics_names_all_that_the_module_exports():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    assert [name for name in metrics.__all__ if not re.search(rf"`{name}[`(]", page)] == []


def test_each_measure_has_a_short_name_of_its_own():
    names = [measure.name for measure in metrics.MEASURES.values()]
    assert len(set(names)) == len(names)
    assert all(name and len(name) <= 40 and not name.endswith(("_", " ")) for name in names)
    labels = {"jct_mean_s": "mean JCT (s)", "makespan_s": "makespan (s)", "utilisation_share": "utilisation",
              "offered_load": "recorded load to the end"}
    assert {key: metrics.MEASURES[key].label for key in labels} == labels


def test_the_page_of_metrics_has_the_table_of_measures():
    from analysis.metrics.measures import markdown

    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    assert markdown() in page, "python -m analysis.metrics.measures"
