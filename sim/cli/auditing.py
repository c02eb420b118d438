"""`hetsim audit`: nothing impossible happened."""

from __future__ import annotations

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs


def audit(runs: Runs) -> None:
    """Prove from a run's files that nothing impossible happened; if it did, exit with 1 and name the first.

    \b
    Examples:
      hetsim audit runs/fifo-philly-gavel-0
      hetsim audit runs
    """
    from analysis.audit import audit as audited

    reports = [audited(run) for run in load_runs(runs, check=False)]
    for report in reports:
        console.tell(report.text)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
