"""Where the GPUs of a plan's stages are, and whether they are the plan's at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sim.api import Plan
from sim.cluster import ClusterSpec
from sim.hardware import GpuType
from sim.performance.graph import PerformanceError


def by_node(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """GPUs on each node, descending, of GPUs on these nodes."""
    return tuple(sorted(Counter(nodes).values(), reverse=True))


@dataclass(frozen=True)
class StageGpus:
    """Where the GPUs of a stage are: for each, in order, the number of its node and of that node's rack.

    Numbers need only tell nodes (and racks) apart within one job.
    """

    gpu: GpuType
    nodes: tuple[int, ...]
    racks: tuple[int, ...]
    tensor: int = 1
    """GPUs of a replica (tensor parallelism); they follow each other."""

    slots: tuple[int, ...] = ()
    """Number of each GPU within its node, where that matters (`Links.alike` is false); else empty."""

    @property
    def replicas(self) -> int:
        return len(self.nodes) // self.tensor

    @property
    def gpus_per_node(self) -> tuple[int, ...]:
        """GPUs on each node, descending."""
        return by_node(self.nodes)


def layout(
    gpus: np.ndarray, cluster: ClusterSpec
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Node and rack of each GPU, numbered in the order of first appearance, and its number within its node.

    All of a placement that matters for speed: the last is empty where the cluster's links join all GPUs of a node
    alike.
    """
    nodes = cluster.gpu_node[gpus]
    slots = () if cluster.links.alike else tuple((gpus - cluster.node_first[nodes]).tolist())
    return _renumbered(nodes.tolist()), _renumbered(cluster.node_rack[nodes].tolist()), slots


def _renumbered(labels: list[int]) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(label, len(seen)) for label in labels)


def stages_on(
    plan: Plan, model: str, operators: int, gpus: np.ndarray, cluster: ClusterSpec
) -> list[StageGpus]:
    """The plan's stages on the cluster GPUs `gpus` (in stage order).

    Parameters
    ----------
    operators : how many the model has; 0: unknown (a measured model, which cannot be divided).

    Returns
    -------
    One for each stage; where stages are interleaved, stage q is where stage q mod p is.

    Raises
    ------
    PerformanceError
        The stages do not cover the model in order, or the GPUs are not as many or not of the types that the
        plan wants.
    """
    where = f"plan for {model!r}"
    spans = [(s.first_op, s.last_op) for s in plan.stages]
    if operators == 0 and (len(spans) != 1 or plan.micro_batches != 1):
        raise PerformanceError(
            "a model known by measured rates cannot be divided",
            where=where,
            got=f"{len(spans)} stages",
            allowed="one stage, one micro-batch",
        )
    if plan.chunks < 1 or len(spans) % plan.chunks:
        raise PerformanceError(
            "each GPU of an interleaved pipeline runs as many stages",
            where=where,
            got=f"{len(spans)} stages, {plan.chunks} chunks",
            allowed="a number of stages that the chunks divide",
        )
    ends = [-1, *(last for _, last in spans)]
    if operators and (
        any(first != ends[s] + 1 or last < first for s, (first, last) in enumerate(spans))
        or ends[-1] != operators - 1
    ):
        raise PerformanceError(
            "the stages do not cover the model",
            where=where,
            got=spans,
            allowed=f"operators 0 to {operators - 1}, in order, each once",
        )
    if plan.micro_batches < 1 or any(s.gpus < 1 for s in plan.stages) or len(gpus) != plan.num_gpus:
        raise PerformanceError(
            "the GPUs are not the plan's",
            where=where,
            got=f"{len(gpus)} GPUs, {plan.micro_batches} micro-batches",
            allowed=f"{plan.num_gpus} GPUs, at least one a stage, and a micro-batch or more",
        )
    nodes, racks, slots = layout(gpus, cluster)
    stages, at = [], 0
    for number, s in enumerate(plan.devices):
        if s.tensor < 1 or s.gpus % s.tensor:
            raise PerformanceError(
                "tensor parallelism does not divide the GPUs of a stage",
                where=f"{where}, stage {number}",
                got=f"{s.gpus} GPUs by {s.tensor}",
                allowed="a multiple",
            )
        part = slice(at, at + s.gpus)
        found = {cluster.types[t].name.lower() for t in cluster.gpu_type[gpus[part]]}
        index = cluster.type_index(s.gpu_type)
        if index is None or found != {s.gpu_type.lower()}:
            raise PerformanceError(
                "a stage has GPUs of another type",
                where=f"{where}, stage {number}",
                got=sorted(found),
                allowed=s.gpu_type,
            )
        stages.append(StageGpus(cluster.types[index], nodes[part], racks[part], s.tensor, slots[part]))
        at += s.gpus
    return stages * plan.chunks
