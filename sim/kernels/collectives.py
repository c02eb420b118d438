"""Time of transfers between GPUs: latency + bytes / bandwidth, and all-reduces made of them.

Bandwidths are bytes a second in one direction, as reached (efficiency included); latencies are seconds a
step.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def p2p_s(num_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """One message: latency + bytes / bandwidth (the alpha-beta model)."""
    return latency_s + num_bytes / bytes_per_s


@jit
def ring_allreduce_s(num_bytes: float, n: int, bytes_per_s: float, latency_s: float) -> float:
    """Ring all-reduce over n GPUs: 2 (n - 1) steps of bytes / n each.

    t = 2 (n - 1) / n * bytes / bandwidth + 2 (n - 1) latency; 0 for one GPU.
    """
    return 2.0 * (n - 1) / n * num_bytes / bytes_per_s + 2.0 * (n - 1) * latency_s


@jit
def allreduce_s(
    num_bytes: float,
    gpus_per_node: np.ndarray,
    node_bytes_per_s: float,
    node_latency_s: float,
    network_bytes_per_s: float,
    network_latency_s: float,
) -> float:
    """All-reduce of a gang with gpus_per_node[i] GPUs on node i (int64 [N]).

    On one node: a ring over the node's links. On N nodes the faster of two ways, as collective libraries
    choose:

    - one flat ring through all n GPUs at the slowest link, every step at the network's latency:
      2 (n - 1) / n * bytes / min(node, network);
    - by level: reduce-scatter in each node, ring between the nodes (the k GPUs of a node share its network
      link, so that all the bytes pass it), all-gather in each node; k is the largest of gpus_per_node:
      2 (k - 1) / k * bytes / node + 2 (N - 1) / N * bytes / network.
    """
    nodes = len(gpus_per_node)
    gpus, most = 0, 0
    for i in range(nodes):
        gpus += gpus_per_node[i]
        most = max(most, gpus_per_node[i])
    inside = ring_allreduce_s(num_bytes, most, node_bytes_per_s, node_latency_s)
    if nodes == 1:
        return inside
    slowest = min(node_bytes_per_s, network_bytes_per_s) if most > 1 else network_bytes_per_s
    flat = ring_allreduce_s(num_bytes, gpus, slowest, network_latency_s)
    return min(flat, inside + ring_allreduce_s(num_bytes, nodes, network_bytes_per_s, network_latency_s))
