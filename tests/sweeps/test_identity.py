"""What makes two cells the same, and what does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sim.performance.calibration import shipped
from sim.settings.config import list_settings
from sim.sweeps import identity
from tests.sweeps.conftest import JOBS

CLUSTER = '[[nodes]]\ntype = "V100"\ncount = 2\ngpus = 8\n'
RUN = (
    '[run]\npolicy = "fifo"\nwork = "recorded"\ntrace = "jobs.csv"\ncluster = "mine.toml"\n'
    '[engine]\noutages = "outages.csv"\n'
)


@pytest.fixture
def ids(grid):
    """The ids of a sweep of two policies that reads three files."""
    Path("mine.toml").write_text(CLUSTER)
    Path("outages.csv").write_text("time_s,node,up\n5,0,0\n9,0,1\n")

    def make(text='policy = ["fifo", "srtf"]', run=RUN):
        return [cell.id for cell in grid(text, run).cells]

    return make


def test_ids_are_16_hex_digits_and_the_same_each_time(ids):
    assert ids() == ids()
    assert all(len(id_) == 16 and int(id_, 16) >= 0 for id_ in ids())


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("jobs.csv", JOBS.replace("50", "51")),
        ("mine.toml", CLUSTER.replace("8", "4")),
        ("outages.csv", "time_s,node,up\n5,0,0\n8,0,1\n"),
    ],
)
def test_another_content_of_a_file_is_another_cell(ids, file, text):
    before = ids()
    Path(file).write_text(text)
    assert not set(before) & set(ids())


def test_another_setting_is_another_cell_and_so_is_one_of_the_policy(ids):
    one = ids()
    assert not set(one) & set(ids(run=RUN.replace("[engine]", "seed = 5\n[engine]")))
    assert ids('policy = "srtf"') == [one[1]]
    assert ids('policy = "tiresias"') != ids('policy = "tiresias"\n"policy.queue_limits" = "60"')


def test_a_default_that_is_written_out_is_the_same_cell(ids):
    assert ids() == ids(run=RUN.replace("[engine]", 'estimate = "oracle"\n[engine]\nrepair_h = 1'))


def test_each_setting_that_may_name_a_file_is_looked_into():
    """A setting says of itself that it names a file; one whose meaning speaks of files and that does not is forgotten.

    Format and number of jobs left out are said of a trace's file, and name none.
    """
    names = {one.name.removeprefix("run.") for one in list_settings() if "file" in one.meaning.lower()}
    assert names - {"format", "skip"} == {*identity.FILES, "trace", "cluster"}
    assert {"measured", "calibration", "speed_belief", "engine.pairs", "engine.capacity", "engine.outages",
            "engine.maintenance"} <= set(identity.FILES)


@pytest.mark.parametrize(("belief", "file"), [("table:mine.csv", "mine.csv"), ("calibration:mine.toml", "mine.toml")])
def test_the_file_of_a_belief_of_speeds_is_part_of_the_cell(grid, belief, file):
    """Its content by hash, its name by the setting; a belief that names no file reads none, whatever lies there."""
    Path("exact").write_text("no file of this run")
    Path(file).write_text(shipped("eager").toml())

    def one(kind):
        cell = grid('policy = "fifo"', f'[run]\ntrace = "jobs.csv"\ncluster = "v100:8"\nspeed_belief = "{kind}"\n')
        return cell.cells[0].id

    exact, before = one("exact"), one(belief)
    assert before != exact
    Path(file).write_text(shipped("scripts").toml())
    Path("exact").write_text("something else")
    assert one(belief) != before
    assert one("exact") == exact


def test_the_code_that_counts_is_that_which_tables_depend_on():
    """The simulator, policies, traces and metrics, with what they import; no figure, and no command."""
    names = {file.relative_to(identity.ROOT).as_posix() for file in identity.code_files()}
    assert {"sim/engine/engine.py", "sim/kernels/preempt.py", "sim/performance/memory.py",
    "analysis/metrics/__init__.py",
            "analysis/run/__init__.py", "sim/sweeps/cell.py", "traces/load.py", "policies/ordering/srtf.py",
            "sim/cluster/presets/gavel.toml"} <= names
    assert not [name for name in names if name.startswith(("sim/cli/", "analysis/report/"))]
    assert not names & {"analysis/figures/__init__.py", "analysis/figures/style.py", "sim/sweeps/executors.py"}


def test_imports_are_found_as_a_parser_finds_them():
    """Each module of ours that a parser sees in a file of the list is in the list."""
    files = identity.code_files()
    for file in files:
        if file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [name.name for name in getattr(node, "names", ()) if isinstance(node, ast.Import | ast.ImportFrom)]
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module), *(f"{node.module}.{name}" for name in names)]
            for module in names:
                assert set(identity._files_of(module)) <= files, f"{file}: {module}"


def test_an_edit_of_code_makes_other_cells(monkeypatch, ids):
    before = ids()
    monkeypatch.setattr(identity, "code_version", lambda: "another")
    assert not set(before) & set(ids())


def test_the_version_of_the_code_is_of_the_files_content(monkeypatch, tmp_path):
    for name in ("policies", "traces", "sim", "sim/engine", "sim/sweeps", "sim/cluster", "sim/hardware",
                 "analysis", "analysis/metrics"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for file, text in {"sim/sweeps/replay.py": "from sim.engine import engine\n", "sim/engine/engine.py": "STEP = 1\n",
                       "sim/other.py": "", "analysis/metrics/__init__.py": "import analysis.run\n",
                       "analysis/run.py": "", "policies/broken.py": "(",
                       "sim/hardware/gpus.toml": ""}.items():
        (tmp_path / file).write_text(text)
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    monkeypatch.setattr(identity, "_ROOTS", ("sim/sweeps/replay.py", "analysis/metrics/__init__.py"))

    def version() -> str:
        identity.code_version.cache_clear()
        return identity.code_version()

    try:
        first = version()
        (tmp_path / "sim/other.py").write_text("unused = 1\n")
        assert version() == first
        for file in ("sim/engine/engine.py", "analysis/run.py", "policies/broken.py", "sim/hardware/gpus.toml"):
            (tmp_path / file).write_text("# edited\n")
            assert version() != first, file
            first = version()
    finally:
        identity.code_version.cache_clear()
