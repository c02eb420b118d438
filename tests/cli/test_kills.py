"""Each command that writes, killed before calls that change files: the instants of `experiments/kills.py`, in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import kills
from tests.conftest import ROOT

EACH = 7
IN_ORDER = f"""
import sys
from collections import Counter
from pathlib import Path
from experiments import kills
scratch = Path(sys.argv[1])
kills.warm(scratch / "warm")
for n, command in enumerate(kills.COMMANDS):
    world, tally = kills.World(command, scratch / str(n)), Counter()
    numbers = range(0, world.calls, max(1, world.calls // {EACH}))
    for number in numbers:
        tally.update(world.kill_at(number))
    print(command.name, len(numbers), tally["kills"], tally["had ended"], tally["amid writing"],
          sum(tally[wrong] for wrong in kills.WRONG), sep=",")
"""
FAULTY = """
import sys
from pathlib import Path
from experiments import kills
scratch, command = Path(sys.argv[1]), kills.COMMANDS[1]
kills.warm(scratch / "warm", [command])
world = kills.World(command, scratch / "world")
for name, content in (("run.json", "{"), ("jobs.parquet", "PAR1")):
    world.fresh()
    (world.place / command.out / name).write_text(content)
    print(world.judged(-9)["half"])
world.fresh()
(world.place / command.out / "jobs.parquet").unlink()
found = world.judged(-9)
print(found["half"], found["lost"])
"""


def said(script: str, folder: Path) -> list[str]:
    """What a script prints in a process of its own, whose modules and executor are the commands' only."""
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_whenever_a_writer_is_killed_nothing_is_half_there_and_the_next_one_writes_the_same(tmp_path: Path) -> None:
    rows = [line.split(",") for line in said(IN_ORDER, tmp_path)]
    assert [row[0] for row in rows] == [command.name for command in kills.COMMANDS]
    for name, asked, killed, ended, amid, wrong in rows:
        assert (killed, ended, wrong) == (asked, "0", "0"), name
        assert int(amid) > 0, name


@pytest.mark.slow
def test_half_a_file_and_a_lost_one_are_found_out(tmp_path: Path) -> None:
    assert said(FAULTY, tmp_path) == ["True", "True", "True True"]
