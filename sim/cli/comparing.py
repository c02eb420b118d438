"""`hetsim compare`: runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs
from sim.cli.windowoptions import Cooldown, Follow, From, To, Warmup, measured
from traces.errors import HetsimError, did_you_mean
from traces.outfile import refuse_existing, write_text

if TYPE_CHECKING:
    from analysis.run import Run


def compare(
    runs: Runs,
    baseline: Annotated[str | None, typer.Option(
        metavar="POLICY|RUN", help="What the others are measured by: a policy, or a run by its folder.  [the first "
        "run: as named here, in a folder of runs by name]")] = None,
    price: Annotated[str | None, typer.Option(
        metavar="KIND", help="Cost at the catalogue's on-demand, spot or reserved price.  [the runs' own]")] = None,
    per: Annotated[str | None, typer.Option(
        help="What is paid for: the GPUs held ('gpu'), nodes while in use ('node'), or all in service ('cluster'); the "
        "last two of whole runs.  [gpu; reserved: cluster]")] = None,
    format: Annotated[str, typer.Option(
        help="text, csv (all columns), spreadsheet (csv, no text a formula), markdown or latex (booktabs).")] = "text",
    json: Annotated[bool, typer.Option("--json", help="JSON instead, numbers in full.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file instead.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    from_: From = None,
    to: To = None,
    warmup: Warmup = None,
    cooldown: Cooldown = None,
    follow: Follow = None,
    different_traces: Annotated[bool, typer.Option(
        "--different-traces", help="Pair jobs by id though traces differ.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Put policies side by side, job by job, with intervals; several seeds of a policy count as one.

    \b
    Examples:
      hetsim compare runs/fifo-philly-gavel-0 runs/srtf-philly-gavel-0
      hetsim compare runs --baseline fifo --format csv -o table.csv
      hetsim compare runs/seeds --warmup 10% --format latex -o table.tex
      hetsim compare runs/t4 runs/v100 --baseline v100 --price on-demand --per cluster
    """
    from analysis.compare import compare as compared

    if json and format != "text":
        raise HetsimError("--json and --format say the same", got=format, todo="Leave out one of them.")
    if out is not None:
        refuse_existing(out, force)
    loaded = measured(load_runs(runs), from_, to, warmup, cooldown, follow)
    if baseline is not None:
        loaded = _first(loaded, baseline)
    comparison = compared(
        loaded, different_traces=different_traces, level=level, seed=seed, price=price, per=per
    )
    shown = console.as_json(comparison.plain()) if json else comparison.formatted(format)
    if out is not None:
        write_text(out, shown)
    else:
        sys.stdout.write(shown if json else console.printable(shown))
    if out is not None or json or format in ("csv", "spreadsheet"):
        for warning in comparison.warnings:
            console.say(warning)


def _first(runs: list[Run], baseline: str) -> list[Run]:
    """The runs of that policy, or else the run of that folder, before the others."""
    policies = dict.fromkeys(run.policy for run in runs)
    of_policy = [run.policy == baseline for run in runs]
    named = of_policy if any(of_policy) else [baseline in (run.path.name, str(run.path)) for run in runs]
    if not any(named):
        names = list(dict.fromkeys([*policies, *(run.path.name for run in runs)]))
        raise HetsimError("no run of this policy or name", where="--baseline", got=baseline, allowed=", ".join(names),
                          todo=did_you_mean(baseline, names))
    return [run for _, run in sorted(zip(named, runs, strict=True), key=lambda one: not one[0])]
