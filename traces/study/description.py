"""The description beside a trace file (OUT.parquet.json): where the trace is from, and what makes it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from traces.columns import BY_NAME, MAX_TIME_S
from traces.errors import TraceError
from traces.reading.limits import Room, plain_bytes
from traces.reading.text import read_bytes
from traces.reading.times import zone
from traces.reading.unpack import room_of
from traces.trace import Provenance, Trace

VERSION = 2
Kind = TypeVar("Kind")


def sidecar(path: Path) -> Path:
    """Where the description of a trace file is: its name with .json added."""
    return path.with_name(path.name + ".json")


def description(trace: Trace, selection: str, recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    """What stands beside a trace file: enough to make it again, and to see that it is the same."""
    about = trace.provenance
    return {
        "hetsim_trace": VERSION, "hetsim": _hetsim_version(), "jobs": len(trace), "sha256": trace.content_hash(),
        "source": about.source, "source_sha256": about.sha256, "format": about.format, "options": dict(about.options),
        "selection": selection, "recipe": dict(recipe or {}), "seed": about.seed, "rule": about.rule,
        "rows_read": about.rows_read, "counts": dict(about.counts),
        "first": {what: list(places) for what, places in about.first.items()}, "notes": list(about.notes),
        "epoch_s": about.epoch_s, "tz": about.tz, "date_is_real": about.date_is_real,
        "rates": about.rates,
        "window_s": None if about.window_s is None else list(about.window_s),
        "units": {name: BY_NAME[name].unit for name in trace.said() if BY_NAME[name].unit},
    }


def _hetsim_version() -> str:
    try:
        return version("hetsim")
    except PackageNotFoundError:  # used from a folder, not installed
        return "unknown"


def read_description(path: Path) -> dict[str, Any]:
    """The description beside a trace file, or that file itself, as it was written.

    Raises
    ------
    TraceError
        It is not there, or is no description of a trace.
    """
    if not path.name or path.is_dir():
        raise TraceError("a folder, not a description of a trace", where=str(path),
                         allowed="a file that hetsim trace convert wrote")
    beside = path if path.suffix == ".json" else sidecar(path)
    try:
        data = read_bytes(beside)
        room_of(beside).take_json(data)
        about = json.loads(data.decode("utf-8"))
        right = isinstance(about, dict) and isinstance(about["hetsim_trace"], int) and isinstance(about["sha256"], str)
    except (ValueError, KeyError, RecursionError):
        right = False
    if not right:
        raise TraceError("no description of a trace", where=str(beside),
                         allowed="a file that hetsim trace convert wrote")
    return dict(about)


def described(path: Path, rows: int) -> tuple[Provenance, str]:
    """What the description beside a trace file says (older ones say less), and the hash of its content ("": none)."""
    plain, beside = Provenance(source=str(path), format="canonical", rows_read=rows), sidecar(path)
    if not beside.is_file():
        return plain, ""
    try:
        data = plain_bytes(beside)
        Room.of(beside).take_json(data)
        about = json.loads(data)
        notes = [f"made from {about['source']} ({about['format']})"]
        notes += [about["selection"]] if about["selection"] and not about.get("recipe") else []  # notes say it, too
        epoch_s, window_s, seed = about.get("epoch_s"), about.get("window_s"), about.get("seed")
        tz = str(about.get("tz", "UTC"))
        zone(tz)
        provenance = replace(
            plain, rule=_is(str, about["rule"]), rows_read=int(about.get("rows_read", rows)),
            seed=None if seed is None else int(seed),
            counts={what: int(count) for what, count in _is(dict, about["counts"]).items()},
            first={what: tuple(map(str, places)) for what, places in _is(dict, about.get("first", {})).items()},
            notes=(*notes, *map(str, _is(list, about["notes"]))), tz=tz, rates=_is(str, about.get("rates", "")),
            epoch_s=None if epoch_s is None else _time_s(epoch_s), date_is_real=bool(about.get("date_is_real", True)),
            window_s=None if window_s is None else (_time_s(window_s[0]), _time_s(window_s[1])),
        )
        return provenance, str(about.get("sha256", ""))
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError, TraceError):
        return replace(plain, notes=(f"{beside.name} is no description of a trace, ignored",)), ""


def _is(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _time_s(value: Any) -> float:
    if not abs(float(value)) <= MAX_TIME_S:
        raise ValueError(value)
    return float(value)
