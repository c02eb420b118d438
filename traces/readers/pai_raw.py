"""Alibaba PAI 2020, the raw tables: a folder of them is one trace, one job a task (or a job) that asks for GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.late import pd
from traces.readers.pai import gang
from traces.readers.pai_tables import (
    COLUMNS,
    INSTANCE,
    JOB,
    LICENCE,
    MACHINE,
    METRIC,
    PUBLIC,
    SENSOR,
    TAG,
    TASK,
    WHAT,
    find,
    seconds,
    stream,
    table_of,
)
from traces.readers.pai_tasks import as_jobs, gpu_tasks
from traces.readers.philly_csv import epoch
from traces.reading import status
from traces.reading.reader import Head, Reader, SideTable, choice
from traces.reading.spans import EDGES, EDGES_HELP, Spans, cut_words, spans
from traces.reading.tally import Tally
from traces.reading.unpack import only
from traces.trace import Provenance, Trace

#: Zone in which hours and weekdays of the log are true; its dates are not.
ZONE = "Asia/Shanghai"
RULES = {
    "instance": "duration_s = last end - first start of the instances, queueing not included",
    "task": "duration_s = end - start of the task",
    "job": "duration_s = end - submission of the job, queueing included",
}
OPTIONS = {"unit": ("task", "job"), "run_time": ("auto", *RULES), "gpus": ("requested", "used"),
           "types": ("assigned", "requested"), "edges": EDGES}


def read_pai_raw(
    path: Path, *, unit: str = "task", run_time: str = "auto", gpus: str = "requested", types: str = "assigned",
    edges: str = "drop",
) -> Trace:
    """Read a folder of raw tables (csv, csv.gz, tar.gz or its parts), or pai_task_table alone.

    Where: the repository clusterdata of the GitHub organisation alibaba, cluster-trace-gpu-v2020/data (CC-BY-4.0);
    meanings after the README there, and Weng et al., "MLaaS in the Wild", NSDI 2022. The tables have no header: names
    come from the .header files beside them, or are those of the README. A job has tasks (ps, worker, evaluator, …); a
    task has instances that all ask for the same.

    ===========================  ================================================================================
    source                       becomes
    ===========================  ================================================================================
    task: job_name, task_name    job_id: job_name/task_name (unit task) or job_name (unit job)
    job: start_time              submit_s, from the first kept: the README calls it the time of submission
    start and end, by run_time   duration_s = end - start; wait_s = start - submission
    task: inst_num, plan_gpu     inst_num instances of plan_gpu/100 GPUs each start together, as in
                                 `traces.readers.pai.gang`; plan_gpu blank or 0: no GPUs, dropped and counted
    task: gpu_type               gpu_type, the type that was assigned; MISC: any; V100M32: V100-32
    group tag: gpu_type_spec     gpu_type where set: the type that was asked for
    job: user                    user
    task (unit job: job) status  status: only Terminated passed; Running: unfinished, by option edges
    sensor: gpu_wrk_util         GPUs in use, see `gpus`; otherwise unread
    task: plan_cpu, plan_mem     cpus = inst_num x plan_cpu/100; memory_gib = inst_num x plan_mem
    group tag: group             recurrence: one tag for jobs with the same script, settings and data
    group tag: workload          unused: workloads (ctr, nmt) are no models
    ===========================  ================================================================================

    plan_mem is in GB of 2**30 bytes: the README's example, 29.296875, is 30,000 MiB. With unit job, CPUs and memory are
    those of the GPU tasks.
    Only pai_task_table must be there. Without the job table the start of the task stands for the submission, and user
    and wait are unknown; a note says so. The instance table is streamed: memory holds a row a task.

    Parameters
    ----------
    unit : {"task", "job"}
        What a job of the trace is. job: all GPU tasks of a job as one gang; where they ask for different shares, as
        single GPUs, fractions rounded up, and counted.
    run_time : {"auto", "instance", "task", "job"}
        instance: from the first start to the last end of the instances; the gang holds all its GPUs until its last
        instance ends, and a note says how much of that time instances ran. task: from start to end of the task.
        job: from submission to end of the job. auto: instance where that table is there, else task.
    gpus : {"requested", "used"}
        used: an instance takes what it used of GPUs on average, at least a thousandth; a task that the sensor table
        does not have takes what it asked for, and is counted.
    types : {"assigned", "requested"}
        requested: gpu_type is what the user asked for, and any where that is nothing.
    edges : {"drop", "cut"}
        cut: what is Running goes on until the log ends, marked in column `cut`: its run time is a lower bound.

    Raises
    ------
    TraceError
        A table that is needed is missing (names it), there twice, cannot be read, or holds what it may not; an
        option's value.
    """
    for name, value in {"unit": unit, "run_time": run_time, "gpus": gpus, "types": types, "edges": edges}.items():
        choice(name, value, OPTIONS[name])
    files = _files(path)
    if run_time == "auto":
        run_time = "instance" if INSTANCE in files else "task"
    needs = {JOB: "job" in (unit, run_time) or types == "requested", INSTANCE: run_time == "instance",
             SENSOR: gpus == "used", TAG: types == "requested"}
    for table, needed in needs.items():
        if needed and table not in files:
            raise TraceError(f"{table} is missing", where=str(path), got=", ".join(files),
                             todo=f"It has {WHAT[table]}: put it beside the others, or choose other options.")
    rows, tally, read, known = gpu_tasks(files, run_time, gpus, types)
    if unit == "job":
        rows = as_jobs(rows, tally)
    trace = _trace(path, files, rows, read, tally, run_time, unit, edges)
    return replace(trace, provenance=replace(trace.provenance, notes=(*trace.provenance.notes, *known)))


def _trace(
    path: Path, files: dict[str, Path], rows: pd.DataFrame, read: int, tally: Tally, run_time: str, unit: str,
    edges: str,
) -> Trace:
    column = {str(name): rows[name].to_numpy() for name in rows}
    source, word = str(files[TASK]), f"{files[TASK].name} line"
    ended = status.canonical(column["status"].tolist(), source, column["line"])
    of_rows = Tally(column["line"], word)
    running = status.still_there(column["status"].tolist())
    cut = running & ~np.isnan(column["first_s"]) & (edges == "cut")
    of_rows.rows(f"unfinished {unit}s (Running) dropped", running & ~cut)
    of_rows.rows(f"unfinished {unit}s (Running): run time cut at the end of the log", cut)
    column["last_s"] = np.where(cut, np.nanmax(column["last_s"], initial=-np.inf), column["last_s"])
    # Only what never started can lack every time that might stand for its submission: let it be counted as such.
    submit_s = np.where(np.isnan(column["first_s"]), 0.0, column["submit_s"])
    found = spans(of_rows, submit_s, column["first_s"], column["last_s"], ~running | cut, f"{unit}s")
    keep = np.flatnonzero(found.kept)
    gangs = gang(column["instances"], column["each"], keep, of_rows,
                 lambda row: f"{source}, line {column['line'][row]}, column 'inst_num'")
    tally.take(of_rows)
    first_s = float(submit_s[keep].min(initial=np.inf))
    columns = gangs | {
        "job_id": column["id"][keep], "submit_s": submit_s[keep] - first_s,
        "duration_s": found.duration_s[keep], "wait_s": np.where(column["submitted"], found.wait_s, np.nan)[keep],
        "gpu_type": column["gpu_type"][keep], "user": column["user"][keep], "status": ended[keep],
        "cut": cut_words(cut[keep]),
        **{name: column[name][keep] for name in ("cpus", "memory_gib", "recurrence")},
    }
    provenance = Provenance(
        source=str(path), format="pai-raw", rule=RULES[run_time], rows_read=read, counts=tally.counts,
        first=tally.first, notes=_notes(files, column, found, keep, first_s), epoch_s=epoch(first_s), tz=ZONE,
        date_is_real=False, window_s=_window(column, first_s),
    )
    return Trace.from_columns(columns, provenance, rows=column["line"][keep], row_word=word)


def _window(column: dict[str, np.ndarray], first_s: float) -> tuple[float, float] | None:
    """From the first submission to the last end that any GPU task shows: the log says no more of its own edges."""
    edges = np.nanmin(column["submit_s"], initial=np.inf), np.nanmax(column["last_s"], initial=-np.inf)
    return (float(edges[0] - first_s), float(edges[1] - first_s)) if np.isfinite([first_s, *edges]).all() else None


def _notes(
    files: dict[str, Path], column: dict[str, np.ndarray], found: Spans, keep: np.ndarray, first_s: float
) -> tuple[str, ...]:
    notes = [] if JOB in files else [f"no {JOB}: the start of a task stands for its submission; wait, user unknown"]
    size = column["instances"][keep] * column["each"][keep]
    held = float((size * found.duration_s[keep]).sum())
    ran = float(np.nansum(column["each"][keep] * column["ran_s"][keep]))
    if INSTANCE in files and held > 0:
        notes.append(f"instances ran {ran / held:.1%} of the GPU time that their gangs hold")
    if np.isfinite(first_s):
        notes.append(f"submit_s = 0 is {first_s:g} s in the log; hour and weekday are true in {ZONE}, the date is not")
    return tuple(notes)


def _files(path: Path) -> dict[str, Path]:
    """The file of each table; a TraceError where there is none with GPUs."""
    name = table_of(path)
    files = {name: path} if name else {}
    if path.is_dir():
        files = {name: only(same) for name, same in find(path).items()}
    if TASK in files:
        return files
    if not files:
        raise TraceError("no raw table of PAI", where=str(path), got=path.name, allowed=", ".join(COLUMNS),
                         todo="Files must have their published names, since they have no header.")
    seen = _first_rows(files[INSTANCE]) if INSTANCE in files else ""
    raise TraceError(
        f"no jobs here: {TASK} is missing", where=str(path),
        got="; ".join(f"{name}: {WHAT[name]}" for name in files) + seen,
        allowed=f"a folder with {TASK}, which has GPUs and gangs", todo=f"Put {TASK} there. Public: {PUBLIC}",
    )


def _first_rows(path: Path) -> str:
    """What the first rows of an instance table are, for a message."""
    table = next(stream(INSTANCE, path, ("status", "start_time", "end_time")), None)
    if table is None:
        return ""
    without = int((np.isnan(seconds(table, "start_time")) & np.isnan(seconds(table, "end_time"))).sum())
    words = ", ".join(f"{n} {word}" for word, n in pd.Series(table.text("status")).value_counts().items())
    return f" (first {len(table)} rows: {words}; {without} without times)"


def _knows(head: Head) -> bool:
    names = find(head.path) if head.path.is_dir() else [table_of(head.path)]
    return any(name in names for name in (TASK, INSTANCE, JOB, SENSOR, TAG))


READER = Reader(
    name="pai-raw",
    description="PAI 2020 raw tables: a folder with pai_task_table, pai_job_table, pai_instance_table, … (no headers)",
    public=PUBLIC,
    licence=LICENCE,
    header=(),
    read=read_pai_raw,
    options={
        "unit": "what a job is: task (default) or job, all GPU tasks of a job as one gang",
        "run_time": "of the instances (default), the task, or the job with its wait: instance, task or job",
        "gpus": "requested (default) or used, as the sensor table says",
        "types": "assigned (default; what was asked for where that is known) or requested",
        "edges": EDGES_HELP,
    },
    sniff=_knows,
    folders=True,
    side_tables=(
        SideTable(WHAT[MACHINE], f"Jobs are in {TASK}; hetsim cluster from FILE makes a cluster of this.",
                  sniff=lambda head: table_of(head.path) == MACHINE),
        SideTable(WHAT[METRIC], f"Jobs are in {TASK}.", sniff=lambda head: table_of(head.path) == METRIC),
        SideTable("column names of a PAI table", f"Jobs are in {TASK}.", names=tuple(f"{n}.header" for n in COLUMNS)),
    ),
)
