"""One training iteration of a model cut into stages on given GPUs: times, messages and memory put together.

Stage s works on micro-batches of b samples with r replicas of t GPUs each (tensor parallelism). A replica gets b / r
samples, and each of its GPUs takes

    forward  = sum over operators of their share's time + sums of tensor parallelism (an all-reduce over t GPUs after
               each operator that ends a split)
    backward = the same, + forward again of the blocks that are recomputed

After the stage's last backward (or, overlapped, while it runs) the gradients of a GPU's share are summed over the
replicas, t groups at once, who share each node's network link; then the optimizer steps. ZeRO 1 and 2 send as much (a
reduce-scatter and an all-gather), ZeRO 3 half as much again (Rajbhandari et al. 2020, arXiv:1910.02054, section 7);
each replica steps only its part. What crosses a border is sent once, in parts, by the GPUs of a replica, and gathered
again by those of the next (Narayanan et al. 2021, arXiv:2104.04473, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.cluster import Links
from sim.kernels.collectives import async_periods_s, parameter_server_s
from sim.performance.calibration import Calibration
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.iteration import Iteration, pipeline_iteration
from sim.performance.layout import StageGpus, by_node
from sim.performance.links import (
    ALGORITHMS,
    gang_allreduce_s,
    gang_exposed_s,
    inside,
    network_bytes_per_s,
    stage_link,
    stage_transfer_s,
)
from sim.performance.memory import StageMemory, chunks_in_flight, does_not_fit, in_flight, stage_memory, weight_versions
from sim.performance.operator_time import update_time_s
from sim.performance.recompute import recompute_s
from traces.errors import did_you_mean

EXCHANGES = (*ALGORITHMS, "servers", "async-servers")
"""All-reduces, and parameter servers (one for each node of the gang), synchronous or asynchronous."""

OpTimes = Callable[[int, float, StageGpus], tuple[np.ndarray, np.ndarray]]
"""(ways of tensor parallelism, samples, stage) -> seconds of each operator forward and backward, float64 [ops] each."""


@dataclass(frozen=True)
class Strategy:
    """How a model is trained, apart from where: the fields of `sim.api.Plan` that are not stages."""

    schedule: str
    micro_batches: int = 1
    chunks: int = 1
    recompute: bool = False
    zero: int = 0
    blocking: bool = False
    overlap: bool = False
    """Gradients are summed in buckets while the last backward pass still runs (`links.gang_exposed_s`)."""
    exchange: str = "ring"
    """How gradients are exchanged: one of EXCHANGES."""


def tensor_group(stage: StageGpus) -> tuple[tuple[int, ...], int]:
    """GPUs on each node and racks of the replica of a stage that is spread most."""
    t = stage.tensor
    groups = [(stage.nodes[i : i + t], stage.racks[i : i + t]) for i in range(0, len(stage.nodes), t)]
    nodes, racks = max(groups, key=lambda group: (len(set(group[1])), len(set(group[0]))))
    return by_node(nodes), len(set(racks))


def tensor_sums_s(
    graph: OperatorGraph, samples: float, stage: StageGpus, links: Links, value_bytes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of the all-reduce over a replica's GPUs after each operator, forward and backward: float64 [ops] each."""
    group, racks = tensor_group(stage)
    link = stage_link(stage, links)
    sums = []
    for num_bytes in (graph.reduce_fwd_bytes, graph.reduce_bwd_bytes):
        sizes, which = np.unique(num_bytes, return_inverse=True)
        scale = samples * value_bytes / VALUE_BYTES
        took = [gang_allreduce_s(size * scale, stage.gpu, group, racks, links, link) if size else 0.0 for size in sizes]
        sums.append(np.array(took)[which])
    return sums[0], sums[1]


