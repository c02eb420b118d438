"""`hetsim cluster from`: a cluster file out of a machine list, or of GPUs counted over time."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli import console
from sim.cli.options import FORMAT, MAP
from sim.cli.traceoptions import pairs
from traces.outfile import refuse_existing, written

if TYPE_CHECKING:
    from traces.machines.capacity import About


def from_table(
    table: Annotated[Path, typer.Argument(metavar="FILE", help="Machine list, or table of GPUs over time, as "
                                          "published beside a trace.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Cluster file to write, .toml.")],
    format: Annotated[str | None, typer.Option(help="Form of the table; left out: told from its content.")] = None,
    type_: Annotated[list[str] | None, typer.Option(
        "--type", metavar="[WORD=]TYPE", help="GPU type of the catalogue for a word of the table, such as G2=A10; "
        "without a word, for machines whose type is not told; may be repeated.")] = None,
    job_log: Annotated[Path | None, typer.Option(
        help="Philly: the job log, for the GPUs that were seen in use.")] = None,
    read: Annotated[list[str] | None, typer.Option(
        "--read", metavar="NAME=VALUE", help="An option of the form, such as rule=strict; may be repeated.")] = None,
    gpus_per_node: Annotated[int, typer.Option(
        min=1, max=1024, help="GPUs of a node, where the table counts GPUs only.")] = 8,
    trace: Annotated[str | None, typer.Option(
        help="Trace that is to run there: times of the table are put on its clock.")] = None,
    trace_format: Annotated[str | None, typer.Option(help=FORMAT)] = None,
    trace_map: Annotated[str | None, typer.Option(help=MAP)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Make a cluster file, and beside it what changes over time: OUT.capacity.csv, OUT.outages.csv.

    \b
    Examples:
      hetsim cluster from openb_node_list_gpu_node.csv -o openb.toml --type G2=A10 --type G3=A100
      hetsim cluster from cluster_machine_list --job-log cluster_job_log -o philly.toml --type 12GB=K80
      hetsim cluster from cluster_gpu_number.csv --trace cluster_log.csv --type V100 -o venus.toml
    """
    from sim.cluster.clusterfiles import load_cluster
    from sim.cluster.frommachines import from_counts, from_machines
    from sim.cluster.spec import ClusterError
    from sim.results.recorder import OutputError
    from traces.machines.any_form import read_machines
    from traces.machines.capacity import Machines
    from traces.machines.own_tables import write_capacity, write_outages

    if out.suffix != ".toml":
        raise ClusterError("a cluster file ends in .toml", where="--out", got=str(out))
    capacity_file, outage_file = out.with_suffix(".capacity.csv"), out.with_suffix(".outages.csv")
    for path in (out, capacity_file, outage_file):
        refuse_existing(path, force)
    options = pairs(read or [], "--read")
    source = read_machines(table, format, **(options | ({"job_log": str(job_log)} if job_log else {})))
    said = _types(type_ or [])
    shift_s = _shift_s(source.about, trace, trace_format, trace_map)
    made = (from_machines(source, said, shift_s=shift_s) if isinstance(source, Machines)
            else from_counts(source, said, gpus_per_node=gpus_per_node, shift_s=shift_s))
    about = f"{made.nodes:,} nodes, {made.gpus:,} GPUs; from {table.name} ({source.about.format}, {source.about.rule})"
    try:
        with TemporaryDirectory() as folder, ExitStack() as files:  # all of them, or none
            aside = Path(folder)
            (aside / out.name).write_text(made.toml(out.stem, about), "utf-8")
            load_cluster(str(aside / out.name))
            if made.capacity is not None:
                write_capacity(made.capacity, aside / capacity_file.name)
            if made.outages is not None:
                write_outages(made.outages, aside / outage_file.name)
            for path in (out, capacity_file, outage_file):
                if (aside / path.name).exists():
                    shutil.copyfile(aside / path.name, files.enter_context(written(path)))
        for path, made_anew in ((capacity_file, made.capacity), (outage_file, made.outages)):
            if made_anew is None:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError("the cluster cannot be written", where=str(out), got=error.strerror or str(error)) from None
    console.tell(f"{out}: {made.nodes:,} nodes, {made.gpus:,} GPUs")
    for path, key in ((capacity_file, "capacity"), (outage_file, "outages")):
        if path.exists():
            console.tell(f"{path}: run with --set engine.{key}={path}")
    for what_counted, count in source.about.counts.items():
        console.say(f"counted: {count:,} {what_counted} (first: {', '.join(source.about.first[what_counted][:3])})")
    for note in (*source.about.notes, *made.notes):
        console.say(note)


def _types(texts: list[str]) -> dict[str, str]:
    """--type: WORD=TYPE, or TYPE for all that is not told."""
    from sim.hardware.gputypes import gpu_type
    from sim.settings.config import ConfigError

    said: dict[str, str] = {}
    for text in texts:
        word, _, name = (part.strip() for part in text.rpartition("="))
        if word in said:
            raise ConfigError("a type is given twice", where="command line, --type", got=text)
        said[word] = gpu_type(name).name
    return said


def _shift_s(about: About, trace: str | None, format: str | None, map: str | None) -> float:
    """What the table's times need to be on the trace's clock: both say when their time 0 was."""
    if trace is None:
        if about.epoch_s is not None:
            console.say("times are on the table's own clock; name the trace with --trace to put them on its clock")
        return 0.0
    from traces.errors import TraceError
    from traces.load import load_trace

    epoch_s = load_trace(trace, format, **({} if map is None else {"map": map})).provenance.epoch_s
    if about.epoch_s is None:
        return 0.0
    if epoch_s is None:
        raise TraceError("the table has dates, the trace has none", where=trace,
                         todo="Give times in the capacity file on the clock of the trace's submit_s yourself.")
    return about.epoch_s - epoch_s
