"""From the times of a log to run times and waits: each way in which times do not add up has a name and a count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.columns import CUTS
from traces.reading.tally import Tally

EDGES = ("cut", "drop")
"""What a reader does with jobs of which the log does not show all: have them hold their GPUs inside the log, marked in
column `cut`, or leave them out."""
EDGES_HELP = "jobs without an end when the log was taken: drop (default), or cut: run them until then, marked"


def cut_words(after: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """Column `cut` of jobs that still ran when the log ended (bool[n]), or already when it began (bool[n])."""
    words = np.array(CUTS, dtype=object)
    found: np.ndarray = words[2 * after if before is None else before + 2 * after]
    return found


@dataclass(frozen=True)
class Spans:
    """Which rows have a run time (bool[n]), their run times and waits (float64[n], s; NaN: unknown), and which of them
    still ran when the log ended (bool[n]): their run time is a lower bound."""

    kept: np.ndarray
    duration_s: np.ndarray
    wait_s: np.ndarray
    after: np.ndarray


def spans(
    tally: Tally, submit_s: np.ndarray, start_s: np.ndarray, end_s: np.ndarray, rows: np.ndarray, noun: str = "jobs",
    until_s: float | None = None,
) -> Spans:
    """Run time = end - start and wait = start - submission, for the rows where a log has these times.

    ============================  ==============================================================
    times (s; NaN: none)          outcome, counted in `tally`
    ============================  ==============================================================
    no submission                 dropped
    no start                      dropped: never started
    start, no end                 not ended when the log was taken: runs to `until_s`, or is dropped
    end before start              dropped
    end = start                   kept, of length 0
    start before submission       kept, the wait unknown
    ============================  ==============================================================

    Parameters
    ----------
    submit_s, start_s, end_s : float64[n]
    rows : bool[n]
        Rows that are looked at (those that ask for GPUs).
    noun : str
        What a row is, in the words of the log.
    until_s : float, optional
        When the log ends: what had not ended then runs until then. Without it such rows are dropped.
    """
    kept = rows.copy()

    def drop(what: str, hit: np.ndarray) -> None:
        tally.rows(f"{noun} {what} dropped", kept & hit)
        kept[hit] = False

    drop("without a time of submission", np.isnan(submit_s))
    drop("never started", np.isnan(start_s))
    after = kept & np.isnan(end_s)
    if until_s is None:
        drop("not ended when the log was taken", after)
        after = np.zeros(len(kept), dtype=bool)
    else:
        tally.rows(f"{noun} not ended when the log was taken: run time cut there", after)
        end_s = np.where(after, until_s, end_s)
    drop("that end before they start", end_s < start_s)
    tally.rows(f"zero-length {noun} kept", kept & (end_s == start_s))
    early = kept & (start_s < submit_s)
    tally.rows(f"{noun} that start before their submission: wait unknown", early)
    wait_s = np.where(kept & ~early, start_s - submit_s, np.nan)
    return Spans(kept, np.where(kept, end_s - start_s, np.nan), wait_s, after & kept)
