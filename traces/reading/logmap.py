"""A map from the columns of a log of one's own to those of the job table: from a line of text, or a TOML file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from traces.columns import BY_NAME, STATUSES
from traces.errors import TraceError, did_you_mean
from traces.reading.limits import parse_toml, plain_bytes
from traces.reading.times import zone

WHERE = "--map"

#: Unit -> how much of ours one is, exactly: 700 percent of a GPU are seven, not a little more.
Units = dict[str, Fraction]
TIME_UNITS: Units = {"ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 1000), "s": Fraction(1),
                     "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86_400)}
GPU_UNITS: Units = {"gpus": Fraction(1), "percent": Fraction(1, 100), "milli": Fraction(1, 1000)}
CPU_UNITS: Units = {"cores": Fraction(1), "percent": Fraction(1, 100), "milli": Fraction(1, 1000)}
MEMORY_UNITS: Units = {name: Fraction(n, 2**30) for name, n in (
    ("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40), ("MB", 10**6), ("GB", 10**9),
    ("TB", 10**12))}
#: Units of a point in time beside those: seconds since 1970, and a text.
EPOCH, DATE = "epoch", "date"

INSTANTS = ("submit", "start", "end", "deadline")
SPANS = ("duration", "wait", "estimate")
#: What a map may name, and the column of the job table that it fills ("": none of its own).
FIELDS: dict[str, str] = {
    "id": "job_id", "submit": "submit_s", "duration": "duration_s", "start": "", "end": "", "wait": "wait_s",
    "estimate": "estimate_s", "deadline": "deadline_s", "gpus": "num_gpus", "workers": "", "memory": "memory_gib",
}
FIELDS |= {name: name for name in BY_NAME if name not in FIELDS.values()}
_LONG = {column: name for name, column in FIELDS.items() if column}
_DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";", "bar": "|"}
_SECTIONS = ("columns", "units", "constants", "status", "calendar")
#: What a line names without its section, beside columns.
_BARE = dict.fromkeys(STATUSES, "status") | {"zone": "calendar"}


@dataclass(frozen=True)
class LogMap:
    """Which column of a file, in which unit, fills what.

    Attributes
    ----------
    text : one line that says all of it: what is kept, and makes the same map again.
    columns, units, constants : by the names of `FIELDS`
    words : words of the log for how a job ended, in lower case -> `traces.columns.STATUSES`
    zone, start : of the calendar: where its dates hold, and the date of time 0
    delimiter : between cells; empty: told from the file
    """

    text: str
    columns: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    zone: str = ""
    start: str = ""
    delimiter: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.columns or name in self.constants


def units_of(name: str) -> Units:
    """The units that a field may have, by name; none where it is text, or a plain number."""
    if name in INSTANTS or name in SPANS:
        return TIME_UNITS
    by_name = {"gpus": GPU_UNITS, "worker_gpus": GPU_UNITS, "cpus": CPU_UNITS, "memory": MEMORY_UNITS}
    return by_name.get(name, {})


def log_map(text: str) -> LogMap:
    """Read a map: a line `submit=COLUMN:UNIT,gpus=COLUMN,…`, or the name of a TOML file (docs/traces.md).

    Raises
    ------
    TraceError
        A field, section or unit is not known, a value is missing, something is named twice, or the file is no TOML.

    Examples
    --------
    >>> found = log_map("submit=submit_time:ms,gpus=1,passed=DONE|OK,zone=Asia/Shanghai")
    >>> found.columns, found.units, found.words["ok"]
    ({'submit': 'submit_time', 'gpus': '1'}, {'submit': 'ms'}, 'passed')
    """
    text, content = text.strip(), None
    if text.endswith(".toml") and "=" not in text:
        content = _read_toml(text)
        return _from_sections(content, text, json.dumps(content, ensure_ascii=False, default=_plain))
    if text.startswith("{"):  # what was kept of a file
        with suppress(ValueError, RecursionError):
            content = json.loads(text)
        if not isinstance(content, dict):
            raise TraceError("no map", where=WHERE, got=text, allowed="NAME=COLUMN:UNIT,…, or a TOML file")
        return _from_sections(content, WHERE, text)
    return _from_sections(_sections(text), WHERE, text)


def settled(text: str) -> str:
    """The line that says all of a map, whether it was a line or a file: a file may change, or be elsewhere."""
    return log_map(text).text


def _plain(value: object) -> str:
    return str(value)  # a date


def _read_toml(name: str) -> dict[str, Any]:
    def refused(what: str, got: object = None) -> TraceError:
        return TraceError(what, where=f"{WHERE}, {name}", got=got,
                          allowed="a TOML file with " + ", ".join(f"[{section}]" for section in _SECTIONS))

    if not Path(name).is_file():
        raise refused("no such file")
    try:
        return parse_toml(plain_bytes(Path(name)).decode("utf-8-sig"))
    except OSError as error:
        raise refused("cannot read the file", error.strerror) from None
    except ValueError as error:
        raise refused("the file is no TOML", str(error)[:100]) from None


def _sections(text: str) -> dict[str, Any]:
    """A line as the sections that a file would have."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            raise TraceError("no map" if not text else "a part of the map without a value", where=WHERE, got=part,
                             allowed="NAME=COLUMN or NAME=COLUMN:UNIT, separated by commas; or a TOML file",
                             todo="Names with a comma in them need a TOML file." if text else "")
        section, dot, inner = name.partition(".")
        if name in _BARE:
            section, dot, inner = _BARE[name], ".", name
        if not dot and name != "delimiter":
            column, colon, unit = value.partition(":")
            _put(found, "columns", name, column.strip() or value)
            if colon and column.strip():
                _put(found, "units", name, unit.strip())
        elif section == "status":
            _put(found, section, inner, value.split("|"))
        else:
            _put(found, section, inner, value) if dot else found.update(delimiter=value)
    return found


