"""From a program of named tensors, as ONNX and torch.export have it, to operators: who made what, who keeps what.

A sum, a view or a copy needs nothing of its own for the backward pass; a product needs its factors, a ReLU its
output. A tensor that several operators need is kept once, by the first.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.performance.graph import VALUE_BYTES, PerformanceError
from sim.performance.readers.operators import Op

_MATRIX_WORDS = re.compile(
    r"attention|attn|conv|gemm|matmul|mm$|^mm|linear|einsum|lstm|gru|rnn|fft|fused", re.IGNORECASE
)


def words(text: str) -> list[str]:
    """The words of a text: a long list of names on few lines."""
    return text.split()


@dataclass
class Tape:
    """Operators of a program, written down in its order.

    Attributes
    ----------
    where : the model, for messages.
    num_bytes : size of each tensor whose shape is known; floating-point values count `VALUE_BYTES`.
    param_values : trainable values of each parameter.
    constants : tensors that do not depend on the sample -> parameters that are in them.
    maker : tensor -> operator that made it; -1 for the sample.
    base : view -> the tensor that it shows.
    odd : kinds of operators that the reader does not know.
    """

    where: str
    num_bytes: dict[str, float]
    param_values: Mapping[str, int]
    constants: dict[str, frozenset[str]]
    maker: dict[str, int]
    ops: list[Op] = field(default_factory=list)
    base: dict[str, str] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)
    _kept: set[str] = field(default_factory=set)
    _counted: set[str] = field(default_factory=set)

    def varying(self, names: Iterable[str]) -> list[str]:
        """Those of the tensors that depend on the sample."""
        return [name for name in names if name not in self.constants]

    def parameters(self, names: Iterable[str]) -> frozenset[str]:
        """Parameters in the constants among the tensors."""
        return frozenset().union(*(self.constants.get(name, frozenset()) for name in names))

    def fold(self, outs: Iterable[str], reads: Iterable[str]) -> None:
        """Outputs that are worked out once, from constants: no operator."""
        found = self.parameters(reads)
        for out in outs:
            self.constants[out] = found

    def view(self, outs: Iterable[str], of: str) -> None:
        """Outputs that show another tensor's values: no operator."""
        if of in self.constants:
            return self.fold(outs, [of])
        for out in outs:
            self.base[out] = self.base.get(of, of)
            self.maker[out] = self.maker[of]
        return None

    def emit(
        self,
        name: str,
        kind: str,
        reads: Sequence[str],
        outs: Sequence[str],
        *,
        keep: Iterable[str] = (),
        keep_bytes: float = 0.0,
        flops: float = 0.0,
        inner_bytes: float = 0.0,
        launches: int = 1,
        weights: Sequence[str] | None = None,
    ) -> None:
        """Append an operator.

        Parameters
        ----------
        reads, outs : tensors; `outs` only those whose size matters.
        keep : tensors that its backward pass needs; those that are constant cost nothing.
        keep_bytes : what it keeps besides.
        weights : reads whose parameters are its own; None: all.
        """
        inputs = tuple(dict.fromkeys(self.maker[tensor] for tensor in self.varying(reads))) or (-1,)
        needed = {self.base.get(tensor, tensor) for tensor in self.varying(keep)} - self._kept
        own = self.parameters(reads if weights is None else weights) - self._counted
        self._kept |= needed
        self._counted |= own
        for out in outs:
            self.maker[out] = len(self.ops)
        self.ops.append(
            Op(
                name,
                kind,
                inputs,
                sum(self.size(out, name) for out in outs),
                flops=flops,
                params=float(sum(self.param_values[parameter] for parameter in own)),
                stored_bytes=keep_bytes + sum(self.size(tensor, name) for tensor in sorted(needed)),
                inner_bytes=inner_bytes,
                launches=launches,
            )
        )

    def size(self, tensor: str, node: str) -> float:
        """Bytes of a tensor.

        Raises
        ------
        PerformanceError
            Its shape is unknown; the message names the node.
        """
        if tensor not in self.num_bytes:
            raise PerformanceError(
                "the shape of a tensor is unknown",
                where=f"{self.where}, node {node!r}",
                got=tensor,
                todo="Give the sizes of symbolic dimensions (`dims`), or write the model with its shapes.",
            )
        return self.num_bytes[tensor]

    def unknown(self, op: str, name: str, reads: Sequence[str], outs: Sequence[str]) -> None:
        """An operator of a kind that the reader does not know: elementwise, unless it may multiply matrices.

        Raises
        ------
        PerformanceError
            Its name says that it has matrix products, of unknown size.
        """
        if _MATRIX_WORDS.search(op):
            raise PerformanceError(
                "an operator whose arithmetic the reader does not know",
                where=f"{self.where}, node {name!r}",
                got=op,
                todo="Write the model with plain matrix products, convolutions and recurrent layers.",
            )
        self.odd.add(op)
        self.emit(name, "elementwise", reads, outs, keep=reads)

    def finish(self) -> list[Op]:
        """The operators.

        Raises
        ------
        PerformanceError
            There are none.

        Warns
        -----
        UserWarning
            Some were of unknown kind.
        """
        if not self.ops:
            raise PerformanceError("the model has no operator that depends on its input", where=self.where)
        if self.odd:
            names = ", ".join(sorted(self.odd))
            warnings.warn(f"{self.where}: taken for elementwise operators: {names}", stacklevel=3)
        return self.ops


def recurrent_costs(steps: int, batch: int, hidden: int, gates: int, directions: int) -> tuple[float, float]:
    """Bytes that a recurrent layer keeps besides its input, and moves inside forward.

    For each sequence, step and direction it keeps state, gates and, in an LSTM (4 gates), its cell; gates are
    written and read.
    """
    cells = float(steps * batch * hidden * directions) * VALUE_BYTES
    return cells * (1 + gates + (gates == 4)), cells * 2 * gates


def einsum_flops(equation: str, shapes: Sequence[Sequence[int]], where: str) -> float:
    """FLOP of a product of two tensors by Einstein's notation: 2 for each combination of its letters.

    Raises
    ------
    PerformanceError
        There are not two factors with a letter for each dimension, or '...'.
    """
    factors = equation.replace(" ", "").split("->")[0].split(",")
    if [len(factor) for factor in factors] != [len(shape) for shape in shapes] or len(shapes) != 2 or "." in equation:
        raise PerformanceError(
            "an einsum that is not a product of two tensors", where=where, got=equation, allowed="'ab,bc->ac' and such"
        )
    sizes = {
        letter: size
        for factor, shape in zip(factors, shapes, strict=True)
        for letter, size in zip(factor, shape, strict=True)
    }
    flops = 2.0
    for size in sizes.values():
        flops *= size
    return flops
