"""A market of GPU types: what jobs would take at given prices, and which running job a move pays for.

Plans of all classes of jobs stand in one table; class c has the rows first[c] .. first[c + 1] - 1. A second on
plan p costs  worth + sum over types (price x counts),  and an iteration of it that times iteration_s.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@part
def _cost_per_s(counts: np.ndarray, p: int, price: np.ndarray, worth: float) -> float:
    """What a second on plan p costs."""
    cost = worth
    for t in range(counts.shape[1]):
        cost += price[t] * counts[p, t]
    return cost


@jit
def costs_per_s(
    counts: np.ndarray, first: np.ndarray, jobs: np.ndarray, price: np.ndarray, worth: float
) -> np.ndarray:
    """What a second on each plan costs: float64 [P]; NaN in classes without jobs (int64 [C], as `clear` takes them)."""
    cost = np.full(counts.shape[0], np.nan)
    for c in range(len(jobs)):
        if jobs[c] > 0:
            for p in range(first[c], first[c + 1]):
                cost[p] = _cost_per_s(counts, p, price, worth)
    return cost


@jit
def clear(
    counts: np.ndarray, iteration_s: np.ndarray, first: np.ndarray, jobs: np.ndarray, supply: np.ndarray,
    price: np.ndarray, floor: np.ndarray, cap: float, worth: float, rate: float, steps: int,
) -> np.ndarray:
    """Prices after a few steps towards those at which jobs ask for what is there: float64 [T].

        price <- price x exp(rate x min(1, demand / supply - 1)),  within floor .. cap x floor,

    where each job asks for the plan of its class on which an iteration costs least (tatonnement in logarithms).

    Parameters
    ----------
    counts : float64 [P, T]. iteration_s : float64 [P]. first : int64 [C + 1]. jobs : int64 [C], jobs of each class.
    supply : float64 [T], GPUs of each type; where there are none, the price stays.
    price, floor : float64 [T], > 0.
    """
    types = counts.shape[1]
    price = price.copy()
    for _ in range(steps):
        demand = np.zeros(types)
        for c in range(len(jobs)):
            if jobs[c] == 0 or first[c] == first[c + 1]:
                continue
            best, least = first[c], np.inf
            for p in range(first[c], first[c + 1]):
                an_iteration = _cost_per_s(counts, p, price, worth) * iteration_s[p]
                if an_iteration < least:
                    best, least = p, an_iteration
            for t in range(types):
                demand[t] += jobs[c] * counts[best, t]
        for t in range(types):
            if supply[t] > 0:
                price[t] *= np.exp(rate * min(1.0, demand[t] / supply[t] - 1.0))
                price[t] = min(max(price[t], floor[t]), cap * floor[t])
    return price


@jit
def classes_that_fit(counts: np.ndarray, first: np.ndarray, free_gpus: np.ndarray) -> np.ndarray:
    """Whether one plan of each class, at least, takes no more GPUs of any type than are free: bool [C].

    Parameters
    ----------
    counts : float64 [P, T]. first : int64 [C + 1]. free_gpus : int64 [T].
    """
    found = np.zeros(len(first) - 1, dtype=np.bool_)
    for c in range(len(found)):
        for p in range(first[c], first[c + 1]):
            fits = True
            for t in range(counts.shape[1]):
                if counts[p, t] > free_gpus[t]:
                    fits = False
                    break
            if fits:
                found[c] = True
                break
    return found


@jit
def cheapest(
    counts: np.ndarray, iteration_s: np.ndarray, cost: np.ndarray, begin: int, end: int, free_gpus: np.ndarray,
    quota: int,
) -> int:
    """The plan, of the rows begin .. end - 1, on which an iteration costs least among those that fit: -1 where none
    does. Of equal ones the first.

    Parameters
    ----------
    counts : float64 [P, T]. iteration_s : float64 [P]. cost : float64 [P], of a second on each plan.
    free_gpus : int64 [T]. quota : GPUs that the job may take in all.
    """
    best, least = -1, np.inf
    for p in range(begin, end):
        fits, gpus = True, 0.0
        for t in range(counts.shape[1]):
            fits &= counts[p, t] <= free_gpus[t]
            gpus += counts[p, t]
        if fits and gpus <= quota and (best < 0 or cost[p] * iteration_s[p] < least):
            best, least = p, cost[p] * iteration_s[p]
    return best


@jit
def first_move(
    plan: np.ndarray, owner: np.ndarray, time_s: np.ndarray, stretch_s: np.ndarray, free_gpus: np.ndarray,
    quota: np.ndarray, counts: np.ndarray, iteration_s: np.ndarray, first: np.ndarray, cost: np.ndarray,
    overhead_s: float,
) -> tuple[int, int]:
    """The first running job that a move pays for, and the plan of least cost among those that it pays to move to.

    On plan p since r seconds, a job that goes on for as long again pays r cost[p] where it stays, and
    (r T[q] / t + overhead_s) cost[q] on another plan q, where t is the time of an iteration on the GPUs that it has,
    and T[q] that on full nodes. The plan of least cost of an iteration is taken among those where

        r (cost[p] - cost[q] T[q] / t) > overhead_s cost[q]

    and that fit what is free, its own GPUs and its quota.

    Parameters
    ----------
    plan : int64 [R], row of each running job's plan; -1: it does not move. owner : int64 [R], its class.
    time_s : float64 [R], of an iteration on the GPUs that it has.
    stretch_s : float64 [R], how long it has been on it.
    free_gpus : int64 [T]. quota : int64 [R], GPUs that it may take beside its own.
    cost : float64 [P], of a second on each plan of the classes of these jobs.

    Returns
    -------
    (number of the job, row of its new plan), or (-1, -1).
    """
    types = counts.shape[1]
    for i in range(len(plan)):
        now = plan[i]
        if now < 0:
            continue
        best, least = -1, cost[now] * time_s[i]
        for p in range(first[owner[i]], first[owner[i] + 1]):
            an_iteration = cost[p] * iteration_s[p]
            if an_iteration >= least or p == now:
                continue
            gain = cost[now] - an_iteration / time_s[i]
            # Better by rounding is not better.
            if gain <= 1e-9 * cost[now] or stretch_s[i] * gain <= overhead_s * cost[p]:
                continue
            fits, more = True, 0.0
            for t in range(types):
                extra = counts[p, t] - counts[now, t]
                fits &= extra <= free_gpus[t]
                more += extra
            if fits and more <= quota[i]:
                best, least = p, an_iteration
        if best >= 0:
            return i, best
    return -1, -1
