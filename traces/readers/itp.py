"""Microsoft ITP 2021: one CSV a cluster, one row a job, times in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.reader import Reader
from traces.text import LONGEST_RUN_S, read_table
from traces.trace import Provenance, Trace

HEADER = ("job_id", "submission_time", "duration", "num_gpu")


def read_itp(path: Path) -> Trace:
    """Read `job_id,submission_time,duration,num_gpu`, from one file or from a folder of them.

    ================  =====================================================================================
    source            becomes
    ================  =====================================================================================
    job_id            job_id
    submission_time   submit_s, as given (s from the start of the collection, the same for all clusters)
    duration          duration_s, in s
    num_gpu           num_gpus; rows with 0 are dropped and counted
    (file name)       vc: clusters do not share GPUs
    ================  =====================================================================================

    There is no status in the files: all are "unknown".

    Raises
    ------
    TraceError
        See `traces.text.read_table` and `Trace.from_columns`; a folder without CSV files.
    """
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise TraceError("no CSV files in the folder", where=str(path), allowed="one CSV a cluster")
    tables = [read_table(file, HEADER) for file in files]
    gpus = np.concatenate([t.number("num_gpu", integer=True, high=1e6) for t in tables])
    duration_s = np.concatenate([t.number("duration", high=LONGEST_RUN_S) for t in tables])
    keep = np.flatnonzero(gpus > 0)
    columns = {
        "job_id": np.concatenate([t.text("job_id") for t in tables])[keep],
        "submit_s": np.concatenate([t.number("submission_time") for t in tables])[keep],
        "duration_s": duration_s[keep],
        "num_gpus": gpus[keep],
        "vc": np.repeat(np.array([f.stem for f in files], dtype=object), [len(t) for t in tables])[keep],
        "status": np.full(len(keep), "unknown", dtype=object),
    }
    counts = {
        "CPU-only jobs dropped": len(gpus) - len(keep),
        "zero-length jobs kept": int((duration_s[keep] == 0).sum()),
    }
    provenance = Provenance(
        source=str(path), format="itp", rule="duration_s as recorded", rows_read=len(gpus),
        counts={k: v for k, v in counts.items() if v}, notes=(f"{len(files)} cluster file(s) read",),
    )
    lines = np.concatenate([t.lines for t in tables])[keep]
    return Trace.from_columns(columns, provenance, rows=lines,
                              row_word="line" if len(files) == 1 else "line (of its file)")


READER = Reader(
    name="itp",
    description="Microsoft ITP: job_id,submission_time,duration,num_gpu; a file or a folder of cluster files",
    public="the job tables of Microsoft's ITP clusters, 2021, one cluster0N.csv a cluster (MIT licence)",
    header=HEADER,
    read=read_itp,
    folders=True,
)
