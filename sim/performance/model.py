"""How fast a job runs: the one door to operator graphs, measured tables, links, schedules and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sim.api import Plan
from sim.cluster import ClusterSpec, Links
from sim.hardware import GpuType
from sim.performance.calibration import Calibration, shipped
from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.iteration import SCHEDULES, Iteration
from sim.performance.layout import StageGpus, layout, stages_on
from sim.performance.links import gang_allreduce_s, gang_lines, stage_link
from sim.performance.memory import memory_form
from sim.performance.operator_time import checked, operator_times_s, source, update_time_s
from sim.performance.tables import MeasuredTable
from sim.performance.training import Strategy, train
from sim.performance.zoo import MODELS, zoo_graph
from traces.errors import did_you_mean


class Performance:
    """Iteration times of the zoo's models, of graphs and of a measured table if given. Answers are remembered.

    The links are those given here, for every call, whatever cluster a plan's GPUs are of. A job that holds a
    share of its GPUs (gpu_milli < 1000) runs at that share of the rate, by time slicing: the caller
    multiplies.

    Parameters
    ----------
    links : network of the cluster.
    table : measured rates; its job types are models too, known by rate only.
    schedule : the order in which pipeline stages work where a plan names none: '1f1b', 'gpipe', 'async', 'interleaved'.
    calibration : how much of a GPU's figures each kind of operator reaches, and in which precision; a name of
        `calibration.SHIPPED`, or one's own. Default: 'tuned'.
    graphs : further models by name.
    blocking : a GPU waits while its message to the next stage is sent (else transfers overlap with computation).
    overlap : gradients are summed while the last backward pass still runs (else after it).
    exchange : how gradients are exchanged: 'ring', 'tree' or 'fastest' all-reduce, or parameter servers, one for each
        node of the gang: 'servers' (synchronous), 'async-servers'.
    """

    def __init__(
        self, links: Links | None = None, table: MeasuredTable | None = None, *, schedule: str = "1f1b",
        calibration: Calibration | str = "tuned", graphs: Mapping[str, OperatorGraph] | None = None,
        blocking: bool = False, overlap: bool = False, exchange: str = "ring",
    ) -> None:  # fmt: skip
        if schedule not in SCHEDULES:
            raise PerformanceError(
                "unknown pipeline schedule",
                got=schedule,
                allowed=", ".join(SCHEDULES),
                todo=did_you_mean(schedule, SCHEDULES),
            )
        self.links, self.table, self.schedule = links or Links(), table, schedule
        self.calibration = shipped(calibration) if isinstance(calibration, str) else calibration
        self.value_bytes = self.calibration.value_bytes
        self.graphs, self.blocking, self.overlap, self.exchange = dict(graphs or {}), blocking, overlap, exchange
        self.models: tuple[str, ...] = (*MODELS, *self.graphs, *(table.job_types if table else ()))
        self._measured = frozenset(table.job_types if table else ())
        # Types and clusters are told apart by identity; holding them keeps their ids from being used again.
        self._types: dict[int, GpuType] = {}
        self._clusters: dict[int, ClusterSpec] = {}
        self._op_times: dict[tuple[str, float, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._shares: dict[tuple[str, int], OperatorGraph] = {}
        self._gangs: dict[tuple, Iteration] = {}
        self._plans: dict[tuple, Iteration] = {}

    def known(self, model: str) -> bool:
        """Whether the model is one of `models`."""
        return model in MODELS or model in self.graphs or model in self._measured

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
                allowed=", ".join(self.models[:40]) + (", ..." if len(self.models) > 40 else ""),
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
        return self.graphs[model] if model in self.graphs else zoo_graph(model)

    def op_times_s(self, model: str, samples: float, gpu: GpuType) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of each operator forward and backward for `samples` samples on one GPU.

        Two float64 [ops].
        """
        return self._times(model, samples, gpu)

    def _times(
        self, model: str, samples: float, gpu: GpuType, ways: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Operator times forward and backward on one of `ways` GPUs."""
        key = (model, samples, id(gpu), ways)
        if key not in self._op_times:
            self._types.setdefault(id(gpu), checked(gpu))
            times = operator_times_s(self._share(model, ways), samples, gpu, calibration=self.calibration)
            for array in times:
                array.flags.writeable = False
            self._op_times[key] = times
        return self._op_times[key]

    def stage_time_s(
        self, model: str, first_op: int, last_op: int, gpu: GpuType, samples: float
    ) -> tuple[float, float]:
        """Seconds forward and backward of operators first_op to last_op (inclusive) on one GPU."""
        fwd, bwd = self._times(model, samples, gpu)
        span = slice(first_op, last_op + 1)
        return float(fwd[span].sum()), float(bwd[span].sum())

    def stage_memory_gib(
        self, model: str, first_op: int, last_op: int, samples: float, in_flight: int
    ) -> float:
        """GiB that a GPU of the stage needs when it holds `in_flight` micro-batches of `samples` samples."""
        fixed, passing, stored = self.stage_memory_form(model, first_op, last_op)
        return fixed + samples * (passing + in_flight * stored)

    def stage_memory_form(self, model: str, first_op: int, last_op: int) -> tuple[float, float, float]:
        """GiB of a stage as  fixed + samples * (passing + in flight * stored),  for any samples and micro-batches."""
        return memory_form(self.graph(model), first_op, last_op, self.value_bytes)

    def allreduce_s(
        self,
        model: str,
        first_op: int,
        last_op: int,
        gpu: GpuType,
        gpus_per_node: tuple[int, ...],
        racks: int = 1,
    ) -> float:
        """Seconds to sum the gradients of operators first_op to last_op over a gang by a ring, if nothing overlaps."""
        num_bytes = self.value_bytes * float(self._dense_params(model, first_op, last_op).sum())
        link = stage_link(_gang_on(gpu, gpus_per_node, racks), self.links)
        return gang_allreduce_s(num_bytes, gpu, gpus_per_node, racks, self.links, link)

    def allreduce_lines(self, gpu: GpuType, gpus_per_node: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """An all-reduce of a gang in one rack: min over i of start_s[i] + bytes * s_per_byte[i]; float64 [2] each."""
        link = stage_link(_gang_on(gpu, gpus_per_node, 1), self.links)
        return gang_lines(gpu, gpus_per_node, 1, self.links, link)

    def update_s(self, model: str, first_op: int, last_op: int, gpu: GpuType) -> float:
        """Seconds of the optimizer step of operators first_op to last_op."""
        return update_time_s(float(self._dense_params(model, first_op, last_op).sum()), gpu, self.calibration)

    def _dense_params(self, model: str, first_op: int, last_op: int) -> np.ndarray:
        """Parameters whose gradients are summed and which are stepped: not those of tables hardly touched."""
        graph, span = self.graph(model), slice(first_op, last_op + 1)
        return np.asarray(graph.weight_params[span] - graph.sparse_params[span])

    def fits(self, model: str, batch_size: int, gpu: GpuType, num_gpus: int) -> bool:
        """Whether data parallelism over `num_gpus` GPUs fits into their memory, or was measured to run there."""
        if self.table is not None and model in self._measured:
            return self.table.runs(model, batch_size, gpu.name, num_gpus)
        return self.data_parallel(model, batch_size, gpu, (num_gpus,)).fits

    def data_parallel(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int = 1,
        slots: tuple[int, ...] = (),
    ) -> Iteration:  # fmt: skip
        """One iteration of data parallelism: batch_size / n samples on each GPU, then an all-reduce.

        Parameters
        ----------
        batch_size : global batch, samples. A measured job type may have its own; it is not read there.
        gpus_per_node : GPUs of the gang on each node, descending.
        racks : racks that the nodes are in.
        slots : number of each GPU within its node, node by node; empty: the first ones of each. Only read where the
            links do not join all GPUs of a node alike.
        """
        key = (model, batch_size, id(gpu), gpus_per_node, racks, slots)
        known = self._gangs.get(key)
        if known is None:
            self._types.setdefault(id(gpu), gpu)
            known = self._gangs[key] = self._gang(model, batch_size, gpu, gpus_per_node, racks, slots)
        return known

    def _gang(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int,
        slots: tuple[int, ...],
    ) -> Iteration:  # fmt: skip
        if self.resolve(model) in self._measured:
            return self._measured_rate(model, batch_size, gpu, gpus_per_node)
        span = (0, len(self.graph(model)) - 1)
        stage = _gang_on(gpu, gpus_per_node, racks, slots)
        how = Strategy(self.schedule, overlap=self.overlap, exchange=self.exchange)
        return self._run(model, batch_size, how, [span], [stage])

    def _measured_rate(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...]
    ) -> Iteration:
        """The table's rate as an iteration: the whole job's, and all of it counted as computation."""
        assert self.table is not None
        found = self.table.rate(model, batch_size, gpu.name, gpus_per_node)
        rate = found.iterations_per_s
        time_s = 1.0 / rate if rate > 0 else math.inf
        count = sum(gpus_per_node)
        reason = "" if rate > 0 else f"{model} did not fit on {count} {gpu.name} (measured rate 0)"
        return Iteration(time_s, time_s, 0.0, 0.0, 0.0, (), rate > 0, reason, source=found.source)

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
        trained = (plan.micro_batches, plan.schedule, plan.chunks, plan.recompute, plan.zero)
        key = (model, batch_size, plan.stages, trained, id(cluster), *layout(gpus, cluster))
        if key not in self._plans:
            operators = 0 if self.resolve(model) in self._measured else len(self.graph(model))
            stages = stages_on(plan, model, operators, gpus, cluster)
            if model in self._measured:
                return self.data_parallel(model, batch_size, stages[0].gpu, stages[0].gpus_per_node)
            spans = [(s.first_op, s.last_op) for s in plan.stages]
            schedule = plan.schedule or self.schedule
            how = Strategy(
                schedule, plan.micro_batches, plan.chunks, plan.recompute, plan.zero, self.blocking, self.overlap,
                self.exchange,
            )  # fmt: skip
            self._plans[key] = self._run(model, batch_size, how, spans, stages)
        return self._plans[key]

    def _run(
        self,
        model: str,
        batch_size: int,
        how: Strategy,
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
        if how.micro_batches > batch_size:
            raise PerformanceError(
                "more micro-batches than samples", where=f"model {model!r}", got=how.micro_batches,
                allowed=f"up to {batch_size:g}", todo="Take fewer micro-batches, or a larger batch.",
            )  # fmt: skip
        graphs = [self._share(model, stage.tensor) for stage in stages]
        samples = [batch_size / how.micro_batches / stage.replicas for stage in stages]
        sources = {source(*of) for of in zip(graphs, samples, (stage.gpu for stage in stages), strict=True)}
        result = train(
            self.graph(model), graphs, batch_size, spans, stages, how,
            lambda ways, samples, stage: self._times(model, samples, stage.gpu, ways),
            self.links, self.calibration,
        )  # fmt: skip
        if result.iteration_s == 0:
            raise PerformanceError(
                "an iteration takes no time", where=f"model {model!r}", got="0 s for all operators",
                allowed="an operator that takes some", todo="Correct the times of the graph.",
            )  # fmt: skip
        # A graph is profiled as a whole; 'extrapolated' comes before 'measured'.
        return result if sources == {"modelled"} else replace(result, source=min(sources))

    def _share(self, model: str, ways: int) -> OperatorGraph:
        """The graph of one of `ways` GPUs that share each operator."""
        key = (model, ways)
        if key not in self._shares:
            self._shares[key] = self.graph(model).tensor_parallel(ways)
        return self._shares[key]


def _gang_on(
    gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int, slots: tuple[int, ...] = ()
) -> StageGpus:
    """A gang with so many GPUs on each node, in so many racks."""
    nodes = tuple(node for node, count in enumerate(gpus_per_node) for _ in range(count))
    return StageGpus(gpu, nodes, tuple(min(node, racks - 1) for node in nodes), slots=slots)
