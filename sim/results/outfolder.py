"""Where a run's results go: a folder reserved before the work, and given back if nothing comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sim.results.recorder import OutputError, claim
from sim.settings.config import RunConfig

RUNS = "runs"
MAX_NAME = 120


def run_name(config: RunConfig) -> str:
    """`<policy>-<trace>-<cluster>-<seed>`, of characters that every file system takes.

    A trace or cluster that is a file goes by its stem.
    """
    cluster = Path(config.cluster).stem if config.cluster.lower().endswith(".toml") else config.cluster
    text = f"{config.policy}-{Path(config.trace).stem}-{cluster}"
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', text).strip('.-')[:MAX_NAME]}-{config.seed}"


@contextmanager
def reserved(config: RunConfig, force: bool = False) -> Iterator[Path]:
    """The folder for a run's files: `config.out`, or a new one in `runs/` that no other run has or gets.

    If the body fails, each folder that was made for it and is still empty is removed again.

    Raises
    ------
    OutputError
        The folder is in use and `force` is not set, or cannot be made (see `sim.results.recorder.claim`).
    """
    folder = Path(config.out) if config.out is not None else Path(RUNS, run_name(config))
    made: list[Path] = []  # innermost first
    try:
        try:
            made = [path for path in folder.parents if not path.exists()]
            if config.out is None:
                folder = _fresh(folder)
                made.insert(0, folder)
            else:
                claim(folder, force)
                if not folder.exists():
                    folder.mkdir()
                    made.insert(0, folder)
        except OSError as error:
            raise OutputError("the output folder cannot be made", where=str(folder), got=error.strerror,
                              todo="Name another with --out.") from None
        yield folder
    except BaseException:
        _remove(made)
        raise


def _fresh(first: Path) -> Path:
    """Make the first of name, name-2, name-3, … that is not there.

    Making it is the test, so that two runs at once never share one.
    """
    for n in count(1):
        folder = first if n == 1 else first.with_name(f"{first.name}-{n}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError  # count() does not end


def _remove(folders: list[Path]) -> None:
    """Remove folders that are empty, innermost first."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
