"""The job format of the Tiresias simulator: one row a job, whole seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.reader import Reader
from traces.text import LONGEST_RUN_S, read_table
from traces.trace import Provenance, Trace

HEADER = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")


def read_tiresias(path: Path) -> Trace:
    """Read `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`.

    ============  =========================================================================================
    source        becomes
    ============  =========================================================================================
    job_id        job_id
    num_gpu       num_gpus; rows with 0 are dropped and counted
    submit_time   submit_s, in s as given
    duration      duration_s, in s
    model_name    model, as written
    iterations    unused: the format's duration and iterations are not tied to one GPU type
    interval      unused: it repeats the gap to the next submission
    ============  =========================================================================================

    There is no status in the file: all are "unknown".

    Raises
    ------
    TraceError
        See `traces.text.read_table` and `Trace.from_columns`.
    """
    table = read_table(path, HEADER)
    gpus = table.number("num_gpu", integer=True, high=1e6)
    duration_s = table.number("duration", high=LONGEST_RUN_S)
    keep = np.flatnonzero(gpus > 0)
    columns = {
        "job_id": table.text("job_id")[keep], "submit_s": table.number("submit_time")[keep],
        "duration_s": duration_s[keep], "num_gpus": gpus[keep], "model": table.text("model_name")[keep],
        "status": np.full(len(keep), "unknown", dtype=object),
    }
    counts = {
        "CPU-only jobs dropped": len(gpus) - len(keep),
        "zero-length jobs kept": int((duration_s[keep] == 0).sum()),
    }
    provenance = Provenance(
        source=str(path), format="tiresias", rule="duration_s as recorded", rows_read=len(table),
        counts={k: v for k, v in counts.items() if v},
    )
    return Trace.from_columns(columns, provenance, rows=table.lines[keep], row_word="line")


READER = Reader(
    name="tiresias",
    description="Tiresias jobs: job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
    public="https://github.com/SymbioticLab/Tiresias (trace-data)",
    header=HEADER,
    read=read_tiresias,
)
