"""Work a second of jobs on GPUs: on those that a job holds, and on any so many of a type, before it has them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sim.cluster.plan import Plan
from sim.cluster.sites import Site, distinct
from sim.cluster.spec import WHOLE, ClusterSpec
from sim.performance.graph import PerformanceError
from sim.performance.iteration import Iteration
from sim.performance.model import Performance
from sim.performance.stage_sites import in_stage_order
from traces.errors import did_you_mean


def iteration_on(
    performance: Performance, model: str, batch_size: int, gpus: np.ndarray, plan: Plan | None, cluster: ClusterSpec
) -> Iteration:
    """One iteration on these GPUs, whole ones: by the plan, else data-parallel on the type of the first.

    Parameters
    ----------
    gpus : int32 [slots], GPUs of the cluster, in stage order where there is a plan.
    """
    if plan is not None:
        return performance.plan(model, batch_size, plan, gpus, cluster)
    gpu = cluster.types[cluster.node_type[cluster.gpu_node[gpus[0]]]]
    layout: tuple[int, ...] = (1,)
    slots: tuple[int, ...] = ()
    sites: tuple[Site, ...] = ()
    racks = 1
    if gpus.size > 1:
        nodes = cluster.gpu_node[gpus]
        counts = Counter(nodes.tolist())  # of so few a set is made ten times as fast as a sorted array
        layout = tuple(sorted(counts.values(), reverse=True))
        racks = len(set(cluster.node_rack[list(counts)].tolist())) if len(layout) > 1 else 1
        if cluster.node_site and len(layout) > 1:
            sites = distinct(cluster.node_site[node] for node in counts)
        if not cluster.links.alike:
            # Node by node, as the layout counts them: most GPUs first.
            order = np.lexsort((gpus, nodes, np.array([-counts[node] for node in nodes.tolist()])))
            slots = tuple(cluster.machines(gpus)[1][order].tolist())
    return performance.data_parallel(model, batch_size, gpu, layout, racks, slots, sites)


def packed_gpus(cluster: ClusterSpec, kind: int) -> np.ndarray:
    """All GPUs of a type, int32; the first n of them lie on as few nodes as hold n.

    The largest nodes come first, of equal ones those of the rack with the most GPUs of the type.
    """
    nodes = np.flatnonzero(cluster.node_type == kind)
    sizes, racks = cluster.node_gpus[nodes], cluster.node_rack[nodes]
    of_rack = np.bincount(racks, weights=sizes)[racks]
    nodes = nodes[np.lexsort((nodes, racks, -of_rack, -sizes))]
    spans = [np.arange(cluster.node_first[node], cluster.node_first[node + 1], dtype=np.int32) for node in nodes]
    return np.concatenate(spans) if spans else np.empty(0, dtype=np.int32)


class Throughput:
    """Work a second of jobs on GPUs of a type, by a performance model, packed on the empty cluster. Answers are kept.

    0 where a job does not run: its memory does not fit, or the cluster has not as many GPUs. NaN where the model knows
    its rate only as measured, and nobody measured it there.

    Parameters
    ----------
    performance : whose opinion it is; None: durations are replayed as recorded, one second a second on any GPUs.
    models, batch_sizes, milli : of each job: its model, its batch (samples), its share of each GPU (thousandths).
    side_by_side : a job alone has all of a GPU's rate, whatever its share.
    """

    def __init__(
        self, performance: Performance | None, cluster: ClusterSpec, models: Sequence[str], batch_sizes: Sequence[int],
        milli: Sequence[int], side_by_side: bool = False,
    ) -> None:  # fmt: skip
        self._performance, self._cluster, self._side_by_side = performance, cluster, side_by_side
        kinds: dict[tuple[str, int, int], int] = {}
        keys = zip(models, batch_sizes, milli, strict=True)
        # Replayed as recorded, a second is a second, of whatever share.
        keys_of = keys if performance is not None else (("", 0, one) for _, _, one in keys)
        self._kind = np.array([kinds.setdefault(key, len(kinds)) for key in keys_of], dtype=np.int64)
        self._kinds = list(kinds)
        self._gpus = [packed_gpus(cluster, kind) for kind in range(len(cluster.types))]
        self._known: dict[tuple[int, int], np.ndarray] = {}
        """Of (GPU type, slots): the rate of each kind of job; below 0: not asked for yet."""

    def of(self, rows: np.ndarray, gpu_type: str | int, gpus: int | np.ndarray) -> np.ndarray:
        """Work a second of each job on `gpus` slots (one number, or int [rows]) of a type: float64 [rows].

        Raises
        ------
        PerformanceError
            A type that the cluster does not have, or fewer than no GPUs.
        """
        rows, index = np.asarray(rows), self._type(gpu_type)
        counts = np.broadcast_to(np.asarray(gpus), rows.shape)
        if counts.dtype.kind not in "iu" or (counts < 0).any():
            raise PerformanceError("impossible number of GPUs", got=gpus, allowed="whole numbers from 0")
        kinds, rates = self._kind[rows], np.empty(rows.shape)
        for count in np.unique(counts).tolist():
            at = counts == count
            rates[at] = self._on(index, count, kinds[at])
        return rates

    def of_plan(self, row: int, plan: Plan) -> float:
        """Work a second of a job by a plan, each type's GPUs packed as `packed_gpus` says, the largest parts first.

        Raises
        ------
        PerformanceError
            A type that the cluster does not have, or a plan that is none of the job's model.
        """
        there = {part.gpu_type: self._gpus[self._type(part.gpu_type)] for part in plan.parts}
        need = {name: sum(part.gpus for part in plan.parts if part.gpu_type == name) for name in there}
        if any(count > there[name].size for name, count in need.items()):
            return 0.0
        return self._rate(int(self._kind[row]), in_stage_order(plan, there), plan)

    def _type(self, gpu_type: str | int) -> int:
        kinds = self._cluster.types
        index = self._cluster.type_index(gpu_type) if isinstance(gpu_type, str) else int(gpu_type)
        if index is None or not 0 <= index < len(kinds):
            names = [gpu.name for gpu in kinds]
            raise PerformanceError("the cluster has no such GPU type", where=f"cluster {self._cluster.name!r}",
                                   got=gpu_type, allowed=", ".join(names), todo=did_you_mean(str(gpu_type), names))
        return index

    def _on(self, index: int, count: int, kinds: np.ndarray) -> np.ndarray:
        """Rates of kinds of jobs on so many slots of a type."""
        known = self._known.get((index, count))
        if known is None:
            known = self._known[index, count] = np.full(len(self._kinds), -1.0)
        for kind in np.unique(kinds[known[kinds] < 0]).tolist():
            a_gpu = WHOLE // self._kinds[kind][2]
            on = self._gpus[index][: -(-count // a_gpu)]
            there = 0 < count <= on.size * a_gpu
            known[kind] = self._rate(kind, np.repeat(on, a_gpu)[:count], None) if there else 0.0
        return known[kinds]

    def _rate(self, kind: int, gpus: np.ndarray, plan: Plan | None) -> float:
        model, batch, milli = self._kinds[kind]
        if self._performance is None:
            return 1.0
        try:
            found = iteration_on(self._performance, model, batch, gpus, plan, self._cluster)
        except PerformanceError:
            if self._performance.undivided(model):
                return math.nan
            raise
        return found.rate if self._side_by_side else found.rate * (milli / 1000.0)
