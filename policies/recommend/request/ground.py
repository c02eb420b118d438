"""What moves of the local search go by: what a request allows, and how long operators take on each GPU type."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from policies.recommend.request.pace import pace_s, step_pace_s
from policies.recommend.request.partition_problem import blocks_of
from policies.recommend.request.request import Request
from policies.recommend.request.stage_gpus import counts_of
from sim.api import Plan, Stage
from sim.performance import PerformanceError
from sim.performance.samples import largest_share

REMEMBERED = 4096
"""Lines of running time that are kept."""


class Ground:
    """A request as the moves see it. Only for models with operators.

    Parameters
    ----------
    request : the job and its GPUs.

    Attributes
    ----------
    names : GPU types that are there.
    tensor : ways of tensor parallelism that the model and the space allow.
    pace : seconds that one GPU of each type takes for as many samples as each gets if all GPUs share the batch.
    borders : last operators of recomputation blocks and of the coarse blocks that `exact` cuts at, ascending.
    readers, sources : operators that read each one, and that it reads.
    shards : whether stages may divide tables or experts among their replicas: the space allows it, the model has some.
    """

    def __init__(self, request: Request) -> None:
        self.request, self.space, self.budget = request, request.space, request.budget
        self.performance, self.model, self.batch_size = request.performance, request.model, request.batch_size
        fleet = request.fleet
        self.names = tuple(fleet.names[t] for t in fleet.present)
        self._gpus = {fleet.names[t]: fleet.types[t] for t in fleet.present}
        self._counts = {fleet.names[t]: fleet.counts[t] for t in fleet.present}
        self._node_gpus = {fleet.names[t]: fleet.node_gpus[t] for t in fleet.present}
        self._graph = self.performance.graph(self.model)
        self.operators = len(self._graph)
        self.tensor = tuple(ways for ways in self.space.tensor if self._divides(ways))
        samples = max(1.0, self.batch_size / self.budget)
        both = {name: pace_s(self.performance, self.model, samples, gpu) for name, gpu in self._gpus.items()}
        work = {name: forward + backward for name, (forward, backward) in both.items()}
        self.pace = {name: float(time_s.sum()) for name, time_s in work.items()}
        relative = np.sum([time_s / time_s.sum() for time_s in work.values()], axis=0)
        coarse = blocks_of(relative, self._graph.cut_bytes)
        blocks = np.flatnonzero(np.diff(self._graph.block))
        self.borders = sorted({*(coarse[1:-1] - 1).tolist(), *blocks.tolist()})
        self.sources = [frozenset(of) for of in self._graph.inputs]
        self.readers = [set[int]() for _ in self._graph.inputs]
        for op, sources in enumerate(self._graph.inputs):
            for source in sources:
                if source >= 0:
                    self.readers[source].add(op)
        self.shards = True in self.space.sharded and bool(self._graph.shards.any())
        self._times: dict[tuple, list[float]] = {}
        self._lines: dict[tuple, list[float]] = {}
        self._shardable: dict[tuple[int, ...], list[int]] = {}
        self._cuts: dict[tuple[int, ...], np.ndarray] = {(): self._graph.cut_bytes}

    def _divides(self, ways: int) -> bool:
        try:
            self._graph.tensor_parallel(ways)
        except PerformanceError:
            return False
        return True

    def used(self, plan: Plan) -> dict[str, int]:
        """GPUs of each type that a plan uses."""
        return dict(zip(self.names, counts_of(plan, self.names), strict=True))

    def free(self, plan: Plan) -> dict[str, int]:
        """GPUs of each type that it leaves."""
        return {name: self._counts[name] - n for name, n in self.used(plan).items()}

    def spare(self, plan: Plan) -> int:
        """GPUs that it may use more."""
        return self.budget - plan.num_gpus

    def allows(self, plan: Plan) -> bool:
        """Whether a plan keeps to the request's GPUs and space, and each replica has a sample."""
        used, space = self.used(plan), self.space
        if space.single_type and sum(n > 0 for n in used.values()) > 1:
            return False
        micro = self.batch_size / plan.micro_batches
        return (
            plan.micro_batches in space.micro_batches
            and plan.schedule in space.schedules and plan.recompute in space.recompute and plan.zero in space.zero
            and sum(used.values()) == plan.num_gpus <= self.budget
            and all(n <= self._counts[name] for name, n in used.items())
            and micro >= 1
            and all(self._divided(stage) and micro >= stage.replicas for stage in plan.stages)
            and self._runs(plan) and self._shared_out(plan)
        )

    def _divided(self, stage: Stage) -> bool:
        """Whether its tensor degrees are in the space and divide its GPUs; unlike ones: one a type, and the largest."""
        if not stage.unlike:
            return stage.gpus % stage.tensor == 0 and stage.tensor in self.tensor
        degrees = {part.gpu_type: stage.degree(part) for part in stage.parts}
        return len(degrees) == len(stage.parts) and all(
            ways in self.tensor and max(degrees.values()) % ways == 0 for ways in degrees.values()
        ) and all(part.gpus % stage.degree(part) == 0 for part in stage.parts)

    def _shared_out(self, plan: Plan) -> bool:
        """Whether stages divide their tables and experts only where they may, and repeat them only where they may."""
        if not self.shards:
            return not any(stage.sharded for stage in plan.stages)
        if False in self.space.sharded:
            return all(not stage.sharded or self.may_shard(plan, stage) for stage in plan.stages)
        return all(stage.sharded == self.may_shard(plan, stage) for stage in plan.stages)

    def may_shard(self, plan: Plan, stage: Stage) -> bool:
        """Whether a stage may divide tables or experts among replicas: it has some of both; one type, one GPU each."""
        if not self.shards or stage.gpus < 2 or stage.tensor > 1 or stage.parts:
            return False
        if plan.order not in self._shardable:
            if len(self._shardable) > REMEMBERED:
                self._shardable.clear()
            column = self._graph.shards[list(plan.order)] if plan.order else self._graph.shards
            self._shardable[plan.order] = [0, *accumulate((column > 0).tolist())]
        running = self._shardable[plan.order]
        return running[stage.last_op + 1] > running[stage.first_op]

    def _runs(self, plan: Plan) -> bool:
        """Interleaved stages take micro-batches in groups of as many as there are stages."""
        interleaved = (plan.schedule or self.performance.schedule) == "interleaved"
        return not interleaved or plan.micro_batches % len(plan.devices) == 0

    def named(self, order: list[int]) -> tuple[int, ...]:
        """An order as a plan names it: the graph's own has no name."""
        return () if order == list(range(self.operators)) else tuple(order)

    def cut_bytes(self, order: tuple[int, ...]) -> np.ndarray:
        """float64 [ops], bytes of a sample that cross a cut after each operator."""
        if order not in self._cuts:
            if len(self._cuts) > REMEMBERED:
                self._cuts = {(): self._graph.cut_bytes}
            self._cuts[order] = self._graph.reordered(order).cut_bytes
        return self._cuts[order]

    def times_s(self, gpu_type: str, samples: float, tensor: int, order: tuple[int, ...]) -> list[float]:
        """Running sums of the operators' time, forward and backward: [ops]. Tensor parallelism: 1 / ways of it."""
        key = (gpu_type, samples, tensor, order)
        if key not in self._times:
            if len(self._times) > REMEMBERED:
                self._times.clear()
            forward, backward = pace_s(self.performance, self.model, samples, self._gpus[gpu_type])
            time_s = (forward + backward) / tensor
            self._times[key] = list(accumulate((time_s[list(order)] if order else time_s).tolist()))
        return self._times[key]

    def running_s(self, plan: Plan, stage: Stage) -> list[float]:
        """Running sums over all operators if they ran where the stage does: [ops], seconds a micro-batch.

        What follows the last backward is divided among micro-batches; of several types, the first stands for all.
        """
        part, m = stage.all_parts[0], plan.micro_batches
        replicas = stage.replicas_of(part)
        samples = largest_share(self.batch_size / m * part.share / replicas)
        key = (part.gpu_type, samples, stage.tensor, replicas, m, plan.order)
        if key not in self._lines:
            if len(self._lines) > REMEMBERED:
                self._lines.clear()
            graph, gpu = self._graph, self._gpus[part.gpu_type]
            params = graph.weight_params - graph.sparse_params
            total = max(float(params.sum()), 1.0)
            a_parameter_s = step_pace_s(self.performance, self.model, gpu) / total
            if replicas > 1:
                full, rest = divmod(part.gpus, self._node_gpus[part.gpu_type])
                nodes = (self._node_gpus[part.gpu_type],) * full + (rest,) * (rest > 0)
                slopes = self.performance.allreduce_lines(gpu, nodes)[1]
                a_parameter_s += float(slopes.min()) * self.performance.value_bytes
            after = np.cumsum(params[list(plan.order)] if plan.order else params) * a_parameter_s / m
            line = np.asarray(self.times_s(part.gpu_type, samples, stage.tensor, plan.order)) + after
            self._lines[key] = line.tolist()
        return self._lines[key]
