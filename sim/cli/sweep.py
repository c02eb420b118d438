"""`hetsim sweep`: many runs out of one file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from traces.errors import HetsimError

if TYPE_CHECKING:
    from sim.sweeps.executors import Executor
    from sim.sweeps.grid import Cell, Grid
    from sim.sweeps.store import Store
    from sim.sweeps.sweeping import Progress

SHOWN = 20
"""Failed cells that are told of one by one."""

TELLING_S = 60.0
"""How long a sweep takes at least for its workers' share of time to be told: before, it is that of their start."""


def sweep(
    file: Annotated[Path, typer.Argument(help="TOML file with [sweep], and [run], [policy], [engine] as for a run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Its folder.  [sweeps/<name of the file>]")] = None,
    workers: Annotated[int | None, typer.Option(
        "--workers", "-j", min=1, help="Cells played at once.  [processors]")] = None,
    dask: Annotated[str | None, typer.Option(
        metavar="ADDRESS", help="Play on a Dask cluster: the address of its scheduler, 'local', or 'slurm'.")] = None,
    only: Annotated[list[str] | None, typer.Option(
        metavar="AXIS=VALUE", help="Only cells with this value; of one axis several: any of them.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and what is done; play none.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Play failed cells again.")] = False,
    stop_on_error: Annotated[bool, typer.Option("--stop-on-error", help="Begin no cell after one has failed.")] = False,
    prune: Annotated[bool, typer.Option(
        "--prune", help="Remove cells of other settings, files or code, which are put aside.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Play all combinations of the lists in [sweep]; what is done already is skipped.

    \b
    Examples:
      hetsim sweep experiments/hetero-value.toml --dry-run
      hetsim sweep experiments/hetero-value.toml --workers 8
      hetsim sweep experiments/hetero-value.toml --only policy=srtf --only load=0.7
      hetsim sweep experiments/hetero-value.toml --retry-failed --stop-on-error
      hetsim sweep experiments/hetero-value.toml --dask tcp://10.0.0.7:8786 -o sweeps/hetero-value
    """
    from sim.sweeps.grid import read_grid
    from sim.sweeps.store import Store

    with redirect_stdout(sys.stderr):  # what a policy prints that is made
        grid = read_grid(file)
    cells = chosen(grid, only or [])
    store = Store(out if out is not None else Path("sweeps", file.stem))
    if dry_run:
        _list(grid, store, cells, json)
        return
    now = played(grid, store, cells, executor_of(grid, workers, dask), quiet,
                 retry_failed=retry_failed, stop_on_error=stop_on_error, prune=prune)
    if json:
        console.show_json(_as_json(store, now))
    else:
        console.tell(_summary(store, now))
    if now.failed:
        _tell_failed(now)
        sys.exit(1)


def chosen(grid: Grid, only: list[str]) -> list[Cell]:
    """The cells of a grid with the values that were asked for.

    Raises
    ------
    ConfigError
        No such axis, or no such value of it.
    """
    from sim.settings.config import ConfigError, parse_setting
    from traces.errors import did_you_mean

    wanted: dict[str, list[Any]] = {}
    axes = {axis.name: axis for axis in grid.axes} | {axis.column: axis for axis in grid.axes}
    for text in only:
        name, given = parse_setting(text)
        if name not in axes:
            raise ConfigError("no such axis", where="command line, --only", got=name, todo=did_you_mean(name, axes),
                              allowed=", ".join(axis.name for axis in grid.axes))
        values = axes[name].values
        found = [value for value in values if value == given or str(value) == text.partition("=")[2]]
        if not found:
            raise ConfigError("no such value of the axis", where=f"command line, --only {name}", got=given,
                              allowed=", ".join(map(str, values)))
        wanted.setdefault(axes[name].name, []).extend(found)
    return [cell for cell in grid.cells if all(cell.axes[name] in values for name, values in wanted.items())]


def executor_of(grid: Grid, workers: int | None, dask: str | None) -> Callable[[], Executor]:
    """Who plays, made when there is something to play."""
    from sim.sweeps.executors import Processes, cores

    count = workers or cores()
    if dask is not None:
        from sim.sweeps.daskcluster import connect

        return lambda: connect(dask, count, grid.dask)
    return lambda: Processes(min(count, len(grid.cells)))


def played(
    grid: Grid, store: Store, cells: list[Cell], executor: Callable[[], Executor], quiet: bool, **how: bool,
) -> Progress:
    """Play cells, and show how it goes; `how` is that of `sim.sweeps.sweeping.sweep`.

    Ctrl-C, or a signal to end, says what stays, and ends.
    """
    from sim.sweeps.sweeping import sweep as play
    from sim.workload.calibrations import untold_calibration

    for line in dict.fromkeys(filter(None, (untold_calibration(cell.config) for cell in cells if not quiet))):
        console.say(line)
    try:
        with _progress(len(cells), quiet) as update:
            return play(grid, store, executor, cells, on_progress=update, **how)
    except (KeyboardInterrupt, SystemExit) as ended:  # the latter: `sim.__main__` was told to end
        done = sum(store.is_done(grid, cell) for cell in cells)
        console.say(f"interrupted: {done:,} of {len(cells):,} cells are done and stay; the same command goes on",
                    style="bold red")
        sys.exit(ended.code if isinstance(ended, SystemExit) else 130)


@contextmanager
def _progress(cells: int, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """What to call with how far a sweep is: a bar where stderr is a terminal, else a line every ten seconds."""
    if quiet:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("cells, {task.fields[words]}"))
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=cells, words="")

    def update(now: Progress) -> None:
        bar.start()  # not before: it draws in a thread of its own, and with one this process could not be forked
        bar.update(task, completed=now.before + now.failed_before + now.played, words=_words(now))

    try:
        yield update
    finally:
        bar.stop()


def _lines() -> Callable[[Progress], None]:
    said = time.monotonic()

    def update(now: Progress) -> None:
        nonlocal said
        if time.monotonic() - said >= console.LINE_EVERY_S:
            said = time.monotonic()
            console.say(f"{now.before + now.failed_before + now.played:,} of {now.cells:,} cells, {_words(now)}")

    return update


def _words(now: Progress) -> str:
    failed = f"{len(now.failed):,} failed, " if now.failed else ""
    if not now.played:
        return f"{failed}workers begin ({now.workers or 'yet to come'})"
    from analysis.formats import human

    left = "" if now.left_s is None else f", about {human(now.left_s)} left"
    return f"{failed}{now.busy} of {now.workers} workers busy{left}"


def _summary(store: Store, now: Progress) -> str:
    from analysis.formats import human

    took = f"; played {now.played:,} in {human(now.wall_s)}" if now.wall_s else ""
    share = now.busy_share
    busy = "" if share is None or now.wall_s < TELLING_S else f", workers were busy {share:.0%} of the time"
    aside = f"\n{now.stale:,} cells of other settings, files or code are put aside (--prune removes them)"
    failed = f", {len(now.failed):,} failed" if now.failed else ""
    waiting = now.cells - now.before - now.done - len(now.failed)
    left = f", {waiting:,} not begun" if waiting else ""
    return (f"{store.folder}: {now.cells:,} cells, {now.before + now.done:,} done ({now.before:,} before){failed}{left}"
            f"{took}{busy}{aside if now.stale else ''}")


def _as_json(store: Store, now: Progress) -> dict[str, Any]:
    return {
        "folder": str(store.folder), "cells": now.cells, "done": now.before + now.done, "done_before": now.before,
        "failed": [{"cell": cell.id, **cell.axes, "error": error} for cell, error in now.failed],
        "put_aside": now.stale, "wall_s": now.wall_s, "workers": now.workers, "busy_share": now.busy_share,
    }


def _tell_failed(now: Progress) -> None:
    for cell, error in now.failed[:SHOWN]:
        console.say(f"failed: {cell.text} ({cell.id}): {error}", style="bold red")
    if len(now.failed) > SHOWN:
        console.say(f"{len(now.failed) - SHOWN:,} more have failed, see load_sweep(folder).failed")
    console.say("--retry-failed plays them again")


def _list(grid: Grid, store: Store, cells: list[Cell], json: bool) -> None:
    """What a sweep consists of, and what of it is done."""
    from sim.results.schema import CELL_DONE, CELL_FAILED

    if store.folder.exists() and not store.folder.is_dir():
        raise HetsimError("a file, not a folder", where=str(store.folder), todo="Name another with --out.")
    aside = store.aside
    states = [store.state(grid, cell) if cell.id in store.records else aside.state(grid, cell) for cell in cells]
    if json:
        console.show_json({"folder": str(store.folder), "cells": [
            {"cell": cell.id, **cell.axes, "state": state} for cell, state in zip(cells, states, strict=True)]})
        return
    table = console.new_table("cell", *(axis.name for axis in grid.axes), "state", title=f"Sweep {grid.path}")
    for cell, state in zip(cells, states, strict=True):
        table.add_row(cell.id, *(console.cell("" if one is None else str(one)) for one in cell.axes.values()), state)
    done = states.count(CELL_DONE)
    failed = states.count(CELL_FAILED)
    table.caption = f"{len(cells):,} cells: {done:,} done, {failed:,} failed, {len(cells) - done - failed:,} to play"
    console.show(table)
