"""The raw tables of Alibaba PAI 2020 put together: a frame with a row for each task, or job, that asks for GPUs.

Columns: job, id (text); submit_s, first_s, last_s (start and end by the rule), ran_s (run times of the instances added
up), all s, NaN: not known; submitted (whether submit_s is a time of submission); instances, each (GPUs of one); cpus,
memory_gib (of all instances, NaN: not known); gpu_type, user, recurrence, status, job_status (the log's words); line
(of the task table).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.late import pd
from traces.readers.pai import gpu_types
from traces.readers.pai_tables import (
    INSTANCE,
    JOB,
    SENSOR,
    TAG,
    TASK,
    gpu_use,
    instance_spans,
    key,
    seconds,
    whole,
)
from traces.readers.rows import demands
from traces.reading.tally import Tally
from traces.reading.text import Table
from traces.study.coverage import coverage, coverage_notes

NEEDED = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
          "gpu_type")


def gpu_tasks(
    files: dict[str, Path], run_time: str, gpus: str, types: str
) -> tuple[pd.DataFrame, Tally, int, tuple[str, ...]]:
    """The tasks that ask for GPUs, with what the other tables say of each; what was counted; rows of the task table;
    and notes on how many tasks the other tables know, and from when on.

    The options are those of `traces.readers.pai_raw.read_pai_raw`, which has checked that their tables are there.
    """
    table = whole(TASK, files[TASK], NEEDED)
    tally = Tally(table.lines, f"{files[TASK].name} line")
    each = table.number("plan_gpu", high=1e8, blank=True) / 100
    instances = table.number("inst_num", high=1e6, integer=True, blank=True)
    names = key(table, "job_name", "task_name")
    keep = each > 0
    tally.rows("tasks without GPUs dropped", ~keep)
    again = pd.Series(names.to_numpy(), dtype=object).duplicated().to_numpy()
    for what, hit in (("without instances", ~(instances > 0)), ("of a name that was there before", again)):
        tally.rows(f"tasks {what} dropped", keep & hit)
        keep &= ~hit
    rows = np.flatnonzero(keep)
    names = names.take(pa.array(rows))
    jobs = _jobs(files, key(table, "job_name").take(pa.array(rows)))
    start_s, end_s = seconds(table, "start_time")[rows], seconds(table, "end_time")[rows]
    submitted = ~np.isnan(jobs["submit_s"].to_numpy())
    if JOB in files and run_time != "job":
        tally.rows("tasks of jobs without a time of submission: their own start stands for it", rows[~submitted])
    first_s, last_s, ran_s = start_s, end_s, np.full(len(rows), np.nan)
    if run_time == "job":
        first_s, last_s = jobs["submit_s"].to_numpy(), jobs["end_s"].to_numpy()
    known = {JOB: submitted} if JOB in files else {}
    if INSTANCE in files:
        spans = instance_spans(files[INSTANCE], tally).of(names)
        tally.rows("tasks with other than inst_num rows of instances", rows[spans["rows"] != instances[rows]])
        ran_s, known[INSTANCE] = spans["ran_s"], spans["rows"] > 0
        if run_time == "instance":
            first_s, last_s = spans["first_s"], spans["last_s"]
    stand_in_s = np.where(np.isnan(start_s), first_s, start_s)
    tasks = jobs.assign(
        id=pc.replace_substring(names, "\0", "/").to_numpy(), status=table.text("status")[rows], line=table.lines[rows],
        submitted=submitted, submit_s=np.where(submitted, jobs["submit_s"], stand_in_s), instances=instances[rows],
        each=each[rows], gpu_type=_types(table.text("gpu_type")[rows], jobs["gpu_type_spec"].to_numpy(), types),
        first_s=first_s, last_s=last_s, ran_s=ran_s,
        **demands(table, rows, cpus=("plan_cpu", instances / 100), memory_gib=("plan_mem", instances)),
    )
    if gpus == "used":
        used = gpu_use(files[SENSOR]).of(names)["used"]
        known[SENSOR] = ~np.isnan(used)
        tally.rows("tasks without a sensor: they take the GPUs that they asked for", rows[np.isnan(used)])
        tally.rows("tasks that used no GPU: they take a thousandth", rows[used == 0])
        tasks["each"] = np.where(np.isnan(used), tasks["each"], np.where(used == 0, 1e-3, used))
    return tasks, tally, len(table), _coverage(start_s, known)


def _coverage(start_s: np.ndarray, known: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Of each joined table, how many of the tasks that started it knows, where that is few or changes over time."""
    started = ~np.isnan(start_s)
    at_s = start_s[started]
    return tuple(note for table, joined in known.items()
                 for note in coverage_notes(coverage(at_s, np.asarray(joined)[started]), f"tasks in {table}"))


