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
from sim.performance.readers.onnx_costs import Node, place
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
    tensors = [entry.name for entry in (*model.graph.input, *model.graph.initializer)]
    texts = [text for node in model.graph.node for text in (node.name, node.op_type, *node.input, *node.output)]
    for text in (*tensors, *texts):
        if not isinstance(text, str):  # bytes that are not UTF-8
            raise PerformanceError("a name in an ONNX model is not text", where=str(path), got=text)
    return model


def _batch_of(model: Any, dims: Mapping[str, int], batch_axis: int, where: str) -> int:
    """Fix the sizes of the inputs, in place; returns the batch that all of them have."""
    weights = {tensor.name for tensor in model.graph.initializer}
    batches: dict[str, int] = {}
    symbol = ""
    for entry in model.graph.input:
        if entry.name in weights or not entry.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                symbol = dim.dim_param if axis == batch_axis else symbol
                size = dims.get(dim.dim_param, 1 if axis == batch_axis else None)
                if size is None:
                    raise PerformanceError(
                        f"dimension {axis} of input {entry.name!r} has no size",
                        where=where,
                        got=dim.dim_param,
                        todo=f"Give it: dims={{{dim.dim_param!r}: 128}}.",
                    )
                dim.dim_value = size
            if axis == batch_axis:
                batches[entry.name] = dim.dim_value
    if not batches or len(set(batches.values())) > 1 or min(batches.values()) < 1:
        raise PerformanceError(
            f"the inputs do not have one batch size in dimension {batch_axis}",
            where=where,
            got=batches,
            todo="Say which dimension is the batch: batch_axis=1.",
        )
    batch = next(iter(batches.values()))
    _substitute(model, {**({symbol: batch} if symbol else {}), **dims})
    return batch


def _substitute(model: Any, sizes: Mapping[str, int]) -> None:
    """Put sizes for symbols in the shapes that the model states; forget those with others: they are inferred."""
    for entry in [*model.graph.value_info, *model.graph.output]:
        tensor = entry.type.tensor_type
        for dim in tensor.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
        if any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
            tensor.ClearField("shape")


def _infer(model: Any, where: str) -> Any:
    """The model with its functions inlined and its shapes inferred."""
    import onnx
    import onnx.inliner

    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:
        # The checker raises types of its own, and many of them.
        reason = " ".join(str(error).split())[:300]
        raise PerformanceError("the shapes of an ONNX model cannot be inferred", where=where, got=reason) from error


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


def _tape(graph: Any, where: str) -> tuple[Tape, dict[str, tuple[int, ...]]]:
    """A tape with the graph's tensors and constants, no operators yet; and the shapes."""
    import onnx

    floating = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, int] = {}
    for entry in [*graph.input, *graph.value_info, *graph.output]:
        tensor = entry.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            shapes[entry.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
            types[entry.name] = tensor.elem_type
    values = {}
    for weight in graph.initializer:
        shapes[weight.name], types[weight.name] = tuple(weight.dims), weight.data_type
        if any(size < 0 for size in weight.dims):
            raise PerformanceError("a weight has a negative size", where=where, got=weight.name)
        if weight.data_type in floating and weight.dims:
            values[weight.name] = math.prod(weight.dims)
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
        for tensor in proto.input:
            if tensor not in tape.constants and tensor not in tape.maker:
                raise PerformanceError("a node reads what no node before it makes", where=at, got=tensor)
        outs = [out for out in proto.output if out]
        for out in outs:
            if out in tape.constants or out in tape.maker:
                raise PerformanceError("two nodes make the same tensor", where=at, got=out)
        attrs = _attributes(proto, at)
        place(tape, Node(name, proto.op_type, list(proto.input), outs, attrs, shapes, at))
        for out in outs:  # outputs beyond the first that an operator's cost leaves out
            if out not in tape.constants and out not in tape.maker:
                tape.maker[out] = len(tape.ops) - 1


def graph_of_model(
    model: Any, name: str, where: str, *, dims: Mapping[str, int] | None = None, batch_axis: int = 0
) -> OperatorGraph:
    """The graph of an `onnx.ModelProto`; see `read_onnx`."""
    copy = type(model)()
    copy.CopyFrom(model)
    batch = _batch_of(copy, dims or {}, batch_axis, where)
    graph = _infer(copy, where).graph
    tape, shapes = _tape(graph, where)
    inputs: Sequence[str] = list(tape.maker)
    _nodes(graph, tape, shapes, where)
    sample_bytes = sum(tape.size(tensor, tensor) for tensor in inputs)
    return assemble(name, "a sample of the model's input", sample_bytes, tape.finish(), samples=batch)


def read_onnx(path: Path, *, dims: Mapping[str, int] | None = None, batch_axis: int = 0) -> OperatorGraph:
    """The graph of a model in ONNX, its costs for one sample: those of the file's batch, divided by it.

    Trainable are the floating-point initializers with a dimension, but for running means and variances; each is
    counted where it is read first. FLOPs are 2 for a multiply-add of convolutions, matrix products and recurrent
    layers. A product of two activations is of kind 'attention'. Operators of unknown kind count as elementwise,
    with a warning.

    Parameters
    ----------
    dims : sizes of symbolic dimensions; that of the batch is 1 unless it is given.
    batch_axis : dimension of all inputs that is the batch.

    Raises
    ------
    PerformanceError
        The file is no model, a shape is unknown, a node reads what is not there, or an operator has arithmetic
        of unknown size; with file and node.
    """
    return graph_of_model(_load(path), path.stem, str(path), dims=dims, batch_axis=batch_axis)
