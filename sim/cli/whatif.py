"""One model on some GPUs: how long an iteration takes, where the time goes, what it needs and costs.

What `hetsim perf` asks: a stage is `COUNTxTYPE`, with `/T` GPUs to a replica (tensor parallelism), or `/sharded`
(tables and experts divided among the GPUs), and `@FIRST-LAST` operators; left out, the operators are cut so that the
slowest stage is as fast as possible. Several types are joined by `+`, each with its share of the samples:
`1xA100/1:0.6+4xV100/4:0.4`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim.cluster.plan import Part, Plan, Stage
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType, gpu_type
from sim.performance import Iteration, Performance, PerformanceError
from sim.performance.samples import largest_share
from traces.errors import did_you_mean

_GPUS = r"(?P<gpus>\d{1,6})\s*[xX*]\s*(?P<type>[\w.-]+?)(/(?P<tensor>\d{1,4}))?"
_STAGE = re.compile(_GPUS + r"(?P<sharded>/sharded)?(@(?P<span>\d{1,9}-\d{1,9}))?", re.ASCII)
_SHARED = re.compile(rf"(?P<part>{_GPUS}):(?P<share>\d{{0,4}}\.?\d{{1,9}})", re.ASCII)
SHARES_ROUND = 1e-3
"""By which shares that were written down may miss 1."""


@dataclass(frozen=True)
class Answer:
    """An iteration of a plan, and what follows from it.

    Attributes
    ----------
    samples_per_s : batch / iteration.
    mfu : model FLOPs utilisation, 3 x forward FLOPs x batch / (iteration x sum of the GPUs' peaks in the calibration's
        precision); recomputation does not count (Chowdhery et al. 2022, arXiv:2204.02311, appendix B). NaN: unknown.
    usd_per_1000_iterations : GPU time x price, and what bytes between zones cost; NaN where a price is unknown.
    """

    model: str
    batch_size: int
    plan: Plan
    iteration: Iteration
    samples_per_s: float
    mfu: float
    usd_per_1000_iterations: float

    def row(self) -> dict[str, Any]:
        """The answer as one row of a table."""
        i, plan = self.iteration, self.plan
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "gpus": plan.num_gpus,
            "stages": " ".join(written(stage) for stage in plan.stages),
            "micro_batches": plan.micro_batches,
            "schedule": plan.schedule,
            "fits": i.fits,
            "reason": i.reason,
            "iteration_s": i.iteration_s,
            "compute_s": i.compute_s,
            "tensor_s": i.tensor_s,
            "bubble_s": i.bubble_s,
            "transfer_s": i.transfer_s,
            "allreduce_s": i.allreduce_s,
            "update_s": i.update_s,
            "memory_gib": max(i.memory_gib, default=float("nan")),
            "samples_per_s": self.samples_per_s,
            "mfu": self.mfu,
            "usd_per_1000_iterations": self.usd_per_1000_iterations,
        }


def written(stage: Stage) -> str:
    """A stage as `parse_stage` reads it; of several parts each with its share: '2xV100:0.7+2xT4:0.3@0-99'.

    Where they differ in their tensor degree each says its own: '2xA100/1:0.7+4xV100/4:0.3@0-99'.
    """
    ways = f"/{stage.tensor}" if stage.tensor > 1 and not stage.unlike else ""
    ways += "/sharded" * stage.sharded
    gpus = "+".join(
        f"{part.gpus}x{part.gpu_type}" + f"/{stage.degree(part)}" * stage.unlike + f":{part.share:.4g}"
        for part in stage.parts
    )
    return f"{gpus or f'{stage.gpus}x{stage.gpu_type}'}{ways}@{stage.first_op}-{stage.last_op}"


def parse_stage(text: str) -> Stage:
    """`8xA100/4@0-99` as a stage; without operators its span is (0, -1). Of several types as `written` writes it.

    Raises
    ------
    PerformanceError, HardwareError
        Not of that form, an unknown GPU type, or shares that do not add up to 1.
    """
    if "+" in text:
        return _parse_parts(text)
    match = _STAGE.fullmatch(text.strip())
    first, last = (int(n) for n in (match["span"] or "0--1").split("-", 1)) if match is not None else (0, 0)
    backwards = match is not None and match["span"] is not None and last < first
    if match is None or int(match["gpus"]) < 1 or int(match["tensor"] or 1) < 1 or backwards:
        raise PerformanceError(
            "not a stage", got=text, allowed="COUNTxTYPE[/TENSOR or /sharded][@FIRST-LAST]",
            todo="8xA100/4@0-99: operators 0 to 99 on 8 A100, 4 to a replica.",
        )  # fmt: skip
    return Stage(first, last, gpu_type(match["type"]).name, int(match["gpus"]), int(match["tensor"] or 1),
                 sharded=match["sharded"] is not None)  # fmt: skip


def _parse_parts(text: str) -> Stage:
    """A stage of several types. Shares are made to add up to 1 where they miss it by rounding."""
    if "/sharded" in text:
        raise PerformanceError("a stage cannot be divided among its replicas", got=text, allowed="one GPU type",
                               todo="Leave out /sharded, or take a stage of one type.")  # fmt: skip
    *others, last = (part.strip() for part in text.split("+"))
    last, _, span = last.partition("@")
    # Behind the last share: the degree of all.
    last, _, ways = last.partition("/") if "/" in last.partition(":")[2] else (last, "", "1")
    found = [_SHARED.fullmatch(part) for part in (*others, last)]
    shares = [float(match["share"]) for match in found if match is not None]
    if len(shares) < len(found) or abs(sum(shares) - 1) > SHARES_ROUND or not ways.isdecimal():
        raise PerformanceError(
            "not a stage of several types", got=text, allowed="COUNTxTYPE[/TENSOR]:SHARE+..., shares 1 together",
            todo="1xA100:0.6+4xV100/4:0.4@0-99: one A100 beside four V100 that share each operator.",
        )  # fmt: skip
    each = [parse_stage(match["part"] + f"@{span}" * bool(span)) for match in found if match is not None]
    said = any(match is not None and match["tensor"] for match in found)
    degrees = [one.tensor if said else int(ways) for one in each]
    # A part says its degree where it is not the first one's.
    parts = tuple(Part(one.gpu_type, one.gpus, share / sum(shares), 0 if degree == degrees[0] else degree)
                  for one, share, degree in zip(each, shares, degrees, strict=True))  # fmt: skip
    first, gpus = each[0], sum(one.gpus for one in each)
    return Stage(first.first_op, first.last_op, first.gpu_type, gpus, degrees[0], parts)


def balanced(performance: Performance, model: str, batch_size: int, plan: Plan) -> Plan:
    """Cut the operators among the plan's stages so that the slowest works as short as possible.

    Working time of a stage: forward + backward of a micro-batch's share on its GPU type; communication is not seen.
    Measured layers have times of their own in each tensor degree; else a degree divides them.
    With tensor parallelism cuts are between blocks (layers), where one whole tensor crosses, if there are enough.

    Raises
    ------
    PerformanceError
        Fewer operators than stages.
    """
    devices, operators = len(plan.devices), len(performance.graph(model))
    if operators < len(plan.stages):
        raise PerformanceError(
            "more stages than operators", where=f"model {model!r}", got=len(plan.stages), allowed=f"up to {operators}"
        )
    sums, measured = [], performance.graph(model).profile is not None
    for q in range(len(plan.stages)):
        stage, slowest_part = plan.stages[q % devices], np.zeros(operators + 1)
        for part in stage.all_parts:
            replicas, degree = max(1, stage.replicas_of(part)), stage.degree(part)
            samples = largest_share(batch_size / plan.micro_batches * part.share / replicas)
            ways, of = (degree, 1) if measured else (1, degree)
            forward, backward = performance.op_times_s(model, samples, gpu_type(part.gpu_type), ways)
            running = np.concatenate(([0.0], np.cumsum(forward + backward))) / of
            # The part that would take longest for the whole model, for any cut.
            slowest_part = max(slowest_part, running, key=lambda sums: float(sums[-1]))
        sums.append(slowest_part)

    ends_here = np.ones(operators + 1, dtype=bool)
    if any(stage.degree(part) > 1 for stage in plan.stages for part in stage.all_parts):
        between = np.append(np.insert(np.diff(performance.graph(model).block) > 0, 0, True), True)
        ends_here = between if between.sum() > len(plan.stages) else ends_here
    # least[k]: the slowest of the stages so far, at best, where they have the first k operators.
    least, cut_at = np.where(ends_here, sums[0], np.inf), []
    least[0] = np.inf
    for running in sums[1:]:
        slowest = np.maximum(least[:, None], running[None, :] - running[:, None])
        slowest[np.tril_indices(operators + 1)] = np.inf  # a stage has one operator at least
        slowest[:, ~ends_here] = np.inf
        cut_at.append(slowest.argmin(axis=0))
        least = slowest.min(axis=0)
    ends = [operators]
    for cuts in reversed(cut_at):
        ends.insert(0, int(cuts[ends[0]]))
    spans = zip([0, *ends[:-1]], ends, strict=True)
    return replace(plan, stages=tuple(
        replace(plan.stages[q % devices], first_op=a, last_op=b - 1) for q, (a, b) in enumerate(spans)
    ))  # fmt: skip


def on_full_nodes(
    plan: Plan, types: Sequence[GpuType], node_gpus: int, performance: Performance, zones: Sequence[str] = (),
) -> tuple[ClusterSpec, np.ndarray]:  # fmt: skip
    """An empty cluster just large enough, and the plan's GPUs in it: those of a type fill node after node of a zone.

    `zones` is that of each stage; none: all are in one.
    """
    in_zone = zones or ("",) * len(plan.devices)
    parts = [(part, zone) for stage, zone in zip(plan.devices, in_zone, strict=True) for part in stage.all_parts]
    node_type: list[int] = []
    sizes: list[int] = []
    node_zone: list[str] = []
    first: dict[tuple[str, str], int] = {}
    for zone in dict.fromkeys(in_zone):
        for t, gpu in enumerate(types):
            first[gpu.name, zone] = sum(sizes)
            here = sum(part.gpus for part, of in parts if (part.gpu_type, of) == (gpu.name, zone))
            full, rest = divmod(here, node_gpus)
            nodes = [node_gpus] * full + [rest] * (rest > 0)
            node_type += [t] * len(nodes)
            sizes += nodes
            node_zone += [zone] * len(nodes)
    cluster = ClusterSpec.build("full nodes", types, node_type, sizes, links=performance.links,
                                node_zone=node_zone if zones else ())  # fmt: skip
    gpus = []
    for part, zone in parts:
        at = first[part.gpu_type, zone]
        gpus.append(np.arange(at, at + part.gpus, dtype=np.int32))
        first[part.gpu_type, zone] = at + part.gpus
    return cluster, np.concatenate(gpus)


def ask(
    performance: Performance, model: str, batch_size: int, plan: Plan, *, node_gpus: int = 8, zones: Sequence[str] = (),
    priced: ClusterSpec | None = None,
) -> Answer:  # fmt: skip
    """Time, memory, use and cost of a plan whose GPUs lie on as few nodes of `node_gpus` as hold them.

    `zones` is the zone of each stage, of those that the links know; its egress is in the cost. GPUs cost what they do
    in the cluster `priced`, those of types that it lacks what the catalogue says.

    Stages without operators (first_op 0, last_op -1) are cut by `balanced`.

    Raises
    ------
    PerformanceError
        A model, stage or plan that makes no sense; the message says what does.
    """
    performance.resolve(model)
    if not 1 <= batch_size < float("inf"):
        raise PerformanceError("impossible batch size", where=f"model {model!r}", got=batch_size, allowed="1 or more")
    counts = {"GPUs on a node": node_gpus, "micro-batches": plan.micro_batches, "chunks": plan.chunks}
    for what, count in counts.items():
        if count < 1:
            raise PerformanceError(f"impossible number of {what}", got=count, allowed="1 or more")
    measured = performance.table is not None and model in performance.table.job_types
    if not measured and any(stage.last_op < stage.first_op for stage in plan.stages):
        plan = balanced(performance, model, batch_size, plan)
    plan = replace(plan, schedule=plan.schedule or performance.schedule)
    parts = plan.parts
    types = tuple({part.gpu_type: gpu_type(part.gpu_type) for part in parts}.values())
    _check_zones(performance, plan, zones)
    cluster, gpus = on_full_nodes(plan, types, node_gpus, performance, zones)
    iteration = performance.plan(model, batch_size, plan, gpus, cluster)
    time_s = iteration.iteration_s
    per_s = sum(gpu_type(part.gpu_type).matrix_tflops(performance.calibration.precision)[0] * part.gpus
                for part in parts) * 1e12  # fmt: skip
    flops = float("nan") if measured else 3.0 * performance.graph(model).flops_fwd_total * batch_size
    usd_per_h = sum(_usd_per_gpu_h(part.gpu_type, zone, priced) * part.gpus
                    for stage, zone in zip(plan.devices, zones or ("",) * len(plan.devices), strict=True)
                    for part in stage.all_parts)  # fmt: skip
    plan = replace(plan, iteration_s=time_s, memory_gib=iteration.memory_gib)
    return Answer(model, batch_size, plan, iteration, batch_size * iteration.rate, flops / per_s / time_s,
                  1000 * (usd_per_h * time_s / 3600 + iteration.egress_usd))  # fmt: skip


def _usd_per_gpu_h(name: str, zone: str, cluster: ClusterSpec | None) -> float:
    """USD for a GPU-hour, NaN where it is unknown: the mean of the cluster's GPUs of the type, of those in the zone if
    it has some there; of a type that the cluster lacks, or without one, the catalogue's.
    """
    t = None if cluster is None else cluster.type_index(name)
    if cluster is None or t is None:
        return gpu_type(name).price_or_nan
    there = (cluster.node_type == t) & np.array([one == zone for one in cluster.node_zone or ("",) * cluster.num_nodes])
    if not there.any():
        return cluster.types[t].price_or_nan
    return float(np.average(cluster.node_usd_per_gpu_h[there], weights=cluster.node_gpus[there]))


def _check_zones(performance: Performance, plan: Plan, zones: Sequence[str]) -> None:
    """Raise a PerformanceError where zones are not those of the links, or not one of each stage."""
    known = {name for link in performance.links.sites.zones for name in (link.one, link.other)}
    if zones and len(zones) != len(plan.devices):
        raise PerformanceError("a zone for each stage is needed", got=f"{len(zones)} zones",
                               allowed=f"{len(plan.devices)}, one for each stage")
    for zone in zones:
        if zone not in known:
            raise PerformanceError("no such zone", got=zone, allowed=", ".join(sorted(known)) or "none",
                                   todo=did_you_mean(zone, known) or "Name a cluster file that has it: --cluster.")
