"""`hetsim compare`: runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.runs import Runs, load_runs
from traces.errors import HetsimError


def compare(
    runs: Runs,
    csv: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
    different_traces: Annotated[bool, typer.Option(
        "--different-traces", help="Pair jobs by id though traces differ.")] = False,
) -> None:
    """Put runs side by side, job by job; the first is the baseline.

    \b
    Examples:
      hetsim compare runs/fifo-philly-gavel-0 runs/srtf-philly-gavel-0
      hetsim compare runs --csv table.csv
    """
    from analysis.compare import compare as compared

    comparison = compared(load_runs(runs), different_traces=different_traces)
    if csv is not None:
        if csv.exists():
            raise HetsimError("the file is there already", where=str(csv), todo="Name another, or remove it.")
        part = csv.with_name(f".{csv.name}.part")
        part.write_text(comparison.csv(), "utf-8")
        part.rename(csv)
    sys.stdout.write(comparison.text)
