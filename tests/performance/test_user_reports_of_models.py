"""What users say of the memory, time and FLOP of models, by hand, against the model of them (R3-nn)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from sim.kernels.collectives import allreduce_s
from sim.kernels.pipeline import gpipe_many_s, one_f_one_b_many_s
from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.memory import StageMemory, stage_memory
from sim.performance.optimizer import named_optimizer
from sim.performance.zoo import zoo_graph
from sim.performance.zoo.language import gated_decoder, gpt
from tests.performance.onnxmodels import FLOAT, made, read, zeros


def memory(graph: OperatorGraph, samples: float = 1.0, **how: object) -> StageMemory:
    return stage_memory(graph, [(0, len(graph) - 1)], samples, 1, **how)


def llama(layers: int, hidden: int, heads: int, inner: int, groups: int) -> OperatorGraph:
    return gated_decoder("llama", layers, hidden, heads, inner, 4096, groups=groups)


LLAMA_7B, LLAMA_13B = llama(32, 4096, 32, 11008, 32), llama(40, 5120, 40, 13824, 40)


def test_r3_13_without_offloading_70b_does_not_fit_eight_gpus_of_80_gib() -> None:
    """69 billion parameters at 16 bytes over eight GPUs: 128 GiB of state alone, and a block gathered on top."""
    graph = llama(80, 8192, 64, 28672, 8)
    assert graph.params == pytest.approx(68.98e9, rel=1e-3)
    need = memory(graph, replicas=8, zero=3, recompute=True)
    assert state_gib(need) == pytest.approx(16 * graph.params / 8 / 2**30)
    assert 130 < need.total_gib < 150


def state_gib(need: StageMemory) -> float:
    return need.weights_gib + need.gradients_gib + need.optimizer_gib


@pytest.mark.parametrize(("hidden", "heads", "tokens", "each"), [
    (6144, 64, 2048, 34 + 5 * 64 * 2048 / 6144), (5120, 40, 2048, 114), (12288, 96, 2048, 114), (5120, 40, 4096, 194),
    (1600, 25, 1024, 114),
])
def test_r3_17_a_layer_keeps_34_values_and_its_scores(hidden: int, heads: int, tokens: int, each: float) -> None:
    """s b h (34 + 5 a s / h) bytes: one layer more, less one."""
    one, two = (gpt(layers, hidden, heads, tokens, 50257).stored_bytes.sum() for layers in (1, 2))
    assert two - one == pytest.approx(each * tokens * hidden, rel=1e-12)
    fused = [gpt(layers, hidden, heads, tokens, 50257, fused=True).stored_bytes.sum() for layers in (1, 2)]
    assert 34.0 <= (fused[1] - fused[0]) / (tokens * hidden) < 34.1


@pytest.mark.parametrize(("graph", "how", "gib", "room"), [
    (LLAMA_7B, {}, 118.3, 80),
    (LLAMA_13B, {"replicas": 2, "zero": 3, "recompute": True}, 101.7, 80),
    (LLAMA_13B, {"replicas": 4, "zero": 3, "recompute": True}, 53.2, 40),
    (LLAMA_13B, {"replicas": 4, "zero": 3, "recompute": True}, 53.2, 80),
])
def test_r3_18_llama_fits_the_gpus_that_people_report(graph: OperatorGraph, how: dict, gib: float, room: int) -> None:
    need = memory(graph, **how).total_gib
    assert need == pytest.approx(gib, abs=0.1)
    assert (need <= room) == (gib <= room)


def test_r3_20_gpt_of_774_million_does_not_fit_32_gib_with_four_samples() -> None:
    need = memory(gpt(36, 1280, 20, 1024, 50257), 4)
    assert need.total_gib == pytest.approx(33.8, abs=0.1)
    assert need.activations_gib == pytest.approx(20.8, abs=0.1)


def test_r3_21_states_by_stage_of_zero() -> None:
    """16 P, 4 P + 12 P / 8, 2 P + 14 P / 8, 16 P / 8 of 6,738 million parameters."""
    b = GraphBuilder("wide", "a number", 2.0)
    b.add("w", "embedding", (-1,), 1, params=6738e6)
    graph = b.build()
    got = [state_gib(memory(graph, replicas=8, zero=z)) for z in range(4)]
    assert got == pytest.approx([100.41, 34.52, 23.53, 12.55], abs=0.01)


@pytest.mark.parametrize(("optimizer", "bytes_by_stage"), [
    ("adam", [16, 4 + 12 / 4, 2 + 14 / 4, 16 / 4]),
    ("adam-fp32-grads", [18, 6 + 12 / 4, 2 + 16 / 4, 18 / 4]),
    ("adam-fp32", [20, 4 + 16 / 4, 2 + 18 / 4, 20 / 4]),
    ("adam8bit", [10, 4 + 6 / 4, 2 + 8 / 4, 10 / 4]),
    ("sgd-momentum", [12, 4 + 8 / 4, 2 + 10 / 4, 12 / 4]),
    ("sgd", [8, 4 + 4 / 4, 2 + 6 / 4, 8 / 4]),
    ("adafactor", [8, 4 + 4 / 4, 2 + 6 / 4, 8 / 4]),
    ("18", [18, 4 + 14 / 4, 2 + 16 / 4, 18 / 4]),
    ("6", [6, 4 + 2 / 4, 2 + 4 / 4, 6 / 4]),
])
def test_r3_12_bytes_a_parameter_are_those_of_the_optimizer(optimizer: str, bytes_by_stage: list[float]) -> None:
    """6,738 million parameters on four GPUs, by stage of ZeRO: weights, gradients and state are cut as they come."""
    b = GraphBuilder("wide", "a number", 2.0)
    b.add("w", "embedding", (-1,), 1, params=6738e6)
    graph, kept = b.build(), named_optimizer(optimizer)
    got = [state_gib(memory(graph, replicas=4, zero=z, optimizer=kept)) for z in range(4)]
    assert got == pytest.approx([each * 6738e6 / 2**30 for each in bytes_by_stage])
    if optimizer in ("adam", "adam-fp32-grads", "18"):
        assert got[3] == pytest.approx(25.10 if optimizer == "adam" else 28.24, abs=5e-3)


def test_r3_23_gpipe_and_1f1b_have_one_bubble() -> None:
    """Eight stages, 32 micro-batches, one second each way: (32 + 7) x 2 s under both."""
    ones, none = np.ones((1, 8)), np.zeros((1, 7))
    for schedule in (gpipe_many_s, one_f_one_b_many_s):
        assert schedule(ones, ones, none, none, np.array([8]), np.array([32]))[0].tolist() == [78.0]


@pytest.mark.parametrize(("gpus", "seconds"), [([8, 8], 0.02719), ([8], 0.002553), ([2], 0.001429)])
def test_r3_24_more_than_the_network_carries_on_two_nodes(gpus: list[int], seconds: float) -> None:
    """VGG-16's gradients over two nodes of eight A100: by level, not by one flat ring through all."""
    size = 2.0 * zoo_graph("vgg16").params
    assert size == pytest.approx(276.7e6, rel=1e-3)
    got = allreduce_s(size, np.array(gpus), 195e9, 5e-6, 11.25e9, 20e-6)
    assert got == pytest.approx(seconds, rel=1e-3)


def test_r3_26_two_flop_a_multiply_add_and_a_shared_weight_once(tmp_path) -> None:
    """Depthwise, 8 channels of 32 x 32: 2 x 8 x 9 x 1024. A weight of 256 x 256 that two products share."""
    conv = helper.make_node("Conv", ["x", "w"], ["y"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8)
    picture = {"x": (FLOAT, ["n", 8, 32, 32])}, {"y": (FLOAT, ["n", 8, 32, 32])}
    assert read(tmp_path, made([conv], *picture, zeros(w=(8, 1, 3, 3)))).flops_fwd.sum() == 147_456
    tied = [helper.make_node("MatMul", ["x", "w"], ["u"], "a"), helper.make_node("MatMul", ["u", "w"], ["y"], "b")]
    row = {"x": (FLOAT, ["n", 256])}, {"y": (FLOAT, ["n", 256])}
    graph = read(tmp_path, made(tied, *row, zeros(w=(256, 256))))
    assert graph.weight_params.sum() == 65_536 and graph.flops_fwd.sum() == 4 * 65_536
