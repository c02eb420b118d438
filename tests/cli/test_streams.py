"""Where stdout, stderr or the disk does not take what a command writes: one message, an exit code, nothing half there.

Each command is a process of its own: descriptors that are closed, and limits of the system, belong to a process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.conftest import PATIENCE_S, ROOT

FULL = Path("/dev/full")


def process(*arguments: str, shell: str = "", limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command under `sh`, which redirects as told; no file that it writes gets larger than the limit.

    A limited one keeps no compiled sources: Python 3.11 keeps as much of a file as it could write.
    """
    line = " ".join([sys.executable, *(["-B"] if limit_bytes is not None else []), "-m", "sim", *arguments, shell])

    def limited() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False, timeout=PATIENCE_S, preexec_fn=limited,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def runs(replay: Callable[..., Said], here: Path) -> Path:
    replay("--out", "one")
    replay("--policy", "fifo-skip", "--out", "two")
    return here


@pytest.mark.parametrize("command", ["compare one two", "metrics one --json", "policies", "--version"])
def test_a_closed_stdout_is_told_before_any_work(runs: Path, command: str) -> None:
    said = process(command, shell=">&-")
    assert (said.returncode, said.stderr) == (
        2, "hetsim: standard output is closed. Send it to a file, or to /dev/null.\n")


def test_a_closed_stdout_never_ends_up_in_a_file(runs: Path) -> None:
    """The next file that is opened would get its descriptor."""
    assert process("report one --out page.html", shell=">&-").returncode == 2
    assert not (runs / "page.html").exists()


def test_with_stderr_closed_the_exit_code_still_says_it(runs: Path) -> None:
    assert process("metrics nowhere", shell="2>&-").returncode == 2
    said = process("metrics one", shell="2>&-")
    assert (said.returncode, said.stdout[:7]) == (0, "measure")


@pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no full device")
@pytest.mark.parametrize("command", ["metrics one", "policies", "--version", "--help"])
def test_a_full_stdout_is_told_once(runs: Path, command: str) -> None:
    said = process(command, shell=f">{FULL}")
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1 and "No space left on device" in said.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_was_printed_and_did_not_reach_the_file_is_told(
    runs: Path, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python writes to a file when the process ends, and could tell nobody; unbuffered, it forgets what is left."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    said = process("metrics one", shell=">shown.txt", limit_bytes=100)
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1 and "File too large" in said.stderr


@pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no full device")
def test_a_full_stderr_changes_nothing_but_the_message(runs: Path) -> None:
    said = process("metrics nowhere", shell=f"2>{FULL}")
    assert (said.returncode, said.stdout) == (2, "")


@pytest.mark.parametrize(("command", "name"), [
    ("metrics one --out table/m.txt", "table/m.txt"),
    ("report one --out page.html", "page.html"),
    ("timeline one --out line.json", "line.json"),
    ("figures one --only queue --out drawn", "drawn/queue.png"),
    ("trace convert jobs.csv other.csv", "other.csv"),
    ("run --policy fifo --trace jobs.csv --cluster v100:2 --work recorded --out three", "three"),
])  # fmt: skip
def test_where_the_disk_is_full_nothing_is_left_behind(runs: Path, command: str, name: str) -> None:
    before = sorted(runs.rglob("*"))
    said = process(command, limit_bytes=64)
    assert said.returncode == 2
    assert f"hetsim: {name}" in said.stderr and "File too large" in said.stderr and "Traceback" not in said.stderr
    assert sorted(runs.rglob("*")) == before


def test_a_run_in_a_folder_that_is_linked_replaces_what_the_link_names(
    replay: Callable[..., Said], here: Path
) -> None:
    (here / "real").mkdir()
    (here / "link").symlink_to("real")
    before = {path.name for path in here.iterdir()}
    for force in ([], ["--force"]):
        assert replay("--out", "link", *force).code == 0
    assert (here / "link").is_symlink() and (here / "real" / "run.json").is_file()
    assert {path.name for path in here.iterdir()} == before
