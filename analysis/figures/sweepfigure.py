"""Figures of a sweep: lines, bars, heat maps, Pareto fronts, distributions, ratios; each with the table of what it is.

What is drawn is worked out in `sweeptable`; here it gets its place, its units and its marks. A picture is
described as `sweepdrawing.Drawing` has it.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill as fill_text

import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from analysis.figures.style import DRAWN, WIDTHS_IN, legend, new_panels, note, save, style
from analysis.figures.sweepasked import Drawing
from analysis.figures.sweepmarks import DRAWERS, HEAT, colours
from analysis.figures.sweeptable import Cells, drawn
from analysis.figures.sweepwords import YLABELS, Words, remarks
from traces.outfile import written

PANEL_IN = 1.65
"""A panel is at least so wide; those that do not fit beside each other go below."""


def draw(sweep: Cells, picture: Drawing, folder: Path, stem: str) -> list[Path]:
    """Write what a figure shows as CSV (`sweeptable.drawn`), and the figure as PNG and PDF; returns the files.

    Raises
    ------
    HetsimError
        As `drawn`, or a file that cannot be written.
    """
    rows = drawn(sweep, picture)
    figure = figure_of(rows, picture, len(sweep.failed))
    table = folder / f"{stem}.csv"
    with written(table) as part:
        rows.to_csv(part, index=False, lineterminator="\n")
    return [table, *(save(figure, folder / f"{stem}.{kind}") for kind in DRAWN)]


def figure_of(rows: pd.DataFrame, picture: Drawing, failed: int = 0) -> Figure:
    """The figure of a table of `drawn`: a panel for each value of `panel`, several measures below each other.

    `failed` cells of the sweep are missing in it, which it says.
    """
    words = Words(rows, picture)
    shown = words.in_units(rows)
    how, cells = picture.how, [(measure, panel) for measure in words.measures for panel in words.panels]
    width_in = WIDTHS_IN[picture.width]
    fit = max(1, int(width_in / (PANEL_IN * (1.3 if how.coloured else 1.0))))
    # Rows are of one measure each, so that they share an axis; one panel alone has its measures beside each other.
    alone = len(words.panels) == 1
    across = len(words.panels) if len(words.measures) > 1 and not alone else min(len(cells), fit)
    down = -(-len(cells) // across)
    with style(width_in):
        figure, grid = new_panels(
            down, across, 0.5 + 1.9 * down, sharex=how.shared, sharey=how.shared and not alone and "row"
        )
        flat = [axes for row in grid for axes in row]
        for n, (axes, (measure, panel)) in enumerate(zip(flat, cells, strict=False)):
            mine = shown[(shown["measure"] == measure) & (shown["panel"] == panel)]
            DRAWERS[picture.kind](axes, mine, words)
            axes.set_title(words.panel(panel), loc="left")
            if n % across == 0 or alone:
                label = YLABELS.get(picture.kind, Words.label)(words, measure)
                axes.set_ylabel("\n".join(fill_text(line, 30) for line in label.split("\n")))
            if n + across >= len(cells):
                axes.set_xlabel(fill_text(words.xlabel(), int(13 * width_in / across)))
                axes.tick_params(labelbottom=True)
        for axes in flat[len(cells) :]:
            axes.set_visible(False)
        if how.coloured:
            label = fill_text(words.label(picture.value), 30)
            figure.colorbar(ScalarMappable(colours(shown), HEAT), ax=flat, label=label).outline.set_visible(False)
        handles = {n: h for axes in flat for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
        legend(figure, list(handles.values()), list(handles), title=picture.title)
        note(figure, remarks(rows, picture, failed))
    return figure
