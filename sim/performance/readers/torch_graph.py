"""Models in PyTorch: `torch.export` traces a module on example inputs; FLOPs and bytes follow from the shapes.

PyTorch is an extra, imported only here and only when called. Rules are those of `onnx_graph`; besides, transposes,
slices and the like are views, and `scaled_dot_product_attention` is one fused kernel that keeps no scores.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.readers.operators import assemble
from sim.performance.readers.tape import Tape, einsum_flops, recurrent_costs, words

_VIEWS = words(
    "view reshape flatten unflatten squeeze unsqueeze permute transpose t mT expand detach alias contiguous slice "
    "select split split_with_sizes chunk unbind narrow movedim swapaxes view_as expand_as _unsafe_view "
    "lift_fresh_copy getitem numpy_T"
)
_KEEPS = {
    **dict.fromkeys(words("relu relu_ sigmoid tanh tanh_ exp sqrt rsqrt reciprocal hardsigmoid"), "output"),
    **dict.fromkeys(
        words(
            "mul mul_ div div_ pow square gelu silu silu_ mish elu selu celu leaky_relu leaky_relu_ prelu hardtanh "
            "hardtanh_ relu6 clamp hardswish hardswish_ log abs sin cos erf softplus maximum minimum where amax amin "
            "max min norm"
        ),
        "inputs",
    ),
    **dict.fromkeys(
        words(
            "add add_ sub sub_ rsub neg mean sum cat stack clone to _to_copy type_as pad constant_pad_nd zeros_like "
            "ones_like eq ne gt ge lt le logical_not logical_and logical_or bitwise_not argmax masked_fill "
            "masked_fill_ tril triu cumsum upsample_nearest2d upsample_bilinear2d repeat roll gather index "
            "index_select floor channel_shuffle pixel_shuffle"
        ),
        "nothing",
    ),
}
"""What an elementwise operator keeps for its backward pass."""
_NORMS = words("batch_norm layer_norm group_norm instance_norm rms_norm native_layer_norm")
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@dataclass
class _Node:
    """A call with the shapes of what it reads and makes."""

    name: str
    op: str
    reads: list[str]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    where: str

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Its shape; only tensors have one."""
        if tensor not in self.shapes:
            raise PerformanceError("the shape of a tensor is unknown", where=self.where, got=tensor)
        return self.shapes[tensor]

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, given by place or by name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)


def _conv(tape: Tape, node: _Node) -> None:
    transposed = "transpose" in node.op or (node.op == "convolution" and node.arg(6, "transposed", False))
    filters = math.prod(node.shape(node.reads[1])[1:])
    flops = 2.0 * math.prod(node.shape(node.reads[0] if transposed else node.name)) * filters
    tape.emit(node.name, "conv", node.reads, [node.name], keep=node.reads[:2], flops=flops)


def _matrix(tape: Tape, node: _Node) -> None:
    """`addmm` and `baddbmm` add their first argument to the product of the next two."""
    first, second = node.reads[1:3] if node.op in ("addmm", "baddbmm") else node.reads[:2]
    kind = "attention" if len(tape.varying([first, second])) == 2 else "gemm"
    flops = 2.0 * math.prod(node.shape(node.name)) * node.shape(first)[-1]
    tape.emit(node.name, kind, node.reads, [node.name], keep=[first, second], flops=flops)


def _einsum(tape: Tape, node: _Node) -> None:
    flops = einsum_flops(node.args[0], [node.shape(tensor) for tensor in node.reads], node.where)
    kind = "attention" if len(tape.varying(node.reads)) == 2 else "gemm"
    tape.emit(node.name, kind, node.reads, [node.name], keep=node.reads, flops=flops)


def _attention(tape: Tape, node: _Node) -> None:
    """Q K^T and its product with V; a statistic of 4 bytes is kept for each row of the scores."""
    query, key, value = (node.shape(tensor) for tensor in node.reads[:3])
    rows = math.prod(query[:-1])
    tape.emit(
        node.name,
        "attention",
        node.reads,
        [node.name],
        keep=[*node.reads[:3], node.name],
        keep_bytes=4.0 * rows,
        flops=2.0 * rows * key[-2] * (query[-1] + value[-1]),
    )


