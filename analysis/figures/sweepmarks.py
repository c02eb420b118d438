"""The marks of a sweep's figure in one panel, a function for each kind (`DRAWERS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from analysis.figures.distribution import TIMES, percent
from analysis.figures.style import MARKS, WIDTHS_IN, fill, log_scale, look, scale, short
from analysis.figures.sweepasked import KindName
from analysis.figures.sweeptable import text
from analysis.figures.sweepwords import Words, unit
from analysis.figures.tradeoff import draw_front

HEAT = "cividis"


def _places(axes: Axes, words: Words, numbers: bool) -> dict[Any, float]:
    """Where each x stands: numbers at their value, all else one beside the other."""
    if numbers:
        axes.set_xticks(words.xs, [text(x) for x in words.xs])
        return {x: float(x) for x in words.xs}
    names = [short(words.name(x), 22) for x in words.xs]
    width_in = WIDTHS_IN[words.picture.width] / max(1, len(words.panels))
    slanted = sum(map(len, names)) + 2 * len(names) > 16 * width_in
    axes.set_xticks(range(len(names)), names, rotation=35 if slanted else 0, ha="right" if slanted else "center",
                    rotation_mode="anchor")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(axis="x", visible=False)
    return {x: float(i) for i, x in enumerate(words.xs)}


def lines(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """Means as lines, their intervals as bands; over texts points with bars instead, beside each other."""
    _points(axes, rows, words, "mean")
    scale(axes, "y", words.values(rows))


def ratios(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """Ratios as points with bars, and the line of those that are equal."""
    axes.axhline(1.0, color="#555555", linewidth=0.8, zorder=0.9)
    _points(axes, rows, words, "ratio")
    scale(axes, "y", words.values(rows))


def _points(axes: Axes, rows: pd.DataFrame, words: Words, value: str) -> None:
    at = _places(axes, words, words.numbers)
    # Bands of ratios lie on each other: there, too, bars stand side by side.
    banded = words.numbers and value == "mean"
    between = np.diff(words.xs).min() if words.numbers and len(words.xs) > 1 else 1.0
    apart = 0.0 if banded else between * (0.25 if words.numbers else 0.7) / len(words.lines)
    for i, line in enumerate(words.lines):
        mine = rows[(rows["line"] == line) & rows[value].notna()]
        if not len(mine):
            continue
        x = mine["x"].map(at).to_numpy(np.float64) + (i - (len(words.lines) - 1) / 2) * apart
        y, low, high = (mine[name].to_numpy(np.float64) for name in (value, "low", "high"))
        mark: dict[str, Any] = {"marker": MARKS[i % len(MARKS)], "markersize": 3.5, "label": words.name(line)}
        line_look = look(i) if words.numbers else look(i) | {"linestyle": "none"}
        if banded:
            axes.plot(x, y, **line_look, **mark)
            axes.fill_between(x, low, high, color=line_look["color"], alpha=0.15, linewidth=0)
        else:
            axes.errorbar(x, y, np.nan_to_num([y - low, high - y]), **line_look, elinewidth=0.8, capsize=1.5, **mark)


def bars(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """Means as bars from zero, their intervals on them."""
    at, wide = _places(axes, words, False), 0.8 / len(words.lines)
    for i, line in enumerate(words.lines):
        mine = rows[(rows["line"] == line) & rows["mean"].notna()]
        x = mine["x"].map(at).to_numpy(np.float64) + (i - (len(words.lines) - 1) / 2) * wide
        y, low, high = (mine[name].to_numpy(np.float64) for name in ("mean", "low", "high"))
        axes.bar(x, y, wide, label=words.name(line), **fill(i))
        axes.errorbar(x, y, np.nan_to_num([y - low, high - y]), fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5)
    values = words.values(rows)
    axes.set_ylim(1.05 * min(values.min(initial=0.0), 0.0), 1.05 * values.max(initial=1e-9))


def heat(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """A cell for each pair, its mean written in it; what is unknown or not done is hatched."""
    table = rows.pivot_table(index="y", columns="x", values="mean", sort=False, dropna=False, aggfunc="first")
    table = table.reindex(index=words.ys, columns=words.xs)
    norm, values = colours(words.shown), table.to_numpy(np.float64)
    axes.set_facecolor("white")
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=HEAT, norm=norm, edgecolors="white", linewidth=0.5)
    digits = words.digits()
    for (j, i), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(i + 0.5, j + 0.5, f"{value:,.{digits}f}", ha="center", va="center", fontsize=6,
                      color="white" if norm(value) < 0.55 else "black")
        else:
            axes.fill([i, i + 1, i + 1, i], [j, j, j + 1, j + 1], facecolor="none", edgecolor="#888888",
                      hatch="////", linewidth=0.0)
    slanted = max(len(words.name(x)) for x in words.xs) > 4
    axes.set_xticks(np.arange(len(words.xs)) + 0.5, [short(words.name(x), 24) for x in words.xs],
                    rotation=35 if slanted else 0, ha="right" if slanted else "center", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(words.ys)) + 0.5, [short(words.name(y), 24) for y in words.ys])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    if isinstance(words.ys[0], str):
        axes.set_ylim(len(words.ys), 0)  # names are read from above, numbers grow upwards


def colours(shown: pd.DataFrame) -> Normalize:
    """Which value is which colour, the same in all panels."""
    values = shown["mean"].dropna()
    return Normalize(values.min(), values.max()) if len(values) else Normalize(0, 1)


def fronts(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """A mark for each line, and the front."""
    points = rows.assign(name=[words.name(line) for line in rows["line"]])
    points.index = pd.Index([words.lines.index(line) for line in rows["line"]])
    draw_front(axes, points)


def curves(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """Distributions as steps; times have ticks that say their units."""
    for i, line in enumerate(words.lines):
        mine = rows[rows["line"] == line]
        if len(mine):
            axes.plot(mine["x"], mine["share"], drawstyle="steps-post", label=words.name(line), **look(i))
    log_scale(axes, "x")
    percent(axes)
    if unit(words.measures[0]) == "s":
        low, high = rows["x"][rows["x"] > 0].min(), rows["x"].max()
        ticks = [at for at in TIMES if low <= at <= high]
        axes.set_xticks(ticks, [TIMES[at] for at in ticks])
        axes.minorticks_off()


DRAWERS: dict[KindName, Callable[[Axes, pd.DataFrame, Words], None]] = {
    "lines": lines, "bars": bars, "heat": heat, "pareto": fronts, "cdf": curves, "ratio": ratios,
}
"""What draws the rows of one panel, by the kind of figure."""
