"""`hetsim trace` and `hetsim cluster show`: look at what a run would start from, and write a trace down."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from sim.cli.options import CLUSTER, MAP, TRACE, HardwareOption
from sim.cli.traceoptions import command_line, mapping, reads_a_trace
from traces.errors import HetsimError
from traces.outfile import refuse_existing

if TYPE_CHECKING:
    from sim.cluster.spec import ClusterSpec
    from sim.settings.config import RunConfig
    from traces.trace import Trace

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help=TRACE)]
ClusterOption = Annotated[str | None, typer.Option(help=f"Cluster that it is meant for. {CLUSTER}")]

RECIPE = ("trace", "format", "read", "gpu_types", "submitted_from", "submitted_to", "status", "vc", "user", "gangs",
          "skip", "jobs", "assign", "assign_with", "seed", "load", "load_by", "load_rule", "reference", "cluster")
"""Settings that say how a trace is made; those that have their default are left out of a description."""


def _trace(trace: str, cluster: str | None, which: dict[str, Any]) -> tuple[Trace, ClusterSpec | None, RunConfig]:
    """The jobs that were asked for, the cluster that they are meant for, and the settings that say so."""
    from sim.cluster.clusterfiles import load_cluster
    from sim.settings.config import ConfigError, load_config
    from sim.workload.prepare import made_ready, resolved

    config = load_config(None, {"trace": trace, "cluster": cluster, **which})
    if config.load is not None and cluster is None:
        raise ConfigError("a load without a cluster", where="command line, --load", got=config.load,
                          todo="Name the cluster with --cluster.")
    load = config.load  # where none is asked for, a trace that is looked at has that of its log
    config = resolved(config).model_copy(update={"load": load})
    spec = load_cluster(cluster) if cluster is not None else None
    with console.reading(Path(trace)):
        return made_ready(config, spec), spec, config


@reads_a_trace
def describe(
    trace: TraceArgument, which: dict[str, Any], cluster: ClusterOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw it, too: a file that ends in .png or .pdf.")] = None,
) -> None:
    """Summarise a trace: jobs, run times, gangs, users, when they come, and the load that they put on a cluster.

    \b
    Examples:
      hetsim trace describe philly --cluster gavel
      hetsim trace describe cluster_job_log --read attempts=last --from 2017-10-01 --to 2017-11-01
      hetsim trace describe jobs.csv --picture jobs.png
      hetsim trace describe mine.csv --map submit=submit_time:ms,duration=run_time:min,gpus=num_gpus,zone=Asia/Shanghai
      hetsim trace describe pai --jobs 20000 --json
    """
    from sim.workload.prepare import gpus_by_type, modelled_load
    from traces.study.describe import describe as summarise
    from traces.study.summary import as_text

    if picture is not None:
        from analysis.figures.tracefigure import check_ending

        check_ending(picture)
    content, spec, config = _trace(trace, cluster, which)
    summary = summarise(content, None if spec is None else gpus_by_type(spec))
    if spec is not None:
        summary["load"]["modelled"] = modelled_load(content, config, spec)
    if picture is not None:
        from analysis.figures.tracefigure import draw

        draw(summary, picture)
    if json:
        console.show_json(summary)
    else:
        sys.stdout.write(console.printable(as_text(summary)))


@reads_a_trace
def check(
    trace: TraceArgument, which: dict[str, Any], cluster: ClusterOption = None,
    strict: Annotated[bool, typer.Option(
        "--strict", help="Exit with 1 if anything is odd, or was dropped or repaired.")] = False,
) -> None:
    """Say whether a trace can be used, what its reader did to it, and what is odd about its jobs.

    \b
    Examples:
      hetsim trace check jobs.csv
      hetsim trace check jobs.csv --cluster gavel --strict
      hetsim trace check philly.csv --read duplicates=drop --vc ee9e8c
    """
    from sim.workload.prepare import gpus_by_type, largest_nodes
    from traces.study.check import check as oddities
    from traces.study.check import told

    content, spec, _ = _trace(trace, cluster, which)
    about, read = content.provenance, told(content)
    found = oddities(content) if spec is None else oddities(
        content, gpus_by_type=gpus_by_type(spec), largest_nodes=largest_nodes(spec))
    console.tell(f"{about.source}: {len(content):,} jobs, format {about.format}; {about.rule}")
    for note in about.notes:
        console.tell(f"  note     {note}")
    for word, rows in (("counted", read), ("odd", found)):
        for oddity in rows:
            first = f" (first: {', '.join(oddity.first[:3])})" if oddity.first else ""
            console.tell(f"  {word:<8} {oddity.count:,} {oddity.what}{first}")
    if not found:
        console.tell("  nothing odd")
    if strict and (found or read):
        raise typer.Exit(1)


@reads_a_trace
def convert(
    trace: TraceArgument,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, .parquet or .csv.")],
    which: dict[str, Any], cluster: ClusterOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write a trace as hetsim's own table, with a description beside it (OUT.json) that makes it again.

    \b
    Examples:
      hetsim trace convert cluster_job_log philly.parquet --read attempts=span --status passed
      hetsim trace convert philly.csv week.csv --from 2017-10-09 --to 2017-10-16
      hetsim trace convert philly.csv twice.parquet --cluster philly --load 0.9 --load-by repeat --seed 3
      hetsim trace convert pai pai.csv --jobs 1000 --seed 3
      hetsim trace again philly.parquet.json
    """
    from traces.load import write_trace
    from traces.readers.canonical import check_ending
    from traces.study.description import sidecar

    check_ending(to)
    if to.exists() and Path(trace).exists() and to.samefile(trace):
        raise HetsimError("the trace would be written over itself", where=str(to), todo="Name another file.")
    for file in (to, sidecar(to)):
        refuse_existing(file, force)
    content, _, config = _trace(trace, cluster, which)
    recipe = _recipe(config, cluster)
    write_trace(content, to, recipe={"settings": recipe, "command": command_line(recipe, str(to))})
    console.tell(f"{to}: {len(content):,} jobs, description in {sidecar(to)}")
    about = content.provenance
    for what, count in about.counts.items():
        console.tell(f"  counted  {count:,} {what}")
    for note in about.notes:
        console.tell(f"  note     {note}")


