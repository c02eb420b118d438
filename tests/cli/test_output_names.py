"""Names that settings hold cannot lead a command out of its output folder, nor end it with a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results.outfolder import MAX_NAME, RUNS, reserved, run_name
from sim.results.recorder import OutputError
from sim.settings.config import RunConfig
from tests.cli.conftest import JOBS
from traces.outfile import write_text

HOSTILE = ("../x", "../../x", "/abs/olute", "..", ".", "a\0b", "x" * 5000, "d/" * 2000, "C:\\x", "con", "a\nb",
           "\u202ex", "-rf", "~/x", "$(x)", ".hidden", " ")
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=300))


@given(trace=TEXT, cluster=TEXT, policy=st.sampled_from(["fifo", "homogeneous-piper"]))
def test_a_run_has_a_name_of_its_own_in_runs_whatever_trace_and_cluster_are_called(
    trace: str, cluster: str, policy: str
) -> None:
    name = run_name(RunConfig(policy=policy, trace=trace, cluster=cluster))
    assert Path(RUNS, name).parent == Path(RUNS)
    assert name.isascii()
    assert not set(name) & set("/\\\0\n:* ")
    assert not name.startswith((".", "-"))
    assert 0 < len(name) <= MAX_NAME + 2


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "d/" * 3000, "jobs.csv/x", "loop/x", "/dev/null/x"])
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_cannot_be_is_refused_by_its_name_before_any_work(
    name: str, force: bool, hetsim, here: Path
) -> None:
    (here / "loop").symlink_to("loop")
    (here / "run.toml").write_text(
        '[run]\npolicy = "fifo"\ntrace = "jobs.csv"\ncluster = "v100:2"\nwork = "recorded"\n'
        f"out = {json.dumps(name)}\n")
    before = sorted(path.name for path in here.iterdir())
    said = hetsim("run", "--config", "run.toml", *(["--force"] if force else []))
    assert said.code == 2
    assert "the output folder cannot be made" in said.err
    assert "Name another with --out." in said.err
    assert sorted(path.name for path in here.iterdir()) == before
    assert (here / "jobs.csv").read_text() == JOBS


def test_folders_are_made_however_deep(here: Path) -> None:
    file = Path("d/" * 1500, "x.txt")
    write_text(file, "deep")
    assert file.read_text() == "deep"
    file.unlink()
    for folder in file.parents[:-1]:
        folder.rmdir()


def test_two_traces_of_hostile_names_get_folders_in_runs(here: Path) -> None:
    for trace in HOSTILE[:4]:
        with reserved(RunConfig(policy="fifo", trace=trace)) as folder:
            assert folder.parent == Path(RUNS)
            (folder / "run.json").write_text("{}")
    assert {path.name for path in here.iterdir()} == {"jobs.csv", RUNS}
    assert len(list((here / RUNS).iterdir())) == 4


@pytest.mark.parametrize("name", ["../x", "/x", "a\0b", "a\nb", "a\\b", "x" * 61, ".."])
def test_a_figure_of_a_sweep_stays_in_its_folder(name: str, hetsim, here: Path) -> None:
    (here / "sweep.toml").write_text(
        '[run]\ntrace = "jobs.csv"\ncluster = "v100:2"\nwork = "recorded"\n[[sweep]]\npolicy = ["fifo", "srtf"]\n'
        f'[[figure]]\nkind = "bars"\ny = "jct_mean_s"\nx = "policy"\nname = {json.dumps(name)}\n')
    from analysis.figures.sweepdrawing import drawings, endings
    from traces.errors import HetsimError

    try:
        ending = endings(drawings(here / "sweep.toml"))[0]
    except HetsimError as error:
        assert "not part of a file's name" in str(error)
    else:
        assert (here / "figures" / f"sweep{ending}.png").parent == here / "figures"


def test_a_record_of_figures_that_names_files_elsewhere_is_none_of_ours(here: Path) -> None:
    from sim.cli.reproduce import Experiment, _up_to_date

    (here / "out").mkdir()
    (here / "out" / "fig.png").write_text("x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    experiment = Experiment(Path("e.toml"))
    names = {"fig.png": True, "../jobs.csv": False, str(here / "jobs.csv"): False, "/dev/zero": False}
    for name, known in names.items():
        (here / "out" / "e.json").write_text(json.dumps({"identity": "i", "files": {name: digest}}))
        assert (_up_to_date(here / "out", experiment, "i") is not None) == known


def test_a_run_that_goes_on_keeps_the_folder_that_was_asked_for(here: Path) -> None:
    """The second is refused before its work, not the first after its own: it had no room left after an hour."""
    config = RunConfig(policy="fifo", trace="jobs.csv", out="big")
    with reserved(config) as folder:
        for force in (False, True):
            with pytest.raises(OutputError, match="another run that goes on"), reserved(config, force):
                pass
        (folder / "run.json").write_text("{}")
    with reserved(config, force=True):
        pass
    assert {path.name for path in here.iterdir()} == {"jobs.csv", "big"}
