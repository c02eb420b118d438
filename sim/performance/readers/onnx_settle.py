"""What constants decide in an ONNX model: the values of small tensors, the branches that are taken, and all shapes.

Exporters write sizes as nodes (Shape, Gather, Concat, Reshape, ...) and `x.squeeze(1)` as an `If` on a size. None of
them depends on the sample, so each is worked out here, once the sizes of the inputs are known.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.performance.graph import PerformanceError
from sim.performance.readers.tape import words

MOST_VALUES = 4096
"""Larger constants are weights, not sizes: their values are not looked at."""
_GROWING = frozenset(words("ConstantOfShape Expand Tile Range Pad"))
"""Their output may be far larger than what they read: it is made only where its size is known, and small."""
_WORKED_OUT = _GROWING | frozenset(
    words(
        "Gather GatherElements GatherND Concat Slice Split Reshape Squeeze Unsqueeze Flatten Transpose Identity Cast "
        "CastLike Add Sub Mul Div Mod Neg Abs Sign Min Max Floor Ceil Round Sqrt Pow Log Exp Equal Greater "
        "GreaterOrEqual Less LessOrEqual Not And Or Xor Where ReduceProd ReduceSum ReduceMax ReduceMin ReduceMean "
        "NonZero ScatterND ScatterElements ArgMax ArgMin CumSum"
    )
)
STANDARD = ("", "ai.onnx")
"""Names of ONNX's own domain of operators."""

Shapes = dict[str, tuple[int, ...]]


def stated_shapes(graph: Any) -> tuple[Shapes, dict[str, int]]:
    """Shapes of a graph's tensors, where each size is a number, not below 0; and their data types."""
    shapes: Shapes = {}
    types: dict[str, int] = {}
    for entry in [*graph.input, *graph.value_info, *graph.output]:
        tensor = entry.type.tensor_type
        sizes = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
        if tensor.HasField("shape") and min(sizes, default=0) >= 0:
            shapes[entry.name] = sizes
            types[entry.name] = tensor.elem_type
    for weight in graph.initializer:
        shapes[weight.name], types[weight.name] = tuple(weight.dims), weight.data_type
    return shapes, types


def settle(model: Any, where: str) -> tuple[Any, Any]:
    """The graph with taken branches in place of each `If` that constants decide; and one with all shapes.

    The second has the same tensors, but what is worked out are constants in it, and large weights have no values.

    Raises
    ------
    PerformanceError
        The shapes contradict each other; with the file.
    """
    light = _without_large_values(model)
    known: dict[str, np.ndarray] = {}
    while True:
        # Branches that are not taken may contradict the shapes: until they are gone, nodes may fail. ONNX's own
        # propagation of values is not asked for: a size of 10^18 in the file would keep it busy for ever.
        shapes = stated_shapes(_inferred(light, where, strict=False))[0]
        if not _work_out(light, shapes, known):
            return model.graph, _inferred(light, where, strict=True)
        for output, branch in [(list(node.output[:1]), _taken(node, known)) for node in light.graph.node]:
            for graph in (model.graph, light.graph) if branch else ():
                _put_in_place(graph, output[0], branch, where)


def _taken(node: Any, known: Mapping[str, np.ndarray]) -> str:
    """Which branch of an `If` is taken; '': it is none, or that is not known."""
    condition = known.get(node.input[0]) if node.op_type == "If" and node.input and any(node.output[:1]) else None
    if condition is None or condition.size != 1:
        return ""
    return "then_branch" if condition.item() else "else_branch"


def _without_large_values(model: Any) -> Any:
    """A copy for the inference of shapes, which looks at small tensors only."""
    light = type(model)()
    light.CopyFrom(model)
    for tensor in light.graph.initializer:
        if math.prod(tensor.dims) > MOST_VALUES:
            for values in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
                tensor.ClearField(values)
    return light


