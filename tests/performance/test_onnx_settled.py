"""ONNX models as exporters write them: sizes and branches that constants decide, weights in nodes, open sizes."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sim.performance import PerformanceError
from sim.performance.readers import read_onnx
from tests.performance.onnxmodels import FLOAT, INT64, by_name, integers, made, read, zeros

node = helper.make_node


def _graph_of(nodes, output: str, rank: int, weights=()):
    return helper.make_graph(
        nodes, f"to_{output}", [], [helper.make_tensor_value_info(output, FLOAT, [None] * rank)], list(weights)
    )


def _squeezed(rows: int) -> ModelProto:
    """PyTorch's `squeeze(1)` between two products: Shape, Gather, Equal, If; the inner name `s` is in both branches."""
    squeeze = _graph_of([node("Squeeze", ["u", "axis"], ["s"], "squeeze")], "s", 2, integers(axis=[1]))
    keep = _graph_of([node("Identity", ["u"], ["s"], "keep")], "s", 3)
    nodes = [
        node("MatMul", ["x", "w1"], ["u"], "first"),
        node("Shape", ["u"], ["sizes"], "shape"),
        node("Gather", ["sizes", "one"], ["size"], "gather"),
        node("Equal", ["size", "one"], ["is_one"], "equal"),
        node("If", ["is_one"], ["v"], "choose", then_branch=squeeze, else_branch=keep),
        node("MatMul", ["v", "w2"], ["y"], "second"),
    ]
    weights = [*zeros(w1=(256, 1024), w2=(1024, 4096)), *integers(one=1)]
    out = ["n", 4096] if rows == 1 else ["n", rows, 4096]
    return made(nodes, {"x": (FLOAT, ["n", rows, 256])}, {"y": (FLOAT, out)}, weights)


@pytest.mark.parametrize("rows", [1, 3])
def test_r3_01_the_branch_that_a_size_decides_is_read_whichever_it_is(tmp_path, rows):
    graph = read(tmp_path, _squeezed(rows))
    assert graph.ops == ("first", "second")
    assert graph.weight_params.sum() == 4_456_448
    assert graph.flops_fwd.sum() == rows * 2 * 4_456_448


def test_r3_01_a_branch_brings_its_operators_its_weights_and_the_ifs_in_it(tmp_path):
    def choice(condition, name, inner):
        other = _graph_of([node("Neg", ["x"], ["n"], "negated")], "n", 2)
        return node("If", [condition], [name], f"if_{name}", then_branch=inner, else_branch=other)

    deep = _graph_of([node("MatMul", ["h", "w"], ["d"], "deep")], "d", 2, zeros(w=(16, 4)))
    shallow = [node("MatMul", ["x", "w"], ["h"], "wide"), choice("yes", "z", deep)]
    yes = numpy_helper.from_array(np.array(True), "yes")
    nodes = [
        choice("yes", "a", _graph_of(shallow, "z", 2, zeros(w=(8, 16)))),
        choice("yes", "b", _graph_of(shallow, "z", 2, zeros(w=(8, 16)))),
        node("Add", ["a", "b"], ["y"], "add"),
    ]
    graph = read(tmp_path, made(nodes, {"x": (FLOAT, ["n", 8])}, {"y": (FLOAT, ["n", 4])}, [yes]))
    assert graph.kind == ("gemm", "gemm", "gemm", "gemm", "elementwise")
    # Each branch has weights of its own, though they are called alike.
    assert graph.weight_params.tolist() == [128, 64, 128, 64, 0]


def test_r3_01_a_loop_over_the_sample_is_refused_though_its_condition_is_constant(tmp_path):
    body = helper.make_graph(
        [node("Identity", ["go"], ["still"]), node("MatMul", ["x", "w"], ["part"])],
        "body",
        [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, [])],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("part", FLOAT, [1, 8]),
        ],
    )
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        node("Loop", ["times", ""], ["y"], "repeat", body=body),
    ]
    model = made(nodes, {"x": (FLOAT, [1, 8])}, {"y": (FLOAT, [3, 1, 8])}, [*zeros(w=(8, 8)), *integers(times=3)])
    with pytest.raises(PerformanceError, match=r"node 'repeat': control flow.*got 'Loop'"):
        read(tmp_path, model)


