"""What is odd about a trace: allowed, but a user may want to know before believing a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from traces.late import pd
from traces.reading.tally import FIRST
from traces.reading.times import AS_NAMED, BY_MINUTES
from traces.select import asked_for
from traces.study.describe import allows
from traces.study.edges import cut_off
from traces.trace import Trace

YEAR_S, DAY_S = 366 * 86_400.0, 86_400.0
MISSING_WORDS = ("na", "n/a", "nan", "none", "null", "nil", "")
FEW = 20
"""Below so many jobs, that all of them share a property says nothing of the unit."""

SEVENTHS = ("jobs on sevenths of a GPU, as MIG slices are: a share here is any part of any GPU, without MIG's "
            "positions and profiles, so that they fit better than slices would")


@dataclass(frozen=True)
class Oddity:
    """How many jobs (or rows of the source), and the ids (or places) of the first ones."""

    what: str
    count: int
    first: tuple[str, ...]


def in_sevenths(trace: Trace) -> np.ndarray:
    """Mask of the jobs whose share is k / 7 of a GPU, rounded up or down: 142, 143, 285, 286, ... 857, 858."""
    near = np.rint(trace.gpu_milli * 7 / 1000)
    return np.asarray((trace.gpu_milli < 1000) & (near >= 1) & (np.abs(trace.gpu_milli - near * 1000 / 7) < 1))


def told(trace: Trace) -> list[Oddity]:
    """What the reader dropped, repaired or read in a special way; steps that the user asked for are left out."""
    about = trace.provenance
    return [Oddity(what, count, tuple(about.first.get(what, ())))
            for what, count in about.counts.items() if count and not asked_for(what)]


def check(
    trace: Trace, *, gpus_by_type: Mapping[str, int] | None = None, largest_nodes: Mapping[str, int] | None = None,
    wider_than: int | None = None, longer_than_s: float = YEAR_S,
) -> list[Oddity]:
    """List what is odd about the jobs of a trace; an empty list where nothing is.

    Parameters
    ----------
    gpus_by_type : mapping of GPU type to number of GPUs, optional
        The cluster it is meant for: jobs that ask for types that it lacks, or for more GPUs than it has of the types
        that they allow, can never run.
    largest_nodes : mapping of GPU type to number of GPUs, optional
        The most GPUs that a node of the type has: a worker that needs more of one node can never run.
    wider_than : int, optional
        GPUs of the cluster, where nothing else is known of it: wider jobs can never run.
    longer_than_s : float
        Run time, in s, above which the unit is doubted (default: a year).
    """
    tests = [*_of_jobs(trace, longer_than_s), *_of_columns(trace), *_of_the_whole(trace)]
    taken = trace.num_gpus * trace.gpu_milli / 1000.0
    if wider_than is None and gpus_by_type is not None:
        wider_than = sum(gpus_by_type.values())
    if wider_than is not None:
        tests.append((f"jobs wider than {wider_than} GPUs: they can never run", taken > wider_than))
    if gpus_by_type is not None:
        room = _by_wish(trace, gpus_by_type, sum)
        tests += [
            ("jobs that ask for GPU types which the cluster lacks: they can never run", room == 0),
            ("jobs wider than the GPUs of the types that they ask for: they can never run",
             (room > 0) & (taken > room) & (trace.gpu_type != "")),
        ]
    if largest_nodes is not None:
        node = _by_wish(trace, largest_nodes, max)
        tests.append(("jobs with a worker larger than any node: they can never run",
                      (node > 0) & (trace.worker_gpus > node)))
    found = ((what, np.flatnonzero(hit)) for what, hit in tests)
    return [Oddity(what, len(rows), tuple(trace.job_id[rows[:FIRST]])) for what, rows in found if len(rows)]


def _by_wish(trace: Trace, by_type: Mapping[str, int], add: Callable[[list[int]], int]) -> np.ndarray:
    """What the GPU types that each job allows have together; 0 where the cluster has none of them."""
    there = {wish: add([n for name, n in by_type.items() if allows(wish, name)] or [0])
             for wish in set(trace.gpu_type.tolist())}
    return np.array([there[wish] for wish in trace.gpu_type.tolist()])


def _of_jobs(trace: Trace, longer_than_s: float) -> Iterator[tuple[str, np.ndarray]]:
    """Each job by itself, or against an equal one."""
    same = ("submit_s", "duration_s", "num_gpus", "gpu_milli", "gpu_type", "vc", "user", "status", "model")
    frame = pd.DataFrame({name: getattr(trace, name) for name in same})
    worker = trace.num_gpus // trace.worker_gpus
    known, begun = ~np.isnan(trace.estimate_s), cut_off(trace)[0]
    yield "zero-length jobs", trace.duration_s == 0
    yield "jobs that share their time of submission", _again(frame[["submit_s"]], begun, keep=False)
    yield "jobs equal to an earlier one in all but the id", _again(frame, begun)
    yield f"jobs longer than {longer_than_s:g} s: is the unit seconds?", trace.duration_s > longer_than_s
    yield "jobs submitted before time 0", trace.submit_s < 0
    yield "jobs on a fraction of a GPU", trace.gpu_milli < 1000
    yield SEVENTHS, in_sevenths(trace)
    yield "gangs of several workers that each need several GPUs of one node", (worker > 1) & (trace.worker_gpus > 1)
    yield "jobs whose end is not known", _lacking(trace.status != "unknown")
    yield "jobs tried more than once", trace.attempts > 1
    yield "jobs without an estimate", _lacking(known)
    yield "jobs whose estimate is below their run time", known & (trace.estimate_s < trace.duration_s)
    with np.errstate(invalid="ignore"):
        yield ("jobs whose deadline is before they could end, had they never waited",
               trace.deadline_s < trace.submit_s + trace.duration_s)


def _again(frame: pd.DataFrame, begun: np.ndarray, keep: Literal["first", False] = "first") -> np.ndarray:
    """Rows that are there more than once; those that the reader brought to the begin of the log share that anyway."""
    again = np.zeros(len(frame), dtype=bool)
    again[~begun] = frame[~begun].duplicated(keep=keep).to_numpy()
    return again


def _of_columns(trace: Trace) -> Iterator[tuple[str, np.ndarray]]:
    """Cells that are empty though others are not, and names that other tools take for empty cells."""
    yield "jobs without a user", _lacking(trace.user != "")
    yield "jobs without a virtual cluster", _lacking(trace.vc != "")
    yield "jobs without a model", _lacking(trace.model != "")
    yield "jobs without a recorded wait", _lacking(~np.isnan(trace.wait_s)) & ~cut_off(trace)[0]
    for word, name in (("job_id", "id"), ("user", "user"), ("vc", "virtual cluster")):
        cells = getattr(trace, word)
        strange = {cell for cell in set(cells.tolist()) if cell and cell.strip().lower() in MISSING_WORDS}
        yield (f"jobs whose {name} is spelled like a missing value ({', '.join(sorted(strange))}), and is a name",
               pd.Series(cells, dtype=object).isin(strange).to_numpy())


def _of_the_whole(trace: Trace) -> Iterator[tuple[str, np.ndarray]]:
    """What only all jobs together show: a unit that is not seconds, and a hole in the log."""
    every = np.full(len(trace), len(trace) >= FEW)
    whole_minutes = bool((trace.duration_s % 60 == 0).all() and (trace.duration_s > 0).any()) \
        and not any(words in trace.provenance.rule for words in (BY_MINUTES, AS_NAMED))
    yield "jobs, all of whole minutes: was the unit minutes?", every & whole_minutes
    begun, going = cut_off(trace)
    whole_s = trace.duration_s[~(begun | going)]
    yield ("jobs, half of them longer than ten days: is the unit milliseconds?",
           every & (len(whole_s) > 0 and np.median(whole_s) > 10 * DAY_S))
    gaps = np.diff(trace.submit_s)
    hole = np.zeros(len(trace), dtype=bool)
    if len(gaps):
        hole[1:] = (gaps > DAY_S) & (gaps > 100 * max(np.median(gaps), 1.0))
    yield "jobs after more than a day without any: is the log whole?", hole & every


def _lacking(given: np.ndarray) -> np.ndarray:
    """Rows without, where some have."""
    return ~given if given.any() else np.zeros(len(given), dtype=bool)
