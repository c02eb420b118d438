"""Models in ONNX: shapes are inferred, FLOPs and bytes follow from them.

Views (Reshape, Flatten, ...) are no operators, nor is what does not depend on the sample. Floating-point values
count `VALUE_BYTES`, whatever type the file has, as in the zoo; others their own width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.readers.files import read_bytes
from sim.performance.readers.onnx_batch import batch_of
from sim.performance.readers.onnx_costs import Node, place
from sim.performance.readers.onnx_functions import without_functions
from sim.performance.readers.onnx_settle import Shapes, captured, graphs_in, settle, stated_shapes
from sim.performance.readers.onnx_weights import trained
from sim.performance.readers.operators import assemble
from sim.performance.readers.tape import Tape


def _load(path: Path) -> Any:
    if find_spec("onnx") is None:
        raise PerformanceError(
            "ONNX models need the package onnx", where=str(path), todo="Install hetsim with its extra: hetsim[onnx]."
        )
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(read_bytes(path))
    except DecodeError as error:
        raise PerformanceError("not an ONNX model", where=str(path), got=str(error)) from error
    if not model.graph.node:
        raise PerformanceError("not an ONNX model, or one without nodes", where=str(path))
    _check_names(model.graph, where=str(path))
    return model


def _check_names(graph: Any, where: str) -> None:
    """Refuse names that are not text, in the graph and in what is nested in it."""
    names = [entry.name for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer)]
    names += [text for node in graph.node for text in (node.name, node.op_type, *node.input, *node.output)]
    names += [text for node in graph.node for entry in node.attribute for text in (entry.name, entry.ref_attr_name)]
    for name in names:
        if not isinstance(name, str):  # bytes that are not UTF-8
            raise PerformanceError("a name in an ONNX model is not text", where=where, got=name)
    for node in graph.node:
        for nested in graphs_in(node):
            _check_names(nested, where)


def _width_bytes(data_type: int, where: str) -> int:
    import onnx

    try:
        return onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize
    except KeyError as error:
        raise PerformanceError(
            "a tensor has a data type that ONNX does not know", where=where, got=data_type
        ) from error


def _attributes(proto: Any, where: str) -> dict[str, Any]:
    import onnx

    try:
        return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in proto.attribute}
    except ValueError as error:
        raise PerformanceError("an attribute has no readable value", where=where, got=str(error)[:200]) from error


def _tape(graph: Any, shaped: Any, where: str) -> tuple[Tape, Shapes]:
    """A tape with the graph's tensors and constants, no operators yet; and the shapes, which are those of `shaped`."""
    import onnx

    kinds = onnx.TensorProto
    floating: set[int] = {kinds.FLOAT, kinds.DOUBLE, kinds.FLOAT16, kinds.BFLOAT16}
    shapes, types = stated_shapes(shaped)
    for weight in graph.initializer:
        if any(size < 0 for size in weight.dims):
            raise PerformanceError("a weight has a negative size", where=where, got=weight.name)
    values = trained(graph, shapes, types, floating)
    constants = {tensor.name: frozenset({tensor.name} & values.keys()) for tensor in graph.initializer}
    num_bytes = {
        name: float(math.prod(shape)) * (VALUE_BYTES if types[name] in floating else _width_bytes(types[name], where))
        for name, shape in shapes.items()
        if types[name] not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
    }
    maker = {entry.name: -1 for entry in graph.input if entry.name not in constants}
    return Tape(where, num_bytes, values, {**constants, "": frozenset()}, maker), shapes


def _nodes(graph: Any, tape: Tape, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    for i, proto in enumerate(graph.node):
        name = proto.name or next((out for out in proto.output if out), "") or f"{proto.op_type} {i}"
        at = f"{where}, node {name!r}"
        reads = [*proto.input, *captured(proto)]
        for tensor in reads:
            if tensor not in tape.constants and tensor not in tape.maker:
                raise PerformanceError("a node reads what no node before it makes", where=at, got=tensor)
        outs = [out for out in proto.output if out]
        for out in outs:
            if out in tape.constants or out in tape.maker:
                raise PerformanceError("two nodes make the same tensor", where=at, got=out)
        attrs = _attributes(proto, at)
        place(tape, Node(name, proto.op_type, reads, outs, attrs, shapes, at, proto.domain))
        for out in outs:  # outputs beyond the first that an operator's cost leaves out
            if out not in tape.constants and out not in tape.maker:
                tape.maker[out] = len(tape.ops) - 1


def graph_of_model(
    model: Any, name: str, where: str, *, dims: Mapping[str, int] | None = None, batch_axis: int = 0
) -> OperatorGraph:
    """The graph of an `onnx.ModelProto`; see `read_onnx`."""
    copy = type(model)()
    copy.CopyFrom(model)
    batch = batch_of(copy, dims or {}, batch_axis, where)
    graph, shaped = settle(without_functions(copy, where), where)
    tape, shapes = _tape(graph, shaped, where)
    inputs: Sequence[str] = list(tape.maker)
    _nodes(graph, tape, shapes, where)
    sample_bytes = sum(tape.size(tensor, tensor) for tensor in inputs)
    return assemble(name, "a sample of the model's input", sample_bytes, tape.finish(), samples=batch)


def read_onnx(path: Path, *, dims: Mapping[str, int] | None = None, batch_axis: int = 0) -> OperatorGraph:
    """The graph of a model in ONNX, its costs for one sample: those of the file's batch, divided by it.

    Trainable are the weights (`onnx_weights`), but for running means and variances; each is counted where it is read
    first. An `If` that constants decide is its taken branch; other control flow is refused. FLOPs are 2 for a
    multiply-add of convolutions, matrix products and recurrent layers. A product of two activations is of kind
    'attention'. Operators of unknown kind count as elementwise, with a warning.

    Parameters
    ----------
    dims : sizes of open dimensions, by symbol or as 'INPUT:DIMENSION'; that of the batch is 1 unless it is given.
    batch_axis : dimension of all inputs that is the batch.

    Raises
    ------
    PerformanceError
        The file is no model, a shape is unknown, a node reads what is not there, or an operator has arithmetic
        of unknown size; with file and node.
    """
    return graph_of_model(_load(path), path.stem, str(path), dims=dims, batch_axis=batch_axis)
