"""Sharing of links: max-min fair rates, and the rates at which jobs that send now and then balance each other."""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@jit
def max_min_shares(demand: np.ndarray, ptr: np.ndarray, links: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Max-min fair rates of flows: no flow could have more unless one that has less (or as much) got less.

    Progressive filling (Bertsekas and Gallager, Data Networks, 2nd ed. 1992, section 6.5.2): the rates of all flows
    rise together; a flow stops at its demand, or when a link on its way is full.

    Parameters
    ----------
    demand : float64 [F], 0 or more, what each flow wants at most; inf: all it can get.
    ptr, links : int64 [F + 1], [.]: flow f passes links[ptr[f] : ptr[f + 1]], each of them once.
    capacity : float64 [L], 0 or more.

    Returns
    -------
    float64 [F], in the unit of the capacities. A flow without links gets its demand.
    """
    flows, num_links = len(demand), len(capacity)
    rate = np.zeros(flows)
    rising = np.ones(flows, dtype=np.bool_)
    left = flows
    while left > 0:
        taken, count = np.zeros(num_links), np.zeros(num_links, dtype=np.int64)
        level = np.inf
        for f in range(flows):
            if rising[f]:
                level = min(level, demand[f])
            for k in range(ptr[f], ptr[f + 1]):
                if rising[f]:
                    count[links[k]] += 1
                else:
                    taken[links[k]] += rate[f]
        for link in range(num_links):
            if count[link] > 0:
                level = min(level, max(0.0, (capacity[link] - taken[link]) / count[link]))
        for f in range(flows):
            if not rising[f]:
                continue
            stops = demand[f] <= level
            for k in range(ptr[f], ptr[f + 1]):
                link = links[k]
                stops = stops or max(0.0, (capacity[link] - taken[link]) / count[link]) <= level
            if stops:
                rate[f], rising[f] = min(level, demand[f]), False
                left -= 1
    return rate


@jit
def balanced_rates(
    other_s: np.ndarray,
    sent: np.ndarray,
    full_rate: np.ndarray,
    ptr: np.ndarray,
    links: np.ndarray,
    capacity: np.ndarray,
    tolerance: float,
    max_rounds: int,
) -> tuple[np.ndarray, int, float]:
    """Rates at which jobs send that share links and send only part of the time (mean field).

    A job spends other_s seconds of an iteration off the network and sends `sent` over each of its links. Its rate r_i
    while it sends is its max-min share of these links when it takes all it can get, up to its full rate, and each
    other job j on them wants its average use u_j = sent_j / (other_s_j + sent_j / r_j). On one link that is the r_i
    with

        r_i + sum over the others of min(u_j, r_i) = capacity,

    and of several links (and the full rate) the smallest counts. All r_i are solved at once by Newton's method from
    the rates of jobs that always send; a step is halved until the largest error shrinks, and where it never does,
    each equation takes a step of its own, one after the other.

    Parameters
    ----------
    other_s, sent, full_rate : float64 [n]; sent and full_rate above 0.
    ptr, links : int64 [n + 1], [.]: links of each job, as in `max_min_shares`; capacities are above 0.
    tolerance : largest relative error of an equation.
    max_rounds : most steps.

    Returns
    -------
    rates (float64 [n]), steps made, largest relative error of an equation. Above the tolerance: not solved.
    """
    n = len(sent)
    on, users = _users(ptr, links, len(capacity))
    rate = max_min_shares(full_rate, ptr, links, capacity)
    error, slope = _errors(rate, other_s, sent, full_rate, ptr, links, capacity, on, users)
    worst = np.max(np.abs(error) / full_rate)
    rounds = 0
    while worst > tolerance and rounds < max_rounds:
        rounds += 1
        before, step = worst, _solved(slope, error)
        for halved in range(9):
            near = np.minimum(np.maximum(rate - step / 2.0**halved, 0.1 * rate), full_rate)
            if halved == 8:
                near = rate.copy()
                for i in range(n):
                    one, by = _error(i, near, other_s, sent, full_rate, ptr, links, capacity, on, users)
                    near[i] = min(max(near[i] - one / by[i], 0.1 * near[i]), full_rate[i])
            error, slope = _errors(near, other_s, sent, full_rate, ptr, links, capacity, on, users)
            worst = np.max(np.abs(error) / full_rate)
            if worst < before:
                break
        rate = near
    return rate, rounds, worst


@part
def _users(ptr: np.ndarray, links: np.ndarray, num_links: int) -> tuple[np.ndarray, np.ndarray]:
    """Jobs of each link: link l has users[on[l] : on[l + 1]]."""
    on = np.zeros(num_links + 1, dtype=np.int64)
    for link in links:
        on[link + 1] += 1
    on = np.cumsum(on)
    at, users = on[:-1].copy(), np.empty(len(links), dtype=np.int64)
    for i in range(len(ptr) - 1):
        for k in range(ptr[i], ptr[i + 1]):
            users[at[links[k]]] = i
            at[links[k]] += 1
    return on, users


@part
def _error(
    i: int, rate: np.ndarray, other_s: np.ndarray, sent: np.ndarray, full_rate: np.ndarray, ptr: np.ndarray,
    links: np.ndarray, capacity: np.ndarray, on: np.ndarray, users: np.ndarray,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """By how much rate[i] is too high for its tightest link (or its full rate), and the slope by each rate."""
    worst, tightest = rate[i] - full_rate[i], -1
    for k in range(ptr[i], ptr[i + 1]):
        total = rate[i] - capacity[links[k]]
        for j in users[on[links[k]] : on[links[k] + 1]]:
            if j != i:
                total += min(sent[j] / (other_s[j] + sent[j] / rate[j]), rate[i])
        if total > worst:
            worst, tightest = total, links[k]
    slope = np.zeros(len(rate))
    slope[i] = 1.0
    if tightest >= 0:
        for j in users[on[tightest] : on[tightest + 1]]:
            if j != i:
                sends = sent[j] / rate[j]
                if sent[j] / (other_s[j] + sends) < rate[i]:
                    slope[j] = (sends / (other_s[j] + sends)) ** 2
                else:
                    slope[i] += 1.0
    return worst, slope


@part
def _errors(
    rate: np.ndarray, other_s: np.ndarray, sent: np.ndarray, full_rate: np.ndarray, ptr: np.ndarray,
    links: np.ndarray, capacity: np.ndarray, on: np.ndarray, users: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    n = len(rate)
    error, slope = np.zeros(n), np.zeros((n, n))
    for i in range(n):
        error[i], slope[i] = _error(i, rate, other_s, sent, full_rate, ptr, links, capacity, on, users)
    return error, slope


@part
def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a system by elimination with row pivots: the same bits on each machine, unlike a library's."""
    a, x = matrix.copy(), right.copy()
    n = len(x)
    for c in range(n):
        p = c
        for r in range(c + 1, n):
            if abs(a[r, c]) > abs(a[p, c]):
                p = r
        if a[p, c] == 0.0:
            return np.full(n, np.nan)
        if p != c:
            for k in range(n):
                a[c, k], a[p, k] = a[p, k], a[c, k]
            x[c], x[p] = x[p], x[c]
        for r in range(c + 1, n):
            factor = a[r, c] / a[c, c]
            if factor != 0.0:
                for k in range(c, n):
                    a[r, k] -= factor * a[c, k]
                x[r] -= factor * x[c]
    for c in range(n - 1, -1, -1):
        for k in range(c + 1, n):
            x[c] -= a[c, k] * x[k]
        x[c] /= a[c, c]
    return x
