"""What stands beside the marks of a sweep's figure: units, axis labels, names, and a note of what the marks are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures.style import time_unit
from analysis.figures.sweepasked import Drawing, KindName
from analysis.figures.sweeptable import text
from analysis.figures.tradeoff import UNKNOWN, UNSURE
from analysis.formats import unit_of, without_unit
from analysis.metrics.measures import MEASURES

NAMES = {
    "jct": "job completion time", "queue": "queueing time", "rho": "finish-time fairness ρ", "gpu_s": "GPU time held",
    "wasted_gpu_s": "GPU time wasted", "cost": "cost of GPU time held", "load": "load asked for",
}
"""Words for axes and columns of jobs; measures of runs have theirs in `MEASURES`."""


class Words:
    """Labels of a figure, from its table and its description.

    Attributes
    ----------
    measures, panels, lines, xs, ys : their values, in the order in which they are drawn.
    numbers : x is an axis of numbers.
    shown : the table in the units of the picture (after `in_units`).
    """

    def __init__(self, rows: pd.DataFrame, picture: Drawing) -> None:
        self.picture, self.shown = picture, rows
        self.measures = list(dict.fromkeys(rows["measure"]))
        self.panels, self.lines = self._in_order(rows["panel"]), self._in_order(rows["line"])
        self.numbers = pd.api.types.is_numeric_dtype(rows["x"])
        self.xs = self._in_order(rows["x"])
        self.ys = self._in_order(rows["y"]) if "y" in picture.how.axes else []
        self.sizes = {name: _unit(name, rows.loc[here, columns[0]]) for name, here, columns in self._scaled(rows)}

    def _scaled(self, rows: pd.DataFrame) -> Iterator[tuple[str, pd.Series, list[str]]]:
        """Each measure that the picture has in units of its own: its rows, and its columns."""
        for key, columns in self.picture.how.scaled.items():
            names = list(dict.fromkeys(self.picture.names_of(key)))
            for name in names:
                yield name, (rows["measure"] == name) | (len(names) == 1), list(columns)

    def _in_order(self, values: pd.Series) -> list[Any]:
        return values.drop_duplicates().sort_values().tolist()

    def in_units(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The table with times in the unit of the picture."""
        rows = rows.copy()
        for name, here, columns in self._scaled(rows):
            rows.loc[here, columns] = rows.loc[here, columns] / self.sizes[name][0]
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
        # Times that are not in a unit of the picture's stand along ticks that say theirs.
        shown = self.sizes[name][1] if name in self.sizes else unit(name) if unit(name) != "s" else ""
        return self.words(name) + (f" ({shown})" if shown else "")

    def words(self, name: str) -> str:
        """What is written for a measure or an axis, without its unit."""
        if name in self.picture.names:
            return str(self.picture.names[name])
        if self.picture.how.table == "metrics" and name in MEASURES:
            return MEASURES[name].name
        plain = name if name in NAMES else without_unit(name) or name
        return NAMES.get(plain, plain.replace("_", " ").replace(".", " "))

    def axis(self, key: str) -> str:
        """The label of an axis of the sweep; the unit that its name ends in."""
        named = self.picture.names_of(key)
        return ", ".join(self.words(name) + (f" ({unit_of(name)})" if unit_of(name) else "") for name in named)

    def xlabel(self) -> str:
        """Below the lowest panels."""
        return self.axis("x") if "x" in self.picture.how.axes else self.label(self.picture.names_of("x")[0])


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def unit(name: str) -> str:
    """The unit of a measure of runs, or of a column of jobs."""
    return MEASURES[name].unit if name in MEASURES else unit_of(name)


def _unit(name: str, values: pd.Series) -> tuple[float, str]:
    """How much of a measure's unit is one of the picture's, and what that is called."""
    if unit(name) == "s":
        return time_unit(float(values.max()) if values.notna().any() else 0.0)
    return 1.0, "1 = all" if unit(name) == "share" else unit(name)