def gradients_s(
    num_bytes: np.ndarray, stage: StageGpus, links: Links, how: Strategy, backward_s: np.ndarray, work_s: float
) -> float:
    """Seconds that the exchange of a stage's gradients over its replicas adds to an iteration.

    Parameters
    ----------
    num_bytes : float64 [ops of the stage], a GPU's gradients.
    backward_s : float64 [ops of the stage], the last backward pass; only read if the exchange overlaps with it.
    work_s : computation and optimizer step of an iteration; only read if parameter servers are asynchronous.
    """
    t = stage.tensor
    nodes, racks = stage.nodes[::t], len(set(stage.racks[::t]))
    # The t groups of a node send at once over its one network link.
    shared = links if t == 1 else replace(
        links, network_gbytes_per_s=links.network_gbytes_per_s / t, rack_gbytes_per_s=links.rack_gbytes_per_s / t
    )  # fmt: skip
    counts, link = by_node(nodes), stage_link(stage, links)
    whole, factor = float(num_bytes.sum()), 1.5 if how.zero == 3 else 1.0
    if how.exchange in ALGORITHMS:
        if how.overlap:
            return gang_exposed_s(backward_s, num_bytes, stage.gpu, counts, racks, shared, link, factor=factor)
        return gang_allreduce_s(whole, stage.gpu, counts, racks, shared, link, how.exchange) * factor
    if len(nodes) == 1 or whole == 0:
        return 0.0
    # A node's workers share its network link; on one node they and the server share what joins its GPUs.
    rate, latency_s = inside(stage.gpu, links, link)
    if len(counts) > 1:
        rate, latency_s = network_bytes_per_s(shared, racks) / counts[0], links.network_latency_s
    if how.exchange == "servers":
        return float(parameter_server_s(whole, len(nodes), len(counts), rate, latency_s))
    periods = async_periods_s(np.full(len(nodes), work_s), whole, len(counts), rate, latency_s)
    return float(periods.max()) - work_s


def train(
    model: OperatorGraph,
    graphs: Sequence[OperatorGraph],
    batch_size: float,
    spans: Sequence[tuple[int, int]],
    stages: Sequence[StageGpus],
    how: Strategy,
    op_times_s: OpTimes,
    links: Links,
    calibration: Calibration,
) -> Iteration:
    """Time and memory of one iteration.

    Parameters
    ----------
    graphs : of each stage's GPUs: the model, or a GPU's share of it (`OperatorGraph.tensor_parallel`).
    spans : first and last operator of each of v p stages, in order.
    stages : where each is; stage q of an interleaved pipeline is where stage q mod p is.
    """
    micro, value_bytes = batch_size / how.micro_batches, calibration.value_bytes
    scale = value_bytes / VALUE_BYTES
    count = len(spans)
    _check(how, count)
    fwd, bwd, tensor, reduce, update = np.zeros((5, count))
    for q, ((first, last), stage, graph) in enumerate(zip(spans, stages, graphs, strict=True)):
        span, samples = slice(first, last + 1), micro / stage.replicas
        forward, backward = op_times_s(stage.tensor, samples, stage)
        if stage.tensor > 1:
            sums = tensor_sums_s(graph, samples, stage, links, value_bytes)
            forward, backward = forward + sums[0], backward + sums[1]
            tensor[q] = sums[0][span].sum() + sums[1][span].sum()
        fwd[q], bwd[q] = forward[span].sum(), backward[span].sum()
        if how.recompute:
            bwd[q] += recompute_s(graph, forward, first, last)
            if stage.tensor > 1:
                tensor[q] += recompute_s(graph, sums[0], first, last)
        dense = graph.weight_params[span] - graph.sparse_params[span]
        update[q] = update_time_s(dense.sum() / (stage.replicas if how.zero else 1), stage.gpu, calibration)
        # Asynchronous, the exchange follows each micro-batch.
        passes = 1 if how.schedule == "async" else how.micro_batches
        work_s = passes * (fwd[q] + bwd[q]) + update[q]
        reduce[q] = gradients_s(value_bytes * dense, stage, links, how, backward[span], work_s)
    there, back = np.zeros((2, count - 1))
    for q in range(count - 1):
        cut, samples = spans[q][1], micro * scale
        there[q] = _message_s(model, graphs[q + 1], cut, samples, stages[q], stages[q + 1], links)
        back[q] = _message_s(model, graphs[q], cut, samples, stages[q + 1], stages[q], links)
    memory = _memory(graphs, spans, stages, how, micro, value_bytes)
    result = pipeline_iteration(
        how.schedule, fwd, bwd, there, how.micro_batches, reduce, update,
        tuple(one.total_gib for one in memory), comm_bwd=back, tensor=tensor, chunks=how.chunks,
        blocking=how.blocking,
    )  # fmt: skip
    for s, (stage, one) in enumerate(zip(stages, memory, strict=False)):
        if micro < stage.replicas:
            ways = f" ({stage.replicas} replicas)" if stage.tensor > 1 else ""
            gpus = f"{len(stage.nodes)} GPUs{ways}"
            return result.without_fit(f"stage {s} has {gpus} for {micro:g} samples of a micro-batch")
        if reason := does_not_fit(s, stage.gpu.name, one, stage.gpu.memory_gib):
            return result.without_fit(reason)
    return result


