"""`hetsim trace` and `hetsim cluster`: look at what a run would start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli import console
from sim.cli.options import CLUSTER, FORMAT, JOBS, TRACE

if TYPE_CHECKING:
    from traces.trace import Trace

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help=TRACE)]
FormatOption = Annotated[str | None, typer.Option(help=FORMAT)]
ClusterOption = Annotated[str | None, typer.Option(help=f"Cluster that it is meant for. {CLUSTER}")]
JobsOption = Annotated[int | None, typer.Option(help=JOBS)]
SeedOption = Annotated[int | None, typer.Option(help="Seed of a generated trace.  [0]")]


def _trace(trace: str, format: str | None, jobs: int | None, seed: int | None) -> Trace:
    from sim.config import load_config
    from sim.workload import read_trace

    return read_trace(load_config(None, {"trace": trace, "format": format, "jobs": jobs, "seed": seed}))


def describe(
    trace: TraceArgument, format: FormatOption = None, cluster: ClusterOption = None,
    jobs: JobsOption = None, seed: SeedOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Summarise a trace: jobs, run times, gangs, users, and the load that it puts on a cluster.

    \b
    Examples:
      hetsim trace describe philly --cluster gavel
      hetsim trace describe cluster_job_log --json
    """
    from sim.clusters import load_cluster
    from sim.workload import gpus_by_type
    from traces.describe import as_text
    from traces.describe import describe as summarise

    gpus = gpus_by_type(load_cluster(cluster)) if cluster is not None else None
    summary = summarise(_trace(trace, format, jobs, seed), gpus)
    if json:
        console.show_json(summary)
    else:
        sys.stdout.write(as_text(summary))


def check(
    trace: TraceArgument, format: FormatOption = None, cluster: ClusterOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is odd.")] = False,
) -> None:
    """Say whether a trace can be used, and what is odd about it.

    \b
    Examples:
      hetsim trace check jobs.csv
      hetsim trace check jobs.csv --cluster gavel --strict
    """
    from sim.clusters import load_cluster
    from traces.describe import check as oddities

    wider_than = load_cluster(cluster).num_gpus if cluster is not None else None
    content = _trace(trace, format, None, None)
    about, found = content.provenance, oddities(content, wider_than=wider_than)
    print(f"{about.source}: {len(content):,} jobs, format {about.format}; {about.rule}")
    for what, count in about.counts.items():
        print(f"  counted  {count:,} {what}")
    for oddity in found:
        print(f"  odd      {oddity.count:,} {oddity.what} (first: {', '.join(oddity.first[:3])})")
    if not found:
        print("  nothing odd")
    if found and strict:
        raise typer.Exit(1)


def convert(
    trace: TraceArgument,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, .parquet or .csv.")],
    format: FormatOption = None, jobs: JobsOption = None, seed: SeedOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write a trace as hetsim's own table, with a description beside it (OUT.json).

    \b
    Examples:
      hetsim trace convert cluster_job_log philly.parquet
      hetsim trace convert pai pai.csv --jobs 1000 --seed 3
    """
    from sim.recorder import OutputError
    from traces.load import write_trace

    if to.exists() and not force:
        raise OutputError("the file is there already", where=str(to),
                          todo="Name another, or replace it with --force.")
    content = _trace(trace, format, jobs, seed)
    write_trace(content, to, selection=f"first {jobs} jobs" if jobs is not None else "")
    print(f"{to}: {len(content):,} jobs, description in {to.name}.json")


def show(
    cluster: Annotated[str | None, typer.Argument(help=f"{CLUSTER} Left out: list the presets.")] = None,
) -> None:
    """Show a cluster: nodes, GPUs, memory, prices with their source, links.

    \b
    Examples:
      hetsim cluster show
      hetsim cluster show gavel
      hetsim cluster show v100:8x4+t4:2x8
    """
    from sim.clusters import load_cluster, presets

    if cluster is None:
        console.show(console.presets_table(presets()))
    else:
        console.show(console.cluster_table(load_cluster(cluster)))
