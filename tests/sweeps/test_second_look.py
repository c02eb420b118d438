"""The deep audit: clean runs pass, what only settings know is caught, and what cannot be made anew is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.audit import CONDUCT, FORM, audit
from experiments.mutant_worlds import WORLDS, play, write_jobs
from experiments.mutants import judge_run
from experiments.run_faults import FAULTS, Files, RunFault
from sim.sweeps.second_look import LAWS, look_again
from traces.errors import HetsimError

PLAIN = tuple(name for name in WORLDS if "in the lane" not in name)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jobs(tmp_path_factory.mktemp("worlds") / "jobs.csv")


@pytest.mark.parametrize("world", [*PLAIN, "fifo, in the lane"])
def test_a_clean_run_passes(world: str, trace: Path) -> None:
    run = play(world, trace)
    report = look_again(run, audit(run))
    assert report.ok, report.text
    assert list(report.checked) == [*FORM, *CONDUCT, *LAWS]
    assert report.checked["deep: jobs and their work are those of the trace"] == f"{len(run.jobs)} jobs"
    assert report.checked["deep: rates are those of the model"] != "no segments" or world == "hetero, plans"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_each_fault_in_the_files_is_caught(fault: RunFault, trace: Path) -> None:
    assert judge_run(fault, trace)


def test_the_audit_alone_does_not_know_how_fast_jobs_should_be(trace: Path) -> None:
    """What the deep audit is for: each file agrees with each other one, and the model with none."""
    files = Files(play("srsf, nodes fail, iterations", trace))
    next(fault for fault in FAULTS if fault.what == "all rates and all work 5 % higher").plant(files)
    run = files.changed()
    assert audit(run).ok
    found = {v.law for v in look_again(run, audit(run)).violations}
    assert "deep: jobs and their work are those of the trace" in found


def test_a_rate_is_held_against_the_model(trace: Path) -> None:
    files = Files(play("srsf, nodes fail, iterations", trace))
    segment = files.stretch("preempted")
    segment["rate"] *= 1.0 + 1e-9
    found = {v.law: str(v) for v in look_again(files.changed(), audit(files.changed())).violations}
    assert f"job {segment['job_id']!r}" in found["deep: rates are those of the model"]


def test_a_run_that_cannot_be_made_anew_is_refused(trace: Path) -> None:
    for change, said in (
        (lambda info: info.pop("config"), "does not say all its settings"),
        (lambda info: info.update(code_hash="0" * 16), "made by other code"),
        (lambda info: info["config"].update(trace="nowhere.csv"), "nowhere.csv"),
        (lambda info: info["config"].update(colour="red"), "unknown key"),
        (lambda info: info["config"]["engine"].update(mtbf_h="often"), "mtbf_h"),
    ):
        files = Files(play("fifo, shares take turns", trace))
        change(files.info)
        run = files.changed()
        with pytest.raises(HetsimError, match=said):
            look_again(run, audit(run))


def test_files_of_no_sound_form_are_not_looked_at_again(trace: Path) -> None:
    files = Files(play("fifo, shares take turns", trace))
    files.stretch("done")["rate"] = float("nan")
    run = files.changed()
    report = audit(run)
    assert not report.ok
    assert look_again(run, report) is report
