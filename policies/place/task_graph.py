"""Operators with the tensors between them, and devices with links between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sim.kernels.place import topological_order
from traces.errors import HetsimError

LINKS = ("shared", "directed")
_UNSET = np.empty(0)


def _unset() -> np.ndarray:
    return _UNSET


class PlacementError(HetsimError):
    """A graph, devices or a placement that make no sense, or operators that fit on no device."""


@dataclass(frozen=True, eq=False)
class PlacementGraph:
    """Operators of one training step (or of an inference) and the tensors between them.

    Arrays are read-only by agreement.

    Attributes
    ----------
    work_s : float64 [ops, kinds of device], or [ops] where all devices are alike; seconds, finite.
    memory_bytes : float64 [ops], output that is kept from the operator's start until all readers have ended; that of
        an operator without readers is kept to the end.
    edges : int64 [E, 2], source and reader; a pair may have several.
    edge_bytes : float64 [E]; of edges of one tensor, that which is sent first counts.
    colocate : int64 [ops], operators of one group >= 0 are on one device; -1: free (default).
    device_kind : int64 [ops], the kind of device that it must run on; -1: any (default).
    kept_bytes : float64 [ops], on its device during the whole step: weights, their gradients (default 0).
    tensor : int64 [E], edges of equal number and source carry one tensor, which a cache receives once (default 0).

    Raises
    ------
    PlacementError
        Shapes do not fit, a number is negative or not finite, an edge leads nowhere, or (`order`) there is a cycle.
    """

    work_s: np.ndarray
    memory_bytes: np.ndarray
    edges: np.ndarray
    edge_bytes: np.ndarray
    colocate: np.ndarray = field(default_factory=_unset)
    device_kind: np.ndarray = field(default_factory=_unset)
    kept_bytes: np.ndarray = field(default_factory=_unset)
    tensor: np.ndarray = field(default_factory=_unset)

    def __post_init__(self) -> None:
        work = np.array(self.work_s, dtype=np.float64, ndmin=1)
        work = work[:, None] if work.ndim == 1 else work
        ops, edges = len(work), np.array(self.edges, dtype=np.int64).reshape(-1, 2)
        columns = {
            "work_s": (work, work.shape, np.float64, 0),
            "memory_bytes": (self.memory_bytes, (ops,), np.float64, 0),
            "edges": (edges, edges.shape, np.int64, 0),
            "edge_bytes": (self.edge_bytes, (len(edges),), np.float64, 0),
            "colocate": (self.colocate, (ops,), np.int64, -1),
            "device_kind": (self.device_kind, (ops,), np.int64, -1),
            "kept_bytes": (self.kept_bytes, (ops,), np.float64, 0),
            "tensor": (self.tensor, (len(edges),), np.int64, 0),
        }
        for name, (value, shape, dtype, default) in columns.items():
            value = np.full(shape, default) if value is _UNSET else value
            object.__setattr__(self, name, column(name, value, shape, dtype, default))
        if self.edges.max(initial=-1) >= ops:
            raise PlacementError("an edge leads to no operator", got=int(self.edges.max()), allowed=f"0 to {ops - 1}")

    def __len__(self) -> int:
        return len(self.work_s)

    @cached_property
    def order(self) -> np.ndarray:
        """int64 [ops], a topological order: breadth first, in the order of numbers and of edges (Kahn 1962)."""
        order = topological_order(*self.leaving, self.edges)
        if len(order) < len(self):
            raise PlacementError("the graph has a cycle", got=f"{len(self) - len(order)} operators on or behind it")
        return order

    @cached_property
    def rank(self) -> np.ndarray:
        """int64 [ops], place of each operator in `order`."""
        return inverse(self.order)

    @cached_property
    def leaving(self) -> tuple[np.ndarray, np.ndarray]:
        """First int64 [ops + 1] and edge numbers int64 [E]: those that leave op are edge[first[op]:first[op + 1]]."""
        return _grouped(self.edges[:, 0], len(self))

    @cached_property
    def entering(self) -> tuple[np.ndarray, np.ndarray]:
        """As `leaving`, of the edges that enter."""
        return _grouped(self.edges[:, 1], len(self))


@dataclass(frozen=True, eq=False)
class Devices:
    """Where operators may run.

    Attributes
    ----------
    kind : int64 [D], column of `work_s` of each device; where that has one column, all devices run alike.
    memory_bytes : float64 [D]; infinity: no limit.
    s_per_byte, latency_s : of a transfer, bytes * s_per_byte + latency_s; numbers, or float64 [D, D] by sender and
        receiver.
    links : 'shared' or 'directed' (`policies.place.placement_problem`).
    cache : a tensor is sent once to each device that reads it, else once for each edge.
    """

    kind: np.ndarray
    memory_bytes: np.ndarray
    s_per_byte: float | np.ndarray
    latency_s: float | np.ndarray
    links: str = "directed"
    cache: bool = True

    def __post_init__(self) -> None:
        count = len(np.atleast_1d(self.kind))
        if count == 0:
            raise PlacementError("no devices")
        if self.links not in LINKS:
            raise PlacementError("unknown kind of links", got=self.links, allowed=", ".join(LINKS))
        object.__setattr__(self, "kind", column("kind", self.kind, (count,), np.int64, 0))
        memory = np.array(self.memory_bytes, dtype=np.float64)
        if memory.shape != (count,) or not (memory >= 0).all():
            raise PlacementError("memory_bytes is not a number from 0 for each device", got=self.memory_bytes)
        object.__setattr__(self, "memory_bytes", memory)
        for name in ("s_per_byte", "latency_s"):
            matrix = np.broadcast_to(np.asarray(getattr(self, name), dtype=np.float64), (count, count)).copy()
            object.__setattr__(self, name, column(name, matrix, (count, count), np.float64, 0))

    @classmethod
    def alike(
        cls, count: int, s_per_byte: float, latency_s: float, *, memory_bytes: float = np.inf,
        links: str = "directed", cache: bool = True,
    ) -> Devices:
        """`count` devices of one kind."""
        return cls(np.zeros(count), np.full(count, memory_bytes), s_per_byte, latency_s, links, cache)

    @property
    def count(self) -> int:
        """Number of devices, D."""
        return len(self.kind)


def column(name: str, value: object, shape: tuple[int, ...], dtype: type, low: float) -> np.ndarray:
    """What was given as an array of this shape and type.

    Raises
    ------
    PlacementError
        Another shape, or a number that is not finite or is below `low`.
    """
    array = np.array(value, dtype=np.float64)
    if array.shape != shape:
        raise PlacementError(f"{name} has a wrong shape", got=array.shape, allowed=str(shape))
    if not (np.isfinite(array) & (array >= low)).all():
        raise PlacementError(f"a number of {name} is not finite, or below {low:g}")
    return np.ascontiguousarray(array, dtype=dtype)


def _grouped(key: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    first = np.zeros(groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(key, minlength=groups), out=first[1:])
    return first, np.argsort(key, kind="stable")


def inverse(order: np.ndarray) -> np.ndarray:
    """Place of each in a permutation."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank
