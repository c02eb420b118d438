"""Models by their sizes: published parameters, the same graphs as the zoo's, and what is refused (R3-11)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sim.performance import MODELS, Performance, PerformanceError
from sim.performance.zoo import zoo_graph
from sim.performance.zoo.families import NAMED, sized_graph, with_tokens

PUBLISHED = {
    "gpt2-124m": 124_439_808, "gpt2-355m": 354_823_168, "gpt2-774m": 774_030_080, "gpt2-1.5b": 1_557_611_200,
    "llama-7b": 6_738_415_616, "llama-13b": 13_015_864_320, "llama-70b": 68_976_648_192,
    "mixtral-8x7b": 46_702_792_704, "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
}  # fmt: skip
"""Parameters of the checkpoints that their authors released."""


@pytest.mark.parametrize("model", PUBLISHED)
def test_r3_11_sizes_give_published_parameters(model):
    assert zoo_graph(model).params == PUBLISHED[model]


def test_gpt3_has_the_parameters_of_its_paper():
    """Brown et al. 2020, table D.1: 174,600 million."""
    assert zoo_graph("gpt3-175b").params == pytest.approx(174_600e6, rel=1e-3)


def test_tables_of_recommenders_have_any_size_and_are_an_operator_each():
    """MLPerf's DLRM: 204,184,588 rows of 128, 104.5 GB in single precision, beside the layers' weights and biases."""
    graph = zoo_graph("dlrm-1tb")
    bottom = [(13, 512), (512, 256), (256, 128)]
    top = [(27 * 26 // 2 + 128, 1024), (1024, 1024), (1024, 512), (512, 256), (256, 1)]
    dense = sum(n_in * n_out + n_out for n_in, n_out in (*bottom, *top))
    assert graph.sparse_params.sum() == 204_184_588 * 128
    assert graph.params == 204_184_588 * 128 + dense
    assert sum(name.startswith("tables.") for name in graph.ops) == 26
    half_a_tb = zoo_graph("dlrm(rows=976562500, width=128, tables=64, lookups=20)")
    assert half_a_tb.sparse_params.sum() * 4 == 500e9
    at = half_a_tb.ops.index("tables.0")
    assert half_a_tb.inner_bytes[at] == 20 * 128 * 2
    assert half_a_tb.out_bytes[at] == 128 * 2


def test_a_large_vocabulary_is_a_size():
    """200,064 words more than none: twice their rows of 4,096, looked up and scored."""
    large, small = zoo_graph("llama-7b(vocabulary=200064)"), zoo_graph("llama-7b(vocabulary=64)")
    assert large.params - small.params == 2 * 200_000 * 4096


@pytest.mark.parametrize("model", sorted(set(NAMED) & set(MODELS)))
def test_named_sizes_are_the_graphs_of_the_zoo(model):
    ours, zoo = sized_graph(model), MODELS[model].build()
    for field in dataclasses.fields(zoo):
        one, other = getattr(ours, field.name), getattr(zoo, field.name)
        same = np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
        assert same, field.name


def test_a_shorter_sequence_has_the_same_parameters_and_less_to_do():
    for model in ("llama-7b", "gpt2-1.5b", "bert-large"):
        whole, short = zoo_graph(model), zoo_graph(with_tokens(model, 64))
        assert short.params == whole.params
        assert short.flops_fwd_total < whole.flops_fwd_total
    assert with_tokens("llama(layers=2, hidden=64, heads=4, inner=128,)", 8) == (
        "llama(layers=2, hidden=64, heads=4, inner=128, tokens=8)")  # fmt: skip


def test_a_model_is_known_by_its_sizes_wherever_one_is_named():
    speeds, text = Performance(), "llama(layers=2,hidden=64,heads=4,inner=128)"
    assert speeds.known(text)
    assert speeds.last_op(text) == len(speeds.graph(text)) - 1
    for not_ours in ("A3C (atari)", "ResNet-50 (batch size 64)", "llama", "lama(layers=2)"):
        assert not speeds.known(not_ours)


@pytest.mark.parametrize(("model", "word"), [
    ("llama-7b(tokns=512)", "did you mean 'tokens'"), ("llama-7b(tokens=0)", "impossible tokens"),
    ("llama-7b(tokens=)", "got 'nothing'"), ("llama-7b(tokens=1e3)", "impossible tokens"),
    ("llama-7b(tokens=9999999)", "impossible tokens"), ("llama-7b(tokens=5, tokens=6)", "given twice"),
    ("llama-7b(512)", "no such size"), ("llama(layers=2)", "Give hidden, heads, inner"),
    ("gpt(layers=2, hidden=65, heads=4)", "a divisor of hidden, 65"), ("llama-7b(groups=5)", "a divisor of heads, 32"),
    ("gpt2-1.5b(tokens=2048)", "up to 1024, the positions"), ("bert-base(tokens=513)", "up to 512"),
    ("dlrm(rows=9, width=4)", "up to 9, the rows"), ("dlrm(rows=9)", "Give width"),
    ("dlrm-1tb(heads=2)", "no such size"),
    ("llama-7b(chosen=2)", "up to 1, the experts"), ("lama-7b(tokens=5)", "unknown model"),
])  # fmt: skip
def test_r3_11_sizes_that_make_no_sense_are_told_by_name(model, word):
    with pytest.raises(PerformanceError) as told:
        Performance().resolve(model)
    assert word in str(told.value)
