"""ONNX models, made here: FLOPs, parameters and bytes by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sim.performance import PerformanceError
from sim.performance.readers import read_graph, read_onnx
from tests.performance.onnxmodels import FLOAT, INT64, by_name, made, read, zeros


def _conv_net(batch: int | str) -> ModelProto:
    """conv 3 -> 8, normalisation, ReLU, conv 8 -> 8 with a residual around it, pooling, classifier of 10."""
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", **conv),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "bn"),
        helper.make_node("Relu", ["n1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", **conv),
        helper.make_node("Add", ["c2", "r1"], ["a"], "add"),
        helper.make_node("GlobalAveragePool", ["a"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1),
    ]
    weights = zeros(
        w1=(8, 3, 3, 3), scale=(8,), shift=(8,), mean=(8,), var=(8,), w2=(8, 8, 3, 3), b2=(8,), w3=(10, 8), b3=(10,)
    )
    return made(nodes, {"x": (FLOAT, [batch, 3, 16, 16])}, {"y": (FLOAT, [batch, 10])}, weights)


def test_a_small_residual_net_is_what_one_counts_by_hand(tmp_path):
    graph = read(tmp_path, _conv_net("batch"))
    pixels = 16 * 16
    assert graph.ops == ("conv1", "bn", "relu", "conv2", "add", "pool", "fc")
    assert graph.kind == ("conv", "norm", "elementwise", "conv", "elementwise", "pool", "gemm")
    assert graph.inputs == ((-1,), (0,), (1,), (2,), (3, 2), (4,), (5,))
    flops = {"conv1": 2 * 27 * 8 * pixels, "conv2": 2 * 72 * 8 * pixels, "fc": 2 * 8 * 10}
    assert by_name(graph, "flops_fwd") == {name: flops.get(name, 0) for name in graph.ops}
    params = {"conv1": 216, "bn": 16, "conv2": 584, "fc": 90}
    assert by_name(graph, "weight_params") == {name: params.get(name, 0) for name in graph.ops}
    assert by_name(graph, "out_bytes")["conv1"] == 2 * 8 * pixels
    assert graph.in_bytes[0] == 2 * 3 * pixels


def test_a_tensor_that_two_operators_need_backward_is_kept_once(tmp_path):
    graph = read(tmp_path, _conv_net(1))
    kept = by_name(graph, "stored_bytes")
    # The ReLU keeps its output; the convolution that reads it needs the same tensor.
    assert kept["relu"] == 2 * 8 * 256
    assert kept["conv2"] == 0
    assert kept["fc"] == 2 * 8


@pytest.mark.parametrize("column", ["flops_fwd", "in_bytes", "out_bytes", "stored_bytes", "weight_params", "cut_bytes"])
def test_costs_are_for_one_sample_whatever_batch_the_file_has(tmp_path, column):
    one, many = read(tmp_path, _conv_net(1)), read(tmp_path, _conv_net(32))
    np.testing.assert_allclose(getattr(many, column), getattr(one, column), rtol=1e-12)


def test_a_perceptron_of_matrix_products_and_biases(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "fc1"),
        helper.make_node("Add", ["h", "b1"], ["hb"], "bias"),
        helper.make_node("Relu", ["hb"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], "fc2"),
    ]
    model = made(
        nodes,
        {"x": (FLOAT, ["n", 20])},
        {"y": (FLOAT, ["n", 5])},
        zeros(w1=(20, 30), b1=(30,), w2=(30, 5)),
    )
    graph = read(tmp_path, model)
    assert graph.kind == ("gemm", "elementwise", "elementwise", "gemm")
    assert graph.flops_fwd.tolist() == [2 * 20 * 30, 0, 0, 2 * 30 * 5]
    assert graph.weight_params.tolist() == [600, 30, 0, 150]


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_multiplies_at_each_step_in_each_direction(tmp_path, op, gates):
    steps, batch, width, hidden = 7, 4, 6, 5
    direction = "bidirectional"
    model = made(
        [helper.make_node(op, ["x", "w", "r"], ["y", "last"], "rnn", hidden_size=hidden, direction=direction)],
        {"x": (FLOAT, [steps, batch, width])},
        {"y": (FLOAT, [steps, 2, batch, hidden])},
        zeros(w=(2, gates * hidden, width), r=(2, gates * hidden, hidden)),
    )
    graph = read(tmp_path, model, batch_axis=1)
    assert graph.kind == ("lstm",)
    assert graph.flops_fwd.tolist() == [2 * steps * 2 * gates * hidden * (width + hidden)]
    assert graph.weight_params.tolist() == [2 * gates * hidden * (width + hidden)]
    assert graph.launches.tolist() == [2 * steps]


def _transformer_block(batch: int | str, seq: int | str = 9) -> ModelProto:
    """Tokens, embedding of 100 x 16, attention with 4 heads, residual, normalisation, output by the same table."""
    ints = {"heads": [0, -1, 4, 4], "merge": [0, -1, 16]}
    shapes = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in ints.items()]
    scale = numpy_helper.from_array(np.array(0.5, np.float32), "scale")

    def head(name, perm):
        return [
            helper.make_node("MatMul", ["e", f"w{name}"], [f"{name}0"], f"{name}"),
            helper.make_node("Reshape", [f"{name}0", "heads"], [f"{name}1"], f"{name}_heads"),
            helper.make_node("Transpose", [f"{name}1"], [f"{name}2"], f"{name}_turn", perm=perm),
        ]

    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["e"], "embed"),
        *head("q", [0, 2, 1, 3]),
        *head("k", [0, 2, 3, 1]),
        *head("v", [0, 2, 1, 3]),
        helper.make_node("MatMul", ["q2", "k2"], ["s"], "scores"),
        helper.make_node("Mul", ["s", "scale"], ["ss"], "scaled"),
        helper.make_node("Softmax", ["ss"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v2"], ["z"], "mix"),
        helper.make_node("Transpose", ["z"], ["z2"], "back", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["z2", "merge"], ["z3"], "merged"),
        helper.make_node("MatMul", ["z3", "wo"], ["o"], "out"),
        helper.make_node("Add", ["o", "e"], ["res"], "residual"),
        helper.make_node("LayerNormalization", ["res", "gain", "bias"], ["n"], "norm", axis=-1),
        helper.make_node("Transpose", ["table"], ["table_t"], "tied", perm=[1, 0]),
        helper.make_node("MatMul", ["n", "table_t"], ["y"], "logits"),
    ]
    weights = zeros(table=(100, 16), wq=(16, 16), wk=(16, 16), wv=(16, 16), wo=(16, 16), gain=(16,), bias=(16,))
    return made(nodes, {"tokens": (INT64, [batch, seq])}, {"y": (FLOAT, [batch, seq, 100])}, [*weights, *shapes, scale])


def test_attention_is_two_products_of_activations(tmp_path):
    graph = read(tmp_path, _transformer_block("batch"))
    kinds = dict(zip(graph.ops, graph.kind, strict=True))
    assert [name for name, kind in kinds.items() if kind == "attention"] == ["scores", "mix"]
    assert kinds["embed"] == "embedding"
    assert kinds["softmax"] == "norm"
    flops = by_name(graph, "flops_fwd")
    assert flops["q"] == flops["out"] == 2 * 9 * 16 * 16
    assert flops["scores"] == flops["mix"] == 2 * 4 * 9 * 9 * 4
    assert flops["logits"] == 2 * 9 * 16 * 100
    assert flops["embed"] == 0


def test_views_and_constants_are_no_operators(tmp_path):
    graph = read(tmp_path, _transformer_block("batch"))
    assert not {"q_heads", "merged", "tied"} & set(graph.ops)
    # What reads a view reads the operator behind it.
    assert graph.ops[graph.inputs[graph.ops.index("out")][0]] == "back"


def test_a_table_that_embeds_and_classifies_is_counted_once(tmp_path):
    graph = read(tmp_path, _transformer_block("batch"))
    params = by_name(graph, "weight_params")
    assert params["embed"] == 1600
    assert params["logits"] == 0
    # The scale has no dimension: it is not trained.
    assert graph.weight_params.sum() == 1600 + 4 * 256 + 32


def test_tokens_count_their_own_width_and_values_that_of_mixed_precision(tmp_path):
    graph = read(tmp_path, _transformer_block("batch"))
    assert graph.in_bytes[0] == 9 * 8
    assert graph.out_bytes[0] == 9 * 16 * 2


def test_a_symbolic_dimension_needs_a_size(tmp_path):
    model = _transformer_block("batch", "seq")
    with pytest.raises(PerformanceError, match=r"dimension 1 of input 'tokens' has no size; got 'seq'.*dims="):
        read(tmp_path, model)
    graph = read(tmp_path, model, dims={"seq": 9})
    np.testing.assert_array_equal(graph.flops_fwd, read(tmp_path, _transformer_block(1)).flops_fwd)


def test_read_graph_knows_onnx_by_its_content(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(_conv_net(2).SerializeToString())
    assert len(read_graph(path)) == 7


def test_einsum_and_transposed_convolution_count_their_multiplications(tmp_path):
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["t"], "up", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Einsum", ["t", "m"], ["y"], "mix", equation="bchw,cd->bdhw"),
    ]
    model = made(nodes, {"x": (FLOAT, [2, 3, 4, 4])}, {"y": (FLOAT, [2, 7, 8, 8])}, zeros(w=(3, 5, 2, 2), m=(5, 7)))
    graph = read(tmp_path, model)
    assert graph.flops_fwd.tolist() == [2 * 3 * 16 * 5 * 4, 2 * 64 * 5 * 7]


def test_grouped_convolution_reads_only_its_group(tmp_path):
    node = helper.make_node("Conv", ["x", "w"], ["y"], "depthwise", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=6)
    model = made([node], {"x": (FLOAT, [1, 6, 8, 8])}, {"y": (FLOAT, [1, 6, 8, 8])}, zeros(w=(6, 1, 3, 3)))
    assert read(tmp_path, model).flops_fwd.tolist() == [2 * 9 * 6 * 64]


def _custom(op: str) -> ModelProto:
    """A node of a domain of which the reader knows nothing."""
    nodes = [helper.make_node(op, ["x"], ["h"], "odd", domain="my.own"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    value = (FLOAT, ["n", 8])
    model = made(nodes, {"x": value}, {"y": value})
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("h", *value))
    return model


def test_an_unknown_operator_is_elementwise_and_said_so(tmp_path):
    with pytest.warns(UserWarning, match="taken for elementwise operators: Wobble"):
        graph = read(tmp_path, _custom("Wobble"))
    assert graph.kind == ("elementwise", "elementwise")
    assert graph.out_bytes.tolist() == [16, 16]


def test_an_unknown_operator_with_arithmetic_is_refused(tmp_path):
    with pytest.raises(PerformanceError, match=r"node 'odd': .*arithmetic.*MyFusedMatMul"):
        read(tmp_path, _custom("MyFusedMatMul"))


def test_an_unknown_shape_names_the_node(tmp_path):
    model = _custom("Wobble")
    del model.graph.value_info[:]
    with pytest.raises(PerformanceError, match=r"node 'odd': the shape of a tensor is unknown; got 'h'"):
        read(tmp_path, model)


def test_control_flow_is_refused(tmp_path):
    def branch(name):
        node = helper.make_node("Relu", ["x"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, FLOAT, [1, 4])])

    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch("a"), else_branch=branch("b"))
    compare = helper.make_node("Cast", ["x0"], ["c"], "cast", to=TensorProto.BOOL)
    inputs = {"x": (FLOAT, [1, 4]), "x0": (FLOAT, [1])}
    with pytest.raises(PerformanceError, match=r"node 'choice': control flow"):
        read(tmp_path, made([compare, node], inputs, {"y": (FLOAT, [1, 4])}))


def test_inputs_of_different_batches_are_refused(tmp_path):
    node = helper.make_node("MatMul", ["a", "b"], ["y"], "product")
    model = made([node], {"a": (FLOAT, [3, 4]), "b": (FLOAT, [4, 5])}, {"y": (FLOAT, [3, 5])})
    with pytest.raises(PerformanceError, match="do not have one batch size in dimension 0"):
        read(tmp_path, model)


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    model = made([node], {"x": (FLOAT, [3, 4])}, {"y": (FLOAT, [3, 5])}, zeros(w=(6, 5)))
    with pytest.raises(PerformanceError, match=r"made\.onnx: the shapes of an ONNX model cannot be inferred"):
        read(tmp_path, model)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Relu", ["nowhere"], ["y"])], "reads what no node before it makes|cannot be inferred"),
        ([("Relu", ["h"], ["y"]), ("Relu", ["y"], ["h"])], "reads what no node before it makes|cannot be inferred"),
        ([("Relu", ["x"], ["y"]), ("Tanh", ["x"], ["y"])], "two nodes make the same tensor|cannot be inferred"),
        ([("Conv", ["x"], ["y"])], "lacks inputs|cannot be inferred"),
    ],
    ids=["unknown tensor", "cycle", "made twice", "too few inputs"],
)
def test_broken_models_are_refused_with_the_file(tmp_path, nodes, message):
    broken = [helper.make_node(op, reads, outs, f"n{i}") for i, (op, reads, outs) in enumerate(nodes)]
    value = (FLOAT, [1, 4])
    with pytest.raises(PerformanceError, match=message) as error:
        read(tmp_path, made(broken, {"x": value}, {"y": value}))
    assert "made.onnx" in error.value.where


@pytest.mark.parametrize("cut", [10, 100, 200])
def test_a_truncated_model_is_refused(tmp_path, cut):
    path = tmp_path / "cut.onnx"
    path.write_bytes(_conv_net(1).SerializeToString()[:cut])
    with pytest.raises(PerformanceError, match=r"cut\.onnx"):
        read_graph(path)


@settings(max_examples=150)
@given(st.binary(min_size=1, max_size=12), st.floats(0, 1))
def test_no_damaged_model_ends_in_a_traceback(tmp_path_factory, noise, at):
    path = tmp_path_factory.mktemp("fuzz") / "model.onnx"
    for base in (_conv_net(2).SerializeToString(), _transformer_block(2).SerializeToString()):
        start = int(at * len(base))
        path.write_bytes(base[:start] + noise + base[start + len(noise) :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                graph = read_onnx(path)
            except PerformanceError as error:
                assert str(path) in str(error)
            else:
                assert np.isfinite(graph.flops_fwd).all()
                assert (graph.out_bytes >= 0).all()


def test_a_model_without_sample_is_refused(tmp_path):
    node = helper.make_node("Relu", ["w"], ["y"], "relu")
    model = made([node], {"x": (FLOAT, [1, 4])}, {"y": (FLOAT, [3])}, zeros(w=(3,)))
    with pytest.raises(PerformanceError, match="no operator that depends on its input"):
        read(tmp_path, model)


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    monkeypatch.setattr("sim.performance.readers.onnx_graph.find_spec", lambda name: None)
    with pytest.raises(PerformanceError, match=r"hetsim\[onnx\]"):
        read_graph(tmp_path / "model.onnx")