def _recipe(config: RunConfig, cluster: str | None) -> dict[str, Any]:
    """What makes the trace again: settings that were given, the seed, and of a load how it was reached."""
    from sim.settings.config import load_config
    from traces.synthetic.generate import GENERATORS

    plain = load_config()
    recipe = {name: getattr(config, name) for name in RECIPE if getattr(config, name) != getattr(plain, name)}
    recipe |= {"trace": config.trace, "seed": config.seed}
    recipe.pop("cluster", None)
    if config.trace in GENERATORS:
        recipe["load_by"] = config.load_by
    return recipe if config.load is None else recipe | {"cluster": cluster, "load_rule": config.load_rule}


def again(
    description: Annotated[Path, typer.Argument(metavar="OUT.json", help="Description of a converted trace.")],
    to: Annotated[Path | None, typer.Option(help="Also write it to this file, .parquet or .csv.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file if it is there.")] = False,
) -> None:
    """Make a converted trace again from what its description says, and compare; exit with 1 if it is another.

    \b
    Examples:
      hetsim trace again philly.parquet.json
      hetsim trace again philly.parquet.json --to again.parquet
    """
    from sim.settings.config import ConfigError
    from traces.load import write_trace
    from traces.readers.canonical import check_ending
    from traces.study.description import read_description, sidecar

    about = read_description(description)
    made = about.get("recipe") or {}
    recipe = made.get("settings") if isinstance(made, dict) else None
    if not isinstance(recipe, dict) or not isinstance(recipe.get("trace"), str) or not set(recipe) <= set(RECIPE):
        raise ConfigError("the description has no recipe", where=str(description),
                          allowed="a file that hetsim trace convert wrote", todo="Convert the source anew.")
    if to is not None:
        check_ending(to)
        for file in (to, sidecar(to)):
            refuse_existing(file, force)
    # What a description did not say yet when it was written: loads were recorded ones, and arrivals were stretched.
    which = {"load_by": "compress", "load_rule": "recorded"}
    which |= {name: value for name, value in recipe.items() if name not in ("trace", "cluster")}
    beside = description.parent / recipe["trace"]
    if beside.exists() and not Path(recipe["trace"]).exists():  # called from another folder than it was made in
        recipe = recipe | {"trace": str(beside)}
    content, _, _ = _trace(recipe["trace"], recipe.get("cluster"), which)
    if to is not None:
        write_trace(content, to, recipe={"settings": recipe, "command": command_line(recipe, str(to))})
    same = content.content_hash() == about["sha256"]
    console.tell(f"{description}: {'the same' if same else 'ANOTHER'} trace, {len(content):,} jobs")
    if not same:
        from importlib.metadata import version

        for what, then, now in (("jobs", about.get("jobs"), len(content)),
                                ("the source", about.get("source_sha256"), content.provenance.sha256),
                                ("hetsim", about.get("hetsim"), version("hetsim"))):
            if then != now:
                console.tell(f"  differs  {what}: {then} then, {now} now")
        raise typer.Exit(1)


