"""Which GPU serves which stage of a plan, where they are, and whether they are the plan's at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.cluster.plan import Part, Plan
from sim.cluster.sites import Site
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance.graph import PerformanceError

Places = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[Site, ...]]
"""Node, rack, slot and site of each GPU (`layout`)."""
GangSites = tuple[Site, ...]
"""Of a gang's nodes, each once."""


def by_node(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """GPUs on each node, descending, of GPUs on these nodes."""
    return tuple(sorted(Counter(nodes).values(), reverse=True))


@dataclass(frozen=True)
class StageGpus:
    """Where the GPUs of a stage are: for each, in order, the number of its node (or machine) and of that node's rack.

    Numbers need only tell nodes (and racks) apart within one job.
    """

    gpu: GpuType = field(hash=False)
    """Of the first part, where there are several. Not in the hash: a type has none."""
    nodes: tuple[int, ...]
    racks: tuple[int, ...]
    tensor: int = 1
    """GPUs of a replica (tensor parallelism); they follow each other. Of the first part, where there are several."""

    slots: tuple[int, ...] = ()
    """Number of each GPU within its node, where that matters (`Links.alike` is false); else empty."""
    parts: tuple[StageGpus, ...] = ()
    """Replicas of several types, in order (`sim.cluster.plan.Part`)."""
    share: float = 1.0
    """Of a micro-batch's samples, for a part."""
    sites: tuple[Site, ...] = ()
    """Of the node of each GPU, where nodes do not send alike; of a gang that sends nothing but sums, each once."""
    sharded: bool = False
    """Tables and experts are divided among its replicas (`sim.performance.embeddings`)."""

    @property
    def all_parts(self) -> tuple[StageGpus, ...]:
        """`parts`, or the whole stage where it is of one type."""
        return self.parts or (self,)

    @property
    def replicas(self) -> int:
        return sum(len(part.nodes) // part.tensor for part in self.all_parts)

    @property
    def among(self) -> int:
        """Replicas that divide tables and experts among them; 1: each has all."""
        return self.replicas if self.sharded else 1

    @property
    def finest(self) -> int:
        """The largest tensor degree of its parts: slices into which all of them can cut what they hold."""
        return max(part.tensor for part in self.all_parts)

    @property
    def gpus_per_node(self) -> tuple[int, ...]:
        """GPUs on each node, descending."""
        return by_node(self.nodes)


def tensor_group(stage: StageGpus) -> tuple[tuple[int, ...], int]:
    """GPUs on each node and racks of the replica of a stage that is spread most."""
    t = stage.tensor
    groups = [(stage.nodes[i : i + t], stage.racks[i : i + t]) for i in range(0, len(stage.nodes), t)]
    nodes, racks = max(groups, key=lambda group: (len(set(group[1])), len(set(group[0]))))
    return by_node(nodes), len(set(racks))


def layout(gpus: np.ndarray, cluster: ClusterSpec) -> Places:
    """Node and rack of each GPU, numbered in the order of first appearance, and its number within its node.

    All of a placement that matters for speed: numbers within nodes are left out where the cluster's links join all GPUs
    of a node alike, sites where all nodes send alike.

    Raises
    ------
    PerformanceError
        Not GPUs of the cluster, each once.
    """
    numbers = gpus.tolist() if isinstance(gpus, np.ndarray) and gpus.dtype.kind in "iu" and gpus.ndim == 1 else [-1]
    if len(set(numbers)) < len(numbers) or min(numbers, default=0) < 0 or max(numbers, default=0) >= cluster.num_gpus:
        raise PerformanceError(
            "not GPUs of the cluster", where=f"cluster {cluster.name!r}", got=gpus,
            allowed=f"an array of whole numbers from 0 to {cluster.num_gpus - 1}, each once",
        )  # fmt: skip
    nodes = cluster.gpu_node[gpus]
    machines, numbers_there = cluster.machines(gpus)
    slots = () if cluster.links.alike else tuple(numbers_there.tolist())
    sites = tuple(cluster.node_site[node] for node in nodes.tolist()) if cluster.node_site else ()
    return _renumbered(machines.tolist()), _renumbered(cluster.node_rack[nodes].tolist()), slots, sites


def _renumbered(labels: list[int]) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(label, len(seen)) for label in labels)


def gang_on(
    gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int, slots: tuple[int, ...] = (), sites: tuple[Site, ...] = ()
) -> StageGpus:
    """A gang with so many GPUs on each node, in so many racks."""
    nodes = tuple(node for node, count in enumerate(gpus_per_node) for _ in range(count))
    return StageGpus(gpu, nodes, tuple(min(node, racks - 1) for node in nodes), slots=slots, sites=sites)


def in_stage_order(plan: Plan, gpus_of_type: Mapping[str, np.ndarray]) -> np.ndarray:
    """Order a job's GPUs by stage, in a stage by part: int32 [GPUs].

    `gpus_of_type` holds the GPUs of each type, those of one node together. The largest parts of a type take theirs
    first: sizes are powers of two, so that whole stages fill whole nodes where they can.
    """
    parts = plan.parts
    gpus = [gpus_of_type[part.gpu_type][begin : begin + part.gpus]
            for part, begin in zip(parts, places_taken(parts), strict=True)]  # fmt: skip
    return np.concatenate(gpus).astype(np.int32)


def places_taken(parts: Sequence[Part]) -> list[int]:
    """Where the GPUs of each part begin among those of its type: the largest first, of equal ones the first."""
    begins, at = [0] * len(parts), dict.fromkeys([part.gpu_type for part in parts], 0)
    for p in sorted(range(len(parts)), key=lambda p: -parts[p].gpus):
        begins[p] = at[parts[p].gpu_type]
        at[parts[p].gpu_type] += parts[p].gpus
    return begins


def stages_on(plan: Plan, model: str, gpus: np.ndarray, cluster: ClusterSpec, places: Places) -> list[StageGpus]:
    """The stages of a plan (`check_plan`) on the cluster GPUs `gpus` (in stage order), which are at `places`.

    Returns
    -------
    One for each stage; where stages are interleaved, stage q is where stage q mod p is.

    Raises
    ------
    PerformanceError
        The GPUs are not as many, or not of the types, that the plan wants.
    """
    where = f"plan for {model!r}"
    if len(gpus) != plan.num_gpus:
        raise PerformanceError("the GPUs are not the plan's", where=where, got=f"{len(gpus)} GPUs",
                               allowed=f"{plan.num_gpus} GPUs")  # fmt: skip
    types, (nodes, racks, slots, sites) = cluster.node_type[cluster.gpu_node[gpus]].tolist(), places
    stages, at = [], 0
    for number, stage in enumerate(plan.devices):
        parts, first = [], at
        for part in stage.all_parts:
            here = slice(at, at + part.gpus)
            index = cluster.type_index(part.gpu_type)
            if index is None or types[here].count(index) != part.gpus:
                raise PerformanceError(
                    "a stage has GPUs of another type", where=f"{where}, stage {number}",
                    got=sorted({cluster.types[t].name.lower() for t in types[here]}), allowed=part.gpu_type,
                )  # fmt: skip
            gpu = cluster.types[index]
            parts.append(StageGpus(gpu, nodes[here], racks[here], stage.degree(part), slots[here], share=part.share,
                                   sites=sites[here], sharded=stage.sharded))  # fmt: skip
            at += part.gpus
        if stage.parts:
            here = slice(first, at)
            one = parts[0]
            stages.append(StageGpus(one.gpu, nodes[here], racks[here], stage.tensor, slots[here], tuple(parts),
                                    sites=sites[here], sharded=stage.sharded))  # fmt: skip
        else:
            stages.append(parts[0])
    return stages * plan.chunks
