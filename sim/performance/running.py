"""What consecutive operators add up to, in constant time: running sums, and running maxima over powers of two."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from sim.performance.graph import OperatorGraph


class Sums:
    """Sums of a column over operators first to last (inclusive).

    Added up in extended precision, so that a sum is wrong by no more than the last bit of the whole column's. Without
    NaN or infinity, which would spread to the operators behind them.
    """

    def __init__(self, column: np.ndarray) -> None:
        self._before = array("d", [0.0])
        self._before.frombytes(np.cumsum(column, dtype=np.longdouble).astype(np.float64).tobytes())

    def __call__(self, first: int, last: int) -> float:
        return self._before[last + 1] - self._before[first]


def holders(users: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Those of the spans (first and last operator) that hold a table with these users."""
    return [q for q, (first, last) in enumerate(spans) if any(first <= op <= last for op in users)]


class Held(Sums):
    """Sums of a column of parameters, and a copy of each table of another operator that is used among these.

    Parameters
    ----------
    tied : (operators that use a table, its parameters); the first one's are in the column.
    """

    def __init__(self, column: np.ndarray, tied: tuple[tuple[tuple[int, ...], float], ...]) -> None:
        super().__init__(column)
        self._tied = tied

    def __call__(self, first: int, last: int) -> float:
        return super().__call__(first, last) + self.copies(first, last)

    def copies(self, first: int, last: int) -> float:
        """Parameters of copies."""
        span = [(first, last)]
        return sum(params for users, params in self._tied if users[0] not in range(first, last + 1)
                   and holders(users, span))  # fmt: skip


class Maxima:
    """Largest value of a column among operators first to last (inclusive)."""

    def __init__(self, column: np.ndarray) -> None:
        self._of_power = [array("d", np.asarray(column, dtype=np.float64).tobytes())]
        top, reach = np.asarray(column, dtype=np.float64), 1
        while 2 * reach <= len(column):
            top = np.maximum(top[:-reach], top[reach:])
            self._of_power.append(array("d", top.tobytes()))
            reach *= 2

    def __call__(self, first: int, last: int) -> float:
        power = (last - first + 1).bit_length() - 1
        row = self._of_power[power]
        return max(row[first], row[last + 1 - (1 << power)])


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of each operator forward and backward: float64 [ops] each."""

    fwd_s: np.ndarray
    bwd_s: np.ndarray

    @cached_property
    def fwd(self) -> Sums:
        return Sums(self.fwd_s)

    @cached_property
    def bwd(self) -> Sums:
        return Sums(self.bwd_s)


class GraphSums:
    """A graph's parameters, and bytes of a sample, over consecutive operators.

    Attributes
    ----------
    params, sparse, dense : trainable parameters, those of tables hardly touched, the rest; copies of tied ones too.
    alone, alone_dense : of `params` and `dense`, what a replica has that no other one does (`OperatorGraph.sharded`).
    shards : operators that replicas may divide.
    summed : of `dense`, what others have too: whose gradients are summed.
    stored : bytes kept for the backward pass.
    passing : bytes that the largest operator reads and writes.
    """

    def __init__(self, graph: OperatorGraph) -> None:
        self.params, self.sparse = _held(graph, graph.weight_params), Sums(graph.sparse_params)
        self.dense = _held(graph, graph.weight_params - graph.sparse_params)
        self.alone = Sums(np.where(graph.alone, graph.weight_params, 0.0))
        self.alone_dense = Sums(np.where(graph.alone, graph.weight_params - graph.sparse_params, 0.0))
        others = np.where(graph.alone, 0.0, graph.weight_params - graph.sparse_params)
        self.summed = _held(graph, others) if graph.among > 1 else self.dense
        self.shards = Sums(graph.shards > 0)
        self.stored, self.passing = Sums(graph.stored_bytes), Maxima(graph.in_bytes + graph.out_bytes)


def _held(graph: OperatorGraph, column: np.ndarray) -> Sums:
    return Held(column, graph.tied) if graph.tied else Sums(column)


@lru_cache(maxsize=256)
def graph_sums(graph: OperatorGraph) -> GraphSums:
    """The running sums of a graph, remembered."""
    return GraphSums(graph)