def as_jobs(tasks: pd.DataFrame, tally: Tally) -> pd.DataFrame:
    """One row a job: its GPU tasks as one gang, from the first start to the last end.

    Tasks that ask for different shares become single GPUs, fractions rounded up; types that differ become A|B, and any
    where a task may run on any.
    """
    groups = tasks.groupby("job", sort=False)
    mixed = groups["each"].transform("nunique").to_numpy() > 1
    whole_gpus = np.ceil(tasks["each"])
    tasks = tasks.assign(instances=np.where(mixed, tasks["instances"] * whole_gpus, tasks["instances"]),
                         each=np.where(mixed, 1.0, tasks["each"]))
    groups = tasks.groupby("job", sort=False)
    more = tasks["job"].duplicated().to_numpy()
    tally.add("tasks that became part of a job's gang", int(more.sum()))
    jobs = groups.agg(
        id=("job", "first"), submit_s=("submit_s", "min"), submitted=("submitted", "all"), first_s=("first_s", "min"),
        last_s=("last_s", "max"), ran_s=("ran_s", "sum"), instances=("instances", "sum"), each=("each", "first"),
        gpu_type=("gpu_type", _either), user=("user", "first"), status=("job_status", "first"), line=("line", "first"),
        cpus=("cpus", "sum"), memory_gib=("memory_gib", "sum"), recurrence=("recurrence", "first"),
    )
    for name in ("cpus", "memory_gib"):  # a sum of which a part is unknown is unknown
        jobs[name] = jobs[name].mask(groups[name].count() < groups.size())
    tally.add("jobs whose tasks ask for different shares: as single GPUs", int((mixed & ~more).sum()),
              (f"{TASK} line {line}" for line in tasks["line"][mixed & ~more]))
    jobs.loc[jobs["status"] == "", "status"] = "unknown"  # the job table does not have it
    return jobs.reset_index(drop=True)


def _either(types: pd.Series) -> str:
    words = list(dict.fromkeys(types))
    return "" if "" in words else "|".join(words)


def _types(assigned: np.ndarray, asked: np.ndarray, types: str) -> np.ndarray:
    asked = gpu_types(asked)
    return asked if types == "requested" else np.where(asked != "", asked, gpu_types(assigned))


def _jobs(files: dict[str, Path], job: pa.ChunkedArray) -> pd.DataFrame:
    """What the job and tag tables say of these jobs, a row each: "" and NaN where they say nothing."""
    found = pd.DataFrame({"job": job.to_numpy(), "submit_s": np.nan, "end_s": np.nan, "user": "", "job_status": "",
                          "gpu_type_spec": "", "recurrence": ""})
    if JOB not in files:
        return found
    table = whole(JOB, files[JOB], ("job_name", "inst_id", "user", "status", "start_time", "end_time"))
    at = _place(job, key(table, "job_name"))
    found["submit_s"] = np.append(seconds(table, "start_time", zero=True), np.nan)[at]
    found["end_s"] = np.append(seconds(table, "end_time"), np.nan)[at]
    found["user"], found["job_status"] = _texts(table, "user", at), _texts(table, "status", at)
    if TAG in files:
        tags = whole(TAG, files[TAG], ("inst_id", "gpu_type_spec", "group"))
        at = _place(pa.array(_texts(table, "inst_id", at), pa.string()), key(tags, "inst_id"))
        found["gpu_type_spec"], found["recurrence"] = _texts(tags, "gpu_type_spec", at), _texts(tags, "group", at)
    return found


def _place(wanted: pa.Array | pa.ChunkedArray, names: pa.ChunkedArray) -> np.ndarray:
    """The row of each name, the first of several; -1: none."""
    at: np.ndarray = pc.fill_null(pc.index_in(wanted, value_set=names), -1).to_numpy()
    return at


def _texts(table: Table, name: str, at: np.ndarray) -> np.ndarray:
    """Cells of a column; "" where there is no row (-1)."""
    cells = key(table, name).take(pa.array(np.maximum(at, 0))).to_numpy()
    return np.where(at >= 0, cells, "")
