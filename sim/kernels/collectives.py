"""Time of transfers between GPUs: latency + bytes / bandwidth; all-reduces made of them, also beside the backward pass.

Bandwidths are bytes a second in one direction, as reached (efficiency included); latencies are seconds a
step.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


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


@jit
def reduce_scatter_s(num_bytes: float, n: int, bytes_per_s: float, latency_s: float) -> float:
    """Ring reduce-scatter over n GPUs of `num_bytes` each, and as well the ring all-gather of `num_bytes` in all.

    Either is one half of a ring all-reduce, n - 1 steps of bytes / n:

    t = (n - 1) / n * bytes / bandwidth + (n - 1) latency
    (Thakur, Rabenseifner, Gropp 2005, sections 4.1 and 4.2; ZeRO and tensor parallelism are made of them).
    """
    return (n - 1) / n * num_bytes / bytes_per_s + (n - 1) * latency_s


@part
def pipelined_s(num_bytes: float, depth: int, bytes_per_s: float, latency_s: float) -> float:
    """`num_bytes` pass `depth` links one after the other, cut into the number k of equal parts that is best.

    t = min over k of (depth + k - 1) (latency + bytes / (k bandwidth)), which is convex in k; 0 for depth 0.
    """
    if depth < 1:
        return 0.0
    whole = num_bytes / bytes_per_s
    if depth == 1 or latency_s <= 0.0:  # One link: one part. No latency: infinitely many.
        return latency_s + whole
    # More than 1e15 parts is as good as infinitely many, and keeps a latency of almost nothing from overflowing.
    least = max(1.0, min(1e15, np.floor(np.sqrt((depth - 1) * whole / latency_s))))
    a = (depth + least - 1.0) * (latency_s + whole / least)
    b = (depth + least) * (latency_s + whole / (least + 1.0))
    return min(a, b)


@jit
def broadcast_s(num_bytes: float, n: int, bytes_per_s: float, latency_s: float) -> float:
    """Broadcast along a chain of n GPUs, in the best number of parts: `pipelined_s` over n - 1 links."""
    return pipelined_s(num_bytes, n - 1, bytes_per_s, latency_s)


@jit
def tree_depth(n: int) -> int:
    """Links from the root of a binary tree over n GPUs (a root with one subtree) to its deepest leaf: ceil(log2 n)."""
    depth, reach = 0, 1
    while reach < n:
        reach *= 2
        depth += 1
    return depth


@jit
def tree_allreduce_s(num_bytes: float, n: int, bytes_per_s: float, latency_s: float) -> float:
    """All-reduce over two binary trees at once, each of which sums and then spreads half of the bytes.

    A GPU that has children in one tree is a leaf of the other (Sanders, Speck, Träff 2009, "Two-tree algorithms for
    full bandwidth broadcast, reduction and scan"; NCCL since 2.4). In a round it takes in at most two parts of bytes /
    2k and sends at most two: latency + bytes / (k bandwidth). Up and down, with depth = ceil(log2 n) and the best k,

    t = 2 min over k of (depth + k - 1) (latency + bytes / (k bandwidth)); 0 for one GPU.

    For many bytes that is 2 bytes / bandwidth, a ring's for large n; its latency grows with log n, a ring's with n.
    """
    return 2.0 * pipelined_s(num_bytes, tree_depth(n), bytes_per_s, latency_s)


@jit
def all_to_all_s(
    num_bytes: float,
    gpus_per_node: np.ndarray,
    node_bytes_per_s: float,
    node_latency_s: float,
    network_bytes_per_s: float,
    network_latency_s: float,
) -> float:
    """Each of n GPUs (gpus_per_node[i] on node i, int64 [N]) sends `num_bytes` / n to each, and keeps its own part.

    n - 1 rounds, in each of which a GPU sends to one and receives from another. What stays on a node passes the GPUs'
    links, what leaves a node its network link, which its k GPUs share; both at once:

    t = max((k - 1) (bytes / n / node + node latency), k (n - k) bytes / n / network + (n - k) network latency)

    over the nodes. Mixture-of-experts layers pay it twice forward and twice backward (Lepikhin et al. 2020,
    arXiv:2006.16668, section 3.2).
    """
    n = 0
    for i in range(len(gpus_per_node)):
        n += gpus_per_node[i]
    part, slowest = num_bytes / n, 0.0
    for i in range(len(gpus_per_node)):
        k = gpus_per_node[i]
        inside = (k - 1) * (part / node_bytes_per_s + node_latency_s)
        outside = (n - k) * (k * part / network_bytes_per_s + network_latency_s)
        slowest = max(slowest, inside, outside)
    return slowest


@jit
def parameter_server_s(num_bytes: float, workers: int, servers: int, bytes_per_s: float, latency_s: float) -> float:
    """Synchronous parameter servers: all workers send their gradients, then all fetch the new parameters.

    Each of s servers, on machines of their own, holds bytes / s. A phase ends when the busiest link is through: a
    worker's, which passes all bytes, or a server's, which passes bytes / s of each of w workers:

    t = 2 (latency + max(1, w / s) bytes / bandwidth)
    (Li et al. 2014, "Scaling distributed machine learning with the parameter server"; the bottleneck as in Peng et al.
    2018, Optimus, section 3.2.)
    """
    return 2.0 * (latency_s + max(1.0, workers / servers) * num_bytes / bytes_per_s)


@jit
def async_periods_s(
    compute_s: np.ndarray, num_bytes: float, servers: int, bytes_per_s: float, latency_s: float
) -> np.ndarray:
    """Asynchronous parameter servers: seconds between the iterations of each worker, float64 [workers].

    A worker alone computes, sends and fetches:  compute + 2 (latency + bytes / bandwidth). The links of s <= w servers
    pass s bandwidth / bytes iterations a second, of all workers together. Where that is less than the workers could
    do, it is shared max-min fairly: the slow ones keep their pace, the fast ones get equal rates. For w equal workers
    that is  max(alone, w / s * bytes / bandwidth). Stale gradients cost no iterations here: staleness is not modelled.
    """
    workers = len(compute_s)
    alone = compute_s + 2.0 * (latency_s + num_bytes / bytes_per_s)
    out, left = np.empty(workers), servers * bytes_per_s / max(num_bytes, 1e-300)
    slowest_first = np.argsort(-alone)
    for place in range(workers):
        worker = slowest_first[place]
        rate = min(1.0 / alone[worker], left / (workers - place))
        left -= rate
        out[worker] = 1.0 / rate
    return out


@jit
def allreduce_lines(
    gpus_per_node: np.ndarray,
    node_bytes_per_s: float,
    node_latency_s: float,
    network_bytes_per_s: float,
    network_latency_s: float,
) -> tuple[np.ndarray, np.ndarray]:
    """`allreduce_s` as straight lines over the bytes: the smaller of start_s + bytes * s_per_byte, float64 [2] each.

    For loops over many sizes (`exposed_allreduce_s`); on one node both lines are the same.
    """
    nodes = len(gpus_per_node)
    gpus, most = 0, 0
    for i in range(nodes):
        gpus += gpus_per_node[i]
        most = max(most, gpus_per_node[i])
    start, slope = np.zeros(2), np.zeros(2)
    start[:] = 2.0 * (most - 1) * node_latency_s
    slope[:] = 2.0 * (most - 1) / most / node_bytes_per_s
    if nodes > 1:
        slowest = min(node_bytes_per_s, network_bytes_per_s) if most > 1 else network_bytes_per_s
        start[0] = 2.0 * (gpus - 1) * network_latency_s
        slope[0] = 2.0 * (gpus - 1) / gpus / slowest
        start[1] += 2.0 * (nodes - 1) * network_latency_s
        slope[1] += 2.0 * (nodes - 1) / nodes / network_bytes_per_s
    return start, slope


@jit
def exposed_allreduce_s(
    bwd_s: np.ndarray,
    grad_bytes: np.ndarray,
    bucket_bytes: float,
    first_bucket_bytes: float,
    start_s: np.ndarray,
    s_per_byte: np.ndarray,
) -> float:
    """Seconds by which the sums of the gradients outlast the backward pass (Li et al. 2020, VLDB, section 3.2.3).

    The backward pass goes through the operators from the last to the first; an operator's gradients are ready when it
    is done. Gradients are put into a bucket in that order until it holds `bucket_bytes` or more (the first bucket:
    `first_bucket_bytes`), or none are left; then the bucket waits for the all-reduces before it, and is summed in

        min over i of  start_s[i] + bytes * s_per_byte[i]      (`collectives.allreduce_lines`)

    An operator's gradients stay together. The backward pass is not slowed by the messages beside it.

    Parameters
    ----------
    bwd_s, grad_bytes : float64 [ops], in the order of the forward pass.
    bucket_bytes, first_bucket_bytes : PyTorch has 25 MiB and 1 MiB; inf: one bucket at the end, no overlap.
    start_s, s_per_byte : float64 [ways], 1 or more.

    Returns
    -------
    Seconds from the end of the backward pass to that of the last all-reduce; 0 where there is nothing to sum.
    """
    end, ready, free, waiting, full = 0.0, 0.0, 0.0, 0.0, first_bucket_bytes
    for op in range(len(bwd_s) - 1, -1, -1):
        end += bwd_s[op]
        if grad_bytes[op] > 0.0:
            ready = end
            waiting += grad_bytes[op]
        if waiting > 0.0 and waiting >= full:
            free = max(free, ready) + np.min(start_s + waiting * s_per_byte)
            waiting, full = 0.0, bucket_bytes
    if waiting > 0.0:
        free = max(free, ready) + np.min(start_s + waiting * s_per_byte)
    return max(0.0, free - end)
