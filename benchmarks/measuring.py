"""A command in a process of its own: CPU seconds, peak memory, and what `timed.py` says of its phases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TIMED = Path(__file__).with_name("timed.py")


class BenchError(Exception):
    """A command that failed, or a bench that cannot be run; the words say what and why."""


@dataclass(frozen=True)
class Took:
    """What a command took.

    Attributes
    ----------
    cpu_s : user and system time of it and of all processes that it ended.
    peak_mib : the most memory that any one of them had.
    phases : CPU seconds by phase, as far as it was asked for them.
    out : its standard output.
    """

    cpu_s: float
    peak_mib: float
    phases: Mapping[str, float] = field(default_factory=dict)
    out: str = ""


def measured(words: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> Took:
    """Run a command in a folder and wait for it.

    Python may keep what it compiles of our sources, as it does for who installs them: without that each start takes a
    third of a second longer, and a machine's settings would be measured.

    Raises
    ------
    BenchError
        It ended with another code than 0; its last lines of stderr are told.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(words, cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                 env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""} | dict(environment or {}))
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            last = "\n  ".join(err.read().splitlines()[-5:])
            raise BenchError(f"{' '.join(words)} (in {folder}) ended with code {child.returncode}:\n  {last}")
        unit = 1024 if sys.platform != "darwin" else 1024**2
        return Took(used.ru_utime + used.ru_stime, used.ru_maxrss / unit, {}, out.read())


def timed(words: list[str], folder: Path, *, split: bool = False) -> Took:
    """Run `hetsim WORDS` of the revision in a folder, with clocks round its phases; `split`: within the loop, too."""
    with tempfile.TemporaryDirectory() as scratch:
        phases = Path(scratch, "phases.json")
        took = measured([sys.executable, str(TIMED), str(phases), *["--split"] * split, *words], folder)
        return Took(took.cpu_s, took.peak_mib, json.loads(phases.read_text("utf-8")), took.out)
