"""Which link joins which GPUs, and how fast it is in practice."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from sim.cluster import Links
from sim.hardware import GpuType
from sim.kernels.collectives import allreduce_s, p2p_s
from sim.performance.layout import StageGpus

NVLINK_EFFICIENCY = 0.65
"""Calculon's NVLink systems."""
PCIE_EFFICIENCY = 0.75
"""Estimate: 12 of the 16 Gbyte/s of a third-generation slot."""
NETWORK_EFFICIENCY = 0.90
"""Calculon's InfiniBand networks."""


def node_bytes_per_s(gpu: GpuType) -> float:
    """Bandwidth between two GPUs on a node, as reached: NVLink where the type has it, else PCIe."""
    if gpu.nvlink_gbytes_per_s > 0:
        return gpu.nvlink_gbytes_per_s * 1e9 * NVLINK_EFFICIENCY
    return gpu.pcie_gbytes_per_s * 1e9 * PCIE_EFFICIENCY


def network_bytes_per_s(links: Links, racks: int) -> float:
    """Bandwidth of a node's network link, as reached; the slower of both levels where racks are crossed."""
    rate = (
        links.network_gbytes_per_s if racks == 1 else min(links.network_gbytes_per_s, links.rack_gbytes_per_s)
    )
    return rate * 1e9 * NETWORK_EFFICIENCY


def gang_allreduce_s(
    num_bytes: float, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int, links: Links
) -> float:
    """All-reduce of `num_bytes` over a gang; 0 for one GPU."""
    return float(
        allreduce_s(
            float(num_bytes),
            np.asarray(gpus_per_node, dtype=np.int64),
            node_bytes_per_s(gpu),
            links.node_latency_s,
            network_bytes_per_s(links, racks),
            links.network_latency_s,
        )
    )


def stage_transfer_s(num_bytes: float, sender: StageGpus, receiver: StageGpus, links: Links) -> float:
    """One micro-batch's message of `num_bytes` from a stage to the next.

    Replica i of r holds the part [i / r, (i + 1) / r) of the micro-batch, on either side, and sends each
    piece to whoever needs it; all pieces go at once. Pieces that leave a node share that node's network link,
    those within a node their GPU's link; the message takes as long as the busiest link plus its latency. The
    links within a node are those of the slower of the two types.
    """
    load: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    a, b = len(sender.nodes), len(receiver.nodes)
    for i in range(a):
        for j in range(i * b // a, -(-(i + 1) * b // a)):
            piece = min((i + 1) / a, (j + 1) / b) - max(i / a, j / b)
            if sender.nodes[i] == receiver.nodes[j]:
                load["gpu out", i, 1] += piece
                load["gpu in", j, 1] += piece
            else:
                racks = 1 + (sender.racks[i] != receiver.racks[j])
                load["node out", sender.nodes[i], racks] += piece
                load["node in", receiver.nodes[j], racks] += piece
    inside = min(node_bytes_per_s(sender.gpu), node_bytes_per_s(receiver.gpu))
    slowest = 0.0
    for (link, _, racks), share in load.items():
        if link.startswith("gpu"):
            took = p2p_s(share * num_bytes, inside, links.node_latency_s)
        else:
            took = p2p_s(share * num_bytes, network_bytes_per_s(links, racks), links.network_latency_s)
        slowest = max(slowest, float(took))
    return slowest
