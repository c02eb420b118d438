"""Where a run's results go: a folder reserved before the work, and given back if nothing comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Lock

from sim.results.recorder import OutputError, claim
from sim.settings.config import RunConfig
from traces.leftovers import beside, claimed, clear, hold, is_held, let_go
from traces.outfile import followed, make_folders

RUNS = "runs"
MAX_NAME = 120
_one_thread = Lock()
"""Threads of a process have one number, so that claims do not tell them apart."""


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

    If the body fails, each folder that was made for it and is still empty is removed again. What runs left that were
    killed is put right first: an empty folder in `runs/` that none holds is a new one.

    Raises
    ------
    OutputError
        The folder is in use and `force` is not set, cannot be made (see `sim.results.recorder.claim`), or another run
        that goes on will be written there.
    """
    folder = Path(config.out) if config.out is not None else Path(RUNS, run_name(config))
    made: list[Path] = []  # innermost first
    claim_file: Path | None = None
    try:
        try:
            made = [path for path in folder.parents if not path.exists()]
            if config.out is None:
                folder, claim_file = _fresh(folder)
                made.insert(0, folder)
            else:
                claim(folder, force)
                claim_file = _alone(folder)
                if not folder.exists():
                    folder.mkdir()
                    made.insert(0, folder)
        except OSError as error:
            raise OutputError("the output folder cannot be made", where=str(folder), got=error.strerror,
                              todo="Name another with --out.") from None
        yield folder
    except BaseException:
        _let_go(claim_file)
        _remove(made)
        raise
    _let_go(claim_file)


def _fresh(first: Path) -> tuple[Path, Path]:
    """Make the first of name, name-2, name-3, … that holds nothing and is no run's; and the file that takes it.

    A run first says that it takes a name, then looks whether another has: of two at once at most one gets it.
    """
    make_folders(first.parent)
    with _one_thread:
        clear(first.parent)
        for n in count(1):
            folder = first if n == 1 else first.with_name(f"{first.name}-{n}")
            if (mark := _marked(folder, _taken)) is not None:
                return folder, mark
    raise AssertionError  # count() does not end


def _alone(folder: Path) -> Path:
    """The file that takes a folder that was asked for by name: an hour later its run would find that it is too late."""
    with _one_thread:
        mark = _marked(followed(folder), lambda asked: not claimed(asked))
    if mark is None:
        raise OutputError("another run that goes on will be written there", where=str(folder),
                          todo="Name another with --out, or wait for its end.")
    return mark


def _marked(folder: Path, is_free: Callable[[Path], bool]) -> Path | None:
    """The file that takes a name, put there before it is asked whether the name is free; None: another has it."""
    mark = beside(folder, "claim")
    if is_held(mark):  # by another thread
        return None
    mark.touch()
    if is_free(folder):
        hold(mark)
        return mark
    mark.unlink()
    return None


def _taken(folder: Path) -> bool:
    """Whether a folder could be made, or is there with nothing in it and no other run that holds it."""
    try:
        folder.mkdir()
    except FileExistsError:
        return folder.is_dir() and not any(folder.iterdir()) and not claimed(folder)
    return True


def _let_go(claim_file: Path | None) -> None:
    if claim_file is not None:
        with suppress(OSError):
            claim_file.unlink()
        let_go(claim_file)


def _remove(folders: list[Path]) -> None:
    """Remove folders that are empty, innermost first."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
