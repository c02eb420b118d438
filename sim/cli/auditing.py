"""`hetsim audit`: nothing impossible happened."""

from __future__ import annotations

from typing import Annotated

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs


def audit(
    runs: Runs,
    deep: Annotated[bool, typer.Option(
        "--deep", help="Also make trace, cluster, speeds and the run itself anew from its settings, and compare: takes "
        "as long as the run, and needs the code that made it.")] = False,
) -> None:
    """Prove from a run's files that nothing impossible happened; if it did, exit with 1 and name the first.

    \b
    Examples:
      hetsim audit runs/fifo-philly-gavel-0
      hetsim audit runs --deep
    """
    from analysis.audit import audit as audited

    ok = True
    for run in load_runs(runs, check=False):
        report = audited(run)
        if deep:
            from sim.sweeps.second_look import look_again

            report = look_again(run, report)
        console.tell(report.text, flush=True)
        ok &= report.ok
    if not ok:
        raise typer.Exit(1)
