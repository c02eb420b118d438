"""Piper's dynamic program: stages between down-sets, each with tensor and data parallelism and some recomputation."""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@jit
def choose_ways(cost: np.ndarray, need: np.ndarray, room: float, choice: np.ndarray) -> float:
    """Pick one of two ways to run each operator, so that their needs sum to at most `room`; the sum of their costs.

    From each operator's cheapest way, those that save most for the least extra cost are changed until all fits
    (Piper's greedy answer to the knapsack; it may be more than the least). inf, and no choice: nothing fits.

    Parameters
    ----------
    cost, need : float64 [n, 2]; a cost of inf: there is no such way.
    choice : int64 [n], out.
    """
    n = len(cost)
    total, used, least = 0.0, 0.0, 0.0
    for i in range(n):
        choice[i] = 1 if cost[i, 1] < cost[i, 0] else 0
        total += cost[i, choice[i]]
        used += need[i, choice[i]]
        other = 1 - choice[i]
        least += min(need[i, choice[i]], need[i, other]) if cost[i, other] < np.inf else need[i, choice[i]]
    if used <= room:
        return total
    if least > room or total == np.inf:
        return np.inf
    rate = np.full(n, np.inf)
    for i in range(n):
        saved = need[i, choice[i]] - need[i, 1 - choice[i]]
        if saved > 0:
            rate[i] = (cost[i, 1 - choice[i]] - cost[i, choice[i]]) / saved
    for i in np.argsort(rate):
        if used <= room:
            break
        used -= need[i, choice[i]] - need[i, 1 - choice[i]]
        total += cost[i, 1 - choice[i]] - cost[i, choice[i]]
        choice[i] = 1 - choice[i]
    return total


@jit
def border_bytes(
    inside: np.ndarray, edges: np.ndarray, edge_bytes: np.ndarray, sync_in: np.ndarray, sync_out: np.ndarray,
    out: np.ndarray,
) -> None:
    """Bytes that each operator of a stage sends and receives across the stage's borders, there and back: out [n, 2].

    `inside` bool [n]; `edges` [E, 2]; `sync_in` [E, 2] what the reader adds to an edge by way, `sync_out` the source.
    """
    out[:] = 0.0
    for e in range(len(edges)):
        source, reader = edges[e]
        if inside[source] == inside[reader]:
            continue
        for way in range(2):
            if inside[reader]:
                out[reader, way] += 2.0 * (edge_bytes[e] + sync_in[e, way])
            else:
                out[source, way] += 2.0 * (edge_bytes[e] + sync_out[e, way])


@jit
def stage_costs(
    ops: np.ndarray, border: np.ndarray, time_s: np.ndarray, param_bytes: np.ndarray, data: int, micro_batches: int,
    bytes_per_s: float, cost: np.ndarray,
) -> None:
    """What each operator of a stage adds to its time of a micro-batch, by way: cost [len(ops), 2], s.

    (time + border bytes / B + 4 (d - 1) x parameter bytes / (N B)) / d, for d replicas and N micro-batches.
    """
    for i in range(len(ops)):
        for way in range(2):
            exchange = 4.0 * (data - 1) * param_bytes[ops[i], way] / micro_batches
            sent = border[ops[i], way] + exchange
            cost[i, way] = (time_s[ops[i], way] + sent / bytes_per_s) / data


