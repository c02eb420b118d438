"""No space, or no permission: commands that write say so, and all is as before (`experiments/full_disks.py`)."""

from __future__ import annotations

import pytest

from experiments.full_disks import COMMANDS, Said, misspoken
from tests.cli.test_kills import said

EACH = """
import sys
from pathlib import Path
from experiments import full_disks
scratch = Path(sys.argv[1])
full_disks.warm(scratch / "warm", full_disks.COMMANDS)
for number, command in enumerate(full_disks.COMMANDS):
    place = full_disks.Place(command, scratch / str(number))
    for found in (place.short_of(0), place.short_of(300), place.read_only()):
        print(command.name, found.code, found.wrong, sep=";")
"""


@pytest.mark.slow
def test_a_command_that_cannot_write_says_so_and_changes_nothing(tmp_path) -> None:
    rows = [line.split(";") for line in said(EACH, tmp_path)]
    assert [row[0] for row in rows] == [command.name for command in COMMANDS for _ in range(3)]
    for name, code, wrong in rows:
        assert (code, wrong) == ("2", ""), name


@pytest.mark.parametrize(("code", "text", "wrong"), [
    (2, "hetsim: out/t.csv: the file cannot be written; got 'x'. Name another file, or see to its\nfolder.", ""),
    (1, "hetsim: one: the run could not be written; got 'No space left on device'. Free some space.", ""),
    (3, "hetsim: one: the run could not be written; got 'x'. Free some space.", "exit code 3"),
    (2, "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device", "a traceback"),
    (2, "hetsim: no space; got 'x'. Free some space.", "no place"),
    (2, "hetsim: one: the run could not be written; got 'x'.", "not what to do"),
])
def test_what_a_command_says_is_judged(code: int, text: str, wrong: str) -> None:
    assert misspoken(Said(code, text)) == wrong
