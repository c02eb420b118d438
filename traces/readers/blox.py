"""Jobs of the Blox simulator (Agarwal et al., EuroSys 2024), as a plain table: who came when, for how long."""

from __future__ import annotations

from pathlib import Path

from traces.readers.rows import opened, trace_of, with_gpus
from traces.reading.reader import Reader
from traces.trace import Trace

HEADER = ("job", "submit_s", "gpus", "duration_s")


def read_blox(path: Path) -> Trace:
    """Read `job,submit_s,gpus,duration_s`.

    ==========  ===========================================================================================
    source      becomes
    ==========  ===========================================================================================
    job         job_id
    submit_s    submit_s, in s
    gpus        num_gpus; rows with 0 are dropped and counted
    duration_s  duration_s, in s
    ==========  ===========================================================================================

    There is no status in the file: all are "unknown".

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    table, tally, gpus, duration_s = opened(path, HEADER, "gpus", "duration_s")
    columns = {"job_id": table.text("job"), "submit_s": table.number("submit_s"), "duration_s": duration_s,
               "num_gpus": gpus}
    return trace_of(table, columns, with_gpus(gpus, duration_s, tally), tally, format="blox")


READER = Reader(
    name="blox",
    description="Blox jobs: job,submit_s,gpus,duration_s",
    public="jobs drawn by the simulator of https://github.com/msr-fiddle/blox, written as a table",
    header=HEADER,
    read=read_blox,
)
