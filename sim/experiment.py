"""The [figure] tables of an experiment file with [sweep]: what is drawn of the sweep, and how.

    [figure]            # or several [[figure]]
    kind = "lines"      # lines, bars, heat, pareto, cdf, ratio
    x = "load"
    y = "jct_mean_s"
    line = "policy"
    panel = "trace"
    over = "seed"

An axis of the sweep that is named nowhere and has several values must be fixed in `where`: nothing is averaged unsaid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sim.settings import ConfigError, Settings, checked, read_toml, setting
from traces.errors import did_you_mean

Kind = Literal["lines", "bars", "heat", "pareto", "cdf", "ratio"]
Width = Literal["single", "medium", "double"]
NAMES = "a name or a list of names"
PER_JOB = ("jct_s", "queue_s", "slowdown", "bounded_slowdown", "rho", "gpu_s", "wasted_gpu_s", "cost_usd", "energy_kwh")
"""Numbers of a job that `analysis.metrics.per_job` works out."""
JOBS = ("cdf", "ratio")
"""Kinds that are of single jobs; the others are of the measures of whole runs."""
DEFAULTS: dict[Kind, dict[str, str]] = {
    "lines": {"y": "jct_mean_s"}, "bars": {"y": "jct_mean_s"}, "heat": {"value": "jct_mean_s"},
    "pareto": {"x": "jct_mean_s", "y": "cost_usd", "line": "policy"}, "cdf": {"x": "jct_s", "line": "policy"},
    "ratio": {"y": "jct_s"},
}  # fmt: skip
NEEDS: dict[Kind, tuple[str, ...]] = {
    "lines": ("x",), "bars": ("x",), "heat": ("x", "y"), "pareto": (), "cdf": (), "ratio": (),
}  # fmt: skip
AXES: dict[Kind, tuple[str, ...]] = {
    "lines": ("x", "line", "panel", "over"), "bars": ("x", "line", "panel", "over"),
    "heat": ("x", "y", "panel", "over"), "pareto": ("line", "panel", "over"), "cdf": ("line", "panel", "over"),
    "ratio": ("x", "line", "panel", "over"),
}  # fmt: skip
"""Keys of each kind that name axes of the sweep; its x, y and value that are not among them name measures."""


class Drawing(Settings):
    """One [figure] table. Several names in one place are taken together: their values joined by commas."""

    kind: Kind = setting(..., "what it is")
    name: str = setting("", "of its files behind the experiment's; left out: its number, if there are several")
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

    def names_of(self, key: str) -> list[str]:
        """What a key names, as a list; empty where it is left out."""
        named = getattr(self, key)
        return [named] if isinstance(named, str) and named else list(named)

    def axes(self) -> list[str]:
        """All axes of the sweep that have a place in it."""
        return [name for key in AXES[self.kind] for name in self.names_of(key)] + list(self.where)

    def measures(self) -> list[str]:
        """All measures of runs, or columns of jobs, that are drawn."""
        return [name for key in ("x", "y", "value") if key not in AXES[self.kind] for name in self.names_of(key)]


class _File(Settings):
    figure: list[Drawing] = Field(
        ..., description="[[figure]] tables", json_schema_extra={"unit": "", "allowed": "tables"}
    )


def drawings(path: str | Path) -> list[Drawing]:
    """The figures of an experiment file with [sweep], with what their kind says where nothing was said.

    Raises
    ------
    ConfigError
        It cannot be read; an unknown key (with the nearest right one), a value that is impossible, a key that is
        missing or has no effect.
    """
    figures = read_toml(path).get("figure", [])
    tables = figures if isinstance(figures, list) else [figures]
    file = checked(_File, {"figure": tables}, lambda dotted: f"{path}, {dotted}")
    return [complete(drawing, f"{path}, figure.{n}" if len(tables) > 1 else f"{path}, figure")
            for n, drawing in enumerate(file.figure)]


def complete(given: Drawing, where: str) -> Drawing:
    """The drawing with the defaults of its kind; refused where a key is missing or would change nothing."""
    kind, said = given.kind, given.model_fields_set
    drawing = given.model_copy(update={key: name for key, name in DEFAULTS[kind].items() if not given.names_of(key)})
    for key in NEEDS[kind]:
        if not drawing.names_of(key):
            raise ConfigError("a key is missing", where=where, allowed=f'{key} = "…", with kind = "{kind}"')
    useless: list[str] = [key for key in ("baseline", "numerator") if kind != "ratio" and key in said]
    useless += [key for key in ("x", "y", "value", "line") if key in said and key not in
                (*AXES[kind], *DEFAULTS[kind])]
    if useless:
        raise ConfigError("a key has no effect", where=f"{where}.{useless[0]}", got=useless[0],
                          allowed=f"keys of kind {kind}")
    if kind == "ratio":
        if bool(drawing.baseline) == bool(drawing.numerator):
            raise ConfigError("a ratio is of two", where=where, allowed="baseline or numerator, and not both")
        if not drawing.names_of("x") + drawing.names_of("line"):
            raise ConfigError("a key is missing", where=where, allowed='line = "…", x = "…", or both')
    return drawing


def check_names(
    drawings: Sequence[Drawing], path: str | Path, axes: Mapping[str, Sequence[Any]], measures: Iterable[str],
    tables: Sequence[str],
) -> None:
    """Refuse figures of what the sweep will not have, before it is played.

    Parameters
    ----------
    axes : the sweep's axes and their values.
    measures : names of what is measured of a run.
    tables : tables of a run that the sweep keeps.
    """
    measures = list(measures)
    for drawing in drawings:
        for name in drawing.axes():
            if name not in axes and name != "seed":
                raise ConfigError("no such axis of the sweep", where=f"{path}, figure", got=name,
                                  allowed=", ".join(axes), todo=did_you_mean(name, axes))
        for name, values in axes.items():
            if len(values) > 1 and name not in drawing.axes():
                raise ConfigError("an axis has no place in the figure", where=f"{path}, figure",
                                  got=f"{name} with {len(values)} values", allowed=f"{name} in x, line, panel or over, "
                                  "or fixed in where")
        if drawing.kind in JOBS and "jobs" not in tables:
            raise ConfigError("the sweep keeps no jobs", where=f"{path}, results.tables", got=", ".join(tables),
                              allowed=f"jobs, for a figure of kind {drawing.kind}")
        known, what = (PER_JOB, "number of a job") if drawing.kind in JOBS else (measures, "measure of a run")
        for name in drawing.measures():
            if name not in known:
                raise ConfigError(f"no such {what}", where=f"{path}, figure", got=name, allowed=", ".join(known),
                                  todo=did_you_mean(name, known))
