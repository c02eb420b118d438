"""What the Slurm-like logs of Helios and Acme share: jobs with nodes, GPUs, a state and three calendar times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.readers.rows import demands, lines_of_files
from traces.reading import status
from traces.reading.reader import choice
from traces.reading.spans import EDGES, cut_words, spans
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.reading.unpack import files_by, inner_name, only
from traces.trace import Provenance, Trace

#: GPUs of a node in Helios (Hu et al., SC 2021, Table 1) and in Acme (Hu et al., NSDI 2024, Table 1).
NODE_GPUS = 8
#: What Slurm writes for the time of something that has not happened.
NOT_YET = "Unknown"

#: (cells, the place of a cell) -> POSIX seconds, NaN where there is no time.
Clock = Callable[[np.ndarray, Callable[[int], str]], np.ndarray]


@dataclass(frozen=True)
class Part:
    """One cluster's log: its file, what its jobs' virtual clusters and ids begin with, and the rows to look at."""

    file: Path
    prefix: str = ""
    vc: str | None = None
    wanted: Callable[[Table], np.ndarray] | None = None


@dataclass
class _Jobs:
    columns: dict[str, list[np.ndarray]] = field(default_factory=dict)
    lines: list[np.ndarray] = field(default_factory=list)
    rows_read: int = 0


def read_slurm(
    parts: Sequence[Part], header: tuple[str, ...], clock: Clock, provenance: Provenance, edges: str = "drop"
) -> Trace:
    """Read the logs of one or more clusters as one trace; `provenance` says what the format knows beforehand.

    A job that started and has no end is dropped; with `edges` cut it runs to the last time that its file names, and is
    marked in column `cut`. So is, in any case, one that has an end though its state says that it had not ended.

    duration_s is end - start and wait_s start - submission, whatever the columns `duration` and `queue` say: in Acme's
    Kalos, `duration` has the queueing in it. Rows where they differ are counted.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`; a cell that is no time; an unknown state.
    """
    choice("edges", edges, EDGES)
    jobs, total = _Jobs(), Tally()
    for part in parts:
        table = read_table(part.file, header)
        tally = Tally(table.lines, "line")
        _add(jobs, table, part, clock, tally, edges)
        for what, count in tally.counts.items():
            where = f"{part.file.name}, " if len(parts) == 1 else f"{part.file.parent.name}/{part.file.name}, "
            total.add(what, count, (where * (len(parts) > 1) + place for place in tally.first[what]))
    columns = {name: np.concatenate(pieces) for name, pieces in jobs.columns.items()}
    first_s = float(columns["submit_s"].min(initial=np.inf))
    known = np.isfinite(first_s)
    columns["submit_s"] = columns["submit_s"] - (first_s if known else 0.0)
    about = {
        **vars(provenance), "rows_read": jobs.rows_read, "counts": total.counts, "first": total.first,
        "epoch_s": first_s if known else None,
    }
    if len(parts) == 1:
        return Trace.from_columns(columns, Provenance(**about), rows=jobs.lines[0], row_word="line")
    names = [part.prefix + part.file.name for part in parts]
    return Trace.from_columns(columns, Provenance(**about), rows=lines_of_files(names, jobs.lines), row_word="file")


def _add(jobs: _Jobs, table: Table, part: Part, clock: Clock, tally: Tally, edges: str) -> None:
    """Add the GPU jobs of one file."""
    gpus = table.number("gpu_num", integer=True, high=1e6, blank=True)
    look = np.ones(len(table), dtype=bool) if part.wanted is None else part.wanted(table)
    tally.rows("jobs of other types dropped", ~look)
    tally.rows("CPU-only jobs dropped", look & (gpus == 0))
    tally.rows("jobs without a number of GPUs dropped", look & np.isnan(gpus))
    submit_s, start_s, end_s = (_times(table, name, clock) for name in ("submit_time", "start_time", "end_time"))
    last_s = float(np.fmax.reduce([submit_s, start_s, end_s], axis=None, initial=-np.inf))
    state = table.text("state").tolist()
    still = status.still_there(state)
    found = spans(tally, submit_s, start_s, end_s, look & (gpus > 0), until_s=last_s if edges == "cut" else None)
    tally.rows("jobs that had not ended by their state: run time cut at their end", found.kept & still & ~found.after)
    _compare(table, found.kept, found.duration_s, found.wait_s, tally)
    keep = np.flatnonzero(found.kept)
    vc = table.text("vc") if part.vc is None else np.full(len(table), part.vc, dtype=object)
    columns = {
        "job_id": part.prefix + table.text("job_id")[keep], "user": table.text("user")[keep],
        "vc": part.prefix + vc[keep] if part.vc is None else vc[keep],
        "submit_s": submit_s[keep], "duration_s": found.duration_s[keep], "wait_s": found.wait_s[keep],
        "num_gpus": gpus[keep], "worker_gpus": _workers(table, gpus, keep, tally),
        "status": status.canonical(state, table.source, table.lines)[keep],
        "cut": cut_words(found.after | still)[keep],
        **demands(table, keep, cpus=("cpu_num", 1.0)),
    }
    for name, values in columns.items():
        jobs.columns.setdefault(name, []).append(values)
    jobs.lines.append(table.lines[keep])
    jobs.rows_read += len(table)


def _times(table: Table, name: str, clock: Clock) -> np.ndarray:
    cells = table.text(name)
    return clock(np.where(cells == NOT_YET, "", cells), lambda i: table.where(i, name))


def _workers(table: Table, gpus: np.ndarray, keep: np.ndarray, tally: Tally) -> np.ndarray:
    """GPUs on one node: gpu_num / node_num, or 1 (anywhere) where that is no whole number that a node has."""
    nodes = table.number("node_num", integer=True, high=1e6, blank=True)[keep]
    each = np.divide(gpus[keep], nodes, out=np.full(len(keep), np.nan), where=nodes > 0)
    whole = (each == np.floor(each)) & (each <= NODE_GPUS)
    tally.rows("jobs whose GPUs do not lie evenly on their nodes: may lie anywhere", keep[~whole])
    return np.where(whole, each, 1.0)


def _compare(table: Table, kept: np.ndarray, duration_s: np.ndarray, wait_s: np.ndarray, tally: Tally) -> None:
    """Count where the log's own duration and queue are not what its times say (by more than a second)."""
    own = table.number("duration", low=-LONGEST_RUN_S, high=LONGEST_RUN_S, blank=True)
    off = kept & (np.abs(own - duration_s) > 1)
    queued = off & (np.abs(own - duration_s - wait_s) <= 1)
    tally.rows("rows whose duration has the queueing in it: end - start is used", queued)
    tally.rows("rows whose duration is not end - start: end - start is used", off & ~queued)
    queue = table.number("queue", low=-LONGEST_RUN_S, high=LONGEST_RUN_S, blank=True)
    tally.rows("rows whose queue is not start - submission: start - submission is used",
               kept & (np.abs(queue - wait_s) > 1))


def folders_with(path: Path, name: str) -> list[Path]:
    """Files of that name, packed or not, in a folder or else one level below it, sorted.

    Raises
    ------
    TraceError
        There is none, more than one in a folder, or one both in the folder and below it.
    """
    here, below = named(path, name), [file for folder in _folders(path) for file in named(folder, name)]
    if here and below:
        raise TraceError(f"{name} both in the folder and below it", where=str(path),
                         got=", ".join(file.relative_to(path).as_posix() for file in (here + below)[:10]),
                         allowed=f"one {name}, or folders that each have one", todo="Name the one that is meant.")
    found = here or below
    if not found:
        raise TraceError(f"no {name} in the folder", where=str(path), got=", ".join(sorted(
            p.name for p in path.iterdir())[:10]), allowed=f"{name}, or folders that each have one")
    return found


def named(folder: Path, name: str) -> list[Path]:
    """The file of that name in a folder, packed or not: [] or [file]; a TraceError where there are more."""
    found = files_by(folder, lambda other: name if inner_name(other) == name else None)
    return [only(files) for files in found.values()]


def has(folder: Path, name: str) -> bool:
    """Whether a file of that name, packed or not, is in a folder or one level below it."""
    def inside(folder: Path) -> bool:
        return any(inner_name(file.name) == name and not file.is_dir() for file in folder.iterdir())

    return inside(folder) or any(map(inside, _folders(folder)))


def _folders(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.is_dir() and not file.name.startswith("."))
