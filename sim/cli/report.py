"""`hetsim report`: runs as one HTML page that works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs
from sim.cli.windowoptions import Cooldown, Follow, From, To, Warmup, measured
from traces.outfile import refuse_existing


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the page.")] = Path("report.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    from_: From = None,
    to: To = None,
    warmup: Warmup = None,
    cooldown: Cooldown = None,
    follow: Follow = None,
) -> None:
    """Write one HTML page of runs: numbers, comparison, charts, all jobs, the slowest ones explained, settings.

    The page holds all that it needs and works from a file, without a network. The first run is the baseline.

    \b
    Examples:
      hetsim report runs/fifo-philly-gavel-0 runs/srtf-philly-gavel-0
      hetsim report runs -o report.html --force
      hetsim report runs --warmup 10%
    """
    from analysis.report.page import write_report

    refuse_existing(out, force)
    with console.counting("parts") as step:
        shown = measured(load_runs(runs), from_, to, warmup, cooldown, follow)
        console.tell(write_report(shown, out, force=force, step=step))
