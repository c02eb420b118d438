"""`hetsim run --measured FILE`: jobs of the table run at its rates, the others by the model, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.conftest import Said

RATES = "model,batch_size,gpu_type,gpus,iterations_per_s_total\ntoy,64,A100,1,120\ntoy,64,A100,4,400\n"
#: Forty thousand iterations on four GPUs; fifty seconds on one; two GPUs, never measured; a model of the zoo.
TRACE = (
    "job_id,submit_s,duration_s,num_gpus,model,batch_size,work_iters\n"
    "big,0,1,4,toy,64,40000\nsmall,0,50,1,toy,64,\npair,1,30,2,toy,64,\nzoo,2,30,1,resnet50,64,\n"
)


@pytest.fixture
def measured(hetsim: Callable[..., Said], here: Path) -> Callable[..., Said]:
    """Run TRACE by RATES on two A100 nodes of four; further options win or add."""
    (here / "rates.csv").write_text(RATES)
    (here / "trace.csv").write_text(TRACE)
    return lambda *more: hetsim(
        "run", "--policy", "fifo", "--trace", "trace.csv", "--cluster", "a100:2x4", "--reference", "A100",
        "--measured", "rates.csv", "--out", "out", *more,
    )


def table(name: str) -> pd.DataFrame:
    return pd.read_parquet(f"out/{name}.parquet").set_index("job_id")


def notes() -> str:
    return "\n".join(json.loads(Path("out/run.json").read_text())["trace"]["notes"])


@pytest.mark.parametrize("policy", ["fifo", "hetero"])
def test_jobs_of_the_table_run_at_its_rates_and_the_others_by_the_model(measured, hetsim, policy):
    """P-26: 40,000 iterations at 400 a second for the four GPUs together are 100 s. A policy that cuts models into
    stages takes a measured one whole."""
    said = measured("--policy", policy, *["-P", "max_scale=1"] * (policy == "hetero"))
    assert said.code == 0, said.err
    rate = table("segments")["rate"]
    assert table("jobs")["end_s"]["big"] == pytest.approx(100.0) and rate["big"] == pytest.approx(400.0)
    assert table("jobs")["end_s"]["small"] == pytest.approx(50.0) and rate["small"] == pytest.approx(120.0)
    assert rate["pair"] == pytest.approx((120 * 400) ** 0.5)
    assert table("jobs")["end_s"]["zoo"] == pytest.approx(32.0)  # as recorded, on the reference type
    assert hetsim("audit", "out").code == 0


def test_p44_the_result_says_how_many_speeds_were_measured_and_how_many_not(measured):
    """P-44: also before the run; the file is known by its hash."""
    said = measured()
    for text in (notes(), said.err):
        assert "speed of 3 of 4 jobs by the measured table rates.csv (" in text
        assert "2 measured, 1 interpolated, 0 extrapolated (gaps: interpolate)" in text
    info = json.loads(Path("out/run.json").read_text())
    assert info["work"]["rule"].endswith("models of rates.csv at the rates measured there")
    assert info["config"]["measured"] == "rates.csv"


def test_p44_beyond_what_was_measured_only_by_a_rule_that_was_asked_for(measured, here):
    """P-44: eight GPUs, where one and four were measured."""
    (here / "trace.csv").write_text(TRACE.replace("pair,1,30,2", "wide,1,30,8"))
    said = measured()
    assert said.code == 2 and not (here / "out").exists()
    assert "1 jobs; first: toy, batch size 64, 8 A100 on 1 node" in said.err
    assert "allowed: toy on A100: GPUs 1, 4; batch size 64" in said.err and "linear" in said.err
    assert measured("--set", "measured_gaps=linear").code == 0
    assert table("segments")["rate"]["wide"] == pytest.approx(800.0) and "1 extrapolated (gaps: linear)" in notes()


def test_p51_a_type_without_rates_gets_no_such_job_and_the_result_says_so(measured):
    """P-51: T4s are first and free, but nobody measured the job there."""
    assert measured("--cluster", "t4:1x4+a100:2x4", "--set", "type_order=listed").code == 0
    assert "3 jobs have no rate on T4 for the gang asked for: not placed there so" in notes()
    ids = table("segments")["gpu_ids"]
    assert all(gpu >= 4 for job in ("big", "small", "pair") for gpu in ids[job]) and ids["zoo"][0] < 4


@pytest.mark.parametrize("policy", ["fifo", "hetero"])
def test_p51_a_job_that_was_measured_on_no_type_of_the_cluster_is_rejected_with_the_missing_point(measured, policy):
    """P-51: the others run."""
    assert measured("--cluster", "t4:1x4", "--policy", policy).code == 0
    jobs = table("jobs")
    assert list(jobs["state"][["big", "small", "pair", "zoo"]]) == ["rejected"] * 3 + ["done"]
    assert "got 'toy, batch size 64, 4 T4 on 1 node'; allowed: toy on A100" in jobs["reason"]["big"]


def test_a_reference_type_that_was_not_measured_cannot_turn_durations_into_iterations(measured, here):
    said = measured("--reference", "V100")
    assert said.code == 2 and "--reference (now V100)" in said.err and not (here / "out").exists()


def test_p49_a_job_with_another_batch_is_not_run_by_the_profile(measured, here):
    """P-49: and not by the zoo either."""
    (here / "trace.csv").write_text(TRACE.replace("small,0,50,1,toy,64", "small,0,50,1,toy,128"))
    said = measured()
    assert said.code == 2 and "toy, batch size 128, 1 A100" in said.err


def test_a_placement_that_was_not_measured_ends_the_run_by_name(measured, here):
    """Four GPUs were measured on one node; two nodes of two cannot hold them so."""
    (here / "rates.csv").write_text(
        "model,batch_size,gpu_type,gpus,nodes,iterations_per_s_total\n"
        "toy,64,A100,1,1,120\ntoy,64,A100,2,1,200\ntoy,64,A100,4,1,400\n"
    )
    said = measured("--cluster", "a100:4x2")
    assert said.code == 2 and "toy, batch size 64, 4 A100 on 2 nodes" in said.err and "Traceback" not in said.err


def test_a_job_type_with_its_own_batch_needs_none_in_the_trace(measured, here):
    rates = {"a100": {"('ResNet-18 (batch size 16)', 1)": {"null": 10.0}}}
    (here / "rates.json").write_text(json.dumps(rates))
    (here / "trace.csv").write_text(
        "job_id,submit_s,duration_s,num_gpus,model,work_iters\na,0,5,1,ResNet-18 (batch size 16),200\n"
    )
    assert measured("--measured", "rates.json").code == 0
    assert table("jobs")["end_s"]["a"] == pytest.approx(20.0)
    assert "1 jobs of measured job types have no batch size, and need none" in notes()


def test_jobs_without_a_model_get_none_of_the_table(measured, here):
    """The table's resnet50 was measured in one batch size only; the zoo's would be drawn in others."""
    (here / "rates.csv").write_text(RATES + "resnet50,7,A100,1,5\n")
    rows = "".join(f"{i},{i},9,1\n" for i in range(40))
    (here / "trace.csv").write_text("job_id,submit_s,duration_s,num_gpus\n" + rows)
    said = measured()
    assert said.code == 0 and "no job of the trace names a model of the measured table: toy, resnet50" in said.err
    assert "resnet50" not in set(table("jobs")["model"])


def test_a_setting_that_does_nothing_is_said_to(measured, hetsim):
    assert "measured has no effect with work = recorded" in measured("--work", "recorded").err
    alone = ("run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "v100:2", "--set", "measured_gaps=refuse")
    assert "measured_gaps has no effect without measured" in hetsim(*alone).err


HOSTILE: dict[str, tuple[str | bytes | None, str]] = {
    "wrong header": ("a,b\n1,2\n", "no column says how fast"),
    "no unit": (RATES.replace("iterations_per_s_total", "throughput"), "iterations_per_s_total"),
    "negative": (RATES + "toy,64,A100,8,-1\n", "bad.csv, line 4, column 'iterations_per_s_total'"),
    "NaN": (RATES + "toy,64,A100,8,NaN\n", "bad.csv, line 4, column 'iterations_per_s_total'"),
    "twice": (RATES + "toy,64,A100,4,390\n", "line 4: a point is there twice"),
    "empty": ("", "an empty file"),
    "binary": (bytes(range(256)), "bad.csv: the measured table cannot be read"),
    "an empty folder": (None, "no step times that can be used"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_that_cannot_be_used(measured, here, case):
    content, message = HOSTILE[case]
    bad = here / "bad.csv"
    if content is None:
        bad.mkdir()
    else:
        bad.write_bytes(content.encode() if isinstance(content, str) else content)
    said = measured("--measured", "bad.csv")
    assert said.code == 2 and said.out == "" and message in said.err and "Traceback" not in said.err
    assert not (here / "out").exists()


def test_no_file_and_no_rule(measured):
    assert "no such file" in measured("--measured", "none.csv").err
    said = measured("--set", "measured_gaps=amdal")
    assert said.code == 2 and "measured_gaps" in said.err and "amdahl" in said.err
