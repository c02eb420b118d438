"""`hetsim run`: what it prints, writes and says, on runs that can be checked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

KEYS = [
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


def info(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text("utf-8"))


def test_json_is_one_object_with_numbers_that_a_pencil_finds(replay, here):
    # Two GPUs, FIFO: a runs 0-100, b (two GPUs) 100-150, c 150-180, behind b though a GPU was free.
    said = replay("--json", "--out", "out")
    assert said.code == 0
    assert said.out.count("\n") == 1
    result = json.loads(said.out)
    assert list(result) == KEYS
    assert (result["jobs_finished"], result["jobs_rejected"], result["jobs_unfinished"]) == (3, 0, 0)
    assert result["jct_mean_s"] == pytest.approx((100 + 140 + 160) / 3)
    assert (result["jct_p50_s"], result["jct_p99_s"]) == pytest.approx((140, 140 + 0.98 * 20))
    assert result["queue_mean_s"] == pytest.approx((0 + 90 + 130) / 3)
    assert result["makespan_s"] == 180
    assert result["gpu_hours"] == pytest.approx((100 + 2 * 50 + 30) / 3600)
    assert result["utilisation"]["all"] == pytest.approx(230 / (2 * 180))
    assert result["cost_usd"] == pytest.approx(3.06 * 230 / 3600)
    assert result["preemptions"] == 0
    assert result["run_dir"] == "out"
    assert sorted(file.name for file in (here / "out").iterdir()) == [
        "decisions.parquet",
        "jobs.parquet",
        "nodes.parquet",
        "plans.parquet",
        "run.json",
        "segments.parquet",
        "timing.json",
    ]


def test_the_table_says_the_rule_and_where_the_files_lie(replay):
    said = replay()
    assert said.code == 0
    assert "durations replayed as recorded" in said.out
    assert "runs/fifo-jobs-v100-2-0" in said.out
    assert "133.3" in said.out


def test_modelled_work_names_its_rule_and_reference_type(hetsim, here):
    said = hetsim("run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "k80:2", "--out", "out", "--json")
    assert said.code == 0
    assert "durations turned into iterations on V100 GPUs" in info(here / "out")["work"]["rule"]
    # The same iterations take longer on the slower type.
    assert json.loads(said.out)["jct_mean_s"] > 134


def test_a_faster_reference_makes_more_work_of_the_same_log(hetsim):
    jct = [
        json.loads(
            hetsim(
                "run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "v100:2", "--reference", kind, "--json"
            ).out
        )["jct_mean_s"]
        for kind in ("k80", "v100", "a100")
    ]
    assert jct == sorted(jct)
    assert jct[0] < jct[2]


def test_every_run_gets_a_fresh_folder(replay, here):
    assert [json.loads(replay("--json").out)["run_dir"] for _ in range(3)] == [
        "runs/fifo-jobs-v100-2-0",
        "runs/fifo-jobs-v100-2-0-2",
        "runs/fifo-jobs-v100-2-0-3",
    ]
    assert len(list((here / "runs").iterdir())) == 3


def test_a_generated_trace_has_its_load_and_size_said(hetsim, here):
    said = hetsim("run", "--policy", "fifo", "--jobs", 300, "--seed", 5, "--work", "recorded", "--out", "out")
    assert said.code == 0
    assert "300 jobs of synthetic philly" in said.err
    assert "on gavel (108 GPUs); recorded load 0." in said.err
    config = info(here / "out")["config"]
    assert (config["jobs"], config["load"], config["cluster"], config["seed"]) == (300, 0.7, "gavel", 5)
    assert "out" not in config


def test_a_file_keeps_the_times_that_it_has_unless_a_load_is_asked_for(replay, here):
    replay("--out", "as-recorded")
    replay("--out", "stretched", "--load", 0.5)
    submit = [
        pq.read_table(here / name / "jobs.parquet")["submit_s"].to_pylist() for name in ("as-recorded", "stretched")
    ]
    assert submit[0] == [0, 10, 20]
    # Asked for: 100 + 2 * 50 + 30 GPU-s over a span of 20 s on two GPUs is a load of 5.75, 11.5 times 0.5.
    assert submit[1] == pytest.approx([0, 115, 230])


def test_more_than_the_cluster_can_do_is_said_before_and_after(replay):
    said = replay()
    assert "load 5.75 on V100, above 1" in said.err
    assert "Recorded load on V100 is" in said.out


def test_overload_by_type_with_its_backlog_and_drain_time(hetsim, here):
    (here / "three.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,100,1\nb,0,100,1\nc,0,100,1\n")
    said = hetsim("run", "--policy", "fifo", "--trace", "three.csv", "--cluster", "a10:2", "--work", "recorded")
    assert "load 1.50 on A10, above 1" in said.err
    assert "Recorded load on A10 is 1.50" in said.out
    assert "drained 1 min 40 s later" in said.out


def test_settings_reach_policy_and_engine(hetsim, here):
    said = hetsim(
        "run",
        "--policy",
        "tiresias",
        "-P",
        "queue_limits=60",
        "-P",
        "by=time",
        "--trace",
        "jobs.csv",
        "--cluster",
        "v100:2",
        "--work",
        "recorded",
        "--set",
        "engine.preemption_overhead_s=7",
        "--set",
        "seed=3",
        "--out",
        "out",
    )
    assert said.code == 0
    about = info(here / "out")
    assert about["policy_settings"]["queue_limits"] == "60"
    assert about["config"]["policy_settings"]["by"] == "time"
    assert about["settings"]["preemption_overhead_s"] == about["config"]["engine"]["preemption_overhead_s"] == 7
    assert about["seed"] == 3


def test_a_file_of_settings_and_options_that_win_over_it(hetsim, here):
    (here / "x.toml").write_text(
        '[run]\npolicy = "srtf"\ntrace = "jobs.csv"\ncluster = "v100:2"\nwork = "recorded"\nseed = 4\n'
        "[engine]\ncheckpoint_interval_s = inf\nmtbf_h = 1e9\n"
    )
    said = hetsim("run", "--config", "x.toml", "--seed", 9, "--estimate", "noisy:0.5", "--out", "out")
    assert said.code == 0, said.err
    about = info(here / "out")
    assert (about["policy"], about["seed"], about["estimate"]) == ("srtf", 9, "noisy:0.5")
    assert about["config"]["engine"]["checkpoint_interval_s"] == "inf"


@pytest.mark.parametrize(
    ("options", "notice"),
    [
        (["--estimate", "noisy:1"], "estimate = noisy:1 has no effect: policy 'fifo' uses no run times"),
        (["--speed-belief", "noisy:1"], "speed_belief = noisy:1 has no effect: policy 'fifo' uses no speeds"),
        (["--speed-belief", "noisy:1"], "speed_belief has no effect with work = recorded"),
        (["--reference", "t4"], "reference has no effect with work = recorded"),
        (["--set", "engine.repair_h=2"], "engine.repair_h has no effect without engine.mtbf_h"),
        (["--trace", "philly", "--format", "pai", "--jobs", "20"], "format has no effect: 'philly' is generated"),
    ],
)
def test_a_setting_that_does_nothing_is_noticed(replay, options, notice):
    said = replay(*options)
    assert said.code == 0
    assert notice in said.err


def test_a_run_says_by_which_belief_of_speeds_its_policy_planned(hetsim, here):
    """In run.json and in the table; a policy that uses no speeds has none, and jobs are as fast as ever."""
    rates = {}
    for policy, belief, kept in (("hetero", "noisy:0.5", "noisy:0.5"), ("fifo", "noisy:0.5", "none"),
                                 ("hetero", "exact", "exact")):
        said = hetsim("run", "--trace", "jobs.csv", "--cluster", "v100:1", "--policy", policy, "--speed-belief", belief,
                      "--quiet", "--out", f"{policy}-{belief}")
        assert said.code == 0, said.err
        assert info(here / f"{policy}-{belief}")["speed_belief"] == kept
        assert ("belief of speeds" in said.out) == (kept == "noisy:0.5")
        segments = pq.read_table(here / f"{policy}-{belief}" / "segments.parquet").to_pandas()
        rates[policy, belief] = (segments["work_done"] / (segments["end_s"] - segments["begin_s"])).iloc[0]
    assert len(set(rates.values())) == 1


def test_quiet_keeps_the_result_and_drops_the_rest(replay):
    said = replay("--quiet", "--estimate", "noisy:1")
    assert (said.code, said.err) == (0, "")
    assert "JCT mean" in said.out


def test_force_replaces_a_run(replay, here):
    replay("--out", "out")
    assert replay("--out", "out", "--seed", 8, "--force").code == 0
    assert info(here / "out")["seed"] == 8


def test_equal_runs_write_equal_bytes_wherever_they_write(replay, here):
    replay("--out", "one")
    replay("--out", "deep/two")
    for file in ("run.json", "jobs.parquet", "segments.parquet", "decisions.parquet", "nodes.parquet", "plans.parquet"):
        assert (here / "one" / file).read_bytes() == (here / "deep/two" / file).read_bytes()
    assert str(here) not in (here / "one" / "run.json").read_text("utf-8")


def test_progress_is_plain_lines_where_nobody_watches(capsys, monkeypatch):
    from sim.cli import console

    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
    with console.progress(400, 86_400.0, quiet=False) as update:
        update(100, 2 * 86_400.0)
    assert "100 of 400 jobs, day 1.0, about 0 s left" in capsys.readouterr().err
    with console.progress(400, 0.0, quiet=True) as update:
        assert update is None


def test_progress_is_a_bar_on_a_terminal(capsys, monkeypatch):
    import sys

    from sim.cli import console

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with console.progress(400, 0.0, quiet=False) as update:
        update(100, 43_200.0)
    assert "100/400 jobs, day 0.5" in capsys.readouterr().err.replace("\x1b[0m", "").replace("\x1b[32m", "")


def test_a_run_names_its_calibration_and_refuses_an_unknown_one(hetsim):
    run = ("run", "--policy", "fifo", "--trace", "philly", "--jobs", 20, "--calibration")
    said = hetsim(*run, "scripts", "--out", "r")
    assert said.code == 0
    assert "calibration scripts" in Path("r/run.json").read_text()
    said = hetsim(*run, "script")
    assert said.code == 2
    assert "did you mean 'scripts'" in said.err


def test_r2_15_shares_that_look_like_mig_slices_are_told_not_to_be(hetsim, here):
    (here / "slices.csv").write_text("job_id,submit_s,duration_s,num_gpus,gpu_milli\na,0,10,1,142\nb,0,10,1,429\n"
                                     "c,0,10,1,500\nd,0,10,1,1000\ne,0,10,1,144\n")
    said = hetsim("run", "--trace", "slices.csv", "--cluster", "v100:1x2", "--policy", "fifo", "--work", "recorded")
    assert said.code == 0 and "2 jobs on sevenths of a GPU, as MIG slices are" in said.err.replace("\n", " ")
    assert "sevenths" in hetsim("trace", "check", "slices.csv").out


def test_r2_06_a_run_says_by_which_rule_gpu_types_are_tried(replay, hetsim, here):
    rule = "policy 'fifo' is blind to speed: a job gets the first GPU type that has room, "
    mixed = ("--cluster", "t4:2+v100:2", "--force", "--out", "out")
    assert f"{rule}fastest first: V100, T4 (type_order = fastest)" in replay(*mixed).err
    assert info(here / "out")["config"]["type_order"] == "fastest"
    assert list(info(here / "out")["cluster"]["gpus_by_type"]) == ["V100", "T4"]
    listed = replay(*mixed, "--set", "type_order=listed")
    assert f"{rule}as the cluster is written: T4, V100 (type_order = listed)" in listed.err
    assert "blind to speed" not in replay().err  # one GPU type
    assert "type_order has no effect: V100:1x2 has one GPU type" in replay("--set", "type_order=random").err
    planner = ("run", "--policy", "homogeneous-dp", "--trace", "jobs.csv", *mixed, "--set", "type_order=cheapest")
    said = hetsim(*planner)
    assert "type_order decides between equals only: policy 'homogeneous-dp' looks at speeds" in said.err
    assert "blind to speed" not in said.err
    refused = replay(*mixed, "--set", "type_order=quickest")
    assert refused.code == 2
    assert "type_order: value not allowed; got 'quickest'" in refused.err
    assert "fastest" in refused.err


def test_a_calibration_orders_gpu_types_even_where_durations_are_as_recorded(replay):
    without = "calibration has no effect with work = recorded"
    assert without in replay("--calibration", "scripts").err
    mixed = replay("--calibration", "scripts", "--cluster", "t4:2+p100:2").err
    assert without not in mixed
    assert "fastest first: P100, T4" in mixed


def test_a_policy_in_full_says_by_which_rule_it_gets_gpu_types(hetsim):
    rule = "Blind to speed: a job gets the first GPU type that has room, fastest first"
    assert rule in " ".join(hetsim("policies", "las").out.split())
    assert "Blind to speed" not in hetsim("policies", "hetero").out
