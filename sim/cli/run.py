"""`hetsim run`: from settings to a written run, what fails fast before what takes time."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from sim.cli.options import CLUSTER, TRACE, HardwareOption, Params
from sim.cli.traceoptions import reads_a_trace

if TYPE_CHECKING:
    from sim.cluster.spec import ClusterSpec
    from sim.engine.simulate import RunResult
    from sim.settings.config import RunConfig
    from sim.sweeps.replay import Replay
    from sim.workload.prepare import Workload
    from traces.trace import Trace


MOSTLY_AFTER = 0.5
"""Share of the GPU time after the last submission above which a run is mostly the emptying of its cluster."""


@reads_a_trace
def run(
    which: dict[str, Any],
    policy: Annotated[str | None, typer.Option(help="Scheduler, see `hetsim policies`.  [hetero]")] = None,
    trace: Annotated[str | None, typer.Option(help=f"{TRACE}  [philly]")] = None,
    cluster: Annotated[str | None, typer.Option(
        help=f"{CLUSTER}  [gavel; for the generated pai: pai320, for helios and acme: their own]")] = None,
    hardware: HardwareOption = None,
    prices: Annotated[str | None, typer.Option(
        metavar="on-demand, spot, reserved or FILE.toml", help="What GPUs cost: prices of the catalogue by kind, or "
        "your own, as for `hetsim recommend`.  [the cluster's]")] = None,
    out: Annotated[str | None, typer.Option(help="Folder of the results.  [a new one in runs/]")] = None,
    work: Annotated[str | None, typer.Option(
        help="What a job must do: 'iterations' of a model, as fast as its GPUs allow, or its 'recorded' run "
        "time.  [iterations]")] = None,
    reference: Annotated[str | None, typer.Option(
        help="GPU type on which run times were recorded.  [V100]")] = None,
    calibration: Annotated[str | None, typer.Option(
        help="How well jobs use GPUs: scripts (training scripts of 2018 to 2021), tuned (optimized code), eager, or a "
        "file of hetsim perf --calibrate.  [scripts; for the generated acme: tuned]")] = None,
    measured: Annotated[str | None, typer.Option(
        help="File of measured rates, for the jobs whose model it has (docs/measured-tables.md).")] = None,
    layers: Annotated[str | None, typer.Option(
        help="Table of measured layers, for the jobs whose model it has (docs/measured-tables.md).")] = None,
    estimate: Annotated[str | None, typer.Option(
        help="What a policy believes of run times: oracle, noisy:MRE, noisy-lognormal:MRE or column.  [oracle]"
        )] = None,
    speed_belief: Annotated[str | None, typer.Option(
        help="What a policy believes of speeds: exact, noisy:MRE, table:FILE or calibration:NAME_OR_FILE.  [exact]"
        )] = None,
    param: Params = None,
    set_: Annotated[list[str] | None, typer.Option(
        "--set", metavar="NAME=VALUE", help="Any setting, such as engine.mtbf_h; may be repeated.")] = None,
    config: Annotated[Path | None, typer.Option(
        help="TOML file with [run], [policy] and [engine]; options win.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notices.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in --out.")] = False,
) -> None:
    """Replay a trace on a cluster under a policy.

    \b
    Examples:
      hetsim run
      hetsim run --policy tiresias -P queue_limits=3600,36000 --trace jobs.csv --work recorded
      hetsim run --policy srtf --estimate noisy:0.3 --cluster v100:8x4+t4:2x8 --load 0.9 --seed 7
      hetsim run --trace cluster_job_log --read attempts=last --from 2017-10-01 --status passed --vc ee9e8c
      hetsim run --config experiment.toml --set engine.preemption_overhead_s=10 --json
    """
    from sim.settings.config import load_config

    options = {
        "policy": policy, "trace": trace, "cluster": cluster, "hardware": hardware, "prices": prices,
        "out": out, "work": work, "reference": reference, "calibration": calibration,
        "measured": measured, "layers": layers, "estimate": estimate, "speed_belief": speed_belief, **which,
    }
    settings = load_config(config, _overrides(options, param or [], set_ or []))
    from analysis.metrics import summary
    from analysis.run import Run
    from analysis.tables import summary_table

    folder, result = _run(settings, force=force, quiet=quiet)
    done = Run(folder, result.tables, result.info, result.timing)
    if json:
        console.show_json(summary(done))
    else:
        console.show(summary_table(done))


def _overrides(options: dict[str, Any], params: list[str], sets: list[str]) -> dict[str, Any]:
    """All settings of the command line by dotted name; none twice."""
    from sim.settings.config import ConfigError, parse_setting

    given = {name: value for name, value in options.items() if value is not None}
    for prefix, texts in (("policy.", params), ("", sets)):
        for text in texts:
            name, value = parse_setting(text)
            name = prefix + name.removeprefix("run.")
            if name in given:
                raise ConfigError("a setting is given twice", where=f"command line, {name}", got=value)
            given[name] = value
    return given


def _run(config: RunConfig, *, force: bool, quiet: bool) -> tuple[Path, RunResult]:
    """Settings to a written run: what fails fast comes before what takes time."""
    from sim.results.outfolder import reserved
    from sim.results.spool import Spool
    from sim.sweeps.replay import Replay
    from sim.workload.calibrations import untold_calibration
    from traces.given_back import give_back

    replay = Replay(config)
    unused = [] if quiet else _without_effect(config, replay)
    with reserved(replay.config, force) as folder, console.compiling(quiet), Spool(folder) as spool:
        _tell(unused)
        with nullcontext() if quiet else console.reading(Path(replay.config.trace)):
            workload = replay.workload
        trace = workload.trace
        if not quiet:
            _tell([*_about(workload, replay.cluster), *_type_order(replay),
                   *_calendar_loads(replay.config, trace, replay.cluster), untold_calibration(config)])
        with console.progress(len(trace), float(trace.submit_s[0]), quiet) as update:
            result = replay.play(update, spool)
        jobs = len(trace)
        del replay, workload, trace  # results are tables by now: of a million jobs these are 300 MiB
        give_back(jobs)
        if not quiet:
            _tell(result.info.get("timetable", {}).get("notes", []))
        if config.out is not None:
            from sim.results.recorder import claim

            claim(folder, force)  # another run may have come to the same folder meanwhile
        result.write(folder)
    return folder, result


def _without_effect(config: RunConfig, replay: Replay) -> list[str]:
    """Settings that were given and change nothing in this run."""
    from sim.workload.prepare import resolved
    from traces.synthetic.generate import GENERATORS

    policy, several = replay.policy, len(replay.cluster.types) > 1
    given, engine, found = config.model_fields_set, config.engine, []
    if "estimate" in given and not policy.needs_estimates:
        found.append(f"estimate = {config.estimate} has no effect: policy {policy.name!r} uses no run times")
    if "reference" in given and config.work == "recorded":
        found.append("reference has no effect with work = recorded")
    if "speed_belief" in given and policy.blind_to_speed():
        found.append(f"speed_belief = {config.speed_belief} has no effect: policy {policy.name!r} uses no speeds")
    if "type_order" in given and not several:
        found.append(f"type_order has no effect: {replay.cluster.name} has one GPU type")
    elif "type_order" in given and not policy.blind_to_speed():
        found.append(f"type_order decides between equals only: policy {policy.name!r} looks at speeds")
    for name in ("measured", "layers", "overhead_gib", "calibration", "optimizer", "speed_belief"):
        orders = name == "calibration" and several and config.type_order != "listed"
        if name in given and config.work == "recorded" and not orders:
            found.append(f"{name} has no effect with work = recorded")
    if config.layers_from is not None and config.layers is None:
        found.append("layers_from has no effect without layers")
    if "measured_gaps" in given and config.measured is None and not config.speed_belief.startswith("table:"):
        found.append("measured_gaps has no effect without measured, or a table as speed_belief")
    for name, sharing in (("switching_loss", "time"), ("pairs", "spatial")):
        if name in engine.model_fields_set and engine.sharing != sharing:
            found.append(f"engine.{name} has no effect without engine.sharing = {sharing}")
    if config.format is not None and config.trace in GENERATORS:
        found.append(f"format has no effect: {config.trace!r} is generated (a file: ./{config.trace})")
    if "load_by" in given and config.load is None and config.trace not in GENERATORS:
        found.append("load_by has no effect without load")
    files = [name for name in ("capacity", "outages", "maintenance") if getattr(engine, name) is not None]
    if engine.mtbf_h is None:
        found += [f"engine.{name} has no effect without engine.mtbf_h: no node fails"
                  for name in ("repair_h", "checkpoint_interval_s")
                  if name in engine.model_fields_set and not (files and name == "checkpoint_interval_s")]
    if files and config.load is not None and resolved(config).load_by == "compress":
        named = " and ".join(f"engine.{name}" for name in files)
        found.append(f"load stretches the times of jobs, not those of {named}")
    return found


def _about(workload: Workload, cluster: ClusterSpec) -> list[str]:
    """What is replayed, before it is: size, load by type, and what was done to the trace."""
    import numpy as np

    from sim.workload.prepare import gpus_by_type
    from traces.study.check import SEVENTHS, in_sevenths
    from traces.study.describe import load_by_type

    trace = workload.trace
    load = load_by_type(trace, gpus_by_type(cluster))
    arrivals_s = float(trace.submit_s[-1] - trace.submit_s[0])
    days = arrivals_s / 86_400
    where = (f"{len(trace):,} jobs of {trace.provenance.source} over {days:,.1f} days on {cluster.name} "
             f"({cluster.num_gpus:,} GPUs)")
    lines = [f"{where}; recorded load {load['total']:.2f}"]
    # Where few jobs come within a run time of each other, a load above 1 is no queue that grows.
    mean_run_s = np.average(trace.duration_s, weights=trace.num_gpus * trace.gpu_milli)
    settled = arrivals_s / (arrivals_s + mean_run_s) if arrivals_s > 0 else 1.0
    lines += [f"recorded load {value:.2f} on {name}, above 1: more is asked for than it can do, queues grow"
              for name, value in load["by_type"].items() if value * settled > 1]
    if workload.performance is not None:
        by_speed = load["total"] * cluster.num_gpus / workload.worth_gpus
        lines[0] = f"{where}; modelled load {by_speed:.2f}, recorded load {load['total']:.2f} (it is worth " \
            f"{workload.worth_gpus:,.1f} reference GPUs)"
        if by_speed * settled > 1 and len(lines) == 1:
            lines.append(f"modelled load {by_speed:.2f}, above 1: queues grow")
    lacking = load["gpu_hours_without_type"]
    lines += [f"{lacking:,.1f} GPU-hours ask for GPU types that {cluster.name} lacks"] if lacking > 0 else []
    if options := {name: value for name, value in trace.provenance.options.items() if value != ""}:
        lines.append("trace: read with " + ", ".join(f"{name} = {value}" for name, value in options.items()))
    gpus = trace.num_gpus * (trace.gpu_milli / 1000.0)
    late_s = np.clip(trace.submit_s + trace.duration_s - trace.submit_s[-1], 0, trace.duration_s)
    after = float(late_s @ gpus) / max(float(trace.duration_s @ gpus), 1e-9)
    if after > MOSTLY_AFTER and arrivals_s > 0:
        lines.append(f"{after:.0%} of the GPU time comes after the last submission even if no job waits: the load "
                     "holds while jobs come, and they are few for so many GPUs (--jobs)")
    if slices := int(in_sevenths(trace).sum()):
        lines.append(f"{slices:,} {SEVENTHS}")
    return lines + [f"trace: {note}" for note in trace.provenance.notes]


def _type_order(replay: Replay) -> list[str]:
    """By which rule jobs get their GPU types, where the policy looks at no speeds and there are several."""
    from sim.performance.type_order import IN_WORDS

    cluster, policy, rule = replay.cluster, replay.policy, replay.config.type_order
    if len(cluster.types) == 1 or not policy.blind_to_speed():
        return []
    names = ", ".join(gpu.name for gpu in cluster.types)
    return [f"policy {policy.name!r} is blind to speed: a job gets the first GPU type that has room, "
            f"{IN_WORDS[rule]}: {names} (type_order = {rule})"]


def _calendar_loads(config: RunConfig, trace: Trace, cluster: ClusterSpec) -> list[str]:
    """What the load of the whole cluster does not tell: nodes that are away, and virtual clusters that ask for more
    than their quota gives while jobs come, whose queues grow whatever is free."""
    import numpy as np

    from sim.cluster.timetable import make_timetable
    from traces.offered_load import demand_gpu_s

    engine, first, last = config.engine, float(trace.submit_s[0]), float(trace.submit_s[-1])
    if not (engine.quotas or engine.capacity or engine.outages or engine.maintenance) or last <= first:
        return []
    names = tuple(dict.fromkeys(trace.vc.tolist()))
    table = make_timetable(cluster, names, engine, first)
    demand = demand_gpu_s(trace)
    there = table.mean_gpus(first, last)
    lines = [] if there > 0.999 * cluster.num_gpus else [
        f"{there:,.1f} of {cluster.num_gpus:,} GPUs are there on average while jobs come: the load is that on all"]
    for vc, changes in table.quotas.items():
        begins = np.clip([table.time_s[step] for step, _ in changes], first, last)
        given_gpu_s = float(np.diff([*begins, last]) @ [milli / 1000.0 for _, milli in changes])
        asked_gpu_s = float(demand[trace.vc == names[vc]].sum())
        if asked_gpu_s > given_gpu_s:
            load = f"{asked_gpu_s / given_gpu_s:.2f}" if given_gpu_s > 0 else "without end"
            lines.append(f"load of virtual cluster {names[vc]!r} on its quota {load}, above 1: its queue grows")
    return lines


def _tell(lines: list[str]) -> None:
    for line in filter(None, lines):
        console.say(line)
