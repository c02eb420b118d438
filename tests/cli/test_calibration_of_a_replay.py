"""Replays of logs run at the speeds of training scripts of their time; questions about one model at those of today."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.settings.config import RunConfig
from sim.sweeps.replay import Replay
from sim.workload.prepare import resolved

JOBS = "job_id,submit_s,duration_s,num_gpus,model,batch_size\na,0,1000,1,vgg16,64\nb,10,2000,2,bert-large,16\n"
LINE = "speeds: calibration scripts (training scripts of 2018 to 2021"


@pytest.fixture
def play(hetsim, here):
    """Replay JOBS, whose times are those of V100, on P100; further options win or add."""
    (here / "jobs.csv").write_text(JOBS)
    return lambda *more: hetsim("run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "p100:4x8",
                                "--out", "out", "--force", *more)


def rule() -> str:
    return json.loads(Path("out/run.json").read_text())["work"]["rule"]


def run_time_s(job: str) -> float:
    jobs = pd.read_parquet("out/jobs.parquet").set_index("job_id")
    return float((jobs["end_s"] - jobs["first_start_s"])[job])


def on_p100_s(calibration: str) -> float:
    """How long job a, 1,000 s on a V100, takes on a P100."""
    speed = Performance(calibration=calibration)
    v100, p100 = (speed.data_parallel("vgg16", 64, gpu_type(name), (1,)).rate for name in ("V100", "P100"))
    return 1000.0 * v100 / p100


@pytest.mark.parametrize(("told", "calibration"), [([], "scripts"), (["--calibration", "tuned"], "tuned")])
def test_a_replay_runs_at_the_speeds_of_training_scripts_unless_told_otherwise(play, told, calibration):
    assert play(*told).code == 0
    assert run_time_s("a") == pytest.approx(on_p100_s(calibration))
    assert f"(calibration {calibration})" in rule()


def test_the_calibration_that_nobody_named_is_said_in_one_line_and_the_named_one_is_not(play):
    assert play().err.count(LINE) == 1
    for told in (["--calibration", "scripts"], ["--calibration", "tuned"], ["--work", "recorded"], ["--quiet"]):
        assert "speeds: " not in play(*told).err, told


def test_types_that_the_calibration_has_no_rows_of_are_named(play):
    """No script of 2018 to 2021 was measured on an H100; its speed follows from the catalogue's figures."""
    assert play("--cluster", "h100:4x8").code == 0
    assert "(calibration scripts, not fitted to H100)" in rule()
    assert play("--cluster", "p100:4x8+t4:1x8").code == 0
    assert "not fitted" not in rule()
    assert play("--reference", "A10", "--calibration", "eager").code == 0
    assert "(calibration eager, not fitted to A10, P100)" in rule()
    assert play("--cluster", "h100:4x8", "--calibration", "tuned").code == 0
    assert "(calibration tuned)" in rule()  # of rows of no type: nothing is fitted


def test_questions_about_one_model_are_of_optimized_code(hetsim):
    for words in (("perf", "resnet50", "--batch", 64, "--stage", "1xV100"),
                  ("recommend", "--model", "resnet50", "--batch", 64, "--gpus", "V100:2")):
        assert "calibration: tuned" in " ".join(hetsim(*words).out.split()), words


def test_generated_jobs_of_2023_run_at_the_speeds_of_optimized_code(hetsim):
    """Acme trains large language models on A100-80; the other generated traces are of 2017 to 2020."""
    names = {trace: resolved(RunConfig(trace=trace)).calibration for trace in ("philly", "pai", "helios", "acme")}
    assert names == {"philly": "scripts", "pai": "scripts", "helios": "scripts", "acme": "tuned"}
    assert resolved(RunConfig(trace="acme", calibration="scripts")).calibration == "scripts"
    said = hetsim("run", "--policy", "fifo", "--trace", "acme", "--jobs", 3, "--out", "out")
    assert said.code == 0 and "speeds: calibration tuned (optimized code" in said.err
    assert "(calibration tuned)" in rule()


def test_measured_rates_are_preferred_and_the_line_says_so(play):
    """Job a by the table, 30 and 10 iterations a second; job b, which it lacks, by the calibration."""
    Path("rates.csv").write_text("model,batch_size,gpu_type,gpus,iterations_per_s_total\n"
                                 "vgg16,64,V100,1,30\nvgg16,64,P100,1,10\n")
    times = {}
    for calibration in ("scripts", "tuned"):
        assert play("--measured", "rates.csv", "--calibration", calibration).code == 0
        assert run_time_s("a") == pytest.approx(3000.0)
        times[calibration] = run_time_s("b")
    said = play("--measured", "rates.csv")
    assert "speeds: as measured where rates.csv has the model, else calibration scripts (" in said.err
    assert "(calibration scripts); models of rates.csv at the rates measured there" in rule()
    assert run_time_s("b") == times["scripts"] < times["tuned"]


def test_policies_plan_by_the_calibration_of_the_run_unless_their_belief_is_another():
    """`exact` is the truth of the run; the belief of another calibration is wrong, and jobs run by the truth."""

    def segments(belief: str) -> pd.DataFrame:
        config = RunConfig(
            policy="hetero", jobs=40, cluster="v100:2x4+p100:2x4", load=1.2, speed_belief=belief)
        return Replay(config).play().tables["segments"].to_pandas()

    exact = segments("exact")
    pd.testing.assert_frame_equal(exact, segments("calibration:scripts"))
    assert not exact.equals(segments("calibration:tuned"))


def test_a_sweep_says_it_once_and_keeps_quiet_where_its_file_says_it(hetsim, here, sweeps_here):
    (here / "jobs.csv").write_text(JOBS)
    head = '[run]\ntrace = "jobs.csv"\ncluster = "p100:4x8"\npolicy = "fifo"\n'
    Path("untold.toml").write_text(head + "[sweep]\nseed = [0, 1]\n")
    Path("told.toml").write_text(head + '[sweep]\ncalibration = ["scripts", "tuned"]\n')
    said = hetsim("sweep", "untold.toml", "--workers", 1)
    assert said.code == 0 and said.err.count(LINE) == 1
    assert "speeds: " not in hetsim("sweep", "untold.toml", "--workers", 1, "--quiet").err
    said = hetsim("sweep", "told.toml", "--workers", 1)
    assert said.code == 0 and "speeds: " not in said.err
