"""Figures of sweeps: means, intervals and ratios are those of the cells; nothing is averaged unsaid."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.comparing.bootstrap import interval
from analysis.drawing.style import WIDTHS_IN
from analysis.drawing.sweepfigure import draw, figure_of
from analysis.drawing.sweeptable import drawn
from analysis.run import RunError

POLICIES, LOADS, SEEDS, TRACES = ["las", "fifo", "srtf"], [0.5, 0.9, 1.2], [0, 1, 2, 3], ["philly", "pai"]


def sweep(change=lambda row: row, failed=0) -> Any:
    """A sweep of two traces, three policies, three loads and four seeds, with six jobs a run."""
    rng, metrics, jobs = np.random.default_rng([0, 5]), [], []
    for trace, policy, load, seed in product(TRACES, POLICIES, LOADS, SEEDS):
        head = {"trace": trace, "policy": policy, "load": load, "seed": seed}
        jct_s = 3600 * load * (1 + POLICIES.index(policy)) * rng.lognormal(0, 0.1)
        metrics.append(change(head | {"jct_mean_s": jct_s, "cost_usd": 10 * load, "cost_known_usd": 5 * load}))
        jobs += [head | {"job_id": f"j{n}", "finished": n != 5, "jct_s": jct_s * n if n != 5 else np.nan,
                         "cost_usd": 1.0 + n} for n in range(6)]
    tables = {"metrics": pd.DataFrame(metrics), "jobs": pd.DataFrame(jobs)}
    axes = {"trace": TRACES, "policy": POLICIES, "load": LOADS, "seed": SEEDS}
    return SimpleNamespace(axes=axes, columns={name: name for name in axes}, failed=[None] * failed,
                           table=tables.__getitem__)


def picture(kind: str, **keys: Any) -> Any:
    """As `sim.experiment.drawings` has it."""
    from sim.experiment import Drawing, complete

    return complete(Drawing(kind=kind, **keys), "figure")


def test_a_line_is_the_mean_over_seeds_with_its_interval():
    cells = sweep()
    rows = drawn(cells, picture("lines", x="load", line="policy", panel="trace"))
    assert len(rows) == 2 * 3 * 3
    table = cells.table("metrics")
    one = table.query("trace == 'pai' and policy == 'fifo' and load == 0.9")["jct_mean_s"]
    found = rows.query("panel == 'pai' and line == 'fifo' and x == 0.9").iloc[0]
    exact = interval(one, 0.95)
    assert (found["mean"], found["low"], found["high"], found["n"]) == (exact.mean, exact.low, exact.high, 4)


def test_lines_stand_in_the_order_of_the_file_and_the_picture_in_hours():
    what = picture("lines", x="load", line="policy", panel="trace")
    figure = figure_of(drawn(sweep(), what), what)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == POLICIES
    assert [axes.get_title(loc="left") for axes in figure.axes] == TRACES
    assert figure.axes[0].get_ylabel() == "job completion time, mean (h)"
    rows = drawn(sweep(), what).query("panel == 'philly' and line == 'las'")
    assert figure.axes[0].lines[0].get_ydata().tolist() == pytest.approx((rows["mean"] / 3600).tolist())


def test_an_axis_without_a_place_is_refused_not_averaged_over():
    with pytest.raises(RunError, match="axis 'trace' has 2 values and no place"):
        drawn(sweep(), picture("lines", x="load", line="policy"))
    rows = drawn(sweep(), picture("lines", x="load", line="policy", where={"trace": "pai"}))
    assert len(rows) == 9
    with pytest.raises(RunError, match=r"no cell that is done has this trace.*did you mean 'pai'"):
        drawn(sweep(), picture("lines", x="load", line="policy", where={"trace": "pia"}))


def test_what_is_unknown_stays_unknown_and_is_said():
    def dark(row):
        return row | {"cost_usd": np.nan} if row["policy"] == "las" and row["seed"] == 2 else row

    what = picture("bars", x="load", line="policy", y="cost_usd", where={"trace": "pai"})
    rows = drawn(sweep(dark), what)
    assert rows.query("line == 'las'")["mean"].isna().all()
    assert "not drawn, as unknown: 3 of 9" in figure_of(rows, what).get_supxlabel()


def test_a_ratio_is_paired_by_job_and_seed_and_turned_over_by_numerator():
    below = drawn(sweep(), picture("ratio", x="load", line="policy", panel="trace", baseline="las"))
    above = drawn(sweep(), picture("ratio", x="load", line="policy", panel="trace", numerator="las"))
    assert list(below["line"].unique()) == ["fifo", "srtf"]
    assert (below["ratio"] * above["ratio"]).tolist() == pytest.approx([1.0] * len(below))
    assert (below["low"] * above["high"]).tolist() == pytest.approx([1.0] * len(below))
    jobs = sweep().table("jobs").query("trace == 'pai' and load == 1.2 and finished")
    by_seed = jobs.pivot_table("jct_s", "seed", "policy")
    exact = np.exp(np.log(by_seed["srtf"] / by_seed["las"]).mean())
    found = below.query("panel == 'pai' and x == 1.2 and line == 'srtf'").iloc[0]
    assert found["ratio"] == pytest.approx(exact)
    assert (found["seeds"], found["jobs"]) == (4, 20)


def test_several_axes_in_one_place_are_taken_together():
    rows = drawn(sweep(), picture("bars", x=["trace", "policy"], over=["seed", "load"]))
    assert rows["x"].tolist() == [f"{trace}, {policy}" for trace in TRACES for policy in POLICIES]
    assert rows["n"].tolist() == [12] * 6
    one = drawn(sweep(), picture("ratio", x=["policy", "load"], where={"trace": "pai"}, baseline="fifo, 0.9"))
    assert len(one) == 8


def test_a_panel_of_numbers_says_of_what_and_one_of_a_setting_that_is_not_set_is_there():
    cells = sweep()
    metrics = cells.table("metrics").replace({"load": {0.5: np.nan}})
    cells.table = {"metrics": metrics}.__getitem__
    what = picture("lines", x="policy", panel="load", where={"trace": "pai"})
    figure = figure_of(drawn(cells, what), what)
    titles = ["offered load: not set", "offered load: 0.9", "offered load: 1.2"]
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()] == titles
    assert all(axes.containers for axes in figure.axes if axes.get_visible())
    rows = drawn(cells, picture("lines", x="load", line="policy", where={"trace": "pai"}))
    assert rows["x"].unique().tolist() == ["", "0.9", "1.2"]


def test_a_heat_map_has_its_values_written_and_hatches_what_is_missing():
    def dark(row):
        return row | {"jct_mean_s": np.nan} if row["policy"] == "las" and row["load"] == 0.5 else row

    what = picture("heat", x="load", y="policy", where={"trace": "pai"}, width="single")
    rows = drawn(sweep(dark), what)
    axes = figure_of(rows, what).axes[0]
    assert len(axes.texts) == 8
    assert len(axes.patches) == 1
    assert axes.patches[0].get_hatch()
    place = {text.get_position(): float(text.get_text()) for text in axes.texts}
    exact = rows.query("x == 0.9 and y == 'srtf'")["mean"].iloc[0] / 3600
    assert place[1.5, 2.5] == pytest.approx(exact, abs=0.005)


def test_a_pareto_front_of_a_sweep_counts_only_known_costs():
    def dark(row):
        return row | {"cost_usd": np.nan} if row["policy"] == "las" else row

    rows = drawn(sweep(dark), picture("pareto", panel="trace", where={"load": 0.9}))
    las = rows.query("line == 'las'")
    assert las["y"].tolist() == pytest.approx([4.5, 4.5])
    assert not las["known"].any()
    assert las["on_front"].isna().all()
    assert rows.query("line == 'fifo'")["on_front"].all()


def test_a_distribution_is_of_the_finished_jobs_of_all_seeds():
    rows = drawn(sweep(), picture("cdf", panel=["trace", "load"]))
    assert set(rows["n"]) == {5 * len(SEEDS)}
    assert rows.groupby(["panel", "line"])["share"].max().eq(1).all()
    assert rows["panel"].iloc[0] == "philly, 0.5"


def test_failed_cells_are_said_and_nothing_is_an_error():
    what = picture("lines", x="load", line="policy", where={"trace": "pai"})
    assert "failed and missing: 3 cells" in figure_of(drawn(sweep(), what), what, 3).get_supxlabel()
    cells = sweep()
    cells.table = lambda name: sweep().table(name).iloc[:0]
    with pytest.raises(RunError, match="nothing to draw"):
        drawn(cells, picture("lines", x="load", line="policy", panel="trace"))


KINDS = {
    "lines": {"x": "load", "line": "policy", "panel": "trace", "y": ["jct_mean_s", "cost_usd"]},
    "bars": {"x": "policy", "line": "load", "panel": "trace"},
    "heat": {"x": "load", "y": "policy", "panel": "trace"},
    "pareto": {"panel": "trace", "where": {"load": 0.9}},
    "cdf": {"panel": ["trace", "load"]},
    "ratio": {"x": "policy", "line": "load", "panel": "trace", "baseline": "0.5", "y": ["jct_s", "cost_usd"]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", ["single", "double"])
def test_the_table_beside_a_figure_is_what_it_shows_and_nothing_overlaps(kind, width, tmp_path):
    what = picture(kind, width=width, title="A title", **KINDS[kind])
    table, png, pdf = draw(sweep(), what, tmp_path, "f")
    assert (table.name, png.name, pdf.name) == ("f.csv", "f.png", "f.pdf")
    rows = drawn(sweep(), what)
    pd.testing.assert_frame_equal(pd.read_csv(table, dtype={"line": str, "panel": str}, keep_default_na=False,
                                              na_values=["NaN"]).astype(str), rows.astype(str).replace("nan", ""))
    figure = figure_of(rows, what)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    assert figure.get_size_inches()[0] == WIDTHS_IN[width]
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes if axes.get_visible()]
    assert all(figure.bbox.padded(2).containsx(box.x0) and figure.bbox.padded(2).containsx(box.x1) for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert not any(box.overlaps(legend.get_window_extent(renderer)) for box in boxes for legend in figure.legends)


def test_the_same_sweep_gives_the_same_bytes(tmp_path):
    what = picture("ratio", x="load", line="policy", panel="trace", baseline="las")
    for folder in ("a", "b"):
        draw(sweep(), what, tmp_path / folder, "f")
    for name in ("f.csv", "f.png", "f.pdf"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
