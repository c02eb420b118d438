"""Seeded faults in the engine are caught: some of those of `experiments/mutants.py`, which plants all."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import mutants
from experiments.engine_faults import FAULTS
from experiments.mutant_worlds import write_jobs

CAUGHT = {
    "a decision comes before the rest of its instant": "audit: decisions see who runs and who waits",
    "kept work falls back to the checkpoint": "audit: work is lost back to the last checkpoint",
    "lane: an end is lost": "engine: ",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> mutants.Copy:
    return mutants.Copy(tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("what", CAUGHT)
def test_a_fault_is_caught(what: str, copy: mutants.Copy) -> None:
    assert copy.judge(next(fault for fault in FAULTS if fault.what == what)).startswith(CAUGHT[what])


def test_nobody_objects_to_this_tree(tmp_path: Path) -> None:
    """Else all faults are caught, by what is wrong without them."""
    assert mutants.judge_tree(write_jobs(tmp_path / "jobs.csv")) == ""


def test_each_fault_still_has_its_place() -> None:
    """The text that a fault changes is there once, and its change is one."""
    for fault in FAULTS:
        text = (mutants.TREE / fault.file).read_text("utf-8")
        assert text.count(fault.old) == 1, fault.what
        assert fault.old != fault.new
        assert (mutants.TREE / fault.test).exists()


def test_the_page_has_each_fault_with_who_catches_it() -> None:
    """The table is what `python -m experiments.mutants --markdown` printed last."""
    page = (mutants.TREE / "docs/metrics.md").read_text("utf-8")
    assert mutants.NOBODY not in page
    for fault in FAULTS:
        assert f"| {fault.file.removeprefix('sim/')} | {fault.what} | " in page
    for wrong in mutants.run_faults.FAULTS:
        assert f"| a run's files | {wrong.what} | " in page


def test_there_are_many_and_no_two_alike() -> None:
    names = [fault.what for fault in (*FAULTS, *mutants.run_faults.FAULTS)]
    assert len(set(names)) == len(names)
    assert min(len(FAULTS), len(mutants.run_faults.FAULTS)) >= 20
