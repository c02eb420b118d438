"""What runs cost, and what that buys: cost by GPU type, and mean JCT against cost with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.compare.paired import pareto as on_front
from analysis.figures.seeds import entries
from analysis.figures.style import WIDTH_IN, fill, legend, mark, new_figure, note, scale, short, style, time_unit
from analysis.metrics import cost_known_usd, cost_usd, finished, jct_s
from analysis.metrics.costs import cost_egress_usd, cost_known_by_type_usd, segment_egress_usd
from analysis.metrics.gputime import held_gpu_s, of_types
from analysis.run import Run, labels

UNKNOWN = "hollow, ↑: a price is unknown, the cost is at least this; whether it is on the front cannot be said"
UNSURE = "half filled: on the front, unless a run of unknown price beats it"


def cost_bars(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """Cost of each run, stacked by GPU type; where a price is unknown it says so and shows what is known."""
    with style(width_in):
        figure, (axes,) = new_figure(height_in=0.9 + 0.38 * len(runs))
        types = list(dict.fromkeys(name for run in runs for name in run.types))
        left = np.zeros(len(runs))
        for k, name in enumerate(types):
            part = np.array([cost_known_by_type_usd(run).get(name, 0.0) for run in runs])
            axes.barh(range(len(runs)), part, left=left, height=0.62, label=name, **fill(k))
            left += part
        sent = np.array([float(np.nansum(segment_egress_usd(run))) for run in runs])
        if sent.any():
            look = {"label": "bytes that left a zone", **fill(len(types))}
            axes.barh(range(len(runs)), sent, left=left, height=0.62, **look)
            left += sent
        texts = [_total(run) for run in runs]
        for i, text in enumerate(texts):
            axes.annotate(f" {text}", (left[i], i), va="center", fontsize=7)
        axes.set_yticks(range(len(runs)), [short(name, int(6 * width_in)) for name in labels(runs)])
        axes.set_ylim(len(runs) - 0.5, -0.5)
        # What stands behind the longest bar takes that part of the axes, some 70 % of the figure.
        room = min(max(map(len, texts)) * 0.055 / (0.7 * width_in) + 0.02, 0.8)
        axes.set_xlim(0, left.max() / (1 - room) if left.max() > 0 else 1.0)
        axes.set_xlabel(f"cost of GPU time held{' and of egress' if sent.any() else ''} (USD)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))
        axes.xaxis.set_major_locator(MaxNLocator(max(2, int(width_in))))
        axes.grid(axis="y", visible=False)
        legend(figure, *axes.get_legend_handles_labels())
        unknown = {i: _unpriced(run) for i, run in enumerate(runs) if cost_usd(run) is None}
        note(figure, "\n".join(f"price unknown: {what}" + (f" ({short(labels(runs)[i], 30)})" if len(runs) > 1 else "")
                               for i, what in unknown.items()))
    return figure


def _total(run: Run) -> str:
    total = cost_usd(run)
    return f"{total:,.2f}" if total is not None else f"≥ {cost_known_usd(run):,.2f}"


def _unpriced(run: Run) -> str:
    """GPU-hours held whose price is unknown, by type, and whether that of bytes that left a zone is."""
    hours = of_types(run, np.where(np.isnan(run.column("nodes", "price_usd_per_gpu_h")), held_gpu_s(run) / 3600.0, 0.0))
    egress = ["bytes that left a zone"] * (cost_egress_usd(run) is None)
    return ", ".join([*(f"{held:,.2f} GPU-h of {name}" for name, held in hours.items() if held > 0), *egress])


def pareto(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """Mean JCT of the finished jobs against the cost of the whole run; the Pareto front is a step line.

    A run of which a price is unknown is drawn hollow at what is known of its cost, with an arrow up; whether it is on
    the front cannot be said. A run in which no job finished is left out and named.
    """
    names, looks = labels(runs), entries(runs)
    points = pd.DataFrame({
        "name": [entry.label for entry in looks],
        "x": [float(jct_s(run)[finished(run)].mean()) if finished(run).any() else np.nan for run in runs],
        "y": [cost_known_usd(run) for run in runs],
        "known": [cost_usd(run) is not None for run in runs],
    }, index=[entry.number for entry in looks])
    size, unit = time_unit(float(np.nan_to_num(points["x"].max(), nan=0.0)))
    points["x"] /= size
    with style(width_in):
        figure, (axes,) = new_figure(height_in=3.0)
        draw_front(axes, points)
        axes.set(xlabel=f"mean JCT of finished jobs ({unit})", ylabel="cost of GPU time held (USD)")
        legend(figure, *axes.get_legend_handles_labels())
        remarks = [UNKNOWN] * bool((~points["known"]).any())
        remarks += [UNSURE] * bool(fronts(points)[1].any())
        missing = [short(name, 30) for name, gone in zip(names, points["x"].isna(), strict=True) if gone]
        remarks += [f"no finished job: {', '.join(missing)}"] * bool(missing)
        note(figure, "\n".join(remarks))
    return figure


def fronts(points: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """bool [points], twice: on the Pareto front of points of known y; of these, which one of unknown y may beat."""
    priced = points.assign(y=points["y"].where(points["known"]), least=points["y"])
    on = on_front(priced, "x", "y").fillna(False).to_numpy(bool)
    sure = on_front(priced, "x", "y", at_least={"y": "least"}).fillna(False).to_numpy(bool)
    return on, on & ~sure


def draw_front(axes: Axes, points: pd.DataFrame) -> None:
    """Points by their marks, and the Pareto front of those of known y as a step line.

    A point is hollow where its y is unknown, and half filled where one of these may beat it, so that it cannot be said
    whether it is on the front. An axis on which the largest is ten times the smallest is logarithmic.

    Parameters
    ----------
    points : columns name, x, y, known, its index the number of the mark; x_low, x_high, y_low, y_high: intervals.
    """
    on, unsure = fronts(points)
    line = points[on].sort_values("x")
    axes.step(line["x"], line["y"], where="post", color="#999999", linewidth=1.0, zorder=1,
              label="Pareto front" if len(line) else "_")
    for i, p, half in zip(points.index.tolist(), points.to_dict("records"), unsure.tolist(), strict=True):
        x, y, look = float(p["x"]), float(p["y"]), mark(i)
        if not np.isfinite(x):
            continue
        if "x_low" in p:
            axes.errorbar([x], [y], [[y - p["y_low"]], [p["y_high"] - y]], [[x - p["x_low"]], [p["x_high"] - x]],
                          ecolor=look["color"], elinewidth=0.7, fmt="none", zorder=2)
        axes.plot([x], [y], **look, markersize=6, zorder=3, label=p["name"],
                  fillstyle="left" if half else "full" if p["known"] else "none")
        if not p["known"]:
            axes.annotate("", (x, y), xytext=(0, 16), textcoords="offset points", annotation_clip=False,
                          arrowprops={"arrowstyle": "<-", "color": look["color"], "shrinkA": 0, "shrinkB": 3})
    axes.margins(0.12)
    for column in ("x", "y"):
        scale(axes, column, points[column].to_numpy(np.float64))
