"""A model as coarse layers, and what planners with a cost model of their own measure of them: time, memory, bytes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from policies.recommend.request.devices import Style
from policies.recommend.request.pace import measured, pace_s
from policies.recommend.request.partition_problem import blocks_of
from policies.recommend.request.request import Request
from sim.performance import PerformanceError
from sim.performance.gpu_links import gang_allreduce_s
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.memory import in_flight, stage_memory
from sim.performance.operator_time import operator_times_s

LAYERS = 32
"""Layers at most, so stages at most."""


class Layers:
    """Runs of operators between cheap cuts, at most `LAYERS`, as even in time as the operators allow.

    Parameters
    ----------
    request : the job; its model has operators.

    Attributes
    ----------
    first_op : int64 [L + 1], first operator of each layer, then the number of operators.
    params : float64 [L + 1], running sum of the parameters whose gradients are exchanged.
    cut_bytes : float64 [L + 1], bytes of a sample that cross the border before each layer.
    """

    def __init__(self, request: Request) -> None:
        self.performance, self.model, self.fleet = request.performance, request.model, request.fleet
        self.graph = self.performance.graph(self.model)
        samples = max(1.0, request.batch_size / request.budget)
        share = np.zeros(len(self.graph))
        for t in self.fleet.present:
            time_s = np.add(*pace_s(self.performance, self.model, samples, self.fleet.types[t]))
            share += time_s / time_s.sum()
        self.first_op = blocks_of(share, self.graph.cut_bytes, LAYERS)
        self.params = self._running(self.graph.weight_params - self.graph.sparse_params)
        self.cut_bytes = np.zeros(len(self.first_op))
        self.cut_bytes[1:-1] = self.graph.cut_bytes[self.first_op[1:-1] - 1] * self.value_bytes / VALUE_BYTES
        self._times: dict[tuple[int, float, int, bool], np.ndarray] = {}
        self._forms: dict[tuple[int, int, bool, int, int], np.ndarray] = {}
        self._shares: dict[int, OperatorGraph] = {1: self.graph}

    def __len__(self) -> int:
        return len(self.first_op) - 1

    @property
    def value_bytes(self) -> int:
        return self.performance.value_bytes

    def span(self, first: int, end: int) -> tuple[int, int]:
        """First and last operator of the layers first .. end - 1."""
        return int(self.first_op[first]), int(self.first_op[end]) - 1

    def ways(self, asked: tuple[int, ...]) -> list[int]:
        """Those degrees of tensor parallelism that the model allows, and that were measured on all types."""
        out = []
        for ways in asked:
            try:
                self._shares.setdefault(ways, self.graph.tensor_parallel(ways))
            except PerformanceError:
                continue
            if all(measured(self._shares[ways], self.fleet.types[t]) for t in self.fleet.present):
                out.append(ways)
        return out

    def share(self, ways: int, among: int = 1) -> OperatorGraph:
        """The operators of one of so many GPUs, a degree of `ways`, of `among` replicas that divide what has shards."""
        return self._shares[ways].sharded(among)

    @cached_property
    def flops(self) -> np.ndarray:
        """float64 [L + 1]: running sum of the arithmetic of a sample forward; of time, where nobody counted it."""
        flops = self.graph.flops_fwd
        if not flops.sum() > 0:
            flops = pace_s(self.performance, self.model, 1.0, self.fleet.types[self.fleet.present[0]])[0]
        return self._running(flops)

    def time_s(self, t: int, samples: float, ways: int = 1, *, recompute: bool = False) -> np.ndarray:
        """float64 [L + 1]: running sum over layers of forward and backward of `samples` samples on `ways` GPUs.

        With tensor parallelism the sums over its GPUs, within a node, are part of it; with recomputation a second
        forward.
        """
        key = t, samples, ways, recompute
        if key not in self._times:
            forward, backward = self.operators_s(t, samples, ways)
            self._times[key] = self._running((2 if recompute else 1) * forward + backward)
        return self._times[key]

    def operators_s(self, t: int, samples: float, ways: int) -> tuple[np.ndarray, np.ndarray]:
        """float64 [ops] each: forward and backward of `samples` samples on `ways` GPUs, with the sums over these."""
        gpu = self.fleet.types[t]
        if ways == 1:
            return pace_s(self.performance, self.model, samples, gpu)
        share, calibration = self._shares[ways], self.performance.calibration
        forward, backward = operator_times_s(share, samples, gpu, calibration=calibration)
        scale = samples * self.value_bytes / VALUE_BYTES
        return (forward + self._sums_s(share.reduce_fwd_bytes * scale, t, ways),
                backward + self._sums_s(share.reduce_bwd_bytes * scale, t, ways))

    def memory_gib(
        self, samples: float, held: int, ways: int, replicas: int, style: Style, sharded: bool = False
    ) -> np.ndarray:
        """float64 [L + 1, L + 1]: memory of a GPU of a stage of layers i .. j - 1; inf for i >= j.

        `sharded`: replicas divide tables and experts.
        """
        fixed, passing, stored = self._form(ways, replicas, style, sharded)
        return np.asarray(fixed + samples * (passing + held * stored))

    def most_samples(self, memory_gib: float, held: int, ways: int, replicas: int, style: Style) -> np.ndarray:
        """float64 [L + 1, L + 1]: samples of a micro-batch that a replica of a stage has memory for; 0: none."""
        fixed, passing, stored = self._form(ways, replicas, style)
        each = np.maximum(passing + held * stored, 1e-12)
        return np.asarray(np.maximum((memory_gib - fixed) / each, 0.0))

    def _form(self, ways: int, replicas: int, style: Style, sharded: bool = False) -> np.ndarray:
        """Memory as  fixed + samples x (passing + held x stored):  3 float64 [L + 1, L + 1], GiB.

        It is linear, so that three calls of `stage_memory` a span tell all.
        """
        among = replicas if sharded else 1
        replicas = replicas if style.zero else 1
        key = ways, replicas, style.recompute, style.zero, among
        if key not in self._forms:
            graph = self.share(ways, among)
            form = np.zeros((3, len(self) + 1, len(self) + 1))
            form[0] = np.inf
            for i in range(len(self)):
                for j in range(i + 1, len(self) + 1):
                    one, two, more = (
                        stage_memory(graph, [self.span(i, j)], *at, replicas=replicas, zero=style.zero,
                                     recompute=style.recompute, value_bytes=self.value_bytes,
                                     optimizer=self.performance.optimizer,
                                     context_gib=self.performance.context_gib).total_gib
                        for at in ((1.0, 1), (2.0, 1), (1.0, 2))
                    )  # fmt: skip
                    stored = more - one
                    form[:, i, j] = 2 * one - two, two - one - stored, stored
            self._forms[key] = form
        return self._forms[key]

    def held(self, style: Style, stage: int, stages: int, m: int) -> int:
        """Micro-batches in flight of a stage."""
        return int(in_flight(style.schedule or self.performance.schedule, stage, stages, m))

    def _running(self, of_ops: np.ndarray) -> np.ndarray:
        return np.concatenate(([0.0], np.cumsum(of_ops)))[self.first_op]

    def _sums_s(self, num_bytes: np.ndarray, t: int, ways: int) -> np.ndarray:
        """Seconds of an all-reduce of each size over `ways` GPUs of a node."""
        sizes, which = np.unique(num_bytes, return_inverse=True)
        links = self.performance.links
        took = [gang_allreduce_s(size, self.fleet.types[t], (ways,), 1, links) if size else 0.0 for size in sizes]
        return np.asarray(np.array(took)[which])
