"""One training iteration of a model cut into stages on given GPUs: times, messages and memory put together.

Stage s works on micro-batches of b samples with r replicas of t GPUs each (tensor parallelism). A replica gets b / r
samples; where r does not divide them, or the micro-batches the batch, the largest share decides, ceil(b / r): all wait
for the replica that has one more, in each micro-batch. Each of its GPUs takes

    forward  = sum over operators of their share's time + sums of tensor parallelism (an all-reduce over t GPUs after
              each operator that ends a split)
    backward = the same, + forward again of the blocks that are recomputed

After the stage's last backward (or, overlapped, while it runs) the gradients of a GPU's share are summed over the
replicas, t groups at once, who share each node's network link; then the optimizer steps. ZeRO 1 and 2 send as much (a
reduce-scatter and an all-gather), ZeRO 3 half as much again (Rajbhandari et al. 2020, arXiv:1910.02054, section 7);
each replica steps only its part. What crosses a border is sent once, in parts, by the GPUs of a replica, and gathered
again by those of the next (Narayanan et al. 2021, arXiv:2104.04473, section 4.1). Tables that operators of several
stages use, or of which few rows are touched, tables and experts that replicas divide: `sim.performance.embeddings`.

A stage of several GPU types has parts; a replica of a part with the share f and r replicas gets ceil(f b / r) samples.
The stage takes forward, backward and at its step as long as the slowest of its parts does in each. Its gradients are
summed over the replicas of all parts at once, inside nodes at the rate of the slowest links that a part needs there.

Parts may have tensor degrees of their own, which divide the largest, T. Shards are consecutive (Shoeybi et al. 2019,
arXiv:1909.08053), so a GPU of degree t holds T / t of the slices that the GPUs of degree T hold one of. Each slice has
a ring of its own through all replicas, and all T rings go at once: of a slice of P bytes,

    ring of P bytes, at a T-th of a node's network link, and at t / T of a link between GPUs of degree t,

which of equal degrees is what is said above. What is not split is in each slice. Each part computes, steps and keeps
its own share; ZeRO shards each slice over all replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from sim.cluster.spec import Links
from sim.hardware.gputypes import GpuType
from sim.kernels.collectives import async_periods_s, parameter_server_s
from sim.performance.calibration import Calibration
from sim.performance.egress import iteration_egress_usd
from sim.performance.embeddings import check_sharded, exchange_s, tied_sums_s, touched
from sim.performance.gpu_links import (
    ALGORITHMS,
    gang_allreduce_s,
    gang_exposed_s,
    inside,
    joined,
    network_bytes_per_s,
    stage_link,
)
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.iteration import Iteration, pipeline_iteration
from sim.performance.memory import (
    CONTEXT_GIB,
    StageMemory,
    chunks_in_flight,
    does_not_fit,
    in_flight,
    stage_memory,
    weight_versions,
)
from sim.performance.messages import message_s
from sim.performance.operator_time import span_update_s
from sim.performance.optimizer import Optimizer
from sim.performance.recompute import recompute_s
from sim.performance.running import Times, graph_sums
from sim.performance.samples import largest_share, too_few
from sim.performance.stage_sites import StageGpus, by_node, tensor_group
from traces.errors import did_you_mean

EXCHANGES = (*ALGORITHMS, "servers", "async-servers")
"""All-reduces, and parameter servers (one for each node of the gang), synchronous or asynchronous."""
OpTimes = Callable[[int, float, GpuType, int], Times]
"""(ways of tensor parallelism, samples, GPU type, replicas that divide it) -> seconds of each operator of the model."""
Degree = tuple[int, int]
"""GPUs of a replica, and replicas that divide tables and experts; 1: none do."""


@dataclass(frozen=True)
class Strategy:
    """How a model is trained, apart from where: the fields of `sim.cluster.plan.Plan` that are not stages."""

    schedule: str
    micro_batches: int = 1
    chunks: int = 1
    recompute: bool = False
    zero: int = 0
    blocking: bool | str = False
    """As `iteration.schedule_ends_s`."""
    overlap: bool = False
    """Gradients are summed in buckets while the last backward pass still runs (`links.gang_exposed_s`)."""
    exchange: str = "ring"
    """How gradients are exchanged: one of EXCHANGES."""


@lru_cache(maxsize=1024)
def tensor_sums(graph: OperatorGraph, samples: float, part: StageGpus, links: Links, value_bytes: int) -> Times:
    """Seconds of the all-reduce over the GPUs of a replica after each operator, forward and backward."""
    group, racks = tensor_group(part)
    links = links.among(part.sites)
    link, scale, sums = stage_link(part, links), samples * value_bytes / VALUE_BYTES, []
    for num_bytes in (graph.reduce_fwd_bytes, graph.reduce_bwd_bytes):
        sizes, which = np.unique(num_bytes, return_inverse=True)
        took = [gang_allreduce_s(size * scale, part.gpu, group, racks, links, link) if size else 0.0 for size in sizes]
        sums.append(np.array(took)[which])
    return Times(*sums)


def slowest_inside(stage: StageGpus, links: Links) -> tuple[GpuType, str, int]:
    """GPU type, link class and tensor degree of the part that sums gradients slowest within a node.

    Of several parts: of those that have two replicas on a node, and of two that are in one machine; where there is
    none, none is used. A link of a part of
    degree t carries finest / t slices at once.
    """
    if not stage.parts:
        return stage.gpu, stage_link(stage, links), stage.tensor
    found = [(part.gpu, stage_link(part, links), part.tensor) for part in stage.parts
             if by_node(part.nodes[:: part.tensor])[0] > 1]  # fmt: skip
    for one, other in combinations(stage.parts, 2):
        if not set(one.nodes).isdisjoint(other.nodes):
            gpu = joined(one.gpu, other.gpu)
            both = replace(one, gpu=gpu, nodes=one.nodes + other.nodes, slots=one.slots + other.slots)
            found.append((gpu, stage_link(both, links), min(one.tensor, other.tensor)))
    return min(found or [(stage.gpu, "", stage.finest)], key=lambda one: inside(one[0], links, one[1])[0] * one[2])


def gradients_s(
    num_bytes: float, stage: StageGpus, links: Links, how: Strategy, work_s: Sequence[float],
    backward: tuple[np.ndarray, np.ndarray] | None = None,
) -> float:  # fmt: skip
    """Seconds that the exchange of a stage's gradients over its replicas, of all its parts, adds to an iteration.

    Parameters
    ----------
    num_bytes : a GPU's gradients; of unlike tensor degrees, those of a GPU of the largest.
    work_s : computation and optimizer step of an iteration, of each part; only read if parameter servers are
        asynchronous.
    backward : float64 [ops of the stage] each, seconds of the last backward pass and bytes of gradients; only read if
        the exchange overlaps with it.
    """
    nodes = [node for part in stage.all_parts for node in part.nodes[:: part.tensor]]
    racks = len({rack for part in stage.all_parts for rack in part.racks[:: part.tensor]})
    if len(nodes) == 1:
        return 0.0
    links = links.among(stage.sites)
    counts, (gpu, link, t) = by_node(tuple(nodes)), slowest_inside(stage, links)
    # What goes over a link inside: all slices of a GPU at once. So the groups of a node are t, not as many as slices.
    slices = stage.finest // t
    num_bytes, backward = num_bytes * slices, backward and (backward[0], backward[1] * slices)
    # The t groups of a node send at once over its one network link.
    shared = links if t == 1 else replace(
        links, network_gbytes_per_s=links.network_gbytes_per_s / t, rack_gbytes_per_s=links.rack_gbytes_per_s / t
    )  # fmt: skip
    factor = 1.5 if how.zero == 3 else 1.0
    if how.exchange in ALGORITHMS:
        if how.overlap and backward is not None:
            return gang_exposed_s(*backward, gpu, counts, racks, shared, link, factor=factor)
        return gang_allreduce_s(num_bytes, gpu, counts, racks, shared, link, how.exchange) * factor
    if num_bytes == 0:
        return 0.0
    # A node's workers share its network link; on one node they and the server share what joins its GPUs.
    rate, latency_s = inside(gpu, links, link)
    if len(counts) > 1:
        rate, latency_s = network_bytes_per_s(shared, racks) / counts[0], links.network_latency_s
    if how.exchange == "servers":
        return float(parameter_server_s(num_bytes, len(nodes), len(counts), rate, latency_s))
    of_workers = np.repeat(np.array(work_s), [part.replicas for part in stage.all_parts])
    periods = async_periods_s(of_workers, num_bytes, len(counts), rate, latency_s)
    return float(periods.max()) - max(work_s)


def train(
    model: OperatorGraph,
    graphs: Mapping[Degree, OperatorGraph],
    batch_size: float,
    spans: Sequence[tuple[int, int]],
    stages: Sequence[StageGpus],
    how: Strategy,
    op_times: OpTimes,
    links: Links,
    calibration: Calibration,
    optimizer: Optimizer,
    context_gib: float = CONTEXT_GIB,
) -> Iteration:
    """Time and memory of one iteration.

    Parameters
    ----------
    graphs : by `Degree`, a GPU's share of the model (`OperatorGraph.tensor_parallel`, `sharded`).
    spans : first and last operator of each of v p stages, in order.
    stages : where each is; stage q of an interleaved pipeline is where stage q mod p is.
    context_gib : of each GPU, taken by the framework.
    """
    count = len(spans)
    _check(how, count)
    check_sharded(model, spans, stages[: count // how.chunks])
    ways = {tensor: graph for (tensor, among), graph in graphs.items() if among == 1}
    job = _Job(graphs, spans, stages, batch_size, how, op_times, links, calibration, optimizer, context_gib)
    fwd, bwd, tensor, reduce, update = np.array([job.stage_s(q) for q in range(count)]).T
    if model.tied:
        reduce = reduce + tied_sums_s(model, spans, stages, job.devices, calibration.value_bytes, links)
    there, back = np.zeros((2, count - 1))
    for q in range(count - 1):
        cut, samples = spans[q][1], max(job.sent(q), job.sent(q + 1)) * job.scale
        there[q] = message_s(model, ways, cut, samples, stages[q], stages[q + 1], links)
        back[q] = message_s(model, ways, cut, samples, stages[q + 1], stages[q], links)
    nearest = [job.nearest(s) for s in range(job.devices)]
    result = pipeline_iteration(
        how.schedule, fwd, bwd, there, how.micro_batches, reduce, update,
        tuple(memory.total_gib for _, memory in nearest), comm_bwd=back, tensor=tensor, chunks=how.chunks,
        blocking=how.blocking,
    )  # fmt: skip
    parts = tuple(memory.total_gib / (part.gpu.memory_gib or math.nan) for part, memory in nearest)
    result = replace(result, memory_part=parts)
    if links.sites.zones and stages[0].sites:
        usd = iteration_egress_usd(model, ways, spans, stages, job.devices, batch_size, job.scale,
                                   calibration.value_bytes, links.sites)  # fmt: skip
        result = replace(result, egress_usd=usd)
    for s, (part, memory) in enumerate(nearest):
        helps = partial(job.helps, s=s, part=part, memory=memory)
        if reason := job.starved(s) or does_not_fit(s, part.gpu.name, memory, part.gpu.memory_gib, helps):
            return result.without_fit(reason)
    return result


@dataclass(frozen=True)
class _Job:
    """The stages of a job (as `train` is given them), and what each takes and needs."""

    graphs: Mapping[Degree, OperatorGraph]
    spans: Sequence[tuple[int, int]]
    stages: Sequence[StageGpus]
    batch_size: float
    how: Strategy
    op_times: OpTimes
    links: Links
    calibration: Calibration
    optimizer: Optimizer
    context_gib: float

    @property
    def micro(self) -> float:
        """Samples of a micro-batch."""
        return self.batch_size / self.how.micro_batches

    @property
    def scale(self) -> float:
        """Bytes of a value over those that graphs count with."""
        return self.calibration.value_bytes / VALUE_BYTES

    @property
    def devices(self) -> int:
        """Stages that have GPUs of their own."""
        return len(self.spans) // self.how.chunks

    def mean_samples(self, part: StageGpus) -> float:
        """Samples of a micro-batch for each replica of the part, if samples could be cut."""
        return self.micro * part.share / part.replicas

    def samples(self, part: StageGpus) -> float:
        """Samples of a micro-batch that the replica of the part that gets most works on."""
        return largest_share(self.mean_samples(part))

    def sent(self, q: int) -> float:
        """Samples of a micro-batch that a stage sends or gets, if each of its replicas has as many as the largest."""
        return sum(part.replicas * self.samples(part) for part in self.stages[q].all_parts)

    def graph(self, part: StageGpus) -> OperatorGraph:
        """What a GPU of a part has of the model."""
        return self.graphs[part.tensor, part.among]

    def _op_times(self, part: StageGpus) -> Times:
        """Seconds of each operator on a GPU of a part."""
        return self.op_times(part.tensor, self.samples(part), part.gpu, part.among)

    # -- time ---------------------------------------------------------------------------------------------------------

    def stage_s(self, q: int) -> tuple[float, float, float, float, float]:
        """Seconds forward, backward, of both in sums or all-to-alls, of the gradients' sum, of the step."""
        stage, (first, last), how = self.stages[q], self.spans[q], self.how
        took = [self._part_s(q, part) for part in stage.all_parts]
        (fwd, there), (bwd, back) = max(one[0] for one in took), max(one[1] for one in took)
        # Asynchronous, the exchange follows each micro-batch.
        passes = 1 if how.schedule == "async" else how.micro_batches
        samples = float(self.micro if how.schedule == "async" else self.batch_size)
        touches = {part.tensor: touched(self.graph(part), samples, self.calibration.value_bytes)
                   for part in stage.all_parts}  # fmt: skip
        graph, rows = self.graphs[stage.finest, stage.among], touches[stage.finest]
        among = stage.replicas if how.zero else 1
        steps = [span_update_s(self.graph(part), first, last, part.gpu, self.calibration, self.optimizer, among,
                               touches[part.tensor].stepped(first, last)) for part in stage.all_parts]  # fmt: skip
        work = [passes * (f + b) + step for ((f, _), (b, _)), step in zip(took, steps, strict=True)]
        num_bytes = self.calibration.value_bytes * graph_sums(graph).summed(first, last) + rows.summed(first, last)
        overlapped = self._last_backward(q, rows.num_bytes) if how.overlap else None
        reduce = gradients_s(num_bytes, stage, self.links, how, work, overlapped)
        return fwd, bwd, there + back, reduce, max(steps)

    def _part_s(self, q: int, part: StageGpus) -> tuple[tuple[float, float], tuple[float, float]]:
        """Seconds of a part forward and backward, each with the sums or all-to-alls that are in it."""
        graph, span = self.graph(part), self.spans[q]
        times = self._op_times(part)
        fwd, bwd, there, back = times.fwd(*span), times.bwd(*span), 0.0, 0.0
        if self.how.recompute:
            bwd += recompute_s(graph, times.fwd_s, *span)
        if part.tensor > 1:
            sums = self._sums(part)
            there, back = sums.fwd(*span), sums.bwd(*span)
            if self.how.recompute:
                back += recompute_s(graph, sums.fwd_s, *span)
        elif part.sharded:
            value_bytes = self.calibration.value_bytes
            there, back = exchange_s(graph, span, self.samples(part), part, self.links, value_bytes, self.how.recompute)
        return (fwd + there, there), (bwd + back, back)

    def _sums(self, part: StageGpus) -> Times:
        """The sums of tensor parallelism after each operator."""
        return tensor_sums(self.graph(part), self.samples(part), part, self.links, self.calibration.value_bytes)

    def _last_backward(self, q: int, rows_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of each operator's last backward pass, in the part that takes longest, and bytes of its gradients."""
        stage, span, passes = self.stages[q], slice(self.spans[q][0], self.spans[q][1] + 1), []
        for part in stage.all_parts:
            took = self._op_times(part).bwd_s[span]
            passes.append(took + self._sums(part).bwd_s[span] if part.tensor > 1 else took)
        graph = self.graphs[stage.finest, stage.among]
        dense = np.where(graph.alone, 0.0, graph.weight_params - graph.sparse_params)[span]
        return max(passes, key=np.sum), self.calibration.value_bytes * dense + rows_bytes[span]

    # -- memory -------------------------------------------------------------------------------------------------------

    def memory(self, s: int, part: StageGpus) -> StageMemory:
        """What a GPU of a part of a device needs."""
        how, p, m, v = self.how, self.devices, self.how.micro_batches, self.how.chunks
        return stage_memory(
            self.graph(part), self.spans[s::p], self.samples(part),
            chunks_in_flight(s, p, m, v) if v > 1 else in_flight(how.schedule, s, p, m),
            replicas=self.stages[s].replicas, zero=how.zero, recompute=how.recompute,
            versions=weight_versions(how.schedule, s, p), value_bytes=self.calibration.value_bytes,
            optimizer=self.optimizer, context_gib=self.context_gib,
        )  # fmt: skip

    def nearest(self, s: int) -> tuple[StageGpus, StageMemory]:
        """The part of a device whose GPUs are fullest, and what they need. Unknown memory is the fullest."""
        needs = [(part, self.memory(s, part)) for part in self.stages[s].all_parts]
        return needs[0] if len(needs) == 1 else max(
            needs, key=lambda need: need[1].total_gib / (need[0].gpu.memory_gib or math.inf)
        )  # fmt: skip

    def starved(self, s: int) -> str:
        """Why a device has too few samples for its replicas; '' where they are enough."""
        stage = self.stages[s]
        for part in stage.all_parts:
            if too_few(self.mean_samples(part)):
                ways = f" ({part.replicas} replicas)" if part.tensor > 1 else ""
                of = f"{len(part.nodes)} {part.gpu.name}" if stage.parts else f"{len(part.nodes)} GPUs"
                return f"stage {s} has {of}{ways} for {self.micro * part.share:g} samples of a micro-batch"
        return ""

    def helps(self, remedy: str, s: int, part: StageGpus, memory: StageMemory) -> bool:
        """Whether a remedy, tried, makes a GPU of the part need less."""
        how = self.how
        if remedy == "more stages":
            return any(first < last for first, last in self.spans[s :: self.devices])
        if remedy == "more replicas":  # whole experts, one a replica, are not cut any further
            return any(self.graph(part).shards[a : b + 1].max() > part.among for a, b in self.spans[s :: self.devices])
        if "/sharded" in remedy:
            return part.tensor == 1 and not self.stages[s].parts
        if remedy == "tensor parallelism":  # `check_sharded` refuses it together with a division
            graph, profile = self.graph(part), self.graph(part).profile
            able = bool(graph.split.any()) if profile is None else max(profile.degrees) > part.tensor
            return able and not part.sharded
        tried = {
            "recompute": replace(how, recompute=True),
            "more micro-batches": replace(how, micro_batches=2 * how.micro_batches),
            **{f"ZeRO {zero}": replace(how, zero=zero) for zero in (1, 2, 3)},
        }[remedy]
        return replace(self, how=tried).memory(s, part).total_gib < memory.total_gib


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
