"""`hetsim perf`: one model on some GPUs, from the command line."""

from __future__ import annotations

import json
import os

import pytest

from sim.hardware.gputypes import catalogue
from sim.performance.zoo import MODELS


def test_the_parts_of_an_iteration_add_up(hetsim):
    said = hetsim("perf", "vgg16", "--batch", 128, "--stage", "4xV100", "--json")
    got = json.loads(said.out)
    assert said.code == 0
    parts = ("compute_s", "bubble_s", "transfer_s", "allreduce_s", "update_s")
    assert got["iteration_s"] == pytest.approx(sum(got[part] for part in parts))
    assert got["samples_per_s"] == pytest.approx(128 / got["iteration_s"])
    assert got["source"] == "modelled"
    assert len(got["memory_gib"]) == 1


def test_the_table_names_parts_memory_and_use(hetsim):
    said = hetsim("perf", "gpt2-1.5b", "-b", 64, "-m", 16, "-s", "4xA100", "-s", "4xV100")
    assert said.code == 0
    for word in ("computation", "bubble", "transfers", "all-reduce", "optimizer", "MFU", "memory needed", "1f1b"):
        assert word in said.out


def test_the_cluster_s_own_prices_count(hetsim, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[[nodes]]\ntype = "V100"\ncount = 1\ngpus = 8\nprice_usd_per_gpu_h = 0.5\n')
    got = json.loads(hetsim("perf", "vgg16", "-s", "4xV100", "--cluster", file, "--json").out)
    assert got["usd_per_1000_iterations"] == pytest.approx(1000 * 4 * 0.5 * got["iteration_s"] / 3600)


def test_r3_03_perf_and_recommend_say_which_share_decides(hetsim):
    said = hetsim("perf", "gpt2-1.5b", "-b", 5, "-s", "4xA100-80")
    assert "5 samples / 4 replicas = 2, 1, 1, 1: one with 2 decides time and memory" in " ".join(said.out.split())
    assert "decides" not in hetsim("perf", "gpt2-1.5b", "-b", 8, "-s", "4xA100-80").out
    said = hetsim("recommend", "--model", "gpt2-1.5b", "-b", 5, "--gpus", "A100-80:3", "--evaluations", 30)
    assert "5 samples / 3 replicas = 2, 2, 1: one with 2 decides" in " ".join(said.out.split())


def test_r3_11_seventy_billion_on_32_gpus_by_the_command(hetsim):
    asked = ("-b", 32, "-s", "32xA100-80", "--zero", 3, "--recompute", "--json")
    whole, short = (json.loads(hetsim("perf", "llama-70b", *asked, *more).out) for more in ((), ("--tokens", 512)))
    assert whole["fits"]
    assert short["compute_s"] < whole["compute_s"] / 7
    assert short["memory_gib"] < whole["memory_gib"]
    assert short["model"] == "llama-70b(tokens=512)"
    refused = hetsim("perf", "resnet50", "--tokens", 512)
    assert refused.code == 2
    assert "llama-70b" in refused.err
    assert hetsim("perf", "--list", "--tokens", 512).code == 2


def test_plans_near_the_memory_limit_are_marked_as_tight(hetsim):
    """70 billion parameters on 16 x 80 GB need 94 % of them: they 'fit', but little may come on top."""
    asked = ("perf", "llama-70b", "-b", 16, "-s", "16xA100-80", "--zero", 3, "--recompute")
    said, got = hetsim(*asked), json.loads(hetsim(*asked, "--json").out)
    assert got["fits"]
    assert 0.9 * 80 < got["memory_gib"][0] < 80
    assert got["tight"]
    assert "above 90 % of a GPU's memory" in " ".join(said.out.split())
    assert not json.loads(hetsim(*asked, "--json", "--memory-margin", 0.01).out)["tight"]
    assert "tight" not in hetsim(*asked, "--memory-margin", 0.01).out
    assert hetsim(*asked, "--memory-margin", 2).code == 2
    recommended = ("recommend", "--model", "llama-70b", "-b", 16, "--gpus", "A100-80:16", "--zero", "3", "--recompute",
                   "always", "--evaluations", 5, "--methods", "data-parallel", "--micro-batches", 1)  # fmt: skip
    assert "above 90 %" in " ".join(hetsim(*recommended).out.split())
    assert "tight" not in hetsim(*recommended, "--memory-margin", 0).out


def test_tensor_parallelism_and_recomputation(hetsim):
    plain = json.loads(hetsim("perf", "gpt3-6.7b", "-b", 8, "-s", "8xA100-80/8", "--json").out)
    again = json.loads(hetsim("perf", "gpt3-6.7b", "-b", 8, "-s", "8xA100-80/8", "--recompute", "--json").out)
    assert again["compute_s"] > plain["compute_s"] > plain["tensor_s"] > 0
    assert again["memory_gib"][0] < plain["memory_gib"][0]


def test_chunks_repeat_the_stages(hetsim):
    got = json.loads(hetsim("perf", "bert-large", "-b", 32, "-m", 8, "-s", "1xV100", "-s", "1xV100", "--schedule",
                            "interleaved", "--chunks", 2, "--json").out)  # fmt: skip
    assert got["gpus"] == 2
    assert len(got["stages"].split()) == 4


def test_what_does_not_fit_says_what_lacks_and_exits_with_1(hetsim):
    said = hetsim("perf", "gpt3-13b", "-s", "1xV100", "-b", 1)
    assert said.code == 1
    assert "stage 0 does not fit" in said.err
    assert "Traceback" not in said.err


def test_the_list_names_what_can_run_and_how_well_gpus_are_used(hetsim):
    """P-45, P-51: every model that can run, and each GPU type's fractions of its peaks with their source."""
    said = hetsim("perf", "--list")
    assert said.code == 0
    flat = said.out.replace("\n", "")
    assert all(name in flat for name in MODELS)
    assert all(name in flat for name in catalogue())
    assert "mli" in flat


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing was asked"),
        (["resnet5"], "did you mean 'resnet50'"),
        (["resnet50", "-s", "4xV10"], "V100"),
        (["resnet50", "-s", "V100"], "COUNTxTYPE"),
        (["resnet50", "-b", "0"], "batch size"),
        (["resnet50", "-b", "-3"], "batch size"),
        (["resnet50", "-m", "0"], "micro"),
        (["resnet50", "--schedule", "1f2b"], "did you mean '1f1b'"),
        (["resnet50", "--zero", "7"], "ZeRO"),
        (["resnet50", "--node-gpus", "0"], "node"),
        (["resnet50", "--chunks", "2", "-s", "1xV100", "-s", "1xV100"], "interleaved"),
        (["resnet50", "--chunks", "0"], "chunks"),
        (["resnet50", "-s", "2xV100/2"], "can be split"),
        (["bert-large", "-s", "3xV100/3"], "heads"),
        (["resnet50", "-s", "1xV100@0-10"], "cover the model"),
        (["resnet50", "-s", "1xV100@0-10", "-s", "1xV100"], "some stages only"),
        (["resnet50", "--calibration", "perfect"], "tuned"),
        (["resnet50", "--calibration", "none.toml"], "none.toml"),
        (["none.onnx"], "none.onnx"),
        (["none.json"], "none.json"),
        (["resnet50", "-m", "1000000000000"], "more micro-batches than samples"),
        (["resnet50", "-m", str(10**30)], "more micro-batches than samples"),
        (["resnet50", "-s", "1xV100/0"], "COUNTxTYPE"),
        (["resnet50", "-s", "1xV100@5-3"], "COUNTxTYPE"),
        (["resnet50", "-s", "\u0663xV100"], "COUNTxTYPE"),
        (["resnet50", "--out", "x"], "--config, --calibrate, --layers or a graph file"),
        (["resnet50", "--profiled-on", "V100"], "a graph file"),
        (["a\0b.txt"], "cannot be read"),
        (["/dev/zero.txt"], "cannot be read"),
        (["--calibrate", "none.csv"], "none.csv"),
        (["--config", "none.toml"], "none.toml"),
        (["resnet50", "--measured", "none.csv"], "none.csv"),
    ],
)
def test_what_makes_no_sense_is_a_message_and_exit_code_2(hetsim, arguments, words):
    said = hetsim("perf", *arguments)
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err


