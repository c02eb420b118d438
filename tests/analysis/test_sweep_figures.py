"""Figures of sweeps: means, intervals and ratios are those of the cells; nothing is averaged unsaid."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from analysis.compare.bootstrap import interval
from analysis.figures.style import WIDTHS_IN
from analysis.figures.sweepasked import KINDS, Drawing, KindName
from analysis.figures.sweepdrawing import complete
from analysis.figures.sweepfigure import draw, figure_of
from analysis.figures.sweepmarks import DRAWERS
from analysis.figures.sweeptable import ROWS, drawn
from analysis.figures.sweepwords import REMARKS
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
                         "cost_usd": 1.0 + n, "gpu_s": 60.0 * n, "energy_kwh": 0.5 * n, "slowdown": 2.0 + n}
                 for n in range(6)]
    tables = {"metrics": pd.DataFrame(metrics), "jobs": pd.DataFrame(jobs)}
    axes = {"trace": TRACES, "policy": POLICIES, "load": LOADS, "seed": SEEDS}
    return SimpleNamespace(axes=axes, columns={name: name for name in axes}, failed=[None] * failed,
                           table=tables.__getitem__)


def picture(kind: str, **keys: Any) -> Any:
    """As `drawings` has it."""
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
    assert figure.axes[0].get_ylabel() == "mean JCT (h)"
    rows = drawn(sweep(), what).query("panel == 'philly' and line == 'las'")
    assert figure.axes[0].lines[0].get_ydata().tolist() == pytest.approx((rows["mean"] / 3600).tolist())


def test_a_measure_is_called_by_its_short_name_or_as_the_file_says():
    what = picture("lines", x="load", line="policy", where={"trace": "pai"}, y=["jct_mean_s", "cost_usd"])
    labels = [axes.get_ylabel() for axes in figure_of(drawn(sweep(), what), what).axes]
    assert labels == ["mean JCT (h)", "cost (USD)"]
    named = what.model_copy(update={"names": {"jct_mean_s": "average", "load": "ρ"}})
    (jct, cost) = figure_of(drawn(sweep(), named), named).axes
    assert (jct.get_ylabel(), jct.get_xlabel(), cost.get_ylabel()) == ("average (h)", "ρ", "cost (USD)")


def test_the_load_asked_for_is_not_taken_for_the_load_measured():
    what = picture("lines", x="load", line="policy", where={"trace": "pai"}, y="offered_load")
    cells = sweep(lambda row: row | {"offered_load": 0.8})
    (axes,) = figure_of(drawn(cells, what), what).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("load asked for", "recorded load to the end")


@pytest.mark.parametrize("kind", ["lines", "heat", "cdf"])
def test_a_dollar_in_a_title_or_name_is_text(kind, tmp_path):
    odd = "cost $x_{$"
    what = picture(kind, title=odd, names=dict.fromkeys((*POLICIES, *TRACES, "jct_mean_s", "jct_s", "load"), odd),
                   **EXAMPLES[kind])
    assert all(file.stat().st_size for file in draw(sweep(), what, tmp_path, "f"))


def test_a_ratio_to_what_was_not_done_says_what_there_is():
    with pytest.raises(RunError, match=r"figure.baseline: no cell .* has this policy; got 'gavel'; allowed: las; fifo"):
        drawn(sweep(), picture("ratio", x="load", line="policy", panel="trace", baseline="gavel"))


def test_an_interval_ends_where_the_measure_does():
    unlike = {0: 1.0, 1: 2.0, 2: 90.0, 3: 1.0}

    def few(row):
        value = unlike[row["seed"]]
        return row | {"jct_mean_s": value, "lateness_mean_s": value, "utilisation_share": min(1.0, value / 4)}

    what = picture("bars", x="policy", where={"trace": "pai", "load": 0.9},
                   y=["jct_mean_s", "lateness_mean_s", "utilisation_share"])
    rows = drawn(sweep(few), what).groupby("measure")
    exact = interval(pd.Series(unlike), 0.95)
    assert exact.low < 0
    assert rows["low"].unique().map(list).to_dict() == {"jct_mean_s": [0], "lateness_mean_s": [exact.low],
                                                        "utilisation_share": [0]}
    assert (rows["high"].max()["jct_mean_s"], rows["high"].max()["utilisation_share"]) == (exact.high, 1)


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
    titles = ["load asked for: not set", "load asked for: 0.9", "load asked for: 1.2"]
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


def test_each_measure_is_in_a_unit_of_its_own():
    what = picture("pareto", where={"trace": "pai", "load": 0.9})
    rows = drawn(sweep(), what)
    (axes,) = figure_of(rows, what).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("mean JCT (min)", "cost (USD)")
    marks = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    las = rows.query("line == 'las'").iloc[0]
    assert marks["las"] == pytest.approx((las["x"] / 60, las["y"]))

    what = picture("lines", x="load", line="policy", where={"trace": "pai"}, y=["jct_mean_s", "cost_usd"])
    rows = drawn(sweep(), what)
    jct, cost = (axes.lines[0].get_ydata().tolist() for axes in figure_of(rows, what).axes)
    assert jct == pytest.approx((rows.query("line == 'las' and measure == 'jct_mean_s'")["mean"] / 3600).tolist())
    assert cost == pytest.approx([5, 9, 12])


def test_a_distribution_is_of_the_finished_jobs_of_all_seeds():
    rows = drawn(sweep(), picture("cdf", panel=["trace", "load"]))
    assert set(rows["n"]) == {5 * len(SEEDS)}
    assert rows.groupby(["panel", "line"])["share"].max().eq(1).all()
    assert rows["panel"].iloc[0] == "philly, 0.5"


@pytest.mark.parametrize(
    ("measure", "label", "ticks_are_times"),
    [
        ("jct_s", "job completion time", True),
        ("gpu_s", "GPU time held (GPU-s)", False),
        ("cost_usd", "cost of GPU time held (USD)", False),
        ("energy_kwh", "energy (kWh)", False),
        ("slowdown", "slowdown", False),
    ],
)
def test_an_axis_of_a_distribution_says_its_unit_below_it_or_along_its_ticks(measure, label, ticks_are_times):
    what = picture("cdf", x=measure, where={"trace": "pai", "load": 0.9})
    axes = figure_of(drawn(sweep(), what), what).axes[0]
    assert axes.get_xlabel() == label
    ticks = {text.get_text() for text in axes.get_xticklabels()}
    assert bool(ticks & {"1 s", "1 min", "1 h", "1 d"}) == ticks_are_times


def test_each_kind_that_a_file_may_name_is_there():
    assert tuple(KINDS) == tuple(ROWS) == tuple(DRAWERS) == tuple(REMARKS) == get_args(KindName)
    for kind in KINDS.values():
        named = {*kind.axes, *kind.defaults}
        assert {*kind.needs, *kind.scaled} <= named
        assert not set(kind.needs) & set(kind.defaults)


def test_failed_cells_are_said_and_nothing_is_an_error():
    what = picture("lines", x="load", line="policy", where={"trace": "pai"})
    assert "failed and missing: 3 cells" in figure_of(drawn(sweep(), what), what, 3).get_supxlabel()
    cells = sweep()
    cells.table = lambda name: sweep().table(name).iloc[:0]
    with pytest.raises(RunError, match="nothing to draw"):
        drawn(cells, picture("lines", x="load", line="policy", panel="trace"))


EXAMPLES = {
    "lines": {"x": "load", "line": "policy", "panel": "trace", "y": ["jct_mean_s", "cost_usd"]},
    "bars": {"x": "policy", "line": "load", "panel": "trace"},
    "heat": {"x": "load", "y": "policy", "panel": "trace"},
    "pareto": {"panel": "trace", "where": {"load": 0.9}},
    "cdf": {"panel": ["trace", "load"]},
    "ratio": {"x": "policy", "line": "load", "panel": "trace", "baseline": "0.5", "y": ["jct_s", "cost_usd"]},
}


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("width", ["single", "double"])
def test_the_table_beside_a_figure_is_what_it_shows_and_nothing_overlaps(kind, width, tmp_path):
    what = picture(kind, width=width, title="A title", **EXAMPLES[kind])
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
