"""`hetsim recommend`: which GPUs to take for one job, how many of each type, and which part of the model goes where."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console, graphs, recommendinput, recommendtables, uncertainty
from sim.cli.options import (
    CLUSTER,
    BlockingBothOption,
    BlockingOption,
    HardwareOption,
    OptimizerOption,
    OverheadOption,
)
from sim.cli.recommendinput import Question
from traces.errors import HetsimError

if TYPE_CHECKING:
    from policies.recommend.request.objective import Limits
    from policies.recommend.request.request import Recommendation, Request
    from policies.recommend.searching.bounds import Bound


def recommend(
    model: Annotated[str | None, typer.Option("--model", help="A model (hetsim perf --list).")] = None,
    graph: Annotated[Path | None, typer.Option(
        "--graph", help=f"Instead: {graphs.HELP}.")] = None,
    batch: Annotated[int, typer.Option("-b", "--batch", help="Samples of an iteration, all GPUs together.")] = 64,
    gpus: Annotated[str | None, typer.Option(
        metavar="TYPE[:COUNT],...", help="GPU types and how many there are; without a count: rent up to 64.")] = None,
    cluster: Annotated[str | None, typer.Option(help=f"Instead: the GPUs, nodes, links and prices of it. {CLUSTER}"
                                                )] = None,
    node_gpus: Annotated[str, typer.Option(
        metavar="N or TYPE:N,...", help="GPUs on a node.  [8, or the cluster's]")] = "",
    max_gpus: Annotated[int | None, typer.Option(help="GPUs that a plan may use in all.  [all]")] = None,
    hardware: HardwareOption = None,
    objective: Annotated[str, typer.Option(help="time, cost, or front: all plans between them.")] = "time",
    within: Annotated[str | None, typer.Option(
        metavar="1.2x-best-time or 0.5s", help="Only plans whose iteration takes no longer.")] = None,
    budget: Annotated[str | None, typer.Option(
        metavar="3usd", help="Only plans that cost no more: the job with --iterations, else an iteration.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Iterations of the job, for its cost and time.")] = None,
    keep: Annotated[str | None, typer.Option(
        metavar="4xV100+2xT4", help="Use exactly these GPUs, if the model fits there and the limits are kept.")] = None,
    methods: Annotated[str, typer.Option(help="Methods that propose plans, by commas.  "
                                         "[exact,uneven,pipedream,gpipe,piper,search]")] = "",
    list_methods: Annotated[bool, typer.Option("--list-methods", help="List them.")] = False,
    tensor: Annotated[str, typer.Option(help="Degrees of tensor parallelism, by commas.")] = "1",
    micro_batches: Annotated[str | None, typer.Option(
        help="Numbers of micro-batches.  [1,2,3,4,6,8,12,16,24,32 and divisors of the batch up to 32]")] = None,
    schedules: Annotated[str, typer.Option(help="Pipeline schedules, by commas: 1f1b, gpipe, async.")] = "1f1b",
    recompute: Annotated[str, typer.Option(help="Recompute activations: never, maybe or always.")] = "never",
    zero: Annotated[str, typer.Option(help="Stages of ZeRO, by commas.")] = "0",
    blocking: BlockingOption = False,
    blocking_both: BlockingBothOption = False,
    mixed: Annotated[bool, typer.Option("--mixed/--no-mixed", help="Several GPU types in one stage.")] = True,
    sharded: Annotated[str, typer.Option(
        help="Divide embedding tables and experts among a stage's replicas: never, maybe or always.")] = "maybe",
    prices: Annotated[str | None, typer.Option(
        metavar="on-demand, spot or FILE.toml", help="Prices of the catalogue by kind, or your own.  "
        "[on-demand, or the cluster's]")] = None,
    per: Annotated[str, typer.Option(
        metavar="gpu or node", help="What is paid for: the plan's GPUs, or whole nodes, as they are rented.")] = "gpu",
    seconds: Annotated[float, typer.Option(help="Of the processor, for the search method.")] = 5.0,
    evaluations: Annotated[int | None, typer.Option(
        help="Instead of --seconds: plans that it judges, for the same answer each time.")] = None,
    seed: Annotated[int, typer.Option(help="Of methods that draw random numbers.")] = 0,
    calibration: Annotated[str, typer.Option(
        help="How well GPUs are used: tuned (optimized code), eager, scripts (as runs), or a file of perf "
        "--calibrate.")] = "tuned",
    optimizer: OptimizerOption = "adam",
    overhead_gib: OverheadOption = 1.0,
    measured: Annotated[str | None, typer.Option(help="File of measured rates (docs/measured-tables.md).")] = None,
    layers: graphs.Layers = None,
    layers_from: graphs.LayersFrom = None,
    profiled_on: graphs.ProfiledOn = None,
    profiled_samples: graphs.ProfiledSamples = None,
    dim: graphs.Dim = None,
    margin: graphs.Margin = graphs.MARGIN,
    tokens: graphs.Tokens = None,
    batch_axis: graphs.BatchAxis = None,
    uncertain: Annotated[str | None, typer.Option(
        metavar="auto or ERROR", help="Speeds may be wrong, by so much in the mean (0.2, 20%; auto: the "
        "calibration's): choose by what is expected, and say which profiling runs are worth their cost.")] = None,
    profile: Annotated[str | None, typer.Option(
        metavar="5usd", help="With --uncertain: profiling runs may cost so much.  [no limit]")] = None,
    runs: Annotated[str | None, typer.Option(
        help="With --uncertain: CSV file of what profiling runs measured: gpu_type, kind, seconds.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List models and GPU types that can be asked about.")] = False,
    out: Annotated[Path | None, typer.Option(
        "-o", "--out", help="New folder: recommendation.json, plans.parquet, front.png, stages.png.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Recommend a plan for one job: stages of its model, and the GPU type and number of each.

    \b
    Examples:
      hetsim recommend --model bert-large --batch 256 --gpus V100:16,T4:32,A100:8
      hetsim recommend --model bert-large -b 256 --gpus V100:16,T4:32 --objective cost --within 1.2x-best-time
      hetsim recommend --model gpt2-1.5b -b 64 --gpus V100,A100 --budget 60usd --iterations 10000
      hetsim recommend --model resnet50 -b 256 --cluster mixed --objective front --out resnet50
      hetsim recommend --model gpt3-13b -b 64 --gpus A100-80:32 --tensor 1,2,4,8 --recompute maybe --zero 0,1
      hetsim recommend --model dlrm-1tb -b 4096 --gpus A100-80:8,V100:8 --optimizer sgd --blocking
      hetsim recommend --model dlrm-1tb -b 4096 --gpus V100:4,CPU:2 --optimizer sgd --node-gpus V100:4
      hetsim recommend --model dlrm-1tb -b 32768 --gpus V100:16,A100:8 --optimizer sgd --sharded always
      hetsim recommend --graph model.onnx -b 32 --gpus V100:8,T4:8 --keep 4xV100
      hetsim recommend --model OPT-350 --layers layers.csv -b 256 --gpus A100:8,V100:16 --tensor 1,2,4
      hetsim recommend --model bert-large -b 64 --gpus T4:4,L4:4,A10:4 --iterations 50000 --uncertain auto
    """
    if list_methods:
        console.show(recommendtables.methods_table())
        return
    if list_:
        for table in recommendtables.lists(measured):
            console.show(table)
        return
    asked = Question(
        graphs.sized(model, tokens), graph, batch, gpus, cluster, node_gpus, max_gpus, objective, within, budget,
        iterations, keep, methods, tensor, micro_batches, schedules, recompute, zero, mixed, sharded, prices, per,
        seconds, evaluations, seed, calibration, optimizer, overhead_gib, measured,
        "both" if blocking_both else blocking,
        graphs.Beside(profiled_on, profiled_samples, dim, batch_axis, layers, layers_from),
    )
    doubt = uncertainty.check(uncertain, profile, runs, asked)
    request = recommendinput.request(asked)
    if doubt is not None:
        _uncertain(asked, doubt, request, out, json)
        return
    if out is not None:
        recommendinput.check_folder(out)
    answer, found = _answer(asked, request)
    if out is not None:
        _write(out, answer, found)
    if json:
        console.show_json(answer)
    else:
        for table in recommendtables.tables(answer, margin):
            console.show(table)
        console.tell_prices(request.fleet.types, request.fleet.node_gpus)
    if answer["kept"] is False:
        console.say(answer["keep_reason"], style="bold yellow")


