"""A file with [sweep] as cells: all combinations of its lists, each checked before any is played."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.metrics.measures import MEASURES
from sim.results import schema
from sim.settings.config import RunConfig, config_of
from sim.settings.values import ConfigError
from sim.sweeps.identity import Sources, identity, sources
from sim.sweeps.kept import TRACES, whole
from sim.sweeps.replay import Replay
from sim.sweeps.sweepfile import DaskSettings, read_file
from sim.workload.prepare import read_trace, selection, setting_of
from traces.errors import HetsimError
from traces.synthetic.generate import GENERATORS

#: Columns that an axis of the same name makes way for.
_TAKEN = {"cell", *schema.FILES["jobs"].names, *MEASURES}


@dataclass(frozen=True)
class Axis:
    """What a sweep varies.

    Attributes
    ----------
    name : of the setting, dotted.
    column : of the tables: dots are underscores; `run_` in front where tables have a column of that name.
    kind : bool, int64, double or string.
    values : in the order of the file, as the settings have them; None: not set.
    """

    name: str
    column: str
    kind: str
    values: tuple[Any, ...]

    def of(self, found: Any) -> Any:
        """A value as the axis has it."""
        return found if found is None or self.kind != "string" else str(found)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes
    ----------
    id : see `sim.sweeps.identity`.
    policy : name of its policy.
    axes : name of each axis -> the cell's value.
    config : what is played.
    settings : all settings, as they are resolved.
    sources : hashes of what it reads.
    """

    id: str
    policy: str
    axes: Mapping[str, Any]
    config: RunConfig
    settings: Mapping[str, Any]
    sources: Sources

    @property
    def text(self) -> str:
        """The cell in words."""
        return ", ".join(f"{name} = {value}" for name, value in self.axes.items())


@dataclass(frozen=True)
class Grid:
    """A sweep's file, read and checked.

    Attributes
    ----------
    path : the file.
    axes : what is varied.
    cells : in the order of the file (the first list is the slowest), each once.
    fixed : the sections [run], [policy] and [engine].
    tables : what is kept of each run.
    window : what is measured of each run: [results] from, to, warmup, cooldown, follow, as far as they are given.
    dask : the section [dask].
    """

    path: Path
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    fixed: Mapping[str, Any]
    tables: tuple[str, ...]
    window: Mapping[str, Any]
    dask: DaskSettings


def read_grid(path: str | Path) -> Grid:
    """Read a file with [sweep], and check each of its cells: settings, policy, cluster, and the trace itself.

    Raises
    ------
    HetsimError
        No such file, an unknown section or key (with the nearest right one), a list without values, a value that is not
        allowed; the message names the file, and the axis and value.
    """
    file, source = read_file(path), str(path)
    names = list(dict.fromkeys(name for combination in file.combinations for name in combination))
    for name in names:  # a cell has the settings of all blocks: what is no setting is found before
        _replay(file.fixed, source, next(each for each in file.combinations if name in each))
    traces = _Hashes()
    cells: dict[str, Cell] = {}
    for combination in file.combinations:
        replay = _replay(file.fixed, source, combination)
        where = _where(source, combination)
        trace = traces.sha256(replay.config, where)
        with _said_of(where):
            found = sources(replay, trace)
        if (id_ := identity(replay, found, file.window)) not in cells:
            varied = {name: value(replay, name) for name in names}
            cells[id_] = Cell(id_, replay.policy.name, varied, replay.config, replay.settings, found)
    axes = tuple(_axis(name, [cell.axes[name] for cell in cells.values()]) for name in names)
    told = (replace(cell, axes={axis.name: axis.of(cell.axes[axis.name]) for axis in axes}) for cell in cells.values())
    return Grid(Path(path), axes, tuple(told), file.fixed, file.tables, file.window, file.dask)


def value(replay: Replay, name: str) -> Any:
    """A setting of a run as a table's column holds it: a number, true or false, or text; None: not set."""
    if name == "policy":
        return replay.policy.name
    own = name.removeprefix("policy.")
    found = getattr(replay.policy, own, None) if own != name else setting_of(replay.config, name)
    return ",".join(map(str, found)) if isinstance(found, list | tuple) else found


def check_jobs(cells: Iterable[Cell]) -> None:
    """Select jobs as each cell does, each selection once: a user or a window that its trace does not have is found.

    Of generated traces that differ in the seed only, the first is drawn.

    Raises
    ------
    HetsimError
        Jobs that cannot be taken; it names the cell.
    """
    seen = set()
    for cell in cells:
        config = cell.config
        key = repr((whole(config.model_copy(update={"seed": 0})), selection(config), config.assign, config.assign_with))
        if key not in seen:
            seen.add(key)
            with _said_of(cell.text):
                read_trace(config, partial(TRACES.get, sha256=cell.sources.trace))


def _where(source: str, combination: Mapping[str, Any]) -> str:
    return f"{source}, [sweep] with " + ", ".join(f"{name} = {one}" for name, one in combination.items())


def _replay(fixed: Mapping[str, Any], source: str, combination: Mapping[str, Any]) -> Replay:
    """The run of a cell; what is wrong with it is said of the cell."""
    config = config_of(copy.deepcopy(dict(fixed)), source, combination, f"{source}, [sweep]")
    if config.out is not None:
        raise ConfigError("not a setting of a sweep", where=f"{source}, run.out", todo="Name its folder with --out.")
    where = _where(source, combination)
    with _said_of(where):
        replay = Replay(config)
    if replay.policy.needs_performance and config.work == "recorded":
        raise ConfigError("the policy needs modelled speeds", where=where, got="work = recorded",
                          allowed="work = iterations")
    return replay


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """Put a place before that of an error."""
    try:
        yield
    except HetsimError as error:
        place = f"{where}: {error.where}" if error.where else where
        raise ConfigError(error.what, where=place, got=error.got, allowed=error.allowed, todo=error.todo) from None
    except OSError as error:
        raise ConfigError("the file cannot be read", where=where, got=f"{error.filename}: {error.strerror}",
                          todo="Check its permissions.") from None


class _Hashes:
    """SHA-256 of trace files, each trace read once: so it is known that it can be read, and all that it reads."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], str] = {}

    def sha256(self, config: RunConfig, where: str) -> str:
        if config.trace in GENERATORS:
            return ""
        key = whole(config)
        if key not in self._known:
            with _said_of(where):
                self._known[key] = TRACES.get(config).provenance.sha256
        return self._known[key]


def _axis(name: str, found: list[Any]) -> Axis:
    kinds = {type(one) for one in found if one is not None}
    kind = "bool" if kinds == {bool} else "int64" if kinds == {int} else "double" if kinds and kinds <= {int, float} \
        else "string"
    column = name.replace(".", "_")
    axis = Axis(name, f"run_{column}" if column in _TAKEN else column, kind, ())
    return replace(axis, values=tuple(dict.fromkeys(axis.of(one) for one in found)))
