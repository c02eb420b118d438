"""`hetsim metrics`: what a run comes to, in numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from sim.cli.runs import Runs, load_runs
from sim.cli.windowoptions import Cooldown, From, To, Warmup, measured
from traces.errors import HetsimError, did_you_mean

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
    by: Annotated[str | None, typer.Option(help="Instead a row for each user, vc, gpu_type or job.")] = None,
    fairness: Annotated[str, typer.Option(
        metavar="N", help="Jobs that share the cluster in finish-time fairness: their 'mean' over a job's life, at its "
        "'submit', or the 'max'.")] = "mean",
    price: Annotated[str | None, typer.Option(
        metavar="KIND", help="Also the cost at the catalogue's on-demand, spot or reserved price.")] = None,
    per: Annotated[str | None, typer.Option(
        help="What is paid for in it: the GPUs held ('gpu'), nodes while in use ('node'), or all in service "
        "('cluster').  [gpu; reserved: cluster]")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the numbers to this file, as CSV.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, numbers in full.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Measure runs: times of jobs, GPU time held and wasted, load, fairness, cost and energy, with unit and meaning.

    \b
    Examples:
      hetsim metrics runs/fifo-philly-gavel-0
      hetsim metrics runs --warmup 10% --json
      hetsim metrics runs/fifo-philly-gavel-0 --by vc --from 1d --to 8d
      hetsim metrics runs/fifo-philly-gavel-0 --price spot --per node
      hetsim metrics runs/fifo-philly-gavel-0 --by job --csv jobs.csv
    """
    from analysis.run import labels
    from analysis.window import in_words

    if by is not None and by not in GROUPS:
        raise HetsimError("no such table", where="--by", got=by, allowed=", ".join(GROUPS),
                          todo=did_you_mean(by, GROUPS))
    if csv is not None and csv.exists() and not force:
        raise HetsimError("the file is there already", where=str(csv), todo="Name another, or pass --force.")
    loaded = measured(load_runs(runs), from_, to, warmup, cooldown)
    names = labels(loaded)
    tables = {name: _table(run, by, fairness) for name, run in zip(names, loaded, strict=True)} if by else {}
    rows = {} if by else {name: _row(run, fairness, price, per) for name, run in zip(names, loaded, strict=True)}
    if csv is not None:
        _write(csv, _csv(tables or rows, by))
    if json:
        console.show_json({name: _plain(table) for name, table in tables.items()} if by else rows)
    elif csv is None:
        sys.stdout.write(console.printable(_tables(tables) if by else _text(rows)))
    for words in dict.fromkeys(in_words(run) for run in loaded):
        if words and not json:
            console.say(words)


def _row(run: Run, fairness: str, price: str | None, per: str | None) -> dict[str, Any]:
    """The measures of a run, and the cost that was asked for."""
    from analysis.metrics import cost, cost_known, measures

    row: dict[str, Any] = {"window": run.info.get("window")} if "window" in run.info else {}
    row |= measures(run, fairness)
    if price or per:
        name = "_".join(["cost", *([price.replace("-", "_")] if price else []), *(["per", per] if per else [])])
        row |= {f"{name}_usd": cost(run, price, per), f"{name}_known_usd": cost_known(run, price, per)}
    return row


def _table(run: Run, by: str, fairness: str) -> pd.DataFrame:
    from analysis.metrics import by_group, by_type, per_job

    if by == "job":
        return per_job(run, fairness)
    return by_type(run) if by == "gpu_type" else by_group(run, by, fairness)


def _text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A line a measure: what it is called, one value a run, what it means."""
    import pandas as pd

    from analysis.formats import formatted
    from analysis.measure.measures import MEASURES

    names = [name for name in dict.fromkeys(name for row in rows.values() for name in row) if name != "window"]
    frame = pd.DataFrame(
        {run: [_value(name, row.get(name)) for name in names] for run, row in rows.items()}
        | {"unit": [MEASURES[name].unit if name in MEASURES else "USD" for name in names],
           "meaning": [MEASURES[name].meaning if name in MEASURES else "cost as asked for" for name in names]},
        index=pd.Index(names, name="measure"),
    )
    return formatted(frame)


def _value(name: str, value: float | None) -> str:
    """A number to read; what is unknown, not zero."""
    if value is None:
        return "unknown" if name.endswith(("_usd", "_kwh")) else "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _tables(tables: Mapping[str, pd.DataFrame]) -> str:
    from analysis.formats import formatted

    return "\n".join(f"{name}\n{formatted(table)}" for name, table in tables.items())


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where there is no value."""
    flat = table.reset_index()
    rows: list[dict[str, Any]] = flat.astype(object).where(flat.notna(), None).to_dict("records")  # type: ignore[assignment]
    return rows


def _csv(tables: Mapping[str, Any], by: str | None) -> str:
    """All runs below each other, the run's name first."""
    import pandas as pd

    if by:
        frame = pd.concat(tables, names=["run"])
    else:
        frame = pd.DataFrame.from_dict(
            {run: {name: value for name, value in row.items() if name != "window"} for run, row in tables.items()},
            orient="index",
        ).rename_axis("run")
    return str(frame.to_csv(lineterminator="\n"))


def _write(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, "utf-8")
    part.rename(file)
