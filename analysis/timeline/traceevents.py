"""Timelines in the Trace Event Format, JSON that Perfetto and Chrome's `about:tracing` open.

A process is a node, a thread a GPU (or a further lane of it), a complete event ('X') a slice; restart overhead is a
slice within it. Counters are on a process of their own. Arrows (flow events of version 2) lead from where a job left
off to where it went on. Times are integers of the format's unit, microseconds: viewers turn fractions of it into binary
ones and then into nanoseconds, each in its own way, which moves ends by a nanosecond beyond the begin that follows
(Perfetto then drops the slice); integers they all read exactly.
Source: Duca and Sinclair, "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import gzip
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.run import Run
from analysis.timeline.tracks import US_PER_S, Timeline
from sim.results.schema import SCHEMA_VERSION
from traces.outfile import refuse_existing, written

MAX_EVENTS = 2_000_000
"""With more than that viewers run out of memory."""

CLUSTER_PID = 1
"""The process of the counters. That of node n is n + 2: viewers take process 0 for the idle one of Linux."""

_BATCH = 10_000


@dataclass(frozen=True)
class Written:
    """What a timeline file holds. Slices are those of segments; restarts within them count as events only."""

    path: Path
    slices: int
    events: int
    size_bytes: int


def write(timeline: Timeline, path: Path, *, force: bool = False,
          progress: Callable[[int, int], None] | None = None) -> Written:
    """Write a timeline, event by event; packed where the name ends in .gz. Equal runs give equal bytes.

    Parameters
    ----------
    force : replace a file that is there.
    progress : called with (events written, of how many) now and then.

    Raises
    ------
    HetsimError
        The file is there already (without `force`), or cannot be written.
    """
    refuse_existing(path, force)
    done, total = 0, count(timeline)
    about = {"policy": timeline.run.policy, "schema_version": SCHEMA_VERSION, "from_s": timeline.begin_s,
             "to_s": timeline.end_s, "first_submit_s": timeline.run.window_s[0]}
    with written(path) as part, _opened(part, packed=path.suffix == ".gz") as file:
        # The unit comes first: viewers that read as it comes know it from then on.
        file.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n')
        remaining = events(timeline)
        while batch := list(islice(remaining, _BATCH)):
            file.write((",\n" if done else "") + ",\n".join(batch))
            done += len(batch)
            if progress is not None:
                progress(done, total)
        file.write("\n]}\n")
    return Written(path, len(timeline.segment), done, path.stat().st_size)


def count(timeline: Timeline) -> int:
    """How many events a timeline has."""
    return len(_names(timeline)) + len(_times_us(timeline))


def fits_until_s(timeline: Timeline, limit: int = MAX_EVENTS) -> float:
    """Until when at most so many events lie, from the timeline's begin on; in s on the trace's clock."""
    room, times_us = limit - len(_names(timeline)), _times_us(timeline)
    if room >= len(times_us):
        return timeline.end_s
    first_out_us = int(np.partition(times_us, max(room, 0))[max(room, 0)])
    return max(timeline.begin_s, timeline.run.window_s[0] + (first_out_us - 1) / US_PER_S)


def events(timeline: Timeline) -> Iterator[str]:
    """The events, each a JSON object: names, counters, outages, then slices in order of begin."""
    yield from _names(timeline)
    yield from _counts(timeline)
    for node, time_s, what in timeline.outages:
        at = int(timeline.since_submit_us(np.array([time_s]))[0])
        yield f'{{"ph":"i","s":"p","name":"{what}","cat":"node","pid":{node + 2},"ts":{at}}}'
    yield from _slices(timeline)


def _times_us(timeline: Timeline) -> np.ndarray:
    """When each event is, names left out."""
    counters = [timeline.since_submit_us(frame["time_s"].to_numpy()) for frame in timeline.counters.values()]
    restarts = timeline.begin_us[timeline.paid_us > timeline.begin_us]
    outages = timeline.since_submit_us(np.array([time_s for _, time_s, _ in timeline.outages]))
    return np.concatenate((timeline.begin_us, restarts, *counters, outages))


def _threads(timeline: Timeline) -> np.ndarray:
    """int64 [slices]: number of the thread: no other GPU or lane has it, and no process."""
    gpus, processes = int(timeline.run.column("nodes", "gpus").sum()), len(timeline.run.nodes) + 2
    threads: np.ndarray = timeline.gpu + gpus * timeline.lane + 10 ** len(str(processes))
    return threads


def _names(timeline: Timeline) -> list[str]:
    """Names of the processes and threads that have something on them, and their order."""
    run = timeline.run
    cluster = str(run.info.get("cluster", {}).get("name", ""))
    names = _named("process", f"cluster {cluster}".strip(), 0, f'"pid":{CLUSTER_PID}')
    gpus = run.column("nodes", "gpus")
    for node in sorted({*np.unique(timeline.node).tolist(), *(node for node, _, _ in timeline.outages)}):
        name = f"node {node}, {gpus[node]} {run.types[run.node_type[node]]}"
        names += _named("process", name, node + 1, f'"pid":{node + 2}')
    threads, at = np.unique(_threads(timeline), return_index=True)
    by_gpu = np.lexsort((timeline.lane[at], timeline.gpu[at]))
    columns = (timeline.gpu[at], timeline.lane[at], timeline.node[at], threads)
    for order, (gpu, lane, node, thread) in enumerate(zip(*(c[by_gpu].tolist() for c in columns), strict=True)):
        name = f"GPU {gpu}, lane {lane + 1}" if lane else f"GPU {gpu}"
        names += _named("thread", name, order, f'"pid":{node + 2},"tid":{thread}')
    return names


def _named(what: str, name: str, order: int, where: str) -> list[str]:
    return [f'{{"ph":"M","name":"{what}_name",{where},"args":{{"name":{json.dumps(name)}}}}}',
            f'{{"ph":"M","name":"{what}_sort_index",{where},"args":{{"sort_index":{order}}}}}']


def _counts(timeline: Timeline) -> Iterator[str]:
    for name, frame in timeline.counters.items():
        at = timeline.since_submit_us(frame["time_s"].to_numpy()).tolist()
        columns = [_texts(pa.array(frame[column]), f",{json.dumps(column)}:") for column in frame.columns[1:]]
        head = f'{{"ph":"C","name":"{name}","pid":{CLUSTER_PID},"ts":'
        for ts, args in zip(at, _joined(columns), strict=True):
            yield f'{head}{ts},"args":{{{args[1:]}}}}}'


def _slices(timeline: Timeline) -> Iterator[str]:
    """Slices, each followed by its restart; what is said of a segment is put into words when its first slot comes."""
    starts = np.flatnonzero(np.diff(timeline.segment, prepend=-1))
    heads, arrows = _About(timeline.run).of(timeline.segment[starts]), _arrows(timeline)
    current, head, arrow = -1, "", ""
    columns = (timeline.segment, timeline.node + 2, _threads(timeline), timeline.begin_us, timeline.end_us,
               timeline.paid_us)
    for row, pid, tid, begin, end, paid in zip(*(column.tolist() for column in columns), strict=True):
        if row != current:
            current, head, arrow = row, next(heads), arrows.get(row, "")
        where = f'"pid":{pid},"tid":{tid},"ts":{begin}'
        yield f'{{"ph":"X",{where},"dur":{end - begin},{head}{arrow}}}'
        arrow = ""  # one arrow a gang: from its first slot and to it
        if paid > begin:
            yield f'{{"ph":"X",{where},"dur":{paid - begin},"name":"restart","cat":"overhead"}}'


def _arrows(timeline: Timeline) -> dict[int, str]:
    """By segment, its part in the arrows from one segment of a job to the next (none where only its speed changed)."""
    run, rows = timeline.run, np.unique(timeline.segment)
    job, reason = run.segment_job[rows], run.tables["segments"]["end_reason"].to_numpy()[rows]
    order = np.lexsort((run.column("segments", "begin_s")[rows], job))
    rows, job, reason = rows[order], job[order], reason[order]
    out = np.zeros(len(rows), dtype=bool)
    out[:-1] = (job[1:] == job[:-1]) & (job[1:] >= 0) & (reason[:-1] != "respeed")
    into = np.concatenate((np.zeros(1, dtype=bool), out))[: len(rows)]
    chain = np.cumsum(~into)
    return {
        row: f',"bind_id":"{number:#x}"' + ',"flow_in":true' * i + ',"flow_out":true' * o
        for row, number, i, o in zip(rows.tolist(), chain.tolist(), into.tolist(), out.tolist(), strict=True) if i or o
    }


class _About:
    """What is said of segments: name, category, arguments. Arguments tell all of a segment, also what is cut."""

    OF_JOB = ("user", "vc", "model", "num_gpus")
    OF_SEGMENT = ("end_reason", "begin_s", "end_s", "overhead_s", "rate", "work_done", "work_lost")

    def __init__(self, run: Run) -> None:
        self._segments, self._job = run.tables["segments"], run.segment_job
        jobs = run.tables["jobs"]
        of_job = _joined([_texts(jobs[name].combine_chunks(), f'"{name}":', ",") for name in self.OF_JOB])
        self._of_job = [*of_job, ""]  # the last is that of segments without a job, whose row is -1
        self._plans = _plans(run)

    def of(self, rows: np.ndarray) -> Iterator[str]:
        """For each of these segments the keys of its events, as JSON without the braces."""
        for first in range(0, len(rows), _BATCH):
            batch = rows[first : first + _BATCH]
            table = self._segments.take(batch).combine_chunks()
            column = {name: table[name].combine_chunks() for name in ("job_id", "gpu_milli", *self.OF_SEGMENT)}
            yield from _joined([
                _texts(column["job_id"], '"name":'),
                _texts(column["end_reason"], ',"cat":', ',"args":{'),
                [self._of_job[row] for row in self._job[batch].tolist()],
                _texts(pc.divide(column["gpu_milli"], 1000.0), '"share":'),
                *(_texts(column[name], f',"{name}":') for name in self.OF_SEGMENT),
                self._planned(column["job_id"], column["begin_s"]),
                ["}"] * len(batch),
            ])

    def _planned(self, job_id: pa.Array, begin_s: pa.Array) -> list[str]:
        """The plan that each segment ran under."""
        if not self._plans:
            return [""] * len(job_id)
        texts = []
        for job, begin in zip(job_id.to_pylist(), begin_s.to_pylist(), strict=True):
            begins, plans = self._plans.get(job, ([], []))
            chosen = bisect_right(begins, begin)
            texts.append(f',"plan":{json.dumps(plans[chosen - 1])}' if chosen else "")
        return texts


def _texts(column: pa.Array, before: str, after: str = "") -> list[str]:
    """Each value of a column as JSON between two texts; nothing where it is unknown. Equal values are written once."""
    coded = column.dictionary_encode("encode")
    texts = [f"{before}{repr(value) if type(value) is float else json.dumps(value)}{after}" if _known(value) else ""
             for value in coded.dictionary.to_pylist()]
    return [texts[code] for code in coded.indices.to_pylist()]


def _joined(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """The texts of each row of these columns, one after another."""
    return map("".join, zip(*columns, strict=True))


def _known(value: Any) -> bool:
    return value is not None and value != "" and not (type(value) is float and not math.isfinite(value))


def _plans(run: Run) -> dict[str, tuple[list[float], list[str]]]:
    """By job: when each of its plans began, and the plan in words."""
    parts: dict[str, dict[float, list[str]]] = {}
    names = ("job_id", "begin_s", "stage", "first_op", "last_op", "gpus", "gpu_type")
    columns = (run.tables["plans"][name].to_pylist() for name in names)
    for job, begin_s, stage, first, last, gpus, kind in zip(*columns, strict=True):
        text = f"stage {stage}: operators {first} to {last} on {gpus} {kind}"
        parts.setdefault(job, {}).setdefault(begin_s, []).append(text)
    return {job: (sorted(plans), ["; ".join(plans[at]) for at in sorted(plans)]) for job, plans in parts.items()}


@contextmanager
def _opened(path: Path, packed: bool) -> Iterator[IO[str]]:
    """A file to write text to. A packed one carries neither name nor time of its own."""
    if not packed:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as zipped, \
            TextIOWrapper(zipped, "utf-8", newline="") as file:
        yield file
