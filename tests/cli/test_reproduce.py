"""`hetsim reproduce`: experiment files become figures, once; `hetsim figures` and its options."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest

from analysis.figures.sweepdrawing import NUMBERS, drawings
from analysis.metrics import per_job
from analysis.run import load_run
from sim.cli.reproduce import SweepExperiment
from sim.sweeps import identity

PERF = """
[perf]
model = ["resnet50"]
gpu = ["V100"]
gpus = [1, 2]

[figure]
x = "gpus"
y = "samples_per_s"
line = "model"
"""
SWEEP = """
[run]
trace = "philly"
jobs = 40
cluster = "v100:4x8"
work = "recorded"

[sweep]
policy = ["fifo", "srtf"]
seed = [0, 1]

[figure]
kind = "bars"
x = "policy"
"""


def test_a_folder_becomes_figures_once_and_only_what_changed_is_drawn_again(hetsim, here):
    (here / "experiments").mkdir()
    (here / "experiments" / "b.toml").write_text(SWEEP)
    (here / "experiments" / "a.toml").write_text(PERF)
    (here / "experiments" / "settings.toml").write_text("[run]\njobs = 3\n")
    said = hetsim("reproduce", "experiments", "--workers", "1")
    assert (said.code, said.out.splitlines()) == (0, [
        "a: new: figures/a.csv figures/a.png figures/a.pdf", "b: new: figures/b.csv figures/b.png figures/b.pdf",
    ])  # fmt: skip
    table = pd.read_csv(here / "figures" / "b.csv")
    metrics = pd.read_parquet(here / "sweeps" / "b" / "metrics")
    exact = metrics.groupby(metrics["policy"].astype(str))["jct_mean_s"].mean()
    assert dict(zip(table["x"], table["mean"], strict=True)) == pytest.approx(exact.to_dict())

    before = {file: file.stat().st_mtime_ns for file in (here / "figures").iterdir()}
    said = hetsim("reproduce", "experiments", "--workers", "1")
    assert [line.split()[:3] for line in said.out.splitlines()] == [["a:", "up", "to"], ["b:", "up", "to"]]
    assert {file: file.stat().st_mtime_ns for file in (here / "figures").iterdir()} == before

    (here / "experiments" / "b.toml").write_text(SWEEP + 'title = "Two policies"\n')
    (here / "figures" / "a.csv").write_text("edited")
    said = hetsim("reproduce", "experiments", "--workers", "1")
    assert [line.split()[:2] for line in said.out.splitlines()] == [["a:", "new:"], ["b:", "new:"]]
    assert (here / "figures" / "a.csv").read_text() != "edited"


def test_an_edit_of_the_code_that_draws_draws_again_and_of_other_code_does_not(hetsim, here, monkeypatch):
    for package in ("sim", "policies", "traces", "analysis"):
        shutil.copytree(identity.ROOT / package, here / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "ROOT", here / "code")
    (here / "a.toml").write_text(PERF)

    def made(edited: str | None = None) -> str:
        if edited:
            with (here / "code" / edited).open("a") as file:
                file.write("# edited\n")
        return hetsim("reproduce", "a.toml").out.split(": ")[1]

    assert [made(), made()] == ["new", "up to date"]
    assert [made("analysis/figures/perffigure.py"), made("analysis/figures/style.py")] == ["new", "new"]
    assert [made("analysis/audit/__init__.py"), made("sim/cli/run.py")] == ["up to date", "up to date"]


def test_a_figure_of_a_sweep_depends_on_all_that_draws_and_describes_it():
    files = {file.relative_to(identity.ROOT).as_posix()
             for file in identity.imported(identity.ROOT / file for file in SweepExperiment.code)}
    drawing = {f"analysis/figures/sweep{part}.py" for part in ("asked", "drawing", "figure", "marks", "table", "words")}
    assert drawing | {"analysis/figures/style.py", "analysis/figures/tradeoff.py", "analysis/compare/bootstrap.py",
                      "analysis/compare/paired.py", "analysis/formats.py", "analysis/sweeps.py"} <= files
    assert not [file for file in files if file.startswith(("sim/cli", "analysis/report", "policies"))]


def test_only_one_can_be_asked_for(hetsim, here):
    (here / "a.toml").write_text(PERF)
    (here / "c.toml").write_text(PERF)
    assert hetsim("reproduce", ".", "--only", "c").out.startswith("c: new:")
    said = hetsim("reproduce", ".", "--only", "d")
    assert said.code == 2
    assert "no such experiment" in said.err


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (('kind = "bars"', 'kind = "bar"'), "did you mean 'bars'"),
        (('kind = "bars"', 'knd = "bars"'), "did you mean 'kind'"),
        (('x = "policy"', ""), "a key is missing"),
        (('x = "policy"', 'x = "polcy"'), "did you mean 'policy'"),
        (('x = "policy"', 'x = "policy"\ny = "jct_men_s"'), "did you mean 'jct_mean_s'"),
        (('x = "policy"', 'x = "policy"\nover = ""'), "seed with 2 values"),
        (('x = "policy"', 'x = "policy"\nbaseline = "fifo"'), "no effect"),
        (('x = "policy"', 'x = "policy"\nlevel = 95'), "level"),
        (('kind = "bars"', 'kind = "ratio"'), "baseline or numerator"),
        (('kind = "bars"', 'kind = "heat"\ny = "seed"\nvalue = "jct_s"'), "no such measure of a run"),
        (("[figure]", '[results]\ntables = ["nodes"]\n[figure]\nnumerator = "srtf"'), "no effect"),
        (('kind = "bars"\nx = "policy"', 'kind = "cdf"\nx = "jct_mean_s"'), "no such number of a job"),
        (('[figure]\nkind = "bars"', '[results]\ntables = ["nodes"]\n[figure]\nkind = "ratio"\nnumerator = "srtf"'),
         "the sweep keeps no jobs"),
        (('x = "policy"', 'x = "policy"\nname = "a/b"'), "not part of a file's name"),
        (('x = "policy"', 'x = "policy"\nwhere = {policy = []}'), "figure.where.policy: a list without values"),
        (('x = "policy"', 'x = "policy"\nwhere = {policy = "fito"}'), "did you mean 'fifo'"),
        (('x = "policy"', 'x = "policy"\nwhere = {policy = [["fifo"]]}'), "figure.where.policy: the sweep has no such"),
        (('x = "policy"', 'x = "policy"\nwhere = {load = 7.5}'), "no such axis of the sweep"),
        (('x = "policy"', 'x = ["policy", "policy"]'), "an axis has two places; got 'policy'"),
        (('x = "policy"', 'x = "policy"\npanel = "policy"'), "an axis has two places; got 'policy'"),
        (('x = "policy"', 'x = "policy"\nover = ["seed", "policy"]'), "an axis has two places; got 'policy'"),
        (('x = "policy"', 'x = "policy"\ny = ["makespan_s", "makespan_s"]'), "a measure is drawn twice"),
        (('kind = "bars"\nx = "policy"', 'kind = "heat"\nx = "policy"\ny = "policy"'), "an axis has two places"),
        (('kind = "bars"\nx = "policy"', 'kind = "pareto"\nx = ["jct_mean_s", "makespan_s"]'), "several measures"),
        (('kind = "bars"\nx = "policy"', 'kind = "ratio"\nx = "policy"\nbaseline = "srft"'),
         "figure.baseline: the sweep has no such policy; got 'srft'; allowed: fifo; srtf. did you mean 'srtf'"),
        (("seed = [0, 1]", "sed = [0, 1]"), "unknown key"),
        (("[sweep]", "[perf]\n[sweep]"), "a figure of what"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_told_before_anything_is_played(hetsim, here, edit, words):
    (here / "e.toml").write_text(SWEEP.replace(*edit))
    said = hetsim("reproduce", "e.toml", "--workers", "1")
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err
    assert not (here / "sweeps").exists()
    assert not (here / "figures").exists()


def test_a_file_without_a_figure_is_told(hetsim, here):
    (here / "e.toml").write_text(SWEEP.split("[figure]", maxsplit=1)[0])
    assert "without [figure]" in hetsim("reproduce", "e.toml").err
    assert "no experiment" in hetsim("reproduce", ".").err


def test_a_failed_cell_is_missing_in_the_figure_and_told(hetsim, here):
    (here / "two.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,100,2\n")
    text = SWEEP.replace("philly", "two.csv").replace("jobs = 40\n", "").replace('cluster = "v100:4x8"\n', "")
    text = text.replace("[sweep]", '[sweep]\ncluster = ["v100:1x2", "v100:1x1"]')
    (here / "e.toml").write_text(text.replace('x = "policy"', 'x = "cluster"\nline = "policy"'))
    said = hetsim("reproduce", "e.toml", "--workers", "1")
    assert said.code == 1
    assert "have failed" in said.err
    assert pd.read_csv(here / "figures" / "e.csv")["x"].unique().tolist() == ["v100:1x2"]


def test_of_a_folder_what_lacks_its_trace_is_left_out_and_the_others_are_made(hetsim, here):
    (here / "experiments").mkdir()
    lacking = here / "experiments" / "b.toml"
    lacking.write_text(SWEEP.replace('"philly"', '"../logs/jobs.csv"'))
    (here / "experiments" / "a.toml").write_text(PERF)
    said = hetsim("reproduce", "experiments")
    assert (said.code, said.out.split()[:2]) == (0, ["a:", "new:"])
    assert "left out: b.toml: its trace ../logs/jobs.csv is not there" in said.err
    assert not (here / "sweeps").exists()
    for named in (["experiments/b.toml"], ["experiments", "experiments/b.toml"], ["experiments", "--only", "b"]):
        said = hetsim("reproduce", *named)
        assert (said.code, "no such file" in said.err) == (2, True), named
    lacking.write_text(SWEEP.replace('"philly"', '"phily"'))
    assert "did you mean 'philly'" in hetsim("reproduce", "experiments").err


def test_no_figure_replaces_another(hetsim, here):
    two = SWEEP + 'name = "b"\n' + '[[figure]]\nkind = "bars"\nx = "policy"\nname = "b"\n'
    (here / "a.toml").write_text(two.replace("[figure]", "[[figure]]", 1))
    said = hetsim("reproduce", "a.toml")
    assert (said.code, "two figures of one name" in said.err) == (2, True)
    (here / "a.toml").write_text(SWEEP + 'name = "b"\n')
    (here / "a-b.toml").write_text(PERF)
    said = hetsim("reproduce", "a.toml", "a-b.toml")
    assert (said.code, "would write one figure; got 'a-b'" in said.err) == (2, True)
    assert not (here / "figures").exists()


def test_several_figures_have_names_of_their_own(hetsim, here):
    text = SWEEP.replace("[figure]", "[[figure]]")
    (here / "e.toml").write_text(text + '[[figure]]\nkind = "ratio"\nx = "policy"\nbaseline = "fifo"\nname = "jct"\n')
    said = hetsim("reproduce", "e.toml", "--workers", "1", "--out", "f")
    assert said.code == 0
    assert {file.name for file in (here / "f").iterdir()} == {
        "e.json", *(f"e-{name}.{kind}" for name in ("1", "jct") for kind in ("csv", "png", "pdf"))
    }


def test_numbers_of_a_job_that_can_be_drawn_are_those_that_are_worked_out(replay, here):
    replay("--out", "r")
    table = per_job(load_run(here / "r"))
    assert [name for name in table if table[name].dtype == float] == list(NUMBERS)


def test_what_is_not_said_is_filled_in_by_the_kind(here):
    (here / "e.toml").write_text('[figure]\nkind = "pareto"\n')
    (drawing,) = drawings(here / "e.toml")
    assert (drawing.x, drawing.y, drawing.line) == ("jct_mean_s", "cost_usd", "policy")
    assert drawing.axes() == ["policy", "seed"]
    assert drawing.measures() == ["jct_mean_s", "cost_usd"]


def test_a_figure_of_plans_that_do_not_fit_is_an_error_and_nothing_is_written(hetsim, here):
    (here / "e.toml").write_text(PERF.replace("resnet50", "gpt3-13b"))
    said = hetsim("perf", "--config", "e.toml", "--out", "pictures")
    assert said.code == 2
    assert "nothing to draw" in said.err
    assert "Traceback" not in said.err
    assert not list(here.glob("pictures/*"))
