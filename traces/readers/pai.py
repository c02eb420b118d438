"""Alibaba PAI 2020, in the job format of the simulator published with the trace: one row a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from traces.errors import TraceError, did_you_mean
from traces.readers.rows import demands, with_gpus
from traces.reading import status
from traces.reading.gpu_types import catalogue_names
from traces.reading.reader import Reader
from traces.reading.spans import cut_words
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.trace import Provenance, Trace

HEADER = ("job_id", "num_inst", "submit_time", "num_gpu", "gpu_type", "duration", "user")


def read_pai(path: Path, *, estimate_column: str = "") -> Trace:
    """Read `job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user[,status,user_dur,…]`.

    Where: the repository clusterdata of the GitHub organisation alibaba, cluster-trace-gpu-v2020/simulator
    (CC-BY-4.0). Time 0 is the first submission: which hour that was, the file does not say. The raw tables, whose
    hours are true, are read by `traces.readers.pai_raw`.

    ================  =====================================================================================
    source            becomes
    ================  =====================================================================================
    job_id, user      job_id, user
    submit_time       submit_s, in s as given
    duration          duration_s, in s
    num_inst          the gang: instances that start together
    num_gpu           GPUs of one instance. Below 1: num_gpus = num_inst, gpu_milli = 1000 num_gpu. From 1:
                      num_gpus = num_inst x num_gpu, worker_gpus = num_gpu (an instance lies on one node);
                      a fraction above 1 is rounded up, a share below 1/1000 taken for that, and
                      counted. 0: CPU-only, dropped and counted
    gpu_type          gpu_type; MISC (any), V100M32 (V100-32), others as written
    status            status, if there: only Terminated passed; Running: `cut` after
    num_cpu           cpus = num_inst x num_cpu, CPU cores of one instance
    ================  =====================================================================================

    Parameters
    ----------
    estimate_column : str
        Column that becomes estimate_s, such as user_dur or group_gpu_dur (s); '': no estimates.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`; no such estimate column.
    """
    table = read_table(path, HEADER)
    if estimate_column and estimate_column not in table:
        raise TraceError("no such column", where=f"{path}, option 'estimate_column'", got=estimate_column,
                         allowed=", ".join(table.cells), todo=did_you_mean(estimate_column, table.cells))
    each = table.number("num_gpu", high=1e6)
    instances = table.number("num_inst", low=1, integer=True, high=1e6)
    duration_s = table.number("duration", high=LONGEST_RUN_S)
    tally = Tally(table.lines)
    keep = np.flatnonzero(with_gpus(each, duration_s, tally))
    columns = gang(instances, each, keep, tally, lambda row: table.where(row, "num_gpu")) | {
        "job_id": table.text("job_id")[keep], "submit_s": table.number("submit_time")[keep],
        "duration_s": duration_s[keep], "user": table.text("user")[keep],
        "gpu_type": gpu_types(table.text("gpu_type")[keep]), "status": _status(table)[keep],
    }
    columns |= demands(table, keep, cpus=("num_cpu", instances))
    if "status" in table:
        still = status.still_there(table.text("status").tolist())[keep]
        tally.rows("jobs that had not ended by their status: run time cut at their end", keep[still])
        columns["cut"] = cut_words(still)
    if estimate_column:
        columns["estimate_s"] = table.number(estimate_column, blank=True)[keep]
    provenance = Provenance(
        source=str(path), format="pai", rule="duration_s as recorded", rows_read=len(table),
        counts=tally.counts, first=tally.first,
        notes=(f"estimate_s is {estimate_column}",) if estimate_column else (),
    )
    return Trace.from_columns(columns, provenance, rows=table.lines[keep], row_word="line")


def gang(
    instances: np.ndarray, each: np.ndarray, keep: np.ndarray, tally: Tally, where: Callable[[int], str]
) -> dict[str, np.ndarray]:
    """The gangs of `instances` instances that want `each` GPUs (float64[rows]) in the rows `keep` (indices).

    Below one GPU, an instance is a slot with that share, in thousandths, at least one; from one GPU on, a worker of
    whole GPUs on one node, a fraction above one rounded up. What is raised so is tallied. Returns num_gpus, gpu_milli,
    worker_gpus, float64[len(keep)].

    Raises
    ------
    TraceError
        A gang is wider than 1,000,000 GPUs; the message names `where(row)`.
    """
    instances, each = instances[keep], each[keep]
    shared = each < 1
    whole = np.where(shared, 1.0, np.ceil(each))
    num_gpus = instances * whole
    for row in np.flatnonzero(num_gpus > 1e6)[:1].tolist():
        raise TraceError("a job wider than any cluster", where=where(int(keep[row])), got=f"{num_gpus[row]:g} GPUs",
                         allowed="up to 1,000,000")
    milli = np.where(shared, np.maximum(np.round(each * 1000), 1), 1000)
    tally.rows("fractions above one GPU rounded up", keep[~shared & (each != whole)])
    tally.rows("shares below a thousandth of a GPU taken for one", keep[each < 1e-3])
    return {"num_gpus": num_gpus, "gpu_milli": milli, "worker_gpus": whole}


def gpu_types(cells: np.ndarray) -> np.ndarray:
    """PAI's words as names of the catalogue; "" (any) for MISC, which stands for types that the trace does not name."""
    names: np.ndarray = catalogue_names(cells)
    names[[name.upper() in ("MISC", "CPU") for name in names]] = ""
    return names


def _status(table: Table) -> np.ndarray:
    if "status" not in table:
        return np.full(len(table), "unknown", dtype=object)
    return status.canonical(table.text("status").tolist(), table.source, table.lines)


READER = Reader(
    name="pai",
    description="PAI simulator jobs: job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user",
    public="https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2020/simulator/traces/pai)",
    licence="CC-BY-4.0",
    header=HEADER,
    read=read_pai,
    options={"estimate_column": "column to use as the user's run-time estimate, e.g. user_dur; default none"},
)
