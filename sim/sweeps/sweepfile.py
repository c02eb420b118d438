"""What a file with [sweep] says: its sections, and all combinations of its lists, before any is looked at as a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, create_model

from analysis.measuring_window import check_words
from analysis.run import RunError
from sim.results import schema
from sim.settings.values import ConfigError, Settings, checked, read_toml, setting
from traces.errors import did_you_mean

FIXED = ("run", "policy", "engine")
SECTIONS = (*FIXED, "sweep", "results", "dask", "figure")
"""Of a file; [figure] is read by whoever draws the sweep."""

TABLES = (*(name for name in schema.FILES), "runs")
"""What may be kept of each run beside its metrics; `runs` is its whole folder."""

MOST_CELLS = 100_000
WITH = "with"
"""Key of a list of tables of settings that go together."""


WINDOW = ("from", "to", "warmup", "cooldown", "follow")
"""Keys of [results] that say which part of each run is measured: the options of `hetsim metrics`."""


class _Kept(Settings):
    """What is kept of each run."""

    tables: list[str] = setting(["jobs"], "tables of each run that are kept", allowed=", ".join(TABLES))
    follow: bool = setting(True, "see the jobs that were submitted in the measuring window to their end")


def _word(given: Any) -> Any:
    """A number of seconds as text."""
    return f"{given:.15g}" if isinstance(given, int | float) and not isinstance(given, bool) else given


def _time(meaning: str) -> Any:
    allowed = "a number of seconds, or text such as 2h, 1d, 10%"
    return (Annotated[str | None, BeforeValidator(_word)], setting(None, meaning, allowed=allowed))


Results: Any = create_model(  # made so, since `from` is a word of Python
    "Results", __base__=_Kept, __doc__="What is kept of each run, and which part of it is measured.",
    **{"from": _time("begin of the measuring window"), "to": _time("its end"),
       "warmup": _time("left out after the first submission"), "cooldown": _time("left out before the last")},
)


class DaskSettings(Settings):
    """How Slurm starts Dask's workers (`--dask slurm`); see dask-jobqueue's SLURMCluster."""

    queue: str | None = setting(None, "partition", min_length=1)
    account: str | None = setting(None, "account", min_length=1)
    memory: str = setting("4GB", "memory of a worker, as Dask writes it", min_length=1)
    time: str = setting("01:00:00", "longest time of a job", min_length=1)
    interface: str | None = setting(None, "network interface of scheduler and workers", min_length=1)
    options: list[str] = setting([], "further #SBATCH lines", allowed="a list of options")
    setup: list[str] = setting([], "shell lines before a worker starts", allowed="a list of lines")


@dataclass(frozen=True)
class SweepFile:
    """A file with [sweep].

    Attributes
    ----------
    fixed : the sections [run], [policy] and [engine].
    combinations : settings of each cell that vary, by dotted name, in the order of the file; equal ones may come again.
    tables : what is kept of each run.
    window : what is measured of each run, by the names of `WINDOW`, as far as they are given.
    dask : the section [dask].
    """

    fixed: Mapping[str, Any]
    combinations: tuple[Mapping[str, Any], ...]
    tables: tuple[str, ...]
    window: Mapping[str, Any]
    dask: DaskSettings


def read_file(path: str | Path) -> SweepFile:
    """Read a file with [sweep].

    Raises
    ------
    ConfigError
        No such file, an unknown section, key or table (with the nearest right one), a list without values, no list.
    """
    file, source = read_toml(path), str(path)
    for section in file:
        if section not in SECTIONS:
            raise ConfigError("unknown section", where=source, got=section, allowed=", ".join(SECTIONS),
                              todo=did_you_mean(section, SECTIONS))
    results = _section(Results, file, "results", source)
    for name in results.tables:
        if name not in TABLES:
            raise ConfigError("no such table", where=f"{source}, results.tables", got=name, allowed=", ".join(TABLES),
                              todo=did_you_mean(name, TABLES))
    fixed = {name: file[name] for name in FIXED if name in file}
    return SweepFile(fixed, tuple(_combinations(file, source)), tuple(results.tables),
                     _window(results, f"{source}, results"), _section(DaskSettings, file, "dask", source))


def _window(results: Any, where: str) -> dict[str, Any]:
    """The window in the words of `analysis.measuring_window.asked`; whether a run has it is known once it is played."""
    words: dict[str, Any] = {name: given for name in WINDOW[:-1] if (given := getattr(results, name))}
    if words:
        words["follow"] = results.follow
    elif "follow" in results.model_fields_set:
        raise ConfigError("follow without a measuring window", where=f"{where}.follow",
                          todo="Name one: from, to, warmup or cooldown.")
    try:
        check_words(words.get("from"), words.get("to"), words.get("warmup"), words.get("cooldown"))
    except RunError as error:
        raise ConfigError(error.what, where=f"{where}{error.where and '.' + error.where}", got=error.got,
                          allowed=error.allowed, todo=error.todo) from None
    return words


def _section(model: type[Any], file: Mapping[str, Any], name: str, source: str) -> Any:
    table = file.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError("value not allowed", where=f"{source}, {name}", got=table, allowed="a table")
    return checked(model, table, lambda dotted: f"{source}, {name}.{dotted}")


def _combinations(file: Mapping[str, Any], source: str) -> Iterator[dict[str, Any]]:
    """See `SweepFile`."""
    blocks = file.get("sweep", [])
    blocks = [blocks] if isinstance(blocks, dict) else blocks
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) and block for block in blocks):
        raise ConfigError("no [sweep] with lists of settings", where=source,
                          allowed='[sweep], such as policy = ["fifo", "srtf"] and seed = [0, 1]',
                          todo="A file without is one run: hetsim run --config.")
    total = 0
    for number, block in enumerate(blocks, 1):
        where = f"{source}, [sweep]" if len(blocks) == 1 else f"{source}, [[sweep]] number {number}"
        lists = [[{name: one} for one in values] for name, values in _lists(block, where).items()]
        lists += [_together(block[WITH], where)] if WITH in block else []
        total += math.prod(map(len, lists))
        if total > MOST_CELLS:
            raise ConfigError("too many cells", where=where, got=total, allowed=f"up to {MOST_CELLS:,}")
        for parts in itertools.product(*lists):
            names = [name for part in parts for name in part]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ConfigError("a setting is given twice", where=where, got=twice)
            yield {name: one for part in parts for name, one in part.items()}


def _lists(block: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """Name of each setting of a block -> its values."""
    lists: dict[str, list[Any]] = {}
    for name, given in _flat({key: given for key, given in block.items() if key != WITH}):
        values = given if isinstance(given, list) else [given]
        if name in lists:
            raise ConfigError("a setting is given twice", where=where, got=name)
        if not values:
            raise ConfigError("a list without values", where=f"{where}, {name}", allowed="one value or more")
        if tables := [one for one in values if isinstance(one, dict)]:
            raise ConfigError("a table, not a value of one setting", where=f"{where}, {name}", got=tables[0],
                              allowed=f"values of {name}.NAME, one setting a list",
                              todo=f"Settings that go together are tables of {WITH}.")
        if name == "out":
            raise ConfigError("not a setting of a sweep", where=f"{where}, out", todo="Name its folder with --out.")
        lists[name] = values
    return lists


def _together(tables: Any, where: str) -> list[dict[str, Any]]:
    """The tables of `with`: settings that go together."""
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) and t for t in tables):
        raise ConfigError("value not allowed", where=f"{where}, {WITH}", got=tables,
                          allowed='tables of settings, such as [{trace = "pai", cluster = "pai320"}]')
    return [dict(_flat(table)) for table in tables]


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values: `engine.mtbf_h` is a table in TOML, `"engine.mtbf_h"` is not; both mean the same."""
    for key, given in table.items():
        name = f"{above}{key}".removeprefix("run.")
        if isinstance(given, dict):
            yield from _flat(given, f"{name}." if name != "run" else "")
        else:
            yield name, given
