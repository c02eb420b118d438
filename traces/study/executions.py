"""Executions without arrivals: tables that tell how long each ran and waited, and not when. For distributions only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces.errors import TraceError
from traces.late import pd
from traces.reading.gpu_types import catalogue_names
from traces.reading.limits import Room
from traces.reading.parquet_tables import read_parquet
from traces.reading.text import Table, read_bytes, read_table

HEADER = ("pod_id", "gpu_spec_public", "priority_class", "job_type_public", "model_type_public", "gpu_request",
          "duration_hours", "schedule_delay_sec")


def read_executions(path: Path) -> pd.DataFrame:
    """Read asi_opensource_job_execution_summary of Alibaba's cluster-trace-gpu-v2026, Parquet or CSV.

    Columns after docs/schema.md there. Its authors say that the table is not on the timeline and has no arrivals
    (clusterdata #257): it is no trace, and no times of submission may be made of it.

    ====================  =================================================================================
    source                becomes
    ====================  =================================================================================
    pod_id                job_id: text
    duration_hours        duration_s: 3600 times it
    schedule_delay_sec    wait_s: from submission to scheduling; NaN: unknown
    gpu_request           gpus: may be a fraction
    gpu_spec_public       gpu_type (see `traces.reading.gpu_types`)
    priority_class        priority: HP, LP, Other
    job_type_public       kind: training, online_inference, offline_inference, dev, other, unknown
    model_type_public     model_kind: genai, rec, cv, embedding, dev, unknown
    ====================  =================================================================================

    Raises
    ------
    TraceError
        The file is damaged, lacks a column, or a value is no number or negative.
    """
    table = _parquet(path) if path.is_file() and read_bytes(path)[:4] == b"PAR1" else read_table(path, HEADER)
    return pd.DataFrame({
        "job_id": table.text("pod_id"), "duration_s": 3600 * table.number("duration_hours"),
        "wait_s": table.number("schedule_delay_sec", blank=True), "gpus": table.number("gpu_request"),
        "gpu_type": catalogue_names(table.text("gpu_spec_public")), "priority": table.text("priority_class"),
        "kind": table.text("job_type_public"), "model_kind": table.text("model_type_public"),
    })


def _parquet(path: Path) -> Table:
    """The columns of a Parquet file as text, null as the empty cell."""
    try:
        names = pq.read_schema(path).names
        for name in HEADER:
            if name not in names:
                raise TraceError(f"column {name!r} is missing", where=str(path), got=", ".join(names)[:200],
                                 allowed=", ".join(HEADER))
        table = read_parquet(path, Room.of(path), HEADER)
        cells = {name: table.column(name).cast(pa.string()).fill_null("") for name in HEADER}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError("the file is no whole Parquet file", where=str(path), got=str(error)[:150]) from None
    return Table(str(path), cells, np.arange(1, len(table) + 1))
