"""The zoo against published sizes, and what a graph promises."""

from __future__ import annotations

import numpy as np
import pytest

from sim.performance import MODELS
from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.zoo import zoo_graph
from sim.performance.zoo.language import gpt
from sim.performance.zoo.nasnet import nasnet_large

G = 1e9


def gpt_flops(layers: int, hidden: int, tokens: int, vocabulary: int) -> float:
    """Narayanan et al. 2021 (arXiv:2104.04473), equation 3: 96 B s l h^2 (1 + s/6h + V/16lh). It counts layers four
    times (forward, forward again, twice backward), logits three times; here each once.
    """
    layer_flops = 96 * tokens * layers * hidden**2 * (1 + tokens / (6 * hidden))
    return layer_flops / 4 + 96 * tokens * hidden * vocabulary / 16 / 3


def token_flops(active: float, layers: int, hidden: int, tokens: int) -> float:
    """Chowdhery et al. 2022 (PaLM, arXiv:2204.02311), appendix B, forward: 2 N + 4 L H Q T for each token.

    N without the input table, which is looked up.
    """
    return tokens * (2 * active + 4 * layers * hidden * tokens)


#: model, parameters, forward FLOP a sample (2 a multiply-add). FLOP are of matrix products; attention is counted in
#: full, whether masked or not.
PUBLISHED = [
    # torchvision's weights: `num_params`, and `_ops` in 1e9 multiply-adds.
    ("alexnet", 61_100_840, 2 * 0.714 * G),
    ("vgg16", 138_357_544, 2 * 15.47 * G),
    ("resnet18", 11_689_512, 2 * 1.814 * G),
    ("resnet50", 25_557_032, 2 * 4.089 * G),
    ("resnet152", 60_192_808, 2 * 11.514 * G),
    ("densenet121", 7_978_856, 2 * 2.834 * G),
    # The same; its operations are without the auxiliary classifier, 0.1 % of them.
    ("inception-v3", 27_161_264, 2 * 5.713 * G),
    # Zoph et al. 2018 (arXiv:1707.07012), tables 2 and 3: parameters and multiply-adds.
    ("nasnet-large", 88.9e6, 2 * 23.8 * G),
    ("nasnet-mobile", 5.3e6, 2 * 0.564 * G),
    # Devlin et al. 2019: 110 M, 340 M. Jiao et al. 2020 (TinyBERT, arXiv:1909.10351), table 1: 109 M, 22.5e9 FLOP
    # on 128 tokens. Clark et al. 2020 (ELECTRA, arXiv:2003.10555), table 1: 7.9e10 for the large one.
    ("bert-base", 110e6, 22.5 * G),
    ("bert-large", 340e6, 79 * G),
    # On other lengths by equation 3 without its vocabulary: no word is predicted.
    ("bert-base-512", 110e6, gpt_flops(12, 768, 512, 0)),
    ("bert-large-512", 340e6, gpt_flops(24, 1024, 512, 0)),
    ("bert-base-384", 110e6, gpt_flops(12, 768, 384, 0)),
    # Radford et al. 2019: 1,542 M. Brown et al. 2020 (arXiv:2005.14165), table D.1: 6,660 M and 12,850 M.
    ("gpt2-1.5b", 1542e6, gpt_flops(48, 1600, 1024, 50257)),
    ("gpt3-6.7b", 6660e6, gpt_flops(32, 4096, 2048, 50257)),
    ("gpt3-13b", 12850e6, gpt_flops(40, 5120, 2048, 50257)),
    # The checkpoints: Llama 2 7B; Mixtral 8x7B has 46.7e9, of which 12.9e9 are used for a token (Mistral AI 2023).
    ("llama-7b", 6_738_415_616, token_flops(6.738e9 - 32000 * 4096, 32, 4096, 4096)),
    ("mixtral-8x7b", 46.7e9, token_flops(12.9e9 - 32000 * 4096, 32, 4096, 4096)),
    # Zaremba et al. 2014, 'large': 66 M (also Press and Wolf 2017). FLOP: two a weight but the embedding's.
    ("lstm-lm", 66e6, 2 * 35 * (66.02e6 - 15e6)),
    # Parameters as MLPerf's GNMT prints them. FLOP by hand: two a weight and word, but the table's, and attention.
    ("gnmt-8", 160_671_297, 2 * 50 * (160.67e6 - 32320 * 1024) + 4 * 50**2 * 1024),
    # Four more layers on each side, of 1,024 + 1,024 and 2,048 + 1,024 inputs and states and two biases.
    (
        "gnmt-16",
        160_671_297 + 4 * 4 * 1024 * (2048 + 2 + 3072 + 2),
        2 * 50 * (160.67e6 + 4 * 4 * 1024 * (2048 + 3072) - 32320 * 1024) + 4 * 50**2 * 1024,
    ),
    # Redmon and Farhadi 2018 (their page): 65.86e9 operations on 416 x 416. Ultralytics prints the parameters.
    ("yolov3", 61_949_149, 65.86 * G),
    # pytorch-cifar, whose model it is: 11,173,962 parameters. FLOP by hand: 4 + 3 x 3.5 convolutions as large as the
    # first group's, the one that enters, three that go round, the classifier.
    (
        "resnet18-cifar",
        11_173_962,
        2 * (14.5 * 9 * 64**2 * 32**2 + 27 * 64 * 32**2 + 3 * 64 * 128 * 16**2 + 5120),
    ),
    # Naumov et al. 2019 (arXiv:1906.00091), section 5: 540 M. FLOP by hand from the shapes given there.
    (
        "dlrm",
        540e6,
        2 * (13 * 512 + 512 * 256 + 256 * 64 + 64 * 16 + 27**2 * 16 + 367 * 512 + 512 * 256 + 256),
    ),
]

