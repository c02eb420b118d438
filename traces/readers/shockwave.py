"""Shockwave's traces (Zheng et al., NSDI 2023): Gavel's, with run times and with batch sizes that change."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.readers.gavel import deadlines, has_layout, read_layout, shared_columns
from traces.readers.rows import trace_of, with_gpus
from traces.reading.reader import Reader
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S
from traces.trace import Trace

COLUMNS = ("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps",
           "scale_factor", "mode", "priority_weight", "SLO", "duration", "arrival_time")

MODES = ("static", "accordion", "gns")
"""How the batch size changes: not, by Accordion (critical regimes), by the gradient noise scale."""


def read_shockwave(path: Path) -> Trace:
    """Read a trace of 12 columns, tab-separated, without a header.

    ===============  ======================================================================================
    source           becomes
    ===============  ======================================================================================
    duration         duration_s, in s: on V100, as if the batch size never changed
    total_steps      work_iters: steps in that batch size
    mode             not replayed; jobs whose batch size would change are counted
    (others)         as in `traces.readers.gavel.read_gavel`
    ===============  ======================================================================================

    There is no status: all are "unknown". Source: the simulator's repository (uw-mad-dash/shockwave, MIT).

    Raises
    ------
    TraceError
        An unknown mode, or another number of columns; see `traces.reading.text.read_table` and `Trace.from_columns`.
    """
    table = read_layout(path, {len(COLUMNS): COLUMNS})
    tally = Tally(table.lines)
    columns = shared_columns(table)
    columns["duration_s"] = table.number("duration", high=LONGEST_RUN_S)
    columns["deadline_s"] = deadlines(table, columns)
    modes = table.text("mode")
    strange = np.flatnonzero(~np.isin(modes.astype(str), MODES))
    if len(strange):
        raise TraceError("unknown mode", where=table.where(int(strange[0]), "mode"), got=modes[strange[0]],
                         allowed=", ".join(MODES))
    tally.rows("jobs whose batch size changes (accordion, gns) replayed with the first one", modes != "static")
    keep = with_gpus(columns["num_gpus"], columns["duration_s"], tally)
    return trace_of(table, columns, keep, tally, format="shockwave", rates="Shockwave's throughputs",
                    rule="duration_s as recorded: on V100, as if the batch size never changed")


READER = Reader(
    name="shockwave",
    description="Shockwave traces: tab-separated, 12 columns, no header: Gavel's with a mode and a run time",
    public="https://github.com/uw-mad-dash/shockwave (scheduler/traces)",
    licence="MIT",
    header=(),
    read=read_shockwave,
    sniff=lambda head: has_layout(head, len(COLUMNS)),
)
