"""The options of a measuring window, the same for every command that reads runs: --from, --to, --warmup, --cooldown.

A command takes the four as parameters, each None by default, and calls ``measured(load_runs(runs), from_, to, warmup,
cooldown)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.run import Run

From = Annotated[str | None, typer.Option(
    "--from", metavar="TIME", help="Measure from then on: seconds on the trace's clock, or 2h, 1d, 10% after the first "
    "submission (% of the time of submissions). Only jobs submitted in the window count.  [the run's begin]")]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Measure until then.  [the run's end]")]
Warmup = Annotated[str | None, typer.Option(
    "--warmup", metavar="LENGTH", help="Leave out so much after the first submission: 10%, 1d, 3600.  [none]")]
Cooldown = Annotated[str | None, typer.Option(
    "--cooldown", metavar="LENGTH", help="Leave out what is later than so long before the last submission.  [none]")]


def measured(
    runs: Sequence[Run], from_: str | None, to: str | None, warmup: str | None, cooldown: str | None
) -> list[Run]:
    """The runs, each in the window that the options ask for (`analysis.window.asked`)."""
    from analysis.window import asked

    return [asked(run, from_, to, warmup, cooldown) for run in runs]
