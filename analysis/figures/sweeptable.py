"""What a figure of a sweep draws, as a table: its rows are what stands in the CSV file beside the picture.

A figure is described as `sweepdrawing.Drawing` has it. Each table begins with the columns measure, panel, line and x,
in the order of the sweep's lists; several axes in one place: their values, joined by commas; a setting that is not set:
empty. Times are in s, whatever unit the picture has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd

from analysis.compare.bootstrap import interval
from analysis.compare.paired import pareto, ratio_of_means
from analysis.figures.distribution import curve
from analysis.figures.sweepasked import Drawing, KindName
from analysis.metrics.measures import MEASURES
from analysis.run import RunError
from traces.errors import did_you_mean

KNOWN_PART = {"cost_usd": "cost_known_usd"}
"""What is known of a measure that may be unknown: a lower bound."""

SIGNED = ("lateness_mean_s",)
"""Measures that can be negative."""


class Cells(Protocol):
    """What is needed of a sweep (`analysis.sweeps.Sweep`)."""

    @property
    def axes(self) -> dict[str, list[Any]]: ...

    @property
    def columns(self) -> dict[str, str]: ...

    @property
    def failed(self) -> pd.DataFrame: ...

    def table(self, name: str) -> pd.DataFrame: ...


def drawn(sweep: Cells, picture: Drawing) -> pd.DataFrame:
    """The table of a figure; panel, line and x are ordered categories where they are no numbers.

    Its further columns, by kind. lines, bars: mean, low, high (Student's t over the repetitions, cut at what the
    measure can be), n. heat: y, mean, low, high, n. pareto: x_low, x_high, y, y_low, y_high, n, known (the cost is
    known; else y is what is known of it), on_front. cdf: share (of the finished jobs, at most x), n jobs. ratio: ratio,
    low, high, seeds, jobs, jobs_left_out (`analysis.compare.paired.ratio_of_means`).

    Raises
    ------
    RunError
        No such column, an axis of several values that has no place in the figure, or nothing to draw.
    """
    table = sweep.table(picture.how.table)
    if not len(table):
        raise RunError("there is nothing to draw", where=f"a figure of kind {picture.kind}", got="no cell that is done")
    table = placed(_chosen(table, sweep, picture), sweep, picture)
    for name in picture.measures():
        if name not in table.columns:
            raise RunError("no such column", got=name, allowed=", ".join(c for c in table.columns if c[0] != "_"),
                           todo=did_you_mean(name, table.columns))
    rows = pd.DataFrame(ROWS[picture.kind](table, picture))
    if not len(rows):
        raise RunError("there is nothing to draw", where=f"a figure of kind {picture.kind}", got="no finished job")
    for key in rows.columns.intersection(["panel", "line", "x", "y"]):
        if not pd.api.types.is_numeric_dtype(rows[key]):
            listed = table.sort_values(f"_rank_{key}", kind="stable")[f"_{key}"].map(text).unique()
            rows[key] = pd.Categorical(rows[key].map(text), listed, ordered=True)
    return rows


def text(value: Any) -> str:
    """A value of an axis as it is written: 0.5, not 0.5000; a setting that is not set is empty."""
    if value is None or pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _chosen(table: pd.DataFrame, sweep: Cells, picture: Drawing) -> pd.DataFrame:
    """The rows that `where` leaves."""
    for name, wanted in picture.where.items():
        texts = [text(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
        here = _axis(table, sweep, name).map(text)
        lost = [value for value in texts if not (here == value).any()]
        if lost:
            raise RunError(f"no cell that is done has this {name}", where="figure.where", got=lost[0],
                           allowed=", ".join(here.unique()), todo=did_you_mean(lost[0], here.unique()))
        table = table[here.isin(texts)]
    return table


def _axis(table: pd.DataFrame, sweep: Cells, name: str) -> pd.Series:
    if name not in sweep.columns:
        raise RunError("no such axis of the sweep", got=name, allowed=", ".join(sweep.axes),
                       todo=did_you_mean(name, sweep.axes))
    return table[sweep.columns[name]]


def placed(table: pd.DataFrame, sweep: Cells, picture: Drawing) -> pd.DataFrame:
    """The table with what stands where: for each of panel, line, x and y its value, and `_rank_…`, its place.

    `_over_…` are the axes that tell repetitions apart.
    """
    named = set(picture.axes())
    for name in sweep.axes:
        several = _axis(table, sweep, name).map(text).nunique()
        if name not in named and several > 1:
            raise RunError(f"axis {name!r} has {several} values and no place in the figure",
                           where=f"a figure of kind {picture.kind}", allowed="one of x, line, panel, over and where")
    places: dict[str, pd.Series] = {}
    for key in ("panel", "line", "x", "y"):
        names = [] if set(picture.names_of(key)) & set(picture.measures()) else picture.names_of(key)
        values, rank = pd.Series("", index=table.index), pd.Series(0, index=table.index)
        for i, name in enumerate(names):
            mine = _axis(table, sweep, name)
            place = _places(mine, sweep.axes.get(name, []))
            number = key in ("x", "y") and len(names) == 1 and _numbers(mine)
            values = mine if number else mine.map(text) if i == 0 else values + ", " + mine.map(text)
            rank = rank * (len(place) + 1) + mine.map(text).map(place)
        places |= {f"_{key}": values, f"_rank_{key}": rank}
    for name in picture.names_of("over"):
        if name in sweep.axes:
            places[f"_over_{name}"] = _axis(table, sweep, name)
    return table.assign(**places)


def _numbers(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values) and values.notna().all())


def _places(values: pd.Series, listed: Sequence[Any]) -> dict[str, int]:
    """Place of each value by its text: numbers by size, texts as they are listed."""
    if pd.api.types.is_numeric_dtype(values):
        return {text(value): i for i, value in enumerate(np.sort(values.dropna().unique()).tolist())} | {"": -1}
    texts = list(dict.fromkeys([*map(text, listed), *values.map(text)]))
    return {value: i for i, value in enumerate(texts)}


def _by_place(table: pd.DataFrame, *keys: str) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """What belongs together, in order, each with its heads."""
    for _, group in table.groupby([f"_rank_{key}" for key in keys], observed=True):
        yield {key: group[f"_{key}"].iloc[0] for key in keys}, group


def means(table: pd.DataFrame, picture: Drawing) -> Iterator[dict[str, Any]]:
    """Of each measure and place the mean over the repetitions, and its interval."""
    for measure in picture.names_of("y"):
        for heads, group in _by_place(table, "panel", "line", "x"):
            yield {"measure": measure} | heads | _spread(group[measure], picture.level, measure)


def pairs(table: pd.DataFrame, picture: Drawing) -> Iterator[dict[str, Any]]:
    """The same for each pair of x and y."""
    for heads, group in _by_place(table.assign(_line="", _rank_line=0), "panel", "line", "x", "y"):
        yield {"measure": picture.value} | heads | _spread(group[picture.value], picture.level, picture.value)


def _spread(values: pd.Series, level: float, measure: str) -> dict[str, Any]:
    """Mean and interval, within what the measure can be at all: few repetitions that differ would go below zero."""
    found = interval(values.astype(np.float64), level)
    least = -np.inf if measure in SIGNED else 0.0
    most = 1.0 if measure in MEASURES and MEASURES[measure].unit == "share" else np.inf
    low, high = (float(np.clip(end, least, most)) for end in (found.low, found.high))
    return {"mean": found.mean, "low": low, "high": high, "n": found.n}


def fronts(table: pd.DataFrame, picture: Drawing) -> Iterator[dict[str, Any]]:
    """Of each line the means of two measures, and whether it is on its panel's Pareto front."""
    (x,), (y,) = picture.names_of("x"), picture.names_of("y")
    for _, panel in table.groupby("_rank_panel", observed=True):
        rows = []
        for heads, group in _by_place(panel, "panel", "line"):
            known = bool(group[y].notna().all())
            told = y if known else KNOWN_PART.get(y, y)
            along, up = (_spread(group[name], picture.level, name) for name in (x, told))
            rows.append({
                "measure": f"{x}, {y}", **heads, "x": along["mean"], "x_low": along["low"], "x_high": along["high"],
                "y": up["mean"], "y_low": up["low"], "y_high": up["high"], "n": up["n"], "known": known,
            })  # fmt: skip
        points = pd.DataFrame(rows)
        points["on_front"] = pareto(points.assign(y=points["y"].where(points["known"])), "x", "y")
        yield from points.to_dict("records")  # type: ignore[misc]


