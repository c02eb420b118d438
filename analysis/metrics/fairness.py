"""Fairness: finish-time fairness of jobs, and Jain's index of any shares."""

from __future__ import annotations

import numpy as np

from analysis.metrics.jobtimes import gpus_asked, jct_s, of_life
from analysis.metrics.series import steps
from analysis.run import Run, RunError, wishes
from traces.errors import did_you_mean

SHARES = ("mean", "submit", "max")
"""What n is in finish-time fairness: jobs in the system on average over a job's life, at its submit, or at most."""


def jain_index(values: np.ndarray) -> float | None:
    """Jain's fairness index ``sum(x)^2 / (n * sum(x^2))``: 1 where all are equal, 1/n where one has all.

    NaN entries are left out; None for no entries or only zeros. Source: Jain, Chiu and Hawe, DEC-TR-301,
    1984.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    top = np.abs(x).max(initial=0.0)
    if top == 0:
        return None
    x = x / top
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


@of_life
def rho(run: Run, n: str = "mean") -> np.ndarray:
    """Finish-time fairness of each finished job, ``rho = JCT / T_share``; NaN for other jobs. Above 1: unfair.

    ``T_share = duration_s * max(1, gpus * n / N)``: how long the job would take on its 1/n share of the GPUs.

    - N: GPUs of the types that the job allows, all nodes. A share of at least its gang gives it no more than its gang.
    - n: jobs in the system (from submit until they leave, waiting ones too, those turned away not) that allow one of
      these types, itself included. `n` says which: 'mean', the time average from its submit to its end; 'submit',
      right after all submissions of that instant; 'max', the most in its life.
    - `duration_s` is the recorded run time on the job's own gang. On mixed types it is that on the GPUs which the trace
      was recorded on (`work.reference` in `run.json`), not on a mix that a 1/n share of this cluster would be: a
      job that got faster GPUs than those has a rho below 1 for it.

    NaN where `duration_s` is 0, or too small for a number to hold rho. Sources: Mahajan et al., "Themis", NSDI 2020
    (rho = T_shared / T_independent, with the 1/n share); Narayanan et al., "Gavel", OSDI 2020, and Zheng et al.,
    "Shockwave", NSDI 2023 (n as average).

    Raises
    ------
    RunError
        `n` is none of `SHARES`.
    """
    if n not in SHARES:
        raise RunError("unknown meaning of n in finish-time fairness", got=n, allowed=", ".join(SHARES),
                       todo=did_you_mean(n, SHARES))
    wish, allowed = wishes(run)
    there = np.bincount(run.node_type, weights=run.column("nodes", "gpus"), minlength=len(run.types))
    sharers, total = np.full(len(wish), np.nan), (allowed @ there)[wish]
    rivals = (allowed.astype(np.int64) @ allowed.T.astype(np.int64)) > 0
    submit = run.column("jobs", "submit_s").astype(float)
    leave = np.where(np.isnan(run.column("jobs", "end_s")), run.window_s[1], run.column("jobs", "end_s"))
    here = ~run.turned_away & (submit <= leave)
    for row in range(len(allowed)):
        mine = (wish == row) & here
        if mine.any() and allowed[row].any():
            others = here & rivals[row][wish]
            sharers[mine] = _in_system(submit[others], leave[others], submit[mine], leave[mine], n)
    duration, jct = run.column("jobs", "duration_s"), jct_s(run)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share_s = duration * np.maximum(1.0, gpus_asked(run) * sharers / total)
        fairness: np.ndarray = np.where((duration > 0) & (total > 0), jct / share_s, np.nan)
    fairness[np.isinf(fairness)] = np.nan
    return fairness


def _in_system(come: np.ndarray, go: np.ndarray, begin: np.ndarray, end: np.ndarray, n: str) -> np.ndarray:
    """Jobs in the system over each life [begin, end]: the mean, the number at its begin, or the most."""
    change = np.concatenate((np.ones(len(come), dtype=np.int64), np.full(len(go), -1)))[:, None]
    time_s, state = steps(np.concatenate((come, go)), change)
    level: np.ndarray = state[:, 0].astype(float)
    first = np.searchsorted(time_s, begin, side="right") - 1
    # A job that leaves as it comes is in no state that lasts; for it, there is itself.
    at_submit: np.ndarray = np.maximum(level[first], 1.0)
    if n == "submit":
        return at_submit
    if n == "max":
        last = np.searchsorted(time_s, end, side="left") - 1
        most: np.ndarray = np.maximum(_most(level, first, np.maximum(first, last)), 1.0)
        return most
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(time_s))))
    integral = area[np.searchsorted(time_s, end)] - area[first]
    life = end - begin
    mean: np.ndarray = np.divide(integral, life, out=at_submit, where=life > 0)
    return mean


def _most(level: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Largest of ``level[first..last]``, ends included: of maxima over 1, 2, 4, … entries two cover any span."""
    widest: np.ndarray = level.copy()
    most = np.empty(len(first))
    power = np.frexp((last - first + 1).astype(float))[1] - 1
    for k in range(int(power.max(initial=0)) + 1):
        mine = power == k
        most[mine] = np.maximum(widest[first[mine]], widest[last[mine] - (1 << k) + 1])
        widest[: -(1 << k)] = np.maximum(widest[: -(1 << k)], widest[1 << k :])
    return most
