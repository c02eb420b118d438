"""Microsoft Philly 2017, the genuine job log: a JSON list of jobs, each with its attempts.

Source: https://github.com/msr-fiddle/philly-traces (cluster_job_log). A job that fails is tried again, so it
has several attempts; times may be missing, written as the text "None".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces import status
from traces.errors import TraceError
from traces.reader import Head, Reader, SideTable, choice
from traces.readers.philly_csv import epoch, epoch_note
from traces.tally import Tally
from traces.text import read_bytes
from traces.times import posix_s, zone_name
from traces.trace import Provenance, Trace

KEYS = ("status", "vc", "jobid", "attempts", "submitted_time", "user")
#: Attempt whose GPUs are the job's, where attempts differ.
TAKEN = ("last", "first", "most")
RULES = {
    "sum": "duration_s: run times of all attempts of a job added up, gaps between them not included",
    "last": "duration_s: run time of the last attempt that has start and end",
    "span": "duration_s: from the first start to the last end of a job, gaps between attempts included",
}


@dataclass
class Attempts:
    """All attempts of a log, flat. `job` is the row of each one's job, ascending; times: POSIX s or NaN."""

    job: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    gpus: np.ndarray
    unclear: int = 0

    @property
    def usable(self) -> np.ndarray:
        """Attempts that have both times in order (a missing one, NaN, compares false)."""
        return self.end_s >= self.start_s


def load_json(path: Path) -> list[dict[str, Any]]:
    """The jobs of a log, each checked to have the keys that a reader needs.

    Raises
    ------
    TraceError
        No JSON, cut short, not a list of jobs, or a job without one of `KEYS`; names line or job.
    """
    try:
        jobs = json.loads(read_bytes(path))
    except json.JSONDecodeError as error:
        raise TraceError(
            "the file is no valid JSON", where=f"{path}, line {error.lineno}, column {error.colno}",
            got=error.msg, allowed="a list of jobs", todo="Fetch the file again: it may be cut short.",
        ) from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise TraceError("the file is no valid JSON", where=str(path), got=str(error)[:100],
                         allowed="a list of jobs") from None
    if not isinstance(jobs, list):
        raise TraceError("the file is no job log", where=str(path), got=type(jobs).__name__,
                         allowed="a list of jobs")
    for row, job in enumerate(jobs, start=1):
        if not isinstance(job, dict):
            raise TraceError("not a job", where=f"{path}, job {row}", got=repr(job)[:60], allowed="an object")
        for key in KEYS:
            if key not in job:
                raise TraceError(f"key {key!r} is missing", where=f"{path}, job {row}",
                                 got=", ".join(job)[:200], allowed=", ".join(KEYS))
            if key not in ("attempts", "submitted_time") and not _is_text(job[key]):
                raise TraceError("value not allowed", where=f"{path}, job {row}, key {key!r}",
                                 got=repr(job[key])[:60], allowed="text")
    return jobs


