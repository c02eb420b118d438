"""`hetsim compare`: runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs
from sim.cli.windowoptions import Cooldown, From, To, Warmup, measured
from traces.errors import HetsimError, did_you_mean


def compare(
    runs: Runs,
    baseline: Annotated[str | None, typer.Option(
        metavar="POLICY", help="What the others are measured by.  [the policy of the first run]")] = None,
    format: Annotated[str, typer.Option(help="text, csv (all columns), markdown or latex (booktabs).")] = "text",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the table to this file, as CSV.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    from_: From = None,
    to: To = None,
    warmup: Warmup = None,
    cooldown: Cooldown = None,
    different_traces: Annotated[bool, typer.Option(
        "--different-traces", help="Pair jobs by id though traces differ.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Put policies side by side, job by job, with intervals; several seeds of a policy count as one.

    \b
    Examples:
      hetsim compare runs/fifo-philly-gavel-0 runs/srtf-philly-gavel-0
      hetsim compare runs --baseline fifo --csv table.csv
      hetsim compare runs/seeds --warmup 10% --format latex -o table.tex
    """
    from analysis.compare import compare as compared

    for file in (out, csv):
        if file is not None and file.exists() and not force:
            raise HetsimError("the file is there already", where=str(file), todo="Name another, or pass --force.")
    loaded = measured(load_runs(runs), from_, to, warmup, cooldown)
    if baseline is not None:
        names = list(dict.fromkeys(run.policy for run in loaded))
        if baseline not in names:
            raise HetsimError("no run of this policy", where="--baseline", got=baseline, allowed=", ".join(names),
                              todo=did_you_mean(baseline, names))
        loaded.sort(key=lambda run: run.policy != baseline)
    comparison = compared(loaded, different_traces=different_traces, level=level, seed=seed)
    shown = comparison.formatted(format)
    if csv is not None:
        _write(csv, comparison.csv())
    if out is not None:
        _write(out, shown)
    else:
        sys.stdout.write(console.printable(shown))


def _write(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, "utf-8")
    part.replace(file)