def _check(how: Strategy, stages: int) -> None:
    """Raise a PerformanceError where gradients cannot be exchanged as asked."""
    what, allowed = "", ""
    if how.exchange not in EXCHANGES:
        what, allowed = "unknown exchange of gradients", ", ".join(EXCHANGES)
    elif how.exchange == "async-servers" and stages > 1:
        what, allowed = "asynchronous parameter servers and a pipeline", "one stage, or another exchange"
    elif how.exchange != "ring" and how.overlap:
        what, allowed = "only rings overlap with the backward pass", "exchange 'ring', or no overlap"
    elif how.exchange not in ALGORITHMS and how.zero:
        what, allowed = "parameter servers keep the optimizer's state: ZeRO shards nothing", "ZeRO 0"
    if what:
        todo = did_you_mean(how.exchange, EXCHANGES) if how.exchange not in EXCHANGES else ""
        raise PerformanceError(what, got=how.exchange, allowed=allowed, todo=todo)


def _message_s(
    model: OperatorGraph, share: OperatorGraph, last_op: int, samples: float, sender: StageGpus, receiver: StageGpus,
    links: Links,
) -> float:
    """Seconds of a micro-batch's message (activations or their gradients) across the border after `last_op`.

    All of what crosses is sent once. What each GPU of a receiving replica needs whole is then gathered; of tensors that
    are split among them each keeps its part. `share` is the graph of one of the receiver's GPUs.
    """
    whole = float(model.cut_bytes[last_op]) * samples
    took = stage_transfer_s(whole, sender, receiver, links)
    if receiver.tensor > 1:
        # whole = kept + split, and a GPU's share of them is kept + split / t.
        part = float(share.cut_bytes[last_op]) * samples
        kept = max(0.0, whole - (whole - part) / (1 - 1 / receiver.tensor))
        group, racks = tensor_group(receiver)
        link = stage_link(receiver, links)
        # An all-gather is the second half of a ring all-reduce.
        took += gang_allreduce_s(kept / receiver.replicas, receiver.gpu, group, racks, links, link) / 2
    return took


def _memory(
    graphs: Sequence[OperatorGraph], spans: Sequence[tuple[int, int]], stages: Sequence[StageGpus], how: Strategy,
    micro: float, value_bytes: int,
) -> list[StageMemory]:
    """What a GPU of each device needs."""
    p = len(spans) // how.chunks
    out = []
    for s in range(p):
        m, v = how.micro_batches, how.chunks
        held = chunks_in_flight(s, p, m, v) if v > 1 else in_flight(how.schedule, s, p, m)
        out.append(stage_memory(
            graphs[s], list(spans[s::p]), micro / stages[s].replicas, held, replicas=stages[s].replicas, zero=how.zero,
            recompute=how.recompute, versions=weight_versions(how.schedule, s, p), value_bytes=value_bytes,
        ))  # fmt: skip
    return out
