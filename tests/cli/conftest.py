"""The command line in this process, in a folder of its own, and a trace that can be checked by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sim.cli import main
from sim.sweeps.executors import Here

JOBS = "job_id,submit_s,duration_s,num_gpus\na,0,100,1\nb,10,50,2\nc,20,30,1\n"


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh working directory with the trace jobs.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


@pytest.fixture
def hetsim(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Call the command line as the console script does."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["hetsim", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        code = stopped.value.code
        return Said(0 if code is None else int(code), said.out, said.err)

    return call


@pytest.fixture
def replay(hetsim: Callable[..., Said]) -> Callable[..., Said]:
    """Replay jobs.csv as recorded under FIFO on one node of two V100; further options win or add."""
    return lambda *more: hetsim(
        "run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "v100:2", "--work", "recorded", *more
    )


@pytest.fixture
def sweeps_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are played in this process: workers take seconds to start, and have tests of their own."""
    monkeypatch.setattr("sim.sweeps.executors.Processes", lambda count: Here())
