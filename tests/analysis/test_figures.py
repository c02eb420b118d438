"""Figures: the same bytes each time, fonts embedded, units on the axes; what is drawn is the run's data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from analysis import figures
from analysis.drawing import distribution, overtime, tradeoff
from analysis.drawing.gantt import gantt
from analysis.drawing.style import save
from analysis.metrics import cost_usd, jct_s
from analysis.run import RunError

ROOT = Path(__file__).resolve().parents[2]


def test_draw_all_writes_each_figure_in_each_format(story, tmp_path):
    files = figures.draw_all([story.load()], tmp_path / "new" / "figures")
    drawn = ("jct_cdf", "queueing", "rho_cdf", "utilisation", "queue", "overview", "cost", "gantt")
    names = {f"{n}.{k}" for n in drawn for k in ("png", "pdf")}
    assert {f.name for f in files} == names == {f.name for f in (tmp_path / "new" / "figures").iterdir()}
    assert all(f.read_bytes()[:4] == (b"\x89PNG" if f.suffix == ".png" else b"%PDF") for f in files)


def test_the_same_run_gives_the_same_bytes_in_another_process(story, tmp_path):
    run = story.load()
    first = figures.draw_all([run], tmp_path / "one")
    code = (
        "import sys; from analysis.figures import draw_all; from analysis.run import load_run; "
        "draw_all([load_run(sys.argv[1])], sys.argv[2])"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(run.path), str(tmp_path / "two")],
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
    )
    for file in first:
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


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
    unknown = run_files("u").node("T4", 1, None).job("a", 0, 3600).segment("a", 0, 3600, [0]).load()
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


def test_gantt_refuses_what_it_cannot_draw(story, many_jobs, monkeypatch):
    run = story.load()
    with pytest.raises(RunError, match="window"):
        gantt(run, 50, 50)
    with pytest.raises(RunError, match="unknown rows"):
        gantt(run, rows="rack")
    monkeypatch.setattr("analysis.drawing.gantt.MAX_GANTT_BARS", 3)
    with pytest.raises(RunError, match="too many stretches"):
        gantt(run)
    assert len(gantt(run, 110, 140).axes[0].collections[0].get_paths()) == 2


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
    with pytest.raises(RunError, match="unknown figure format; got 'jpg'; allowed: png, pdf"):
        figures.draw_all([run], tmp_path, ["jpg"])
    with pytest.raises(RunError, match="no runs"):
        figures.draw_all([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        figures.draw_all([run], tmp_path / "file", ["png"])