#: By hand from shapes that are given; nobody published totals. Parameters, FLOP.
BY_HAND = [
    # PyTorch's word language model: two tables of 33,278 x 200, one bias, two layers of 8 x 200 x (200 + 1).
    (
        "lstm-wikitext2",
        2 * 33278 * 200 + 33278 + 2 * 8 * 200 * 201,
        2 * 35 * (33278 * 200 + 2 * 8 * 200**2),
    ),
    ("autoencoder-ml20m", 2 * 20108 * 200 + 200 + 20108, 4 * 20108 * 200),
    # He et al. 2017: both tables, three layers with biases, the score.
    (
        "neumf",
        (6040 + 3706) * (32 + 128) + 256 * 128 + 128 + 128 * 64 + 64 + 64 * 32 + 32 + 65,
        2 * (256 * 128 + 128 * 64 + 64 * 32 + 64),
    ),
    # Six layers each way (see below) and two tables, the target's for its output too.
    (
        "transformer-multi30k",
        44_138_496 + (2911 + 3149) * 512,
        2 * 30 * (6 * 12 * 512**2 + 6 * 16 * 512**2 + 3149 * 512) + 18 * 4 * 30**2 * 512,
    ),
    ("transformer", 44_138_496 + 37000 * 512, 2 * 64 * (6 * 28 * 512**2 + 37000 * 512) + 18 * 4 * 64**2 * 512),
    (
        "transformer-big",
        6 * (12 * 1024**2 + 13 * 1024) + 6 * (16 * 1024**2 + 19 * 1024) + 37000 * 1024,
        2 * 64 * (6 * 28 * 1024**2 + 37000 * 1024) + 18 * 4 * 64**2 * 1024,
    ),
]

#: Narayanan et al. 2021, table 1: layers, hidden size, heads, billions of parameters. 2,048 tokens, 51,200 words.
MEGATRON = [
    (24, 2304, 24, 1.7),
    (30, 3072, 32, 3.6),
    (36, 4096, 32, 7.5),
    (40, 6144, 48, 18.4),
    (48, 8192, 64, 39.1),
    (60, 10240, 80, 76.1),
    (80, 12288, 96, 145.6),
]


