"""Figures: the same bytes each time, fonts embedded, units on the axes; what is drawn is the run's data."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from analysis import figures
from analysis.figures import distribution, overtime, tradeoff
from analysis.figures.gantt import gantt, tints
from analysis.figures.style import FORMATS, log_scale, new_figure, save, style
from analysis.measuring_window import windowed
from analysis.metrics import cost_usd, jct_s
from analysis.run import RunError
from traces.errors import HetsimError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_draw_all_writes_each_figure_in_each_format(story, tmp_path):
    files = figures.draw_all([story.load()], tmp_path / "new" / "figures")
    drawn = ("jct_cdf", "queueing", "rho_cdf", "utilisation", "queue", "overview", "cost", "gantt")
    names = {f"{n}.{k}" for n in drawn for k in ("png", "pdf")}
    assert {f.name for f in files} == names == {f.name for f in (tmp_path / "new" / "figures").iterdir()}
    assert all(f.read_bytes()[:4] == (b"\x89PNG" if f.suffix == ".png" else b"%PDF") for f in files)


def test_the_same_run_gives_the_same_bytes_in_another_process(story, tmp_path):
    """Each figure in the format that names its parts, and two in each format: to embed fonts takes most of the time."""
    run = story.load()
    two = ["cost", "queue"]
    first = figures.draw_all([run], tmp_path / "one", ["svg"])
    first += figures.draw_all([run], tmp_path / "one", ["png", "pdf"], two)
    code = (
        "import sys; from analysis.figures import draw_all; from analysis.run import load_run; "
        "run, out = load_run(sys.argv[1]), sys.argv[2]; draw_all([run], out, ['svg']); "
        f"draw_all([run], out, ['png', 'pdf'], {two})"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(run.path), str(tmp_path / "two")],
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
    )
    for file in first:
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_a_dollar_in_a_name_is_text_in_every_figure(story, tmp_path):
    odd = "$x_{$"
    story.info["policy"] = odd
    for table, names in ((story.nodes, ["gpu_type"]), (story.jobs, ["job_id", "user", "vc", "model", "gpu_type"]),
                         (story.segments, ["job_id"]), (story.plans, ["job_id", "gpu_type", "schedule"])):
        for row in table:
            row.update({name: "|".join(f"{odd} {one.upper()}" if one else "" for one in row[name].split("|"))
                        for name in names})
    run = story.load()
    every = [*figures.FIGURES, "gantt"]  # a text is told to be plain before a format draws it
    assert len(figures.draw_all([run, run], tmp_path, ["svg"], every)) == len(every) + 1
    assert len(figures.draw_all([run], tmp_path / "formats", FORMATS, ["cost"])) == 3
    assert figures.draw_plan(run, f"{odd} A", tmp_path)


@pytest.mark.parametrize(("low", "high", "words"), [
    (1, 1e7, {0: "1", 3: "1,000", 4: "10⁴", 7: "10⁷"}),
    (1e-6, 10, {-6: "10⁻⁶", -2: "0.01", 1: "10"}),
    (100, 300, {2: "100", round(math.log10(200), 9): "200"}),
    (2e4, 6e4, {round(math.log10(3e4), 9): "3×10⁴"}),
])  # fmt: skip
def test_powers_stand_along_a_logarithmic_axis_where_matplotlib_has_them_without_mathematics(low, high, words):
    def said(drawn):
        with style():
            figure, (axes,) = new_figure()
            drawn(axes)
            axes.set_xlim(low, high)
            figure.canvas.draw()
            ticks = [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]
            return {tick.get_loc(): tick.label1.get_text() for tick in ticks if tick.label1.get_text()}

    ours, theirs = said(lambda axes: log_scale(axes, "x")), said(lambda axes: axes.set_xscale("log"))
    assert set(ours) == set(theirs)
    assert {round(math.log10(at), 9): text for at, text in ours.items()}.items() >= words.items()


def test_pdf_embeds_truetype_fonts_and_no_date(story, tmp_path):
    content = save(distribution.jct_cdf([story.load()]), tmp_path / "f.pdf").read_bytes()
    streams = [
        zlib.decompress(s)
        for s in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.S)
        if s[:1] == b"x"
    ]
    whole = content + b"".join(streams)
    assert b"/FontFile2" in whole
    assert b"/Type3" not in whole
    assert b"CreationDate" not in whole


def test_no_global_state_is_left_behind(story):
    before = dict(matplotlib.rcParams)
    distribution.jct_cdf([story.load()])
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_curve_drawn_is_the_distribution(story):
    run = story.load()
    (axes,) = distribution.jct_cdf([run]).axes
    x, y = axes.lines[0].get_data()
    jct = np.sort(jct_s(run)[~np.isnan(jct_s(run))])
    assert x[1:].tolist() == jct.tolist() == [10, 20, 37, 128]
    assert y.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert axes.get_xlabel() == "job completion time (s)"
    assert axes.get_ylabel() == "finished jobs (%)"


def test_a_long_series_is_drawn_as_means_with_the_same_area(many_jobs):
    run = many_jobs(2000, nodes=10).load()
    begin, end = run.window_s
    frame = overtime.share_held(run, ["V100"])
    x, y = overtime.sampled(frame["time_s"].to_numpy(), frame["y"].to_numpy(), begin, end)
    assert len(x) == overtime.BINS + 1 < len(frame)
    exact = (frame["y"].to_numpy()[:-1] * np.diff(frame["time_s"])).sum()
    assert (y[:-1] * np.diff(x)).sum() == pytest.approx(exact, rel=1e-9)


def test_utilisation_panels_show_what_is_in_service(story):
    figure = overtime.utilisation_over_time([story.load()])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["V100", "T4"]
    assert figure.get_supylabel() == "GPUs held (% of those in service)"
    x, y = figure.axes[0].lines[0].get_data()
    state = dict(zip(x.tolist(), y.tolist(), strict=True))
    assert (state[0], state[10], state[50], state[60]) == (1.0, 0.5, 0.0, 0.5)
    assert figure.axes[-1].get_xlabel() == "time since first submit (s)"


def test_cost_bars_add_up_and_say_what_is_unknown(story, run_files):
    run = story.load()
    (axes,) = tradeoff.cost_bars([run]).axes
    assert sum(p.get_width() for p in axes.patches) == pytest.approx(cost_usd(run), rel=1e-12)
    # K80 has no price either, but nobody held one.
    unknown = run_files("u").node("T4", 1, None).node("K80", 1, None)
    unknown = unknown.job("a", 0, 3600).segment("a", 0, 3600, [0]).load()
    (axes,) = tradeoff.cost_bars([unknown]).axes
    assert [t.get_text() for t in axes.texts] == [" ≥ 0.00"]
    assert axes.get_figure().get_supxlabel() == "price unknown: 1.00 GPU-h of T4"


def test_gantt_draws_each_stretch_in_its_place(story):
    (axes,) = gantt(story.load()).axes
    bars, overheads = axes.collections[0], axes.collections[1]
    boxes = {tuple(np.concatenate((p.vertices.min(0), p.vertices.max(0))).round(6)) for p in bars.get_paths()}
    # a on GPUs 0 and 1 is one bar; b and c share GPU 2
    assert {(0, 0, 10, 2), (0, 2, 20, 2.5), (1, 2.5, 5, 3), (20, 3, 38, 3.5), (10, 0, 50, 1)} <= boxes
    assert len(boxes) == 7
    assert [p.get_extents().bounds for p in overheads.get_paths()] == [(20.0, 3.0, 2.0, 0.5)]


def test_neighbours_on_a_gantt_chart_have_different_colours(many_jobs):
    axes = gantt(many_jobs(300, nodes=6).load()).axes[0]
    bars = axes.collections[0]
    boxes = np.array([np.concatenate((p.vertices.min(0), p.vertices.max(0))) for p in bars.get_paths()])
    colours = [tuple(colour) for colour in bars.get_facecolors()]
    assert len(set(colours)) == 8, "all are used"
    x0, y0, x1, y1 = (boxes[:, k] for k in range(4))
    touching = 0
    for i in range(len(boxes)):
        same_gpus = (y0 < y1[i]) & (y1 > y0[i]) & (x0 == x1[i])
        same_time = (x0 < x1[i]) & (x1 > x0[i]) & (y0 == y1[i])
        for k in np.flatnonzero(same_gpus | same_time):
            touching += 1
            assert colours[i] != colours[k], (boxes[i], boxes[k])
    assert touching > 300


def test_a_wide_job_and_the_nine_that_follow_on_its_gpus_are_told_apart():
    begin = np.array([0.0] + [1.0] * 9)
    box = np.array([[0.0, 9.0]] + [[float(k), k + 1.0] for k in range(9)])
    tint = tints(begin, begin + 1, box, np.arange(10))
    assert all(tint[k] != tint[0] for k in range(1, 10))
    assert all(tint[k] != tint[k + 1] for k in range(1, 9))


def test_gantt_refuses_what_it_cannot_draw(story, many_jobs, monkeypatch):
    run = story.load()
    monkeypatch.setattr(import_module("analysis.figures.gantt"), "MAX_GANTT_BARS", 3)
    with pytest.raises(RunError, match="too many stretches"):
        gantt(run)
    assert len(gantt(windowed(run, 110, 140)).axes[0].collections[0].get_paths()) == 2


def test_many_runs_and_empty_ones_can_be_drawn(run_files, tmp_path):
    """A run in which nothing ran, one of a single instant, and nine at once (more than there are colours)."""
    empty = run_files("empty").node().job("a", 0, 1, 9, state="rejected", reason="too large").load()
    instant = run_files("instant").node().job("a", 0, 0).segment("a", 0, 0, [0]).load()
    assert len(figures.draw_all([empty], tmp_path / "e", ["png"])) == 7
    assert len(figures.draw_all([instant], tmp_path / "i", ["png"])) == 7
    overtime.queue_over_time([empty, instant] * 4 + [empty])
    distribution.jct_cdf([instant] * 9)


def test_wrong_formats_and_folders_are_said(story, tmp_path):
    run = story.load()
    with pytest.raises(RunError, match="unknown figure format; got 'jpg'; allowed: png, pdf, svg"):
        figures.draw_all([run], tmp_path, ["jpg"])
    with pytest.raises(RunError, match="no runs"):
        figures.draw_all([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(HetsimError, match=r"file/jct_cdf\.png: the file cannot be written"):
        figures.draw_all([run], tmp_path / "file", ["png"])


def test_figures_that_are_there_stay_unless_forced(story, tmp_path):
    run, mine = story.load(), tmp_path / "queue.png"
    mine.write_text("mine")
    with pytest.raises(HetsimError, match=r"queue\.png: the file is there already"):
        figures.draw_all([run], tmp_path, ["png"], ["cost", "queue"])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir() if file.is_file()] == [("queue.png", "mine")]
    figures.draw_all([run], tmp_path, ["png"], ["cost", "queue"], force=True)
    assert mine.read_bytes().startswith(b"\x89PNG")
