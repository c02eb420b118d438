"""The job format of Chronus (Gao et al., SoCC 2021): deadlines, and all times in minutes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.columns import DEADLINE_KINDS
from traces.errors import TraceError
from traces.readers.rows import trace_of, with_gpus
from traces.reading.reader import Reader, SideTable, choice
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.reading.times import BY_MINUTES
from traces.trace import Trace

HEADER = ("job_id", "user", "num_gpu", "submit_time", "model_name", "duration", "expect_time_list", "best_effort")

UNIT_S = {"min": 60.0, "s": 1.0}


def read_chronus(path: Path, *, unit: str = "min") -> Trace:
    """Read `job_id,user,num_gpu,submit_time,…,model_name,duration,…,expect_time_list,…,best_effort,job_type`.

    =================  ====================================================================================
    source             becomes
    =================  ====================================================================================
    job_id             job_id
    user               user; where it is spelled vc_NAME (a virtual cluster of Philly) also vc: NAME
    num_gpu            num_gpus; rows with 0 are dropped and counted, as by Chronus
    submit_time        submit_s = 60 submit_time: it is in minutes, and the rows are not in its order
    duration           duration_s = 60 duration
    expect_time_list   deadline_s = submit_s + 60 x its first entry (entries joined by "-", from the submission on)
    job_type           deadline_kind: strict or soft; soft, too, where the list has several entries
    best_effort        1: no deadline, whatever the list says
    model_name         model, as written
    iterations         unused: not tied to one GPU type
    interval, expect_value_list   unused: gap between rows; worth of each deadline (10 in the public files)
    =================  ====================================================================================

    There is no status in the file: all are "unknown". That a deadline counts from the submission is what Chronus'
    own results say: job by job, missed is end > submit + expect_time. Source: repository
    S-Lab-System-Group/ChronusArtifact (MIT).

    Parameters
    ----------
    unit : {"min", "s"}
        Of all times. ElasticFlow's conversions into this layout (with a column batch_size) are in seconds.

    Raises
    ------
    TraceError
        A unit or a list that is not allowed; see `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    unit_s = UNIT_S[choice("unit", unit, tuple(UNIT_S))]
    table = read_table(path, HEADER)
    tally = Tally(table.lines)
    gpus = table.number("num_gpu", integer=True, high=1e6)
    duration_s = unit_s * table.number("duration", high=LONGEST_RUN_S / unit_s)
    submit_s = unit_s * table.number("submit_time", high=LONGEST_RUN_S / unit_s)
    best_effort = table.number("best_effort", integer=True, high=1) == 1
    user = table.text("user")
    deadline_s = np.where(best_effort, np.nan, submit_s + unit_s * _first_deadlines(table, tally))
    columns = {
        "job_id": table.text("job_id"), "submit_s": submit_s, "duration_s": duration_s, "num_gpus": gpus,
        "user": user, "vc": np.array([name[3:] if name.startswith("vc_") else "" for name in user], dtype=object),
        "model": table.text("model_name"), "deadline_s": deadline_s, "deadline_kind": _kinds(table, deadline_s),
    }
    tally.rows("best-effort jobs: no deadline", best_effort & (gpus > 0))
    rule = "duration_s as recorded" + (f" {BY_MINUTES}" if unit == "min" else "")
    return trace_of(table, columns, with_gpus(gpus, duration_s, tally), tally, format="chronus", rule=rule)


def _kinds(table: Table, deadline_s: np.ndarray) -> np.ndarray:
    """What the deadline of each row means; "" where there is none, or the file does not say."""
    words = table.text("job_type") if "job_type" in table else np.full(len(table), "", dtype=object)
    several = np.array(["-" in entry for entry in table.text("expect_time_list")])
    kinds = np.where(several, "soft", np.where(np.isin(words.astype(str), DEADLINE_KINDS), words, ""))
    return np.where(np.isnan(deadline_s), "", kinds).astype(object)


def _first_deadlines(table: Table, tally: Tally) -> np.ndarray:
    """First entry of each list such as "30" or "30-60", in the file's unit."""
    lists = table.text("expect_time_list").tolist()
    first = [entry.split("-")[0] for entry in lists]
    tally.rows("jobs with several deadlines: the first is taken", np.array(["-" in entry for entry in lists]))
    for index, entry in enumerate(lists):
        if not all(part.isascii() and part.isdigit() for part in entry.split("-")):
            raise TraceError("value not allowed", where=table.where(index, "expect_time_list"), got=entry,
                             allowed='whole numbers from 0, joined by "-"', todo="Correct the row or drop it.")
    return np.array(first, dtype=np.float64)


READER = Reader(
    name="chronus",
    description="Chronus jobs (minutes): job_id,user,num_gpu,submit_time,…,duration,…,expect_time_list,…,best_effort",
    public="https://github.com/S-Lab-System-Group/ChronusArtifact (code/data/exp)",
    licence="MIT",
    header=HEADER,
    read=read_chronus,
    options={"unit": "min (as published) or s (as ElasticFlow converts traces into this layout)"},
    side_tables=(
        SideTable("Chronus' table of placement penalties: model, GPUs, nodes, relative speed",
                  "hetsim works them out from its models: hetsim perf --config experiments/placement-sensitivity.toml.",
                  names=("model_info.json",)),
    ),
)
