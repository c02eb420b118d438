"""No space, or no permission: each command that writes ends with a message, and all that was there stays as it was.

    python -m experiments.full_disks [--disk FOLDER] [--markdown]

The commands of `kills.py` and others that write a file are forked from one warm process, each where no file may become
longer than so many bytes (a limit of the process: EFBIG), in folders that it may not write (without root's right to
write all the same: EACCES), and with `--disk`, a tmpfs of some MiB that the user has mounted for this, with so many
bytes free on it (ENOSPC). Each ends well, or with exit code 1 or 2, one message that names a place and says what to
do, and no traceback; then all files are as before, and nothing is left over.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from experiments.kills import COMMANDS as KILLED
from experiments.kills import ONE, Command, call, files, hidden, laid, warm

COMMANDS = (
    *KILLED,
    Command("metrics", ("metrics", "one", "--out", "out/table.txt"), "out", (ONE,)),
    Command("figures", ("figures", "one", "--only", "queue", "--format", "png", "--out", "out"), "out", (ONE,)),
    Command("timeline", ("timeline", "one", "--out", "out/one.json.gz"), "out", (ONE,)),
    Command("trace convert to CSV", ("trace", "convert", "jobs.csv", "out/t.csv"), "out"),
)
LONGEST_BYTES = (0, 1, 300, 4096, 20_000)
FREE_BYTES = (0, 4096, 16_384, 65_536)
_CAPABILITIES_3 = 0x20080522
_OVER_PERMISSIONS = 0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER


@dataclass(frozen=True)
class Said:
    """How a command ended.

    Attributes
    ----------
    code : exit code.
    text : what it said on stderr.
    wrong : what was not as it must be; empty: nothing.
    """

    code: int
    text: str
    wrong: str = ""


def forked(words: Sequence[str], folder: Path, first: Callable[[], object]) -> Said:
    """The command in a process of its own, after `first` was called there."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(write_end, 2)
            first()
            code = call(words)
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8", errors="replace") as pipe:
        text = pipe.read()
    return Said(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text)


def no_longer_than(size_bytes: int) -> None:
    """From now on, a write beyond this size of a file fails."""
    sys.dont_write_bytecode = True  # Python 3.11 keeps as much of a compiled module as it could write
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def bound_by_permissions() -> None:
    """Give up root's right to write where no permission is (Linux); for others nothing changes."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
        sets = (ctypes.c_uint32 * 6)()
        if libc.capget(header, sets) == 0:
            for i in range(3):  # effective, permitted, inheritable of the first 32
                sets[i] &= ~_OVER_PERMISSIONS
            libc.capset(header, sets)


class Place:
    """One command's folder, whole, as it is before."""

    def __init__(self, command: Command, scratch: Path, disk: Path | None = None) -> None:
        self.command, self._first = command, laid(scratch / "first")
        for words in command.before:
            said = forked(words, self._first, lambda: None)
            if said.code:
                raise SystemExit(f"{' '.join(words)}: exit code {said.code}\n{said.text}")
        self.folder = (disk or scratch) / "place"

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        _removed(self.folder)
        shutil.copytree(self._first, self.folder)
        try:
            yield self.folder
        finally:
            _removed(self.folder)

    def short_of(self, longest_bytes: int) -> Said:
        """Where no file may become longer."""
        with self.fresh() as folder:
            return self._judged(folder, lambda: no_longer_than(longest_bytes))

    def read_only(self) -> Said:
        """Where neither the folder nor one in it may be written."""
        with self.fresh() as folder:
            for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
                place.chmod(0o555)
            return self._judged(folder, bound_by_permissions)

    def full(self, free_bytes: int) -> Said:
        """Where the file system has so much left."""
        with self.fresh() as folder:
            filler = folder.parent / "filler"
            about = os.statvfs(folder)
            try:
                with filler.open("wb") as stream:
                    os.posix_fallocate(stream.fileno(), 0, max(1, about.f_bavail * about.f_frsize - free_bytes))
                return self._judged(folder, lambda: None)
            finally:
                filler.unlink(missing_ok=True)

    def _judged(self, folder: Path, first: Callable[[], object]) -> Said:
        before = files(folder)
        said = forked(self.command.words, folder, first)
        after, wrong = files(folder), ""
        if said.code and (changed := {name for name in before if before[name] != after.get(name)}):
            wrong = f"changed: {sorted(changed)}"
        elif said.code and (new := sorted(set(after) - set(before))) and self.command.name != "sweep":
            wrong = f"written though it failed: {new}"
        elif hidden(folder):
            wrong = f"left over: {hidden(folder)}"
        elif said.code:
            wrong = misspoken(said)
        return Said(said.code, said.text, wrong)


def misspoken(said: Said) -> str:
    """What is wrong with how a command that could not write ended; empty: nothing."""
    text = " ".join(said.text.split())
    if said.code not in (1, 2):
        return f"exit code {said.code}"
    if "Traceback" in text or "Error:" in text:
        return "a traceback"
    if not re.search(r"hetsim: \S*(one|out|runs|cells|best|t\.parquet|\w+\.\w+)\S*: .*got", text):
        return "no place"
    return "" if re.search(r"Name another|Free some space|see to its folder", text) else "not what to do"


def _removed(folder: Path) -> None:
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        if place.exists():
            place.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disk", type=Path, help="a small file system, nothing on it")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        warm(Path(scratch, "warm"), COMMANDS)
        rows: list[tuple[str, ...]] = [("command", *(f"files to {n:,} B" for n in LONGEST_BYTES), "read-only",
                                        *(f"{n:,} B free" for n in FREE_BYTES if options.disk))]
        for number, command in enumerate(COMMANDS):
            place = Place(command, Path(scratch, str(number)), options.disk)
            found = [place.short_of(n) for n in LONGEST_BYTES] + [place.read_only()]
            if options.disk:
                found += [place.full(n) for n in FREE_BYTES]
            rows.append((command.name, *(f"{said.code}{' !' if said.wrong else ''}" for said in found)))
            wrong += [f"{command.name}, {how}: {said.wrong}\n{said.text}"
                      for how, said in zip(rows[0][1:], found, strict=True) if said.wrong]
    if options.markdown:
        rows.insert(1, ("---", *("---:" for _ in rows[0][1:])))
    for row in rows:
        print("| " + " | ".join(row) + " |" if options.markdown else "".join(f"{cell:>18}" for cell in row))
    print("exit codes; 0: all was written", *wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
