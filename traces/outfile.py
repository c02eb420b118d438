"""Files and folders that a command writes: none is replaced unasked, none is ever half there, none left over stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.errors import HetsimError
from traces.leftovers import beside, clear, held

TODO = "Name another file, or see to its folder."
_cleared: set[str] = set()


def refuse_existing(path: Path, force: bool = False) -> None:
    """Refuse what must not be written over, before any work is done.

    Raises
    ------
    HetsimError
        The file is there already (unless `force`), what is there is no file (a folder, a device, a link to either or to
        itself), or no file can have that name.
    """
    try:
        there, is_file = path.exists(), path.is_file()
        endless = followed(path).is_symlink()
    except OSError as error:
        raise _refused(path, error) from None
    if endless or (there and not is_file):
        raise HetsimError("not a file that can be written", where=str(path), allowed="the name of a file")
    if there and not force:
        raise HetsimError("the file is there already", where=str(path), todo="Name another, or pass --force.")


def followed(path: Path) -> Path:
    """What a link names in the end, so that not the link is replaced; all else as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that lack, one after the other: `mkdir(parents=True)` calls itself for each.

    Raises
    ------
    OSError
        One cannot be made.
    """
    for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        missing.mkdir(exist_ok=True)


@contextmanager
def written(path: Path, *, todo: str = TODO) -> Iterator[Path]:
    """A name beside `path` to write to; what was written there becomes `path` when the body is through.

    Folders that lack are made. A link stays, and what it names is written; a file that is replaced keeps its mode. If
    the body fails, for whatever reason, all is as it was. What killed writers left beside it is put right first, once a
    folder (`traces.leftovers`).

    Raises
    ------
    HetsimError
        The file cannot be written; `todo` says what helps.
    """
    refuse_existing(path, force=True)
    target = followed(path)
    part = beside(target, "part")
    made: list[Path] = []  # innermost first
    try:
        made = [folder for folder in target.parents if not folder.exists()]
        make_folders(target.parent)
        _clear_once(target.parent)
        with held(part):
            yield part
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()  # not one in which another has written meanwhile
        if isinstance(error, OSError):
            raise _refused(path, error, todo) from None
        raise


@contextmanager
def written_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to write into, which becomes `folder` when the body is through, whole or not at all.

    What is there is replaced. If the body fails, or the swap, all is as it was; if the process is killed, the next
    writer, or `traces.leftovers.recover`, gives the earlier folder its name back.

    Raises
    ------
    OSError
        The folder cannot be written, or the disk is full.
    """
    part, old = beside(folder, "part"), beside(folder, "old")
    with held(part, old):
        try:
            make_folders(folder.parent)
            clear(folder.parent)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            yield part
            if folder.exists() and any(folder.iterdir()):  # one that is empty is renamed onto
                folder.rename(old)
            try:
                part.rename(folder)
            except BaseException:  # what was there comes back, whatever stopped this one, Ctrl-C too
                if old.exists():
                    old.rename(folder)
                raise
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _clear_once(folder: Path) -> None:
    """Put right what is left over in a folder, the first time that this process writes there: it may hold thousands."""
    absolute = os.path.abspath(folder)
    if absolute not in _cleared:
        _cleared.add(absolute)
        clear(folder)


def _refused(path: Path, error: OSError, todo: str = TODO) -> HetsimError:
    return HetsimError("the file cannot be written", where=str(path), got=error.strerror or str(error), todo=todo)


def write_text(path: Path, text: str, *, force: bool = True) -> Path:
    """Write a text as UTF-8, as `written` does; an existing file only if `force`. Returns the path."""
    refuse_existing(path, force)
    with written(path) as part:
        part.write_text(text, "utf-8", newline="")
    return path
