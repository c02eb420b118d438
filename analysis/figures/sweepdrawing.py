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

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from analysis.figures.sweepasked import Drawing
from analysis.figures.sweeptable import text
from analysis.metrics.breakdown import PER_JOB
from sim.settings.values import ConfigError, Settings, checked, read_toml
from traces.errors import did_you_mean

NUMBERS = tuple(name for name in PER_JOB if name not in ("preemptions", "deadline_met", "finished"))
"""What can be drawn of a job: it has a size that is measured, not counted."""


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
        missing or has no effect; two figures whose files would have one name.
    """
    figures = read_toml(path).get("figure", [])
    tables = figures if isinstance(figures, list) else [figures]
    file = checked(_File, {"figure": tables}, lambda dotted: f"{path}, {dotted}")
    found = [complete(drawing, f"{path}, figure.{n}" if len(tables) > 1 else f"{path}, figure")
             for n, drawing in enumerate(file.figure)]
    names = endings(found)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError("two figures of one name", where=f"{path}, figure.name", got=twice.removeprefix("-"),
                          todo="One would replace the other: name them apart.")
    return found


def endings(found: Sequence[Drawing]) -> list[str]:
    """What the files of each figure of an experiment have behind its name."""
    several = len(found) > 1
    return [f"-{one.name or n}" if one.name or several else "" for n, one in enumerate(found, 1)]


def complete(given: Drawing, where: str) -> Drawing:
    """The drawing with the defaults of its kind; refused where a key is missing or would change nothing."""
    kind, how, said = given.kind, given.how, given.model_fields_set
    drawing = given.model_copy(update={key: name for key, name in how.defaults.items() if not given.names_of(key)})
    for key in how.needs:
        if not drawing.names_of(key):
            raise ConfigError("a key is missing", where=where, allowed=f'{key} = "…", with kind = "{kind}"')
    useless: list[str] = [key for key in ("baseline", "numerator") if kind != "ratio" and key in said]
    useless += [key for key in ("x", "y", "value", "line") if key in said and key not in (*how.axes, *how.defaults)]
    if useless:
        raise ConfigError("a key has no effect", where=f"{where}.{useless[0]}", got=useless[0],
                          allowed=f"keys of kind {kind}")
    if kind == "ratio":
        if bool(drawing.baseline) == bool(drawing.numerator):
            raise ConfigError("a ratio is of two", where=where, allowed="baseline or numerator, and not both")
        if not drawing.names_of("x") + drawing.names_of("line"):
            raise ConfigError("a key is missing", where=where, allowed='line = "…", x = "…", or both')
    if not re.fullmatch(r"[^/\\\x00-\x1f]{0,60}", drawing.name):
        raise ConfigError("not part of a file's name", where=f"{where}.name", got=drawing.name,
                          allowed="up to 60 characters, none of them a slash")
    _once(drawing, said, where)
    return drawing


def _once(drawing: Drawing, said: set[str], where: str) -> None:
    """Refuse an axis in two places, and a measure that is drawn twice."""
    # What nobody said, that repetitions are over the seed, gives way where the seed has a place.
    keys = [key for key in drawing.how.axes if key != "over" or key in said]
    for names, what in (([name for key in keys for name in drawing.names_of(key)], "an axis has two places"),
                        (drawing.measures(), "a measure is drawn twice")):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(what, where=where, got=twice, allowed="each once")
    if "x" not in drawing.how.axes:  # a measure along each way: one
        for key in ("x", "y"):
            if len(drawing.names_of(key)) > 1:
                raise ConfigError("several measures along one axis", where=f"{where}.{key}",
                                  got=", ".join(drawing.names_of(key)), allowed=f"one, with kind {drawing.kind}")


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
        repeats = drawing.names_of("over")
        for name in drawing.axes():
            if name not in axes and not (name == "seed" and name in repeats and name not in drawing.where):
                raise ConfigError("no such axis of the sweep", where=f"{path}, figure", got=name,
                                  allowed=", ".join(axes), todo=did_you_mean(name, axes))
        left = {name: _left(drawing, name, values, path) for name, values in axes.items()}
        _check_ratio(drawing, left, path)
        for name, values in axes.items():
            if len(values) > 1 and name not in drawing.axes():
                raise ConfigError("an axis has no place in the figure", where=f"{path}, figure",
                                  got=f"{name} with {len(values)} values", allowed=f"{name} in x, line, panel or over, "
                                  "or fixed in where")
        of_jobs = drawing.how.table == "jobs"
        if of_jobs and "jobs" not in tables:
            raise ConfigError("the sweep keeps no jobs", where=f"{path}, results.tables", got=", ".join(tables),
                              allowed=f"jobs, for a figure of kind {drawing.kind}")
        known, what = (NUMBERS, "number of a job") if of_jobs else (measures, "measure of a run")
        for name in drawing.measures():
            if name not in known:
                raise ConfigError(f"no such {what}", where=f"{path}, figure", got=name, allowed=", ".join(known),
                                  todo=did_you_mean(name, known))


def _left(drawing: Drawing, name: str, values: Sequence[Any], path: str | Path) -> list[str]:
    """The values of an axis that `where` leaves, as they are written."""
    there = [text(value) for value in values]
    if name not in drawing.where:
        return there
    given = drawing.where[name]
    wanted = given if isinstance(given, list) else [given]
    where = f"{path}, figure.where.{name}"
    if not wanted:
        raise ConfigError("a list without values", where=where, allowed=", ".join(there))
    for one in wanted:
        if isinstance(one, list | dict) or text(one) not in there:
            raise ConfigError(f"the sweep has no such {name}", where=where, got=one, allowed=", ".join(there),
                              todo=did_you_mean(str(one), there))
    return [text(one) for one in wanted]


def _check_ratio(drawing: Drawing, left: Mapping[str, Sequence[str]], path: str | Path) -> None:
    """Refuse a ratio to what the sweep does not have."""
    key = "baseline" if drawing.baseline else "numerator"
    if not (against := getattr(drawing, key)):
        return
    names = drawing.names_of("line") or drawing.names_of("x")
    values = [", ".join(one) for one in product(*(left[name] for name in names))]
    if against not in values:
        raise ConfigError(f"the sweep has no such {', '.join(names)}", where=f"{path}, figure.{key}", got=against,
                          allowed="; ".join(values), todo=did_you_mean(against, values))
