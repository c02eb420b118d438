"""Figures of a sweep: lines, bars, heat maps, Pareto fronts, distributions, ratios; each with the table of what it is.

What is drawn is worked out in `sweeptable`; here it gets its place, its units and its marks. A picture is
described as `sim.experiment.Drawing` has it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import fill as fill_text
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from analysis.drawing.distribution import TIMES, percent
from analysis.drawing.style import (
    FORMATS,
    MARKS,
    WIDTHS_IN,
    fill,
    legend,
    look,
    new_panels,
    note,
    save,
    scale,
    short,
    style,
)
from analysis.drawing.sweeptable import Cells, drawn, text
from analysis.drawing.sweepwords import Words, remarks
from analysis.drawing.tradeoff import draw_front
from analysis.run import RunError

PANEL_IN = 1.65
"""A panel is at least so wide; those that do not fit beside each other go below."""
HEAT = "cividis"


def draw(sweep: Cells, picture: Any, folder: Path, stem: str) -> list[Path]:
    """Write what a figure shows as CSV (`sweeptable.drawn`), and the figure as PNG and PDF; returns the files.

    Raises
    ------
    RunError
        As `drawn`, or a folder that cannot be written.
    """
    rows = drawn(sweep, picture)
    figure = figure_of(rows, picture, len(sweep.failed))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{stem}.csv.part"
        rows.to_csv(part, index=False, lineterminator="\n")
        part.replace(folder / f"{stem}.csv")
        return [folder / f"{stem}.csv", *(save(figure, folder / f"{stem}.{kind}") for kind in FORMATS)]
    except OSError as error:
        raise RunError("the figure cannot be written", where=str(folder), got=error.strerror,
                       todo="Name another folder.") from None


def figure_of(rows: pd.DataFrame, picture: Any, failed: int = 0) -> Figure:
    """The figure of a table of `drawn`: a panel for each value of `panel`, several measures below each other.

    `failed` cells of the sweep are missing in it, which it says.
    """
    words = Words(rows, picture)
    shown = words.in_units(rows)
    cells = [(measure, panel) for measure in words.measures for panel in words.panels]
    width_in, heat = WIDTHS_IN[picture.width], picture.kind == "heat"
    fit = max(1, int(width_in / (PANEL_IN * (1.3 if heat else 1.0))))
    # Rows are of one measure each, so that they share an axis; one panel alone has its measures beside each other.
    alone = len(words.panels) == 1
    across = len(words.panels) if len(words.measures) > 1 and not alone else min(len(cells), fit)
    down = -(-len(cells) // across)
    with style(width_in):
        free = picture.kind == "pareto"
        figure, grid = new_panels(down, across, 0.5 + 1.9 * down, sharex=not free, sharey=not (free or alone) and "row")
        flat = [axes for row in grid for axes in row]
        for n, (axes, (measure, panel)) in enumerate(zip(flat, cells, strict=False)):
            mine = shown[(shown["measure"] == measure) & (shown["panel"] == panel)]
            KINDS[picture.kind](axes, mine, words)
            axes.set_title(words.panel(panel), loc="left")
            if n % across == 0 or alone:
                axes.set_ylabel("\n".join(fill_text(line, 30) for line in words.ylabel(measure).split("\n")))
            if n + across >= len(cells):
                axes.set_xlabel(fill_text(words.xlabel(), int(13 * width_in / across)))
                axes.tick_params(labelbottom=True)
        for axes in flat[len(cells) :]:
            axes.set_visible(False)
        if heat:
            label = fill_text(words.label(picture.value), 30)
            figure.colorbar(ScalarMappable(_norm(shown), HEAT), ax=flat, label=label).outline.set_visible(False)
        handles = {n: h for axes in flat for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
        legend(figure, list(handles.values()), list(handles), title=picture.title)
        note(figure, remarks(rows, picture, failed))
    return figure


def _places(axes: Axes, rows: pd.DataFrame, words: Words) -> dict[Any, float]:
    """Where each x stands: numbers at their value, texts one beside the other."""
    if words.numbers and words.picture.kind != "bars":
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


def _lines(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """Means as lines, their intervals as bands; over texts points with bars instead, beside each other."""
    _points(axes, rows, words, "mean")
    scale(axes, "y", words.values(rows))


def _ratios(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    axes.axhline(1.0, color="#555555", linewidth=0.8, zorder=0.9)
    _points(axes, rows, words, "ratio")
    scale(axes, "y", words.values(rows))


def _points(axes: Axes, rows: pd.DataFrame, words: Words, value: str) -> None:
    at = _places(axes, rows, words)
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


def _bars(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """Means as bars from zero, their intervals on them."""
    at, wide = _places(axes, rows, words), 0.8 / len(words.lines)
    for i, line in enumerate(words.lines):
        mine = rows[(rows["line"] == line) & rows["mean"].notna()]
        x = mine["x"].map(at).to_numpy(np.float64) + (i - (len(words.lines) - 1) / 2) * wide
        y, low, high = (mine[name].to_numpy(np.float64) for name in ("mean", "low", "high"))
        axes.bar(x, y, wide, label=words.name(line), **fill(i))
        axes.errorbar(x, y, np.nan_to_num([y - low, high - y]), fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5)
    values = words.values(rows)
    axes.set_ylim(1.05 * min(values.min(initial=0.0), 0.0), 1.05 * values.max(initial=1e-9))


def _heat(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    """A cell for each pair, its mean written in it; what is unknown or not done is hatched."""
    table = rows.pivot_table(index="y", columns="x", values="mean", sort=False, dropna=False, aggfunc="first")
    table = table.reindex(index=words.ys, columns=words.xs)
    norm, values = _norm(words.shown), table.to_numpy(np.float64)
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


def _norm(shown: pd.DataFrame) -> Normalize:
    values = shown["mean"].dropna()
    return Normalize(values.min(), values.max()) if len(values) else Normalize(0, 1)


def _fronts(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    points = rows.assign(name=[words.name(line) for line in rows["line"]])
    points.index = pd.Index([words.lines.index(line) for line in rows["line"]])
    draw_front(axes, points)


def _curves(axes: Axes, rows: pd.DataFrame, words: Words) -> None:
    for i, line in enumerate(words.lines):
        mine = rows[rows["line"] == line]
        if len(mine):
            axes.plot(mine["x"], mine["share"], drawstyle="steps-post", label=words.name(line), **look(i))
    axes.set_xscale("log")
    percent(axes)
    if words.measures[0].endswith("_s"):
        low, high = rows["x"][rows["x"] > 0].min(), rows["x"].max()
        ticks = [at for at in TIMES if low <= at <= high]
        axes.set_xticks(ticks, [TIMES[at] for at in ticks])
        axes.minorticks_off()


KINDS: dict[str, Callable[[Axes, pd.DataFrame, Words], None]] = {
    "lines": _lines, "bars": _bars, "heat": _heat, "pareto": _fronts, "cdf": _curves, "ratio": _ratios,
}