def _without_initializers(model: ModelProto) -> ModelProto:
    """The same model with its weights in `Constant` nodes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    constants = [node("Constant", [], [tensor.name], value=tensor) for tensor in model.graph.initializer]
    rest = list(model.graph.node)
    del copy.graph.initializer[:], copy.graph.node[:]
    copy.graph.node.extend([*constants, *rest])
    return copy


def _classifier() -> ModelProto:
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c"], "conv", kernel_shape=[3, 3]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "bn"),
        node("Reshape", ["n", "flat"], ["f"], "flat"),
        node("Gemm", ["f", "w2", "b2"], ["g"], "fc"),
        node("Transpose", ["w2"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["g", "turned"], ["y"], "tied"),
    ]
    weights = zeros(
        w1=(8, 3, 3, 3), b1=(8,), scale=(8,), shift=(8,), mean=(8,), var=(8,), w2=(8 * 36, 5), b2=(5,)
    )  # fmt: skip
    return made(
        nodes, {"x": (FLOAT, ["n", 3, 8, 8])}, {"y": (FLOAT, ["n", 288])}, [*weights, *integers(flat=[0, -1])]
    )  # fmt: skip


def test_r3_02_weights_in_constant_nodes_are_those_of_initializers(tmp_path):
    graph, same = read(tmp_path, _classifier()), read(tmp_path, _without_initializers(_classifier()))
    assert graph.weight_params.sum() == 216 + 8 + 16 + 288 * 5 + 5
    assert same.ops == graph.ops
    for column in ("weight_params", "flops_fwd", "stored_bytes", "out_bytes"):
        np.testing.assert_array_equal(getattr(same, column), getattr(graph, column))


def test_r3_02_what_is_made_of_a_size_is_a_weight_where_it_multiplies_and_a_state_elsewhere(tmp_path):
    nodes = [
        node("ConstantOfShape", ["square"], ["w"], "weight"),
        node("ConstantOfShape", ["row"], ["mask"], "mask"),
        node("MatMul", ["x", "w"], ["h"], "product"),
        node("Add", ["h", "mask"], ["y"], "masked"),
    ]
    value = (FLOAT, ["n", 1024])
    graph = read(tmp_path, made(nodes, {"x": value}, {"y": value}, integers(square=[1024, 1024], row=[1024])))
    assert by_name(graph, "weight_params") == {"product": 1_048_576, "masked": 0}


@pytest.mark.parametrize(
    ("name", "params", "gflop"),
    [("resnet50", 25_557_032, 8.178), ("vgg19", 143_667_240, 39.264), ("bvlc_alexnet", 60_965_224, 1.309)],
)
def test_r3_02_models_of_the_onnx_package_have_their_published_parameters(name, params, gflop):
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    graph = read_onnx(folder / f"light_{name}.onnx")
    assert graph.weight_params.sum() == params
    assert graph.flops_fwd.sum() / 1e9 == pytest.approx(gflop, abs=1e-3)


def _linear(batch: int) -> ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["y"], "product")]
    return made(nodes, {"x": (FLOAT, [batch, 1024])}, {"y": (FLOAT, [batch, 1024])}, zeros(w=(1024, 1024)))


def test_r3_05_a_batch_of_minus_one_is_an_open_one(tmp_path):
    graph = read(tmp_path, _linear(-1))
    assert (graph.weight_params.sum(), graph.flops_fwd.sum()) == (1_048_576, 2 * 1_048_576)


def _open_picture(height: int | str | None) -> ModelProto:
    conv = node("Conv", ["images", "w"], ["y"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return made(
        [conv],
        {"images": (FLOAT, ["batch", 3, height, 32])},
        {"y": (FLOAT, ["batch", 8, height, 32])},
        zeros(w=(8, 3, 3, 3)),
    )


@pytest.mark.parametrize(("height", "name"), [("height", "height"), (None, "images:2"), (-1, "images:2")])
def test_r3_04_an_open_size_is_given_by_its_symbol_or_its_place(tmp_path, height, name):
    with pytest.raises(PerformanceError, match=rf"dimension 2 of input 'images' has no size.*--dim {name}=128;"):
        read(tmp_path, _open_picture(height))
    assert read(tmp_path, _open_picture(height), dims={name: 32}).flops_fwd.sum() == 2 * 27 * 8 * 32 * 32


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"heigth": 32, "height": 32}, "no input has an open dimension of that name.*heigth.*did you mean 'height'"),
        ({"height": 0}, "'height' has an impossible size; got 0"),
        ({"height": 10**30}, "'height' has an impossible size"),
    ],
)
def test_r3_04_sizes_that_mean_nothing_are_refused(tmp_path, dims, message):
    with pytest.raises(PerformanceError, match=message):
        read(tmp_path, _open_picture("height"), dims=dims)


def test_r3_04_the_batch_of_a_state_is_where_its_symbol_is(tmp_path):
    """The state of a recurrent layer is [directions, batch, hidden]; its input here is turned from [batch, ...]."""
    nodes = [
        node("Transpose", ["x"], ["turned"], "turn", perm=[1, 0, 2]),
        node("GRU", ["turned", "w", "r", "", "", "state"], ["y"], "gru", hidden_size=5),
    ]
    inputs = {"x": (FLOAT, ["batch", 7, 6]), "state": (FLOAT, [1, "batch", 5])}
    model = made(nodes, inputs, {"y": (FLOAT, [7, 1, "batch", 5])}, zeros(w=(1, 15, 6), r=(1, 15, 5)))
    one, four = read(tmp_path, model), read(tmp_path, model, dims={"batch": 4})
    assert one.flops_fwd.tolist() == four.flops_fwd.tolist() == [0, 2 * 7 * 3 * 5 * (6 + 5)]
    assert one.in_bytes[0] == four.in_bytes[0] == 2 * 7 * 6 + 2 * 5


def test_r3_02_scales_of_a_resize_are_not_trained(tmp_path):
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    nodes = [node("Resize", ["x", "", "scales"], ["y"], "larger")]
    graph = read(tmp_path, made(nodes, {"x": (FLOAT, ["n", 3, 4, 4])}, {"y": (FLOAT, ["n", 3, 8, 8])}, [scales]))
    assert graph.weight_params.tolist() == [0]
    assert graph.out_bytes.tolist() == [2 * 3 * 64]


def test_r3_06_a_padding_that_pytorch_writes_with_twelve_nodes(tmp_path):
    """`F.pad(x, (1, 1, 1, 1), mode='reflect')`: the pads are filled up, turned round and cast, all of constants."""
    nodes = [
        node("ConstantOfShape", ["missing"], ["fill"], value=numpy_helper.from_array(np.array([0], np.int64))),
        node("Concat", ["pads", "fill"], ["eight"], axis=0),
        node("Reshape", ["eight", "pairs"], ["paired"]),
        node("Slice", ["paired", "last", "before", "zeroth", "back"], ["turned"]),
        node("Transpose", ["turned"], ["columns"], perm=[1, 0]),
        node("Reshape", ["columns", "flat"], ["order"]),
        node("Cast", ["order"], ["cast"], to=INT64),
        node("Pad", ["x", "cast"], ["xp"], "pad", mode="reflect"),
        node("Conv", ["xp", "w"], ["y"], "conv", kernel_shape=[3, 3]),
    ]
    constants = integers(
        missing=[4], pads=[1, 1, 1, 1], pairs=[-1, 2], last=[-1], before=[-(2**63) + 1], zeroth=[0], back=[-1],
        flat=[-1],
    )  # fmt: skip
    model = made(
        nodes, {"x": (FLOAT, ["n", 3, 32, 32])}, {"y": (FLOAT, ["n", 8, None, None])},
        [*zeros(w=(8, 3, 3, 3)), *constants],
    )  # fmt: skip
    graph = read(tmp_path, model)
    assert by_name(graph, "flops_fwd") == {"pad": 0, "conv": 2 * 8 * 32 * 32 * 27}
    assert by_name(graph, "out_bytes")["pad"] == 2 * 3 * 34 * 34
    assert graph.weight_params.sum() == 216


def test_r3_06_a_shape_from_the_sizes_of_another_tensor(tmp_path):
    """A recogniser's Reshape to [Shape(x)[0:2], -1]."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "zero", "two", "zero"], ["first"]),
        node("Concat", ["first", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["flat"], "flat"),
        node("MatMul", ["flat", "w"], ["y"], "product"),
    ]
    constants = integers(zero=[0], two=[2], rest=[-1])
    model = made(nodes, {"x": (FLOAT, ["n", 5, 4, 6])}, {"y": (FLOAT, None)}, [*zeros(w=(24, 7)), *constants])
    assert read(tmp_path, model).flops_fwd.tolist() == [2 * 5 * 24 * 7]