def _uncertain(asked: Question, doubt: uncertainty.Doubt, request: Request, out: Path | None, json: bool) -> None:
    """The plan and the runs where speeds may be wrong; there is nothing to draw of them."""
    if out is not None:
        raise HetsimError("nothing is written where speeds are uncertain", got=f"--out {out}", allowed="--json")
    said = uncertainty.answer(asked, doubt, request)
    if json:
        console.show_json(said)
        return
    for table in uncertainty.tables(said):
        console.show(table)


def _answer(asked: Question, request: Request) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All that is said, and each plan that is worth having as one row."""
    from policies.recommend.request.objective import ranked
    from policies.recommend.request.request import by_cost, by_counts
    from policies.recommend.searching import plain as report
    from policies.recommend.searching.blind import blind_plans
    from policies.recommend.searching.bounds import lower_bound
    from policies.recommend.searching.cheapest_type import cheapest_type
    from policies.recommend.searching.gather import gathered, usual_methods
    from policies.recommend.searching.nofit import nothing_fits
    from sim.hardware.gputypes import catalogue

    began = time.perf_counter()
    limits = recommendinput.limits(asked)
    methods = recommendinput.methods(asked) if asked.methods else usual_methods(request)
    with console.counting("steps") as update:
        pool, ended = gathered(request, methods, asked.evaluations, update)
        kept = _kept(asked, request, methods)
    pool += kept
    if not pool:
        raise nothing_fits(request, list(catalogue().values()))
    # Who asks for the plans of some planners asks for no others.
    blind = [] if asked.keep or "search" not in methods else blind_plans(request, pool, asked.evaluations)
    pool += blind
    proof = cheapest_type(request)
    bound = lower_bound(request).at_least(proof.usd_per_iteration if proof is not None else 0.0)
    answer = _chosen(asked, request, pool, kept, limits, bound, blind)
    gaps = bound.gap(pool)
    front = by_cost(limits.keep(pool))
    if asked.objective == "front" and not front:
        ranked(limits.keep(pool), "cost")  # raises: no price is known
    answer |= {
        "bound": {"iteration_s": report.known(bound.iteration_s), "usd_per_iteration": report.known(
            bound.usd_per_iteration), "gap_time": report.known(gaps[0]), "gap_cost": report.known(gaps[1])},
        "cheapest_type": report.proof_row(proof, pool),
        "front": [report.plan_row(request, r, asked.iterations) for r in front],
        "search": None if ended is None else {
            "ended": ended.reason, "early": ended.early, "plans_judged": ended.evaluations},
        "methods": list(methods), "proves": _proves(request, methods), "plans_judged": request.evaluations,
        "wall_s": time.perf_counter() - began,
    }
    on_front = {id(r) for r in front}
    rows = [
        report.plan_row(request, r, asked.iterations)
        | {"on_front": id(r) in on_front, "gpu_types": sum(n > 0 for n in r.counts)}
        for r in by_counts(pool)
    ]
    return answer, rows


def _proves(request: Request, methods: tuple[str, ...]) -> list[dict[str, str]]:
    """What the methods prove: by that which proves most, the first of equal ones."""
    from policies.recommend.methods import proves

    gaps = {} if request.measured else {name: proves(name, request) for name in methods}
    known = {name: gap for name, gap in gaps.items() if gap is not None}
    if not known:
        return []
    name = min(known, key=lambda name: known[name])
    operators = len(request.performance.graph(request.model))
    least = f"none takes {100 * known[name]:.2g} % less" if known[name] else "none takes less"
    return [{"method": name, "text": f"of plans that cut {operators:,} operator{'s' * (operators != 1)} anywhere into "
             "stages of one type, without sharing operators or recomputing, "
             f"{least} than the best by (m - 1) x slowest + sum of stages"}]


def _write(out: Path, answer: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """All files of an answer: they are there whole or not at all."""
    import json

    import pandas as pd

    from analysis.figures.recommendation import draw
    from traces.outfile import written_folder

    try:
        with written_folder(out) as part:
            (part / "recommendation.json").write_text(json.dumps(answer, allow_nan=False, indent=1) + "\n", "utf-8")
            table = pd.json_normalize([{key: value for key, value in row.items() if key != "order"} for row in rows])
            gpus = [name for name in table.columns if name.startswith("gpus.")]
            money = ["usd_per_iteration", "usd_per_job", "job_s"]
            table[gpus] = table[gpus].fillna(0).astype("int64")
            table[money] = table[money].astype("float64")
            table.to_parquet(part / "plans.parquet", index=False)
            draw(part)
    except OSError as error:
        raise HetsimError("the folder cannot be written", where=str(out), got=error.strerror or str(error),
                          todo="Name another with --out.") from None


def _kept(asked: Question, request: Request, methods: tuple[str, ...]) -> list[Recommendation]:
    """The best plan on exactly the GPUs that are to be kept; empty: none fits, or none are."""
    from policies.recommend.searching.gather import gather

    if asked.keep is None:
        return []
    counts = recommendinput.counts_to_keep(asked.keep, request.fleet)
    on_them = recommendinput.exactly(request, counts)
    return [r for r in gather(on_them, methods, asked.evaluations) if r.counts == counts]


def _chosen(
    asked: Question, request: Request, pool: list[Recommendation], kept: list[Recommendation], limits: Limits,
    bound: Bound, blind: list[Recommendation],
) -> dict[str, Any]:
    """The plan, the best on one type beside it, what the one saves against the other, and why."""
    from policies.recommend.request.objective import is_better, ranked
    from policies.recommend.searching import plain as report
    from policies.recommend.searching.nofit import lack
    from policies.recommend.searching.why_mixing import split

    by = "time" if asked.objective == "front" else asked.objective
    # A multiple of the best time is one of the best of all plans, whatever is kept.
    limits = limits.absolute(min(r.iteration_s for r in pool))
    best = ranked(pool, by, limits=limits)[0]
    chosen, is_kept, reason = best, None if asked.keep is None else False, ""
    if asked.keep is not None:
        if not kept:
            lacking = lack(recommendinput.exactly(request, recommendinput.counts_to_keep(asked.keep, request.fleet)))
            why = f"the model does not fit there, {lacking}" if lacking else "no plan on exactly these GPUs was found"
            reason = f"{asked.keep} is not kept: {why}; this is the best plan instead"
        else:
            try:
                chosen, is_kept = ranked(kept, by, limits=limits)[0], True
            except HetsimError as error:
                reason = f"{asked.keep} is not kept: {error}; this is the best plan instead"
    try:
        single = next(iter(ranked(report.on_one_type(pool), by, limits=limits)), None)
    except HetsimError:
        single = None
    return {
        **_described(asked, request, limits),
        "plan": report.full(request, chosen, asked.iterations),
        "kept": is_kept, "keep_reason": reason,
        "better": report.plan_row(request, best, asked.iterations) if is_kept and is_better(best, chosen, by) else None,
        "homogeneous": report.full(request, single, asked.iterations) if single is not None else None,
        "saving": report.saving(request, chosen, single, by, bound, is_kept is True),
        "split": report.split_row(request, split(request, pool, blind, by, limits, bound)) if blind else None,
    }


def _described(asked: Question, request: Request, limits: Limits) -> dict[str, Any]:
    """What was asked, as plain values."""
    fleet = request.fleet
    return {
        "model": request.model, "batch_size": request.batch_size, "objective": asked.objective,
        "within_s": limits.time_s, "budget_usd_per_iteration": limits.usd, "iterations": asked.iterations,
        "keep": asked.keep, "max_gpus": request.budget, "seed": asked.seed, "per": asked.per,
        "calibration": request.performance.calibration.name, "optimizer": request.performance.optimizer.name,
        "blocking": request.performance.blocking,
        "gpus": [
            {"gpu_type": gpu.name, "count": n, "node_gpus": size, "memory_gib": gpu.memory_gib,
             "price_usd_per_h": gpu.price_usd_per_h, "price_source": _source(gpu.cite), "rented_gpus": rented}
            for gpu, n, size, rented in zip(fleet.types, fleet.counts, fleet.node_gpus, fleet.rented_gpus, strict=True)
            if n
        ],
    }


def _source(cite: Mapping[str, str]) -> str:
    return cite.get("price_usd_per_h", cite.get("price", ""))
