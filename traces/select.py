"""Which jobs of a trace are taken: the same steps in the same order for every format, each noted and counted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from traces.columns import MAX_TIME_S, STATUSES
from traces.errors import TraceError, did_you_mean
from traces.reading.tally import Tally
from traces.reading.times import zone
from traces.trace import Provenance, Trace
from traces.words import among, coded

GANGS = ("keep", "split")
MOST_JOBS = 20_000_000
"""As many as a trace may become when its gangs are split, or it is repeated."""

ASKED_FOR = "as asked, "
"""Opens each count of a step that the user chose: no oddity of the trace."""

_AGE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(s|min|h|d)?", re.ASCII | re.IGNORECASE)
_DATE_LIKE = re.compile(r"(19|20)\d\d((0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]))?")
_UNIT_S = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class Selection:
    """Jobs to take. What is left empty leaves all; the steps are carried out in the order of this list.

    Attributes
    ----------
    gpu_types : mapping of str to str
        GPU types of the log and what they are taken for, such as G2: A10, alone or among alternatives; an empty name
        lifts the demand for that type (and, among alternatives, any demand).
    submitted_from, submitted_to : number or str, optional
        Jobs submitted at or after the one, and before the other. A number is seconds on the clock of `submit_s`, also
        written 90min, 36h or 7d; a date (2017-10-09, or 2017-10-09 07:00:00) is read in the zone of the trace. Times
        of submission do not change. Jobs that ran before the window began are not put into it; those that may still
        have run then are counted.
    status, vc, user : tuple of str
        Ends, virtual clusters and users that are kept.
    gangs : {"keep", "split"}
        split: a job of several workers (num_gpus > worker_gpus) becomes as many jobs of one worker each, called x/0,
        x/1, …, that need not start together. Each keeps time of submission, run time and iterations; batch, CPUs and
        memory are divided, and none is elastic. GPU time stays the same.
    skip : int
        Leave out the first so many of what is left, by time of submission: with `jobs`, a window of consecutive jobs.
    jobs : int, optional
        The first so many of what is left then.
    """

    gpu_types: Mapping[str, str] = field(default_factory=dict)
    submitted_from: float | str | None = None
    submitted_to: float | str | None = None
    status: tuple[str, ...] = ()
    vc: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    gangs: str = "keep"
    skip: int = 0
    jobs: int | None = None

    def text(self) -> str:
        """The selection in words; empty where it takes all."""
        words = [f"{old} taken for {new or 'any type'}" for old, new in self.gpu_types.items()]
        words += [f"submitted {word} {bound}" for word, bound in
                  (("from", self.submitted_from), ("before", self.submitted_to)) if bound is not None]
        words += [f"{name} {', '.join(kept)}" for name, kept in
                  (("status", self.status), ("vc", self.vc), ("user", self.user)) if kept]
        words += ["gangs split"] * (self.gangs == "split")
        words += [f"without the first {self.skip} jobs"] if self.skip else []
        words += [f"first {self.jobs} jobs"] if self.jobs is not None else []
        return "; ".join(words)

    def apply(self, trace: Trace) -> Trace:
        """Return the jobs that are taken, with a note and a count for each step.

        Raises
        ------
        TraceError
            A value that is not allowed, a date for a trace without one, a virtual cluster or user that the trace does
            not have, or no job is left.
        """
        if self.gangs not in GANGS:
            raise TraceError("value not allowed", where="gangs", got=self.gangs, allowed=", ".join(GANGS),
                             todo=did_you_mean(self.gangs, GANGS))
        _known("status", self.status, STATUSES, trace)
        if self.status and "unknown" not in self.status and (trace.status == "unknown").all():
            raise TraceError("no status is recorded", where=trace.provenance.source, got=", ".join(self.status),
                             allowed="status unknown, which all jobs have")
        for name, wanted in (("vc", self.vc), ("user", self.user)):
            if wanted:
                _known(name, wanted, list(dict.fromkeys(getattr(trace, name).tolist())), trace)
        trace = self._in_window(_renamed(trace, self.gpu_types))
        for name, wanted in (("status", self.status), ("vc", self.vc), ("user", self.user)):
            if wanted:
                keep = among(getattr(trace, name), wanted)
                trace = _kept(trace, keep, f"only {name} {', '.join(wanted)}", {f"jobs of another {name}": ~keep})
        if self.gangs == "split":
            trace = split_gangs(trace)
        if self.skip:
            begin_s = float(trace.submit_s[self.skip]) if self.skip < len(trace) else math.inf
            trace = _from(trace, np.arange(len(trace)) < self.skip, begin_s, f"all but the first {self.skip} jobs")
        return trace if self.jobs is None else head(trace, self.jobs)

    def _in_window(self, trace: Trace) -> Trace:
        begin_s, end_s = (
            None if bound is None else moment_s(trace, bound, name)
            for name, bound in (("from", self.submitted_from), ("to", self.submitted_to))
        )
        if begin_s is not None and end_s is not None and begin_s >= end_s:
            raise TraceError("the window is empty", where="from, to", allowed="from before to",
                             got=f"{self.submitted_from} to {self.submitted_to}")
        if begin_s is not None:
            note = f"only jobs submitted from {self.submitted_from} on"
            trace = _from(trace, trace.submit_s < begin_s, begin_s, note)
        if end_s is not None:
            late = trace.submit_s >= end_s
            trace = _kept(trace, ~late, f"only jobs submitted before {self.submitted_to}",
                          {"jobs submitted after the window": late})
        return trace


def _from(trace: Trace, early: np.ndarray, begin_s: float, note: str) -> Trace:
    """Without the early jobs of a mask; those that may still have run at `begin_s` are counted."""
    ends_s = trace.submit_s + np.nan_to_num(trace.wait_s) + trace.duration_s
    return _kept(trace, ~early, note, {
        "jobs submitted before the window": early,
        "of these, jobs that may still have run when it begins": early & (ends_s > begin_s)})


def _renamed(trace: Trace, gpu_types: Mapping[str, str]) -> Trace:
    """GPU types taken for others: see `Selection`."""
    if not gpu_types:
        return trace
    codes, wishes = coded(trace.gpu_type)
    words = [wish.split("|") for wish in wishes]
    _known("GPU type", list(gpu_types), sorted({word for wish in words for word in wish} - {""}), trace)
    taken = [[gpu_types.get(word, word) for word in wish] for wish in words]
    names = np.array(["" if "" in wish else "|".join(dict.fromkeys(wish)) for wish in taken], dtype=object)
    tally = Tally(trace.job_id, "job")
    for old, new in gpu_types.items():
        hit = np.array([old in wish for wish in words])[codes]
        tally.rows(f"{ASKED_FOR}jobs that ask for {old}: taken for {new or 'any type'}", hit)
    note = "GPU types: " + ", ".join(f"{old} taken for {new or 'any'}" for old, new in gpu_types.items())
    return trace.replace(_with(trace, note, tally), gpu_type=names[codes])


def head(trace: Trace, jobs: int) -> Trace:
    """The first `jobs` jobs of a trace by submission (all, where it has fewer).

    Raises
    ------
    TraceError
        `jobs` is below 1.
    """
    if jobs < 1:
        raise TraceError("no jobs left", where="jobs", got=jobs, allowed="1 or more")
    if jobs >= len(trace):
        return trace
    tally = Tally(trace.job_id, "job")
    tally.rows(f"{ASKED_FOR}left out: jobs after the first {jobs}", np.arange(jobs, len(trace)))
    about = _with(trace, f"first {jobs} of {len(trace)} jobs", tally)
    return replace(trace.select(slice(0, jobs)), provenance=about)


def split_gangs(trace: Trace) -> Trace:
    """Each job of several workers as so many jobs of one worker: see `Selection`.

    Raises
    ------
    TraceError
        More than `MOST_JOBS` jobs, or an id such as x/0 is there already.
    """
    workers = trace.num_gpus // trace.worker_gpus
    gangs = workers > 1
    if not gangs.any():
        return trace.replace(noted(trace, "gangs split: there were none"))
    total = int(workers.sum())
    if total > MOST_JOBS:
        raise TraceError("too many jobs", where="gangs = split", got=total, allowed=f"up to {MOST_JOBS:,}",
                         todo="Take fewer jobs first.")
    rows = np.repeat(np.arange(len(trace)), workers)
    part = np.arange(total) - np.repeat(np.cumsum(workers) - workers, workers)
    ids = trace.job_id[rows]
    inside = np.flatnonzero(gangs[rows])
    ids[inside] = [f"{name}/{number}" for name, number in zip(ids[inside], part[inside].tolist(), strict=True)]
    columns = {name: values[rows] for name, values in trace.said().items()}
    for name in columns.keys() & {"batch_size", "min_batch_size", "max_batch_size"}:
        columns[name] = np.where(columns[name] > 0, np.maximum(columns[name] // workers[rows], 1), 0)
    for name in columns.keys() & {"cpus", "memory_gib"}:
        columns[name] = columns[name] / workers[rows]
    for name in columns.keys() & {"min_gpus", "max_gpus"}:
        columns[name] = np.where(gangs[rows], 0, columns[name])
    columns |= {"job_id": ids, "num_gpus": columns["worker_gpus"]}
    tally = Tally(trace.job_id, "job")
    tally.rows(ASKED_FOR + "split: gangs into jobs of one worker", gangs)
    note = f"gangs split: {int(gangs.sum())} jobs of several workers became {int(workers[gangs].sum())} of one each"
    return Trace.from_columns(columns, _with(trace, note, tally), row_word="job")


def moment_s(trace: Trace, bound: float | str, where: str) -> float:
    """A point of time as seconds on the trace's clock.

    Raises
    ------
    TraceError
        Neither a number nor a date, or a date where the trace has no calendar, or a made-up one.
    """
    text = str(bound).strip()
    dated = trace.provenance.epoch_s is not None and trace.provenance.date_is_real
    if dated and _DATE_LIKE.fullmatch(text):
        raise TraceError("a date or seconds?", where=where, got=bound,
                         allowed="2017-10-09 for a date, 20171009s for seconds")
    if age := _AGE.fullmatch(text):
        seconds = float(age[1]) * _UNIT_S[(age[2] or "").lower()]
        if abs(seconds) <= MAX_TIME_S:
            return seconds
        raise TraceError("too far away", where=where, got=bound, allowed=f"times within {MAX_TIME_S:g} s")
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError("not a time", where=where, got=bound,
                         allowed="seconds, a number with min, h or d, or a date such as 2017-10-09 or "
                                 "'2017-10-09 07:00:00'") from None
    about = trace.provenance
    if about.epoch_s is None or not about.date_is_real:
        what = "no calendar" if about.epoch_s is None else "true hours and weekdays, and made-up dates"
        raise TraceError(f"a date, and the trace has {what}", where=f"{where}, {about.source}", got=bound,
                         allowed="seconds on the clock of submit_s, or a number with min, h or d")
    if when.tzinfo is None:
        when = when.replace(tzinfo=zone(about.tz) or UTC)
    return when.timestamp() - about.epoch_s


def noted(trace: Trace, note: str) -> Provenance:
    """The provenance with one more note."""
    return replace(trace.provenance, notes=(*trace.provenance.notes, note))


def asked_for(what: str) -> bool:
    """Whether a count of `Provenance.counts` is of a step that the user chose."""
    return what.startswith(ASKED_FOR)


def _known(name: str, wanted: Sequence[str], there: Sequence[str], trace: Trace) -> None:
    known = set(there)
    for word in wanted:
        if word not in known:
            named = [text for text in there if text]
            todo = "Name each by itself." if "," in word else did_you_mean(word, named)
            raise TraceError(f"no such {name}", where=trace.provenance.source, got=word, todo=todo,
                             allowed=", ".join(named[:20]) + (", …" if len(named) > 20 else "") or "none is recorded")


def _kept(trace: Trace, keep: np.ndarray, note: str, left_out: Mapping[str, np.ndarray]) -> Trace:
    """The rows of a mask; what was left out is noted, and counted by kind."""
    if not keep.any():
        raise TraceError("no jobs left", where=trace.provenance.source, got=f"{note}: 0 of {len(trace)} jobs",
                         allowed="a selection that some job is in")
    tally = Tally(trace.job_id, "job")
    for what, rows in left_out.items():
        tally.rows(f"{ASKED_FOR}left out: {what}", rows)
    about = _with(trace, f"{note}: {int(keep.sum())} of {len(trace)} jobs", tally)
    return replace(trace if keep.all() else trace.select(keep), provenance=about)


def _with(trace: Trace, note: str, tally: Tally) -> Provenance:
    about = noted(trace, note)
    counts, first = dict(about.counts), dict(about.first)
    for what, count in tally.counts.items():
        counts[what] = counts.get(what, 0) + count
        first.setdefault(what, tally.first[what])
    return replace(about, counts=counts, first=first)
