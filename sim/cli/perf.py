"""`hetsim perf`: how fast a model trains on some GPUs, and where its time goes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console, perftables
from sim.cli import graphs as files
from sim.cli.options import (
    CLUSTER,
    BlockingBothOption,
    BlockingOption,
    HardwareOption,
    OptimizerOption,
    OverheadOption,
)
from traces.errors import HetsimError

if TYPE_CHECKING:
    from sim.cluster.spec import Links
    from sim.performance import Performance


def perf(
    model: Annotated[str | None, typer.Argument(
        metavar="MODEL", help=f"A model (--list), other sizes of its family as text, or {files.HELP}.")] = None,
    stage: Annotated[list[str] | None, typer.Option(
        "-s", "--stage", metavar="COUNTxTYPE", help="GPUs of a stage; repeat it for a pipeline. /T: T GPUs to a "
        "replica (tensor parallelism); /sharded: tables and experts divided among the GPUs, not repeated; "
        "@FIRST-LAST: its operators, left out: cut evenly; several types as 1xA100:0.6+4xV100/4:0.4, each with its "
        "share of the samples.  [1xV100]")] = None,
    batch: Annotated[int, typer.Option("-b", "--batch", help="Samples of an iteration, all GPUs together.")] = 64,
    micro_batches: Annotated[int, typer.Option("-m", "--micro-batches", help="Micro-batches of an iteration.")] = 1,
    schedule: Annotated[str, typer.Option(help="1f1b, gpipe, interleaved or async.")] = "1f1b",
    chunks: Annotated[int, typer.Option(help="Stages on each GPU (interleaved).")] = 1,
    recompute: Annotated[bool, typer.Option("--recompute", help="Recompute activations in the backward pass.")] = False,
    zero: Annotated[int, typer.Option(help="Stage of ZeRO, 0 to 3.")] = 0,
    blocking: BlockingOption = False,
    blocking_both: BlockingBothOption = False,
    overlap: Annotated[bool, typer.Option("--overlap", help="Sum gradients while the backward pass runs.")] = False,
    exchange: Annotated[str, typer.Option(
        help="Of gradients: ring, tree or fastest all-reduce; parameter servers, servers or async-servers.")] = "ring",
    calibration: Annotated[str, typer.Option(
        help="How well GPUs are used: tuned (optimized code), eager, scripts (as runs), megatron, or a file of "
        "--calibrate.")] = "tuned",
    optimizer: OptimizerOption = "adam",
    overhead_gib: OverheadOption = 1.0,
    measured: Annotated[str | None, typer.Option(help="File of measured rates (docs/measured-tables.md).")] = None,
    cluster: Annotated[str | None, typer.Option(help=f"Take links and GPU prices of this cluster. {CLUSTER}")] = None,
    zones: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="Zone of each stage, of those of the cluster's file.")] = None,
    node_gpus: Annotated[int, typer.Option(help="GPUs on a node.")] = 8,
    hardware: HardwareOption = None,
    margin: files.Margin = files.MARGIN,
    layers: files.Layers = None,
    layers_from: files.LayersFrom = None,
    profiled_on: files.ProfiledOn = None,
    profiled_samples: files.ProfiledSamples = None,
    dim: files.Dim = None,
    tokens: files.Tokens = None,
    batch_axis: files.BatchAxis = None,
    config: Annotated[Path | None, typer.Option(
        "-c", "--config", help="A TOML file with [perf] (and [figure]): many questions, one table.")] = None,
    out: Annotated[Path | None, typer.Option(
        "-o", "--out", help="With --config: folder of table and figure. With --calibrate: file of the fit. With "
        "--layers or a graph file: its measured layers as a table of your own.")] = None,
    calibrate: Annotated[Path | None, typer.Option(
        help="Fit a calibration to a CSV file of measured times, and report its error.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List models and GPU types that can be asked about.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say how long an iteration of a model takes on some GPUs, and where the time goes.

    \b
    Examples:
      hetsim perf resnet50 --batch 256 --stage 4xV100
      hetsim perf gpt2-1.5b -b 64 -m 16 --stage 4xA100 --stage 4xV100
      hetsim perf gpt3-13b -b 512 -m 64 -s 16xA100-80/8 -s 16xA100-80/8 --recompute
      hetsim perf llama-70b -b 32 -s 32xA100-80 --zero 3 --recompute --tokens 512
      hetsim perf "llama(layers=60, hidden=6656, heads=52, inner=17920)" -b 32 -s 32xA100-80 --zero 3
      hetsim perf dlrm-1tb -b 32768 -s 8xA100-80/sharded --optimizer sgd
      hetsim perf model.onnx --stage 1xT4 --dim height=320 --dim width=320 --json
      hetsim perf --config experiments/placement-sensitivity.toml --out figures
      hetsim perf OPT-350 --layers layers.csv -b 64 -m 8 -s 8xA100/4 -s 8xV100/4
      hetsim perf --calibrate experiments/measured/h100-operators.csv --out h100.toml
    """
    beside = files.Beside(profiled_on, profiled_samples, dim, batch_axis, layers, layers_from)
    _without_effect(model, config, calibrate, out, beside)
    model = files.sized(model, tokens)
    if list_:
        _list(measured)
    elif calibrate is not None:
        _calibrate(calibrate, calibration, out)
    elif config is not None:
        _experiment(config, out)
    elif model is None:
        raise HetsimError("nothing was asked", allowed="MODEL, --list, --config FILE or --calibrate FILE",
                          todo="For example: hetsim perf resnet50 --batch 256 --stage 4xV100")
    else:
        from sim.cli.options import load_named_cluster
        from sim.cli.whatif import ask, parse_stage
        from sim.cluster.plan import Plan

        spec = load_named_cluster(cluster) if cluster is not None else None
        performance, name = _performance(
            model, calibration, measured, None if spec is None else spec.links, schedule,
            "both" if blocking_both else blocking, overlap, exchange, optimizer, overhead_gib, beside,
        )  # fmt: skip
        if out is not None:
            _write_layers(performance, name, out)
            return
        stages = [parse_stage(text) for text in stage or ["1xV100"]]
        if len(stages) > 1 and len({s.last_op < s.first_op for s in stages}) > 1:
            raise HetsimError("operators are given for some stages only", got=" ".join(stage or []),
                              allowed="@FIRST-LAST for all stages, or none")
        if chunks > 1 and all(s.last_op < s.first_op for s in stages):
            stages = stages * chunks
        plan = Plan(tuple(stages), micro_batches, schedule=schedule, chunks=chunks, recompute=recompute, zero=zero)
        answer = ask(performance, name, batch, plan, node_gpus=node_gpus, zones=zones.split(",") if zones else (),
                     priced=spec)  # fmt: skip
        if json:
            i = answer.iteration
            row = answer.row() | {"source": i.source, "memory_gib": list(i.memory_gib), "tight": bool(i.tight(margin))}
            console.show_json({key: _finite(value) for key, value in row.items()})
        else:
            console.show(perftables.answer_table(answer, performance))
            console.show(perftables.stages_table(answer, performance, margin))
        if not answer.iteration.fits:
            console.say(answer.iteration.reason, style="bold red")
            raise typer.Exit(1)


