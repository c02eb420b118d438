"""How fast a job runs: the one door to operator graphs, measured tables, links, schedules and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.api import Plan
from sim.cluster import ClusterSpec, Links
from sim.hardware import GpuType
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.iteration import SCHEDULES, Iteration, pipeline_iteration
from sim.performance.layout import StageGpus, layout, stages_on
from sim.performance.links import gang_allreduce_s, stage_transfer_s
from sim.performance.memory import in_flight, memory_gib
from sim.performance.operator_time import checked, operator_times_s, update_time_s
from sim.performance.table import MeasuredTable
from sim.performance.zoo import MODELS, zoo_graph
from traces.errors import did_you_mean


class Performance:
    """Iteration times of the zoo's models, and of a measured table's if one is given. Answers are remembered.

    The links are those given here, for every call, whatever cluster a plan's GPUs are of. A job that holds a
    share of its GPUs (gpu_milli < 1000) runs at that share of the rate, by time slicing: the caller
    multiplies.

    Parameters
    ----------
    links : network of the cluster.
    table : measured rates; its job types are models too, known by rate only.
    schedule : '1f1b' or 'gpipe', the order in which pipeline stages work.
    """

    def __init__(
        self, links: Links | None = None, table: MeasuredTable | None = None, *, schedule: str = "1f1b"
    ) -> None:
        if schedule not in SCHEDULES:
            raise PerformanceError(
                "unknown pipeline schedule",
                got=schedule,
                allowed=", ".join(SCHEDULES),
                todo=did_you_mean(schedule, SCHEDULES),
            )
        self.links, self.table, self.schedule = links or Links(), table, schedule
        self.models: tuple[str, ...] = (*MODELS, *(table.job_types if table else ()))
        self._measured = frozenset(table.job_types if table else ())
        # Types and clusters are told apart by identity; holding them keeps their ids from being used again.
        self._types: dict[int, GpuType] = {}
        self._clusters: dict[int, ClusterSpec] = {}
        self._op_times: dict[
            tuple[str, float, int], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
        ] = {}
        self._gangs: dict[tuple[str, int, int, tuple[int, ...], int], Iteration] = {}
        self._plans: dict[tuple, Iteration] = {}

    def known(self, model: str) -> bool:
        """Whether the model is one of `models`."""
        return model in MODELS or model in self._measured

    def resolve(self, model: str) -> str:
        """Return the model's name.

        Raises
        ------
        PerformanceError
            Unknown; names the nearest one.
        """
        if not self.known(model):
            raise PerformanceError(
                "unknown model",
                got=model,
                allowed=", ".join(self.models[:12]),
                todo=did_you_mean(model, self.models),
            )
        return model

    def graph(self, model: str) -> OperatorGraph:
        """The model's operators.

        Raises
        ------
        PerformanceError
            Unknown, or known by measured rates only.
        """
        if self.resolve(model) in self._measured:
            raise PerformanceError(
                "the model is known by its measured rates only",
                got=model,
                allowed=", ".join(MODELS),
                todo="Plans and stages need a model of the zoo.",
            )
        return zoo_graph(model)

    def op_times_s(self, model: str, samples: float, gpu: GpuType) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of each operator forward and backward for `samples` samples on one GPU.

        Two float64 [ops].
        """
        return self._times(model, samples, gpu)[:2]

    def _times(
        self, model: str, samples: float, gpu: GpuType
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Operator times forward and backward, and their running sums (a zero first)."""
        key = (model, samples, id(gpu))
        if key not in self._op_times:
            self._types.setdefault(id(gpu), checked(gpu))
            fwd, bwd = operator_times_s(self.graph(model), samples, gpu)
            sums = [np.concatenate(([0.0], np.cumsum(a))) for a in (fwd, bwd)]
            for array in (fwd, bwd, *sums):
                array.flags.writeable = False
            self._op_times[key] = (fwd, bwd, sums[0], sums[1])
        return self._op_times[key]

    def stage_time_s(
        self, model: str, first_op: int, last_op: int, gpu: GpuType, samples: float
    ) -> tuple[float, float]:
        """Seconds forward and backward of operators first_op to last_op (inclusive) on one GPU."""
        _, _, fwd, bwd = self._times(model, samples, gpu)
        return float(fwd[last_op + 1] - fwd[first_op]), float(bwd[last_op + 1] - bwd[first_op])

    def stage_memory_gib(
        self, model: str, first_op: int, last_op: int, samples: float, in_flight: int
    ) -> float:
        """GiB that a GPU of the stage needs when it holds `in_flight` micro-batches of `samples` samples."""
        return memory_gib(self.graph(model), first_op, last_op, samples, in_flight)

    def allreduce_s(
        self,
        model: str,
        first_op: int,
        last_op: int,
        gpu: GpuType,
        gpus_per_node: tuple[int, ...],
        racks: int = 1,
    ) -> float:
        """Seconds to sum the gradients of operators first_op to last_op over a gang."""
        params = self.graph(model).weight_params[first_op : last_op + 1].sum()
        return gang_allreduce_s(VALUE_BYTES * params, gpu, gpus_per_node, racks, self.links)

    def update_s(self, model: str, first_op: int, last_op: int, gpu: GpuType) -> float:
        """Seconds of the optimizer step of operators first_op to last_op."""
        return update_time_s(float(self.graph(model).weight_params[first_op : last_op + 1].sum()), gpu)

    def fits(self, model: str, batch_size: int, gpu: GpuType, num_gpus: int) -> bool:
        """Whether data parallelism over `num_gpus` GPUs fits into their memory."""
        return self.data_parallel(model, batch_size, gpu, (num_gpus,)).fits

    def data_parallel(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int = 1
    ) -> Iteration:
        """One iteration of data parallelism: batch_size / n samples on each GPU, then an all-reduce.

        Parameters
        ----------
        batch_size : global batch, samples. A measured job type has its own; it is not read there.
        gpus_per_node : GPUs of the gang on each node, descending.
        racks : racks that the nodes are in.
        """
        key = (model, batch_size, id(gpu), gpus_per_node, racks)
        known = self._gangs.get(key)
        if known is None:
            self._types.setdefault(id(gpu), gpu)
            known = self._gangs[key] = self._gang(model, batch_size, gpu, gpus_per_node, racks)
        return known

    def _gang(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int
    ) -> Iteration:
        if self.resolve(model) in self._measured:
            return self._measured_rate(model, gpu, gpus_per_node)
        nodes = tuple(node for node, count in enumerate(gpus_per_node) for _ in range(count))
        span = (0, len(self.graph(model)) - 1)
        stage = StageGpus(gpu, nodes, tuple(min(node, racks - 1) for node in nodes))
        return self._run(model, batch_size, 1, [span], [stage])

    def _measured_rate(self, model: str, gpu: GpuType, gpus_per_node: tuple[int, ...]) -> Iteration:
        """The table's rate as an iteration: the whole job's, and all of it counted as computation."""
        assert self.table is not None
        count = sum(gpus_per_node)
        rate = self.table.rate(model, gpu.name, count, self.table.consolidated(gpus_per_node))
        time_s = 1.0 / rate if rate > 0 else math.inf
        reason = "" if rate > 0 else f"{model} did not fit on {count} {gpu.name} (measured rate 0)"
        return Iteration(time_s, time_s, 0.0, 0.0, 0.0, (), rate > 0, reason)

    def plan(
        self, model: str, batch_size: int, plan: Plan, gpus: np.ndarray, cluster: ClusterSpec
    ) -> Iteration:
        """One iteration of a plan on the cluster GPUs `gpus` (int32, in stage order).

        A micro-batch has batch_size / micro_batches samples, of which a replica of a stage with r GPUs gets 1
        / r (a fraction is an average over micro-batches). The gradients of a stage are summed over its
        replicas when its last backward ends, then its optimizer steps; the iteration ends with the last stage
        to finish.

        Raises
        ------
        PerformanceError
            Stages that do not cover the model in order, or GPUs that are not the plan's.
        """
        self._clusters.setdefault(id(cluster), cluster)
        key = (model, batch_size, plan.stages, plan.micro_batches, id(cluster), *layout(gpus, cluster))
        if key not in self._plans:
            operators = 0 if self.resolve(model) in self._measured else len(self.graph(model))
            stages = stages_on(plan, model, operators, gpus, cluster)
            if model in self._measured:
                return self.data_parallel(model, batch_size, stages[0].gpu, stages[0].gpus_per_node)
            spans = [(s.first_op, s.last_op) for s in plan.stages]
            self._plans[key] = self._run(model, batch_size, plan.micro_batches, spans, stages)
        return self._plans[key]

    def _run(
        self,
        model: str,
        batch_size: int,
        m: int,
        spans: Sequence[tuple[int, int]],
        stages: Sequence[StageGpus],
    ) -> Iteration:
        """Time and memory of stages on GPUs."""
        if batch_size < 1:
            raise PerformanceError(
                "the batch size is unknown",
                where=f"model {model!r}",
                got=batch_size,
                allowed="1 sample or more",
                todo="Give the job a batch_size.",
            )
        graph, p, micro = self.graph(model), len(stages), batch_size / m
        parts = [micro / len(stage.nodes) for stage in stages]
        times = np.array(
            [self.stage_time_s(model, a, b, stages[s].gpu, parts[s]) for s, (a, b) in enumerate(spans)]
        )
        comm = np.array(
            [
                stage_transfer_s(
                    float(graph.cut_bytes[spans[s][1]]) * micro, stages[s], stages[s + 1], self.links
                )
                for s in range(p - 1)
            ]
        )
        reduce = np.array(
            [
                self.allreduce_s(model, a, b, st.gpu, st.gpus_per_node, len(set(st.racks)))
                for (a, b), st in zip(spans, stages, strict=True)
            ]
        )
        update = np.array(
            [self.update_s(model, a, b, st.gpu) for (a, b), st in zip(spans, stages, strict=True)]
        )
        need = tuple(
            memory_gib(graph, a, b, parts[s], in_flight(self.schedule, s, p, m))
            for s, (a, b) in enumerate(spans)
        )
        result = pipeline_iteration(
            self.schedule,
            np.ascontiguousarray(times[:, 0]),
            np.ascontiguousarray(times[:, 1]),
            comm,
            m,
            reduce,
            update,
            need,
        )
        for s, stage in enumerate(stages):
            if parts[s] < 1:
                return result.without_fit(
                    f"stage {s} has {len(stage.nodes)} GPUs for {micro:g} samples of a micro-batch"
                )
            if need[s] > stage.gpu.memory_gib:
                return result.without_fit(
                    f"stage {s} does not fit: a {stage.gpu.name} needs {need[s]:.1f} GiB "
                    f"and has {stage.gpu.memory_gib:.1f} GiB"
                )
        return result
