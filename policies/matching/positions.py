"""Jobs matched to machines and to positions from the end of what these will do: the least sum of completion times."""

from __future__ import annotations

import numpy as np


def matched(time_s: np.ndarray, kind: np.ndarray, ready_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Machine of each job, and its position there from the end (1: the last), so that completion times sum to least.

    A job that is the k-th from the end of what its machine does lengthens k completion times by its own time. So with
    each machine busy for `ready_s` from now on the sum of completion times from now on is

        sum over jobs of (ready_s of its machine + k × its time there),

    and the jobs are matched to pairs of machine and k so that it is least (Horn, Operations Research 1973; Bruno,
    Coffman and Sethi, CACM 1974).

    A machine's pairs are tried up to some k, and up to twice as many where the last of them was taken. The matching is
    exact all the same: a pair that nobody takes has no price, so nobody gains by the next one of that machine, which
    costs more.

    Parameters
    ----------
    time_s : float64 [jobs, kinds], time of each job on each kind of machine, above 0; inf: cannot run there.
    kind, ready_s : int and float64 [machines], kind of each machine, and time until it is free.

    Returns
    -------
    machine, position : int64 [jobs]; a job without a machine on which it can run has -1 and 0.
    """
    from scipy.optimize import linear_sum_assignment  # half a second of CPU time, which few runs need

    jobs, machines = len(time_s), kind.size
    machine, position = np.full(jobs, -1), np.zeros(jobs, dtype=np.int64)
    cost = time_s[:, kind]
    runs = np.flatnonzero(np.isfinite(cost).any(axis=1))
    if not runs.size:
        return machine, position
    cost = cost[runs]
    most = np.full(machines, min(runs.size, runs.size * 3 // (2 * machines) + 2))
    while True:
        k, on = np.nonzero(np.arange(1, most.max() + 1)[:, None] <= most)
        k += 1
        try:
            row, column = linear_sum_assignment(cost[:, on] * k + ready_s[on])
        except ValueError:  # jobs that few machines can run find no pair
            most = np.minimum(2 * most, runs.size)
            continue
        full = np.zeros(machines, dtype=bool)
        full[on[column[k[column] == most[on[column]]]]] = True
        full &= most < runs.size
        if not full.any():
            break
        most[full] = np.minimum(2 * most[full], runs.size)
    machine[runs[row]], position[runs[row]] = on[column], k[column]
    return machine, position


def turns(machine: np.ndarray, position: np.ndarray) -> np.ndarray:
    """How many jobs of its machine come before each job: int64 [jobs]; 0: it is the first."""
    order = np.lexsort((-position, machine))
    by_machine = machine[order]
    begins = np.flatnonzero(np.r_[True, by_machine[1:] != by_machine[:-1]])
    turn = np.empty(machine.size, dtype=np.int64)
    turn[order] = np.arange(machine.size) - np.repeat(begins, np.diff(np.r_[begins, machine.size]))
    return turn
