"""Shares by objectives that one linear program answers: fairness, makespan, throughput, cost; and by submission."""

from __future__ import annotations

import numpy as np

from policies.shares.centre import centred
from policies.shares.demand import Demand
from policies.shares.linear import raise_least, raise_sum


def over_equal(demand: Demand) -> np.ndarray:
    """float64 [groups, types]: speed over `mean_speed`, what the time left over is given by; 0 where it runs nowhere.

    A best level leaves shares open: jobs that do not hold it down may have more or less. All objectives here give what
    is left so that the sum of this is the largest. It favours jobs that gain most from where they are put, and leaves
    no GPU idle that a job with time left can use.
    """
    return np.asarray(demand.speed / np.maximum(demand.mean_speed, 1e-300)[:, None])


def fair_need(demand: Demand, weight: np.ndarray) -> np.ndarray:
    """float64 [groups]: weight[i] mean_speed[i] / gpus[i]: a job of two GPUs needs half as much of the time."""
    return np.asarray(weight * demand.mean_speed / demand.gpus)


def fairest(demand: Demand, need: np.ndarray, limit_s: float = np.inf, *, centre: bool = False) -> np.ndarray:
    """The largest z with rate[i] >= z need[i], then the largest sum of `over_equal`: float64 [groups, types].

    With `centre`, of all shares with that z the centre.

    With `fair_need` this is Gavel's LAS, or max-min fairness (OSDI'20, section 4.1). With work left as the need it is
    the least makespan, 1 / z, of the jobs that are there (section 4.2): one program, where the paper bisects.

    Raises
    ------
    SolverError
        No time left.
    """
    if centre and (need > 0).any():
        return centred(demand, need)
    alone = demand.alone()
    if alone is not None:
        return alone
    best = raise_least(demand, need, limit_s=limit_s)
    return raise_sum(demand, over_equal(demand), best.level * need, limit_s=limit_s)


def bisected_s(best_s: float, within: float, low_s: float = 100.0, high_s: float = 1e6) -> float:
    """A makespan of at least `best_s`, as Gavel's simulator finds it: by bisection between two times, in s.

    It ends where the upper one, which is feasible, is at most 1 + `within` times the lower one.
    """
    while high_s < best_s:
        low_s, high_s = high_s, 10 * high_s
    while high_s > (1 + within) * low_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if middle_s >= best_s else (middle_s, high_s)
    return high_s


def soonest(
    demand: Demand, left: np.ndarray, limit_s: float = np.inf, *, centre: bool = False, within: float = 0.0
) -> np.ndarray:
    """Shares with which all work that is `left` [groups] is done soonest, after 1 / z (`fairest`): [groups, types].

    `within` > 0: with `centre`, of all shares with which it is done by `bisected_s`.
    """
    if not (centre and within > 0):
        return fairest(demand, left, limit_s, centre=centre)
    level = raise_least(demand, left, limit_s=limit_s).level
    return centred(demand, left, 1 / bisected_s(1 / level, within)) if np.isfinite(level) else demand.equal()


def worthiest(
    demand: Demand, worth: np.ndarray, need: np.ndarray | None = None, limit_s: float = np.inf
) -> tuple[np.ndarray, float]:
    """The largest sum of worth, where each job has at least the speed that it needs, as far as all can.

    Where needs cannot be met together, each is met to the same part z < 1, the largest possible; z is the second
    answer, 1 where all are met. Gavel's total throughput with worth = speed, its cost with worth = speed / price, its
    cost with SLOs with need = work left / time to the deadline (OSDI'20, section 4.2). Raises as `fairest`.
    """
    if need is None or not (need > 0).any():
        alone = demand.each_on(np.where(demand.speed > 0, worth, 0.0))
        return (raise_sum(demand, worth, limit_s=limit_s) if alone is None else alone), 1.0
    level = min(raise_least(demand, need, most=1.0, limit_s=limit_s).level, 1.0)
    return raise_sum(demand, worth, level * need, limit_s=limit_s), level


def in_order(speed: np.ndarray, gpus: np.ndarray, there: np.ndarray) -> np.ndarray:
    """First come, first served: float64 [jobs, types], jobs in the order of their rows.

    Each job has all of its time on the type where it is fastest, of those that have room for its gang; equal ones: the
    first. The first job that finds no room on any type ends it: nobody passes it. One that finds room only where it
    does not run is passed (as in Gavel's simulator).
    """
    shares, left = np.zeros(speed.shape), there.astype(float)
    for i in range(len(speed)):
        room = left >= gpus[i]
        if not room.any():
            break
        t = int(np.where(room, speed[i], 0.0).argmax())
        if not (room[t] and speed[i, t] > 0):
            continue
        shares[i, t] = 1.0
        left[t] -= gpus[i]
    return shares
