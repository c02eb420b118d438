"""Which link joins which GPUs, and how fast it is in practice.

Links of a node, from near to far: NVLink, one PCIe switch, the host bridge of a CPU socket, the link between sockets. A
gang's ring inside a node is as slow as the farthest that it needs. Names are link classes of
`sim.hardware.linkclasses`; '' is the GPU type's own link (`node_bytes_per_s`), which all clusters have that say nothing
else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from sim.cluster.spec import Links
from sim.hardware.gputypes import GpuType
from sim.hardware.linkclasses import LinkClass, link_class, link_names
from sim.kernels.collectives import all_to_all_s, allreduce_lines, allreduce_s, exposed_allreduce_s, tree_allreduce_s
from sim.performance.graph import PerformanceError
from sim.performance.stage_sites import StageGpus
from traces.errors import did_you_mean

NVLINK_EFFICIENCY = 0.65
"""Calculon's NVLink systems."""
PCIE_EFFICIENCY = 0.75
"""Estimate: 12 of the 16 Gbyte/s of a third-generation slot."""
NETWORK_EFFICIENCY = 0.90
"""Calculon's InfiniBand networks."""
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2.0**20, 2.0**20
"""Gradients that PyTorch's DistributedDataParallel sums at once, and the first of them."""
ALGORITHMS = ("ring", "tree", "fastest")
SOCKET_CLASSES = {3: "qpi", 4: "xgmi", 5: "upi2"}
"""Between sockets, by PCIe generation: Xeon to 2016, EPYC of 2019, Xeon from 2023. A cluster file may say otherwise."""


def node_bytes_per_s(gpu: GpuType) -> float:
    """Bandwidth between two GPUs on a node, as reached: NVLink where the type has it, else PCIe."""
    if gpu.nvlink_gbytes_per_s > 0:
        return gpu.nvlink_gbytes_per_s * 1e9 * NVLINK_EFFICIENCY
    return gpu.pcie_gbytes_per_s * 1e9 * PCIE_EFFICIENCY


def joined(one: GpuType, other: GpuType) -> GpuType:
    """The type whose links join GPUs of two types in a machine: unlike ones by PCIe alone, at the slower's rate."""
    if one.name == other.name:
        return one
    return replace(min(one, other, key=lambda gpu: gpu.pcie_gbytes_per_s), nvlink_gbytes_per_s=0.0)


def network_bytes_per_s(links: Links, racks: int) -> float:
    """Bandwidth of a node's network link, as reached; the slower of both levels where racks are crossed."""
    rate = (
        links.network_gbytes_per_s if racks == 1 else min(links.network_gbytes_per_s, links.rack_gbytes_per_s)
    )
    reached = link_class(links.network_class, "nodes").efficiency if links.network_class else NETWORK_EFFICIENCY
    return rate * 1e9 * reached


def gang_link_names() -> tuple[str, ...]:
    """The link classes that can join GPUs of a node."""
    return link_names("gpus")


def gang_link(gpu: GpuType, slots: Iterable[int], links: Links) -> str:
    """The slowest link class among GPUs `slots` (numbers within their node) of one type; '' is the type's own link.

    One NVLink group (if the type has NVLink), one switch, one socket, or more: the first that holds all of them. A
    group of n holds the GPUs 0 to n - 1, n to 2n - 1, and so on. One GPU, or none, has '' as well.
    """
    if links.node_class:
        return links.node_class
    places = set(slots)
    if len(places) < 2 or links.alike:
        return ""
    if gpu.nvlink_gbytes_per_s > 0 and _together(places, links.gpus_per_nvlink):
        return ""
    generation = pcie_generation(gpu)
    if _together(places, links.switch_gpus):
        return f"pcie{generation}-switch"
    if _together(places, links.gpus_per_socket):
        return links.host_class or f"pcie{generation}-host"
    return links.socket_class or SOCKET_CLASSES[generation]


def pcie_generation(gpu: GpuType) -> int:
    """3, 4 or 5: the catalogue's generation whose rate is nearest to the type's, on a logarithmic scale."""
    return min((3, 4, 5), key=lambda g: abs(np.log2(gpu.pcie_gbytes_per_s / (2 * 2**g))))


