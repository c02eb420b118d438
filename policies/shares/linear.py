"""The linear programs of which all objectives are made, solved by HiGHS: raise the least, or the sum; who can rise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.shares.demand import Demand
from traces.late import Late

if TYPE_CHECKING:
    from scipy import optimize, sparse
else:  # half a second, which runs of other policies need not wait for
    optimize, sparse = Late("scipy.optimize"), Late("scipy.sparse")

SLACK = 1e-9
"""Floors are taken so much lower, so that what one program has found is feasible in the next."""
MOST_SCALE = 1e4
"""By how much `can_rise` scales all up: who could rise by less than 1 / 1e4 of his best rate, cannot."""


class SolverError(Exception):
    """HiGHS came to no best solution: its time was up (`limit`), or it found the program infeasible or ill."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.limit = status == 1


@dataclass(frozen=True)
class Level:
    """The answer of `raise_least`.

    Attributes
    ----------
    level : the best z; infinite where nobody has a need.
    shares : float64 [groups, types], shares that reach it.
    price : float64 [groups], p >= 0 with sum_i p[i] need[i] = 1 and sum_i p[i] rate[i] <= z for **all** feasible shares
        without floors: which needs hold z down. Only where it was asked for.
    """

    level: float
    shares: np.ndarray
    price: np.ndarray


def raise_least(
    demand: Demand, need: np.ndarray, floor: np.ndarray | None = None, *, most: float = np.inf, priced: bool = False,
    limit_s: float = np.inf,
) -> Level:
    """max z  with  rate[i] >= z need[i] + floor[i]  for all groups, z <= most.

    Needs of jobs that run nowhere do not count.

    Parameters
    ----------
    need : float64 [groups], work a second for each unit of z; 0: none.
    floor : float64 [groups], work a second that a job must have anyhow.
    priced : the prices are wanted, too.
    limit_s : seconds for the solver.

    Raises
    ------
    SolverError
        Floors that cannot be kept, or no time left.
    """
    fast = demand.fastest
    asks = (need > 0) & (fast > 0)
    if not asks.any():
        return Level(most, raise_sum(demand, np.zeros(demand.speed.shape), floor, limit_s=limit_s), np.zeros(need.size))
    # In this unit the most demanding job, alone, comes to 1.
    unit = float((need[asks] / fast[asks]).max())
    shares, z, marginals = _best(demand, None, np.where(asks, need / unit, 0.0), floor, most * unit, priced, limit_s)
    price = marginals / np.maximum(fast * unit, 1e-300)
    return Level(z / unit, shares, price)


def raise_sum(
    demand: Demand, worth: np.ndarray, floor: np.ndarray | None = None, *, limit_s: float = np.inf
) -> np.ndarray:
    """max sum_it jobs[i] worth[i, t] X[i, t]  with  rate[i] >= floor[i]: float64 [groups, types].

    Parameters
    ----------
    worth : float64 [groups, types], worth of all the time on a type, to one job; types of speed 0 do not count.
    floor, limit_s : as in `raise_least`.

    Raises
    ------
    SolverError
        Floors that cannot be kept, or no time left.
    """
    return _best(demand, worth, np.zeros(demand.gpus.size), floor, 0.0, False, limit_s)[0]