def _recurrent(tape: Tape, node: _Node) -> None:
    """`lstm(input, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first)`."""
    x = node.shape(node.reads[0])
    if len(x) != 3 or not isinstance(node.args[3], bool):
        raise PerformanceError("a recurrent layer on packed sequences", where=node.where, todo="Pad them.")
    layers, directions = node.args[4], 1 + node.args[7]
    steps, batch = (x[1], x[0]) if node.args[8] else x[:2]
    matrices = [shape for tensor in node.reads if tensor in tape.constants and len(shape := node.shape(tensor)) == 2]
    gates = _GATES[node.op]
    hidden = matrices[0][0] // gates
    kept, inner = recurrent_costs(steps, batch, hidden, gates, directions)
    tape.emit(
        node.name,
        "lstm",
        node.reads,
        [node.name],
        keep=node.reads[:1],
        # Each layer but the first keeps its input, too: the output of the one below.
        keep_bytes=layers * kept + (layers - 1) * float(VALUE_BYTES * steps * batch * hidden * directions),
        flops=2.0 * steps * batch * sum(math.prod(shape) for shape in matrices),
        inner_bytes=layers * inner,
        launches=steps * layers * directions,
    )


def _norm(tape: Tape, node: _Node) -> None:
    tape.emit(node.name, "norm", node.reads, [node.name], keep=node.reads[:1])


def _softmax(tape: Tape, node: _Node) -> None:
    tape.emit(node.name, "norm", node.reads, [node.name], keep=[node.name])


def _pool(tape: Tape, node: _Node) -> None:
    keep = node.reads[:1] if "max" in node.op else []
    tape.emit(node.name, "pool", node.reads, [node.name], keep=keep)


def _embedding(tape: Tape, node: _Node) -> None:
    tape.emit(node.name, "embedding", node.reads, [node.name], keep=node.reads[1:2])


def _dropout(tape: Tape, node: _Node) -> None:
    """A mask of a byte a value; nothing at all in a module that was traced for inference."""
    if not node.arg(2, "train", True):
        tape.view([node.name], node.reads[0])
        return
    mask_bytes = float(math.prod(node.shape(node.name)))
    tape.emit(node.name, "elementwise", node.reads, [node.name], keep_bytes=mask_bytes)


def _elementwise(tape: Tape, node: _Node) -> None:
    keep = {"output": [node.name], "inputs": node.reads, "nothing": []}[_KEEPS[node.op]]
    scaled = len(tape.varying(node.reads)) == 1 and not tape.parameters(node.reads)
    if scaled and node.op in ("mul", "mul_", "div", "div_"):
        keep = []  # the gradient of a scaled value needs the scale only
    tape.emit(node.name, "elementwise", node.reads, [node.name], keep=keep)


_COSTS: dict[str, Callable[[Tape, _Node], None]] = {
    **dict.fromkeys(words("conv1d conv2d conv3d convolution"), _conv),
    **dict.fromkeys(words("conv_transpose1d conv_transpose2d conv_transpose3d"), _conv),
    **dict.fromkeys(words("linear addmm mm bmm matmul baddbmm"), _matrix),
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    "embedding": _embedding,
    **dict.fromkeys(words("dropout dropout_ feature_dropout alpha_dropout"), _dropout),
    **dict.fromkeys(words("softmax log_softmax _softmax _log_softmax"), _softmax),
    **dict.fromkeys(_GATES, _recurrent),
    **dict.fromkeys(_NORMS, _norm),
}


def _place(tape: Tape, node: _Node) -> None:
    """Put a call on the tape: as a constant, a view, or an operator."""
    if not tape.varying(node.reads):
        tape.fold([node.name], node.reads)
    elif node.op in _VIEWS:
        tape.view([node.name], node.reads[0])
    elif cost := _COSTS.get(node.op):
        cost(tape, node)
    elif "pool" in node.op:
        _pool(tape, node)
    elif node.op in _KEEPS:
        _elementwise(tape, node)
    else:
        tape.unknown(node.op, node.name, node.reads, [node.name])


