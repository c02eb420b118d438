"""Runs that were killed: the earlier one is there again, an empty folder pushes none aside, leftovers go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from traces import leftovers


def dead_pid() -> int:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid


def left(folder: Path, name: str, kind: str, pid: int) -> Path:
    return folder / f".{name}.{leftovers._host()}-{pid}.{kind}"


@pytest.mark.parametrize("how", ["one", "its folder"])
def test_a_run_killed_between_the_two_renames_is_there_for_who_reads(replay, hetsim, here: Path, how: str) -> None:
    replay("--out", "runs/one")
    before = {file.name: file.read_bytes() for file in (here / "runs" / "one").iterdir()}
    (here / "runs" / "one").rename(left(here / "runs", "one", "old", dead_pid()))
    said = hetsim("metrics", "runs/one" if how == "one" else "runs")
    assert said.code == 0, said.err
    assert {file.name: file.read_bytes() for file in (here / "runs" / "one").iterdir()} == before


def test_a_run_whose_writer_lives_is_not_touched(replay, hetsim, here: Path) -> None:
    replay("--out", "runs/one")
    old = left(here / "runs", "one", "old", os.getppid())
    (here / "runs" / "one").rename(old)
    assert hetsim("metrics", "runs/one").code == 2
    assert old.exists()


def test_the_next_run_takes_the_empty_folder_of_a_killed_one_and_clears_the_rest(hetsim, here: Path) -> None:
    arguments = ("run", "--policy", "fifo", "--jobs", "5", "--work", "recorded", "--quiet")
    assert hetsim(*arguments).code == 0
    folder = next((here / "runs").iterdir())
    whole = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "timing.json"}
    pid = dead_pid()
    for file in folder.iterdir():
        file.unlink()
    left(here / "runs", folder.name, "claim", pid).touch()
    (part := left(here / "runs", folder.name, "part", pid)).mkdir()
    (part / "jobs.parquet").write_text("half")
    assert hetsim(*arguments).code == 0
    assert [path.name for path in (here / "runs").iterdir()] == [folder.name]
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "timing.json"} == whole


def test_a_name_that_a_living_run_has_taken_is_left_to_it(hetsim, here: Path) -> None:
    arguments = ("run", "--policy", "fifo", "--jobs", "5", "--work", "recorded", "--quiet")
    assert hetsim(*arguments).code == 0
    folder = next((here / "runs").iterdir())
    for file in folder.iterdir():
        file.unlink()
    claim = left(here / "runs", folder.name, "claim", os.getppid())
    claim.touch()
    assert hetsim(*arguments).code == 0
    assert {path.name for path in (here / "runs").iterdir()} == {folder.name, f"{folder.name}-2", claim.name}
    assert not list(folder.iterdir())


def test_empty_folders_are_left_out_and_where_there_is_nothing_else_that_is_said(replay, hetsim, here: Path) -> None:
    (here / "runs" / "empty").mkdir(parents=True)
    for named in (["runs"], ["runs/empty"]):
        said = hetsim("report", *named, "--out", "r.html")
        assert said.code == 2
        assert "no run is in the folder; got 'an empty folder, or empty folders only'" in said.err
    replay("--out", "runs/one")
    for named in (["runs"], ["runs/empty", "runs/one"]):
        assert hetsim("report", *named, "--out", "r.html", "--force").code == 0
