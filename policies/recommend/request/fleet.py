"""The GPUs that one job is planned on: types, counts, nodes, and an empty cluster of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from sim.api import ClusterSpec, Plan
from sim.performance import GpuType, Performance
from sim.performance.stage_sites import in_stage_order

NODE_GPUS = 8
"""GPUs on a node where nobody says."""


MOST_GPUS = 1_000_000
"""Of one type."""


def whole(what: str, numbers: Sequence[object], low: int, high: int = MOST_GPUS) -> tuple[int, ...]:
    """Whole numbers from `low` to `high`, as they must be; a RecommendError for what is none."""
    for number in numbers:
        good = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not good or not low <= int(number) <= high:  # type: ignore[call-overload]
            raise RecommendError(f"impossible {what}", got=number, allowed=f"whole numbers from {low} to {high:,}")
    return tuple(int(number) for number in numbers)  # type: ignore[call-overload]


class Fleet:
    """GPU types, how many GPUs there are of each, and a cluster of full nodes, all free, to judge plans on.

    GPUs of one type lie together, on as few nodes as possible.

    Parameters
    ----------
    performance : its links join the nodes.
    types : GPU types, in order.
    counts : GPUs there are of each type.
    node_gpus : GPUs on a node of each type (default `NODE_GPUS`).
    rented_gpus : GPUs of each type that are rented together, and so paid together (default 1).
    machines : of each type the machines, by number, that its nodes are in; nodes beyond those are machines of their
        own, as all are where nothing is said. GPUs of several types in a machine are joined by PCIe.

    Attributes
    ----------
    spec : ClusterSpec of the types that are there.
    gpus_of_type : int32 arrays, the GPUs of `spec` that are of each type that is there, by its name.
    present : indices of the types of which there is a GPU.

    Raises
    ------
    RecommendError
        A GPU type of unknown memory (unknown is not 'fits'), a type named twice, or no GPUs at all.
    """

    def __init__(
        self, performance: Performance, types: Sequence[GpuType], counts: Sequence[int],
        node_gpus: Sequence[int] | None = None, rented_gpus: Sequence[int] | None = None,
        machines: Sequence[Sequence[int]] = (),
    ) -> None:
        self.types = tuple(types)
        sizes = [NODE_GPUS] * len(self.types) if node_gpus is None else node_gpus
        self.counts, self.node_gpus = whole("GPU counts", counts, 0), whole("GPUs on a node", sizes, 1)
        self.rented_gpus = whole("GPUs rented together", rented_gpus or [1] * len(self.types), 1)
        if not len(self.types) == len(self.counts) == len(self.node_gpus) == len(self.rented_gpus):
            raise RecommendError("a count and a node size for each GPU type are needed",
                                 got=f"{len(self.types)} types, {len(self.counts)} counts, {len(self.node_gpus)} sizes")
        self.names = tuple(gpu.name for gpu in self.types)
        self.present = tuple(t for t, count in enumerate(self.counts) if count > 0)
        self.machines = tuple(tuple(of_type) for of_type in machines)
        self._check()
        self.spec, self.gpus_of_type = self._full_nodes(performance)

    def gpus(self, plan: Plan) -> np.ndarray:
        """GPUs of `spec` for a plan, in stage order: int32. The plan uses no more of a type than there are."""
        return in_stage_order(plan, self.gpus_of_type)

    def usd_per_h(self, counts: Sequence[int]) -> float:
        """Price of so many GPUs of each type, NaN where one that is used has none."""
        return sum(gpu.price_or_nan * self.paid(t, n) for t, (gpu, n) in enumerate(zip(self.types, counts, strict=True))
                   if n)

    def paid(self, t: int, gpus: int) -> int:
        """GPUs of type t that are paid for where so many are used: what is rented is rented whole."""
        return -(-gpus // self.rented_gpus[t]) * self.rented_gpus[t]

    def _check(self) -> None:
        if not self.present:
            raise RecommendError("there are no GPUs to plan with", got=self.counts, allowed="at least one GPU")
        if len(set(self.names)) < len(self.names):
            raise RecommendError("a GPU type is named twice", got=", ".join(self.names), allowed="each type once",
                                 todo="Add up its counts.")
        for t in self.present:
            gpu = self.types[t]
            if gpu.memory_gib is None or not 0 < gpu.memory_gib < math.inf:
                raise RecommendError("the memory of a GPU type is unknown", where=f"GPU type {gpu.name!r}",
                                     got=gpu.memory_gib, allowed="its capacity in GiB",
                                     todo="Add memory_gib to its entry, or leave the type out.")

    def _full_nodes(self, performance: Performance) -> tuple[ClusterSpec, dict[str, np.ndarray]]:
        """An empty cluster of full nodes, and the GPUs of each type in it."""
        types: list[GpuType] = []
        node_type: list[int] = []
        machine: list[int] = []
        own = 1 + max((number for of_type in self.machines for number in of_type), default=0)
        sizes: list[int] = []
        for t in self.present:
            full, rest = divmod(self.counts[t], self.node_gpus[t])
            node_type += [len(types)] * (full + (rest > 0))
            sizes += [self.node_gpus[t]] * full + [rest] * (rest > 0)
            if self.machines:
                there = self.machines[t][: full + (rest > 0)]
                machine += [*there, *range(own, own + full + (rest > 0) - len(there))]
                own += full + 1
            types.append(self.types[t])
        spec = ClusterSpec.build("full nodes", types, node_type, sizes, links=performance.links, node_machine=machine)
        gpu_type = spec.gpu_type
        return spec, {gpu.name: np.flatnonzero(gpu_type == t).astype(np.int32) for t, gpu in enumerate(types)}
