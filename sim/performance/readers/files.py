"""Files of graphs: read whole, numbers checked one by one; whatever is wrong is said with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.performance.graph import PerformanceError
from traces.reading.limits import Room, plain_bytes

HUGE = 1e18
"""No time in milliseconds, size in bytes or count of a real model reaches this."""


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises
    ------
    PerformanceError
        It cannot be read, is a folder, or is empty.
    """
    def refused(got: str | None) -> PerformanceError:
        return PerformanceError("an operator graph cannot be read", where=str(path), got=got, todo="Name a file.")

    try:
        # Reading a pipe or a device may never end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise refused("a pipe, socket or device")
        content = plain_bytes(path, PerformanceError)
    except OSError as error:
        raise refused(error.strerror) from error
    except ValueError as error:  # a name that no file can have
        raise refused(str(error)) from error
    if not content.strip():
        raise PerformanceError("an operator graph's file is empty", where=str(path))
    return content


def parse_json(content: bytes, where: str) -> Any:
    """JSON as Python's own types; a name that occurs twice in one object is an error, not the last one's value."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise PerformanceError("a name occurs twice in one JSON object", where=where, got=key)
            found[key] = value
        return found

    Room(where, len(content), error=PerformanceError).take_json(content)
    try:
        return json.loads(content, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise PerformanceError(f"not valid JSON: {error.msg}", where=f"{where}, line {error.lineno}") from error
    except UnicodeDecodeError as error:
        raise PerformanceError("not text", where=where, got=str(error)) from error
    except (RecursionError, ValueError) as error:
        raise PerformanceError("JSON nested too deep, or a number too long", where=where) from error


def number(value: object, what: str, where: str) -> float:
    """A finite number from 0 to `HUGE`; bool is none.

    Raises
    ------
    PerformanceError
        It is anything else, NaN and infinity included.
    """
    found = float("nan")
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            found = float(value)
    if not (math.isfinite(found) and 0 <= found <= HUGE):
        got = value if len(str(value)) < 60 else f"{str(value)[:40]}..."
        raise PerformanceError(f"{what} is not a usable number", where=where, got=got, allowed=f"0 to {HUGE:g}")
    return found


def member(record: object, key: str, where: str) -> Any:
    """`record[key]`, where the record is a JSON object and has it."""
    if not isinstance(record, Mapping) or key not in record:
        raise PerformanceError(f"{key!r} is missing", where=where)
    return record[key]


def records(document: object, key: str, where: str) -> list[Any]:
    """The list `document[key]`, not empty unless it holds edges."""
    found = member(document, key, where)
    if not isinstance(found, list) or (not found and key != "edges"):
        raise PerformanceError(f"{key!r} is not a list of records, or is empty", where=where)
    return found


def node_id(value: object, where: str) -> int:
    """A node's number: a whole one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PerformanceError("a node's id is not a whole number", where=where, got=value)
    return value