def curves(table: pd.DataFrame, picture: Drawing) -> Iterator[dict[str, Any]]:
    """The finished jobs of all repetitions together."""
    (measure,) = picture.names_of("x")
    for heads, group in _by_place(table, "panel", "line"):
        values = group.loc[group["finished"].astype(bool), measure].dropna().to_numpy(np.float64)
        if len(values):
            for x, share in np.column_stack(curve(values)).tolist():
                yield {"measure": measure} | heads | {"x": x, "share": share, "n": len(values)}


def ratios(table: pd.DataFrame, picture: Drawing) -> Iterator[dict[str, Any]]:
    """How many times the baseline's mean each other's is, on the same jobs; with `numerator` the other way round."""
    axis, along = ("line", ["panel", "x"]) if picture.names_of("line") else ("x", ["panel"])
    table = table.assign(**{f"_{axis}": table[f"_{axis}"].map(text)})
    places = {key: dict(zip(table[f"_{key}"], table[f"_rank_{key}"], strict=True)) for key in (axis, *along)}
    over = [str(column) for column in table if str(column).startswith("_over_")]
    against = picture.baseline or picture.numerator
    if against not in places[axis]:
        raise RunError(f"no cell that is done has this {', '.join(picture.names_of(axis))}", got=against,
                       where=f"figure.{'baseline' if picture.baseline else 'numerator'}",
                       allowed="; ".join(places[axis]), todo=did_you_mean(against, places[axis]))
    for measure in picture.names_of("y"):
        found = ratio_of_means(
            table, f"_{axis}", against, measure, over=over,
            by=[f"_{key}" for key in along], level=picture.level,
        ).rename(columns=lambda name: name.lstrip("_"))
        if picture.numerator:
            found[["ratio", "low", "high"]] = 1 / found[["ratio", "high", "low"]].to_numpy()
        found = found.sort_values([*along, axis], key=lambda values: values.map(places[str(values.name)]))
        for row in found.to_dict("records"):
            yield {"measure": measure, "panel": "", "line": "", "x": ""} | {str(k): v for k, v in row.items()}


ROWS: dict[KindName, Callable[[pd.DataFrame, Drawing], Iterator[dict[str, Any]]]] = {
    "lines": means, "bars": means, "heat": pairs, "pareto": fronts, "cdf": curves, "ratio": ratios,
}
"""The table of each kind of figure, from that of the sweep with what stands where (`placed`)."""
