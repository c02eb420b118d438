"""Water filling: the least are raised as far as they go, then those who can still rise; and tenants by it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policies.shares.demand import Demand
from policies.shares.linear import can_rise, raise_least, raise_sum
from policies.shares.objectives import fair_need, over_equal

Weights = Callable[[np.ndarray], np.ndarray]
"""Which groups are full (bool [groups]) -> how fast each rises now (float64 [groups], of one job), 0: not now."""


def filled(demand: Demand, weights: Weights, limit_s: float = np.inf) -> np.ndarray:
    """Shares float64 [groups, types] by raising rate[i] / `fair_need`[i] along the weights until all are full.

    Step: the largest z with level[i] + z weight[i] for those that are not full, nobody below his level; then who is
    full is known (`can_rise`), and the weights are asked for anew (Gavel, OSDI'20, section 4.3, where a mixed-integer
    program finds the bottlenecks). With fixed weights the levels are lexicographically max-min. What no level needs is
    given as in `objectives`. Raises SolverError where no time is left.
    """
    alone = demand.alone()
    if alone is not None:
        return alone
    unit = fair_need(demand, np.ones(demand.gpus.size))
    level, full = np.zeros(unit.size), unit <= 0
    while not full.all():
        weight = np.where(full, 0.0, weights(full))
        if not (weight > 0).any():
            break
        found = raise_least(demand, weight * unit, level * unit, limit_s=limit_s)
        level += max(found.level, 0.0) * weight
        rises = can_rise(demand, level * unit, ~full, limit_s=limit_s)
        stuck = ~rises & ~full
        if not stuck.any():  # within what the solver tells apart: those who were raised just now are full
            stuck = weight > 0
        full |= stuck
    return raise_sum(demand, over_equal(demand), level * unit, limit_s=limit_s)


def always(weight: np.ndarray) -> Weights:
    """Each rises by its weight: lexicographic max-min fairness."""
    return lambda full: weight


def by_tenant(
    tenant: np.ndarray, of_tenant: np.ndarray, weight: np.ndarray, jobs: np.ndarray, within: str
) -> Weights:
    """Hierarchical fairness (Gavel, OSDI'20, section 4.3): tenants rise by their weights, and within a tenant

    fair : a job rises by its part of the tenant's weight: its weight over those of the tenant's jobs that are not full;
    fifo : the first job that is not full rises by all of the tenant's weight. Groups are single jobs, in submit order.

    Parameters
    ----------
    tenant : int64 [groups], index into `of_tenant`, the weights of tenants.
    weight, jobs : float64 [groups], weight of one job, number of alike ones.
    """

    def fair(full: np.ndarray) -> np.ndarray:
        counts = np.where(full, 0.0, weight * jobs)
        all_in = np.bincount(tenant, counts, of_tenant.size)[tenant]
        return np.where(full, 0.0, of_tenant[tenant] * weight / np.where(all_in > 0, all_in, 1.0))

    def fifo(full: np.ndarray) -> np.ndarray:
        rows = np.flatnonzero(~full)
        first = rows[np.unique(tenant[rows], return_index=True)[1]]
        now = np.zeros(tenant.size)
        now[first] = of_tenant[tenant[first]]
        return now

    return {"fair": fair, "fifo": fifo}[within]
