"""What operators of a stage take and need at least, for all that the stage may be on: of what bounds are made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.recommend.request.pace import measured
from policies.recommend.request.request import Request
from sim.performance import GpuType, PerformanceError
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.memory import GIB
from sim.performance.operator_time import operator_times_s, update_times_s
from sim.performance.samples import largest_share

MOST_REPLICAS = 64
"""Replica counts that are choices of their own; larger ones are taken together, 1 / 16 at a time."""
SHARE_STEP = 1.05
"""Ratio of neighbouring samples a GPU where stages may mix types, at most; few samples are told apart."""


@dataclass(frozen=True)
class Choice:
    """GPUs that an operator may be on: those of type t, each working on low to high samples of a micro-batch."""

    t: int
    tensor: int
    low: float
    high: float
    gpus: float
    """Fewest that such a stage takes: of replicas that work on `high` samples on average."""
    replicas: float
    """Most of them; inf where unknown (a part of a stage of several types)."""


class Work:
    """What operators take and need, by choice."""

    def __init__(self, request: Request) -> None:
        self.request, self.fleet, self.space = request, request.fleet, request.space
        performance = self.performance = request.performance
        graph = performance.graph(request.model)
        self.graphs: dict[int, OperatorGraph] = {}
        for ways in self.space.tensor:
            try:
                self.graphs[ways] = graph.tensor_parallel(ways)
            except PerformanceError:
                continue
        # Of stages that divide tables and experts: what no number of replicas goes below.
        self.most = 1
        if True in self.space.sharded and 1 in self.graphs and graph.shards.any():
            self.most = max(min(self.fleet.counts[t], request.budget) for t in self.fleet.present)
            self.graphs[1] = graph.sharded(self.most, least=True)
        self.flush = "async" not in {name or performance.schedule for name in self.space.schedules}
        self._times: dict[tuple[int, int, float], tuple[np.ndarray, np.ndarray]] = {}

    @property
    def mixed(self) -> bool:
        several = len(self.fleet.present) > 1 and self.request.budget > 1
        return self.space.mixed and not self.space.single_type and several

    @property
    def sums_told(self) -> bool:
        """Whether it is known how gradients are summed."""
        told = self.performance.exchange == "ring" and not self.performance.overlap and self.performance.links.alike
        return told and not self.fleet.machines  # in which unlike types are not on two nodes

    def choices(self, m: int) -> list[Choice]:
        """All choices with m micro-batches."""
        return [c for t in self.fleet.present for ways, graph in self.graphs.items()
                if measured(graph, self.fleet.types[t]) for c in self._of(t, ways, m)]  # fmt: skip

    def _of(self, t: int, ways: int, m: int) -> Iterator[Choice]:
        micro, most = self.request.batch_size / m, min(self.fleet.counts[t], self.request.budget) // ways
        if self.mixed:
            high = largest_share(micro)
            while most and high >= 1:
                low = float(min(high, math.floor(high / SHARE_STEP) + 1))
                yield Choice(t, ways, low, high, ways * micro / high, math.inf)
                high = low - 1
        r, most = 1, min(most, math.floor(micro))
        while r <= most:
            last = r if r < MOST_REPLICAS else min(most, r + r // 16)
            low = largest_share(micro / last)
            yield Choice(t, ways, low, low if r == last else max(low, micro / r), ways * r, last)
            r = last + 1

    def times_s(self, t: int, ways: int, samples: float) -> tuple[np.ndarray, np.ndarray]:
        """Operator times forward and backward on one of `ways` GPUs: float64 [ops] each, with the sums over these."""
        key = (t, ways, samples)
        if key not in self._times:
            graph, gpu = self.graphs[ways], self.fleet.types[t]
            forward, backward = operator_times_s(graph, samples, gpu, calibration=self.performance.calibration)
            a_byte_s = self._tensor_s_per_byte(t, ways) * samples * self.performance.value_bytes / VALUE_BYTES
            self._times[key] = forward + graph.reduce_fwd_bytes * a_byte_s, backward + graph.reduce_bwd_bytes * a_byte_s
        return self._times[key]

    def _tensor_s_per_byte(self, t: int, ways: int) -> float:
        """Least seconds a byte of a sum over the GPUs of a replica: a ring on one node, or over two or more."""
        links = self.performance.links
        if ways < 2 or not links.alike:
            return 0.0
        ring = 2 * (ways - 1) / ways
        return min(ring / inside(self.fleet.types[t], links)[0], 1.0 / network_bytes_per_s(links.fastest, 1))

    def after_s(self, choice: Choice) -> np.ndarray:
        """Least all-reduce and optimizer step that each operator adds to a stage: float64 [ops]."""
        graph, gpu = self.graphs[choice.tensor], self.fleet.types[choice.t]
        params = np.where(graph.alone, 0.0, graph.weight_params - graph.sparse_params)
        step_s = update_times_s(graph, gpu, self.performance.calibration, self.performance.optimizer)
        if max(self.space.zero):
            step_s = step_s / choice.replicas
        return step_s + params * (self.performance.value_bytes * self._sum_s_per_byte(choice, gpu))

    def _sum_s_per_byte(self, choice: Choice, gpu: GpuType) -> float:
        """Least seconds a byte of gradients over the replicas: a ring on one node, or over as few as hold them.

        Over N nodes either one ring of all r replicas at the network's speed at most, 2 (r - 1) / r / network, or
        rings by level, at least 2 (N - 1) / N / network. Several types are on two nodes at least.
        """
        links, r = self.performance.links, choice.replicas
        if not self.sums_told or r < 2:
            return 0.0
        near, far = inside(gpu, links)[0], network_bytes_per_s(links.fastest, 1)
        if math.isinf(r):
            return 1.0 / far
        # Of an interval of counts, the fewest replicas are about 1 / 16 fewer.
        r = r if r <= MOST_REPLICAS else math.floor(r * 15 / 16)
        size = self.fleet.node_gpus[choice.t]
        nodes = max(2, math.ceil(r * choice.tensor / size))
        over = min(2 * (nodes - 1) / nodes, 2 * (r - 1) / r) / far
        return min(over, 2 * (r - 1) / r / near) if r * choice.tensor <= size else over

    def gib(self, choice: Choice) -> np.ndarray:
        """Least memory that each operator adds to a GPU: float64 [ops]."""
        graph, value, zero = self.graphs[choice.tensor], self.performance.value_bytes, max(self.space.zero)
        shard = [1 / choice.replicas if zero >= stage else 1.0 for stage in (1, 2, 3)]
        # Of a graph that is divided as far as can be: divided among the replicas that there are.
        again = np.where(graph.alone, self.most / min(choice.replicas, self.most), 1.0)
        params, dense = graph.weight_params * again, (graph.weight_params - graph.sparse_params) * again
        kept = self.performance.optimizer
        state = (value * params * shard[2] + kept.gradient_bytes(value) * dense * shard[1]
                 + kept.state_bytes(value) * params * shard[0])  # fmt: skip
        if max(self.space.recompute):
            return np.asarray(state / GIB)
        return np.asarray((state + choice.low * graph.stored_bytes * value / VALUE_BYTES) / GIB)

    def passing_gib(self, choice: Choice) -> np.ndarray:
        """What an operator's input and output take beside it: float64 [ops]."""
        graph = self.graphs[choice.tensor]
        scale = choice.low * self.performance.value_bytes / VALUE_BYTES / GIB
        return np.asarray((graph.in_bytes + graph.out_bytes) * scale)
