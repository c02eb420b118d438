"""`hetsim place`: which GPU runs each operator of one training step, by several methods side by side."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from sim.cli import graphs as files
from sim.cli.options import HardwareOption, OptimizerOption, said_source
from sim.cli.recommendinput import named_list, refused, type_counts
from traces.errors import HetsimError
from traces.outfile import refuse_existing, write_text

if TYPE_CHECKING:
    from rich.table import Table

    from policies.place.placement_problem import Devices, PlacementGraph, Schedule
    from sim.hardware.gputypes import GpuType
    from sim.performance import Performance

SAMPLES = 32
MOST_DEVICES = 64


def place(
    model: Annotated[str | None, typer.Option("--model", help="A model (hetsim perf --list).")] = None,
    graph: Annotated[Path | None, typer.Option(
        "--graph", help=f"Instead: {files.HELP}.")] = None,
    gpus: Annotated[str, typer.Option(metavar="TYPE[:COUNT],...", help="The GPUs; without a count: one.")] = "V100:2",
    batch: Annotated[int | None, typer.Option(
        "-b", "--batch", help=f"Samples of the step.  [those that were measured, else {SAMPLES}]")] = None,
    methods: Annotated[str, typer.Option(help="Methods, by commas.  [all]")] = "",
    list_methods: Annotated[bool, typer.Option("--list-methods", help="List them.")] = False,
    node_gpus: Annotated[int, typer.Option(help="GPUs on a node; a node has GPUs of one type.")] = 8,
    hardware: HardwareOption = None,
    links: Annotated[str, typer.Option(
        help="directed: a channel for each pair of GPUs and direction; shared: one for each GPU.")] = "directed",
    seconds: Annotated[float, typer.Option(help="For the solver of pesto.")] = 10.0,
    iterations: Annotated[int, typer.Option(help="Neighbours that anneal tries.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of methods that draw random numbers.")] = 0,
    calibration: Annotated[str, typer.Option(
        help="How well GPUs are used: tuned (optimized code), eager, scripts (as runs), or a file of perf "
        "--calibrate.")] = "tuned",
    optimizer: OptimizerOption = "adam",
    profiled_on: files.ProfiledOn = None,
    profiled_samples: files.ProfiledSamples = None,
    dim: files.Dim = None,
    tokens: files.Tokens = None,
    batch_axis: files.BatchAxis = None,
    layers: files.Layers = None,
    layers_from: files.LayersFrom = None,
    out: Annotated[Path | None, typer.Option(
        "-o", "--out", help="CSV file: device, start and end of each operator by each method.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Place the operators of one training step on GPUs, and compare methods by the time of the step.

    \b
    Examples:
      hetsim place --model inception-v3 --gpus V100:2
      hetsim place --model nasnet-a-large -b 64 --gpus V100:2,T4:2 --methods expert,m-etf,m-sct --out placed.csv
      hetsim place --graph profile.txt --profiled-on V100 --profiled-samples 64 --gpus V100:4 --links shared
      hetsim place --model my-model --layers layers.csv -b 8 --gpus A100:2,V100:2
    """
    from policies.place.placers import PLACERS, about, placer

    if list_methods:
        table = console.new_table("method", "what it does", title="Methods of hetsim place (--methods A,B)")
        for name in PLACERS:
            table.add_row(name, console.cell(about(name)))
        console.show(table)
        return
    beside = files.Beside(profiled_on, profiled_samples, dim, batch_axis, layers, layers_from)
    _check(model, graph, batch, node_gpus, seconds, iterations, seed, beside)
    names = named_list(methods, "--methods") if methods else PLACERS
    placers = {name: placer(name, seconds=seconds, iterations=iterations, seed=seed) for name in names}
    if out is not None:
        refuse_existing(out, force)
    performance, named = _performance(files.sized(model, tokens), graph, calibration, optimizer, beside)
    asked = type_counts(gpus, default=1)
    types = [gpu for gpu, _ in asked]
    samples = float(batch) if batch is not None else _samples(performance, named, types)
    step, devices = _problem(performance, named, samples, asked, node_gpus, links)
    rows, schedules = [], dict[str, Any]()
    with console.counting("methods") as update:
        for done, (name, placed_by) in enumerate(placers.items()):
            update(done, len(placers))
            began = time.perf_counter()
            try:
                schedules[name] = placed_by(step, devices)
                reason = "" if schedules[name].fits else "out of memory"
            except HetsimError as error:
                reason = str(error)
            rows.append({"method": name, **_figures(schedules.get(name), devices), "reason": reason,
                         "placing_s": time.perf_counter() - began})  # fmt: skip
    answer = {
        "model": named, "samples": samples, "operators": len(step), "links": links, "seed": seed,
        "source": _source(performance, named, samples, types), "optimizer": performance.optimizer.name,
        "gpus": {gpu.name: n for gpu, n in asked}, "methods": rows,
    }  # fmt: skip
    if out is not None:
        device_types = [gpu.name for gpu, n in asked for _ in range(n)]
        _write(out, performance.graph(named).ops, schedules, device_types)
    if json:
        console.show_json(answer)
    else:
        console.show(_table(answer))
    if not any(row["fits"] for row in rows):
        console.say("no method found a placement that fits the memory", style="bold red")
        raise typer.Exit(1)


