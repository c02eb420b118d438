"""Many plans of one job on one cluster at once: `Performance.plan` of each, to the last bit, in a fraction of the time.

Planners ask for thousands of plans that differ little. What stages, borders and placements have in common is worked out
once, and all schedules are played by one call of a kernel. What a plan's time is made of stands in
`sim.performance.training`, which stays the law: only plain plans are judged here (`takes`), all others there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from sim.cluster.plan import Plan
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance.embeddings import Touched, tied_sums_s, touched
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.iteration import schedule_ends_s
from sim.performance.memory import in_flight, stage_memory
from sim.performance.messages import busiest
from sim.performance.model import Performance
from sim.performance.operator_time import update_time_s
from sim.performance.running import graph_sums
from sim.performance.samples import largest_share, too_few
from sim.performance.stage_sites import StageGpus, places_taken
from sim.performance.training import Strategy, gradients_s

Sites = tuple[list[StageGpus], list[tuple], tuple[int, ...]]
"""Of a plan: where its stages are; links of each border there and back; GPUs of each type."""


class PlansAtOnce:
    """Times and memory of plans of one model and batch, each alone on an empty cluster.

    Parameters
    ----------
    gpus_of_type : int32 arrays, the GPUs of each type, of which plans take theirs as `in_stage_order` says.
    """

    def __init__(
        self, performance: Performance, model: str, batch_size: int, cluster: ClusterSpec,
        gpus_of_type: Mapping[str, np.ndarray],
    ) -> None:  # fmt: skip
        self._performance, self._model, self._batch_size = performance, model, batch_size
        self._cluster, self._gpus_of_type = cluster, gpus_of_type
        self._types = {gpu.name: gpu for gpu in cluster.types}
        self._places: dict[tuple[str, int, int], tuple[GpuType, tuple[int, ...], tuple[int, ...]]] = {}
        self._sites: dict[tuple, Sites] = {}
        self._times: dict[tuple[int, int, str, float], tuple[float, float]] = {}
        self._steps: dict[tuple[int, int, str], float] = {}
        self._sums: dict[tuple, float] = {}
        self._needs: dict[tuple[int, int, float, float], float] = {}

    @cached_property
    def serves(self) -> bool:
        """Whether the performance model puts plans together as it is written here, and knows the model's operators."""
        kind, model = type(self._performance), self._model
        return (
            kind.plan is Performance.plan and kind._planned is Performance._planned and kind._run is Performance._run
            and not self._performance.undivided(model) and self._graph.profile is None
            and self._performance.exchange == "ring" and not self._performance.overlap and self._cluster.links.alike
            and not self._cluster.links.sites
            and self._performance.links == self._cluster.links
            and type(self._batch_size) is int and self._batch_size >= 1
            and all(gpu.memory_gib is not None and 0 < gpu.memory_gib < math.inf for gpu in self._types.values())
        )  # fmt: skip

    @cached_property
    def _graph(self) -> OperatorGraph:
        return self._performance.graph(self._model)

    def takes(self, plan: Plan) -> bool:
        """Whether a plan is a plain one that makes sense: a synchronous pipeline of replicas, on types that are here.

        It has no more micro-batches than samples; all else that `Performance.plan` would do, or refuse, is left to it.
        """
        if (
            (plan.schedule or self._performance.schedule) not in ("1f1b", "gpipe") or plan.chunks != 1
            or plan.recompute or plan.zero or plan.order or not plan.stages
            or type(plan.micro_batches) is not int or not 1 <= plan.micro_batches <= self._batch_size
        ):  # fmt: skip
            return False
        first = 0
        for stage in plan.stages:
            if stage.tensor != 1 or stage.sharded or stage.first_op != first or stage.last_op < first:
                return False
            if stage.parts:
                if any(part.gpus < 1 or part.tensor > 1 or part.gpu_type not in self._types for part in stage.parts):
                    return False
            elif stage.gpus < 1 or stage.gpu_type not in self._types:
                return False
            first = stage.last_op + 1
        return first == len(self._graph)

    def counts(self, plan: Plan) -> tuple[int, ...]:
        """GPUs of each of the cluster's types that the plan takes, in their order."""
        return self._sites_of(plan)[2]

    def judge(self, plans: Sequence[Plan]) -> tuple[np.ndarray, list[tuple[float, ...]]]:
        """Seconds of an iteration of each plan, and the GiB that the fullest GPU of each of its stages needs.

        Parameters
        ----------
        plans : such as are taken, none on more GPUs of a type than there are.

        Returns
        -------
        iteration_s : float64 [plans]; inf where memory or samples do not suffice.
        memory_gib : one tuple a plan, as `Iteration.memory_gib`.

        Raises
        ------
        PerformanceError
            A time is impossible, or an iteration takes none: the one plan is to be asked for, which says more.
        """
        stages = np.array([len(plan.stages) for plan in plans], dtype=np.int64)
        rows: list[tuple[float, float, float, float]] = []
        borders: list[tuple[float, float]] = []
        memory, fits = [], []
        for plan in plans:
            sites, links, _ = self._sites_of(plan)
            need, enough, sent = self._stages_of(plan, sites, rows)
            memory.append(need)
            fits.append(enough)
            if links:
                borders += self._borders_of(plan, links, sent)
        width = int(stages.max(initial=1))
        fwd, bwd, reduce, update = _padded(rows, stages, width, 4)
        there, back = _padded(borders, stages - 1, width - 1, 2)
        ends = np.zeros(fwd.shape)
        schedules = np.array([plan.schedule or self._performance.schedule for plan in plans], dtype=object)
        micro = np.array([plan.micro_batches for plan in plans], dtype=np.int64)
        for name in dict.fromkeys(schedules.tolist()):
            own = schedules == name
            times = fwd[own], bwd[own], there[own], back[own], stages[own], micro[own]
            ends[own] = schedule_ends_s(name, *times, blocking=self._performance.blocking)[1]
        inside = np.arange(width) < stages[:, None]
        whole = np.where(inside, ends + reduce + update, 0.0).max(axis=1, initial=0.0)
        if not (whole > 0).all():
            raise PerformanceError("an iteration takes no time", where=f"model {self._model!r}")
        return np.where(fits, whole, np.inf), memory

    def _stages_of(
        self, plan: Plan, sites: Sequence[StageGpus], rows: list[tuple[float, float, float, float]]
    ) -> tuple[tuple[float, ...], bool, list[float]]:
        """Times of the stages, appended to `rows`; GiB of each, whether all suffices, samples that each sends."""
        m, name = plan.micro_batches, plan.schedule or self._performance.schedule
        micro, count = self._batch_size / m, len(sites)
        need, sent, fits = [], [], True
        tied = self._tied_of(plan, sites) if self._graph.tied else [0.0] * count
        for s, (stage, site) in enumerate(zip(plan.stages, sites, strict=True)):
            first, last = stage.first_op, stage.last_op
            held, sends, parts = in_flight(name, s, count, m), 0.0, []
            for part in site.all_parts:
                gpu, replicas = part.gpu, len(part.nodes)
                mean = micro * part.share / replicas
                samples = largest_share(mean)
                sends += replicas * samples
                fits = fits and not too_few(mean)
                gib, available = self._need_of(first, last, samples, held), gpu.memory_gib
                assert available is not None
                parts.append((*self._times_of(first, last, gpu.name, samples), self._step_of(first, last, gpu.name),
                              gib / available, gib, gib <= available))  # fmt: skip
            fwd, bwd, step, _, gib, enough = parts[0]
            if len(parts) > 1:
                fwd, bwd, step = (max(one[k] for one in parts) for k in range(3))
                _, gib, enough = max((one[3:] for one in parts), key=lambda need: need[0])
            fits = fits and enough
            need.append(gib)
            sent.append(sends)
            rows.append((fwd, bwd, self._sum_of(first, last, site) + tied[s], step))
        return tuple(need), fits, sent

    def _borders_of(self, plan: Plan, links: Sequence[tuple], sent: Sequence[float]) -> list[tuple[float, float]]:
        """Seconds of a micro-batch's message across each border, there and back."""
        scale, cut, out = self._scale, self._graph.cut_bytes, []
        for q, (there, back) in enumerate(links):
            num_bytes = float(cut[plan.stages[q].last_op]) * (max(sent[q], sent[q + 1]) * scale)
            out.append((
                max([latency_s + share * num_bytes / rate for rate, latency_s, share in there]),
                max([latency_s + share * num_bytes / rate for rate, latency_s, share in back]),
            ))
        return out

    # -- what many plans have in common --------------------------------------------------------------------------

    @cached_property
    def _scale(self) -> float:
        """Bytes of a value over those that graphs count with."""
        return self._performance.value_bytes / VALUE_BYTES

    @cached_property
    def _rows(self) -> Touched:
        return touched(self._graph, float(self._batch_size), self._performance.value_bytes)

    def _times_of(self, first: int, last: int, name: str, samples: float) -> tuple[float, float]:
        """Seconds forward and backward of operators on a GPU of a type."""
        key = first, last, name, samples
        found = self._times.get(key)
        if found is None:
            times = self._performance._times(self._model, samples, self._types[name])
            found = self._times[key] = times.fwd(first, last), times.bwd(first, last)
        return found

    def _step_of(self, first: int, last: int, name: str) -> float:
        """Seconds of the optimizer's step of operators on a GPU of a type."""
        key = first, last, name
        found = self._steps.get(key)
        if found is None:
            asked, gpu = self._performance, self._types[name]
            params = graph_sums(self._graph).dense(first, last) + self._rows.stepped(first, last)
            found = self._steps[key] = update_time_s(params, gpu, asked.calibration, asked.optimizer)
        return found

    def _need_of(self, first: int, last: int, samples: float, held: float) -> float:
        """GiB of a GPU that runs operators on so many samples and holds so many micro-batches."""
        key = first, last, samples, held
        found = self._needs.get(key)
        if found is None:
            asked = self._performance
            found = self._needs[key] = stage_memory(
                self._graph, [(first, last)], samples, held, value_bytes=asked.value_bytes, optimizer=asked.optimizer,
                context_gib=asked.context_gib,
            ).total_gib  # fmt: skip
        return found

    def _sum_of(self, first: int, last: int, site: StageGpus) -> float:
        """Seconds in which the gradients of operators are summed over the replicas at a site, whatever their shares."""
        if len(site.nodes) == 1:
            return 0.0
        key = first, last, tuple([(part.gpu.name, part.nodes) for part in site.all_parts])
        found = self._sums.get(key)
        if found is None:
            num_bytes = self._performance.value_bytes * graph_sums(self._graph).dense(first, last)
            num_bytes += self._rows.summed(first, last)
            found = self._sums[key] = gradients_s(num_bytes, site, self._performance.links, Strategy("1f1b"), ())
        return found

    def _tied_of(self, plan: Plan, sites: Sequence[StageGpus]) -> list[float]:
        """Seconds that each stage waits for sums with others that hold its tables."""
        spans = [(stage.first_op, stage.last_op) for stage in plan.stages]
        asked = self._performance
        return tied_sums_s(self._graph, spans, sites, len(sites), asked.value_bytes, asked.links)

    def _sites_of(self, plan: Plan) -> Sites:
        """Where the stages of a plan are, as `stages_on` has it for `in_stage_order`, and what joins them."""
        key = tuple([(stage.gpu_type, stage.gpus, stage.parts) for stage in plan.stages])
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = self._placed(plan)
        return found

    def _where(self, name: str, begin: int, count: int) -> tuple[GpuType, tuple[int, ...], tuple[int, ...]]:
        """Type, nodes and racks of so many GPUs of a type from the begin-th one on."""
        key = name, begin, count
        found = self._places.get(key)
        if found is None:
            gpus = self._gpus_of_type[name][begin : begin + count]
            racks = self._cluster.node_rack[self._cluster.gpu_node[gpus]]
            machines = self._cluster.machines(gpus)[0]
            found = self._places[key] = self._types[name], tuple(machines.tolist()), tuple(racks.tolist())
        return found

    def _placed(self, plan: Plan) -> Sites:
        parts, links = plan.parts, self._performance.links
        begins = iter(places_taken(parts))
        used = dict.fromkeys(self._types, 0)
        for part in parts:
            used[part.gpu_type] += part.gpus
        sites = []
        for stage in plan.stages:
            own = []
            for part in stage.all_parts:
                begin = next(begins)
                gpu, nodes, racks = self._where(part.gpu_type, begin, part.gpus)
                own.append(StageGpus(gpu, nodes, racks, share=part.share))
            nodes_of = tuple(node for one in own for node in one.nodes)
            racks_of = tuple(rack for one in own for rack in one.racks)
            sites.append(StageGpus(own[0].gpu, nodes_of, racks_of, parts=tuple(own)) if stage.parts else own[0])
        borders = [(busiest(a, b, links), busiest(b, a, links)) for a, b in pairwise(sites)]
        return sites, borders, tuple(used.values())


def _padded(rows: Sequence[tuple], lengths: np.ndarray, width: int, columns: int) -> np.ndarray:
    """Rows of plans behind each other, of so many each, as float64 [columns, plans, width]; 0 where there is none."""
    out = np.zeros((columns, len(lengths), max(width, 0)))
    inside = np.arange(max(width, 0)) < lengths[:, None]
    out[:, inside] = np.array(rows, dtype=np.float64).reshape(-1, columns).T
    return out
