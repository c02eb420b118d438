"""The same jobs under several policies: rows put side by side by job id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from analysis.metrics import per_job
from analysis.run import FINISHED, Run, RunError

VALUES = ("jct_s", "queue_s", "cost_usd")
"""What is looked at of each job (columns of `analysis.metrics.per_job`)."""


@dataclass(frozen=True)
class Matched:
    """Jobs of one repetition under each policy.

    Attributes
    ----------
    measured : float64 [jobs, policies, len(VALUES)], of jobs that finished under all.
    left_out : jobs that finished under some of them only.
    lost : for each policy, how many of those it did not finish, by what became of them.
    """

    measured: np.ndarray
    left_out: int
    lost: list[Counter[str]]


def matched(runs: Sequence[Run]) -> Matched:
    """Jobs of runs by id, one run a policy.

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
    for t, run in enumerate(runs):
        job = per_job(run)
        values[row[t], t], done[row[t], t] = job[list(VALUES)].to_numpy(), job["finished"].to_numpy()
    some, both = done.any(axis=1), done.all(axis=1)
    if not both.any():
        raise RunError(
            "no job finished in all runs",
            where=", ".join(str(run.path) for run in runs),
            got=f"{done.sum(axis=0).tolist()} finished jobs",
            todo="Compare runs of the same jobs.",
        )
    lost = [_fates(run, row[t], some & ~done[:, t]) for t, run in enumerate(runs)]
    return Matched(values[both], int((some & ~both).sum()), lost)


def _fates(run: Run, row: np.ndarray, lost: np.ndarray) -> Counter[str]:
    """What became of the jobs that a run did not finish: its word for it, or 'absent'."""
    states = run.tables["jobs"]["state"].filter(pa.array(lost[row])).to_pylist()
    words = Counter("outside the window" if state in FINISHED else state for state in states)
    return words + Counter({"absent": int(lost.sum()) - len(states)})