def compare(
    one: Annotated[str, typer.Argument(metavar="TRACE", help=TRACE)],
    other: Annotated[str, typer.Argument(metavar="TRACE", help="The other one.")],
    jobs: Annotated[int | None, typer.Option(
        help="Jobs of a generated trace.  [as many as the other has]", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of a generated trace.", min=0)] = 0,
    map: Annotated[str | None, typer.Option("--map", help=f"Of the first. {MAP}")] = None,
    other_map: Annotated[str | None, typer.Option("--other-map", help="The same of the other one.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say how far two traces are apart: run times, sizes, arrivals, virtual clusters.

    \b
    Examples:
      hetsim trace compare philly.csv philly
      hetsim trace compare venus.parquet saturn.parquet --json
      hetsim trace compare jobs.csv philly --map submit=submit_time:ms,duration=run_time:min,gpus=num_gpus
    """
    from sim.workload.at_load import DEFAULT_JOBS
    from traces.study.distances import as_text
    from traces.study.distances import compare as distances
    from traces.synthetic.generate import GENERATORS, generate

    found: dict[str, Trace] = {}
    maps = {other: other_map, one: map} if one != other else {one: map or other_map}
    for name in sorted((one, other), key=lambda name: name in GENERATORS):  # files first: they say how many jobs
        taken = jobs or next((len(trace) for trace in found.values()), DEFAULT_JOBS)
        made = name in GENERATORS
        found[name] = generate(name, taken, seed) if made else _trace(name, None, mapping(maps[name], {}))[0]
    apart = distances(found[one], found[other])
    if json:
        console.show_json(apart)
    else:
        sys.stdout.write(console.printable(f"first   {one}\nsecond  {other}\n" + as_text(apart)))


def formats(
    name: Annotated[str | None, typer.Argument(help="Format, or generated trace; left out: list them.")] = None,
) -> None:
    """List the formats of traces that are read: where public files are, under which licence, and the options.

    \b
    Examples:
      hetsim trace formats
      hetsim trace formats philly-log
    """
    from traces.errors import did_you_mean
    from traces.load import FORMATS, defaults
    from traces.synthetic.generate import GENERATORS

    if name is None:
        title = "Formats (hetsim trace formats NAME: one in full)"
        table = console.new_table("format", "what it is", "options", title=title)
        for reader in FORMATS.values():
            table.add_row(reader.name, console.cell(reader.description), ", ".join(reader.options))
        for generated, generator in GENERATORS.items():
            table.add_row(generated, "generated: needs no file", ", ".join(generator.options))
        console.show(table)
        return
    known = [*FORMATS, *GENERATORS]
    if name not in known:
        raise HetsimError("unknown trace format", where="command line", got=name, allowed=", ".join(known),
                          todo=did_you_mean(name, known))
    if name in FORMATS:
        reader, values = FORMATS[name], defaults(FORMATS[name])
        console.tell(f"{name}: {reader.description}\n  where    {reader.public}\n  licence  {reader.licence}")
        if reader.header:
            console.tell(f"  columns  {', '.join(reader.header)}")
        for option, meaning in reader.options.items():
            default = "" if values[option] in (None, "") else f"  [{values[option]}]"
            console.tell(f"  --read {option}=…  {meaning}{default}")
    if name in GENERATORS:
        console.tell(f"{name}, where no file is named: generated (docs/traces.md)")
        for option, default in GENERATORS[name].options.items():
            console.tell(f"  --read {option}=…  [{default}]")


def show(
    cluster: Annotated[str | None, typer.Argument(help=f"{CLUSTER} Left out: list the presets.")] = None,
    hardware: HardwareOption = None,
) -> None:
    """Show a cluster: nodes, GPUs, memory, prices with their source, links.

    \b
    Examples:
      hetsim cluster show
      hetsim cluster show gavel
      hetsim cluster show v100:8x4+t4:2x8
    """
    from sim.cluster.clusterfiles import load_cluster, presets

    if cluster is None:
        console.show(console.presets_table(presets()))
    else:
        console.show(console.cluster_table(load_cluster(cluster)))


def recipes(
    name: Annotated[str | None, typer.Argument(help="Recipe; left out: list them.")] = None,
) -> None:
    """List the recipes that give jobs what a log lacks: model, batch, deadline, weight, each by a paper's rule.

    \b
    Examples:
      hetsim trace recipes
      hetsim trace recipes gavel
      hetsim trace convert philly jobs.parquet --assign gavel --assign-with deadlines=yes
    """
    from traces.errors import did_you_mean
    from traces.recipes import COMMON_SETTINGS, RECIPES

    if name is None:
        table = console.new_table("recipe", "fills", "settings", "source",
                                  title="Recipes (hetsim trace recipes NAME: one in full)")
        for recipe in RECIPES.values():
            table.add_row(recipe.name, console.cell(", ".join(recipe.fills)), ", ".join(recipe.settings),
                          console.cell(recipe.source.split(";")[0]))
        console.show(table)
        return
    if name not in RECIPES:
        raise HetsimError("unknown recipe", where="command line", got=name, allowed=", ".join(RECIPES),
                          todo=did_you_mean(name, RECIPES))
    recipe = RECIPES[name]
    console.tell(f"{name}\n  fills    {', '.join(recipe.fills)}\n  needs    {recipe.needs}\n  source   {recipe.source}")
    for key, meaning in {**recipe.settings, **COMMON_SETTINGS}.items():
        console.tell(f"  --assign-with {key}=…  {meaning}")
