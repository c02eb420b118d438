"""Gavel's traces (Narayanan et al., OSDI 2020): job types and steps, tab-separated, without a header or run times."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from traces.errors import TraceError, did_you_mean
from traces.readers.gavel_rates import NAME, Rates, beside, read_rates
from traces.readers.rows import job_ids, trace_of
from traces.reading.reader import Head, Reader, choice
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.trace import Trace

LAYOUTS: dict[int, tuple[str, ...]] = {
    7: ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor"),
    10: ("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
         "priority_weight", "SLO", "arrival_time"),
}
"""Columns by how many there are. The last ones differ in order."""

CUT = 2000
"""Rows at which copies of the longer Philly traces are cut."""

_BATCH = re.compile(r"\(batch size ([1-9]\d{0,8})\)", re.ASCII)


def read_gavel(path: Path, *, throughputs: str = "", gpu_type: str = "v100", unmeasured: str = "drop") -> Trace:
    """Read a trace of Gavel's simulator, in the layout of 10 columns or the older one of 7.

    ===============  ======================================================================================
    source           becomes
    ===============  ======================================================================================
    (row)            job_id: number of the row from 0, as Gavel numbers jobs
    job_type         model, whole, such as 'ResNet-18 (batch size 16)': so measured tables name it
                     (hetsim run --measured); batch_size: the number in it, 0 where there is none
    total_steps      work_iters. A step is a batch on one GPU; those of all GPUs of a job are added up
    (with rates)     duration_s = total_steps / rate of the job type and scale_factor on gpu_type
    scale_factor     num_gpus
    arrival_time     submit_s, in s
    priority_weight  priority
    SLO              deadline_s = submit_s + SLO x duration_s: a multiple of the run time; below 0: none
    command, working_directory, num_steps_arg, needs_data_dir   unused: how to start the job
    ===============  ======================================================================================

    A trace has steps, not run times: these take rates. There is no status: all are "unknown". Source: the simulator's
    repository (stanford-futuredata/gavel, MIT): its reader of traces, of deadlines and of throughputs. The traces of
    7 columns, one a virtual cluster of Philly, have real arrivals and GPU counts; their steps are Philly's run time x
    the rate of **one** V100 whatever the GPUs, so that a gang here is done sooner than Philly's was.

    Parameters
    ----------
    throughputs : str
        Gavel's simulation_throughputs.json or the tidy CSV of it. Left out: the nearest file of the first name in the
        trace's folder or up to three above, as in Gavel's repository.
    gpu_type : str
        GPU type of that file on which run times are told.
    unmeasured : {"drop", "single", "refuse"}
        What to do with jobs that have no rate for their GPUs there, or 0 (did not fit): leave them out, take the rate
        of one GPU (as the steps of the traces of 7 columns were made), or refuse the file.

    Raises
    ------
    TraceError
        No throughputs, a rate that is missing (where asked to refuse), or another number of columns; see
        `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    choice("unmeasured", unmeasured, ("drop", "single", "refuse"))
    table = read_layout(path, LAYOUTS)
    tally = Tally(table.lines)
    source, by_type = _throughputs(path, throughputs, gpu_type)
    columns = shared_columns(table)
    keys = list(zip(columns["model"].tolist(), columns["num_gpus"].astype(int).tolist(), strict=True))
    missing = f"jobs without a rate on {gpu_type} for their GPUs"
    rate = np.array([by_type[gpu_type].get(key, 0.0) for key in keys])
    alone = np.array([by_type[gpu_type].get((job, 1), 0.0) for job, _ in keys])
    if unmeasured == "refuse" and not rate.all():
        index = int(np.argmin(rate))
        raise TraceError(missing, where=table.where(index, "job_type"), got=f"{keys[index][0]}, {keys[index][1]} GPUs",
                         allowed=f"job types and GPUs of {source}", todo="Name another file, GPU type or unmeasured.")
    if unmeasured == "single":
        tally.rows(f"{missing}: at that of one GPU", (rate == 0) & (alone > 0))
        rate = np.where(rate == 0, alone, rate)
    keep = rate > 0
    tally.rows(f"{missing} dropped", ~keep)
    tally.rows("Recommendation at rates that are several times too low", keep & _too_low(keys, by_type, gpu_type))
    columns["duration_s"] = columns["work_iters"] / np.where(keep, rate, np.inf)
    for index in np.flatnonzero(columns["duration_s"] > LONGEST_RUN_S)[:1].tolist():
        raise TraceError("a run time of more than ten years", where=table.where(index, "total_steps"),
                         got=table.text("total_steps")[index], allowed="as many steps as ten years allow",
                         todo="Check the column order and the rates.")
    columns["deadline_s"] = deadlines(table, columns)
    notes = [f"run times by {source.name}, {gpu_type}"]
    at_one = columns["work_iters"] / np.where(alone > 0, alone, np.inf)
    gpu_s = np.where(keep, columns["duration_s"], at_one) * columns["num_gpus"]
    if gpu_s[~keep].any():
        notes.append(f"dropped jobs are {100 * gpu_s[~keep].sum() / gpu_s.sum():.0f} % of the GPU time, they at the "
                     "rate of one GPU and the others at their own (unmeasured=single keeps them; with --measured they "
                     "need --set measured_gaps=linear, too)")
    if len(table) == CUT:
        notes.append(f"exactly {CUT:,} rows: copies of the longer traces are cut there")
    return trace_of(table, columns, keep, tally, format="gavel", notes=tuple(notes), rates="Gavel's throughputs",
                    rule=f"duration_s: steps over the measured rate on {gpu_type}, with the GPUs asked for")


def _throughputs(trace: Path, named: str, gpu_type: str) -> tuple[Path, dict[str, Rates]]:
    """The file that was named or is beside the trace, and its rates by GPU type, `gpu_type` among them."""
    source = Path(named) if named else beside(trace)
    if source is None:
        raise TraceError(
            "a Gavel trace has steps and no run times", where=str(trace), got="no throughputs",
            allowed=f"{NAME} beside the trace or in a folder above", todo="Name a file with option throughputs.",
        )
    by_type = read_rates(source)
    if gpu_type not in by_type:
        raise TraceError("no rates on this GPU type", where=str(source), got=gpu_type, allowed=", ".join(by_type),
                         todo=did_you_mean(gpu_type, by_type) or "Name another with option gpu_type.")
    return source, by_type


def read_layout(path: Path, layouts: dict[int, tuple[str, ...]]) -> Table:
    """The cells of a tab-separated file without a header, whose first line tells the layout.

    Raises
    ------
    TraceError
        Another number of columns.
    """
    columns = len(Head.of(path).first.split(b"\n", 1)[0].split(b"\t"))
    if columns not in layouts:
        raise TraceError("another number of columns", where=f"{path}, line 1", got=columns,
                         allowed=" or ".join(map(str, layouts)) + ", separated by tabs")
    return read_table(path, (), names=layouts[columns], delimiter="\t")


def shared_columns(table: Table) -> dict[str, np.ndarray]:
    """Our columns that Gavel's layouts and Shockwave's have alike."""
    model = table.text("job_type")
    batches = [_BATCH.search(name) for name in model]
    columns = {
        "job_id": job_ids(len(table)), "model": model, "submit_s": table.number("arrival_time"),
        "num_gpus": table.number("scale_factor", low=1, high=1e6, integer=True),
        "work_iters": table.number("total_steps", high=1e15),
        "batch_size": np.array([int(match[1]) if match else 0 for match in batches]),
    }
    if "priority_weight" in table:
        columns["priority"] = table.number("priority_weight", high=1e9)
    return columns


def deadlines(table: Table, columns: dict[str, np.ndarray]) -> np.ndarray:
    """submit_s + SLO x duration_s of each row; NaN where SLO is below 0, or not there."""
    if "SLO" not in table:
        return np.full(len(table), np.nan)
    factor = table.number("SLO", low=-1e6, high=1e6)
    return np.where(factor < 0, np.nan, columns["submit_s"] + factor * columns["duration_s"])


def has_layout(head: Head, columns: int) -> bool:
    """Whether the first line is a row of so many cells in a layout of Gavel or Shockwave."""
    cells = head.first.split(b"\n", 1)[0].rstrip(b"\r").split(b"\t")
    argument = 2 if columns == 7 else 3  # num_steps_arg, needs_data_dir, total_steps
    return len(cells) == columns and cells[argument].startswith(b"-") and cells[argument + 1] in (b"0", b"1") \
        and cells[argument + 2].isdigit()


def _too_low(keys: list[tuple[str, int]], by_type: dict[str, Rates], gpu_type: str) -> np.ndarray:
    """Mask of the jobs whose rate is a known slip of the file: Recommendation, slower on V100 than on P100."""
    mine, other = by_type[gpu_type], by_type.get("p100", {}) if gpu_type == "v100" else {}
    return np.array([key[0].startswith("Recommendation") and mine.get(key, 0.0) < other.get(key, 0.0) for key in keys])


READER = Reader(
    name="gavel",
    description="Gavel traces: tab-separated, 7 or 10 columns, no header: job type, …, steps, GPUs, …, arrival",
    public="https://github.com/stanford-futuredata/gavel (scheduler/traces)",
    licence="MIT",
    header=(),
    read=read_gavel,
    options={
        "throughputs": "Gavel's throughput file, for run times; default: simulation_throughputs.json beside or above",
        "gpu_type": "GPU type of that file on which run times are told; default v100",
        "unmeasured": "jobs without a rate for their GPUs: drop (default), single (the rate of one GPU) or refuse",
    },
    sniff=lambda head: any(has_layout(head, columns) for columns in LAYOUTS),
)
