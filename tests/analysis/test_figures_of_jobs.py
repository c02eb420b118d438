"""Queueing by GPU count, fairness, cost against JCT, plans: what is drawn is the runs' data, and is legible."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from analysis import figures
from analysis.figures.distribution import curve, jct_cdf, queueing, rho_cdf, wait_classes
from analysis.figures.overtime import held_panels, overview, queue_over_time, queue_panels, utilisation_over_time
from analysis.figures.planfigure import plan_of
from analysis.figures.style import WIDTHS_IN
from analysis.figures.tradeoff import pareto
from analysis.measuring_window import windowed
from analysis.metrics import finished, per_job, queue_s
from analysis.report import charts
from analysis.run import RunError


def ticks(axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def boxes(axes) -> list[Bbox]:
    return [patch.get_path().get_extents() for patch in axes.patches]


def test_queueing_boxes_are_the_quartiles_of_their_class_and_say_of_how_many_jobs(many_jobs):
    run = many_jobs(600, nodes=6).load()
    (axes,) = queueing([run]).axes
    gang, waited = run.jobs["num_gpus"].to_numpy(), queue_s(run)
    assert ticks(axes) == [f"{n}\n{int((gang == n).sum())}" for n in (1, 2, 4)]
    for n, box in zip((1, 2, 4), boxes(axes), strict=True):
        assert (box.y0, box.y1) == pytest.approx(np.percentile(waited[gang == n], [25, 75]))
    whiskers = [line.get_ydata() for line in axes.lines if len(set(line.get_ydata())) == 2]
    exact = np.concatenate([np.percentile(waited[gang == n], [5, 95]) for n in (1, 2, 4)])
    assert sorted(float(y[1]) for y in whiskers) == pytest.approx(sorted(exact))
    assert "5th and 95th percentile" in axes.get_figure().get_supxlabel()


def test_many_sizes_are_put_into_classes_and_shares_are_one(run_files):
    run = run_files().node(gpus=32)
    for n, gang in enumerate((1, 2, 3, 4, 5, 16, 17)):
        run.job(f"j{n}", 0, 10, gang).segment(f"j{n}", 0, 10, list(range(gang)))
    run.job("half", 0, 10, gpu_milli=500).segment("half", 0, 10, [31])
    (axes,) = queueing([run.load()]).axes
    assert ticks(axes) == ["<1\n1", "1\n1", "2–4\n3", "5–8\n1", "9–16\n1", ">16\n1"]


def test_the_fairness_curve_is_that_of_rho_with_a_line_at_one(story):
    run = story.load()
    (axes,) = rho_cdf([run]).axes
    rho = np.sort(per_job(run)["rho"].dropna())
    assert axes.lines[0].get_xdata()[1:].tolist() == pytest.approx(rho.tolist())
    assert list(axes.lines[-1].get_xdata()) == [1, 1]


def test_a_run_without_finished_jobs_says_so(run_files):
    run = run_files().node().job("a", 0, 9, state="unfinished").segment("a", 0, 5, [0], end_reason="horizon").load()
    (axes,) = rho_cdf([run]).axes
    assert [text.get_text() for text in axes.texts] == ["no finished job"]
    assert pareto([run]).get_supxlabel() == "no finished job: fifo"


def test_a_thinned_curve_keeps_its_ends_and_is_never_off_by_more_than_a_step():
    values = np.random.default_rng([0, 1]).exponential(size=50_000)
    x, share = curve(values)
    assert len(x) <= 2001
    assert (x[0], x[-1], share[0], share[-1]) == (values.min(), values.max(), 0, 1)
    exact = np.searchsorted(np.sort(values), x[1:], side="right") / len(values)
    assert np.abs(share[1:] - exact).max() < 1e-12


def priced(run_files, name: str, price: float | None, length_s: float):
    files = run_files(name).node("V100", 1, price).job("a", 0, length_s).segment("a", 0, length_s, [0])
    files.info["policy"] = name
    return files.load()


def marks(axes) -> dict[str, str]:
    return {line.get_label(): line.get_fillstyle() for line in axes.lines if line.get_marker() != "None"}


def test_an_unknown_price_is_an_arrow_and_on_no_front(run_files):
    known = [priced(run_files, *of) for of in (("dear", 9.0, 100), ("cheap", 1.0, 200), ("bad", 9.0, 200))]
    (axes,) = pareto([*known, priced(run_files, "dark", None, 300)]).axes
    step = next(line for line in axes.lines if line.get_label() == "Pareto front")
    assert step.get_ydata().tolist() == pytest.approx([9 * 100 / 3600, 200 / 3600])
    assert len([text for text in axes.texts if text.arrow_patch is not None]) == 1
    assert marks(axes) == {"dear": "full", "cheap": "full", "bad": "full", "dark": "none"}
    foot = axes.get_figure().get_supxlabel()
    assert "unknown" in foot and "half filled" not in foot


def test_a_run_of_unknown_price_leaves_it_open_whether_slower_ones_are_on_the_front(run_files):
    runs = [("fast", 9.0, 50), ("dear", 9.0, 100), ("bad", 9.0, 200), ("dark", None, 80)]
    (axes,) = pareto([priced(run_files, *of) for of in runs]).axes
    assert marks(axes) == {"fast": "full", "dear": "full", "bad": "full", "dark": "none"}, "only 'fast' is on it anyway"
    (axes,) = pareto([priced(run_files, *of) for of in (*runs, ("cheap", 1.0, 150))]).axes
    assert marks(axes)["cheap"] == "left" and marks(axes)["fast"] == "full"
    assert "half filled" in axes.get_figure().get_supxlabel().replace("\n", " ")


def test_seeds_of_one_policy_share_a_look_and_an_entry_of_the_legend(many_jobs, run_files):
    def run(policy, seed, load=0.7):
        files = run_files(f"{policy}-{seed}-{load}").node(gpus=1).job("a", 0, 9 + seed).segment("a", 0, 9 + seed, [0])
        files.info |= {"policy": policy, "seed": seed, "config": {"load": load, "seed": seed}}
        return files.load()

    runs = [run(policy, seed) for seed in (0, 1, 2) for policy in ("fifo", "srtf")]
    for draw in (jct_cdf, rho_cdf, queueing, utilisation_over_time, queue_over_time, overview):
        figure = draw(runs)
        (above,) = figure.legends
        assert [text.get_text() for text in above.get_texts()] == ["fifo, 3 seeds", "srtf, 3 seeds"], draw
    colours = [line.get_color() for line in jct_cdf(runs).axes[0].lines]
    assert colours == colours[:2] * 3 and colours[0] != colours[1]
    apart = [run("fifo", 0, load) for load in (0.5, 0.9)]
    assert len({line.get_color() for line in jct_cdf(apart).axes[0].lines}) == 2, "another load is no other seed"
    assert len({line.get_color() for line in jct_cdf(apart[:1] * 2).axes[0].lines}) == 2, "nor is the run itself"
    (axes,) = pareto(runs).axes
    assert len([line for line in axes.lines if line.get_marker() != "None"]) == 6


def test_where_nobody_waits_the_mean_is_marked(run_files):
    run = run_files().node(gpus=1).job("a", 0, 9).segment("a", 0, 9, [0]).job("b", 0, 9).segment("b", 9, 18, [0])
    (axes,) = queueing([run.load()]).axes
    assert [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == "D"] == [[4.5]]
    assert "diamond: mean" in axes.get_figure().get_supxlabel()


@pytest.mark.parametrize("draw", [jct_cdf, queueing, rho_cdf])
def test_jobs_that_had_not_left_are_told_at_the_foot(draw, story, run_files):
    run = story.load()
    assert "as they had not left (jobs): fifo 2 of 7" in draw([run]).get_supxlabel()
    done = run_files().node(gpus=1).job("a", 0, 9).segment("a", 0, 9, [0]).load()
    assert "had not left" not in draw([done]).get_supxlabel()
    foot = draw([windowed(run, 0, 30)]).get_supxlabel().replace("\n", " ")
    assert "not drawn, as they had not left (jobs): fifo 2 of 5" in foot


def test_the_page_and_the_figures_show_the_same_boxes_and_panels(many_jobs, story):
    runs = [many_jobs(200, nodes=6).load(), story.load()]
    page = charts.waits(runs)
    names, rows = wait_classes(runs)
    waited = queue_s(runs[0])[(runs[0].jobs["num_gpus"] == 2).to_numpy()]
    box = rows[0][names.index("2")]
    assert box is not None and (box.mean_s, box.jobs) == (pytest.approx(waited.mean()), len(waited))
    assert page["classes"] == names
    assert page["runs"][0][names.index("2")]["at"] == pytest.approx(box.at_s, abs=0.01)


def test_a_run_has_no_line_in_the_panel_of_a_type_that_it_lacks(story, run_files):
    runs = [run_files().node("V100", 1).job("a", 0, 9).segment("a", 0, 9, [0]).load(), story.load()]
    held = held_panels(runs)
    assert {name: [frame is not None for frame in frames] for name, frames in held.items()} == {
        "V100": [True, True], "T4": [False, True]}
    assert len(utilisation_over_time(runs).axes[1].lines) == 1, "no line where a run has none of the type"


def test_types_that_the_cluster_lacks_make_no_panel(run_files):
    run = run_files().node("V100", 1).job("a", 0, 5).segment("a", 0, 5, [0])
    run.job("b", 0, 5, gpu_type="A100", state="rejected", reason="no such type")
    assert list(queue_panels([run.load()])) == ["any GPU type"]


def test_a_window_ends_as_it_was_not_with_all_given_back(story):
    run = story.load()
    window = windowed(run, 0, 15)
    (first, _) = utilisation_over_time([window]).axes
    assert first.lines[0].get_ydata()[-1] == 0.5, "e holds one of two"


def test_the_overview_has_all_types_above_and_all_that_wait_below(story):
    held, waiting = overview([story.load()]).axes
    x, y = held.lines[0].get_data()
    state = dict(zip(x.tolist(), y.tolist(), strict=True))
    assert (state[0], state[20], state[50]) == (2.5 / 4, 1.5 / 4, 0.0)  # a and b; e and c; nobody, with two in service
    assert waiting.get_ylabel() == "jobs waiting\n(jobs)"


@pytest.mark.parametrize(("width", "count"), [("single", 12), ("double", 1)])
def test_nothing_overlaps_at_any_width_with_one_run_or_twelve_of_long_names(story, width, count):
    run = story.load()
    runs = [run] * count
    run.info["policy"] = "a-policy-with-quite_a_long-name"
    for name, draw in figures.FIGURES.items():
        figure = draw(runs, WIDTHS_IN[width])
        figure.canvas.draw()
        renderer, page = figure.canvas.get_renderer(), figure.bbox.padded(2)
        above = [legend.get_window_extent(renderer) for legend in figure.legends]
        for axes in figure.axes:
            assert axes.get_window_extent(renderer).height > 0.4 * figure.dpi, name
            whole = axes.get_tightbbox(renderer)
            assert page.containsx(whole.x0) and page.containsx(whole.x1), name
            assert not any(whole.overlaps(box) for box in above), name
        assert all(page.containsx(box.x0) and page.containsx(box.x1) for box in above), name
        assert figure.get_size_inches()[0] == WIDTHS_IN[width]


def test_a_window_is_drawn_with_its_own_clock(many_jobs):
    run = many_jobs(300, nodes=100).load()
    whole = figures.queue_over_time([run]).axes[-1]
    window = windowed(run, run.window_s[0] + 600, run.window_s[0] + 2400)
    axes = figures.queue_over_time([window]).axes[-1]
    assert whole.get_xlabel().startswith("time since first submit")
    assert axes.get_xlabel() == "time since the window opened (min)"
    assert axes.get_xlim() == (0, pytest.approx(30))
    (cdf,) = figures.jct_cdf([window]).axes
    assert len(cdf.lines[0].get_xdata()) == finished(window).sum() + 1


def test_only_what_is_asked_for_is_drawn_and_a_wrong_name_is_told(story, tmp_path):
    run = story.load()
    drawn = figures.draw_all([run], tmp_path, ["png"], ["pareto", "gantt"])
    assert [file.name for file in drawn] == ["pareto.png", "gantt.png"]
    with pytest.raises(RunError, match=r"unknown figure; got 'gant'.*did you mean 'gantt'"):
        figures.draw_all([run], tmp_path, ["png"], ["gant"])
    with pytest.raises(RunError, match="unknown width"):
        figures.draw_all([run], tmp_path, ["png"], [], "wide")


def stage(stage, first, last, gpu_type, gpus, part=0, share=1.0, begin_s=0.0):
    return {"job_id": "a", "begin_s": begin_s, "stage": stage, "part": part, "first_op": first, "last_op": last,
            "ops": None, "gpu_type": gpu_type, "gpus": gpus, "share": share, "tensor": 1, "micro_batches": 4,
            "schedule": "", "chunks": 1, "recompute": False, "zero": 0, "iteration_s": 0.25, "true_iteration_s": None,
            "memory_gib": 4.0}  # fmt: skip


def test_a_plan_is_a_box_a_stage_as_wide_as_its_operators_and_parted_by_type(story):
    story.plans[:] = [stage(0, 0, 5, "V100", 2), stage(1, 6, 9, "V100", 1, 0, 0.75), stage(1, 6, 9, "T4", 1, 1, 0.25)]
    (axes,) = plan_of(story.load(), "a").axes
    found = [box.get_paths()[0].get_extents().bounds for box in axes.collections]
    assert [(x, width) for x, _, width, _ in found] == [(0, 6), (6, 4), (6, 4)]
    assert [height for _, _, _, height in found] == pytest.approx([0.88, 0.66, 0.22])
    assert {text.get_text() for text in axes.texts} >= {"2 V100\n4.0 GiB"}
    assert axes.get_yticklabels()[0].get_text() == "0.00 s\n250 ms"


def test_each_start_of_a_job_is_a_row_and_of_many_the_last_are_drawn(story):
    story.plans[:] = [stage(0, 0, 9, "V100", 1, begin_s=float(k)) for k in range(30)]
    figure = plan_of(story.load(), "a")
    assert len(figure.axes[0].collections) == 12
    assert "the last 12 of 30 starts" in figure.get_supxlabel().replace("\n", " ")


def test_a_job_without_plan_and_no_job_are_told(story, tmp_path):
    run = story.load()
    with pytest.raises(RunError, match="has no plan; got 'b'"):
        figures.draw_plan(run, "b", tmp_path)
    with pytest.raises(RunError, match="no such job"):
        figures.draw_plan(run, "zzz", tmp_path)
