"""The job format of the Tiresias simulator (Gu et al., NSDI 2019): one row a job, whole seconds."""

from __future__ import annotations

from pathlib import Path

from traces.machines.tiresias_nodes import HEADER as CLUSTER
from traces.readers.rows import opened, trace_of, with_gpus
from traces.reading.reader import Head, Reader, SideTable
from traces.trace import Trace

HEADER = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
EARLY = ("job_id", "num_gpu", "submit_time", "start_time", "duration", "model_size", "aggr_interval", "model_name",
         "model_scale")
"""The layout of its first example, `tf_job.csv`."""


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
    interval      unused: the gap to the next submission, or from the last
    start_time, model_size, aggr_interval, model_scale   unused (the early layout `EARLY`)
    ============  =========================================================================================

    There is no status in the file: all are "unknown". Source: the simulator's repository (Apache 2.0).

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    table, tally, gpus, duration_s = opened(path, [name for name in HEADER if name in EARLY], "num_gpu", "duration")
    columns = {
        "job_id": table.text("job_id"), "submit_s": table.number("submit_time"), "duration_s": duration_s,
        "num_gpus": gpus, "model": table.text("model_name"),
    }
    return trace_of(table, columns, with_gpus(gpus, duration_s, tally), tally, format="tiresias")


def _is_tiresias(head: Head) -> bool:
    """Exactly one of the two layouts: Muri and Chronus have all columns of the first and more, in other units."""
    return set(head.header) in (set(HEADER), set(EARLY))


READER = Reader(
    name="tiresias",
    description="Tiresias jobs: job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
    public="https://github.com/SymbioticLab/Tiresias (trace-data)",
    licence="Apache 2.0",
    header=HEADER,
    read=read_tiresias,
    sniff=_is_tiresias,
    side_tables=(
        SideTable("a cluster of the Tiresias simulator: switches, nodes, GPUs",
                  "hetsim cluster from FILE makes a cluster of it.", header=CLUSTER),
        SideTable("run times by which Tiresias ranks jobs (Gittins index)", "They are no jobs: no GPUs, no times.",
                  sniff=lambda head: head.header == ("duration",)),
    ),
)
