"""The same jobs under several policies: rows put side by side by job id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from analysis.compare.bill import Bill
from analysis.metrics.breakdown import times
from analysis.run import FINISHED, Run, RunError

VALUES = ("jct_s", "queue_s", "cost_usd", "cost_known_usd", "unpriced_gpu_h")
"""What is looked at of each job: as in `analysis.metrics.per_job`, the cost as `Bill.of_jobs` has it."""


@dataclass(frozen=True)
class Matched:
    """Jobs of one repetition under each policy.

    Attributes
    ----------
    measured : float64 [jobs, policies, len(VALUES)], of jobs that finished under all.
    left_out : jobs that finished under some of them only.
    lost : for each policy, how many of those it did not finish, by what became of them.
    nowhere : jobs that count and finished under none, by what became of them: 'rejected', 'unfinished', or 'in several
        ways' where that differs.
    done, counted : int64 [policies], jobs that finished, and that count, under each.
    """

    measured: np.ndarray
    left_out: int
    lost: list[Counter[str]]
    nowhere: Counter[str]
    done: np.ndarray
    counted: np.ndarray


def matched(runs: Sequence[Run], bill: Bill) -> Matched:
    """Jobs of runs by id, one run a policy; `bill`: what cost is.

    Raises
    ------
    RunError
        No job finished in all runs.
    """
    ids = [run.tables["jobs"]["job_id"] for run in runs]
    codes = pa.chunked_array([part for one in ids for part in one.chunks], pa.string()).combine_chunks()
    split = np.cumsum([len(one) for one in ids])[:-1]
    row = np.split(codes.dictionary_encode().indices.to_numpy(), split)
    n = max((int(one.max(initial=-1)) for one in row), default=-1) + 1
    values, done = np.full((n, len(runs), len(VALUES)), np.nan), np.zeros((n, len(runs)), dtype=bool)
    counts = np.zeros((n, len(runs)), dtype=bool)
    for t, run in enumerate(runs):
        job = times(run)
        values[row[t], t, :2], values[row[t], t, 2:] = job[["jct_s", "queue_s"]].to_numpy(), bill.of_jobs(run)
        done[row[t], t], counts[row[t], t] = job["finished"].to_numpy(), run.counted
    some, both = np.asarray(done.any(axis=1)), np.asarray(done.all(axis=1))
    if not both.any():
        raise RunError(
            "no job finished in all runs",
            where=", ".join(str(run.path) for run in runs),
            got=f"{done.sum(axis=0).tolist()} finished jobs",
            todo="Compare runs of the same jobs.",
        )
    lost = [_fates(run, row[t], some & ~done[:, t]) for t, run in enumerate(runs)]
    nowhere = _common_fates(runs, row, counts & ~some[:, None])
    return Matched(values[both], int((some & ~both).sum()), lost, nowhere, done.sum(axis=0), counts.sum(axis=0))


def _fates(run: Run, row: np.ndarray, lost: np.ndarray) -> Counter[str]:
    """What became of the jobs that a run did not finish: its word for it, or 'absent'."""
    states = run.tables["jobs"]["state"].filter(pa.array(lost[row])).to_pylist()
    words = Counter("outside the window" if state in FINISHED else state for state in states)
    return words + Counter({"absent": int(lost.sum()) - len(states)})


def _common_fates(runs: Sequence[Run], row: list[np.ndarray], counts: np.ndarray) -> Counter[str]:
    """What became of jobs that finished nowhere: the one word that all runs have for it, or that these differ."""
    fates: dict[int, set[str]] = {}
    for t, run in enumerate(runs):
        mine = counts[row[t], t]
        states = run.tables["jobs"]["state"].filter(pa.array(mine)).to_pylist()
        for job, state in zip(row[t][mine].tolist(), states, strict=True):
            fates.setdefault(job, set()).add(state)
    return Counter(min(words) if len(words) == 1 else "in several ways" for words in fates.values())