@pytest.mark.parametrize(("model", "params", "flops"), PUBLISHED)
def test_sizes_are_the_published_ones(model: str, params: float, flops: float) -> None:
    graph = zoo_graph(model)
    assert graph.params == pytest.approx(params, rel=0.02)
    assert graph.flops_fwd_total == pytest.approx(flops, rel=0.02)


@pytest.mark.parametrize(("model", "params", "flops"), BY_HAND)
def test_sizes_by_hand(model: str, params: float, flops: float) -> None:
    graph = zoo_graph(model)
    assert graph.params == params
    assert graph.flops_fwd_total == pytest.approx(flops, rel=1e-12)


def test_every_model_is_compared_with_something() -> None:
    assert set(MODELS) == {row[0] for row in (*PUBLISHED, *BY_HAND)}


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("resnet50", 25_557_032),
        ("vgg16", 138_357_544),
        ("inception-v3", 27_161_264),
        ("densenet121", 7_978_856),
        ("gpt2-1.5b", 1_557_611_200),
        ("llama-7b", 6_738_415_616),
        ("mixtral-8x7b", 46_702_792_704),
        ("gnmt-8", 160_671_297),
        ("yolov3", 61_949_149),
        # A classifier of two classes on top of the checkpoints' 109,482,240 and 335,141,888.
        ("bert-base", 109_482_240 + 1_538),
        ("bert-large", 335_141_888 + 2_050),
        # The converted checkpoints (timm's nasnetalarge has 88.75 M), without statistics of normalisations.
        ("nasnet-large", 88_753_150),
        ("nasnet-mobile", 5_289_978),
    ],
)
def test_sizes_that_are_known_exactly(model: str, params: int) -> None:
    assert zoo_graph(model).params == params


@pytest.mark.parametrize(("layers", "hidden", "heads", "billions"), MEGATRON)
def test_gpt_of_any_size_has_the_parameters_of_megatron_s_table(
    layers: int, hidden: int, heads: int, billions: float
) -> None:
    graph = gpt(layers, hidden, heads, 2048, 51200)
    assert round(graph.params / 1e9, 1) == billions
    assert graph.flops_fwd_total == pytest.approx(gpt_flops(layers, hidden, 2048, 51200), rel=1e-12)
    exact = 12 * layers * hidden**2 + 13 * layers * hidden + (51200 + 2048) * hidden + 2 * hidden
    assert graph.params == exact


def test_transformer_base_is_three_percent_below_the_papers_65_million() -> None:
    """By the paper's own shapes (N = 6, 512, 2048, one vocabulary of 37,000) it has 63.1 M, not 65 M. The big one
    has 214.2 M by shapes and 213 M in the paper.

    Six layers each way without embeddings: 44,138,496 (torch.nn.Transformer adds two final norms of 1,024).
    """
    params = zoo_graph("transformer").params
    assert params == 44_138_496 + 37_000 * 512
    assert 0.02 < 1 - params / 65e6 < 0.03
    assert zoo_graph("transformer-big").params == pytest.approx(213e6, rel=0.02)


def test_a_transformer_layer_stores_what_korthikanti_et_al_count() -> None:
    """s h (34 + 5 a s / h) bytes a layer without recomputation (arXiv:2205.05198, equation 1)."""
    graph = zoo_graph("gpt2-1.5b")
    layer = [i for i, op in enumerate(graph.ops) if op.startswith(("7.attention", "7.fc", "7.act", "7.norm"))]
    expected = 1024 * 1600 * (34 + 5 * 25 * 1024 / 1600)
    assert graph.stored_bytes[layer].sum() == pytest.approx(expected, rel=1e-12)


def test_experts_are_all_in_memory_but_only_two_of_eight_work() -> None:
    graph = zoo_graph("mixtral-8x7b")
    experts = np.array(["experts.fc" in op for op in graph.ops])
    weights = graph.weight_params[experts].sum()
    assert weights == 32 * 8 * 3 * 4096 * 14336
    assert graph.flops_fwd[experts].sum() == 2 * 4096 * weights * 2 / 8


