"""The kinds of figures of a sweep: what the keys of each mean, what its table is, and how that is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures import sweepmarks as marks
from analysis.figures import sweeptable as tables
from analysis.figures import sweepwords as words
from analysis.figures.sweepwords import Words

if TYPE_CHECKING:
    from analysis.figures.sweepdrawing import Drawing

KindName = Literal["lines", "bars", "heat", "pareto", "cdf", "ratio"]
SPREAD = ("mean", "low", "high")


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes
    ----------
    axes : its keys that name axes of the sweep; its x, y and value that are not among them name measures.
    rows : its table, from that of the sweep with what stands where (`sweeptable.placed`).
    marks : draws the rows of one panel.
    remark : what a reader must know of the marks.
    defaults : what a key names where nothing was said.
    needs : keys that must be given.
    table : the sweep's table that it is of: metrics (of whole runs) or jobs.
    scaled : for a key, the columns that are in the unit of the measure that it names; their intervals after them.
    drawn : the column without which a row cannot be drawn; empty: it can.
    ylabel : what stands left of the panels of a measure.
    shared : panels share their axes.
    coloured : values are colours, on a scale beside the panels.
    """

    axes: tuple[str, ...]
    rows: Callable[[pd.DataFrame, Drawing], Iterator[dict[str, Any]]]
    marks: Callable[[Axes, pd.DataFrame, Words], None]
    remark: Callable[[pd.DataFrame, Drawing], str]
    defaults: Mapping[str, str]
    needs: tuple[str, ...] = ()
    table: Literal["metrics", "jobs"] = "metrics"
    scaled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drawn: str = "mean"
    ylabel: Callable[[Words, str], str] = Words.label
    shared: bool = True
    coloured: bool = False


KINDS: dict[KindName, Kind] = {
    "lines": Kind(
        ("x", "line", "panel", "over"), tables.means, marks.lines, words.of_lines,
        {"y": "jct_mean_s"}, needs=("x",), scaled={"y": SPREAD},
    ),
    "bars": Kind(
        ("x", "line", "panel", "over"), tables.means, marks.bars, words.of_bars,
        {"y": "jct_mean_s"}, needs=("x",), scaled={"y": SPREAD},
    ),
    "heat": Kind(
        ("x", "y", "panel", "over"), tables.pairs, marks.heat, words.of_heat,
        {"value": "jct_mean_s"}, needs=("x", "y"), scaled={"value": SPREAD}, drawn="", ylabel=words.along_y,
        coloured=True,
    ),
    "pareto": Kind(
        ("line", "panel", "over"), tables.fronts, marks.fronts, words.of_fronts,
        {"x": "jct_mean_s", "y": "cost_usd", "line": "policy"}, drawn="x", ylabel=words.measure_of_y, shared=False,
        scaled={"x": ("x", "x_low", "x_high"), "y": ("y", "y_low", "y_high")},
    ),
    "cdf": Kind(
        ("line", "panel", "over"), tables.curves, marks.curves, words.of_curves,
        {"x": "jct_s", "line": "policy"}, table="jobs", drawn="x", ylabel=words.share_of_jobs,
    ),
    "ratio": Kind(
        ("x", "line", "panel", "over"), tables.ratios, marks.ratios, words.of_ratios,
        {"y": "jct_s"}, table="jobs", drawn="ratio", ylabel=words.ratio_of,
    ),
}  # fmt: skip
