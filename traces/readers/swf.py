"""The Standard Workload Format of the Parallel Workloads Archive (Feitelson), version 2.2: 18 fields a job."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces.errors import TraceError
from traces.readers.rows import MOST_ASKED, trace_of
from traces.reading.reader import Head, Reader, choice
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_bytes
from traces.reading.times import LATEST_S, zone
from traces.trace import Trace

FIELDS = ("job", "submit", "wait", "run", "allocated", "cpu_time", "memory", "requested", "requested_time",
          "requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding", "think")

STATUS = {-1: "unknown", 0: "failed", 1: "passed", 5: "killed"}
"""Field 11. 2, 3 and 4 are pieces of a job that was swapped or checkpointed; its sum is in a row of its own."""

MOST_CORES = 10_000
OLDEST_S = 631_152_000
"""POSIX seconds of 1990-01-01: the archive's oldest log is of 1993."""

_COMMENT = re.compile(r";\s*(?P<key>[A-Za-z]+):\s*(?P<value>.*)")


def read_swf(path: Path, *, gpus: str = "requested", cores_per_gpu: int = 1) -> Trace:
    """Read lines of 18 numbers, separated by blanks; lines that begin with `;` are comments.

    ===================================  ==================================================================
    source (number of the field)         becomes
    ===================================  ==================================================================
    job number (1)                       job_id
    submit time (2)                      submit_s, in s from the start of the log; unknown: dropped and counted
    wait time (3)                        wait_s, in s
    run time (4)                         duration_s, in s; unknown: the job is dropped and counted
    requested (8), allocated (5) processors   num_gpus by options gpus and cores_per_gpu; where one is unknown, the
                                         other, counted; neither, or 0: the job is dropped and counted
    requested time (9)                   estimate_s, in s: run time that the user announced
    status (11)                          status: 1 passed, 0 failed, 5 (cancelled) killed; 2, 3, 4: pieces of jobs
                                         that have a row of their own, dropped and counted
    user (12)                            user
    partition (16)                       vc
    requested memory (10)                memory_gib = it x processors / 2**20: it is in KB of 1,024 bytes a processor
    preceding job (17), think time (18)  unused: a job comes at its time of submission, whenever the one before it has
                                         ended; jobs with a preceding job are counted
    CPU time (6), used memory (7), group (13), executable (14), queue (15)
                                         unused: a group is one of users, not of jobs
    comment UnixStartTime, TimeZoneString   the calendar: POSIX time of submit_s = 0, and the zone of the log; none (a
                                         note says so) where that is before 1990 or after 2099
    ===================================  ==================================================================

    -1 means unknown in every field. Processors are the GPUs here: they are not asked for a second time as `cpus`.
    Source: the archive's definition of the format.

    Parameters
    ----------
    gpus : {"requested", "used"}
        Whether a job's GPUs are the processors that it asked for or those that it was given.
    cores_per_gpu : int
        Processors that make one GPU: num_gpus = processors / cores_per_gpu, rounded up (counted). 1: as they are.

    Raises
    ------
    TraceError
        A line without 18 numbers, an unknown status, or an option that is not allowed; see `Trace.from_columns`.
    """
    choice("gpus", gpus, ("requested", "used"))
    if not 1 <= cores_per_gpu <= MOST_CORES:
        raise TraceError("value not allowed", where="option 'cores_per_gpu'", got=cores_per_gpu,
                         allowed=f"an integer from 1 to {MOST_CORES:,}")
    table, comments = _read(path)
    tally = Tally(table.lines)
    code, run_s = table.number("status", low=-1, high=5, integer=True), _known(table, "run", LONGEST_RUN_S)
    pieces = (code >= 2) & (code <= 4)
    tally.rows("pieces of jobs (status 2, 3, 4) dropped: their sum has a row", pieces)
    first, second = ("requested", "allocated") if gpus == "requested" else ("allocated", "requested")
    asked, other = _known(table, first, 1e9), _known(table, second, 1e9)
    tally.rows(f"jobs by {second} processors, since {first} ones are unknown",
               ~pieces & np.isnan(asked) & ~np.isnan(other))
    processors = np.where(np.isnan(asked), other, asked)
    submit_s, keep = _known(table, "submit", 1e11), ~pieces
    for what, lacks in (("a run time", np.isnan(run_s)), ("a time of submission", np.isnan(submit_s)),
                        ("processors", ~(processors > 0))):
        tally.rows(f"jobs without {what} dropped", keep & lacks)
        keep &= ~lacks
    tally.rows("zero-length jobs kept", keep & (run_s == 0))
    tally.rows("jobs that wait for another one by the log (field 17): replayed at their own time of submission",
               keep & (table.number("preceding", low=-np.inf) > 0))
    num_gpus = np.ceil(processors / cores_per_gpu)
    tally.rows("processors rounded up to whole GPUs", keep & (num_gpus * cores_per_gpu != processors))
    columns = {
        "job_id": table.text("job"), "submit_s": submit_s, "duration_s": run_s,
        "num_gpus": num_gpus, "wait_s": _known(table, "wait", 1e11),
        "estimate_s": _known(table, "requested_time", 1e11), "user": _names(table, "user"),
        "memory_gib": _known(table, "requested_memory", MOST_ASKED) * processors / 2**20,
        "vc": _names(table, "partition"), "status": np.array([STATUS.get(int(c), "") for c in code], dtype=object),
    }
    tz, strange = _zone(comments)
    epoch_s, odd = _epoch(comments)
    notes = (f"a GPU is {cores_per_gpu} processor" + ("s" if cores_per_gpu > 1 else ""), *strange, *odd,
             *(f"{key} {comments[key]}" for key in ("Computer", "MaxProcs", "MaxNodes") if key in comments))
    return trace_of(table, columns, keep, tally, format="swf", notes=notes, epoch_s=epoch_s, tz=tz)