def _without_effect(
    model: str | None, config: Path | None, calibrate: Path | None, out: Path | None, beside: files.Beside
) -> None:
    """Refuse options that would change nothing."""
    file = model is not None and Path(model).suffix in files.SUFFIXES
    if out is not None and config is None and calibrate is None and beside.layers is None and not file:
        raise HetsimError("an option has no effect", got=f"--out {out}",
                          allowed="--out with --config, --calibrate, --layers or a graph file")  # fmt: skip
    beside.refuse_without(file, "a graph file")
    if beside.layers is not None and model is None:
        raise HetsimError("no model of the table is named", got=f"--layers {beside.layers}", allowed="MODEL")


def _finite(value: Any) -> Any:
    """What JSON can hold: unknown is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _performance(
    model: str, calibration: str, measured: str | None, links: Links | None, schedule: str,
    blocking: bool | str, overlap: bool, exchange: str, optimizer: str, overhead_gib: float, beside: files.Beside,
) -> tuple[Performance, str]:
    """The performance model asked for, and the name of the model in it."""
    from sim.performance import Performance
    from sim.performance.calibration import for_graphs, named_calibration
    from sim.performance.tables import load_table

    graphs = files.of_layers(beside, model)
    if Path(model).suffix in files.SUFFIXES:
        graph = files.read(model, beside)
        graphs, model = {graph.name: graph}, graph.name
    table = load_table(measured, "interpolate") if measured is not None else None
    fit = for_graphs(named_calibration(calibration), graphs.values())
    return Performance(links, table, schedule=schedule, calibration=fit, graphs=graphs, blocking=blocking,
                       overlap=overlap, exchange=exchange, optimizer=optimizer, context_gib=overhead_gib), model


def _write_layers(performance: Performance, model: str, out: Path) -> None:
    """The measured layers of a model as a table of one's own."""
    from sim.performance.readers.layer_table import as_layers
    from traces.outfile import write_text

    if out.exists():
        raise HetsimError("the file is there already", where=str(out), todo="Name another, or remove it.")
    write_text(out, as_layers({model: performance.graph(model)}))
    console.tell(out)


def _list(measured: str | None) -> None:
    from sim.hardware.gputypes import catalogue
    from sim.performance.tables import load_table

    console.show(perftables.models_table(load_table(measured, "interpolate") if measured is not None else None))
    console.show(perftables.gpu_types_table(catalogue()))


def _calibrate(rows: Path, start: str, out: Path | None) -> None:
    from sim.performance.calibrate import fit_file
    from sim.performance.calibration import named_calibration

    if out is not None and out.exists():
        raise HetsimError("the file is there already", where=str(out), todo="Name another, or remove it.")
    console.say("fitting: this takes up to some minutes where rows are whole training steps")
    fitted, report = fit_file(rows, named_calibration(start))
    if out is not None:
        fitted.save(out)
    console.show(perftables.fit_table(fitted, report))
    if out is not None:
        console.tell(out)


def _experiment(config: Path, out: Path | None) -> None:
    from analysis.figures.perffigure import draw
    from sim.cli.questions import load_experiment

    experiment = load_experiment(config)
    with console.counting("questions") as update:
        rows = experiment.rows(update)
    folder = out if out is not None else Path("figures")
    for file in draw(rows, experiment.figure, folder, config.stem):
        console.tell(file)
