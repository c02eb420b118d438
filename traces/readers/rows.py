"""What the readers of one-row-a-job files share: rows without GPUs are dropped, and the rest become a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.trace import Provenance, Trace

#: Largest cell of CPUs or memory that is read, in thousandths or MiB: beyond it no unit fits.
MOST_ASKED = 1e12


def opened(
    path: Path, required: Sequence[str], gpus: str, duration: str
) -> tuple[Table, Tally, np.ndarray, np.ndarray]:
    """A file of jobs in seconds: its table, a tally of its lines, GPUs and run times (s) by the names of their columns.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Table.number`.
    """
    table = read_table(path, required)
    return (table, Tally(table.lines), table.number(gpus, integer=True, high=1e6),
            table.number(duration, high=LONGEST_RUN_S))


def with_gpus(gpus: np.ndarray, duration_s: np.ndarray, tally: Tally) -> np.ndarray:
    """Mask of the rows that ask for a GPU; the others, and jobs of no length among these, are counted."""
    keep: np.ndarray = gpus > 0
    tally.rows("CPU-only jobs dropped", ~keep)
    tally.rows("zero-length jobs kept", keep & (duration_s == 0))
    return keep


def demands(
    table: Table, rows: np.ndarray, **columns: tuple[str, float | np.ndarray]
) -> dict[str, np.ndarray]:
    """What the jobs of some rows (indices) ask for besides GPUs, such as cpus=("cpu_milli", 1e-3): cell x factor.

    A factor is a number, or one a row of the table. A blank cell is unknown (NaN); what the file has no column for is
    left out.

    Raises
    ------
    TraceError
        A cell is neither blank nor a number from 0 up.
    """
    return {name: (table.number(source, high=MOST_ASKED, blank=True) * factor)[rows]
            for name, (source, factor) in columns.items() if source in table}


def job_ids(rows: int) -> np.ndarray:
    """Ids "0", "1", … for a file without: the number that its simulator gives each row."""
    return np.arange(rows).astype(str).astype(object)


def lines_of_files(names: Sequence[str], lines: Sequence[np.ndarray]) -> np.ndarray:
    """The place of each row of several files, one after the other, for a message: "cluster01.csv, line 7"."""
    return np.array([f"{name}, line {line}" for name, of_file in zip(names, lines, strict=True)
                     for line in of_file.tolist()], dtype=object)


def trace_of(
    table: Table, columns: Mapping[str, Any], keep: np.ndarray, tally: Tally, *, format: str,
    rule: str = "duration_s as recorded", notes: tuple[str, ...] = (), **about: Any,
) -> Trace:
    """The rows of a mask as a trace, with its provenance; without a status, that of each job is unknown.

    Parameters
    ----------
    columns : mapping of column name to array [rows of the table]
    **about : other fields of `Provenance`

    Raises
    ------
    TraceError
        See `Trace.from_columns`.
    """
    kept = np.flatnonzero(keep)
    provenance = Provenance(source=table.source, format=format, rule=rule, rows_read=len(table),
                            counts=tally.counts, first=tally.first, notes=notes, **about)
    return Trace.from_columns({name: values[kept] for name, values in columns.items()}, provenance,
                              rows=table.lines[kept], row_word=table.word)