def _read(path: Path) -> tuple[Table, dict[str, str]]:
    """The fields as text, and the header comments by key (of several with one key the first)."""
    rows: list[list[str]] = []
    lines: list[int] = []
    comments: dict[str, str] = {}
    text = read_bytes(path).decode("utf-8", "replace")  # names in comments of old logs are not always UTF-8
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith(";"):
            if match := _COMMENT.match(line.strip()):
                comments.setdefault(match["key"], match["value"].strip())
        elif cells := line.split():
            if len(cells) != len(FIELDS):
                raise TraceError("a row has the wrong number of fields", where=f"{path}, line {number}",
                                 got=f"{len(cells)}: {line[:80]}", allowed=f"{len(FIELDS)} numbers, -1 for unknown",
                                 todo="Correct the row, or name another --format.")
            rows.append(cells)
            lines.append(number)
    if not rows:
        raise TraceError("the trace has no jobs", where=str(path), got="comments only", allowed="at least one row")
    cells_of = zip(*rows, strict=True)
    table = Table(str(path), {name: pa.chunked_array([pa.array(cells)])
                              for name, cells in zip(FIELDS, cells_of, strict=True)}, np.array(lines))
    return table, comments


def _known(table: Table, name: str, high: float) -> np.ndarray:
    """A field from 0 up; NaN where it is -1, unknown."""
    values = table.number(name, low=-1, high=high)
    return np.where(values == -1, np.nan, values)


def _names(table: Table, name: str) -> np.ndarray:
    """A field of numbers that stand for names, as text; "" where it is -1, unknown."""
    text = table.text(name)
    return np.where(text == "-1", "", text)


def _epoch(comments: dict[str, str]) -> tuple[float | None, tuple[str, ...]]:
    """POSIX time of submit_s = 0, None where the log has no calendar; and a note on one that cannot be."""
    given = comments.get("UnixStartTime", "0")
    try:
        start = float(given.split()[0])
    except (ValueError, IndexError):
        start = math.nan
    if OLDEST_S <= start < LATEST_S:
        return start, ()
    if start == 0:  # how the archive writes that it is not known
        return None, ()
    return None, (f"UnixStartTime {given[:40]!r} is no time from 1990 to 2099: the log has no calendar",)


def _zone(comments: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """The zone of the log's calendar (UTC where it names none that is known), and a note on one that is unknown."""
    name = comments.get("TimeZoneString", "UTC")
    try:
        zone(name)
    except TraceError:
        return "UTC", (f"time zone {name!r} is unknown: UTC is taken",)
    return name, ()


def _is_swf(head: Head) -> bool:
    """Whether the first line that is no comment has 18 numbers (in a file of comments only: the name's ending)."""
    for line in head.first.splitlines():
        if line.strip() and not line.lstrip().startswith(b";"):
            cells = line.split()
            return len(cells) == len(FIELDS) and all(re.fullmatch(rb"[-+]?[0-9.]+(?:[eE][-+]?\d+)?", c) for c in cells)
    return head.path.suffix == ".swf"


READER = Reader(
    name="swf",
    description="Standard Workload Format: 18 numbers a line, comments begin with ;",
    public="https://www.cs.huji.ac.il/labs/parallel/workload (logs of the Parallel Workloads Archive)",
    licence="each log's own",
    header=(),
    read=read_swf,
    options={
        "gpus": "requested (default) or used processors",
        "cores_per_gpu": "processors that make one GPU, rounded up; default 1",
    },
    sniff=_is_swf,
)
