"""The job format of the Muri simulator (Zhao et al., SIGCOMM 2022): Tiresias' with more columns, in milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers.rows import trace_of, with_gpus
from traces.reading.reader import Reader
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, read_table
from traces.trace import Trace

HEADER = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "interval",
          "iteration_time")

MS_PER_S = 1000.0


def read_muri(path: Path) -> Trace:
    """Read `job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,…`.

    ===============  ======================================================================================
    source           becomes
    ===============  ======================================================================================
    job_id           job_id
    num_gpu          num_gpus; rows with 0 are dropped and counted
    submit_time      submit_s = submit_time / 1000: it is in ms
    duration         duration_s = duration / 1000: in ms, on V100
    iterations       work_iters
    model_name       model, as written
    batch_size       batch_size = batch_size x num_gpu: it is that of one GPU
    iteration_time   checked, in ms: where duration is not iterations x iteration_time within 1 s is counted
    interval         unused: the gap between submissions, in ms
    resource_time_*  unused: ms of an iteration on storage and CPU, GPU, network
    priority         unused: 0 or 1 by chance (guaranteed or opportunistic), for one baseline only
    ===============  ======================================================================================

    There is no status in the file: all are "unknown". In the files `*_pr.csv` all jobs come at once. Source: units
    as the simulator's own reader divides them by 1000; the batch is one GPU's, since its table of iteration times is
    nearly flat in GPUs (repository Rivendile/Muri, Apache 2.0).

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    table = read_table(path, HEADER)
    tally = Tally(table.lines)
    gpus = table.number("num_gpu", integer=True, high=1e6)
    iterations = table.number("iterations", high=1e15)
    duration_s = table.number("duration", high=LONGEST_RUN_S * MS_PER_S) / MS_PER_S
    each_s = table.number("iteration_time", high=LONGEST_RUN_S * MS_PER_S) / MS_PER_S
    tally.rows("rows where duration is not iterations x iteration_time",
               np.abs(iterations * each_s - duration_s) > 1.0)
    columns = {
        "job_id": table.text("job_id"), "submit_s": table.number("submit_time") / MS_PER_S, "duration_s": duration_s,
        "num_gpus": gpus, "model": table.text("model_name"), "work_iters": iterations,
        "batch_size": table.number("batch_size", integer=True, high=1e6) * gpus,
    }
    return trace_of(table, columns, with_gpus(gpus, duration_s, tally), tally, format="muri",
                    rule="duration_s as recorded (ms / 1000)", rates="Muri's iteration times")


READER = Reader(
    name="muri",
    description="Muri jobs (ms): job_id,num_gpu,submit_time,iterations,model_name,batch_size,…,iteration_time,…",
    public="https://github.com/Rivendile/Muri (simulator/trace-data)",
    licence="Apache 2.0",
    header=HEADER,
    read=read_muri,
)
