"""`hetsim audit`, `compare` and `figures`: what came out of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traces.errors import HetsimError

if TYPE_CHECKING:
    from analysis.run import Run

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of run folders.")]


def _runs(paths: list[Path]) -> list[Run]:
    """Runs by folder; a folder that is no run stands for the runs in it, in order of name."""
    from analysis.run import load_run

    folders = []
    for path in paths:
        inside = [] if (path / "run.json").exists() else sorted(f.parent for f in path.glob("[!.]*/run.json"))
        folders += inside or [path]
    return [load_run(folder) for folder in folders]


def audit(runs: Runs) -> None:
    """Prove from a run's files that nothing impossible happened; if it did, exit with 1 and name the first.

    \b
    Examples:
      hetsim audit runs/fifo-philly-gavel-0
      hetsim audit runs
    """
    from analysis.audit import audit as audited

    reports = [audited(run) for run in _runs(runs)]
    for report in reports:
        print(report.text)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


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

    comparison = compared(_runs(runs), different_traces=different_traces)
    if csv is not None:
        if csv.exists():
            raise HetsimError("the file is there already", where=str(csv), todo="Name another, or remove it.")
        part = csv.with_name(f".{csv.name}.part")
        part.write_text(comparison.csv(), "utf-8")
        part.rename(csv)
    sys.stdout.write(comparison.text)


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

    for file in draw_all(_runs(runs), out, [kind.strip() for kind in format.split(",")]):
        print(file)
