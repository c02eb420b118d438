"""One cell: play it, and make its tables. This is all that a worker does; it writes nothing that others see."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.measuring_window import asked
from analysis.metrics import measures, per_job
from analysis.run import Run
from sim.engine.simulate import RunResult
from sim.results.recorder import OutputError
from sim.settings.config import RunConfig
from sim.sweeps.identity import Sources, sources
from sim.sweeps.kept import TRACES, SweepError
from sim.sweeps.replay import Replay
from traces.errors import HetsimError

ARROW_TYPES = {"bool": pa.bool_(), "int64": pa.int64(), "double": pa.float64(), "string": pa.string()}

Columns = tuple[tuple[str, str, Any], ...]
"""Name, kind and value of each column that says which cell a row is of, but the policy's."""


@dataclass(frozen=True)
class Task:
    """What a worker is given.

    Attributes
    ----------
    cell : its id.
    config : what is played.
    columns : of its axes.
    tables : what is kept of the run beside its metrics.
    window : what is measured of it, by the names of `sim.sweeps.sweepfile.WINDOW`; empty: all.
    sources : what the cell was checked with; a worker that finds anything else refuses.
    folder : that in which names of files are understood.
    """

    cell: str
    config: RunConfig
    columns: Columns
    tables: tuple[str, ...]
    window: Mapping[str, Any]
    sources: Sources
    folder: str


@dataclass(frozen=True)
class Outcome:
    """What a worker gives back.

    Attributes
    ----------
    files : table -> Parquet bytes; of whole runs `runs/<file>` -> bytes. Empty where the cell failed.
    error : why it failed; empty where it did not.
    wall_s, cpu_s : time that it took, and of the processor.
    peak_mib : the most memory that the worker had had until then.
    worker : its machine and process.
    """

    cell: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    error: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    worker: str = ""


_ALONE = threading.Lock()  # a process plays one cell at a time, whatever threads Dask gives it


def play(task: Task, worker: bool = False) -> Outcome:
    """Play a cell. Whatever goes wrong is in the outcome: a worker goes on. What a policy prints goes to stderr.

    In a `worker`, which Ctrl-C is not for, an interrupt or an exit is a policy's own, and goes wrong, too.
    """
    with _ALONE, contextlib.redirect_stdout(sys.stderr):
        began, cpu = time.perf_counter(), time.process_time()
        files: dict[str, bytes] = {}
        error = ""
        try:
            with _inside(task.folder):
                files = _tables(task)
        except HetsimError as failure:
            error = str(failure)
        except BaseException as failure:
            if not worker and not isinstance(failure, Exception):
                raise  # an interrupt, or a signal to end: it is this process that shall end
            last = traceback.extract_tb(failure.__traceback__)[-1]
            error = f"{type(failure).__name__}: {failure} ({Path(last.filename).name}, line {last.lineno})"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
        return Outcome(task.cell, files, error, time.perf_counter() - began, time.process_time() - cpu, peak,
                       f"{socket.gethostname()}:{os.getpid()}")


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """In the folder of who began the sweep, for files that are named from there."""
    if os.getcwd() == folder:
        yield
        return
    if not os.path.isdir(folder):
        raise SweepError("the folder in which the sweep was begun is not there", where=socket.gethostname(), got=folder,
                         todo="Workers read files by the same path: share the folder.")
    with contextlib.chdir(folder):
        yield


def _tables(task: Task) -> dict[str, bytes]:
    replay = Replay(task.config, partial(TRACES.get, sha256=task.sources.trace))
    here = sources(replay, task.sources.trace)
    if here != task.sources:
        what = "code is" if here.code != task.sources.code else "files are"
        raise SweepError(f"the worker's {what} not that with which the sweep was checked",
                         where=socket.gethostname(), todo="Install the same version there, then --retry-failed.")
    result = replay.play()
    if not result.tables["segments"].num_rows:
        raise SweepError("no job ran", got=_why_none(result), todo="The cluster is too small for the jobs, or too few.")
    # Without timing.json: what is kept must not depend on who made it.
    run = in_window(Run(Path(task.cell), result.tables, result.info, {}), task.window)
    values = measures(run)
    tables = {"metrics": pa.table({name: pa.array([one], pa.int64() if isinstance(one, int) else pa.float64(),
                                                  from_pandas=True) for name, one in values.items()})}
    for name in task.tables:
        if name == "jobs":
            more = pa.Table.from_pandas(per_job(run), preserve_index=False)
            jobs = run.tables[name]
            for column in more.column_names:
                jobs = jobs.append_column(column, more[column])
            tables[name] = jobs.filter(pa.array(run.counted))
        elif name != "runs":
            tables[name] = run.tables[name]
    files = {name: packed(dressed(table, task.cell, task.columns)) for name, table in tables.items()}
    return files | (_folder(result) if "runs" in task.tables else {})


def in_window(run: Run, window: Mapping[str, Any]) -> Run:
    """The run in the measuring window that [results] asks for; the run itself where it asks for none.

    Raises
    ------
    RunError
        The run has no such window.
    """
    return asked(run, window.get("from"), window.get("to"), window.get("warmup"), window.get("cooldown"),
                 window.get("follow", False))


def _why_none(result: RunResult) -> str:
    """The reason of the first job that says one."""
    reasons = (reason for reason in result.tables["jobs"]["reason"].to_pylist() if reason)
    return next(reasons, f"{result.tables['jobs'].num_rows} jobs")


def _folder(result: RunResult) -> dict[str, bytes]:
    """The files of the run's folder.

    Raises
    ------
    SweepError
        There is no space for them among the temporary files of this machine.
    """
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "run")
            result.write(folder)
            return {f"runs/{file.name}": file.read_bytes() for file in sorted(folder.iterdir())}
    except (OSError, OutputError) as error:
        got = error.got if isinstance(error, OutputError) else error.strerror
        raise SweepError("no space to put the run's files together", where="the folder of temporary files", got=got,
                         todo="Free some space there, or name another with TMPDIR.") from None


def dressed(table: pa.Table, cell: str, columns: Columns) -> pa.Table:
    """A table with the cell and its axes in front."""
    front = (("cell", "string", cell), *columns)
    arrays = [pa.repeat(pa.scalar(value, ARROW_TYPES[kind]), table.num_rows) for _, kind, value in front]
    fields = [pa.field(name, ARROW_TYPES[kind]) for name, kind, _ in front] + list(table.schema)
    return pa.table([*arrays, *table.columns], schema=pa.schema(fields))


def packed(table: pa.Table) -> bytes:
    """The table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content
