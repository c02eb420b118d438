"""The job format of ElasticFlow (Gu et al., ASPLOS 2023): deadlines, and work in iterations of measured models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers.rows import opened, trace_of, with_gpus
from traces.reading.reader import Reader
from traces.trace import Trace

HEADER = ("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration")


def read_elasticflow(path: Path) -> Trace:
    """Read `job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration[,best_effort]`.

    ===========  ==========================================================================================
    source       becomes
    ===========  ==========================================================================================
    job_id       job_id
    submit_time  submit_s, in s
    ddl          deadline_s, in s on the clock of submit_time (not from the submission on)
    best_effort  1: no deadline, whatever ddl says
    num_gpu      num_gpus; rows with 0 are dropped and counted
    duration     duration_s, in s on num_gpu GPUs: iteration / the rate measured there (A100; for the traces
                 compared with Pollux T4)
    iteration    work_iters
    batch_size   batch_size: of the whole job, as in ElasticFlow's throughput tables
    model_name   model, as those tables name it
    real_duration, real_iteration   of the layout of philly_103959.csv: checked against duration and iteration
    ===========  ==========================================================================================

    There is no status in the file: all are "unknown". Rates are those of its files `throughputs_<GPU type>`, which
    `hetsim run --measured` takes. Source: repository pkusys/ElasticFlow (Apache 2.0), and the files: iteration / rate
    is duration.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    table, tally, gpus, duration_s = opened(path, HEADER, "num_gpu", "duration")
    iterations = table.number("iteration", high=1e15)
    for name, same in (("duration", duration_s), ("iteration", iterations)):
        if f"real_{name}" in table:
            tally.rows(f"rows where real_{name} is not {name}", table.number(f"real_{name}") != same)
    submit_s, deadline_s = table.number("submit_time"), table.number("ddl")
    if "best_effort" in table:
        best_effort = table.number("best_effort", integer=True, high=1) == 1
        tally.rows("best-effort jobs: no deadline", best_effort & (gpus > 0))
        deadline_s = np.where(best_effort, np.nan, deadline_s)
    tally.rows("deadlines before the submission", deadline_s < submit_s)
    columns = {
        "job_id": table.text("job_id"), "submit_s": submit_s, "duration_s": duration_s, "num_gpus": gpus,
        "deadline_s": deadline_s, "model": table.text("model_name"), "work_iters": iterations,
        "batch_size": table.number("batch_size", integer=True, high=2**31 - 1),
    }
    keep = with_gpus(gpus, duration_s, tally)
    tight = keep & (deadline_s < submit_s + duration_s)
    notes = (f"{int(tight.sum())} of {int(keep.sum())} jobs cannot meet their deadline on the GPUs that they ask for",)
    return trace_of(table, columns, keep, tally, format="elasticflow", notes=notes if tight.any() else (),
                    rule="duration_s as recorded: iterations over the rate measured on the GPUs asked for",
                    rates="ElasticFlow's throughputs on A100")


READER = Reader(
    name="elasticflow",
    description="ElasticFlow jobs: job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration",
    public="https://github.com/pkusys/ElasticFlow (ElasticFlow/traces_for_ElasticFlow)",
    licence="Apache 2.0",
    header=HEADER,
    read=read_elasticflow,
)
