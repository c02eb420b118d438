"""`hetsim figures`: pictures of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.runs import Runs, load_runs


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the figures.")] = Path("figures"),
    format: Annotated[str, typer.Option(help="png, pdf, or both joined by a comma.")] = "png,pdf",
) -> None:
    """Draw the figures of runs: JCT, GPUs held and queue over time, cost, and who ran where.

    \b
    Examples:
      hetsim figures runs -o figures
      hetsim figures runs/fifo-philly-gavel-0 --format png
    """
    from analysis.figures import draw_all

    for file in draw_all(load_runs(runs), out, [kind.strip() for kind in format.split(",")]):
        print(file)
