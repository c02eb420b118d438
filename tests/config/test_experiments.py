"""Each experiment file says what can be done: every cell of a sweep and every figure, before anything is played."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from analysis.figures.sweepasked import Drawing
from analysis.figures.sweepdrawing import check_names, drawings
from analysis.figures.sweeptable import text
from analysis.metrics import MEASURES
from sim.cli.questions import load_experiment
from sim.settings.config import load_config
from sim.sweeps.grid import Grid, read_grid
from sim.sweeps.replay import Replay

ROOT = Path(__file__).resolve().parents[2]
FILES = {path.stem: path for path in sorted((ROOT / "experiments").glob("*.toml"))}
SECTIONS = {name: tomllib.loads(path.read_text("utf-8")) for name, path in FILES.items()}
SWEEPS = [name for name, file in SECTIONS.items() if "sweep" in file]
PERF = [name for name, file in SECTIONS.items() if "perf" in file]
GENERATED = [name for name in SWEEPS if "/" not in SECTIONS[name]["run"]["trace"]]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def placed(grid: Grid, drawing: Drawing) -> set[str]:
    """What stands along a figure, in its legend and above its panels: values of axes in one place, joined by commas."""
    names = [drawing.names_of(key) for key in ("x", "line", "panel") if key in drawing.how.axes]
    return {", ".join(text(cell.axes[axis]) for axis in joined) for joined in names for cell in grid.cells}


def check(name: str) -> Grid:
    grid, figures = read_grid(FILES[name]), drawings(FILES[name])
    check_names(figures, FILES[name], {axis.name: axis.values for axis in grid.axes}, MEASURES, grid.tables)
    for drawing in figures:
        values = placed(grid, drawing)
        assert {drawing.baseline, drawing.numerator} - {""} <= values
        assert set(drawing.names) <= values | {*drawing.axes(), *drawing.measures()}, "a name for what is not drawn"
        for axis, wanted in drawing.where.items():
            assert set(wanted if isinstance(wanted, list) else [wanted]) <= {cell.axes[axis] for cell in grid.cells}
    return grid


@pytest.mark.parametrize("name", GENERATED)
def test_every_cell_and_figure_of_a_sweep_is_possible(name):
    assert check(name).cells


def test_the_sweep_over_real_windows_is_possible_where_the_log_is(data_dir, tmp_path, monkeypatch):
    """The file names the log beside the repository; here it is where the test data are."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "data").symlink_to(data_dir.resolve())
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    grid = check("estimate-errors-philly")
    assert {cell.config.jobs for cell in grid.cells} == {10_000}
    assert max(cell.config.skip for cell in grid.cells) + 10_000 <= 82_247


@pytest.mark.parametrize("name", PERF)
def test_questions_of_the_performance_model_can_be_asked(name):
    assert load_experiment(FILES[name]).figure is not None


@pytest.mark.parametrize("name", [name for name in FILES if name not in SWEEPS + PERF])
def test_a_single_run_is_possible(name):
    assert Replay(load_config(FILES[name])).cluster.num_gpus > 0


def test_the_survey_s_experiment_is_on_64_equal_gpus_10_000_jobs_and_ten_windows():
    for name in ("estimate-errors", "estimate-errors-pai"):
        grid = read_grid(FILES[name])
        values = {axis.name: set(axis.values) for axis in grid.axes}
        assert len(values["seed"]) == 10 and values["policy"] == {"srsf", "las"}
        assert {f"noisy:{mre}" for mre in ("0", "0.1", "0.25", "0.5", "0.75")} <= values["estimate"]
        for cell in grid.cells:
            replay = Replay(cell.config)
            assert (cell.config.jobs, replay.cluster.num_gpus, len(replay.cluster.types)) == (10_000, 64, 1)


def test_hetero_is_held_against_every_planner_of_one_type():
    planners = {path.stem.replace("_", "-") for path in (ROOT / "policies").glob("homogeneous*.py")}
    for name in ("hetero-value", "hetero-value-pai"):
        grid = read_grid(FILES[name])
        values = {axis.name: axis.values for axis in grid.axes}
        assert planners | {"hetero"} <= set(values["policy"]) and len(values["seed"]) == 5
        assert min(values["load"]) == 0.5 and max(values["load"]) == 1.2