def _put(found: dict[str, Any], section: str, name: str, value: Any) -> None:
    table = found.setdefault(section, {})
    if name in table:
        raise TraceError(f"{name!r} is mapped twice", where=WHERE, got=value, allowed="each name once")
    table[name] = value


def _from_sections(content: Mapping[str, Any], where: str, text: str) -> LogMap:
    for section, table in content.items():
        if section not in (*_SECTIONS, "delimiter"):
            raise TraceError("unknown section of a map", where=where, got=section,
                             allowed=", ".join((*_SECTIONS, "delimiter")), todo=did_you_mean(section, _SECTIONS))
        if section != "delimiter" and not isinstance(table, dict):
            raise TraceError("value not allowed", where=f"{where}, {section}", got=table, allowed="a table")
    columns = _fields(content.get("columns", {}), f"{where}, columns")
    units = _fields(content.get("units", {}), f"{where}, units")
    constants = _fields(content.get("constants", {}), f"{where}, constants")
    for name in columns:
        if name in constants:
            raise TraceError(f"{name!r} is mapped twice", where=where, got=f"{columns[name]}, {constants[name]}",
                             allowed="a column or a constant")
    for name, unit in units.items():
        if name not in columns and name not in constants:
            raise TraceError("a unit of what is not mapped", where=f"{where}, units", got=name,
                             allowed=", ".join((*columns, *constants)), todo=did_you_mean(name, (*columns, *constants)))
        _check_unit(name, unit, where)
    calendar = content.get("calendar", {})
    for name in calendar:
        if name not in ("zone", "start"):
            raise TraceError("unknown key of a map", where=f"{where}, calendar", got=name, allowed="zone, start",
                             todo=did_you_mean(name, ("zone", "start")))
    named = str(calendar.get("zone", ""))
    zone(named, f"{where}, calendar, zone")
    return LogMap(text, columns, units, constants, _words(content.get("status", {}), f"{where}, status"), named,
                  str(calendar.get("start", "")), _delimiter(content.get("delimiter", ""), where))


def _fields(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """A section by the short names of fields, each value a text."""
    found: dict[str, str] = {}
    for given, value in table.items():
        name = _LONG.get(given, given)
        if name not in FIELDS:
            raise TraceError("nothing of that name in a job", where=where, got=given, allowed=", ".join(FIELDS),
                             todo=did_you_mean(given, (*FIELDS, *_LONG)))
        if name in found:
            raise TraceError(f"{name!r} is mapped twice", where=where, got=given, allowed="each name once")
        if isinstance(value, dict | list | bool) or str(value).strip() == "":
            raise TraceError("value not allowed", where=f"{where}, {given}", got=value, allowed="a text or a number")
        found[name] = str(value).strip()
    return found


def _check_unit(name: str, unit: str, where: str) -> None:
    known = (*units_of(name), *((EPOCH, DATE) if name in INSTANTS else ()))
    if unit in known or (name in INSTANTS and "%" in unit):
        return
    if not known:
        raise TraceError(f"{name!r} has no unit", where=where, got=unit, allowed="NAME=COLUMN",
                         todo="Names of columns with a colon in them need a TOML file.")
    more = ", or a form such as %d/%m/%Y %H:%M" if name in INSTANTS else ""
    raise TraceError("unknown unit", where=f"{where}, {name}", got=unit, allowed=", ".join(known) + more,
                     todo=did_you_mean(unit, known))


def _words(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """The log's own words (lower case) -> how a job ended."""
    found: dict[str, str] = {}
    for status, words in table.items():
        if status not in STATUSES:
            raise TraceError("no end of a job", where=where, got=status, allowed=", ".join(STATUSES),
                             todo=did_you_mean(status, STATUSES) or "Ours comes first: passed=THEIRS.")
        for word in words if isinstance(words, list) else [words]:
            lower = str(word).strip().lower()
            if found.get(lower, status) != status:
                raise TraceError("a word with two meanings", where=where, got=word, allowed="each word once")
            found[lower] = status
    return found


def _delimiter(value: Any, where: str) -> str:
    found = _DELIMITERS.get(value, value) if isinstance(value, str) else None
    if found is None or len(found) > 1 or (found and (found in '"\r\n' or not (found.isascii()))):
        raise TraceError("no delimiter", where=f"{where}, delimiter", got=value,
                         allowed=", ".join(_DELIMITERS) + ", or one character")
    return found
