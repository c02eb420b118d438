"""`hetsim metrics`: what a run comes to, in numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs
from sim.cli.windowoptions import Cooldown, Follow, From, To, Warmup, measured
from traces.errors import HetsimError, did_you_mean
from traces.outfile import refuse_existing, write_text

if TYPE_CHECKING:
    import pandas as pd

    from analysis.run import Run

GROUPS = ("user", "vc", "gpu_type", "job")


def metrics(
    runs: Runs,
    from_: From = None,
    to: To = None,
    warmup: Warmup = None,
    cooldown: Cooldown = None,
    follow: Follow = None,
    by: Annotated[str | None, typer.Option(help="Instead a row for each user, vc, gpu_type or job.")] = None,
    fairness: Annotated[str | None, typer.Option(
        metavar="N", help="Jobs that share the cluster in finish-time fairness: their 'mean' over a job's life, at its "
        "'submit', or the 'max'.  [mean]")] = None,
    price: Annotated[str | None, typer.Option(
        metavar="KIND", help="Also the cost at the catalogue's on-demand, spot or reserved price.")] = None,
    per: Annotated[str | None, typer.Option(
        help="What is paid for in it: the GPUs held ('gpu'), nodes while in use ('node'), or all in service "
        "('cluster').  [gpu; reserved: cluster]")] = None,
    format: Annotated[str, typer.Option(
        help="text, csv (numbers in full), spreadsheet (csv, no text a formula), markdown or latex.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="JSON instead, numbers in full.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Measure runs: times of jobs, GPU time held and wasted, load, fairness, cost and energy, with unit and meaning.

    \b
    Examples:
      hetsim metrics runs/fifo-philly-gavel-0
      hetsim metrics runs --warmup 10% --json
      hetsim metrics runs/fifo-philly-gavel-0 --by vc --from 1d --to 8d
      hetsim metrics runs/fifo-philly-gavel-0 --price spot --per node
      hetsim metrics runs/fifo-philly-gavel-0 --by job --format csv -o jobs.csv
    """
    from analysis.formats import FORMATS
    from analysis.measuring_window import in_words
    from analysis.run import labels

    _refuse_unknown("--by", by, GROUPS)
    _refuse_unknown("--format", format, FORMATS)
    if json and format != "text":
        raise HetsimError("--json and --format say the same", got=format, todo="Leave out one of them.")
    if by is not None and (price or per):
        raise HetsimError("--price and --per are of whole runs", where="--by", got=by, todo="Leave out --by, or these.")
    if by == "gpu_type" and fairness is not None:
        raise HetsimError("fairness is of jobs, GPU types have none", where="--fairness", got=fairness,
                          todo="Leave it out.")
    if out is not None:
        refuse_existing(out, force)
    loaded = measured(load_runs(runs), from_, to, warmup, cooldown, follow)
    names, n = labels(loaded), fairness or "mean"
    if by:
        tables = {name: _table(run, by, n) for name, run in zip(names, loaded, strict=True)}
        plain = {name: _plain(table) for name, table in tables.items()} if json else {}
        shown = console.as_json(plain) if json else _tables(tables, format)
    else:
        rows = {name: _row(run, n, price, per) for name, run in zip(names, loaded, strict=True)}
        shown = console.as_json(rows) if json else _rows(rows, format)
    if out is not None:
        write_text(out, shown)
    else:
        sys.stdout.write(shown if json else console.printable(shown))
    for words in dict.fromkeys(in_words(run) for run in loaded):
        if words and not json:
            console.say(words)
    if price or per:
        _say_unpriced(loaded, price, per)


def _refuse_unknown(option: str, word: str | None, known: Sequence[str]) -> None:
    if word is not None and word not in known:
        raise HetsimError("no such choice", where=option, got=word, allowed=", ".join(known),
                          todo=did_you_mean(word, known))


def _row(run: Run, fairness: str, price: str | None, per: str | None) -> dict[str, Any]:
    """The measures of a run, and the cost that was asked for."""
    from analysis.metrics import cost_known_usd, cost_usd, measures
    from analysis.metrics.costs import unpriced_types

    row: dict[str, Any] = {"window": run.info.get("window")} if "window" in run.info else {}
    row |= measures(run, fairness)
    if price or per:
        name = "_".join(["cost", *([price.replace("-", "_")] if price else []), *(["per", per] if per else [])])
        known = cost_known_usd(run, price, per)
        nothing = known == 0 and unpriced_types(run, price, per)
        row |= {f"{name}_usd": cost_usd(run, price, per), f"{name}_known_usd": None if nothing else known}
    return row


def _say_unpriced(runs: Sequence[Run], price: str | None, per: str | None) -> None:
    """Which prices the cost that was asked for lacks, and where to set one."""
    from analysis.metrics.costs import unpriced_types

    types = list(dict.fromkeys(name for run in runs for name in unpriced_types(run, price, per)))
    if types:
        console.say(f"No {price + ' ' if price else ''}price is known for {', '.join(types)}: the cost is unknown, its "
                    "known part a lower bound. Set your own in the cluster file, [prices_usd_per_gpu_h], and run "
                    "again: without --price it is the run's own price.")


def _table(run: Run, by: str, fairness: str) -> pd.DataFrame:
    from analysis.metrics import by_group, by_type, per_job

    if by == "job":
        return per_job(run, fairness)
    return by_type(run) if by == "gpu_type" else by_group(run, by, fairness)


def _rows(rows: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    """To read: a line a measure: its name, a value a run, its key in files, what it means. CSV: a row a run."""
    import pandas as pd

    from analysis.formats import IN_FULL, formatted, value, without_unit
    from analysis.metrics.measures import MEASURES, Measure

    names = [name for name in dict.fromkeys(name for row in rows.values() for name in row) if name != "window"]
    if kind in IN_FULL:
        full = pd.DataFrame([[row[name] for name in names] for row in rows.values()], list(rows), names, dtype=object)
        return formatted(full.rename_axis("run"), kind)
    told = {True: "its part of known price: a lower bound", False: "cost as asked for"}
    asked = {name: Measure("USD", told[name.endswith("_known_usd")], "", without_unit(name).replace("_", " "))
             for name in names}
    of = asked | {name: MEASURES[name] for name in names if name in MEASURES}
    frame = pd.DataFrame(
        {run: [value(row[name], of[name].unit) for name in names] for run, row in rows.items()}
        | {"unit": [of[name].unit for name in names], "key": names, "meaning": [of[name].meaning for name in names]},
        index=pd.Index([of[name].name for name in names], name="measure"),
    )
    return formatted(frame, kind)


def _tables(tables: Mapping[str, pd.DataFrame], kind: str) -> str:
    """To read: one below the other. Else all in one, the run's name first."""
    import pandas as pd

    from analysis.formats import formatted

    if kind == "text":
        return "\n".join(f"{name}\n{formatted(table)}" for name, table in tables.items())
    return formatted(pd.concat(tables, names=["run"]), kind)


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where there is no value."""
    flat = table.reset_index()
    rows: list[dict[str, Any]] = flat.astype(object).where(flat.notna(), None).to_dict("records")  # type: ignore[assignment]
    return rows
