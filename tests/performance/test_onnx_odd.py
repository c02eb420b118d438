"""ONNX models that are made to mislead, or to be too large: functions that multiply, names of other domains."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sim.performance import PerformanceError
from sim.performance.readers import onnx_functions
from tests.performance.onnxmodels import FLOAT, INT64, by_name, made, read, zeros

node = helper.make_node
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]


def _doubling(depth: int, first: str = "Relu") -> ModelProto:
    """A call of f_depth; each f_k calls f_(k-1) twice, f_0 is one node: 2^depth of them."""
    domain = "" if first == "Relu" else "local"
    functions = [helper.make_function("local", "f0", ["x"], ["y"], [node(first, ["x"], ["y"], domain=domain)], OPSETS)]
    for k in range(1, depth + 1):
        halves = [node(f"f{k - 1}", [a], [b], domain="local") for a, b in (("x", "h"), ("h", "y"))]
        functions.append(helper.make_function("local", f"f{k}", ["x"], ["y"], halves, OPSETS))
    call = node(f"f{depth}", ["x"], ["y"], domain="local")
    model = made([call], {"x": (FLOAT, ["n", 8])}, {"y": (FLOAT, ["n", 8])})
    model.opset_import.append(OPSETS[1])
    model.functions.extend(functions)
    return model


def test_f51_calls_of_local_functions_are_nodes(tmp_path):
    assert read(tmp_path, _doubling(3)).kind == ("elementwise",) * 8


@pytest.mark.parametrize(("depth", "got"), [(17, "131072"), (40, "1099511627776"), (2000, "1e\\+300")])
def test_f51_functions_that_multiply_are_counted_before_they_are_put_in_place(tmp_path, monkeypatch, depth, got):
    monkeypatch.setattr("onnx.inliner.inline_local_functions", lambda model: pytest.fail("was put in place"))
    with pytest.raises(PerformanceError, match=rf"made.onnx: .*too many nodes; got '?{got}'?; allowed: up to 100,000"):
        read(tmp_path, _doubling(depth))


def test_f51_large_constants_of_functions_are_counted_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_functions, "MOST_BYTES", 10_000)
    model = _doubling(3)
    value = numpy_helper.from_array(np.zeros(1000, np.float32))
    model.functions[0].node.append(node("Constant", [], ["c"], value=value))
    with pytest.raises(PerformanceError, match=r"too many bytes; got 32\d\d\d; allowed: up to 10,000 bytes"):
        read(tmp_path, model)


def test_f51_a_function_that_calls_itself_is_refused(tmp_path):
    with pytest.raises(PerformanceError, match="calls itself; got 'local:f"):
        read(tmp_path, _doubling(2, first="f1"))


@pytest.mark.parametrize("op", ["MatMul", "Relu", "Reshape", "Shape", "Gelu"])
def test_f52_an_operator_of_another_domain_is_not_the_standard_one_of_its_name(tmp_path, op):
    value = (FLOAT, ["n", 8])
    nodes = [node(op, ["x", "w"], ["h"], "odd", domain="my.own"), node("Relu", ["h"], ["y"])]
    model = made(nodes, {"x": value}, {"y": value}, zeros(w=(8, 8)))
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("h", *value))
    with pytest.raises(PerformanceError, match=rf"node 'odd': .*got '{op} of the domain my\.own'.*ai\.onnx"):
        read(tmp_path, model)


def test_f52_operators_of_another_domain_that_are_alike_are_known_by_name(tmp_path):
    value = (FLOAT, ["n", 8])
    nodes = [node("Gelu", ["x"], ["h"], "gelu", domain="com.microsoft"),
             node("Relu", ["h"], ["y"], "relu", domain="ai.onnx")]  # fmt: skip
    model = made(nodes, {"x": value}, {"y": value})
    model.opset_import.extend([helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx", 17)])
    model.graph.value_info.append(helper.make_tensor_value_info("h", *value))
    assert by_name(read(tmp_path, model), "stored_bytes") == {"gelu": 16, "relu": 16}


def _narrow(kind: int, *shape: int) -> TensorProto:
    return helper.make_tensor("q", kind, shape, bytes(int(np.prod(shape))), raw=True)


KINDS = [TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["cast", "scaled", "moved", "turned"])
def test_f53_weights_that_become_floats_by_a_cast_are_weights(tmp_path, kind, way):
    scale = numpy_helper.from_array(np.float32(0.1), "s")
    cast = node("Cast", ["q"], ["f"], to=FLOAT)
    nodes = {
        "cast": [cast],
        "scaled": [cast, node("Mul", ["f", "s"], ["w"])],
        "moved": [cast, node("Sub", ["f", "s"], ["m"]), node("Mul", ["s", "m"], ["w"])],
        "turned": [node("Transpose", ["q"], ["t"], perm=[1, 0]), node("Cast", ["t"], ["w"], to=FLOAT)],
    }[way]
    product = node("MatMul", ["x", nodes[-1].output[0]], ["y"], "product")
    value = (FLOAT, ["n", 64])
    model = made([*nodes, product], {"x": value}, {"y": value}, [_narrow(kind, 64, 64), scale], opset=19)
    assert by_name(read(tmp_path, model), "weight_params") == {"product": 64 * 64}


def test_f53_rows_of_a_narrow_table_that_are_cast_are_an_embedding(tmp_path):
    nodes = [node("Gather", ["q", "ids"], ["rows"], "embed"), node("Cast", ["rows"], ["y"], "cast", to=FLOAT)]
    model = made(nodes, {"ids": (INT64, ["n", 5])}, {"y": (FLOAT, ["n", 5, 16])}, [_narrow(KINDS[0], 100, 16)])
    graph = read(tmp_path, model)
    assert graph.kind == ("embedding", "elementwise")
    assert graph.weight_params.tolist() == [1600, 0]


def test_f53_masks_and_positions_that_are_cast_are_not_trained(tmp_path):
    """A mask of bytes multiplies a sample, positions of 64 bits a weight."""
    positions = numpy_helper.from_array(np.arange(64).reshape(8, 8), "p")
    nodes = [
        node("Cast", ["q"], ["mask"], to=FLOAT), node("Mul", ["x", "mask"], ["kept"], "mask"),
        node("Cast", ["p"], ["at"], to=FLOAT), node("MatMul", ["kept", "at"], ["y"], "product"),
    ]  # fmt: skip
    model = made(nodes, {"x": (FLOAT, ["n", 8])}, {"y": (FLOAT, ["n", 8])}, [_narrow(KINDS[1], 1, 8), positions])
    assert by_name(read(tmp_path, model), "weight_params") == {"mask": 0, "product": 0}


@pytest.mark.parametrize("any_size", ["?", "-1", "*", "None"])
def test_f54_what_is_written_for_any_size_is_no_name(tmp_path, any_size):
    """Paddle writes '?' for each open size: two of them are not alike."""
    pool = node("GlobalMaxPool", ["x"], ["y"], "pool")
    model = made([pool], {"x": (FLOAT, [any_size, 3, any_size, any_size])}, {"y": (FLOAT, [any_size, 3, 1, 1])})
    with pytest.raises(PerformanceError, match=r"dimension 2 of input 'x' has no size.*--dim x:2=128;"):
        read(tmp_path, model)
    with pytest.raises(PerformanceError, match=r"dimension 3 of input 'x' has no size.*--dim x:3=128;"):
        read(tmp_path, model, dims={"x:2": 48})
    with pytest.raises(PerformanceError, match=r"of that name; got .*allowed: x:0, x:2, x:3"):
        read(tmp_path, model, dims={any_size: 48, "x:2": 48, "x:3": 64})
    graph = read(tmp_path, model, dims={"x:2": 48, "x:3": 64})
    assert graph.in_bytes.tolist() == [2 * 3 * 48 * 64]


def _sum_of(x: list, state: list) -> ModelProto:
    nodes = [node("Relu", ["x"], ["y"], "relu"), node("Relu", ["state"], ["z"], "relu_of_state")]
    return made(nodes, {"x": (FLOAT, x), "state": (FLOAT, state)}, {"y": (FLOAT, x), "z": (FLOAT, state)})


def test_f55_who_has_the_batch_at_different_dimensions_is_told_what_can_be_given(tmp_path):
    """Each remedy that is told is tried: it is accepted, or asks for the next size."""
    with pytest.raises(PerformanceError) as told:
        read(tmp_path, _sum_of([4, 7, 6], [1, 4, 5]))
    assert "got 'x: [4, 7, 6], state: [1, 4, 5]'" in str(told.value)
    assert "--batch-axis" not in str(told.value) and "--dim" not in str(told.value)
    assert "one name in all of them: write it so" in str(told.value)
    with pytest.raises(PerformanceError, match=r"dimension 0 is the batch of all inputs: --dim x:0=4\. A model"):
        read(tmp_path, _sum_of([None, 7, 6], [4, 3, 5]))
    assert read(tmp_path, _sum_of([None, 7, 6], [4, 3, 5]), dims={"x:0": 4}).out_bytes.sum() == 2 * (42 + 15)
    with pytest.raises(PerformanceError, match=r"If dimension 1 is: --batch-axis 1; in Python, batch_axis=1\. A model"):
        read(tmp_path, _sum_of([7, 4, 6], [1, 4, 5]))
    assert read(tmp_path, _sum_of([7, 4, 6], [1, 4, 5]), batch_axis=1).out_bytes.sum() == 2 * (42 + 5)
    assert read(tmp_path, _sum_of(["n", 7, 6], [1, "n", 5])).out_bytes.sum() == 2 * (42 + 5)


def test_f55_a_model_whose_inputs_have_no_dimensions_has_no_sample(tmp_path):
    with pytest.raises(PerformanceError, match="has no input with dimensions"):
        read(tmp_path, _sum_of([], []))


@pytest.mark.parametrize("axis", [-1, 3, 99])
def test_f55_a_batch_axis_that_no_input_has_is_refused_as_such(tmp_path, axis):
    with pytest.raises(PerformanceError, match=rf"no input has that dimension.*got {axis}; allowed: 0 to 2"):
        read(tmp_path, _sum_of([None, 7, None], [4, 3, 5]), batch_axis=axis)
