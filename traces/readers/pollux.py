"""Workloads of Pollux (Qiao et al., OSDI 2021) and Sia (Jayaram Subramanya et al., SOSP 2023): no run times in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.readers.rows import trace_of, with_gpus
from traces.reading.reader import Reader
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.trace import Trace

HEADER = ("name", "time", "application", "num_replicas", "batch_size")
KEYS = ("application", "num_replicas", "batch_size")


def read_pollux(path: Path, *, run_times: str = "") -> Trace:
    """Read `name,time,application,num_replicas,batch_size`.

    ============  =========================================================================================
    source        becomes
    ============  =========================================================================================
    name          job_id
    time          submit_s, in s
    application   model, as written; Pollux' and Sia's measured tables name models so
    num_replicas  num_gpus: the GPUs that a user who tunes the job asks for (a replica is one GPU)
    batch_size    batch_size, of the whole job, for those GPUs
    (option)      duration_s
    ============  =========================================================================================

    How long such a job runs is not in the file: its batch size and GPUs adapt while it trains, and steps in a larger
    batch make less progress. There is no status: all are "unknown". Source: repository petuum/adaptdl, branch
    osdi21-artifact.

    Parameters
    ----------
    run_times : str
        A CSV file of one's own, application,num_replicas,batch_size,duration_s: run time in s of each such job.

    Raises
    ------
    TraceError
        No run times, none for a job, or two for one combination; see `traces.reading.text.read_table` and
        `Trace.from_columns`.
    """
    table = read_table(path, HEADER)
    if not run_times:
        raise TraceError(
            "no run times in a Pollux or Sia workload: batch sizes and GPUs adapt as a job trains", where=str(path),
            got=", ".join(table.cells), allowed="jobs that say how long they run",
            todo="Give them with option run_times: a CSV file " + ",".join((*KEYS, "duration_s")) + ".",
        )
    tally = Tally(table.lines)
    gpus = table.number("num_replicas", integer=True, high=1e6)
    duration_s = _run_times(table, Path(run_times))
    columns = {
        "job_id": table.text("name"), "submit_s": table.number("time"), "duration_s": duration_s, "num_gpus": gpus,
        "model": table.text("application"), "batch_size": table.number("batch_size", integer=True, high=2**31 - 1),
    }
    return trace_of(table, columns, with_gpus(gpus, duration_s, tally), tally, format="pollux",
                    rule=f"duration_s by {Path(run_times).name}, per application, GPUs and batch size")


def _run_times(table: Table, source: Path) -> np.ndarray:
    """Run time of each row, in s."""
    given = read_table(source, (*KEYS, "duration_s"), what="table of run times")
    at: dict[tuple[str, float, float], int] = {}
    for index, key in enumerate(_keys(given)):
        if (first := at.setdefault(key, index)) != index:
            raise TraceError("two run times of the same jobs", where=given.where(index, "duration_s"),
                             got=f"{_words(key)}, as in line {given.lines[first]}", allowed="each combination once")
    run_s = given.number("duration_s", high=LONGEST_RUN_S)
    known = {key: float(run_s[index]) for key, index in at.items()}
    keys = _keys(table)
    for index, key in enumerate(keys):
        if key not in known:
            raise TraceError("no run time for a job", where=f"{table.source}, line {table.lines[index]}",
                             got=_words(key), allowed=f"the combinations of {source}", todo="Add a row for it.")
    return np.array([known[key] for key in keys])


def _words(key: tuple[str, float, float]) -> str:
    return f"{key[0]} on {key[1]:g} GPUs in batches of {key[2]:g}"


def _keys(table: Table) -> list[tuple[str, float, float]]:
    return list(zip(table.text(KEYS[0]).tolist(), table.number(KEYS[1]).tolist(), table.number(KEYS[2]).tolist(),
                    strict=True))


READER = Reader(
    name="pollux",
    description="Pollux and Sia workloads: name,time,application,num_replicas,batch_size",
    public="https://github.com/petuum/adaptdl (branch osdi21-artifact, benchmark/workloads)",
    licence="Apache 2.0",
    header=HEADER,
    read=read_pollux,
    options={"run_times": "CSV file application,num_replicas,batch_size,duration_s: the workload has no run times"},
)
