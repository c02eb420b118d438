"""Microsoft Philly 2017, the genuine job log: a JSON list of jobs, each with its attempts.

Source: https://github.com/msr-fiddle/philly-traces (cluster_job_log). What the log says is taken apart by
`traces.readers.philly_attempts`; here it becomes jobs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from traces.columns import BY_NAME
from traces.readers.philly_attempts import Attempts, collect, first_start_s, load_json
from traces.readers.philly_csv import epoch, epoch_note
from traces.reading import status
from traces.reading.reader import Head, Reader, SideTable, choice
from traces.reading.spans import EDGES, EDGES_HELP, cut_words
from traces.reading.tally import Tally
from traces.reading.times import posix_s, zone_name
from traces.trace import Provenance, Trace

#: Attempt whose GPUs are the job's, where attempts differ.
TAKEN = ("last", "first", "most")
#: As in `traces.columns`.
MOST_ATTEMPTS = int(BY_NAME["attempts"].high)
RULES = {
    "sum": "duration_s: run times of all attempts of a job added up, gaps between them not included",
    "last": "duration_s: run time of the last attempt that has start and end",
    "span": "duration_s: from the first start to the last end of a job, gaps between attempts included",
}


def read_philly_log(
    path: Path, *, attempts: str = "sum", gpus: str = "last", tz: str = "naive", edges: str = "drop"
) -> Trace:
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
    detail[].gpus    num_gpus: the different GPUs (ip and name) of the attempt `gpus` that lists any, all machines
                     together
    status           status: Pass, Killed, Failed become passed, killed, failed
    ===============  ======================================================================================

    Dropped, and counted: jobs without attempts; unfinished ones (the last attempt has a start and no end:
    still running when the log was taken; see `edges`); those with no attempt that has both times in order, with no GPU
    listed, or with no time of submission. An attempt with an end and no start, with a start and no end, or
    with its end before its start adds nothing, and is counted. Attempts that overlap in time are counted, and added
    up like others.

    Parameters
    ----------
    attempts : {"sum", "last", "span"}
        What the run time of a retried job is: see `RULES`.
    gpus : {"last", "first", "most"}
        Attempt whose GPUs are the job's, of those that list any.
    tz : str
        Zone of the times; naive: UTC. In Pacific time, runs across 2017-11-05 last an hour longer.
    edges : {"drop", "cut"}
        cut: the last attempt of an unfinished job ends with the log, at the last time that it names; the job is marked
        in column `cut`, and its run time is a lower bound.

    Raises
    ------
    TraceError
        The file is no such log, or a value is not allowed.
    """
    choice("attempts", attempts, tuple(RULES))
    choice("gpus", gpus, TAKEN)
    choice("edges", edges, EDGES)
    jobs, source = load_json(path), str(path)
    tries = collect(jobs, source, tz)
    submitted = posix_s([j["submitted_time"] for j in jobs], tz,
                        lambda i: f"{source}, job {i + 1}, key 'submitted_time'")
    n, last_s = len(jobs), _last_seen_s(tries, submitted.posix_s)
    open_ended = _open_ended(tries, n)
    if edges == "cut":
        tries = _cut_short(tries, open_ended, last_s)
    number = np.bincount(tries.job, minlength=n)
    duration_s = _durations(tries, n, attempts)
    width, differ = _gpus(tries, n, gpus)
    wait_s = first_start_s(tries, n) - submitted.posix_s
    tally, keep = Tally(word="job"), np.ones(n, dtype=bool)
    _count_attempts(tries, tally)
    gone = open_ended & (edges == "drop")
    for reason, hit in _reasons(gone, number, width, submitted.posix_s, duration_s):
        tally.rows(reason, hit & keep)
        keep &= ~hit
    tally.rows("unfinished jobs (last attempt has no end): run time cut at the end of the log", keep & open_ended)
    tally.rows(f"jobs whose attempts differ in GPUs: those of the {gpus} one taken", differ & keep)
    tally.rows("zero-length jobs kept", keep & (duration_s == 0))
    tally.rows(f"jobs tried more than {MOST_ATTEMPTS:,} times: taken for {MOST_ATTEMPTS:,}",
               keep & (number > MOST_ATTEMPTS))
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
        "status": words[rows], "attempts": np.minimum(number[rows], MOST_ATTEMPTS), "wait_s": wait_s[rows],
        "cut": cut_words(open_ended[rows]),
    }
    provenance = Provenance(
        source=source, format="philly-log", rule=RULES[attempts], rows_read=n,
        counts=tally.counts, first=tally.first, notes=epoch_note(first_s, tz), epoch_s=epoch(first_s), tz=zone_name(tz),
        window_s=(0.0, last_s - first_s) if len(rows) else None,
    )
    return Trace.from_columns(columns, provenance, rows=rows + 1, row_word="job")


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


def _open_ended(tries: Attempts, n: int) -> np.ndarray:
    """bool [jobs]: the last attempt has a start and no end."""
    found = np.zeros(n, dtype=bool)
    found[tries.job] = ~np.isnan(tries.start_s) & np.isnan(tries.end_s)  # in order, so that the last attempt decides
    return found


def _cut_short(tries: Attempts, open_ended: np.ndarray, last_s: float) -> Attempts:
    """The attempts, the last one of each unfinished job ended at that time (POSIX s)."""
    last = np.append(tries.job[1:] != tries.job[:-1], True) if len(tries.job) else np.empty(0, dtype=bool)
    return replace(tries, end_s=np.where(last & open_ended[tries.job], last_s, tries.end_s))


def _reasons(
    gone: np.ndarray, number: np.ndarray, gpus: np.ndarray, submitted_s: np.ndarray, duration_s: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Why jobs are dropped, in the order in which the reasons are counted."""
    return [
        ("jobs without attempts dropped", number == 0),
        ("unfinished jobs dropped (last attempt has no end)", gone),
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
        ("attempts that overlap an earlier one of the job", tries.overlapping),
        ("attempts that list a GPU twice: counted once", tries.again),
    ):
        tally.rows(what, tries.job[hit])


def _last_seen_s(tries: Attempts, submitted_s: np.ndarray) -> float:
    """Latest time that the log names, POSIX s: it was taken then or later."""
    return float(np.fmax.reduce(np.concatenate((tries.start_s, tries.end_s, submitted_s)), initial=-np.inf))


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
        "edges": EDGES_HELP,
    },
    sniff=_sniff,
    side_tables=(
        SideTable("Philly's list of machines", "hetsim cluster from FILE makes a cluster of it.",
                  header=("machineId", "number of GPUs", "single GPU mem")),
        SideTable("Philly's samples of GPU, CPU or memory use", "Read them with traces.machines.philly_use.",
                  sniff=lambda head: b",m" in head.first[:400] and (b" PDT," in head.first or b" PST," in head.first)),
    ),
)