# -- What stands left of the panels (`Kind.ylabel`)


def along_y(words: Words, measure: str) -> str:
    """The axis of the sweep that goes up."""
    return words.axis("y")


def measure_of_y(words: Words, measure: str) -> str:
    """The measure that y names."""
    return words.label(words.picture.names_of("y")[0])


def share_of_jobs(words: Words, measure: str) -> str:
    """Of a distribution."""
    return "finished jobs (%)"


def ratio_of(words: Words, measure: str) -> str:
    """The measure, and what is divided by what."""
    picture = words.picture
    of = f"{words.name(picture.numerator)} / other" if picture.numerator else f"/ {words.name(picture.baseline)}"
    return f"{words.words(measure)}\n({of})"


# -- What a reader must know of the marks (`REMARKS`)


def remarks(rows: pd.DataFrame, picture: Drawing, failed: int) -> str:
    """What is said below a figure: what its marks are, of how many repetitions, and what is not drawn."""
    lines, drawn = [REMARKS[picture.kind](rows, picture)], picture.how.drawn
    if drawn and (unknown := int(rows[drawn].isna().sum())):
        lines.append(f"not drawn, as unknown: {unknown} of {len(rows)}")
    if failed:
        lines.append(f"failed and missing: {failed:,} cells of the sweep")
    return "\n".join(lines)


def of_lines(rows: pd.DataFrame, picture: Drawing) -> str:
    """Along numbers there are bands, else bars."""
    return _of_means("bands" if pd.api.types.is_numeric_dtype(rows["x"]) else "bars", rows, picture)


def of_bars(rows: pd.DataFrame, picture: Drawing) -> str:
    """The bars are means; intervals are thin ones on them."""
    return _of_means("thin bars", rows, picture)


def of_heat(rows: pd.DataFrame, picture: Drawing) -> str:
    """What a colour is, and none."""
    return f"means of n = {_range(rows['n'])} ({_over(picture)}); hatched: unknown or not done"


def of_fronts(rows: pd.DataFrame, picture: Drawing) -> str:
    """Intervals go along both axes; of a cost that is known in part there is an arrow."""
    arrow = "" if rows["known"].all() else f"\n{UNKNOWN}\n{UNSURE}"
    return _of_means("crosses", rows, picture) + arrow


def of_curves(rows: pd.DataFrame, picture: Drawing) -> str:
    """How many jobs there are."""
    return f"{_range(rows.drop_duplicates(['panel', 'line'])['n'])} finished jobs a line"


def of_ratios(rows: pd.DataFrame, picture: Drawing) -> str:
    """What is paired, and over what the intervals are."""
    count = _range(rows["seeds"])
    whose = f"over n = {count} ({_over(picture)})" if count != "1" else "over the jobs of one run each"
    return f"the same jobs under both; {_level(picture)} {whose}"


def _of_means(mark: str, rows: pd.DataFrame, picture: Drawing) -> str:
    count = _range(rows["n"])
    return f"{mark}: {_level(picture)} of the mean, n = {count} ({_over(picture)})" if count != "1" else "one run each"


def _level(picture: Drawing) -> str:
    return f"{100 * picture.level:g} % interval"


def _over(picture: Drawing) -> str:
    return ", ".join(picture.names_of("over")) or "cell"


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


REMARKS: dict[KindName, Callable[[pd.DataFrame, Drawing], str]] = {
    "lines": of_lines, "bars": of_bars, "heat": of_heat, "pareto": of_fronts, "cdf": of_curves, "ratio": of_ratios,
}
"""What a reader must know of the marks of each kind of figure."""

YLABELS: dict[KindName, Callable[[Words, str], str]] = {
    "heat": along_y, "pareto": measure_of_y, "cdf": share_of_jobs, "ratio": ratio_of,
}
"""What stands left of the panels of a measure, where it is not the measure's label."""
