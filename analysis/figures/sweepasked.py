"""One [figure] table of an experiment file: what is drawn of a sweep, as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sim.settings.values import Settings, setting

KindName = Literal["lines", "bars", "heat", "pareto", "cdf", "ratio"]
SPREAD = ("mean", "low", "high")


@dataclass(frozen=True)
class Kind:
    """What the keys of a kind of figure mean.

    Attributes
    ----------
    axes : its keys that name axes of the sweep; its x, y and value that are not among them name measures.
    defaults : what a key names where nothing was said.
    needs : keys that must be given.
    table : the sweep's table that it is of: metrics (of whole runs) or jobs.
    scaled : for a key, the columns that are in the unit of the measure that it names; their intervals after them.
    drawn : the column without which a row cannot be drawn; empty: it can.
    shared : panels share their axes.
    coloured : values are colours, on a scale beside the panels.
    """

    axes: tuple[str, ...]
    defaults: Mapping[str, str]
    needs: tuple[str, ...] = ()
    table: Literal["metrics", "jobs"] = "metrics"
    scaled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drawn: str = "mean"
    shared: bool = True
    coloured: bool = False


KINDS: dict[KindName, Kind] = {
    "lines": Kind(("x", "line", "panel", "over"), {"y": "jct_mean_s"}, needs=("x",), scaled={"y": SPREAD}),
    "bars": Kind(("x", "line", "panel", "over"), {"y": "jct_mean_s"}, needs=("x",), scaled={"y": SPREAD}),
    "heat": Kind(
        ("x", "y", "panel", "over"), {"value": "jct_mean_s"}, needs=("x", "y"), scaled={"value": SPREAD}, drawn="",
        coloured=True,
    ),
    "pareto": Kind(
        ("line", "panel", "over"), {"x": "jct_mean_s", "y": "cost_usd", "line": "policy"}, drawn="x", shared=False,
        scaled={"x": ("x", "x_low", "x_high"), "y": ("y", "y_low", "y_high")},
    ),
    "cdf": Kind(("line", "panel", "over"), {"x": "jct_s", "line": "policy"}, table="jobs", drawn="x"),
    "ratio": Kind(("x", "line", "panel", "over"), {"y": "jct_s"}, table="jobs", drawn="ratio"),
}
"""Their rows are made by `sweeptable.ROWS`, drawn by `sweepmarks.DRAWERS`, and explained by `sweepwords.REMARKS`."""

Width = Literal["single", "medium", "double"]
NAMES = "a name or a list of names"


class Drawing(Settings):
    """One [figure] table. Several names in one place are taken together: their values joined by commas."""

    kind: KindName = setting(..., "what it is")
    name: str = setting("", "of its files behind the experiment's; left out: its number, if there are several",
                        allowed="part of a file's name, up to 60 characters")
    x: str | list[str] = setting("", "axis along the picture; pareto: a measure, cdf: a column of jobs", allowed=NAMES)
    y: str | list[str] = setting("", "measure of runs, of several a row of panels each (ratio: columns of jobs); "
                                 "heat: the other axis", allowed=NAMES)
    value: str = setting("", "heat: the measure")
    line: str | list[str] = setting("", "axis of which each value is a line, bar colour or mark", allowed=NAMES)
    panel: str | list[str] = setting("", "axis of which each value is a panel", allowed=NAMES)
    over: str | list[str] = setting("seed", "axes that repeat: means and intervals are over them", allowed=NAMES)
    baseline: str = setting("", "ratio: value of line (without line, of x) by which the others are divided")
    numerator: str = setting("", "ratio: instead, the value that is divided by the others")
    where: dict[str, Any] = setting({}, "axis = value, or a list of them: only these", allowed="a table of axes")
    names: dict[str, str] = setting({}, "what is written instead of a name or value", allowed="a table of texts")
    title: str = setting("", "above the figure")
    width: Width = setting("double", "3.4, 5 or 7 inches")
    level: float = setting(0.95, "of the intervals", gt=0, lt=1)

    @property
    def how(self) -> Kind:
        """What its kind says."""
        return KINDS[self.kind]

    def names_of(self, key: str) -> list[str]:
        """What a key names, as a list; empty where it is left out."""
        named = getattr(self, key)
        return [named] if isinstance(named, str) and named else list(named)

    def axes(self) -> list[str]:
        """All axes of the sweep that have a place in it."""
        return [name for key in self.how.axes for name in self.names_of(key)] + list(self.where)

    def measures(self) -> list[str]:
        """All measures of runs, or columns of jobs, that are drawn."""
        return [name for key in ("x", "y", "value") if key not in self.how.axes for name in self.names_of(key)]