def _best(
    demand: Demand, worth: np.ndarray | None, need: np.ndarray, floor: np.ndarray | None, most: float, priced: bool,
    limit_s: float,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Shares, z, and the marginals of needs and floors [groups], where z (or the worth) is the largest.

    Columns: pairs of group and type on which it runs, then z. Rows: GPUs of each type; time of each group that runs;
    rate of each group that has a need or floor, over its fastest type's.
    """
    fast, there = demand.fastest, demand.there
    shares, marginals = np.zeros(demand.speed.shape), np.zeros(fast.size)
    i, t = np.nonzero(demand.speed > 0)
    if not i.size:
        return shares, 0.0, marginals
    pairs, runs = np.arange(i.size), np.flatnonzero(fast > 0)
    held = np.flatnonzero((fast > 0) & ((need > 0) if floor is None else (need > 0) | (floor > 0)))
    time_row, rate_row = np.full((2, fast.size), -1)
    time_row[runs] = there.size + np.arange(runs.size)
    rate_row[held] = there.size + runs.size + np.arange(held.size)
    in_rate = np.flatnonzero(rate_row[i] >= 0)
    rows = np.concatenate((t, time_row[i], rate_row[i[in_rate]], rate_row[held]))
    columns = np.concatenate((pairs, pairs, in_rate, np.full(held.size, i.size)))
    values = np.concatenate(((demand.jobs * demand.gpus)[i], np.ones(i.size), -(demand.speed[i, t] / fast[i])[in_rate],
                             need[held] / fast[held]))
    least = np.zeros(held.size) if floor is None else -floor[held] / fast[held] * (1 - SLACK)
    above = np.concatenate((there, np.ones(runs.size), least))
    matrix = sparse.csc_array((values, (rows, columns)), shape=(above.size, i.size + 1))
    cost, top = np.zeros(i.size + 1), np.full(i.size + 1, np.inf)
    top[-1] = most
    if worth is None:
        cost[-1] = -1.0
    else:
        cost[:-1] = -(demand.jobs[:, None] * worth)[i, t]
        cost /= max(np.abs(cost).max(), 1e-300)
    found, of_rows = _solve(cost, matrix, above, top, priced, limit_s)
    shares[i, t] = np.clip(found[:-1], 0.0, 1.0)
    if priced:
        marginals[held] = np.maximum(-of_rows[there.size + runs.size :], 0.0)
    return shares, float(found[-1]), marginals


def can_rise(demand: Demand, floor: np.ndarray, asked: np.ndarray, *, limit_s: float = np.inf) -> np.ndarray:
    """Which of the groups `asked` could have a rate above their floor while all keep theirs: bool [groups].

    One program: max sum_i u[i] over 0 <= u[i] <= 1, s >= 0 and shares Y = s X, of s times the time and the GPUs, with
    rate[i](Y) >= s floor[i] + u[i] fastest[i]. Say that each of some groups can rise alone, by shares of its own: the
    mean of these shares raises all of them, and where s is large enough each u is 1. Who cannot rise has u = 0 at any
    s. So u tells, without integers. (s is at most `MOST_SCALE`.)

    Raises
    ------
    SolverError
        No time left.
    """
    fast, there = demand.fastest, demand.there
    i, t = np.nonzero(demand.speed > 0)
    runs, tell = np.flatnonzero(fast > 0), np.flatnonzero(asked & (fast > 0))
    rises = np.zeros(fast.size, dtype=bool)
    if not tell.size:
        return rises
    pairs, s = np.arange(i.size), i.size + tell.size  # columns: pairs, u, s
    time_row = np.full(fast.size, -1)
    time_row[runs] = there.size + np.arange(runs.size)
    rate_row = time_row + runs.size
    rows = np.concatenate((t, np.arange(there.size), time_row[i], time_row[runs], rate_row[i], rate_row[tell],
                           rate_row[runs]))
    columns = np.concatenate((pairs, np.full(there.size, s), pairs, np.full(runs.size, s), pairs,
                              i.size + np.arange(tell.size), np.full(runs.size, s)))
    values = np.concatenate((
        (demand.jobs * demand.gpus)[i], -there, np.ones(i.size), -np.ones(runs.size), -demand.speed[i, t] / fast[i],
        np.ones(tell.size), (floor / np.maximum(fast, 1e-300))[runs] * (1 - SLACK)))
    height = there.size + 2 * runs.size
    matrix = sparse.csc_array((values, (rows, columns)), shape=(height, s + 1))
    cost, top = np.zeros(s + 1), np.full(s + 1, np.inf)
    cost[i.size : s], top[i.size : s], top[s] = -1.0, 1.0, MOST_SCALE
    found, _ = _solve(cost, matrix, np.zeros(height), top, False, limit_s)
    rises[tell] = found[i.size : s] > 0.5
    return rises


def _solve(
    cost: np.ndarray, matrix: sparse.csc_array, above: np.ndarray, top: np.ndarray, priced: bool, limit_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """min cost x  with  matrix x <= above, 0 <= x <= top: x, and marginals of the rows where they are wanted.

    `milp` is the shorter way to HiGHS, half of the time of a small program, but tells no marginals.
    """
    options = {"time_limit": limit_s} if np.isfinite(limit_s) else {}
    if priced:
        found = optimize.linprog(cost, matrix, above, bounds=np.column_stack((np.zeros(top.size), top)),
                                 method="highs", options=options)
    else:
        found = optimize.milp(cost, constraints=optimize.LinearConstraint(matrix, -np.inf, above),
                              bounds=optimize.Bounds(0.0, top), options=options)
    if found.status != 0:
        raise SolverError(int(found.status), str(found.message))
    return found.x, found.ineqlin.marginals if priced else np.empty(0)
