"""Alibaba 2026, jobs with high priority and on spot GPUs: one row a job. Other tables of 2026 have no arrivals."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.readers.pai import gang
from traces.readers.rows import demands
from traces.reading.gpu_types import catalogue_names
from traces.reading.reader import Head, Reader, SideTable
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, read_table
from traces.trace import Provenance, Trace

HEADER = ("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration", "job_type")
NODE_HEADER = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")
PUBLIC = "https://github.com/alibaba/clusterdata (cluster-trace-v2026-spot-gpu/job_info_df.csv)"
#: Only their order means something: high priority before spot.
WEIGHTS = {"HP": 2.0, "Spot": 1.0}
NO_ARRIVALS = "executions without a time of submission: no arrival time in this table"
INSTEAD = (
    "schedule_delay_sec is how long one waited, not when (clusterdata #257): no arrivals can be made of it. Use the "
    "table for distributions (traces.study.executions); for arrivals, job_info_df.csv of cluster-trace-v2026-spot-gpu "
    "or a generated trace."
)


def read_alibaba_2026(path: Path) -> Trace:
    """Read job_info_df.csv: `job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,…`.

    Where: the repository clusterdata of the GitHub organisation alibaba, cluster-trace-v2026-spot-gpu (no licence
    stated there); columns after its README; Duan et al., "GFS: A Preemptive Scheduling Framework for GPU Clusters with
    Predictive Spot Management", ASPLOS 2026. 466,867 jobs on 4,278 nodes with 10,412 GPUs.

    =============  =========================================================================================
    source         becomes
    =============  =========================================================================================
    job_name       job_id
    organization   vc: the department that pays
    gpu_model      gpu_type (see `traces.reading.gpu_types`); GPU-series-1 and -2 are types not told
    gpu_request    GPUs of one worker: below 1 gpu_milli, from 1 worker_gpus; 0: CPU-only, dropped and counted
    worker_num     the gang: num_gpus = worker_num x gpu_request
    submit_time    submit_s, in s from the first job
    duration       duration_s, in s
    job_type       priority: HP 2, Spot 1, of which only the order means something
    cpu_request    cpus = worker_num x cpu_request, virtual CPUs of one worker
    =============  =========================================================================================

    There is no status and no recorded wait. Jobs of the very first second may be older, and those that end in the last
    may go on: both are counted. Replayed as it is, the load on A10 is above the GPUs there are (clusterdata #260).

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`; another job_type; a table without arrivals.
    """
    if has_no_arrivals(Head.of(path)):
        raise TraceError(NO_ARRIVALS, where=str(path), got="schedule_delay_sec", allowed="a column submit_time",
                         todo=INSTEAD)
    table = read_table(path, HEADER)
    each = table.number("gpu_request", high=1e4)
    submit_s, duration_s = table.number("submit_time"), table.number("duration", high=LONGEST_RUN_S)
    kinds = table.text("job_type")
    for row in np.flatnonzero(~np.isin(kinds, tuple(WEIGHTS)))[:1].tolist():
        raise TraceError("unknown job_type", where=table.where(row, "job_type"), got=kinds[row],
                         allowed=", ".join(WEIGHTS))
    end_s = submit_s + duration_s
    tally = Tally(table.lines)
    tally.rows("CPU-only jobs dropped", each == 0)
    tally.rows("zero-length jobs kept", (each > 0) & (duration_s == 0))
    tally.rows("jobs submitted in the first second: perhaps older", (each > 0) & (submit_s == 0))
    tally.rows("jobs that end in the last second: perhaps cut off there", (each > 0) & (end_s == end_s.max()))
    keep = np.flatnonzero(each > 0)
    workers = table.number("worker_num", low=1, integer=True, high=1e6)
    columns = gang(workers, each, keep, tally, lambda row: table.where(row, "gpu_request"))
    columns |= {
        "job_id": table.text("job_name")[keep], "vc": table.text("organization")[keep],
        "gpu_type": catalogue_names(table.text("gpu_model"))[keep], "submit_s": submit_s[keep],
        "duration_s": duration_s[keep], "priority": np.array([WEIGHTS[kind] for kind in kinds[keep]]),
        "status": np.full(len(keep), "unknown", dtype=object),
        **demands(table, keep, cpus=("cpu_request", workers)),
    }
    provenance = Provenance(
        source=str(path), format="alibaba-2026", rule="duration_s as recorded", rows_read=len(table),
        counts=tally.counts, first=tally.first, window_s=(0.0, float(end_s.max())),
        notes=("priority: 2 high priority, 1 spot",),
    )
    return Trace.from_columns(columns, provenance, rows=table.lines[keep], row_word="line")


def has_no_arrivals(head: Head) -> bool:
    """Whether a table tells how long each waited, and not when it came."""
    return "schedule_delay_sec" in head.header and "submit_time" not in head.header


def _has(*names: str) -> SideTable:
    return SideTable("Alibaba 2026, readings of services over time", "They name no jobs. Jobs: job_info_df.csv.",
                     header=names)


READER = Reader(
    name="alibaba-2026",
    description="Alibaba 2026 jobs, some on spot GPUs: job_name,organization,gpu_model,…,submit_time,duration,job_type",
    public=PUBLIC,
    header=HEADER,
    read=read_alibaba_2026,
    side_tables=(
        SideTable("the nodes of Alibaba's spot trace", "Read job_info_df.csv; this file describes its cluster.",
                  header=NODE_HEADER),
        SideTable(NO_ARRIVALS, INSTEAD, sniff=has_no_arrivals),
        SideTable("servers hour by hour (cluster-trace-gpu-v2026)", "This file describes the cluster, not its jobs.",
                  header=("server_id", "gpu_spec_public", "gpu_count")),
        SideTable("requests to served models (cluster-trace-v2026-GenAI)", "A request is no job that asks for GPUs.",
                  header=("gmt_create", "predict_type", "exec_time_seconds")),
        _has("timestamp_anon", "value", "container_ip"), _has("server_id", "rx_gibps_avg"),
        _has("instance_id", "gpu_count", "sm_util"), _has("time_s", "app_id", "series_id", "metric"),
    ),
)
