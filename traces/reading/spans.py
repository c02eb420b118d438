"""From the times of a log to run times and waits: each way in which times do not add up has a name and a count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.reading.tally import Tally

WITHIN_LOG = "within the log"
"""How the rule of a trace says that its reader cut runs to the log: those at its edges are lower bounds."""


@dataclass(frozen=True)
class Spans:
    """Which rows have a run time (bool[n]), and their run times and waits (float64[n], s; NaN: unknown)."""

    kept: np.ndarray
    duration_s: np.ndarray
    wait_s: np.ndarray


def spans(
    tally: Tally, submit_s: np.ndarray, start_s: np.ndarray, end_s: np.ndarray, rows: np.ndarray, noun: str = "jobs"
) -> Spans:
    """Run time = end - start and wait = start - submission, for the rows where a log has these times.

    ============================  ==============================================================
    times (s; NaN: none)          outcome, counted in `tally`
    ============================  ==============================================================
    no submission                 dropped
    no start                      dropped: never started
    start, no end                 dropped: not ended when the log was taken
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
    """
    kept = rows.copy()

    def drop(what: str, hit: np.ndarray) -> None:
        tally.rows(f"{noun} {what} dropped", kept & hit)
        kept[hit] = False

    drop("without a time of submission", np.isnan(submit_s))
    drop("never started", np.isnan(start_s))
    drop("not ended when the log was taken", np.isnan(end_s))
    drop("that end before they start", end_s < start_s)
    tally.rows(f"zero-length {noun} kept", kept & (end_s == start_s))
    early = kept & (start_s < submit_s)
    tally.rows(f"{noun} that start before their submission: wait unknown", early)
    wait_s = np.where(kept & ~early, start_s - submit_s, np.nan)
    return Spans(kept, np.where(kept, end_s - start_s, np.nan), wait_s)
