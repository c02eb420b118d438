"""`hetsim timeline`: a run as a trace that Perfetto opens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from sim.cli import console
from sim.cli.windowoptions import From, To
from traces.errors import HetsimError
from traces.outfile import refuse_existing


def timeline(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    out: Annotated[Path | None, typer.Option(
        "--out", "-o", metavar="FILE", help="File to write; packed if it ends in .gz.  [RUN-timeline.json.gz]")] = None,
    from_: From = None,
    to: To = None,
    job: Annotated[list[str] | None, typer.Option(
        "--job", metavar="ID", help="Only this job, from its submit to its end; may be repeated.")] = None,
    force: Annotated[bool, typer.Option(
        "--force", help="Replace a file that is there, and write more events than viewers hold.")] = False,
) -> None:
    """Write a run as a timeline: a process a node, a thread a GPU, a slice a segment.

    Open the file at https://ui.perfetto.dev (it stays on your machine) or in Chrome's about:tracing. A window has the
    slices of all jobs, also of those submitted before it, cut at its ends.

    \b
    Examples:
      hetsim timeline runs/fifo-philly-gavel-0
      hetsim timeline runs/fifo-philly-gavel-0 -o tuesday.json.gz --from 24h --to 48h
      hetsim timeline runs/fifo-philly-gavel-0 -o why.json --job 54445
    """
    from analysis.measuring_window import bounds
    from analysis.run import load_run
    from analysis.timeline.traceevents import MAX_EVENTS, count, fits_until_s, write
    from analysis.timeline.tracks import timeline as laid_out

    path = out or Path(f"{run.resolve().name}-timeline.json.gz")
    refuse_existing(path, force)
    loaded = load_run(run)
    low_s, high_s = bounds(loaded, from_, to) if (from_, to) != (None, None) else loaded.window_s
    lines = laid_out(loaded, None if from_ is None else low_s, None if to is None else high_s, job or ())
    if (events := count(lines)) > MAX_EVENTS and not force:
        window = f"--from {from_ or format(lines.begin_s, '.10g')} --to {math.floor(fits_until_s(lines))}"
        raise HetsimError("more events than viewers hold", where=str(run), got=events, allowed=f"up to {MAX_EVENTS:,}",
                          todo=f"Take a window: {window} fits. Or --force: all of it.")
    with console.counting("events") as update:
        written = write(lines, path, force=force, progress=update)
    size = f"{written.slices:,} slices, {written.events:,} events, {written.size_bytes / 2**20:,.1f} MiB"
    console.tell(f"{written.path}: {size}")
