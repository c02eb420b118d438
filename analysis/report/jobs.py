"""The table of jobs: each trace's columns once, each run's times beside them, packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.metrics.jobtimes import gpus_asked
from analysis.report.pack import numbers, packed, words
from analysis.run import Run

OF_TRACE = ("job_id", "user", "vc", "submit_s", "num_gpus", "gpu_milli", "gpu_type", "model")
"""Columns of jobs.parquet that tell whether two runs are of the same jobs."""
Columns = dict[str, tuple[dict[str, Any], np.ndarray]]
MOST_BYTES = 7_000_000
"""Of the packed table: with the code of the charts the page stays below 13 MB."""


@dataclass(frozen=True)
class JobTable:
    """Packed jobs.

    Attributes
    ----------
    text : what the page unpacks. Tables: first one a trace, then one a run.
    shown, jobs : rows of runs that are in it, and rows that there are.
    worst : of each run this many jobs with the longest JCT are among them; all where nothing is left out.
    """

    text: str
    shown: int
    jobs: int
    worst: int


def job_table(
    runs: Sequence[Run],
    per_job: Sequence[pd.DataFrame],
    anchors: Sequence[dict[str, str]] = (),
    most_bytes: int = MOST_BYTES,
) -> JobTable:
    """Pack the jobs of all runs; where they are too many the worst of each run and every so many-th job.

    Parameters
    ----------
    per_job : `analysis.metrics.per_job` of each run.
    anchors : of each run, where on the page a job's story is told, by its id.
    most_bytes : limit of the text.
    """
    counted = [np.flatnonzero(run.counted) for run in runs]
    total = sum(map(len, counted))
    why, owner = list(anchors) or [{} for _ in runs], _traces(runs)
    table = _packed(runs, per_job, counted, owner, why)
    part = 1.0
    while len(table) > most_bytes and part > 1e-3:
        part *= 0.9 * most_bytes / len(table)
        kept = _kept(owner, per_job, counted, part)
        table = _packed(runs, per_job, kept, owner, why)
        if len(table) <= most_bytes:
            return JobTable(table, sum(map(len, kept)), total, _worst(min(map(len, counted)), part))
    return JobTable(table, total, total, total)


def _worst(jobs: int, part: float) -> int:
    return int(jobs * part / 2)


def _kept(
    owner: Sequence[int], per_job: Sequence[pd.DataFrame], counted: Sequence[np.ndarray], part: float
) -> list[np.ndarray]:
    """Rows of each run: half of the part are those of longest JCT (without an end: longest of all), half a sample.

    Runs of the same jobs keep the same ones, so that each can be seen under every policy.
    """
    keep: dict[int, np.ndarray] = {}
    for trace, times, rows in zip(owner, per_job, counted, strict=True):
        jct = times["jct_s"].to_numpy(np.float64, na_value=np.inf)[rows]
        worst = rows[np.argsort(-np.nan_to_num(jct, nan=np.inf), kind="stable")[: _worst(len(rows), part / len(owner))]]
        sample = rows[np.unique(np.linspace(0, len(rows) - 1, max(int(len(rows) * part / 2), 1)).astype(np.int64))]
        keep[trace] = np.union1d(keep.get(trace, worst), np.union1d(worst, sample))
    return [rows[np.isin(rows, keep[trace])] for trace, rows in zip(owner, counted, strict=True)]


def _traces(runs: Sequence[Run]) -> list[int]:
    """For each run the number of the trace that it replayed: equal where the jobs are."""
    found: list[Run] = []
    numbers_: list[int] = []
    for run in runs:
        mine = run.tables["jobs"].select(OF_TRACE)
        same = (i for i, other in enumerate(found) if other.tables["jobs"].select(OF_TRACE).equals(mine))
        number = next(same, len(found))
        if number == len(found):
            found.append(run)
        numbers_.append(number)
    return numbers_


def _packed(
    runs: Sequence[Run], per_job: Sequence[pd.DataFrame], rows: Sequence[np.ndarray], owner: Sequence[int],
    why: Sequence[dict[str, str]],
) -> str:
    traces = []
    there: dict[int, np.ndarray] = {}
    for number in range(max(owner) + 1):
        mine = [i for i, trace in enumerate(owner) if trace == number]
        there[number] = np.unique(np.concatenate([rows[i] for i in mine]))
        traces.append(_of_trace(runs[mine[0]], there[number]))
    of_runs = [
        _of_run(run, times, at, np.searchsorted(there[trace], at))
        for run, times, at, trace in zip(runs, per_job, rows, owner, strict=True)
    ]
    return packed([*traces, *of_runs], traces=len(traces), trace_of=owner, why=why)


def _of_trace(run: Run, rows: np.ndarray) -> Columns:
    jobs = run.tables["jobs"].take(rows)
    text = {name: words(pc.fill_null(jobs[name], "").to_numpy()) for name in ("user", "vc", "model", "gpu_type")}
    asked = gpus_asked(run)[rows]
    return text | {
        "job_id": words(jobs["job_id"].to_numpy()),
        "gpus": numbers(asked, 3),
        "submit_s": numbers(jobs["submit_s"].to_numpy() - run.window_s[0]),
    }


def _of_run(run: Run, times: pd.DataFrame, rows: np.ndarray, at: np.ndarray) -> Columns:
    """One run's columns; `row` says which row of its trace's table each is of."""
    mine = times.iloc[rows]
    return {
        "row": ({"kind": "u4"}, at.astype("<u4")),
        "state": words(run.tables["jobs"]["state"].take(rows).to_numpy()),
        "queue_s": numbers(mine["queue_s"].to_numpy(np.float64)),
        "jct_s": numbers(mine["jct_s"].to_numpy(np.float64)),
        "bounded_slowdown": numbers(mine["bounded_slowdown"].to_numpy(np.float64)),
        "rho": numbers(mine["rho"].to_numpy(np.float64), 3),
        "preemptions": numbers(mine["preemptions"].to_numpy(np.float64), 0),
        "cost_usd": numbers(mine["cost_usd"].to_numpy(np.float64)),
    }
