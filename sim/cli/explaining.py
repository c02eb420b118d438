"""`hetsim explain`: why a job took so long."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli import console


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")],
) -> None:
    """Tell the life of jobs: what each waited for, where it ran, who took its GPUs.

    \b
    Examples:
      hetsim explain runs/srtf-philly-gavel-0 54445
    """
    from analysis.explain import Explainer
    from analysis.run import load_run

    explainer = Explainer(load_run(run))
    told = {job: explainer.told(job) for job in jobs}
    for job, lines in told.items():
        console.tell("\n  ".join([job, *lines]))