def _inferred(model: Any, where: str, *, strict: bool) -> Any:
    """The graph with its shapes inferred."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict).graph
    except Exception as error:
        # The checker raises types of its own, and many of them.
        raise _contradiction(error, where) from error


def _contradiction(error: Exception, where: str) -> PerformanceError:
    reason = " ".join(str(error).split())[:300]
    return PerformanceError("the shapes of an ONNX model cannot be inferred", where=where, got=reason)


def _work_out(model: Any, shapes: Shapes, known: dict[str, np.ndarray]) -> bool:
    """Put constants in place of nodes whose values follow from constants and known shapes; False: none is left.

    `known` gets the values of all small constants.
    """
    import onnx

    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for tensor in model.graph.initializer:
        if tensor.name not in known:
            _remember(known, [tensor.name], [_values(tensor)])
    nodes, worked_out = [], False
    for node in model.graph.node:
        found: Sequence[np.ndarray] | None = None
        if node.domain not in STANDARD:
            pass
        elif node.op_type == "Constant" and known.keys().isdisjoint(node.output):
            _remember(known, node.output, _evaluated(node, known, opsets) or [])
        elif node.op_type in ("Shape", "Size") and len(node.input) == 1:
            found = _sizes(node, shapes)
        elif node.op_type in _WORKED_OUT and _is_small(node, shapes):
            found = _evaluated(node, known, opsets) if all(name in known or not name for name in node.input) else None
        if found is None or any(array.size > MOST_VALUES for array in found) or len(found) != len(node.output):
            nodes.append(node)
            continue
        worked_out = True
        _remember(known, node.output, found)
        for name, array in zip(node.output, found, strict=True):
            value = onnx.numpy_helper.from_array(np.asarray(array))
            nodes.append(onnx.helper.make_node("Constant", [], [name], value=value))
    if not worked_out and not any(_taken(node, known) for node in nodes):
        return False
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True


def _remember(known: dict[str, np.ndarray], names: Sequence[str], values: Sequence[np.ndarray | None]) -> None:
    for name, value in zip(names, values, strict=False):
        if value is not None and name and value.size <= MOST_VALUES:
            known[name] = value


def _values(tensor: Any) -> np.ndarray | None:
    """The values of a small tensor; None: they are not here, or not of the size that is stated."""
    import onnx

    if math.prod(tensor.dims) > MOST_VALUES or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception:  # a damaged tensor: whoever needs its shape will say so
        return None


def _sizes(node: Any, shapes: Shapes) -> list[np.ndarray] | None:
    """What `Shape` and `Size` answer."""
    import onnx

    shape = shapes.get(node.input[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return [np.array(math.prod(shape), np.int64)]
    ends = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    return [np.array(shape[ends.get("start", 0) : ends.get("end", len(shape))], np.int64)]


def _is_small(node: Any, shapes: Shapes) -> bool:
    return node.op_type not in _GROWING or all(
        math.prod(shapes[out]) <= MOST_VALUES if out in shapes else False for out in node.output
    )


def _evaluated(node: Any, known: Mapping[str, np.ndarray], opsets: Mapping[str, int]) -> list[np.ndarray] | None:
    """The outputs of a node whose inputs are known; None: ONNX's own reference cannot tell them."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    reads = {name: known[name] for name in node.input if name}
    try:
        inputs = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in reads.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports)).run(None, reads)
    except Exception:  # the reference raises whatever a node that makes no sense leads to: it stays unknown
        return None
    arrays = [np.asarray(value) for value in found]
    return arrays if all(array.dtype.kind in "biuf" for array in arrays) else None


def _put_in_place(graph: Any, output: str, branch: str, where: str) -> None:
    """Put a branch's nodes in place of its `If`, their tensors under names of their own."""
    import onnx

    at = next(i for i, node in enumerate(graph.node) if node.op_type == "If" and output in node.output)
    chosen = graph.node[at]
    body = next((entry.g for entry in chosen.attribute if entry.name == branch), None)
    if body is None or len(body.output) != len(chosen.output):
        raise PerformanceError("an If lacks a branch, or its outputs", where=f"{where}, node {chosen.name or output!r}")
    prefix = chosen.name or output
    inner = [*(tensor.name for tensor in body.initializer), *(out for node in body.node for out in node.output)]
    names = {name: f"{prefix}/{branch}/{name}" for name in inner if name}
    nodes = [_renamed(node, names) for node in body.node]
    for node in nodes:
        node.name = f"{prefix}/{node.name or node.op_type}"
    for made, wanted in zip(body.output, chosen.output, strict=True):
        read = names.get(made.name, made.name)
        nodes.append(onnx.helper.make_node("Identity", [read], [wanted], f"{prefix}/{wanted}"))
    for tensor in body.initializer:
        copy = type(tensor).FromString(tensor.SerializeToString())
        copy.name = names.get(tensor.name, tensor.name)
        graph.initializer.append(copy)
    stated = [entry for entry in graph.value_info if entry.name not in chosen.output]
    rest = [*graph.node[:at], *nodes, *graph.node[at + 1 :]]
    copies = [type(node).FromString(node.SerializeToString()) for node in rest]
    infos = [type(entry).FromString(entry.SerializeToString()) for entry in stated]
    del graph.node[:]
    graph.node.extend(copies)
    del graph.value_info[:]
    graph.value_info.extend(infos)


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """A copy of a node, and of what is nested in it, with tensors renamed."""
    copy = type(node).FromString(node.SerializeToString())
    for tensors in (copy.input, copy.output):
        tensors[:] = [names.get(name, name) for name in tensors]
    for graph in graphs_in(copy):
        own = {tensor.name for tensor in (*graph.input, *graph.initializer)}
        own.update(out for inside in graph.node for out in inside.output)
        outer = {name: new for name, new in names.items() if name not in own}
        nested = [_renamed(inside, outer) for inside in graph.node]
        del graph.node[:]
        graph.node.extend(nested)
        for out in graph.output:
            out.name = outer.get(out.name, out.name)
    return copy


def graphs_in(node: Any) -> list[Any]:
    """Branches or body of a node."""
    return [graph for entry in node.attribute for graph in ([entry.g] if entry.HasField("g") else entry.graphs)]


def captured(node: Any) -> list[str]:
    """Tensors of the graph around it that a node's branches, or its body, read."""
    found: list[str] = []
    for graph in graphs_in(node):
        own = {tensor.name for tensor in (*graph.initializer, *graph.input)}
        for inside in graph.node:
            found += [name for name in (*inside.input, *captured(inside)) if name and name not in own]
            own.update(inside.output)
        found += [out.name for out in graph.output if out.name not in own]
    return list(dict.fromkeys(found))
