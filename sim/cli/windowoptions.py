"""The options of a measuring window, the same for all that measures runs: --from, --to, --warmup, --cooldown, --follow.

A command takes the five as parameters, each None by default, and calls ``measured(load_runs(runs),
from_, to, warmup, cooldown, follow)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from traces.errors import HetsimError

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
Follow = Annotated[bool | None, typer.Option(
    "--follow/--clip", help="See jobs submitted in the window to their end, also beyond it: times of jobs, states and "
    "deadlines are then of all of them; or clip them at its end, where the JCT of those that had not left is "
    "unknown. GPU time, cost and energy end with the window either way.  [follow]")]


def measured(
    runs: Sequence[Run], from_: str | None, to: str | None, warmup: str | None, cooldown: str | None,
    follow: bool | None = None,
) -> list[Run]:
    """The runs, each in the window that the options ask for (`analysis.measuring_window.asked`).

    Raises
    ------
    HetsimError
        No such window; --follow or --clip without one.
    """
    from analysis.measuring_window import asked

    flag = "--clip" if follow is False else "--follow"
    if follow is not None and all(word is None for word in (from_, to, warmup, cooldown)):
        raise HetsimError(f"{flag} is of the jobs that outlast a window, and there is no window", where=flag,
                          todo=f"Say where it ends, with --to or --cooldown, or leave out {flag}.")
    return [asked(run, from_, to, warmup, cooldown, follow is not False) for run in runs]