def read_philly_log(path: Path, *, attempts: str = "sum", gpus: str = "last", tz: str = "naive") -> Trace:
    """Read cluster_job_log.

    Where: the repository philly-traces of the GitHub organisation msr-fiddle (CC-BY-4.0); its README says what
    the keys are. The log says what each attempt used, never what was asked for.

    ===============  ======================================================================================
    source           becomes
    ===============  ======================================================================================
    jobid, user, vc  job_id, user, vc
    submitted_time   submit_s: seconds since the first submission that was kept; its time is in the notes
    attempts         duration_s by the rule `attempts`; attempts: how many there were; wait_s: from submission
                     to the first start
    detail[].gpus    num_gpus: the GPUs of the attempt `gpus` that lists any, all machines together
    status           status: Pass, Killed, Failed become passed, killed, failed
    ===============  ======================================================================================

    Dropped, and counted: jobs without attempts; unfinished ones (the last attempt has a start and no end:
    still running when the log was taken); those with no attempt that has both times in order, with no GPU
    listed, or with no time of submission. An attempt with an end and no start, with a start and no end, or
    with its end before its start adds nothing, and is counted.

    Parameters
    ----------
    attempts : {"sum", "last", "span"}
        What the run time of a retried job is: see `RULES`.
    gpus : {"last", "first", "most"}
        Attempt whose GPUs are the job's, of those that list any.
    tz : str
        Zone of the times; naive: UTC. In Pacific time, runs across 2017-11-05 last an hour longer.

    Raises
    ------
    TraceError
        The file is no such log, or a value is not allowed.
    """
    choice("attempts", attempts, tuple(RULES))
    choice("gpus", gpus, TAKEN)
    jobs, source = load_json(path), str(path)
    tries = collect(jobs, source, tz)
    submitted = posix_s([j["submitted_time"] for j in jobs], tz,
                        lambda i: f"{source}, job {i + 1}, key 'submitted_time'")
    n = len(jobs)
    number = np.bincount(tries.job, minlength=n)
    duration_s = _durations(tries, n, attempts)
    width, differ = _gpus(tries, n, gpus)
    wait_s = first_start_s(tries, n) - submitted.posix_s
    tally, keep = Tally(word="job"), np.ones(n, dtype=bool)
    _count_attempts(tries, tally)
    for reason, hit in _reasons(tries, number, width, submitted.posix_s, duration_s):
        tally.rows(reason, hit & keep)
        keep &= ~hit
    tally.rows(f"jobs whose attempts differ in GPUs: those of the {gpus} one taken", differ & keep)
    tally.rows("zero-length jobs kept", keep & (duration_s == 0))
    tally.rows("jobs that start before they are submitted: wait taken for unknown", keep & (wait_s < 0))
    tally.add("times made unclear by a clock change", tries.unclear + submitted.unclear)
    wait_s[wait_s < 0] = np.nan
    rows = np.flatnonzero(keep)
    first_s = submitted.posix_s[rows].min(initial=np.inf)

    def column(key: str) -> np.ndarray:
        cells = (jobs[i][key] for i in rows)
        return np.array(["" if c is None else str(c) for c in cells], dtype=object)

    words = status.canonical([str(j["status"]) for j in jobs], source, np.arange(1, n + 1), "job")
    columns = {
        "job_id": column("jobid"), "submit_s": submitted.posix_s[rows] - first_s,
        "duration_s": duration_s[rows], "num_gpus": width[rows], "vc": column("vc"), "user": column("user"),
        "status": words[rows], "attempts": np.minimum(number[rows], 10_000), "wait_s": wait_s[rows],
    }
    provenance = Provenance(
        source=source, format="philly-log", rule=RULES[attempts], rows_read=n,
        counts=tally.counts, first=tally.first, notes=epoch_note(first_s, tz), epoch_s=epoch(first_s), tz=zone_name(tz),
        window_s=(0.0, _last_seen_s(tries, submitted.posix_s) - first_s) if len(rows) else None,
    )
    return Trace.from_columns(columns, provenance, rows=rows + 1, row_word="job")


def collect(jobs: Sequence[dict[str, Any]], source: str, tz: str) -> Attempts:
    """Flatten the attempts of all jobs; raises TraceError where one is not as the log writes them."""
    owner, start, end, gpus = [], [], [], []
    for row, job in enumerate(jobs):
        try:
            for attempt in job["attempts"] or ():
                owner.append(row)
                start.append(attempt.get("start_time"))
                end.append(attempt.get("end_time"))
                gpus.append(sum(len(machine["gpus"]) for machine in attempt.get("detail") or ()))
        except (AttributeError, TypeError, KeyError):
            raise TraceError(
                "attempts not as expected", where=f"{source}, job {row + 1}, key 'attempts'",
                got=repr(job["attempts"])[:80],
                allowed="a list of {start_time, end_time, detail: [{ip, gpus}]}",
            ) from None

    def where(i: int) -> str:
        return f"{source}, job {owner[i] + 1}, key 'attempts'"

    begun, ended = posix_s(start, tz, where), posix_s(end, tz, where)
    return Attempts(np.array(owner, dtype=np.int64), begun.posix_s, ended.posix_s,
                    np.array(gpus, dtype=np.int64), begun.unclear + ended.unclear)


def _durations(tries: Attempts, n: int, rule: str) -> np.ndarray:
    """Run time of each job by the rule, in s; NaN where it has none."""
    usable = np.flatnonzero(tries.usable)
    owner, run_s = tries.job[usable], (tries.end_s - tries.start_s)[usable]
    out = np.full(n, np.nan)
    if rule == "last":
        out[owner] = run_s  # in order, so that the last one stays
    elif rule == "sum":
        out[owner] = 0.0
        np.add.at(out, owner, run_s)
    else:
        first, last = np.full(n, np.inf), np.full(n, -np.inf)
        np.fmin.at(first, tries.job, tries.start_s)
        np.fmax.at(last, tries.job, tries.end_s)
        known = np.isfinite(first) & np.isfinite(last)
        out[known] = (last - first)[known]
    return out