@jit
def stages_before(
    sets: np.ndarray, tensor: np.ndarray, time_s: np.ndarray, param_bytes: np.ndarray, flight_bytes: np.ndarray,
    fixed_bytes: np.ndarray, edges: np.ndarray, edge_bytes: np.ndarray, sync_in: np.ndarray, sync_out: np.ndarray,
    devices: int, micro_batches: int, bytes_per_s: float, room_bytes: float, most_data: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Least period of all that lies above each down-set, on up to k devices with up to s replicas in all.

    A stage of d replicas with s replicas from it to the end holds ceil(s / d) micro-batches; d divides the number
    of micro-batches.

    Parameters
    ----------
    sets : bool [I, n]
        Down-sets, smaller ones first; the empty one and that of all operators are among them.
    tensor : int64 [T]
        Degrees of tensor parallelism.
    time_s, param_bytes, flight_bytes, fixed_bytes : float64 [T, n, 2]
        Of each operator, degree and way; a time of inf: not possible.
    edges, edge_bytes, sync_in, sync_out : int64 [E, 2], float64 [E], [T, E, 2], [T, E, 2]
        See `border_bytes`.
    devices, micro_batches, most_data : int
        At most so many devices, exactly so many micro-batches, at most so many replicas of a stage.
    bytes_per_s, room_bytes : float
        Bandwidth and memory of a device.

    Returns
    -------
    period_s : float64 [I, devices + 1, S + 1], S = min(devices, micro_batches)
    above, degree, data : int16 [I, devices + 1, S + 1]
        The stage that follows: the down-set where it ends, index of its tensor degree, its replicas. Set where less
        of k or of s is slower.
    """
    count, n = sets.shape
    replicas = min(devices, micro_batches)
    shape = (count, devices + 1, replicas + 1)
    period = np.full(shape, np.inf)
    above, degree, data = np.zeros(shape, np.int16), np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    # Where the period of a set falls as s rises: only from there can a better one come.
    drops, dropped = np.zeros(shape, np.int16), np.zeros((count, devices + 1), np.int64)
    period[count - 1], dropped[count - 1] = 0.0, 1
    inside, border = np.zeros(n, np.bool_), np.zeros((n, 2))
    cost, need, choice = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n, np.int64)
    stage = np.zeros(replicas + 2)
    for low in range(count - 2, -1, -1):
        for high in range(low + 1, count):
            if (sets[low] & ~sets[high]).any():
                continue
            inside[:] = sets[high] & ~sets[low]
            ops = np.flatnonzero(inside)
            size = len(ops)
            for t in range(len(tensor)):
                if tensor[t] > devices or not _possible(ops, time_s[t]):
                    continue
                border_bytes(inside, edges, edge_bytes, sync_in[t], sync_out[t], border)
                for d in range(1, min(most_data, replicas, devices // tensor[t]) + 1):
                    if micro_batches % d:
                        continue
                    stage_costs(ops, border, time_s[t], param_bytes[t], d, micro_batches, bytes_per_s, cost)
                    stage[:] = np.inf
                    for y in range(1, (replicas + d - 1) // d + 1):
                        for i in range(size):
                            for way in range(2):
                                need[i, way] = flight_bytes[t, ops[i], way] * y + fixed_bytes[t, ops[i], way]
                        stage[y] = choose_ways(cost[:size], need[:size], room_bytes, choice)
                        if stage[y] == np.inf:
                            break
                    used = d * tensor[t]
                    for k in range(used, devices + 1):
                        for u in range(dropped[high, k - used]):
                            rest = drops[high, k - used, u]
                            s = rest + d
                            if s > replicas:
                                break
                            after, here = period[high, k - used, rest], stage[(s + d - 1) // d]
                            if max(after, here) < period[low, k, s]:
                                period[low, k, s] = max(after, here)
                                above[low, k, s], degree[low, k, s], data[low, k, s] = high, t, d
                            if here >= after:
                                break
        for k in range(devices + 1):
            for s in range(replicas + 1):
                if k > 0:
                    period[low, k, s] = min(period[low, k, s], period[low, k - 1, s])
                if s > 0:
                    period[low, k, s] = min(period[low, k, s], period[low, k, s - 1])
                    if period[low, k, s] < period[low, k, s - 1]:
                        drops[low, k, dropped[low, k]] = s
                        dropped[low, k] += 1
    return period, above, degree, data


@part
def _possible(ops: np.ndarray, time_s: np.ndarray) -> bool:
    """Whether each operator has a way to run."""
    return bool((np.minimum(time_s[ops, 0], time_s[ops, 1]) < np.inf).all())
