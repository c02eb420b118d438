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
    "mixtral-8x7b": 46_702_792_704,
}  # fmt: skip
"""Parameters of the checkpoints that their authors released."""


@pytest.mark.parametrize("model", PUBLISHED)
def test_r3_11_sizes_give_published_parameters(model):
    assert zoo_graph(model).params == PUBLISHED[model]


def test_gpt3_has_the_parameters_of_its_paper():
    """Brown et al. 2020, table D.1: 174,600 million."""
    assert zoo_graph("gpt3-175b").params == pytest.approx(174_600e6, rel=1e-3)


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
    ("llama-7b(chosen=2)", "up to 1, the experts"), ("lama-7b(tokens=5)", "unknown model"),
])  # fmt: skip
def test_r3_11_sizes_that_make_no_sense_are_told_by_name(model, word):
    with pytest.raises(PerformanceError) as told:
        Performance().resolve(model)
    assert word in str(told.value)