def test_only_tables_of_clicks_have_sparse_gradients() -> None:
    """Word embeddings have dense ones by default in the frameworks: they are summed whole."""
    dlrm = zoo_graph("dlrm")
    assert dlrm.sparse_params.sum() == 33_762_577 * 16 > 0.99 * dlrm.params
    assert (dlrm.sparse_params <= dlrm.weight_params).all()
    assert not any(zoo_graph(name).sparse_params.any() for name in MODELS if name != "dlrm")


def test_what_crosses_a_cut_by_hand() -> None:
    """a -> b -> c with a skip from a to c: after b both a's and b's outputs cross."""
    build = GraphBuilder("toy", "a number", 2)
    a = build.add("a", "gemm", (-1,), 10, flops=5)
    b = build.add("b", "gemm", (a,), 3, flops=7)
    build.add("c", "elementwise", (b, a), 1)
    graph = build.build()
    assert graph.cut_bytes.tolist() == [20.0, 26.0, 0.0]
    assert graph.in_bytes.tolist() == [2.0, 20.0, 26.0]
    assert graph.flops_bwd.tolist() == [10.0, 14.0, 0.0]


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


def crossing(graph: OperatorGraph) -> np.ndarray:
    """By definition: after operator i, each output made so far that is read later, once."""
    last = np.full(len(graph), -1)
    for reader, sources in enumerate(graph.inputs):
        last[[s for s in sources if s >= 0]] = reader
    made = np.arange(len(graph))
    return np.array([graph.out_bytes[(made <= i) & (last > i)].sum() for i in made])


@pytest.mark.parametrize("model", MODELS)
def test_a_graph_is_in_topological_order_consistent_and_read_only(model: str) -> None:
    graph = zoo_graph(model)
    assert all(source < i for i, sources in enumerate(graph.inputs) for source in sources)
    assert graph.cut_bytes[-1] == 0 and (graph.cut_bytes[:-1] > 0).all()
    np.testing.assert_allclose(graph.cut_bytes, crossing(graph), rtol=1e-12)
    assert len(set(graph.ops)) == len(graph)
    for array in (graph.flops_fwd, graph.cut_bytes, graph.stored_bytes):
        assert array.dtype == np.float64 and not array.flags.writeable
    assert all(size >= 1 for size in MODELS[model].gpu_batch_sizes)


@pytest.mark.parametrize("model", MODELS)
def test_every_operator_works_for_the_loss(model: str) -> None:
    """Each reads something, and all but the last, the loss, are read."""
    graph = zoo_graph(model)
    read = {source for sources in graph.inputs for source in sources}
    assert all(graph.inputs) and -1 in read
    assert read - {-1} == set(range(len(graph) - 1))
    assert graph.ops[-1] == "loss"


@pytest.mark.parametrize("model", MODELS)
def test_blocks_never_fall_and_leave_none_out(model: str) -> None:
    steps = np.diff(zoo_graph(model).block)
    assert zoo_graph(model).block[0] == 0
    assert set(steps.tolist()) <= {0, 1}


@pytest.mark.parametrize(("model", "tensor_bytes"), [("gpt3-6.7b", 2 * 2048 * 4096), ("bert-base", 2 * 128 * 768)])
def test_between_layers_of_a_transformer_one_tensor_crosses(model: str, tensor_bytes: int) -> None:
    graph = zoo_graph(model)
    ends = np.flatnonzero(np.diff(graph.block))
    assert graph.cut_bytes[ends].tolist() == [tensor_bytes] * len(ends)


def test_generated_traces_draw_the_same_six_models_as_ever() -> None:
    drawn = {name for name, model in MODELS.items() if model.gpu_batch_sizes}
    assert drawn == {"resnet50", "vgg16", "bert-large", "gpt2-1.5b", "transformer", "lstm-lm"}


def test_the_largest_graph_has_1123_operators() -> None:
    assert len(nasnet_large()) == 1123
