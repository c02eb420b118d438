"""What a node of an ONNX model costs, by its kind: FLOPs, bytes, what it keeps for its backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.performance.graph import PerformanceError
from sim.performance.readers.onnx_settle import STANDARD
from sim.performance.readers.tape import Tape, einsum_flops, recurrent_costs, words

_VIEWS = words("Reshape Flatten Squeeze Unsqueeze Identity")
_KEEPS = {
    **dict.fromkeys(words("Relu Sigmoid Tanh Exp Sqrt Reciprocal HardSigmoid"), "output"),
    **dict.fromkeys(
        words(
            "Mul Div Pow Gelu Erf Elu Selu Celu LeakyRelu PRelu ThresholdedRelu Clip HardSwish Swish Mish Log Abs Sin "
            "Cos Softplus Softsign Max Min Where ReduceMax ReduceMin ReduceL2 ReduceProd"
        ),
        "inputs",
    ),
    **dict.fromkeys(
        words(
            "Add Sub Neg Sum Mean Concat Slice Split Transpose Expand Tile Pad Cast CastLike Gather GatherElements "
            "GatherND ReduceMean ReduceSum Resize Upsample DepthToSpace SpaceToDepth Equal Greater GreaterOrEqual "
            "Less LessOrEqual Not And Or Xor ArgMax ArgMin TopK Trilu Floor Ceil Round Sign Mod IsNaN CumSum OneHot "
            "ScatterND ScatterElements"
        ),
        "nothing",
    ),
}
"""What an elementwise operator keeps for its backward pass."""
_NORMS = words(
    "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization "
    "SimplifiedLayerNormalization LRN LpNormalization MeanVarianceNormalization"
)
_POOLS = {"MaxPool": True, "GlobalMaxPool": True, "LpPool": True, "AveragePool": False, "GlobalAveragePool": False}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_CASTS = words("QuantizeLinear DequantizeLinear DynamicQuantizeLinear")
"""To integers and back: their scales and zero points are not trained."""
_SET_UP = words("Resize Upsample Pad Clip Slice Expand Tile OneHot")
"""Their inputs but the first are how they work (scales, limits, fillings): not trained."""
_SUBGRAPHS = {"If", "Loop", "Scan", "SequenceMap"}
_ALIKE = {"com.microsoft": words("Gelu QuantizeLinear DequantizeLinear Pad GatherND Trilu")}
"""Operators of other domains that do what the standard ones of their names do."""


@dataclass
class Node:
    """A node with what its costs need."""

    name: str
    op: str
    reads: list[str]
    outs: list[str]
    attrs: dict[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    where: str
    domain: str = ""

    def shape(self, tensor: str, rank: int = 0) -> tuple[int, ...]:
        """Its shape, of at least so many dimensions."""
        if tensor not in self.shapes:
            raise PerformanceError(
                "the shape of a tensor is unknown",
                where=self.where,
                got=tensor,
                todo="Give the sizes of symbolic dimensions (`dims`), or write the model with its shapes.",
            )
        if len(self.shapes[tensor]) < rank:
            raise PerformanceError(
                "a tensor has too few dimensions", where=self.where, got=self.shapes[tensor], allowed=f"{rank} or more"
            )
        return self.shapes[tensor]

    def need(self, count: int) -> None:
        """Refuse a node with fewer inputs, or no output."""
        if len(self.reads) < count or not self.outs or not all(self.reads[:count]):
            raise PerformanceError(
                f"{self.op} lacks inputs or an output",
                where=self.where,
                got=len(self.reads),
                allowed=f"{count} or more",
            )


def _conv(tape: Tape, node: Node) -> None:
    """Each output value (of a transposed convolution: each input value) meets one filter."""
    node.need(2)
    filters = math.prod(node.shape(node.reads[1], 3)[1:])
    over = node.reads[0] if node.op == "ConvTranspose" else node.outs[0]
    flops = 2.0 * math.prod(node.shape(over, 3)) * filters
    tape.emit(node.name, "conv", node.reads, node.outs[:1], keep=node.reads[:2], flops=flops)


def _matrix(tape: Tape, node: Node) -> None:
    node.need(2)
    across = node.shape(node.reads[0], 1)[-1]
    if node.op == "Gemm" and node.attrs.get("transA"):
        across = node.shape(node.reads[0], 2)[0]
    kind = "attention" if len(tape.varying(node.reads[:2])) == 2 else "gemm"
    flops = 2.0 * math.prod(node.shape(node.outs[0])) * across
    tape.emit(node.name, kind, node.reads, node.outs[:1], keep=node.reads[:2], flops=flops)


def _einsum(tape: Tape, node: Node) -> None:
    node.need(2)
    equation = node.attrs.get("equation")
    if not isinstance(equation, bytes):
        raise PerformanceError("Einsum has no equation", where=node.where, got=equation)
    flops = einsum_flops(equation.decode(errors="replace"), [node.shape(tensor) for tensor in node.reads], node.where)
    kind = "attention" if len(tape.varying(node.reads)) == 2 else "gemm"
    tape.emit(node.name, kind, node.reads, node.outs[:1], keep=node.reads, flops=flops)


def _recurrent(tape: Tape, node: Node) -> None:
    """X [steps, batch, in] (layout 1: [batch, steps, in]), W [directions, gates x hidden, in], R [.., hidden]."""
    node.need(3)
    x, (directions, _, hidden) = node.shape(node.reads[0], 3), node.shape(node.reads[2], 3)
    steps, batch = (x[1], x[0]) if node.attrs.get("layout") else x[:2]
    gates = _GATES[node.op]
    kept, inner = recurrent_costs(steps, batch, hidden, gates, directions)
    tape.emit(
        node.name,
        "lstm",
        node.reads,
        node.outs,
        keep=node.reads[:1],
        keep_bytes=kept,
        flops=2.0 * steps * batch * directions * gates * hidden * (x[2] + hidden),
        inner_bytes=inner,
        launches=steps * directions,
    )


def _norm(tape: Tape, node: Node) -> None:
    """Running mean and variance of a batch normalisation are not trained."""
    node.need(1)
    weights = node.reads[:3] if node.op == "BatchNormalization" else node.reads
    tape.emit(node.name, "norm", node.reads, node.outs[:1], keep=node.reads[:1], weights=weights)


def _softmax(tape: Tape, node: Node) -> None:
    node.need(1)
    tape.emit(node.name, "norm", node.reads, node.outs[:1], keep=node.outs[:1])


def _pool(tape: Tape, node: Node) -> None:
    node.need(1)
    keep = node.reads[:1] if _POOLS[node.op] else []
    tape.emit(node.name, "pool", node.reads, node.outs[:1], keep=keep)


def _gather(tape: Tape, node: Node) -> None:
    """Rows of a trained table are an embedding; anything else is a copy."""
    node.need(2)
    if tape.parameters(node.reads[:1]) and not node.attrs.get("axis"):
        tape.emit(node.name, "embedding", node.reads, node.outs, keep=node.reads[1:2])
    else:
        _elementwise(tape, node)


def _dropout(tape: Tape, node: Node) -> None:
    """As in training: a mask of a byte a value."""
    node.need(1)
    mask_bytes = float(math.prod(node.shape(node.outs[0])))
    tape.emit(node.name, "elementwise", node.reads[:1], node.outs[:1], keep_bytes=mask_bytes)


def _cast(tape: Tape, node: Node) -> None:
    """The gradient passes as it is."""
    node.need(1)
    tape.emit(node.name, "elementwise", node.reads, node.outs, weights=node.reads[:1])


def _attention(tape: Tape, node: Node) -> None:
    """Q K^T and its product with V as one kernel, which keeps a statistic of 4 bytes for each row of the scores.

    Tensors are [batch, heads, length, size], or [batch, length, heads x size] with the heads as attributes; key and
    value may have fewer heads than the query. What was seen before (inputs 4 and 5) makes the rows longer.
    """
    node.need(3)
    q_heads, k_heads = node.attrs.get("q_num_heads", 0), node.attrs.get("kv_num_heads", 0)
    sides = []
    for tensor, heads in zip(node.reads[:3], (q_heads, k_heads, k_heads), strict=True):
        shape = node.shape(tensor, 3)
        if len(shape) == 3 and not (heads > 0 and shape[2] % heads == 0):
            raise PerformanceError("Attention does not say how many heads it has", where=node.where, got=heads)
        sides.append(shape if len(shape) > 3 else (shape[0], heads, shape[1], shape[2] // heads))
    query, key, value = sides
    before = node.shape(node.reads[4], 4)[2] if len(node.reads) > 4 and node.reads[4] else 0
    rows = math.prod(query[:3])
    tape.emit(
        node.name,
        "attention",
        node.reads,
        node.outs,
        keep=[*node.reads[:3], node.outs[0]],
        keep_bytes=4.0 * rows,
        flops=2.0 * rows * (key[2] + before) * (query[3] + value[3]),
    )


def _elementwise(tape: Tape, node: Node) -> None:
    keep = {"output": node.outs, "inputs": node.reads, "nothing": []}[_KEEPS[node.op]]
    if node.op in ("Mul", "Div") and len(tape.varying(node.reads)) == 1 and not tape.parameters(node.reads):
        keep = []  # the gradient of a scaled value needs the scale only
    weights = node.reads[:1] if node.op in _SET_UP else node.reads
    tape.emit(node.name, "elementwise", node.reads, node.outs, keep=keep, weights=weights)


_COSTS: dict[str, Callable[[Tape, Node], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Gemm": _matrix,
    "MatMul": _matrix,
    "Einsum": _einsum,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Attention": _attention,
    "Gather": _gather,
    "Dropout": _dropout,
    **dict.fromkeys(_GATES, _recurrent),
    **dict.fromkeys(_NORMS, _norm),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_CASTS, _cast),
}


def _constant(tape: Tape, node: Node) -> None:
    """What does not depend on the sample; a weight, where the tape counts it as one."""
    tape.fold(node.outs, node.reads[:1] if node.op in _CASTS else node.reads)
    for out in tape.param_values.keys() & set(node.outs):
        tape.constants[out] = frozenset({out})


def _foreign(tape: Tape, node: Node) -> None:
    """An operator of another domain: what it does is not what the standard one of its name does."""
    if node.op in (*_COSTS, *_KEEPS, *_VIEWS, *_SUBGRAPHS, "Shape", "Size", "Constant"):
        raise PerformanceError(
            "an operator whose arithmetic the reader does not know",
            where=node.where,
            got=f"{node.op} of the domain {node.domain}",
            allowed=f"{node.op} of ONNX's own domain, ai.onnx",
            todo="Write the model with the standard operators.",
        )
    if tape.varying(node.reads):
        tape.unknown(node.op, node.name, node.reads, node.outs)
    else:
        _constant(tape, node)


def place(tape: Tape, node: Node) -> None:
    """Put a node on the tape: as a constant, a view, or an operator."""
    if node.domain not in STANDARD and node.op not in _ALIKE.get(node.domain, ()):
        _foreign(tape, node)
    elif node.op in ("Shape", "Size"):
        tape.fold(node.outs, [])
    elif not tape.varying(node.reads):
        _constant(tape, node)
    elif node.op in _VIEWS:
        tape.view(node.outs, node.reads[0])
    elif node.op in _SUBGRAPHS:
        raise PerformanceError(
            "control flow: how often it runs is not in the file",
            where=node.where,
            got=node.op,
            todo="Unroll it before the model is written.",
        )
    elif cost := _COSTS.get(node.op):
        cost(tape, node)
    elif node.op in _KEEPS:
        _elementwise(tape, node)
    else:
        tape.unknown(node.op, node.name, node.reads, node.outs)
