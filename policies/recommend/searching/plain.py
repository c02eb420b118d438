"""What a recommendation says, as plain values: numbers, text, lists and dicts. Unknown is None.

Tables, JSON and pictures are made of nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.bounds import Bound
from policies.recommend.searching.cheapest_type import Certificate
from policies.recommend.searching.why_mixing import Split
from sim.api import Plan, Stage
from sim.performance.operator_time import operator_times_s
from sim.performance.samples import largest_share, micro_batches_of, of_each, part_samples

REACHED = 1e-6
"""By which a plan may cost more than what is proven and still be said to cost that, relatively."""
PARTS = ("compute_s", "tensor_s", "bubble_s", "transfer_s", "allreduce_s", "update_s")


def known(value: float) -> float | None:
    """The number, or None where it is unknown."""
    return float(value) if math.isfinite(value) else None


def plan_row(request: Request, r: Recommendation, iterations: int | None = None) -> dict[str, Any]:
    """A plan and what it brings: time and its parts, rates, cost, how it trains, samples of each micro-batch, GPUs.

    `tensor_s` (sums of tensor parallelism, all-to-alls of sharded stages) is a part of `compute_s`; the other parts add
    up to `iteration_s`. `memory_part` is what each stage needs of the memory that its GPUs have. `method` found the
    plan first; `search` begins where the others end.
    """
    plan, fleet = r.plan, request.fleet
    i = request.performance.plan(request.model, request.batch_size, plan, fleet.gpus(plan), fleet.spec)
    usd = known(r.usd_per_iteration)
    return {
        "iteration_s": r.iteration_s,
        **{part: getattr(i, part) for part in PARTS},
        "samples_per_s": request.batch_size / r.iteration_s,
        "usd_per_iteration": usd,
        "usd_per_job": None if usd is None or iterations is None else usd * iterations,
        "job_s": None if iterations is None else r.iteration_s * iterations,
        "gpus": {name: n for name, n in zip(fleet.names, r.counts, strict=True) if n},
        "micro_batches": plan.micro_batches,
        "micro_batch_samples": [n for many, n in micro_batches_of(int(request.batch_size), plan.micro_batches)
                                for _ in range(many)],
        "schedule": plan.schedule or request.performance.schedule,
        "recompute": plan.recompute,
        "zero": plan.zero,
        "order": list(plan.order),
        "source": i.source,
        "method": request.found_by.get(plan),
        "layout": layout(plan),
        "memory_part": list(i.memory_part),
    }


def layout(plan: Plan) -> str:
    """The stages in short: '8 V100 | 4 T4 x2' (x2: tensor parallelism over 2 GPUs), or '2 A100 x1 + 4 T4 x4'.

    '8 V100 sharded': tables and experts are divided among the replicas.
    """
    return " | ".join(
        " + ".join(f"{part.gpus} {part.gpu_type}" + f" x{stage.degree(part)}" * stage.unlike
                   for part in stage.all_parts)
        + (f" x{stage.tensor}" if stage.tensor > 1 and not stage.unlike else "") + " sharded" * stage.sharded
        for stage in plan.stages
    )


def stage_rows(request: Request, plan: Plan) -> list[dict[str, Any]]:
    """Each stage: operators, GPUs, time of a micro-batch without communication, memory needed and there.

    A stage of several types takes as long as its slowest part; `there_gib` names all parts' memory. `samples` are those
    of each replica, of a micro-batch (of a larger one, where they are unequal). `tensor` is the stage's; where parts
    differ in it, that of the first, and each part says its own. `sharded` is said where tables and experts are divided.
    """
    if request.measured:
        return []
    graph = request.performance.graph(request.model)
    graph = graph.reordered(plan.order) if plan.order else graph
    rows = []
    for s, stage in enumerate(plan.stages):
        forward_s, backward_s = _times_s(request, graph, plan, stage)
        replicas, shares = zip(*((stage.replicas_of(part), part.share) for part in stage.all_parts), strict=True)
        samples = part_samples(request.batch_size / plan.micro_batches, replicas, shares)
        there = [request.fleet.types[request.fleet.names.index(part.gpu_type)].memory_gib for part in stage.all_parts]
        rows.append({
            "stage": s, "first_op": stage.first_op, "last_op": stage.last_op,
            "first_name": graph.ops[stage.first_op], "last_name": graph.ops[stage.last_op],
            "gpus": [
                {"gpu_type": part.gpu_type, "gpus": part.gpus, "replicas": n, "share": part.share,
                 "samples": of_each(whole, n), "there_gib": gib,
                 **({"tensor": stage.degree(part)} if stage.unlike else {})}
                for part, n, whole, gib in zip(stage.all_parts, replicas, samples, there, strict=True)
            ],
            "replicas": stage.replicas, "tensor": stage.tensor, **({"sharded": True} if stage.sharded else {}),
            "forward_s": forward_s, "backward_s": backward_s,
            "need_gib": plan.memory_gib[s] if s < len(plan.memory_gib) else None,
        })
    return rows


def _times_s(request: Request, graph: Any, plan: Plan, stage: Stage) -> tuple[float, float]:
    """Forward and backward of a micro-batch on the slowest part."""
    span, slowest = slice(stage.first_op, stage.last_op + 1), (0.0, 0.0)
    for part in stage.all_parts:
        ways = stage.degree(part)
        share = graph.tensor_parallel(ways) if ways > 1 else graph.sharded(stage.replicas if stage.sharded else 1)
        samples = largest_share(request.batch_size / plan.micro_batches * part.share / stage.replicas_of(part))
        gpu = request.fleet.types[request.fleet.names.index(part.gpu_type)]
        times = operator_times_s(share, samples, gpu, calibration=request.performance.calibration)
        slowest = max(slowest, (float(times[0][span].sum()), float(times[1][span].sum())), key=sum)
    return slowest


def full(request: Request, r: Recommendation, iterations: int | None = None) -> dict[str, Any]:
    """A plan with its stages."""
    return {**plan_row(request, r, iterations), "stages": stage_rows(request, r.plan)}


def on_one_type(found: Sequence[Recommendation]) -> list[Recommendation]:
    """Those of the plans that use one GPU type."""
    return [r for r in found if sum(n > 0 for n in r.counts) == 1]


def saving(
    request: Request, chosen: Recommendation, single: Recommendation | None, objective: str, bound: Bound,
    kept: bool = False,
) -> dict[str, Any]:
    """What the plan saves against the best on one type, as fractions of it; and why, where it saves nothing.

    The best on one type is the best by the same objective and limits.
    """
    if single is None:
        return {"time": None, "cost": None, "reason": "no plan on one GPU type fits within the limits"}
    time = 1 - chosen.iteration_s / single.iteration_s
    # Of a free plan nothing can be saved; what costs more than that has no ratio to it.
    free = 0.0 if chosen.usd_per_iteration == 0 else None
    cost = known(1 - chosen.usd_per_iteration / single.usd_per_iteration) if single.usd_per_iteration else free
    aimed, least, value = (
        (time, bound.iteration_s, single.iteration_s) if objective == "time"
        else (cost, bound.usd_per_iteration, single.usd_per_iteration)
    )
    reason = ""
    if not aimed or aimed <= 0:
        if kept:
            reason = "these GPUs were asked for"
        elif len(request.fleet.present) < 2:
            reason = "there is one GPU type only"
        elif request.space.single_type:
            reason = "one GPU type a plan was asked for"
        elif request.measured:
            reason = "a model known by measured rates runs on one GPU type"
        else:
            reason = "the best plan that was found is on one GPU type"
            if 0 < least < math.inf and math.isfinite(value):
                most = max(0.0, 100 * (1 - least / value))
                reason += f"; by a lower bound that knows no limits, none saves more than {most:.1f} %"
    return {"time": time, "cost": cost, "reason": reason}


def split_row(request: Request, why: Split | None) -> dict[str, Any] | None:
    """The parts of what is saved, as fractions of the best plan on one type (`why_mixing`), and the blind plan."""
    if why is None:
        return None
    return {
        "saved": why.saved, "exchanged": why.exchanged, "added": why.added, "operators": why.operators,
        "possible": known(why.possible), "one_type_gpus": why.one_type_gpus,
        "blind": plan_row(request, why.blind),
    }


def proof_row(proof: Certificate | None, found: Sequence[Recommendation]) -> dict[str, Any] | None:
    """The certificate that one type costs least for each operator, and how much more the cheapest plan found costs."""
    if proof is None:
        return None
    usd = min((r.usd_per_iteration for r in found if not math.isnan(r.usd_per_iteration)), default=math.nan)
    above = max(usd / proof.usd_per_iteration - 1, 0.0)
    return {
        "gpu_type": proof.gpu_type, "operators": proof.operators, "types": list(proof.types),
        "usd_per_iteration": proof.usd_per_iteration, "found_above": 0.0 if above <= REACHED else known(above),
    }