def _check(
    model: str | None, graph: Path | None, batch: int | None, node_gpus: int, seconds: float, iterations: int,
    seed: int, beside: files.Beside,
) -> None:
    """What each option must be by itself, and with others."""
    if (model is None) == (graph is None):
        raise HetsimError("nothing to place" if model is None else "two models are given",
                          allowed="--model NAME or --graph FILE", todo="hetsim perf --list names the models.")
    for option, value, most in (("--batch", batch, 10**9), ("--node-gpus", node_gpus, 1024),
                                ("--iterations", iterations, 10**9)):
        if value is not None and not 1 <= value <= most:
            raise refused("not a count", option, value, f"a whole number from 1 to {most:,}")
    if not 0 < seconds <= 86400:
        raise refused("an impossible time", "--seconds", seconds, "above 0, up to 86400")
    if not 0 <= seed < 2**63:
        raise refused("not a seed", "--seed", seed, "a whole number from 0 to 2**63 - 1")
    beside.refuse_without(graph is not None, "--graph FILE")


def _performance(
    model: str | None, graph: Path | None, calibration: str, optimizer: str, beside: files.Beside
) -> tuple[Performance, str]:
    """The performance model, and the name of the model in it."""
    from sim.performance import Performance
    from sim.performance.calibration import for_graphs, named_calibration

    name = model or ""
    graphs = files.of_layers(beside, name)
    if graph is not None:
        read = files.read(str(graph), beside)
        graphs, name = {read.name: read}, read.name
    fit = for_graphs(named_calibration(calibration), graphs.values())
    made = Performance(calibration=fit, graphs=graphs, optimizer=optimizer)
    return made, made.resolve(name)


def _samples(performance: Performance, model: str, types: Sequence[GpuType]) -> float:
    """Those that were measured, the most on all types alike; else SAMPLES."""
    profile = performance.graph(model).profile
    if profile is None:
        return float(SAMPLES)
    measured = [set(profile.measured_samples(gpu.name)) for gpu in types]
    return float(max(set.intersection(*measured), default=SAMPLES))


def _source(performance: Performance, model: str, samples: float, types: Sequence[GpuType]) -> str:
    """Where the times come from: the least sure of all types."""
    from sim.performance.layer_times import worst
    from sim.performance.operator_time import source

    graph = performance.graph(model)
    found = [source(graph, samples, gpu) for gpu in types]
    return found[0] if graph.profile is None else worst(found)


def _problem(
    performance: Performance, model: str, samples: float, asked: Sequence[tuple[GpuType, int]], node_gpus: int,
    links: str,
) -> tuple[PlacementGraph, Devices]:
    """The step and the devices."""
    from policies.place.placers import devices_of, modelled_step

    if (count := sum(n for _, n in asked)) > MOST_DEVICES:
        raise refused("too many GPUs to place operators on", "--gpus", count, f"up to {MOST_DEVICES}")
    devices = devices_of(performance, asked, node_gpus, links=links)
    return modelled_step(performance, model, samples, [gpu for gpu, _ in asked]), devices


def _figures(schedule: Schedule | None, devices: Devices) -> dict[str, Any]:
    """What a placement brings; None: there is none."""
    if schedule is None:
        return {"step_s": None, "fits": False, "devices": None, "peak_gib": None, "operators": None}
    used = [int(n) for n in (schedule.device[:, None] == range(devices.count)).sum(axis=0)]
    return {
        "step_s": schedule.makespan_s, "fits": schedule.fits, "devices": sum(n > 0 for n in used),
        "peak_gib": [float(peak) / 2**30 for peak in schedule.peak_bytes], "operators": used,
    }  # fmt: skip


def _table(answer: dict[str, Any]) -> Table:
    """A row a method; the time saved is against the best of one GPU that has the memory."""
    gpus = " + ".join(f"{n} {name}" for name, n in answer["gpus"].items())
    table = console.new_table("method", "step (ms)", "against one GPU", "GPUs used", "fullest (GiB)", "placing (s)", "",
                              title=f"{answer['model']}, {answer['samples']:g} samples, {answer['operators']:,} "
                              f"operators (forward and backward) on {gpus}")  # fmt: skip
    alone = next((row["step_s"] for row in answer["methods"] if row["method"] == "single" and row["fits"]), None)
    for row in answer["methods"]:
        if row["step_s"] is None:
            table.add_row(row["method"], "none", "", "", "", f"{row['placing_s']:.2f}", console.cell(row["reason"]))
            continue
        saved = "" if alone is None or not row["fits"] else f"{100 * (row['step_s'] / alone - 1):+.1f} %"
        table.add_row(row["method"], f"{1e3 * row['step_s']:,.3f}", saved, f"{row['devices']}",
                      f"{max(row['peak_gib']):.2f}", f"{row['placing_s']:.2f}", console.cell(row["reason"]))
    kept = "Adam's state" if answer["optimizer"] == "adam" else f"the state of {answer['optimizer']}"
    table.caption = ("all by one simulator: a GPU runs one operator at a time, transfers take turns on their channel "
                     f"({answer['links']})\nspeed: {said_source(answer['source'])}\n"
                     f"memory: weights with gradients and {kept}, outputs until they are read")
    return table


def _rows(operators: Sequence[str], schedules: dict[str, Schedule], device_types: Sequence[str]) -> Iterator[list[Any]]:
    n = len(operators)
    for method, schedule in schedules.items():
        for op in schedule.order.argsort().tolist():
            device = int(schedule.device[op])
            yield [method, op % n, operators[op % n], "forward" if op < n else "backward", device, device_types[device],
                   float(schedule.start_s[op]), float(schedule.end_s[op])]  # fmt: skip


def _write(
    out: Path, operators: Sequence[str], schedules: dict[str, Schedule], device_types: Sequence[str]
) -> None:
    """A row an operator and method, in the order in which they start."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "operator", "name", "pass", "device", "gpu_type", "start_s", "end_s"])
    writer.writerows(_rows(operators, schedules, device_types))
    write_text(out, text.getvalue())
