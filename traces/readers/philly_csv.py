"""Microsoft Philly 2017, as the CSV that later work passes around: one row a job, all attempts added up.

The genuine log with its attempts is read by `traces.readers.philly_log`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.reading.reader import Reader, choice
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, read_table
from traces.reading.times import posix_s, zone_name
from traces.trace import Provenance, Trace
from traces.words import again

HEADER = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly_csv(path: Path, *, tz: str = "naive", duplicates: str = "keep") -> Trace:
    """Read `timestamp,duration,num_gpus,gpu_time,cluster`.

    ===========  ==========================================================================================
    source       becomes
    ===========  ==========================================================================================
    (row)        job_id: number of the data row as text, from 1, since the file has no ids
    timestamp    submit_s: seconds since the first submission of the file, whose time is in the notes
    duration     duration_s, in s: the run times of all attempts added up
    num_gpus     num_gpus; rows with 0 are dropped and counted
    gpu_time     checked against duration x num_gpus, otherwise unused
    cluster      vc: the virtual cluster
    ===========  ==========================================================================================

    Jobs of the same second keep the order of the file. There is no status in the file: all are "unknown".

    Where: repositories of several schedulers; derived from the log of the organisation msr-fiddle (CC-BY-4.0), from
    which it has 82,247 jobs with more 1-GPU jobs among them than the log (docs/traces.md).

    Parameters
    ----------
    tz : str
        Zone of the timestamps; naive: UTC, as the log's daily rhythm suggests.
    duplicates : {"keep", "drop"}
        Whether rows equal in every cell are two jobs (batches of equal jobs are common) or one.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table`, `traces.reading.times.posix_s` and `Trace.from_columns`.
    """
    choice("duplicates", duplicates, ("keep", "drop"))
    table = read_table(path, HEADER)
    gpus = table.number("num_gpus", integer=True, high=1e6)
    duration_s = table.number("duration", high=LONGEST_RUN_S)
    stamps = table.text("timestamp").tolist()
    times = posix_s(stamps, tz, lambda i: table.where(i, "timestamp"), required=True)
    vc = table.text("cluster")
    twice = again(times.posix_s, duration_s, gpus, vc)
    tally = Tally(table.lines)
    tally.rows(f"exact duplicate rows {'kept' if duplicates == 'keep' else 'dropped'}", twice)
    tally.rows("CPU-only jobs dropped", gpus == 0)
    tally.rows("zero-length jobs kept", duration_s == 0)
    tally.add("times made unclear by a clock change", times.unclear)
    if "gpu_time" in table:
        off = np.abs(table.number("gpu_time") - duration_s * gpus) > 1.0
        tally.rows("rows where gpu_time is not duration x num_gpus", off)
    keep = np.flatnonzero((gpus > 0) & ~(twice & (duplicates == "drop")))
    first_s = times.posix_s[keep].min(initial=np.inf)
    columns = {
        "job_id": (keep + 1).astype(str).astype(object), "submit_s": times.posix_s[keep] - first_s,
        "duration_s": duration_s[keep], "num_gpus": gpus[keep], "vc": vc[keep],
        "status": np.full(len(keep), "unknown", dtype=object),
    }
    provenance = Provenance(
        source=str(path), format="philly-csv", rows_read=len(table),
        rule="duration_s as recorded: run times of all attempts of a job added up, queueing not included",
        counts=tally.counts, first=tally.first, notes=epoch_note(first_s, tz), epoch_s=epoch(first_s), tz=zone_name(tz),
    )
    return Trace.from_columns(columns, provenance, rows=table.lines[keep], row_word="line")


def epoch(first_s: float) -> float | None:
    """POSIX seconds of submit_s = 0; None where no job is left."""
    return float(first_s) if np.isfinite(first_s) else None


def epoch_note(first_s: float, tz: str) -> tuple[str, ...]:
    """Notes that say when submit_s = 0 was, and how times were read."""
    if not np.isfinite(first_s):
        return ()
    when = np.datetime64(int(first_s), "s")
    return (f"submit_s = 0 is {when}Z (POSIX {int(first_s)})", f"times read as {zone_name(tz)}")


READER = Reader(
    name="philly-csv",
    description="Philly jobs as CSV: timestamp,duration,num_gpus,gpu_time,cluster",
    public="derived from https://github.com/msr-fiddle/philly-traces, in several schedulers' repositories",
    licence="CC-BY-4.0",
    header=HEADER,
    read=read_philly_csv,
    options={
        "tz": "zone of the timestamps: naive (UTC) or a name such as America/Los_Angeles",
        "duplicates": "keep or drop rows that are equal in every cell",
    },
)
