"""The raw tables of Alibaba PAI 2020: which file is which, and what the long ones say of each task.

Meanings are those of the README beside the data (repository clusterdata of the GitHub organisation alibaba, folder
cluster-trace-gpu-v2020; CC-BY-4.0). Times are seconds; blank or 0 in the task and instance tables is no time, as the
analysis published there reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.errors import TraceError
from traces.late import pd
from traces.reading.stream import joined, names_beside, pieces
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table
from traces.reading.unpack import files_by, inner_name

PUBLIC = "https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2020/data)"
LICENCE = "CC-BY-4.0"
JOB, TASK, INSTANCE = "pai_job_table", "pai_task_table", "pai_instance_table"
SENSOR, TAG = "pai_sensor_table", "pai_group_tag_table"
MACHINE, METRIC = "pai_machine_spec", "pai_machine_metric"
#: Columns of each table, in the order of the published .header files.
COLUMNS: dict[str, tuple[str, ...]] = {
    JOB: ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    TASK: ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
                       "plan_gpu", "gpu_type"),
    INSTANCE: ("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time",
                           "end_time", "machine"),
    SENSOR: ("job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage",
                         "gpu_wrk_util", "avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write",
                         "read_count", "write_count"),
    TAG: ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    MACHINE: ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
    METRIC: ("worker_name", "machine", "start_time", "end_time", "machine_cpu_iowait",
                           "machine_cpu_kernel", "machine_cpu_usr", "machine_gpu", "machine_load_1",
                           "machine_net_receive", "machine_num_worker", "machine_cpu"),
}
WHAT = {
    JOB: "users and submissions of PAI's jobs, without their GPUs",
    TASK: "PAI's tasks with their GPUs",
    INSTANCE: "times and machines of PAI's instances, without their GPUs",
    SENSOR: "what PAI's instances used",
    TAG: "tags of PAI's jobs",
    MACHINE: "PAI's machines",
    METRIC: "load of PAI's machines",
}
_FILE = re.compile("(" + "|".join(COLUMNS) + r")(\.[^.]+)?\.csv|(" + "|".join(COLUMNS) + ")")
#: Tasks that are held before they are put together: bounds the memory of a long table.
HELD_TASKS = 1 << 20
_NAME = re.compile("(" + "|".join(COLUMNS) + r")(\..*)?")


def table_of(path: Path) -> str | None:
    """Which raw table a file is, by its name (pai_task_table.csv, …tail_sample.csv, ….tar.gz); None: none of them."""
    match = _NAME.fullmatch(path.name)
    return match[1] if match and not path.name.endswith(".header") else None


def find(folder: Path) -> dict[str, list[Path]]:
    """The files of each raw table in a folder: csv, csv.gz, tar.gz or its parts; several: `traces.reading.unpack`."""
    def table(name: str) -> str | None:
        match = _FILE.fullmatch(inner_name(name))
        return (match[1] or match[3]) if match else None

    return files_by(folder, table)


def stream(name: str, path: Path, keep: Sequence[str]) -> Iterator[Table]:
    """The pieces of a raw table; its names come from its first line, a .header file beside it, or the README."""
    return pieces(path, keep, names=names_beside(path, COLUMNS[name]))


def whole(name: str, path: Path, keep: Sequence[str]) -> Table:
    """Some columns of a raw table at once: for those with a row a job or task."""
    return joined(stream(name, path, keep), str(path))


def key(table: Table, *columns: str) -> pa.ChunkedArray:
    """Columns as one text each row; NUL, which no table can hold, stands between them."""
    cells = [pc.utf8_trim_whitespace(table.cells[name]) for name in columns]
    return pc.binary_join_element_wise(*cells, "\0") if len(cells) > 1 else cells[0]


def seconds(table: Table, name: str, *, zero: bool = False) -> np.ndarray:
    """A column of times; NaN where there is none: blank, or 0 unless `zero` is a time."""
    times = table.number(name, high=LONGEST_RUN_S, blank=True)
    return times if zero else np.where(times == 0, np.nan, times)


@dataclass(frozen=True)
class PerTask:
    """Columns of numbers, a row a task; `of` looks tasks up by their `key`."""

    keys: pa.ChunkedArray
    columns: dict[str, np.ndarray]

    def of(self, keys: pa.ChunkedArray) -> dict[str, np.ndarray]:
        """The columns for these tasks; NaN where a task has no row."""
        at = pc.fill_null(pc.index_in(keys, value_set=self.keys), -1).to_numpy()
        return {name: np.append(values, np.nan)[at] for name, values in self.columns.items()}


def instance_spans(path: Path, tally: Tally) -> PerTask:
    """From the instance table, of each task: `first_s` start, `last_s` end, `ran_s` (run times added up), `rows`.

    Only instances with both times, in order, count for the first three; others are tallied by kind. The table is
    streamed: memory grows with the number of tasks, not of instances.
    """
    held = _Held({"first_s": "min", "last_s": "max", "ran_s": "sum", "rows": "sum"})
    for table in stream(INSTANCE, path, ("job_name", "task_name", "start_time", "end_time")):
        start, end = seconds(table, "start_time"), seconds(table, "end_time")
        places = Tally(table.lines, f"{path.name} line")
        places.rows("instances without both times", np.isnan(start) | np.isnan(end))
        places.rows("instances that end before they start", end < start)
        tally.take(places)
        ran = end >= start
        held.add(key(table, "job_name", "task_name"), {
            "first_s": np.where(ran, start, np.nan), "last_s": np.where(ran, end, np.nan),
            "ran_s": np.where(ran, end - start, np.nan), "rows": np.ones(len(table)),
        })
    return held.done()


def gpu_use(path: Path) -> PerTask:
    """From the sensor table, of each task: `used`, GPUs in use by one instance on average (gpu_wrk_util / 100)."""
    held = _Held({"used": "sum", "rows": "sum"})
    for table in stream(SENSOR, path, ("job_name", "task_name", "gpu_wrk_util")):
        used = table.number("gpu_wrk_util", blank=True, high=1e6) / 100
        held.add(key(table, "job_name", "task_name"), {"used": used, "rows": np.where(np.isnan(used), np.nan, 1.0)})
    sums = held.done()
    return PerTask(sums.keys, {"used": sums.columns["used"] / sums.columns["rows"]})


def occupancy(sensor: Path, instances: Path | None = None, at_s: float | None = None) -> pd.DataFrame:
    """Who shares a GPU: instances and GPUs in use, by machine **and** gpu_name.

    Two instances share a device only where both are equal; /dev/nvidia0 is there on every machine, and a machine has
    several devices.

    Parameters
    ----------
    sensor, instances : path
        pai_sensor_table and pai_instance_table.
    at_s : float, optional
        Count only instances that run at this time (start <= at_s < end), which needs the instance table. Default:
        all of the log, whether or not they met.

    Returns
    -------
    DataFrame
        machine, gpu_name, instances, used (sum of gpu_wrk_util / 100); instances on no device are left out.

    Raises
    ------
    TraceError
        A table cannot be read; a time without the instance table.
    """
    running = None
    if at_s is not None:
        if instances is None:
            raise TraceError("pai_instance_table is missing", where=str(sensor), got=f"time {at_s:g}",
                             todo="Times of instances are in that table: name it, too.")
        running = _running(instances, at_s)
    held = _Held({"used": "sum", "instances": "sum"})
    for table in stream(SENSOR, sensor, ("worker_name", "machine", "gpu_name", "gpu_wrk_util")):
        on = pc.not_equal(key(table, "gpu_name"), "").to_numpy()
        if running is not None:
            on &= pc.is_in(key(table, "worker_name"), value_set=running).to_numpy()
        used = table.number("gpu_wrk_util", blank=True, high=1e6) / 100
        device = key(table, "machine", "gpu_name").filter(pa.array(on))
        held.add(device, {"used": used[on], "instances": np.ones(on.sum())})
    sums = held.done()
    pairs = [text.split("\0") for text in sums.keys.to_pylist()]
    frame = pd.DataFrame(pairs, columns=["machine", "gpu_name"], dtype=object)
    return frame.assign(instances=sums.columns["instances"].astype(int), used=sums.columns["used"])


def _running(instances: Path, at_s: float) -> pa.Array:
    """Names of the workers that run at a time."""
    names: list[pa.Array] = []
    for table in stream(INSTANCE, instances, ("worker_name", "start_time", "end_time")):
        hit = (seconds(table, "start_time") <= at_s) & (seconds(table, "end_time") > at_s)
        names += key(table, "worker_name").filter(pa.array(hit)).chunks
    return pa.chunked_array(names, pa.string()).combine_chunks()


class _Held:
    """Groups rows by key, piece by piece: `how` is min, max or sum of each column, NaN left out."""

    def __init__(self, how: dict[str, str]) -> None:
        self._how, self._tables, self._rows, self._limit = how, list[pa.Table](), 0, HELD_TASKS

    def add(self, keys: pa.ChunkedArray, columns: dict[str, np.ndarray]) -> None:
        numbers = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
        self._take(pa.table({"key": keys, **numbers}))
        if self._rows > self._limit:
            held, self._tables, self._rows = pa.concat_tables(self._tables), [], 0
            self._take(held)
            self._limit = max(HELD_TASKS, 2 * self._rows)

    def done(self) -> PerTask:
        if not self._tables:
            return PerTask(pa.chunked_array([], pa.string()), {name: np.empty(0) for name in self._how})
        table = self._grouped(pa.concat_tables(self._tables))
        return PerTask(table["key"], {name: table[name].to_numpy() for name in self._how})

    def _take(self, table: pa.Table) -> None:
        grouped = self._grouped(table)
        self._tables.append(grouped)
        self._rows += len(grouped)

    def _grouped(self, table: pa.Table) -> pa.Table:
        grouped = table.group_by("key", use_threads=False).aggregate(list(self._how.items()))
        return grouped.rename_columns(["key", *self._how])