TIMES = "forward_compute_time={0}, backward_compute_time={0}"
GRAPH = f"node1 -- Linear -- {TIMES}, activation_size=100.0, parameter_size=0\n"


def test_a_graph_file_is_asked_like_a_model(hetsim, here):
    (here / "net.txt").write_text(GRAPH.format("1.0"))
    got = json.loads(hetsim("perf", "net.txt", "-b", 1, "--profiled-on", "V100", "--profiled-samples", 1,
                            "--json").out)
    assert got["compute_s"] == pytest.approx(2e-3)
    assert got["source"] == "measured"


def test_a_graph_that_takes_no_time_and_a_pipe_are_refused(hetsim, here):
    (here / "zero.txt").write_text(GRAPH.format("0"))
    os.mkfifo(here / "pipe.txt")
    for name, words in (("zero.txt", "takes no time"), ("pipe.txt", "a pipe, socket or device")):
        said = hetsim("perf", name, "--profiled-on", "V100", "--profiled-samples", 1)
        assert said.code == 2
        assert words in said.err


def test_tables_divided_among_gpus_by_the_command(hetsim):
    asked = ("perf", "dlrm-1tb", "-b", 32768, "--optimizer", "sgd")
    whole, divided = (json.loads(hetsim(*asked, "-s", stage, "--json").out) for stage in
                      ("8xA100-80", "8xA100-80/sharded"))
    assert not whole["fits"] and divided["fits"] and divided["stages"] == "8xA100-80/sharded@0-35"
    said = " ".join(hetsim(*asked, "-s", "8xA100-80/sharded").out.split())
    assert "all-to-alls (sharded)" in said and "sums of tensor parallelism" not in said
    refused = hetsim("perf", "resnet50", "-s", "8xV100/sharded")
    assert refused.code == 2 and "Leave out /sharded" in refused.err and "Traceback" not in refused.err
