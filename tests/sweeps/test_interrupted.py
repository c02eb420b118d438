"""`hetsim sweep` as a process of its own: killed in the middle, interrupted, and under other hash seeds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim.sweeps.grid import read_grid
from tests.conftest import PATIENCE_S, ROOT
from tests.sweeps.conftest import RUN, content, played

EIGHT = 'policy = ["srtf", "las"]\nseed = [0, 1, 2, 3]\njobs = 400'


def begun(*words: str, **environment: str) -> subprocess.Popen[str]:
    """The command, in the present folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "sim", "sweep", "sweep.toml", "--quiet", *words], text=True, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                                                  **environment})


def until(ready, process: subprocess.Popen[str]) -> None:
    """Wait until something is so, or the process has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready() and process.poll() is None:
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a sweep that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    file = folder / "sweep.toml"
    file.write_text(f"{RUN}\n[sweep]\n{EIGHT}\n")
    played(read_grid(file), folder / "out")
    return content(folder / "out")


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "workers"), [(signal.SIGKILL, "2"), (signal.SIGINT, "2"), (signal.SIGTERM, "1")])
def test_what_is_done_stays_and_a_second_call_ends_as_one_that_was_never_stopped(grid, whole, sent, workers):
    """Ctrl-C, the workers hear of, too; whoever is told to end says what stays."""
    made = grid(EIGHT)
    process = begun("-o", "stopped", "-j", workers)
    until(lambda: len(list(Path("stopped/cells").glob("[!.]*.json"))) >= 2, process)
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0, "it was to be stopped in the middle"
    if sent != signal.SIGKILL:
        assert process.returncode == 128 + sent
        assert "Traceback" not in err
        assert "cells are done and stay; the same command goes on" in err
    now = played(made, "stopped")
    assert now.before >= 2
    assert now.before + now.done == 8
    assert content("stopped") == whole


def test_p65_the_hash_seed_of_python_changes_no_byte(grid):
    made = grid('policy = ["fifo", "tiresias"]')
    played(made, "here")
    beside = {seed: begun("-o", seed, "-j", "1", PYTHONHASHSEED=seed) for seed in ("1", "2")}
    for seed, process in beside.items():
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        assert "2 cells, 2 done" in out
        assert content(seed) == content("here")
