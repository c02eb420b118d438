"""What the columns of an unknown log may mean, by their names: the line that a message proposes. It reads nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

#: Field of `traces.reading.logmap` -> how columns that hold it are called (lower case, words joined by _).
_NAMES: dict[str, str] = {
    "id": r"^(job|task|pod)_?(id|name|key)$|^(id|uuid|job|name)$",
    "submit": r"submi|arriv|creat|queued_at|^time_?stamp$",
    "start": r"start|beg[ia]n|launch|schedul",
    "end": r"(^|_)(end|finish|complet|delet|stop|terminat)",
    "duration": r"duration|elapsed|run_?time|^run(_|$)",
    "wait": r"wait|queue_?(time|delay|ing)|pending",
    "estimate": r"time_?limit|wall_?time|requested_time|estimate",
    "gpu_type": r"gpu.*(type|model|spec|name)",
    "gpus": r"^(?!.*(milli|mem|util|time|hour|index|id(_|$)|type|model|spec|name)).*gpu",
    "vc": r"^(vc|queue|queue_name|partition|tenant|project|cluster|virtual_cluster|org\w*|team|department|namespace)$",
    "user": r"user|owner|^account$",
    "status": r"^(job_|final_|exit_)?(status|state|phase)$",
}
_UNITS = {"ns": "ns", "nanoseconds": "ns", "us": "us", "microseconds": "us", "ms": "ms", "milliseconds": "ms",
          "min": "min", "mins": "min", "minutes": "min", "h": "h", "hr": "h", "hrs": "h", "hours": "h"}
_TIMES = ("submit", "start", "end", "duration", "wait", "estimate")


def guessed(header: Sequence[str]) -> dict[str, str]:
    """Field -> "COLUMN" or "COLUMN:UNIT", for the columns whose names tell; each column once, each time once."""
    found: dict[str, str] = {}
    left = {name: re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") for name in header if name and "," not in name}
    for field, pattern in _NAMES.items():
        for name, plain in left.items():
            if re.search(pattern, plain):
                unit = _UNITS.get(plain.rpartition("_")[2], "") if field in _TIMES and "_" in plain else ""
                found[field] = f"{name}:{unit}" if unit else name
                del left[name]
                break
    for kept, doubled in (("duration", "end"), ("start", "wait")):
        if kept in found:
            found.pop(doubled, None)
    return found


def proposal(header: Sequence[str], given: Mapping[str, str] | None = None) -> str:
    """A --map to copy: what was given, what is guessed, and COLUMN for what must be there and is not."""
    given = given or {}
    names = {field: name for field, name in guessed(header).items() if name.partition(":")[0] not in given.values()}
    if "duration" in given or ("end" in given and ({"start", "wait"} & set(given))):
        names = {field: name for field, name in names.items() if field not in ("duration", "start", "end", "wait")}
    names |= given
    timed = "duration" in names or ("end" in names and ("start" in names or "wait" in names))
    needed = {"submit": "COLUMN", **({} if timed else {"duration": "COLUMN"}), "gpus": "COLUMN"}
    order = ("submit", "duration", "start", "end", "gpus")
    whole = needed | names
    fields = [*(f for f in order if f in whole), *(f for f in whole if f not in order)]
    return "--map " + shlex.quote(",".join(f"{field}={whole[field]}" for field in fields))


def tells(header: Sequence[str]) -> bool:
    """Whether the names look like those of a log of jobs: when one came, and how long it ran or what it asked for."""
    found = guessed(header)
    return "submit" in found and bool({"duration", "end", "gpus"} & set(found))
