"""A model as the simulator sees it: operators in topological order, each with its cost for one sample."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traces.errors import HetsimError

VALUE_BYTES = 2
"""Bytes of a weight or an activation in mixed precision."""
MATRIX_KINDS = ("conv", "gemm", "attention", "lstm")
"""Kinds whose time may be set by arithmetic.

Backward they multiply twice: once for the gradient of each factor.
"""


class PerformanceError(HetsimError):
    """A model, GPU type or plan whose speed cannot be told."""


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """Operators of a model in topological order.

    Arrays are read-only, float64, one entry an operator, for one sample.

    Attributes
    ----------
    ops, kind : names, and 'conv', 'gemm', 'attention', 'lstm', 'norm', 'embedding', 'elementwise' or 'pool'.
    inputs : operators that each one reads; -1 is the sample itself.
    flops_fwd : floating-point operations forward, 2 for a multiply-add; those of matrix products only.
    in_bytes, out_bytes : what it reads of other operators, and what it writes.
    inner_bytes : memory traffic forward that is neither (scores of an unfused attention).
    weight_params : trainable parameters.
    stored_bytes : activations that it keeps for its backward pass.
    cut_bytes : bytes that cross a cut after the operator: each output made so far that is read later, once.
    launches : kernels started forward.
    """

    name: str
    sample: str
    ops: tuple[str, ...]
    kind: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    flops_fwd: np.ndarray
    in_bytes: np.ndarray
    out_bytes: np.ndarray
    inner_bytes: np.ndarray
    weight_params: np.ndarray
    stored_bytes: np.ndarray
    cut_bytes: np.ndarray
    launches: np.ndarray

    def __len__(self) -> int:
        return len(self.ops)


@dataclass
class GraphBuilder:
    """Collects operators one by one; `build` works out what crosses each cut.

    Parameters
    ----------
    name : the model.
    sample : what a sample is, as one phrase.
    sample_bytes : size of its input.
    """

    name: str
    sample: str
    sample_bytes: float
    rows: list[tuple] = field(default_factory=list)

    def add(
        self,
        name: str,
        kind: str,
        inputs: tuple[int, ...],
        out_values: float,
        *,
        flops: float = 0.0,
        params: float = 0.0,
        stored_bytes: float = 0.0,
        inner_bytes: float = 0.0,
        launches: int = 1,
    ) -> int:
        """Append an operator that reads the operators `inputs` (-1: the sample); returns its number."""
        read = sum(self.sample_bytes if i < 0 else self.out_bytes(i) for i in inputs)
        self.rows.append(
            (
                name,
                kind,
                inputs,
                flops,
                read,
                out_values * VALUE_BYTES,
                inner_bytes,
                params,
                stored_bytes,
                launches,
            )
        )
        return len(self.rows) - 1

    def out_bytes(self, op: int) -> float:
        """Bytes that an operator writes."""
        return float(self.rows[op][5])

    def build(self) -> OperatorGraph:
        """The finished graph."""
        names, kinds, inputs, flops, read, written, inner, params, stored, launches = zip(
            *self.rows, strict=True
        )
        # An output crosses the cuts from its producer up to just before its last reader.
        last = list(range(len(names)))
        for reader, sources in enumerate(inputs):
            for source in sources:
                if source >= 0:
                    last[source] = max(last[source], reader)
        cut = np.zeros(len(names))
        for producer, reader in enumerate(last):
            cut[producer:reader] += written[producer]
        arrays = [
            np.array(a, dtype=np.float64)
            for a in (flops, read, written, inner, params, stored, cut, launches)
        ]
        for array in arrays:
            array.flags.writeable = False
        return OperatorGraph(self.name, self.sample, names, kinds, inputs, *arrays)
