"""The argument RUN... of commands that read runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traces.leftovers import recover

if TYPE_CHECKING:
    from analysis.run import Run

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of run folders.")]


def load_runs(paths: list[Path], check: bool = True) -> list[Run]:
    """Runs by folder; a folder that is no run stands for the runs in it, in order of name (`check`: of `load_run`).

    Empty folders are those of runs that were killed, or still go on: they are left out where other runs are named. A
    run whose writer was killed while it replaced it is there again (`traces.leftovers`).

    Raises
    ------
    RunError
        Not one run is in them; see also `load_run`.
    """
    from analysis.run import RunError, load_run

    folders, empty = [], []
    for path in paths:
        recover(path.parent)
        recover(path)
        inside = [] if (path / "run.json").exists() else sorted(f.parent for f in path.glob("[!.]*/run.json"))
        if not inside and _is_hollow(path):
            empty.append(path)
        else:
            folders += inside or [path]
    if empty and not folders:
        raise RunError("no run is in the folder", where=str(empty[0]), got="an empty folder, or empty folders only",
                       allowed="folders that `hetsim run` has written",
                       todo="A run that was stopped leaves nothing: run it again.")
    return [load_run(folder, check) for folder in folders]


def _is_hollow(path: Path) -> bool:
    """Whether a folder holds nothing, or nothing but folders that hold nothing; hidden things are not looked at."""
    try:
        shown = [inner for inner in path.iterdir() if not inner.name.startswith(".")]
        return all(inner.is_dir() and not any(inner.iterdir()) for inner in shown)
    except OSError:  # no folder, or one that cannot be read: who loads it says so
        return False