def test_r3_06_a_constant_that_would_be_huge_is_not_made(tmp_path):
    """Nor is a shape of that many sizes, which ONNX's own propagation of values would write down one by one."""
    nodes = [
        node("ConstantOfShape", ["huge"], ["zeros"], value=numpy_helper.from_array(np.array([1], np.int64))),
        node("Concat", ["zeros", "huge"], ["longer"], axis=0),
        node("Relu", ["x"], ["y"], "relu"),
    ]
    value = (FLOAT, ["n", 8])
    assert len(read(tmp_path, made(nodes, {"x": value}, {"y": value}, integers(huge=[10**18])))) == 1


def test_a_shape_that_comes_out_negative_is_unknown(tmp_path):
    """A kernel larger than the picture: ONNX infers a height of -2 in silence."""
    conv = node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[6, 3])
    model = made(
        [conv, node("Relu", ["c"], ["y"], "relu")], {"x": (FLOAT, ["n", 3, 3, 8])}, {"y": (FLOAT, None)},
        zeros(w=(8, 3, 6, 3)),
    )  # fmt: skip
    with pytest.raises(PerformanceError, match=r"node 'conv': the shape of a tensor is unknown|cannot be inferred"):
        read(tmp_path, model)


def _quantised(weight: TensorProto, behind: str) -> ModelProto:
    """A convolution of 3x3 to 64 on 32x32 between casts, as quantisation-aware training leaves it."""
    scale, zero = numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")
    per_channel = numpy_helper.from_array(np.ones(64, np.float32), "sw")
    channel_zero = numpy_helper.from_array(np.zeros(64, np.int8), "zw")
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"], "to_int8"),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "from_int8"),
        *([node("QuantizeLinear", ["w", "sw", "zw"], ["wq"], axis=0)] if behind == "wq" else []),
        node("DequantizeLinear", [behind, "sw", "zw"], ["wd"], axis=0),
        node("Conv", ["xd", "wd"], ["y"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    return made(
        nodes, {"x": (FLOAT, ["n", 3, 32, 32])}, {"y": (FLOAT, ["n", 64, 32, 32])},
        [weight, scale, zero, per_channel, channel_zero],
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "behind"), [(np.int8, "w"), (np.float32, "wq")])
def test_r3_16_quantising_is_a_cast_and_integers_behind_it_are_weights(tmp_path, dtype, behind):
    weight = numpy_helper.from_array(np.zeros((64, 3, 3, 3), dtype), "w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = read(tmp_path, _quantised(weight, behind))
    assert graph.kind == ("elementwise", "elementwise", "conv")
    assert by_name(graph, "weight_params") == {"to_int8": 0, "from_int8": 0, "conv": 1728}
    assert graph.flops_fwd.sum() == 2 * 27 * 64 * 1024
    assert by_name(graph, "out_bytes")["to_int8"] == 3 * 1024


def test_r3_16_the_standard_attention_is_two_products_of_which_no_scores_are_kept(tmp_path):
    """8 heads of query, 2 of key and value; 5 rows that meet 7 + 4 earlier ones."""
    inputs = {"q": (FLOAT, ["n", 5, 8 * 16]), "k": (FLOAT, ["n", 7, 2 * 16]), "v": (FLOAT, ["n", 7, 2 * 24])}
    past = {"pk": (FLOAT, ["n", 2, 4, 16]), "pv": (FLOAT, ["n", 2, 4, 24])}
    attend = node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], "attend", q_num_heads=8,
                  kv_num_heads=2)  # fmt: skip
    graph = read(tmp_path, made([attend], {**inputs, **past}, {"y": (FLOAT, ["n", 5, 8 * 24])}, opset=23))
    assert graph.kind == ("attention",)
    assert graph.flops_fwd.tolist() == [2 * 8 * 5 * 11 * (16 + 24)]
    assert graph.stored_bytes.tolist() == [2 * (5 * 128 + 7 * 32 + 7 * 48 + 5 * 192) + 4 * 8 * 5]


def test_r3_16_attention_of_another_domain_takes_weights_and_is_refused(tmp_path):
    value = (FLOAT, ["n", 4, 8])
    attend = node("Attention", ["x", "w"], ["y"], "attend", domain="com.microsoft", num_heads=2)
    model = made([attend], {"x": value}, {"y": value}, zeros(w=(8, 24)))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(PerformanceError, match="arithmetic the reader does not know; got 'Attention of the domain com"):
        read(tmp_path, model)
