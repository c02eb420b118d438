"""Graph files on the command line: sizes that the file leaves open, what is not read, and what a profile lacks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from policies.recommend.request.objective import is_better
from sim.performance.readers import FORMATS
from tests.performance.onnxmodels import FLOAT, made, save, zeros

COMMANDS = {
    "perf": ("perf",),
    "recommend": ("recommend", "--gpus", "V100:2", "--evaluations", 10, "--graph"),
    "place": ("place", "--methods", "single", "--graph"),
}


@pytest.fixture
def picture(here):
    """A convolution over pictures of open height."""
    from onnx import helper

    conv = helper.make_node("Conv", ["images", "w"], ["y"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    model = made(
        [conv],
        {"images": (FLOAT, ["batch", 3, "height", 32])},
        {"y": (FLOAT, ["batch", 8, "height", 32])},
        zeros(w=(8, 3, 3, 3)),
    )
    return save(here, model)


@pytest.mark.parametrize("command", COMMANDS)
def test_r3_04_the_message_names_the_option_that_gives_an_open_size(hetsim, picture, command):
    said = hetsim(*COMMANDS[command], picture)
    assert said.code == 2
    remedy = re.search(r"--dim height=128", " ".join(said.err.split()))
    assert remedy
    assert hetsim(*COMMANDS[command], picture, *remedy.group().split()).code == 0


def test_r3_04_a_larger_picture_is_more_work(hetsim, picture):
    def work_s(*dims):
        said = hetsim("perf", picture, "-s", "1xV100", "-b", 4096, *dims, "--json")
        return json.loads(said.out)["compute_s"]

    assert work_s("--dim", "height=320") > 5 * work_s("--dim", "images:2=32")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "height"], "not the size of a dimension; got 'height'"),
        (["--dim", "height=-1"], "not the size of a dimension; got 'height=-1'"),
        (["--dim", "height=8", "--dim", "height=9"], "given twice; got 'height=9'"),
        (["--dim", "height=8", "--dim", "wdth=9"], "no input has an open dimension of that name; got 'wdth'"),
        (["--dim", "height=8", "--profiled-on", "V100"], "format onnx has no such option; got '--profiled-on'"),
        (["--dim", "height=8", "--batch-axis", "1"], "dimension 0 of input 'images' has no size; got 'batch'"),
    ],
)
def test_r3_04_what_is_no_size_is_refused(hetsim, picture, arguments, message):
    said = hetsim("perf", picture, *arguments)
    assert said.code == 2
    assert message in " ".join(said.err.split())


@pytest.mark.parametrize("command", [("perf", "resnet50"), ("place", "--model", "resnet50"),
                                     ("recommend", "--gpus", "V100:2", "--model", "resnet50")])  # fmt: skip
def test_sizes_of_a_model_that_is_no_file_have_no_effect(hetsim, command):
    said = hetsim(*command, "--dim", "height=320")
    assert said.code == 2
    assert "an option has no effect; got '--dim height=320'" in " ".join(said.err.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_r3_07_files_of_pytorch_are_refused_with_what_to_do(hetsim, here, command):
    (here / "model.pt2").write_bytes(b"PK\x03\x04 an archive")
    said = hetsim(*COMMANDS[command], "model.pt2")
    assert said.code == 2
    assert "model.pt2: files of PyTorch are not read" in said.err
    assert "torch.onnx.export" in said.err


def test_r3_07_help_and_docs_name_the_formats_that_are_read_and_no_other(hetsim):
    docs = (Path(__file__).parents[2] / "docs" / "recommender.md").read_text("utf-8")
    texts = [" ".join(hetsim(command, "--help").out.replace("dnn-\n", "dnn-").split()) for command in COMMANDS]
    for text in (*texts, docs):
        assert "torch.export" not in text
        named = re.search(r"a graph file(?::| \() ?([^.;)]*)", text).group(1).lower().replace("- ", "-").split(", ")
        assert set(named) == set(FORMATS) - {"synthetic"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_graph_of_inference_is_refused_with_its_file_and_the_cause(hetsim, here, command):
    nodes = [
        {"id": i, "fpgaLatency": 1.0, "cpuLatency": 2.0, "isBackwardNode": 0, "size": 8.0, "supportedOnFpga": 1}
        for i in (1, 2)
    ]
    graph = {"nodes": nodes, "edges": [{"sourceId": 1, "destId": 2, "cost": 1.0, "size": 4.0}]}
    (here / "net_inference.json").write_text(json.dumps(graph))
    said = hetsim(*COMMANDS[command], "net_inference.json", "--profiled-on", "V100", "--profiled-samples", 1)
    assert said.code == 2
    told = " ".join(said.err.split())
    # What the reader has to warn of is told as a notice, without a place in the code.
    assert "hetsim: net_inference.json, node id 2: its output is not in the file" in told
    assert "UserWarning" not in told
    assert "net_inference.json: the graph is one of inference" in told
    assert "'2 of 2 operators without one'" in told


def test_r3_08_nothing_is_called_better_that_is_the_same_plan(hetsim):
    about = ("--model", "gpt2-1.5b", "-b", 8, "--gpus", "A100-80:4", "--evaluations", 100)
    best = json.loads(hetsim("recommend", *about, "--json").out)["plan"]
    kept = json.loads(hetsim("recommend", *about, "--keep", "4xA100-80", "--json").out)
    assert best["gpus"] == kept["plan"]["gpus"] == {"A100-80": 4}
    assert kept["better"] is None


def test_r3_08_better_is_better_by_a_value_not_by_being_another_object():
    class Plan:
        def __init__(self, iteration_s, usd, gpus):
            self.iteration_s, self.usd_per_iteration, self.counts = iteration_s, usd, (gpus,)

    plan = Plan(1.0, 2.0, 4)
    assert not is_better(Plan(1.0, 2.0, 4), plan, "time")
    assert not is_better(Plan(1.0 - 1e-13, 2.0, 4), plan, "time")
    assert is_better(Plan(0.9, 3.0, 4), plan, "time")
    assert not is_better(Plan(0.9, 3.0, 4), plan, "cost")
    assert is_better(Plan(1.0, 1.9, 4), plan, "time")
