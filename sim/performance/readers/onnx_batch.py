"""The open sizes of an ONNX model's inputs, and which of their dimensions is the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.performance.graph import PerformanceError
from traces.errors import did_you_mean

MOST_SIZE = 10**9
"""Elements along a dimension: no model has more."""


@dataclass(frozen=True)
class _Input:
    """An input of the model with dimensions; a symbol that is no name, as Paddle's '?', is none."""

    name: str
    dims: Sequence[Any]
    symbols: Sequence[str]
    is_open: Sequence[bool]

    def sizes(self) -> tuple[int, ...]:
        return tuple(dim.dim_value for dim in self.dims)


def batch_of(model: Any, dims: Mapping[str, int], batch_axis: int, where: str) -> int:
    """Fix the sizes of the inputs, in place; returns the batch that all of them have.

    A size of -1 is an open one, as an absent one is. A size goes by its symbol, or by INPUT:DIMENSION. An input whose
    batch is elsewhere, as that of a recurrent state, has there the symbol of the first input's batch.

    Raises
    ------
    PerformanceError
        A size is missing, impossible or of no dimension; or the inputs have no batch in common.
    """
    for name, size in dims.items():
        if not 1 <= size <= MOST_SIZE:
            raise PerformanceError(
                f"dimension {name!r} has an impossible size", where=where, got=size, allowed=f"1 to {MOST_SIZE:,}"
            )
    inputs = _inputs(model)
    if not inputs:
        raise PerformanceError("the model has no input with dimensions: nothing in it is a sample", where=where)
    most = max(len(entry.dims) for entry in inputs)
    if not 0 <= batch_axis < most:
        raise PerformanceError("no input has that dimension, which is said to be the batch", where=where,
                               got=batch_axis, allowed="0" if most == 1 else f"0 to {most - 1}")  # fmt: skip
    sizes = _fix(inputs, dims, batch_axis, where)
    batches = _batches(inputs, batch_axis)
    if not _is_one(batches):
        raise PerformanceError(
            f"the inputs do not have one batch size in dimension {batch_axis}",
            where=where,
            got=", ".join(f"{entry.name}: {list(entry.sizes())}" for entry in inputs),
            todo=_remedy(inputs, batch_axis),
        )
    _substitute(model, sizes)
    return next(iter(batches.values()))


def _inputs(model: Any) -> list[_Input]:
    weights = {tensor.name for tensor in model.graph.initializer}
    found = []
    for entry in model.graph.input:
        if entry.name not in weights and entry.type.HasField("tensor_type"):
            dims = list(entry.type.tensor_type.shape.dim)
            is_open = [not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims]
            found.append(_Input(entry.name, dims, [_symbol(dim) for dim in dims], is_open))
    return [entry for entry in found if entry.dims]


def _symbol(dim: Any) -> str:
    """The name of an open size; '': it has none, or what is written there stands for any size."""
    text: str = dim.dim_param
    return text if text != "None" and any(letter.isalpha() for letter in text) else ""


def _batch_at(entry: _Input, inputs: Sequence[_Input], batch_axis: int) -> int:
    """Where an input has its batch."""
    first = inputs[0].symbols
    symbol = first[batch_axis] if batch_axis < len(first) else ""
    return list(entry.symbols).index(symbol) if symbol and symbol in entry.symbols else batch_axis


def _fix(inputs: Sequence[_Input], dims: Mapping[str, int], batch_axis: int, where: str) -> dict[str, int]:
    """Give each open dimension its size, the batch's 1 unless it is given; returns the sizes by symbol."""
    sizes: dict[str, int] = {}
    known_names: set[str] = set()
    for entry in inputs:
        batch_at = _batch_at(entry, inputs, batch_axis)
        for axis, dim in enumerate(entry.dims):
            if not entry.is_open[axis]:
                continue
            symbol, place = entry.symbols[axis], f"{entry.name}:{axis}"
            known_names |= {symbol, place} - {""}
            given = dims[place] if place in dims else dims.get(symbol)
            if given is None and axis != batch_at:
                raise PerformanceError(
                    f"dimension {axis} of input {entry.name!r} has no size",
                    where=where,
                    got=dim.dim_param or None,
                    todo=f"Give it: --dim {symbol or place}=128; in Python, dims={{{symbol or place!r}: 128}}.",
                )
            dim.dim_value = 1 if given is None else given
            if symbol:
                sizes[symbol] = dim.dim_value
    for name in dims:
        if name not in known_names:
            raise PerformanceError(
                "no input has an open dimension of that name", where=where, got=name,
                allowed=", ".join(sorted(known_names)) or "none: all sizes are in the file",
                todo=did_you_mean(name, known_names),
            )  # fmt: skip
    return sizes


def _batches(inputs: Sequence[_Input], batch_axis: int) -> dict[str, int]:
    """The batch of each input that has such a dimension."""
    at = {entry.name: (entry, _batch_at(entry, inputs, batch_axis)) for entry in inputs}
    return {name: entry.dims[axis].dim_value for name, (entry, axis) in at.items() if axis < len(entry.dims)}


def _is_one(batches: Mapping[str, int]) -> bool:
    return len(set(batches.values())) == 1 and min(batches.values()) >= 1


def _remedy(inputs: Sequence[_Input], batch_axis: int) -> str:
    """What to give so that all inputs have one batch, and that there may be nothing to give."""
    open_at, fixed = [], set()
    for entry in inputs:
        axis = _batch_at(entry, inputs, batch_axis)
        if axis < len(entry.dims) and entry.is_open[axis]:
            open_at.append(f"{entry.name}:{axis}")
        elif axis < len(entry.dims):
            fixed.add(entry.dims[axis].dim_value)
    said = []
    if open_at and len(fixed) == 1 and min(fixed) >= 1:
        said.append(f"If dimension {batch_axis} is the batch of all inputs: "
                    + " ".join(f"--dim {place}={min(fixed)}" for place in open_at) + ".")  # fmt: skip
    for axis in range(max(len(entry.dims) for entry in inputs)):
        batches = _batches(inputs, axis)
        if axis != batch_axis and len(batches) == len(inputs) and _is_one(batches):
            said.append(f"If dimension {axis} is: --batch-axis {axis}; in Python, batch_axis={axis}.")
    said.append("A model whose inputs have the batch at different dimensions is read only where that dimension is open "
                "and has one name in all of them: write it so.")  # fmt: skip
    return " ".join(said)


def _substitute(model: Any, sizes: Mapping[str, int]) -> None:
    """Put sizes for symbols in the shapes that the model states; forget those with others: they are inferred."""
    for entry in [*model.graph.value_info, *model.graph.output]:
        tensor = entry.type.tensor_type
        for dim in tensor.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
        if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim):
            tensor.ClearField("shape")
