"""The zoo against published sizes, and what a graph promises."""

from __future__ import annotations

import numpy as np
import pytest

from sim.performance import MODELS
from sim.performance.graph import GraphBuilder
from sim.performance.zoo import zoo_graph

PUBLISHED = [
    # model, parameters, forward FLOP a sample (2 a multiply-add), source
    # torchvision's model table: 25,557,032 parameters, 4.09 G multiply-adds; 138,357,544 and 15.47.
    ("resnet50", 25_557_032, 2 * 4.09e9),
    ("vgg16", 138_357_544, 2 * 15.47e9),
    # Devlin et al. 2019: 340 M; Clark et al. 2020 (ELECTRA, table 1): 7.9e10 FLOP forward on 128 tokens.
    ("bert-large", 340e6, 7.9e10),
    # Radford et al. 2019: 1,542 M. FLOP: Narayanan et al. 2021, whose 96 B s l h^2 (1 + s/6h + V/16lh) counts
    # two forward passes and one backward of twice the size: a quarter of it is one forward pass.
    ("gpt2-1.5b", 1542e6, 24 * 1024 * 48 * 1600**2 * (1 + 1024 / (6 * 1600) + 50257 / (16 * 48 * 1600))),
    # Zaremba et al. 2014, 'large': 66 M (also Press and Wolf 2017). FLOP: two a weight but the embedding's.
    ("lstm-lm", 66e6, 2 * 35 * (66.02e6 - 15e6)),
]


@pytest.mark.parametrize(("model", "params", "flops"), PUBLISHED)
def test_sizes_are_the_published_ones(model: str, params: float, flops: float) -> None:
    graph = zoo_graph(model)
    assert graph.weight_params.sum() == pytest.approx(params, rel=0.02)
    assert graph.flops_fwd.sum() == pytest.approx(flops, rel=0.02)


def test_sizes_that_are_known_exactly() -> None:
    """The checkpoints that people load: BERT has a classifier of 2,050 parameters on top."""
    assert zoo_graph("resnet50").weight_params.sum() == 25_557_032
    assert zoo_graph("vgg16").weight_params.sum() == 138_357_544
    assert zoo_graph("bert-large").weight_params.sum() == 335_141_888 + 2_050
    assert zoo_graph("gpt2-1.5b").weight_params.sum() == 1_557_611_200


def test_transformer_base_is_three_percent_below_the_papers_65_million() -> None:
    """By the paper's own shapes (N = 6, 512, 2048, one vocabulary of 37,000) it has 63.1 M, not 65 M.

    Six layers each way without embeddings: 44,138,496 (torch.nn.Transformer adds two final norms of 1,024).
    """
    params = zoo_graph("transformer").weight_params.sum()
    assert params == 44_138_496 + 37_000 * 512
    assert 0.02 < 1 - params / 65e6 < 0.03


def test_a_transformer_layer_stores_what_korthikanti_et_al_count() -> None:
    """s h (34 + 5 a s / h) bytes a layer without recomputation (arXiv:2205.05198, equation 1)."""
    graph = zoo_graph("gpt2-1.5b")
    layer = [i for i, op in enumerate(graph.ops) if op.startswith(("7.attention", "7.fc", "7.act", "7.norm"))]
    expected = 1024 * 1600 * (34 + 5 * 25 * 1024 / 1600)
    assert graph.stored_bytes[layer].sum() == pytest.approx(expected, rel=1e-12)


def test_what_crosses_a_cut_by_hand() -> None:
    """a -> b -> c with a skip from a to c: after b both a's and b's outputs cross."""
    build = GraphBuilder("toy", "a number", 2)
    a = build.add("a", "gemm", (-1,), 10)
    b = build.add("b", "gemm", (a,), 3)
    build.add("c", "elementwise", (b, a), 1)
    graph = build.build()
    assert graph.cut_bytes.tolist() == [20.0, 26.0, 0.0]
    assert graph.in_bytes.tolist() == [2.0, 20.0, 26.0]


def test_a_skip_connection_crosses_the_cuts_inside_its_block() -> None:
    """Second block of the first group: 256 channels of 56 x 56 go round, 64 go through."""
    graph = zoo_graph("resnet50")
    inside, end = graph.ops.index("layer1.1.bn1"), graph.ops.index("layer1.1.add")
    assert graph.cut_bytes[inside] == 2 * 56**2 * (64 + 256)
    assert graph.cut_bytes[end] == 2 * 56**2 * 256


def test_the_encoder_s_output_crosses_the_whole_decoder() -> None:
    graph = zoo_graph("transformer")
    tensor = 2 * 64 * 512
    first, last = graph.ops.index("decoder.0.norm1"), graph.ops.index("decoder.5.norm1")
    # Before the cross-attention of the last layer: its own tensor and the encoder's output.
    assert graph.cut_bytes[first] == graph.cut_bytes[last] == 2 * tensor
    assert graph.cut_bytes[graph.ops.index("decoder.5.norm3")] == tensor


@pytest.mark.parametrize("model", MODELS)
def test_a_graph_is_in_topological_order_and_read_only(model: str) -> None:
    graph = zoo_graph(model)
    assert all(source < i for i, sources in enumerate(graph.inputs) for source in sources)
    assert graph.cut_bytes[-1] == 0 and (graph.cut_bytes[:-1] > 0).all()
    assert len(set(graph.ops)) == len(graph)
    for array in (graph.flops_fwd, graph.cut_bytes, graph.stored_bytes):
        assert array.dtype == np.float64 and not array.flags.writeable
    assert all(size >= 1 for size in MODELS[model].gpu_batch_sizes)
