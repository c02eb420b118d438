"""The argument RUN... of commands that read runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from analysis.run import Run

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of run folders.")]


def load_runs(paths: list[Path], check: bool = True) -> list[Run]:
    """Runs by folder; a folder that is no run stands for the runs in it, in order of name (`check`: of `load_run`)."""
    from analysis.run import load_run

    folders = []
    for path in paths:
        inside = [] if (path / "run.json").exists() else sorted(f.parent for f in path.glob("[!.]*/run.json"))
        folders += inside or [path]
    return [load_run(folder, check) for folder in folders]
