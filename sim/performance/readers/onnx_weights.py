"""Which tensors of an ONNX model are trained: exporters write weights as initializers, as nodes, or as integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.performance.readers.tape import words

_FILLED = words("ConstantOfShape RandomNormal RandomUniform")
"""Nodes that make a tensor of a size: the start of a weight, or a mask, or a state."""
_WEIGHTS_AT: dict[str, Sequence[int]] = {
    **dict.fromkeys(words("Conv ConvTranspose PRelu"), (1, 2)),
    **dict.fromkeys(words("MatMul Gemm Einsum"), (0, 1, 2)),
    **dict.fromkeys(words("LSTM GRU RNN"), (1, 2, 3)),
    **dict.fromkeys(words("BatchNormalization InstanceNormalization LayerNormalization GroupNormalization"), (1, 2)),
    **dict.fromkeys(words("RMSNormalization SimplifiedLayerNormalization"), (1,)),
    "Gather": (0,),
}
"""Inputs of an operator that are weights, where they do not depend on the sample."""
_SAME_VALUES = words("Reshape Flatten Squeeze Unsqueeze Identity Transpose Cast")
_CASTS = words("Cast CastLike")
_DEQUANTISING = (*_CASTS, *words("Mul Div Sub Add"))
"""How a `DequantizeLinear` is written out: narrow values become floating-point ones, are moved and scaled."""
_NARROW = words("INT8 UINT8 INT4 UINT4 INT2 UINT2 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT4E2M1")
"""Types in which weights are kept, and positions, sizes and truth values are not."""


def trained(
    graph: Any, shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, int], floating: set[int]
) -> dict[str, int]:
    """Trainable values of each tensor that has some.

    They are the floating-point initializers and `Constant` nodes with a dimension; what other nodes make of a size
    alone, where it is the weight of an operator; and integers, or floats of a byte, that `DequantizeLinear` or a `Cast`
    turns into weights.
    """
    weights: set[str] = set()
    integers: set[str] = set()
    for node in reversed(graph.node):
        weights.update(node.input[at] for at in _WEIGHTS_AT.get(node.op_type, ()) if at < len(node.input))
        for wanted, through in ((weights, _SAME_VALUES), (integers, [*_SAME_VALUES, "Gather"])):
            if node.op_type in through and not wanted.isdisjoint(node.output):
                wanted.update(node.input[:1])
        if node.op_type == "DequantizeLinear":
            integers.update(node.input[:1])
    integers |= _cast(graph, weights, types)
    names = [tensor.name for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant" or (node.op_type in _FILLED and not weights.isdisjoint(node.output)):
            names += node.output
    return {
        name: math.prod(shapes[name])
        for name in names
        if shapes.get(name) and (types[name] in floating or name in integers)
    }


def _cast(graph: Any, weights: set[str], types: Mapping[str, int]) -> set[str]:
    """Constants of a narrow type that become weights by casts, or by casts of the rows that are gathered from them."""
    import onnx

    narrow = {getattr(onnx.TensorProto, name, None) for name in _NARROW}
    fixed = {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        if all(name in fixed for name in node.input):
            fixed.update(node.output)
    wanted = set(weights)
    gathered: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type == "Gather" and not gathered.isdisjoint(node.output):
            wanted.update(node.input[:1])
        if not any(out in wanted and out in fixed for out in node.output):
            gathered.update(node.input[:1] if node.op_type in _CASTS else ())
        elif node.op_type in _DEQUANTISING:
            wanted.update(node.input)
        elif node.op_type in (*_SAME_VALUES, "Gather"):
            wanted.update(node.input[:1])
    return {name for name in wanted & fixed if types.get(name) in narrow}
