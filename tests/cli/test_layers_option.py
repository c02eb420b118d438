"""`--layers`: a table of measured layers asked about, planned with, written; and what the framework takes."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.performance.test_layer_tables import TABLE


@pytest.fixture
def table(here):
    (here / "layers.csv").write_text(TABLE)
    return "layers.csv"


def test_perf_takes_a_table_and_says_what_it_took(hetsim, table):
    """8 samples on one A100 as two micro-batches of 4: 2 (12 + 40) ms and a step of 1.8 ms."""
    asked = ("perf", "toy", "--layers", table, "-b", 8, "-m", 2, "-s", "1xA100")
    got = json.loads(hetsim(*asked, "--json").out)
    assert (got["iteration_s"], got["source"]) == (pytest.approx(2 * 0.052 + 0.0018), "measured")
    said = " ".join(hetsim(*asked[:4], "-b", 2, "-s", "1xA100").out.split())
    assert "speed: interpolated (between measured micro-batches)" in said


def test_what_was_not_measured_is_refused_or_predicted(hetsim, table):
    asked = ("perf", "toy", "--layers", table, "-b", 4, "-s", "1xT4")
    said = hetsim(*asked)
    assert said.code == 2 and "T4, tensor 1" in said.err and "--layers-from" in said.err
    said = " ".join(hetsim(*asked, "--layers-from", "A100").out.split())
    assert "speed: predicted (from the times of another GPU type)" in said
    said = hetsim("perf", "toy", "--layers", table, "-b", 4, "-s", "4xA100/4")
    assert said.code == 2 and "tensor degree 4" in said.err


def test_recommend_plans_with_a_table(hetsim, table):
    asked = ("recommend", "--model", "toy", "--layers", table, "-b", 16, "--evaluations", 50, "--json")
    got = json.loads(hetsim(*asked, "--gpus", "A100:2", "--tensor", "1,2").out)
    assert got["plan"]["gpus"] == {"A100": 2}
    said = hetsim(*asked, "--gpus", "A100:2,V100:2")
    assert said.code == 2 and "V100, tensor 1" in said.err
    assert hetsim(*asked, "--gpus", "A100:2,V100:2", "--layers-from", "A100").code == 0


@pytest.mark.parametrize(("more", "message"), [
    (("perf", "toys", "--layers", "layers.csv"), "did you mean 'toy'?"),
    (("perf", "toy", "--layers", "none.csv"), "cannot be read"),
    (("perf", "resnet50", "--layers-from", "A100"), "has no effect"),
    (("perf", "--layers", "layers.csv"), "no model of the table is named"),
    (("perf", "x.onnx", "--layers", "layers.csv"), "two models are given"),
    (("recommend", "--graph", "x.onnx", "--layers", "layers.csv", "--gpus", "V100:2"), "two models are given"),
])  # fmt: skip
def test_what_cannot_be_meant_is_said(hetsim, table, more, message):
    said = hetsim(*more)
    assert said.code == 2 and message in said.err


def test_perf_writes_the_measured_layers_of_a_file(hetsim, here, table):
    assert hetsim("perf", "toy", "--layers", table, "--out", "mine.csv").code == 0
    said = hetsim("perf", "toy", "--layers", table, "--out", table)
    assert said.code == 2 and "there already" in said.err and (here / table).read_text() == TABLE
    first, second = (hetsim("perf", "toy", "--layers", name, "-b", 9, "-s", "1xA100", "--json").out
                     for name in (table, "mine.csv"))  # fmt: skip
    assert first == second


def test_the_framework_takes_what_is_said(hetsim):
    asked = ("perf", "resnet50", "-b", 8, "-s", "1xV100", "--json")
    plain, more = (json.loads(hetsim(*asked, *option).out)["memory_gib"][0]
                   for option in ((), ("--overhead-gib", 4.5)))  # fmt: skip
    assert more - plain == pytest.approx(3.5)
    said = hetsim("recommend", "--model", "resnet50", "-b", 8, "--gpus", "V100:1", "--overhead-gib", 15.9,
                  "--evaluations", 10)  # fmt: skip
    assert said.code == 2 and "16.33 GiB needed" in said.err


def test_messages_may_block_both_sides(hetsim):
    asked = ("perf", "vgg16", "-b", 64, "-m", 8, "-s", "1xV100", "-s", "1xV100", "--json", "--node-gpus", 1)
    times = [json.loads(hetsim(*asked, *option).out)["iteration_s"]
             for option in ((), ("--blocking",), ("--blocking-both",))]  # fmt: skip
    assert times[0] < times[1] < times[2]


def test_jobs_of_a_trace_run_by_their_layers(hetsim, here, table):
    """Two jobs of 100 s on an A100: 8 samples an iteration are 2 x 52 ms and a step of 1.8 ms there, whatever runs."""
    (here / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,num_gpus,model,batch_size\na,0,100,1,toy,4\nb,0,100,1,resnet50,32\n")
    play = ("run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "a100:1x2", "--reference", "A100",
            "--layers", table, "--out", "out", "--force")  # fmt: skip
    assert hetsim(*play).code == 0
    notes = json.loads((here / "out" / "run.json").read_text())["trace"]["notes"]
    assert any(note.startswith("speed of 1 of 2 jobs by the measured layers of layers.csv") for note in notes)
    rates = pd.read_parquet(here / "out" / "segments.parquet").rate.tolist()
    assert rates[0] == pytest.approx(1 / (0.052 + 0.0018))
    said = hetsim(*play, "--set", "calibration=tuned")
    assert said.code == 2 and "values of another size" in said.err and "--calibration scripts" in said.err
    mixed = (*play[:6], "a100:1x1+t4:1x1", *play[7:])
    said = hetsim(*mixed)
    assert said.code == 2 and "T4, tensor 1" in said.err
    assert hetsim(*mixed, "--set", "layers_from=A100").code == 0


def test_a_run_counts_what_the_framework_takes(hetsim, here):
    """ResNet-50 with 32 samples fits a K80 of 12 GiB, but not beside 11 GiB of something else."""
    (here / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,num_gpus,model,batch_size\na,0,100,1,resnet50,32\n")
    play = ("run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "k80:1x1", "--out", "out", "--force")
    ended = []
    for more in ((), ("--set", "overhead_gib=11")):
        assert hetsim(*play, *more).code == 0
        ended.append(pd.read_parquet(here / "out" / "jobs.parquet").state[0])
    assert ended[0] != ended[1] == "rejected"


def test_perf_cuts_a_model_by_the_times_of_its_degree(hetsim, here):
    """Degree 2 alone is measured: layers of 8, 9 and 9 ms are cut after the second. The two forwards of the first stage
    end at 12 ms, the second's first backward at 15, two backwards of 11 ms at 37; its step takes 0.8 ms."""
    rows = [row for row in TABLE.splitlines() if ",1,,,," not in row]
    (here / "two.csv").write_text("\n".join(rows).replace("A100,1,0.001,0.002,0.0005", ",,,,").replace(
        "a100,1,0.002,0.004,0.0005", ",,,,"))  # fmt: skip
    asked = ("two.csv", "-b", 8, "-m", 2, "-s", "2xA100/2", "-s", "2xA100/2")
    got = json.loads(hetsim("perf", "toy", "--layers", *asked, "--json").out)
    assert got["source"] == "measured" and got["iteration_s"] == pytest.approx(0.0378, rel=2e-3)
    plan = ("recommend", "--model", "toy", "--layers", "two.csv", "-b", 8, "--gpus", "A100:2", "--json")
    got = json.loads(hetsim(*plan, "--tensor", 2, "--micro-batches", 2).out)
    assert [stage["tensor"] for stage in got["plan"]["stages"]] == [2]
    # One stage: both micro-batches of 4 samples one after the other, 26 ms each, then the step of 1.2 ms.
    assert got["plan"]["iteration_s"] == pytest.approx(2 * 0.026 + 0.0012)
    for degrees in ("1", "1,2"):
        said = hetsim(*plan, "--tensor", degrees)
        assert said.code == 2 and "A100, tensor 1" in said.err


def test_place_takes_a_table_and_its_largest_micro_batch(hetsim, table):
    """4 samples on one A100 alone: 12 ms forward, 40 back."""
    asked = ("place", "--model", "toy", "--layers", table, "--methods", "single,m-etf")
    got = json.loads(hetsim(*asked, "--gpus", "A100", "--json").out)
    assert (got["samples"], got["source"], got["operators"]) == (4, "measured", 6)
    assert [row["step_s"] for row in got["methods"]] == [pytest.approx(0.052)] * 2
    got = json.loads(hetsim(*asked, "--gpus", "A100", "-b", 2, "--json").out)
    assert (got["samples"], got["source"]) == (2, "interpolated")
    said = hetsim(*asked, "--gpus", "A100,T4")
    assert said.code == 2 and "T4, tensor 1" in said.err
    got = json.loads(hetsim(*asked, "--gpus", "A100,T4", "--layers-from", "A100", "--json").out)
    assert (got["samples"], got["source"]) == (4, "predicted")
    assert "did you mean 'toy'?" in hetsim("place", "--model", "toys", "--layers", table).err
