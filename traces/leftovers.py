"""What a writer that was killed left behind: known by its name, and put right by the next one that comes.

What is being written lies beside its target under a hidden name, `.NAME.HOST-PID-BEGAN.part`; an earlier folder that is
being replaced as `.NAME.HOST-PID-BEGAN.old`; a name that is taken, as `.NAME.HOST-PID-BEGAN.claim`. HOST stands for
machine and process namespace, BEGAN for when the process PID began, so that who has its number later is not taken for
it. A leftover is one whose writer is dead: of our host, a process that is no more, however long it writes while it
lives, or ourselves without writing it; of another host, which cannot be asked, one that nothing was written to for a
day. An `.old` whose NAME is missing becomes NAME again: the writer was killed between two renames. Everything else left
over is removed.

Where a system does not tell when a process began, BEGAN is missing, as it is in names of earlier versions: a number
that is in use may be another's by now, so a day decides there, too. Versions before those called a run's folder
`.NAME.partPID` and `.NAME.oldPID`, which others may, too: such a one is a leftover where it holds files of a run and
nothing else, no process has its number, and nothing was written to it for a day.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

DAY_S = 86_400.0
_NAME = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d{1,10})(-(?P<began>\d{1,20}))?"
                   r"\.(?P<kind>part|old|claim)", re.DOTALL)
_EARLIER = re.compile(r"\.(?P<name>.+)\.(?P<kind>part|old)(?P<pid>\d{1,10})", re.DOTALL)
_OF_A_RUN = re.compile(r"\w+\.parquet|run\.json|timing\.json")
_ours: set[Path] = set()
"""What this process is writing: what else has its number was written by a process that had it before."""


def beside(target: Path, kind: str) -> Path:
    """The hidden name of a kind (part, old, claim) beside a target, for this process."""
    _, began = _state_and_began(os.getpid())
    return target.with_name(f".{target.name}.{_host()}-{os.getpid()}{f'-{began}' if began else ''}.{kind}")


@contextmanager
def held(*paths: Path) -> Iterator[None]:
    """While these are written, they are no leftovers."""
    hold(*paths)
    try:
        yield
    finally:
        let_go(*paths)


def hold(*paths: Path) -> None:
    """From now on these are no leftovers."""
    _ours.update(Path(os.path.abspath(path)) for path in paths)


def let_go(*paths: Path) -> None:
    """They are not being written any more."""
    _ours.difference_update(Path(os.path.abspath(path)) for path in paths)


def is_held(path: Path) -> bool:
    """Whether this process is writing it."""
    return Path(os.path.abspath(path)) in _ours


def claimed(target: Path) -> bool:
    """Whether another writer, which lives, has taken a name."""
    mine = beside(target, "claim")
    return any(path.name != mine.name and not _is_left(path, found)
               for path, found in _found(target.parent) if (found["name"], found["kind"]) == (target.name, "claim"))


def recover(folder: Path) -> None:
    """Give folders in `folder` their names back, whose writers were killed between two renames."""
    for path, found in _found(folder):
        if found["kind"] == "old" and _is_left(path, found):
            _come_back(path, folder / found["name"])


def clear(folder: Path) -> None:
    """Put right what dead writers left in a folder; what cannot be removed stays."""
    recover(folder)
    for path, found in _found(folder):
        if _is_left(path, found):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()


def _come_back(old: Path, target: Path) -> None:
    """An earlier folder gets its name back, unless there is something of that name with something in it."""
    with suppress(OSError):
        old.rename(target)  # onto a folder that is empty, too; onto no other


def _found(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    """What in a folder has a name as writers give."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [(folder / name, match) for name in names
            if name.startswith(".") and (match := _NAME.fullmatch(name) or _EARLIER.fullmatch(name))]


def _is_left(path: Path, found: re.Match[str]) -> bool:
    """Whether who wrote it is dead, by the rule above."""
    if is_held(path):
        return False
    aged, pid = False, int(found["pid"])
    with suppress(OSError):
        aged = time.time() - path.lstat().st_mtime > DAY_S
    if found.re is _EARLIER:
        return aged and _is_dead(pid) and _holds_a_run(path)
    if found["host"] != _host():
        return aged
    if pid == os.getpid() or _is_dead(pid):
        return True
    state, began = _state_and_began(pid)
    if state == "Z":  # it was killed, and who started it has not asked for it yet
        return True
    return aged if found["began"] is None or not began else found["began"] != began


def _holds_a_run(path: Path) -> bool:
    """Whether it is a folder with files of a run, whole or not, and nothing else."""
    try:
        return not path.is_symlink() and all(
            _OF_A_RUN.fullmatch(file.name) and file.is_file() for file in path.iterdir())
    except OSError:
        return False


def _is_dead(pid: int) -> bool:
    """Whether no process of this machine has that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another user's
        return False
    return False


def _state_and_began(pid: int) -> tuple[str, str]:
    """Letter of a process' state, and when it began in the system's own ticks; empty: that is not told here."""
    try:
        about = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "", ""
    fields = about.rpartition(b")")[2].decode("ascii", "replace").split()  # the name before it may hold anything
    return (fields[0], fields[19]) if len(fields) > 19 else ("", "")


@cache
def _host() -> str:
    """Eight digits for the machine and its space of process numbers: containers have their own."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{socket.gethostname()} {space}'.encode()):08x}"