def _together(slots: set[int], group: int) -> bool:
    return group == 0 or len({slot // group for slot in slots}) == 1


def stage_link(stage: StageGpus, links: Links) -> str:
    """The slowest link class on any node of a stage. Where slots are unknown, they are taken to be a node's first."""
    if links.alike:
        return links.node_class
    on_node: defaultdict[int, list[int]] = defaultdict(list)
    for i, node in enumerate(stage.nodes):
        on_node[node].append(stage.slots[i] if stage.slots else len(on_node[node]))
    names = [gang_link(stage.gpu, slots, links) for slots in on_node.values() if len(slots) > 1]
    return min(names, key=lambda name: inside(stage.gpu, links, name)[0], default="")


def inside(gpu: GpuType, links: Links, name: str = "") -> tuple[float, float]:
    """Bandwidth (bytes/s) and latency (s) of a link class in a node; '': of `links.node_class`, else the type's own.

    Raises
    ------
    PerformanceError
        No such class.
    """
    name = name or links.node_class
    if not name:
        return node_bytes_per_s(gpu), links.node_latency_s
    link = _class(name)
    return link.bytes_per_s, link.latency_s


def _class(name: str) -> LinkClass:
    names = gang_link_names()
    if name.lower() not in names:
        raise PerformanceError("unknown link class between GPUs of a node", got=name, allowed=", ".join(names),
                               todo=did_you_mean(name.lower(), names))  # fmt: skip
    return link_class(name, "gpus")


def gang_allreduce_s(
    num_bytes: float,
    gpu: GpuType,
    gpus_per_node: tuple[int, ...],
    racks: int,
    links: Links,
    link: str = "",
    algorithm: str = "ring",
) -> float:
    """All-reduce of `num_bytes` over a gang; 0 for one GPU.

    Parameters
    ----------
    link : class that joins the GPUs of a node (`gang_link`, `stage_link`).
    algorithm : 'ring': the faster of one ring and of rings by level (`collectives.allreduce_s`). 'tree': rings on
        the nodes, a double binary tree between them. 'fastest': the faster of both.

    Raises
    ------
    PerformanceError
        Unknown class or algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise PerformanceError("unknown all-reduce", got=algorithm, allowed=", ".join(ALGORITHMS),
                               todo=did_you_mean(algorithm, ALGORITHMS))  # fmt: skip
    size, counts = float(num_bytes), np.asarray(gpus_per_node, dtype=np.int64)
    near = inside(gpu, links, link)
    far = network_bytes_per_s(links, racks), links.network_latency_s
    ring = float(allreduce_s(size, counts, *near, *far))
    if algorithm == "ring":
        return ring
    tree = float(allreduce_s(size, counts.max(keepdims=True), *near, *far))
    tree += float(tree_allreduce_s(size, len(counts), *far))
    return tree if algorithm == "tree" else min(ring, tree)


def gang_all_to_all_s(
    num_bytes: float, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int, links: Links, link: str = ""
) -> float:
    """All-to-all of a gang, each GPU of which has `num_bytes`, for all alike (`collectives.all_to_all_s`).

    `link` and errors as `gang_allreduce_s`.
    """
    counts, near = np.asarray(gpus_per_node, dtype=np.int64), inside(gpu, links, link)
    far = network_bytes_per_s(links, racks), links.network_latency_s
    return float(all_to_all_s(float(num_bytes), counts, *near, *far))


def gang_lines(
    gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int, links: Links, link: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """`gang_allreduce_s` by rings as  min over i of start_s[i] + bytes * s_per_byte[i]:  float64 [2] each."""
    counts, near = np.asarray(gpus_per_node, dtype=np.int64), inside(gpu, links, link)
    start, slope = allreduce_lines(counts, *near, network_bytes_per_s(links, racks), links.network_latency_s)
    return start, slope


def gang_exposed_s(
    bwd_s: np.ndarray,
    grad_bytes: np.ndarray,
    gpu: GpuType,
    gpus_per_node: tuple[int, ...],
    racks: int,
    links: Links,
    link: str = "",
    *,
    bucket_bytes: float = BUCKET_BYTES,
    first_bucket_bytes: float = FIRST_BUCKET_BYTES,
    factor: float = 1.0,
) -> float:
    """Seconds by which the sums of a gang's gradients outlast the backward pass; 0 for one GPU.

    Parameters
    ----------
    bwd_s, grad_bytes : [ops], of the (last) backward pass, in the order of the forward pass.
    factor : times an all-reduce that a sum takes (ZeRO 3: 1.5).

    Raises
    ------
    PerformanceError
        Unknown class; times and gradients of different operators.
    """
    if sum(gpus_per_node) == 1:
        return 0.0
    if np.shape(bwd_s) != np.shape(grad_bytes) or np.ndim(bwd_s) != 1:
        raise PerformanceError("times and gradients do not match", got=f"{np.shape(bwd_s)}, {np.shape(grad_bytes)}",
                               allowed="one of each for an operator")  # fmt: skip
    start, slope = gang_lines(gpu, gpus_per_node, racks, links, link)
    times, sizes = (np.array(a, dtype=np.float64) for a in (bwd_s, grad_bytes))
    lines = start * factor, slope * factor
    return float(exposed_allreduce_s(times, sizes, float(bucket_bytes), float(first_bucket_bytes), *lines))


def relative_speeds(
    compute_s: float,
    bwd_s: np.ndarray,
    grad_bytes: np.ndarray,
    gpu: GpuType,
    gpus: int,
    links: Links,
    *,
    overlap: bool = True,
) -> Mapping[str, float]:
    """How placement slows a gang: its speed by the farthest link it needs, as a fraction of that without communication.

    The survey's question (Ye et al. 2024, "Deep learning workload scheduling in GPU datacenters", Fig. 3b).

    Parameters
    ----------
    compute_s : forward, backward and step of an iteration on each GPU.
    bwd_s, grad_bytes : [ops], its backward pass and the gradients to sum, in the order of the forward pass.
    gpus : of the gang; on one node, or one on each of as many nodes ('network').

    Returns
    -------
    'nvlink' (if the type has it), 'switch', 'host', 'socket', 'network' -> compute / (compute + exposed).
    """
    links, generation = replace(links, node_class=""), pcie_generation(gpu)
    levels = {
        "switch": f"pcie{generation}-switch",
        "host": links.host_class or f"pcie{generation}-host",
        "socket": links.socket_class or SOCKET_CLASSES[generation],
        "network": "",
    }
    if gpu.nvlink_gbytes_per_s > 0:
        levels = {"nvlink": "", **levels}
    bucket = (BUCKET_BYTES, FIRST_BUCKET_BYTES) if overlap else (np.inf, np.inf)
    out = {}
    for level, name in levels.items():
        nodes = (1,) * gpus if level == "network" else (gpus,)
        exposed = gang_exposed_s(bwd_s, grad_bytes, gpu, nodes, 1, links, name,
                                 bucket_bytes=bucket[0], first_bucket_bytes=bucket[1])  # fmt: skip
        out[level] = compute_s / (compute_s + exposed)
    return out
