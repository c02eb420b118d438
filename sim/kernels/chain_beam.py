"""A partition of a chain within a period and within GPU counts: beam search, led by prices that prove what is hopeless.

Let a price vector p give each GPU of type k the price p[k] >= 0, all GPUs of the fleet together costing 1, and let
least(p) be the least price of a partition of the operators that are left (`sim.kernels.chain_cheapest`). Stages
chosen so far, using u[k] GPUs, can be completed within the fleet only if  p u + least(p) <= 1  for every p. The beam
keeps the partial partitions in which the worst of these sums is lowest.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.chain_cheapest import end_within
from sim.kernels.jit import jit, part


@jit
def beam(
    time: np.ndarray, start: np.ndarray, kind: np.ndarray, units: np.ndarray, group: np.ndarray, reach: np.ndarray,
    border: np.ndarray, limits: np.ndarray, price: np.ndarray, least: np.ndarray, bound: float, width: int,
) -> np.ndarray:
    """Stages of a partition with a period of at most `bound` s on at most `limits` GPUs: int64 [stages, 2].

    Each row has option and end; none: nothing was found (which proves nothing).

    Parameters
    ----------
    time, start, kind, units, group, reach, border, limits : as `sim.kernels.chain_steady.fleet_periods` has them.
    price : float64 [P, K]
        Prices of a GPU of each type; the limits cost 1.
    least : float64 [P, F, G, n + 1]
        What operators i.. cost at least at those prices within the bound, by layer and group of the first stage; inf:
        impossible.
    width : partial partitions that are kept after each stage.
    """
    options, n = time.shape[0], time.shape[1] - 1
    vectors, layers = least.shape[:2]
    most = min(n, limits.sum())
    parent = np.empty((most, width), dtype=np.int64)
    taken = np.empty((most, width, 2), dtype=np.int64)
    # Of each partial partition: next operator, layer of its next stage, group of its last one; GPUs used, their prices.
    state = np.empty((width, 3), dtype=np.int64)
    used = np.zeros((width, len(limits)), dtype=np.int64)
    paid = np.zeros((width, vectors))
    count = 0
    for f in range(min(layers, width)):
        state[count, 0], state[count, 1], state[count, 2] = 0, f, -1
        count += 1
    score = np.empty(width * options)
    from_row = np.empty(width * options, dtype=np.int64)
    move = np.empty((width * options, 3), dtype=np.int64)
    for step in range(most):
        candidates = 0
        for row in range(count):
            i, f, g = state[row]
            for o in range(options):
                if used[row, kind[o]] + units[o] > limits[kind[o]] or (i > 0 and border[i, g, group[o]] > bound):
                    continue
                j = min(end_within(time[o], start[o], i, n, bound), reach[f, o, i])
                if j == n and f == 0:
                    return unroll(step, row, o, n, parent, taken)
                # The farthest cut from which the rest is possible.
                worst = np.inf
                while j > i:
                    j = min(j, n - 1)
                    worst, layer = after(j, f, group[o], kind[o], units[o], paid[row], price, least, border, bound)
                    if worst < np.inf:
                        break
                    j -= 1
                if j <= i or worst > 1 + 1e-9:
                    continue
                score[candidates], from_row[candidates] = worst, row
                move[candidates] = o, j, layer
                candidates += 1
        if candidates == 0:
            break
        order = np.argsort(score[:candidates])[:width]
        count = len(order)
        new_state, new_used, new_paid = state.copy(), used.copy(), paid.copy()
        for row, c in enumerate(order):
            o, j, layer = move[c]
            old = from_row[c]
            parent[step, row] = old
            taken[step, row, 0], taken[step, row, 1] = o, j
            new_state[row, 0], new_state[row, 1], new_state[row, 2] = j, layer, group[o]
            new_used[row] = used[old]
            new_used[row, kind[o]] += units[o]
            new_paid[row] = paid[old] + price[:, kind[o]] * units[o]
        state, used, paid = new_state, new_used, new_paid
    return np.empty((0, 2), dtype=np.int64)


@jit
def after(
    j: int, f: int, g: int, kind: int, units: int, paid: np.ndarray, price: np.ndarray, least: np.ndarray,
    border: np.ndarray, bound: float,
) -> tuple[float, int]:
    """The lowest worst price of what may follow a stage of layer f and group g at cut j, and its layer."""
    vectors, layers, groups, _ = least.shape
    best, layer = np.inf, -1
    for source in range(max(f - 1, 0), f + 1):
        if source == f and f < layers - 1:
            continue
        for b in range(groups):
            if border[j, g, b] > bound:
                continue
            worst = 0.0
            for p in range(vectors):
                worst = max(worst, paid[p] + price[p, kind] * units + least[p, source, b, j])
            if worst < best:
                best, layer = worst, source
    return best, layer


@part
def unroll(step: int, row: int, option: int, n: int, parent: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The moves that led to a row, and the last one."""
    out = np.empty((step + 1, 2), dtype=np.int64)
    out[step, 0], out[step, 1] = option, n
    for s in range(step - 1, -1, -1):
        out[s] = taken[s, row]
        row = parent[s, row]
    return out
