"""How fast a job runs: the one door to operator graphs, measured tables, links, schedules and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sim.cluster.plan import Plan
from sim.cluster.sites import Site
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import GpuType
from sim.performance.arguments import check_batch, check_gang, check_gpu, check_plan, check_span
from sim.performance.calibration import Calibration, shipped
from sim.performance.embeddings import touched
from sim.performance.gpu_links import gang_allreduce_s, gang_lines, stage_link
from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.iteration import SCHEDULES, Iteration
from sim.performance.layer_times import worst
from sim.performance.memory import CONTEXT_GIB, GIB, memory_form
from sim.performance.operator_time import checked, divided_times_s, operator_times_s, source, span_update_s
from sim.performance.optimizer import Optimizer, named_optimizer
from sim.performance.running import Times, graph_sums
from sim.performance.samples import largest_share
from sim.performance.stage_sites import Places, StageGpus, gang_on, layout, stages_on
from sim.performance.tables import MeasuredTable
from sim.performance.training import Strategy, train
from sim.performance.zoo import MODELS, NAMED, in_zoo, sizes_of, zoo_graph
from traces.errors import did_you_mean

Order = tuple[int, ...]
"""Another topological order of a model's operators; empty: the model's own."""
MOST_TIMES = 4096
"""Sets of operator times that are remembered."""


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
    blocking : a GPU waits while its message to the next stage is sent (else transfers overlap with computation);
        'both': the one that gets it, too.
    overlap : gradients are summed while the last backward pass still runs (else after it).
    exchange : how gradients are exchanged: 'ring', 'tree' or 'fastest' all-reduce, or parameter servers, one for each
        node of the gang: 'servers' (synchronous), 'async-servers'.
    optimizer : what is kept and moved for each parameter; a name or bytes, as `named_optimizer` reads them.
    context_gib : memory of each GPU that the framework takes, whatever the model.
    """

    def __init__(
        self, links: Links | None = None, table: MeasuredTable | None = None, *, schedule: str = "1f1b",
        calibration: Calibration | str = "tuned", graphs: Mapping[str, OperatorGraph] | None = None,
        blocking: bool | str = False, overlap: bool = False, exchange: str = "ring",
        optimizer: Optimizer | str = "adam", context_gib: float = CONTEXT_GIB,
    ) -> None:  # fmt: skip
        if schedule not in SCHEDULES:
            raise PerformanceError("unknown pipeline schedule", got=schedule, allowed=", ".join(SCHEDULES),
                                   todo=did_you_mean(schedule, SCHEDULES))  # fmt: skip
        self.links, self.table, self.schedule = links or Links(), table, schedule
        self.calibration = shipped(calibration) if isinstance(calibration, str) else calibration
        self.value_bytes = self.calibration.value_bytes
        self.optimizer = named_optimizer(optimizer, self.value_bytes) if isinstance(optimizer, str) else optimizer
        self.param_bytes = self.optimizer.param_bytes(self.value_bytes)
        self.graphs, self.blocking, self.overlap, self.exchange = dict(graphs or {}), blocking, overlap, exchange
        self.context_gib = context_gib
        self.models = tuple(dict.fromkeys((*MODELS, *NAMED, *self.graphs, *(table.job_types if table else ()))))
        self._measured = frozenset(table.job_types if table else ())
        # Types and clusters are told apart by identity; holding them keeps their ids from being used again.
        self._types: dict[int, GpuType] = {}
        self._clusters: dict[int, ClusterSpec] = {}
        self._op_times: dict[tuple[str, float, int, int, Order, int], Times] = {}
        self._shares: dict[tuple[str, int, Order, int], OperatorGraph] = {}
        self._gangs: dict[tuple, Iteration] = {}
        self._plans: dict[tuple, Iteration] = {}

    def known(self, model: str) -> bool:
        """Whether the model is one of `models`, or named by its sizes (`zoo.families`)."""
        return model in self.graphs or model in self._measured or in_zoo(model)

    def resolve(self, model: str) -> str:
        """Return the model's name.

        Raises
        ------
        PerformanceError
            Unknown (names the nearest one), or of sizes that make no sense.
        """
        if not self.known(model):
            raise PerformanceError(
                "unknown model",
                got=model,
                allowed=", ".join(self.models[:40]) + (", ..." if len(self.models) > 40 else ""),
                todo=did_you_mean(model, self.models),
            )
        if "(" in model and model not in self.graphs and model not in self._measured:
            sizes_of(model)
        return model

    def undivided(self, model: str) -> bool:
        """Whether the model is known by rates of whole gangs only, so that a plan of it has one stage."""
        return model in self._measured

    def last_op(self, model: str) -> int:
        """Last operator of a plan that holds the whole model; 0 where nobody knows its operators."""
        found = self.graphs.get(model) or (zoo_graph(model) if in_zoo(model) else None)
        return 0 if found is None else len(found) - 1

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

    def op_times_s(self, model: str, samples: float, gpu: GpuType, ways: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of each operator forward and backward for `samples` samples on one of `ways` GPUs.

        Two float64 [ops].
        """
        times = self._times(model, samples, gpu, ways)
        return times.fwd_s, times.bwd_s

    def _times(
        self, model: str, samples: float, gpu: GpuType, ways: int = 1, order: Order = (), among: int = 1
    ) -> Times:
        """Operator times forward and backward on one of `ways` GPUs; `among` replicas divide what has shards."""
        key = (model, samples, id(gpu), ways, order, among)
        found = self._op_times.get(key)
        if found is None:
            self._types.setdefault(id(gpu), checked(gpu))
            if among > 1:
                times, share = self._times(model, samples, gpu, ways, order), partial(self._share, model, ways, order)
                fwd_s, bwd_s = divided_times_s(times, share(), share(among), samples, gpu, self.calibration)
            elif order:
                times = self._times(model, samples, gpu, ways)
                fwd_s, bwd_s = times.fwd_s[list(order)], times.bwd_s[list(order)]
            else:
                fwd_s, bwd_s = self._operator_times_s(model, samples, gpu, ways)
            for array in (fwd_s, bwd_s):
                array.flags.writeable = False
            # Uneven splits of a batch ask for ever new numbers of samples.
            if len(self._op_times) >= MOST_TIMES:
                self._op_times.clear()
            found = self._op_times[key] = Times(fwd_s, bwd_s)
        return found

    def _operator_times_s(self, model: str, samples: float, gpu: GpuType, ways: int) -> tuple[np.ndarray, np.ndarray]:
        """The same, worked out, in the order of the graph: where a belief differs."""
        return operator_times_s(self._share(model, ways), samples, gpu, calibration=self.calibration)

    def stage_time_s(
        self, model: str, first_op: int, last_op: int, gpu: GpuType, samples: float
    ) -> tuple[float, float]:
        """Seconds forward and backward of operators first_op to last_op (inclusive) on one GPU.

        Raises
        ------
        PerformanceError
            No operators of the model, or no samples.
        """
        check_gpu(gpu)
        check_span(model, len(self.graph(model)), first_op, last_op, samples)
        times = self._times(model, samples, gpu)
        return times.fwd(first_op, last_op), times.bwd(first_op, last_op)

    def stage_memory_gib(
        self, model: str, first_op: int, last_op: int, samples: float, in_flight: int
    ) -> float:
        """GiB that a GPU of the stage needs when it holds `in_flight` micro-batches of `samples` samples."""
        fixed, passing, stored = self.stage_memory_form(model, first_op, last_op)
        return fixed + samples * (passing + in_flight * stored)

    def stage_memory_form(self, model: str, first_op: int, last_op: int) -> tuple[float, float, float]:
        """GiB of a stage as  fixed + samples * (passing + in flight * stored),  for any samples and micro-batches."""
        return memory_form(self.graph(model), first_op, last_op, self.value_bytes, self.optimizer, self.context_gib)

    def state_gib(self, model: str) -> float:
        """GiB of a model's checkpoint: weights and optimizer, all that it keeps of a parameter but the gradient.

        NaN of a model that is known by its measured rates alone.
        """
        if model in self._measured:
            return math.nan
        return self.optimizer.saved_bytes(self.value_bytes) * float(self.graph(model).weight_params.sum()) / GIB

    def allreduce_s(
        self, model: str, first_op: int, last_op: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int = 1
    ) -> float:
        """Seconds to sum the gradients of operators first_op to last_op over a gang by a ring, if nothing overlaps."""
        num_bytes = self.value_bytes * self._dense_params(model, first_op, last_op)
        link = stage_link(gang_on(gpu, gpus_per_node, racks), self.links)
        return gang_allreduce_s(num_bytes, gpu, gpus_per_node, racks, self.links, link)

    def allreduce_lines(self, gpu: GpuType, gpus_per_node: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """An all-reduce of a gang in one rack: min over i of start_s[i] + bytes * s_per_byte[i]; float64 [2] each."""
        link = stage_link(gang_on(gpu, gpus_per_node, 1), self.links)
        return gang_lines(gpu, gpus_per_node, 1, self.links, link)

    def update_s(self, model: str, first_op: int, last_op: int, gpu: GpuType, samples: float = 0.0) -> float:
        """Seconds of the optimizer step of operators first_op to last_op, and of rows that so many samples touch."""
        graph = self.graph(model)
        rows = touched(graph, samples, self.value_bytes).stepped(first_op, last_op)
        return span_update_s(graph, first_op, last_op, gpu, self.calibration, self.optimizer, sparse=rows)

    def _dense_params(self, model: str, first_op: int, last_op: int) -> float:
        """Parameters whose gradients are summed and which are stepped: not those of tables hardly touched."""
        return graph_sums(self.graph(model)).dense(first_op, last_op)

    def fits(self, model: str, batch_size: int, gpu: GpuType, num_gpus: int) -> bool:
        """Whether data parallelism over `num_gpus` GPUs fits into their memory, or was measured to run there."""
        if self.table is not None and model in self._measured:
            return self.table.runs(model, batch_size, gpu.name, num_gpus)
        return self.data_parallel(model, batch_size, gpu, (num_gpus,)).fits

    def data_parallel(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int = 1,
        slots: tuple[int, ...] = (), sites: tuple[Site, ...] = (),
    ) -> Iteration:  # fmt: skip
        """One iteration of data parallelism: ceil(batch_size / n) samples on a GPU, then an all-reduce.

        Parameters
        ----------
        batch_size : global batch, samples. A measured job type may have its own; it is not read there.
        gpus_per_node : GPUs of the gang on each node, descending.
        racks : racks that the nodes are in.
        slots : number of each GPU within its node, node by node; empty: the first ones of each. Only read where the
            links do not join all GPUs of a node alike.
        sites : of its nodes, each once, in order; empty: they send as the links say.

        Raises
        ------
        PerformanceError
            An unknown model; a batch, GPUs or racks that are no counts.

        Examples
        --------
        Four V100 of one node against two nodes with two each: the gradients cross the network.

        >>> from sim.hardware.gputypes import gpu_type
        >>> together, apart = (
        ...     Performance().data_parallel("resnet50", 256, gpu_type("V100"), gang) for gang in [(4,), (2, 2)])
        >>> together.fits, together.compute_s == apart.compute_s, together.allreduce_s < apart.allreduce_s
        (True, True, True)
        >>> f"{together.iteration_s:.3f} s"
        '0.048 s'
        """
        key = (model, batch_size, id(gpu), gpus_per_node, racks, slots, sites)
        known = self._gangs.get(key) if isinstance(gpus_per_node, tuple) and isinstance(slots, tuple) else None
        if known is None:
            check_gpu(gpu)
            check_gang(gpus_per_node, racks, slots)
            self._types.setdefault(id(gpu), gpu)
            known = self._gangs[key] = self._gang(model, batch_size, gpu, gpus_per_node, racks, slots, sites)
        return known

    def _gang(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int,
        slots: tuple[int, ...], sites: tuple[Site, ...],
    ) -> Iteration:  # fmt: skip
        if self.resolve(model) in self._measured:
            return self._measured_rate(model, batch_size, gpu, gpus_per_node)
        span = (0, len(self.graph(model)) - 1)
        stage = gang_on(gpu, gpus_per_node, racks, slots, sites)
        how = Strategy(self.schedule, overlap=self.overlap, exchange=self.exchange)
        return self._run(model, (), batch_size, how, [span], [stage])

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
        / r, rounded up: the largest share decides. The gradients of a stage are summed over its
        replicas when its last backward ends, then its optimizer steps; the iteration ends with the last stage
        to finish.

        Raises
        ------
        PerformanceError
            Stages that do not cover the model in order, parts that do not add up, an order that is none, GPUs that are
            not the plan's, or values that are no counts.

        Examples
        --------
        A pipeline of two stages, on two V100 and on two T4:

        >>> from sim.cluster.clusterfiles import load_cluster
        >>> from sim.cluster.plan import Stage
        >>> last = len(Performance().graph("resnet50")) - 1
        >>> plan = Plan((Stage(0, 79, "V100", 2), Stage(80, last, "T4", 2)), micro_batches=8)
        >>> gpus = np.arange(4, dtype=np.int32)
        >>> iteration = Performance().plan("resnet50", 256, plan, gpus, load_cluster("v100:1x2+t4:1x2"))
        >>> iteration.fits, len(iteration.memory_gib), f"{iteration.iteration_s:.2f} s"
        (True, 2, '0.10 s')
        """
        if not isinstance(plan, Plan) or not isinstance(cluster, ClusterSpec):
            raise PerformanceError("not a plan on a cluster", got=f"{type(plan).__name__}, {type(cluster).__name__}",
                                   allowed="a Plan and a ClusterSpec")  # fmt: skip
        self._clusters.setdefault(id(cluster), cluster)
        places = layout(gpus, cluster)
        trained = (plan.micro_batches, plan.schedule, plan.chunks, plan.recompute, plan.zero)
        # Places tell nodes apart, not which types they are of.
        key = (model, batch_size, plan.stages, trained, plan.order, id(cluster), *places)
        try:
            known = self._plans.get(key)
        except TypeError:
            raise PerformanceError("a plan of the wrong types", where=f"plan for {model!r}", got=plan,
                                   allowed="tuples, numbers and text, as `sim.api.Plan` says") from None
        if known is None:
            known = self._plans[key] = self._planned(model, batch_size, plan, gpus, cluster, places)
        return known

    def _planned(
        self, model: str, batch_size: int, plan: Plan, gpus: np.ndarray, cluster: ClusterSpec, places: Places
    ) -> Iteration:
        measured = self.resolve(model) in self._measured
        check_plan(plan, model, 0 if measured else len(self.graph(model)))
        stages = stages_on(plan, model, gpus, cluster, places)
        if measured:
            return self.data_parallel(model, batch_size, stages[0].gpu, stages[0].gpus_per_node)
        how = Strategy(
            plan.schedule or self.schedule, plan.micro_batches, plan.chunks, plan.recompute, plan.zero, self.blocking,
            self.overlap, self.exchange,
        )  # fmt: skip
        return self._run(model, plan.order, batch_size, how, [(s.first_op, s.last_op) for s in plan.stages], stages)

    def _run(
        self, model: str, order: Order, batch_size: int, how: Strategy, spans: Sequence[tuple[int, int]],
        stages: Sequence[StageGpus],
    ) -> Iteration:  # fmt: skip
        """Time and memory of stages on GPUs, of a model whose operators are in this order (empty: its own)."""
        check_batch(model, batch_size, how.micro_batches)
        degrees = {(part.tensor, among) for stage in stages for part in stage.all_parts for among in {1, part.among}}
        whole, graphs = self._share(model, 1, order), {of: self._share(model, of[0], order, of[1]) for of in degrees}
        result = train(
            whole, graphs, batch_size, spans, stages, how,
            lambda ways, samples, gpu, among: self._times(model, samples, gpu, ways, order, among),
            self.links, self.calibration, self.optimizer, self.context_gib,
        )  # fmt: skip
        if result.iteration_s == 0:
            raise PerformanceError(
                "an iteration takes no time", where=f"model {model!r}", got="0 s for all operators",
                allowed="an operator that takes some", todo="Correct the times of the graph.",
            )  # fmt: skip
        if whole.profile is None:
            return result
        micro = batch_size / how.micro_batches
        return replace(result, source=worst([
            source(graphs[part.tensor, 1], largest_share(micro * part.share / part.replicas), part.gpu)
            for stage in stages for part in stage.all_parts
        ]))  # fmt: skip

    def _share(self, model: str, ways: int, order: Order = (), among: int = 1) -> OperatorGraph:
        """The graph of one of `ways` GPUs that share each operator, of `among` replicas that divide what has shards."""
        key = (model, ways, order, among)
        if key not in self._shares:
            if among != 1:
                self._shares[key] = self._share(model, ways, order).sharded(among)
            elif ways != 1:
                self._shares[key] = self._share(model, 1, order).tensor_parallel(ways)
            else:
                self._shares[key] = self.graph(model).reordered(order) if order else self.graph(model)
        return self._shares[key]
