"""What stands beside the marks of a sweep's figure: units, axis labels, names, and a note of what the marks are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.drawing.style import time_unit
from analysis.drawing.sweeptable import text
from analysis.measure.measures import MEASURES

UNITS = {"s": "s", "usd": "USD", "kwh": "kWh", "gib": "GiB", "h": "h"}
"""Units that a name ends in."""
NAMES = {"jct": "job completion time", "queue": "time waited", "rho": "finish-time fairness ρ", "load": "offered load",
         "cost": "cost of GPU time held"}
"""Words for axes and columns of jobs; measures of runs have theirs in `MEASURES`."""
SCALED = {"lines": ("mean", "low", "high"), "bars": ("mean", "low", "high"), "heat": ("mean", "low", "high"),
          "pareto": (), "cdf": (), "ratio": ()}  # fmt: skip


class Words:
    """Labels of a figure, from its table and its description.

    Attributes
    ----------
    measures, panels, lines, xs, ys : their values, in the order in which they are drawn.
    numbers : x is an axis of numbers.
    shown : the table in the units of the picture (after `in_units`).
    """

    def __init__(self, rows: pd.DataFrame, picture: Any) -> None:
        self.picture, self.shown = picture, rows
        self.measures = list(dict.fromkeys(rows["measure"]))
        self.panels, self.lines = self._in_order(rows["panel"]), self._in_order(rows["line"])
        self.numbers = pd.api.types.is_numeric_dtype(rows["x"])
        self.xs = self._in_order(rows["x"])
        self.ys = self._in_order(rows["y"]) if picture.kind == "heat" else []
        columns = {name: rows.loc[rows["measure"] == name, "mean"] for name in self.measures} if "mean" in rows else {}
        if picture.kind == "pareto":
            columns = {picture.names_of(key)[0]: rows[key] for key in ("x", "y")}
        self.sizes = {name: _unit(name, values) for name, values in columns.items()}

    def _in_order(self, values: pd.Series) -> list[Any]:
        return values.drop_duplicates().sort_values().tolist()

    def in_units(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The table with times in the unit of the picture."""
        rows = rows.copy()
        if self.picture.kind == "pareto":
            for key in ("x", "y"):
                size = self.sizes[self.picture.names_of(key)[0]][0]
                rows[[key, f"{key}_low", f"{key}_high"]] /= size
        elif SCALED[self.picture.kind]:
            size_of = rows["measure"].map(lambda name: self.sizes[name][0])
            for column in SCALED[self.picture.kind]:
                rows[column] = rows[column] / size_of
        self.shown = rows
        return rows

    def values(self, rows: pd.DataFrame) -> np.ndarray:
        """All that is drawn along y in the row of these panels, intervals too: finite numbers."""
        shown = self.shown[self.shown["measure"].isin(rows["measure"])]
        names = ("ratio" if "ratio" in shown.columns else "mean", "low", "high")
        found = np.concatenate([shown[name].to_numpy(np.float64) for name in names])
        finite: np.ndarray = found[np.isfinite(found)]
        return finite

    def digits(self) -> int:
        """Decimals with which the values of a heat map have three figures, or differ."""
        top = float(np.nanmax(np.abs(self.shown["mean"].to_numpy(np.float64)), initial=0.0))
        return 0 if top >= 100 else 1 if top >= 10 else 2

    def name(self, value: Any) -> str:
        """What is written for a value of an axis."""
        return str(self.picture.names.get(text(value), text(value)))

    def panel(self, value: str) -> str:
        """The title of a panel; numbers are said of what."""
        axes = self.picture.names_of("panel")
        if len(axes) != 1 or value in self.picture.names or not (value == "" or _is_number(value)):
            return self.name(value)
        return f"{self.axis('panel')}: {value or 'not set'}"

    def label(self, name: str) -> str:
        """What is written for a measure, with its unit."""
        unit = self.sizes.get(name, (1.0, ""))[1]
        return self.words(name) + (f" ({unit})" if unit else "")

    def words(self, name: str) -> str:
        """What is written for a measure or an axis, without its unit."""
        if name in self.picture.names:
            return str(self.picture.names[name])
        stem, _, last = name.replace(".", "_").rpartition("_")
        plain = stem if stem and last in UNITS else name
        if name in MEASURES and plain not in NAMES:
            return MEASURES[name].meaning
        return NAMES.get(plain, plain.replace("_", " ").replace(".", " "))

    def axis(self, key: str) -> str:
        """The label of an axis of the sweep; the unit that its name ends in."""
        labels = []
        for name in self.picture.names_of(key):
            unit = UNITS.get(name.rpartition("_")[2], "") if "_" in name else ""
            labels.append(self.words(name) + (f" ({unit})" if unit else ""))
        return ", ".join(labels)

    def xlabel(self) -> str:
        """Below the lowest panels."""
        return self.label(self.picture.names_of("x")[0]) if self.picture.kind in ("pareto", "cdf") else self.axis("x")

    def ylabel(self, measure: str) -> str:
        """Left of the panels of a measure."""
        picture = self.picture
        if picture.kind == "heat":
            return self.axis("y")
        if picture.kind == "cdf":
            return "finished jobs (%)"
        if picture.kind == "pareto":
            return self.label(picture.names_of("y")[0])
        if picture.kind == "ratio":
            of = f"{self.name(picture.numerator)} / other" if picture.numerator else f"/ {self.name(picture.baseline)}"
            return f"{self.words(measure)}\n({of})"
        return self.label(measure)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _unit(name: str, values: pd.Series) -> tuple[float, str]:
    """How much of a measure's unit is one of the picture's, and what that is called."""
    unit = MEASURES[name].unit if name in MEASURES else UNITS.get(name.rpartition("_")[2], "")
    if unit == "s":
        return time_unit(float(values.max()) if values.notna().any() else 0.0)
    return 1.0, "1 = all" if unit == "share" else unit


def remarks(rows: pd.DataFrame, picture: Any, failed: int) -> str:
    """What a reader must know of the marks: what the intervals are, of how many repetitions, what is not drawn."""
    lines, level = [], f"{100 * picture.level:g} % interval"
    over = ", ".join(picture.names_of("over")) or "cell"
    if picture.kind in ("lines", "bars", "pareto"):
        count = _range(rows["n"])
        lined = "bands" if pd.api.types.is_numeric_dtype(rows["x"]) else "bars"
        what = {"lines": lined, "bars": "thin bars", "pareto": "crosses"}[picture.kind]
        lines.append(f"{what}: {level} of the mean, n = {count} ({over})" if count != "1" else "one run each")
    if picture.kind == "heat":
        lines.append(f"means of n = {_range(rows['n'])} ({over}); hatched: unknown or not done")
    if picture.kind == "ratio":
        count = _range(rows["seeds"])
        whose = f"over n = {count} ({over})" if count != "1" else "over the jobs of one run each"
        lines.append(f"the same jobs under both; {level} {whose}")
    if picture.kind == "cdf":
        lines.append(f"{_range(rows.drop_duplicates(['panel', 'line'])['n'])} finished jobs a line")
    if picture.kind == "pareto" and not rows["known"].all():
        lines.append("↑: a price is unknown, the cost is at least this")
    value = {"ratio": "ratio", "pareto": "x", "cdf": "x"}.get(picture.kind, "mean")
    unknown = int(rows[value].isna().sum())
    if unknown and picture.kind != "heat":
        lines.append(f"not drawn, as unknown: {unknown} of {len(rows)}")
    if failed:
        lines.append(f"failed and missing: {failed:,} cells of the sweep")
    return "\n".join(lines)


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
