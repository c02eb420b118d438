"""`--optimizer` of `perf`, `recommend` and `place`, and `[run] optimizer`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

ASKED = ("perf", "llama-7b", "-b", 4, "-s", "4xA100-80", "--zero", 3, "--recompute", "--tokens", 128)
WIDE = "gpt2-1.5b(tokens=64)"


def test_r3_12_perf_keeps_what_the_optimizer_keeps(hetsim):
    """6,738 million parameters over four GPUs: 2 bytes more of each are 3.14 GiB more on a GPU."""
    plain, wide, told = (json.loads(hetsim(*ASKED, *more, "--json").out)["memory_gib"][0] for more in (
        (), ("--optimizer", "adam-fp32-grads"), ("--optimizer", 18)))
    assert wide - plain == pytest.approx(2 * 6738e6 / 4 / 2**30, rel=1e-3)
    assert told == wide
    assert "optimizer: 18 bytes a parameter" in " ".join(hetsim(*ASKED, "--optimizer", 18).out.split())
    assert "; optimizer" not in hetsim(*ASKED).out


@pytest.mark.parametrize("command", [
    ASKED, ("place", "--model", "resnet50", "--methods", "single"),
    ("recommend", "--model", "bert-large", "--gpus", "V100:2"),
])
def test_what_is_no_optimizer_is_told_with_what_is(hetsim, command):
    said = hetsim(*command, "--optimizer", "adm")
    assert said.code == 2
    assert "unknown optimizer" in said.err and "adafactor" in said.err and "did you mean 'adam'?" in said.err
    assert hetsim(*command, "--optimizer", "3").code == 2


def test_recommend_plans_with_what_the_optimizer_keeps(hetsim):
    """1,558 million parameters do not fit a V100 of 16 GiB with Adam, and do with SGD."""
    asked = ("recommend", "--model", WIDE, "-b", 1, "--gpus", "V100:1", "--methods", "data-parallel", "--json")
    assert hetsim(*asked).code == 2
    got = json.loads(hetsim(*asked, "--optimizer", "sgd").out)
    assert got["optimizer"] == "sgd" and got["plan"]["gpus"] == {"V100": 1}


def test_place_keeps_what_the_optimizer_keeps(hetsim):
    asked = ("place", "--model", "bert-large", "-b", 1, "--gpus", "V100", "--methods", "single", "--json")
    plain, less = (json.loads(hetsim(*asked, *more).out)["methods"][0] for more in ((), ("--optimizer", "sgd")))
    assert max(plain["peak_gib"]) - max(less["peak_gib"]) == pytest.approx(8 * 336e6 / 2**30, rel=0.02)
    assert less["step_s"] == plain["step_s"]
    assert "the state of sgd" in " ".join(hetsim(*asked[:-1], "--optimizer", "sgd").out.split())


def test_a_run_fits_what_its_optimizer_keeps(hetsim, here):
    """1,558 million parameters on 16 GiB: not with Adam; with 8 bytes, by the file or by name. With recorded work none
    is modelled."""
    (here / "jobs.csv").write_text(f'job_id,submit_s,duration_s,num_gpus,model,batch_size\na,0,1000,1,"{WIDE}",1\n')
    (here / "run.toml").write_text("[run]\noptimizer = 8\n")
    play = ("run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "v100:1x1", "--out", "out", "--force")
    started = []
    for more in ((), ("--config", "run.toml"), ("--set", "optimizer=sgd")):
        assert hetsim(*play, *more).code == 0
        started.append(bool(pd.read_parquet("out/jobs.parquet")["first_start_s"].notna()[0]))
    assert started == [False, True, True]
    assert "(optimizer sgd)" in json.loads(Path("out/run.json").read_text())["work"]["rule"]
    for wrong in ("optimizer=adm", "optimizer=7", "run.optimizer=true"):
        said = hetsim(*play, "--set", wrong)
        assert said.code == 2 and "optimizer" in said.err, wrong
    said = hetsim(*play, "--work", "recorded", "--set", "optimizer=sgd")
    assert said.code == 0 and "optimizer has no effect" in said.err
