"""What tensor parallelism makes of a graph: one GPU's share of each operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.performance.graph import OperatorGraph, PerformanceError, Profile
from sim.performance.zoo import MODELS, zoo_graph
from sim.performance.zoo.language import gpt

SPLIT = [name for name in MODELS if zoo_graph(name).split.any()]


def layer(graph: OperatorGraph, number: int) -> list[int]:
    """Operators of a layer of a GPT."""
    parts = tuple(f"{number}.{part}" for part in ("attention", "fc", "act", "norm"))
    return [i for i, op in enumerate(graph.ops) if op.startswith(parts)]


@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_a_layer_stores_what_korthikanti_et_al_count(ways: int) -> None:
    """s h (10 + 24 / t + 5 a s / (h t)) bytes a layer (arXiv:2205.05198, equation 2)."""
    tokens, hidden, heads = 2048, 4096, 32
    graph = zoo_graph("gpt3-6.7b").tensor_parallel(ways)
    expected = tokens * hidden * (10 + 24 / ways + 5 * heads * tokens / (hidden * ways))
    assert graph.stored_bytes[layer(graph, 7)].sum() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("model", ["gpt3-6.7b", "bert-large", "llama-7b"])
def test_a_layer_sums_two_tensors_each_way(model: str) -> None:
    """Shoeybi et al. 2019 (arXiv:1909.08053), section 3: after attention and after the feed-forward part."""
    graph = zoo_graph(model)
    tensor_bytes = graph.out_bytes[0]
    for sums in (graph.reduce_fwd_bytes, graph.reduce_bwd_bytes):
        assert sums[graph.block == 7].tolist().count(tensor_bytes) == 2
        assert sums[graph.block == 7].sum() == 2 * tensor_bytes


@pytest.mark.parametrize("model", SPLIT)
def test_the_gpus_together_have_the_whole_model(model: str) -> None:
    """Split operators add up; the others are on each GPU; a divided output is read as divided."""
    whole = zoo_graph(model)
    ways = 2 if whole.heads % 2 == 0 else 5
    part = whole.tensor_parallel(ways)
    copies = np.where(whole.split, ways, 1)
    for name in ("flops_fwd", "weight_params", "inner_bytes"):
        np.testing.assert_allclose(copies * getattr(part, name), getattr(whole, name), rtol=1e-12)
    assert part.params < whole.params
    for op, sources in enumerate(part.inputs):
        if -1 not in sources:
            assert part.in_bytes[op] == pytest.approx(part.out_bytes[list(sources)].sum(), rel=1e-12)
        else:
            assert part.in_bytes[op] == whole.in_bytes[op]


@pytest.mark.parametrize("model", SPLIT)
def test_between_layers_every_gpu_has_the_whole_tensor(model: str) -> None:
    whole = zoo_graph(model)
    part = whole.tensor_parallel(whole.heads)
    ends = np.flatnonzero(np.diff(whole.block))
    np.testing.assert_array_equal(part.cut_bytes[ends], whole.cut_bytes[ends])
    inside = whole.ops.index(next(op for op in whole.ops if op.endswith("attention.qkv")))
    assert part.cut_bytes[inside] < whole.cut_bytes[inside]


@settings(max_examples=30)
@given(
    layers=st.integers(1, 4),
    width=st.integers(1, 8),
    tokens=st.integers(1, 64),
    first=st.sampled_from([1, 2, 3]),
    second=st.sampled_from([1, 2, 4]),
)
def test_splitting_twice_is_splitting_once(layers: int, width: int, tokens: int, first: int, second: int) -> None:
    whole = gpt(layers, 24 * width, 24, tokens, 100)
    once, twice = whole.tensor_parallel(first * second), whole.tensor_parallel(first).tensor_parallel(second)
    for name in ("flops_fwd", "in_bytes", "out_bytes", "stored_bytes", "cut_bytes", "weight_params", "inner_bytes"):
        np.testing.assert_allclose(getattr(once, name), getattr(twice, name), rtol=1e-9, err_msg=name)
    assert once.heads == twice.heads == 24 // (first * second)


def test_one_gpu_changes_nothing() -> None:
    assert zoo_graph("resnet50").tensor_parallel(1) is zoo_graph("resnet50")


def test_heads_are_not_cut_in_two() -> None:
    with pytest.raises(PerformanceError, match=r"25 attention heads[\s\S]*1, 5, 25"):
        zoo_graph("gpt2-1.5b").tensor_parallel(8)


def test_groups_of_heads_that_share_keys_are_not_cut_either() -> None:
    """Mixtral has 32 heads in 8 groups."""
    assert zoo_graph("mixtral-8x7b").tensor_parallel(8).heads == 1
    with pytest.raises(PerformanceError, match="8 attention heads"):
        zoo_graph("mixtral-8x7b").tensor_parallel(16)


@pytest.mark.parametrize(("model", "ways"), [("resnet50", 2), ("lstm-lm", 4), ("gpt2-1.5b", 0), ("gpt2-1.5b", -1)])
def test_what_cannot_be_split_is_refused(model: str, ways: int) -> None:
    """Repeating a convolutional network on each GPU would only waste GPUs: said, not done in silence."""
    with pytest.raises(PerformanceError, match="tensor parallelism"):
        zoo_graph(model).tensor_parallel(ways)


def test_times_measured_whole_say_nothing_of_parts() -> None:
    graph = zoo_graph("gpt2-1.5b")
    times = np.ones(len(graph))
    with pytest.raises(PerformanceError, match="measured"):
        replace(graph, profile=Profile.of_one(times, times, 1, "V100", "a file")).tensor_parallel(5)