def _tensors(value: Any) -> list[Any]:
    """Tensors in a traced value: itself, or those in a list."""
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if hasattr(value, "numel") else []


def _op_name(target: Any) -> str:
    """`aten::conv2d` is 'conv2d'; a Python function is called as it is."""
    schema = getattr(target, "_schema", None)
    return schema.name.split("::")[-1] if schema else getattr(target, "__name__", str(target))


def _walk(program: Any, module: Any, where: str) -> tuple[Tape, float]:
    """The program on a tape, and bytes of its inputs."""
    signature = program.graph_signature
    # Tied parameters are one tensor under several names.
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(value), name) for name, value in module.named_parameters(remove_duplicate=False)}
    values = {name: value.numel() for name, value in module.named_parameters()}
    users = set(signature.user_inputs)
    tape, shapes = Tape(where, {}, values, {}, {}), {}
    for node in program.graph.nodes:
        tensors = _tensors(node.meta.get("val"))
        tape.num_bytes[node.name] = sum(
            float(tensor.numel()) * (VALUE_BYTES if tensor.is_floating_point() else tensor.element_size())
            for tensor in tensors
        )
        if len(tensors) == 1:
            shapes[node.name] = tuple(int(size) for size in tensors[0].shape)
        if node.op == "placeholder":
            if node.name in users:
                tape.maker[node.name] = -1
            else:
                parameter = names.get(signature.inputs_to_parameters.get(node.name))
                tape.constants[node.name] = frozenset({parameter} if parameter else ())
        elif node.op == "get_attr" or (node.op == "call_function" and not tensors):  # sizes and assertions
            tape.fold([node.name], [])
        elif node.op == "call_function":
            place = f"{where}, node {node.name!r}"
            reads = [source.name for source in node.all_input_nodes]
            _place(tape, _Node(node.name, _op_name(node.target), reads, node.args, node.kwargs, shapes, place))
    return tape, sum(tape.num_bytes[tensor] for tensor, of in tape.maker.items() if tensor in users)


def read_torch(
    module: Any,
    example_inputs: tuple[Any, ...],
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    batch_axis: int = 0,
) -> OperatorGraph:
    """The graph of an `nn.Module`, its costs for one sample: those of the example inputs, divided by their batch.

    It is traced as it stands: `module.train()` first, for dropout. Each parameter is counted where it is read
    first.

    Parameters
    ----------
    example_inputs, example_kwargs : what `module` is called with; tensors, also on device 'meta'.
    batch_axis : dimension of every input that is the batch.

    Raises
    ------
    PerformanceError
        PyTorch is missing, the module cannot be traced, the inputs have no common batch, or an operator has
        arithmetic of unknown size; with the node.
    """
    name = name or type(module).__name__
    try:
        import torch
    except ImportError as error:
        raise PerformanceError(
            "PyTorch is needed to read a module", where=name, todo="Install it: pip install 'hetsim[torch]'."
        ) from error
    tensors = _tensors([*example_inputs, *(example_kwargs or {}).values()])
    batches = {tuple(tensor.shape)[batch_axis : batch_axis + 1] for tensor in tensors}
    if len(batches) != 1 or not all(batch and batch[0] > 0 for batch in batches):
        raise PerformanceError(
            f"the example inputs do not have one batch size in dimension {batch_axis}",
            where=name,
            got=[tuple(tensor.shape) for tensor in tensors],
        )
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how PyTorch's own layers trace
            program = torch.export.export(module, example_inputs, dict(example_kwargs or {}))
    except Exception as error:
        # Tracing runs the module's own code, which may raise anything.
        reason = " ".join(str(error).split())[:300]
        raise PerformanceError("torch.export cannot trace the module", where=name, got=reason) from error
    tape, sample_bytes = _walk(program, module, name)
    return assemble(name, "a sample of the module's input", sample_bytes, tape.finish(), samples=batches.pop()[0])
