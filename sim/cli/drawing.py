"""`hetsim figures`: pictures of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs
from sim.cli.windowoptions import Cooldown, Follow, From, To, Warmup, measured
from traces.errors import HetsimError

NAMES = ("jct_cdf", "queueing", "rho_cdf", "utilisation", "queue", "overview", "cost", "pareto", "gantt")
"""Figures as `analysis.figures` names them; here, too, so that `--help` need not import what draws."""


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the figures.")] = Path("figures"),
    format: Annotated[str, typer.Option(help="Of png, pdf and svg these, by commas.")] = "png,pdf",
    only: Annotated[str | None, typer.Option(
        metavar="NAME,...", help=f"Of {', '.join(NAMES)} these.  [all that fit]")] = None,
    plan: Annotated[str | None, typer.Option(
        metavar="JOB", help="Instead: the stages of the plans of this job, of one run.")] = None,
    width: Annotated[str, typer.Option(help="single (3.4 in, a column of two), medium (5 in) or double (7 in).")] =
        "medium",
    from_: From = None,
    to: To = None,
    warmup: Warmup = None,
    cooldown: Cooldown = None,
    follow: Follow = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Draw the figures of runs: JCT, queueing, fairness, GPUs held and queue over time, cost, and who ran where.

    \b
    Examples:
      hetsim figures runs -o figures
      hetsim figures runs/fifo-philly-gavel-0 --only gantt --from 10d --to 12d --width double --format pdf
      hetsim figures runs/hetero-philly-gavel-0 --plan 52847
    """
    from analysis.figures import draw_all, draw_plan

    found = measured(load_runs(runs), from_, to, warmup, cooldown, follow)
    formats = _listed(format) or [format]
    if plan is not None:
        if len(found) != 1 or only is not None:
            raise HetsimError("a plan is of one job in one run", allowed="hetsim figures RUN --plan JOB",
                              got=f"{len(found)} runs" + ", --only" * (only is not None))
        files = draw_plan(found[0], plan, out, formats, width, force=force)
    else:
        names = [] if only is None else _listed(only) or [only]
        files = draw_all(found, out, formats, names, width, force=force)
    for file in files:
        console.tell(file)


def _listed(names: str) -> list[str]:
    """Names parted by commas, each once."""
    return list(dict.fromkeys(filter(None, map(str.strip, names.split(",")))))
