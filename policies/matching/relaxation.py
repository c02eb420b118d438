"""Middle points of jobs in a linear program that lets them be divided: an order for list scheduling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from policies.matching.machines import Machines

INTERVALS = 8
GROWTH = 2.0
"""Each interval of time but the last ends so many times as late as the one before it."""


class Relaxed(NamedTuple):
    """What the program finds.

    Attributes
    ----------
    middle_s : float64 [jobs], mean time at which a job's parts are done.
    bound_s : no schedule in which jobs are whole has a smaller weighted sum of completion times.
    """

    middle_s: np.ndarray
    bound_s: float


def relaxed(time_s: np.ndarray, width: np.ndarray, weight: np.ndarray, machines: Machines) -> Relaxed:
    """Jobs in parts y on types t and in intervals l of time, as early as the room of each type allows:

        min  sum weight_i y_itl begin_l  where  sum_tl y_itl = 1,  sum_i y_itl width_i time_it <= room_tl,

    room_tl the GPU time of type t that is free in interval l, which begins at begin_l (the interval-indexed program of
    Hall, Schulz, Shmoys and Wein, Mathematics of Operations Research 1997, for types that run jobs at unlike speeds). A
    whole job ends half its time after its middle or later, so bound_s adds half its least time.

    Parameters
    ----------
    time_s : float64 [jobs, types], inf: cannot run there; each job can on some type that has `width` GPUs, int [jobs].
    weight : float64 [jobs], above 0.

    Raises
    ------
    ArithmeticError
        The solver found no solution.
    """
    from scipy.optimize import linprog  # half a second of CPU time, which few runs need
    from scipy.sparse import csr_array

    edges = _edges(time_s, width, machines)
    begins, ends = edges[:-1], edges[1:]
    room = np.array([
        np.maximum(ends[:, None] - np.maximum(begins[:, None], np.array(free)), 0.0).sum(axis=1) if free
        else np.zeros(begins.size) for free in machines.free_s
    ])
    job, on = np.nonzero(np.isfinite(time_s))
    area = width[job] * time_s[job, on]
    pairs, steps = job.size, begins.size
    column = np.arange(pairs * steps)
    interval = np.tile(np.arange(steps), pairs)
    whole = csr_array((np.ones(column.size), (np.repeat(job, steps), column)), shape=(len(time_s), column.size))
    scale = room.max()
    fits = csr_array((np.repeat(area, steps) / scale, (np.repeat(on, steps) * steps + interval, column)),
                     shape=(room.size, column.size))
    weights = np.repeat(weight[job], steps)
    unit = edges[-1]
    found = linprog(weights * begins[interval] / unit, A_ub=fits, b_ub=room.ravel() / scale, A_eq=whole,
                    b_eq=np.ones(len(time_s)), method="highs-ds")
    if found.x is None:
        raise ArithmeticError(f"the linear program of {len(time_s)} jobs was not solved: {found.message}")
    part = np.bincount(np.repeat(job, steps), found.x * (begins + ends)[interval] / 2, minlength=len(time_s))
    return Relaxed(part, float(found.fun * unit + (weight * time_s.min(axis=1)).sum() / 2))


def _edges(time_s: np.ndarray, width: np.ndarray, machines: Machines) -> np.ndarray:
    """Where intervals begin and end: each twice as late as the one before, and one till all are done one by one."""
    least_s = time_s.min(axis=1)
    busy_s = max(free[-1] for free in machines.free_s if free)
    gpus = sum(len(free) for free in machines.free_s)
    likely_s = busy_s + 2 * (least_s * width).sum() / gpus
    longest_s = busy_s + np.where(np.isfinite(time_s), time_s, 0.0).max(axis=1).sum()
    shares = GROWTH ** -np.arange(float(INTERVALS - 1))
    return np.array([0.0, *(likely_s * shares[::-1]), likely_s + longest_s])