def first_start_s(tries: Attempts, n: int) -> np.ndarray:
    """First start of each job that any attempt tells, POSIX s; NaN where none does."""
    first = np.full(n, np.nan)
    np.fmin.at(first, tries.job, tries.start_s)
    return first


def _gpus(tries: Attempts, n: int, taken: str) -> tuple[np.ndarray, np.ndarray]:
    """GPUs of one attempt of each job that lists any (0: none does), and whether attempts differ."""
    listed = np.flatnonzero(tries.gpus > 0)
    if taken == "first":
        listed = listed[::-1]
    elif taken == "most":
        listed = listed[np.argsort(tries.gpus[listed], kind="stable")]
    owner, count = tries.job[listed], tries.gpus[listed]
    width = np.zeros(n, dtype=np.int64)
    width[owner] = count  # in order, so that the last one stays
    differ = np.zeros(n, dtype=bool)
    differ[owner[count != width[owner]]] = True
    return width, differ


def _reasons(
    tries: Attempts, number: np.ndarray, gpus: np.ndarray, submitted_s: np.ndarray, duration_s: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Why jobs are dropped, in the order in which the reasons are counted."""
    final = np.zeros(len(number), dtype=bool)
    open_ended = ~np.isnan(tries.start_s) & np.isnan(tries.end_s)
    final[tries.job] = open_ended  # in order, so that the last attempt decides
    return [
        ("jobs without attempts dropped", number == 0),
        ("unfinished jobs dropped (last attempt has no end)", final),
        ("jobs without a usable attempt dropped", ~(duration_s >= 0)),
        ("jobs that list no GPU dropped", gpus == 0),
        ("jobs without a time of submission dropped", np.isnan(submitted_s)),
    ]


def _count_attempts(tries: Attempts, tally: Tally) -> None:
    begun, ended = ~np.isnan(tries.start_s), ~np.isnan(tries.end_s)
    for what, hit in (
        ("attempts without an end", begun & ~ended),
        ("attempts with an end and no start", ended & ~begun),
        ("attempts without any time", ~ended & ~begun),
        ("attempts that end before they start", tries.end_s < tries.start_s),
        ("zero-length attempts", tries.end_s == tries.start_s),
    ):
        tally.rows(what, tries.job[hit])


def _last_seen_s(tries: Attempts, submitted_s: np.ndarray) -> float:
    """Latest time that the log names, POSIX s: it was taken then or later."""
    return float(np.fmax.reduce(np.concatenate((tries.start_s, tries.end_s, submitted_s)), initial=-np.inf))


def _is_text(value: object) -> bool:
    """Whether a JSON value can stand for text, and be written again (a lone surrogate cannot)."""
    return value is None or isinstance(value, int) or (isinstance(value, str) and value.isascii()) or (
        isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value)


def _sniff(head: Head) -> bool:
    return head.first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and b'"attempts"' in head.first


READER = Reader(
    name="philly-log",
    description="the genuine Philly job log: JSON with the attempts of each job",
    public="https://github.com/msr-fiddle/philly-traces (cluster_job_log in trace-data.tar.gz)",
    licence="CC-BY-4.0",
    header=(),
    read=read_philly_log,
    options={
        "attempts": "run time of a retried job: sum of attempts, last attempt, or span from first to last",
        "gpus": "GPUs of a job whose attempts differ: of the last attempt, the first, or the one with most",
        "tz": "zone of the times: naive (UTC) or a name such as America/Los_Angeles",
    },
    sniff=_sniff,
    side_tables=(
        SideTable("Philly's list of machines", "hetsim cluster from FILE makes a cluster of it.",
                  header=("machineId", "number of GPUs", "single GPU mem")),
        SideTable("Philly's samples of GPU, CPU or memory use", "Read them with traces.machines.philly_use.",
                  sniff=lambda head: b",m" in head.first[:400] and (b" PDT," in head.first or b" PST," in head.first)),
    ),
)
