"""Simulated annealing of a placement: devices of sets of operators, and the operators' priorities.

Each neighbour is executed by `sim.kernels.place.run_schedule`; numbers only.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit
from sim.kernels.place import run_schedule

REFRESH = 10
"""Neighbours after which the chain of critical operators is looked for anew."""


@jit
def sort_leaving(first: np.ndarray, leaving: np.ndarray, edges: np.ndarray, rank: np.ndarray) -> None:
    """Put the edges of each source in the order of their readers' rank, in place (by insertion: nearly sorted)."""
    for op in range(len(first) - 1):
        for i in range(first[op] + 1, first[op + 1]):
            edge, j = leaving[i], i
            while j > first[op] and rank[edges[leaving[j - 1], 1]] > rank[edges[edge, 1]]:
                leaving[j] = leaving[j - 1]
                j -= 1
            leaving[j] = edge


@jit
def shift(rank: np.ndarray, op: int, to: int) -> None:
    """Give op the rank `to`; those between move up by one."""
    old = rank[op]
    for other in range(len(rank)):
        if old < rank[other] <= to:
            rank[other] -= 1
        elif to <= rank[other] < old:
            rank[other] += 1
    rank[op] = to


@jit
def overflow(
    memory: np.ndarray, kept: np.ndarray, size: np.ndarray, edges: np.ndarray, first: np.ndarray,
    leaving: np.ndarray, tensor: np.ndarray, device: np.ndarray, room: np.ndarray, start: np.ndarray, end: np.ndarray,
    receive: np.ndarray,
) -> float:
    """Memory that devices lack, each as a part of its own, summed; 0: all fits.

    An output takes `memory` from start to the end of its last reader (of none: for ever), a received tensor `size`
    from the start of its transfer to the end of its last reader there, `kept` is always there. What ends at an instant
    is freed before that which starts.
    """
    n, lacking = len(memory), 0.0
    for d in range(len(room)):
        time, change, count, base = np.empty(2 * (n + len(edges))), np.empty(2 * (n + len(edges))), 0, 0.0
        for op in range(n):
            if device[op] == d:
                base += kept[op]
                last = np.inf if first[op] == first[op + 1] else 0.0
                for i in range(first[op], first[op + 1]):
                    last = max(last, end[edges[leaving[i], 1]])
                time[count], change[count] = start[op], memory[op]
                time[count + 1], change[count + 1] = last, -memory[op]
                count += 2
                continue
            for i in range(first[op], first[op + 1]):
                e = leaving[i]
                if device[edges[e, 1]] != d or np.isnan(receive[e]):
                    continue
                last = end[edges[e, 1]]
                for j in range(first[op], first[op + 1]):
                    f = leaving[j]
                    if tensor[f] == tensor[e] and device[edges[f, 1]] == d:
                        last = max(last, end[edges[f, 1]])
                time[count], change[count] = receive[e], size[e]
                time[count + 1], change[count + 1] = last, -size[e]
                count += 2
        by_time = np.argsort(time[:count], kind="mergesort")
        used, peak, i = base, base, 0
        while i < count:
            j = i
            while j < count and time[by_time[j]] == time[by_time[i]]:
                used += min(change[by_time[j]], 0.0)
                j += 1
            for k in range(i, j):
                used += max(change[by_time[k]], 0.0)
            peak, i = max(peak, used), j
        if peak > room[d]:
            lacking += (peak - room[d]) / room[d] if room[d] > 0 else 1.0
    return lacking


@jit
def critical_operators(
    start: np.ndarray, end: np.ndarray, arrival: np.ndarray, edges: np.ndarray, first_in: np.ndarray,
    entering: np.ndarray, device: np.ndarray,
) -> np.ndarray:
    """Operators of one chain that sets the makespan, last first: each starts when a tensor of the next one arrives,
    or when the next one leaves it the device. int64 [k]; the chain ends where that is not seen (a busy channel).
    """
    n = len(start)
    chain, count = np.empty(n, dtype=np.int64), 1
    chain[0] = np.argmax(end)
    while count < n and start[chain[count - 1]] > 0:
        op, before = chain[count - 1], -1
        for i in range(first_in[op], first_in[op + 1]):
            if arrival[entering[i]] == start[op]:
                before = edges[entering[i], 0]
        if before < 0:
            for other in range(n):
                if end[other] == start[op] and device[other] == device[op] and start[other] < start[op]:
                    before = other
        if before < 0:
            break
        chain[count] = before
        count += 1
    return chain[:count]


@jit
def move(
    u: np.ndarray, op: int, level: np.ndarray, set_first: np.ndarray, members: np.ndarray, set_of: np.ndarray,
    allowed: np.ndarray, device: np.ndarray,
) -> bool:
    """Put the set of op, at some level, on another device, and in one case of four another set in its place.

    Whether anything changed; parameters as in `anneal`, u one row of its draws.
    """
    at, devices = int(u[1] * (len(level) - 1)), allowed.shape[1]
    s, to = set_of[at, op], int(u[3] * devices)
    came = device[members[set_first[s]]]
    if to == came or not allowed[s, to]:
        return False
    for i in range(set_first[s], set_first[s + 1]):
        device[members[i]] = to
    other = level[at] + int(u[5] * 4 * (level[at + 1] - level[at]))
    if other < level[at + 1] and other != s and allowed[other, came] and device[members[set_first[other]]] == to:
        for i in range(set_first[other], set_first[other + 1]):
            device[members[i]] = came
    return True


@jit
def anneal(
    work: np.ndarray, memory: np.ndarray, kept: np.ndarray, size: np.ndarray, edges: np.ndarray, first: np.ndarray,
    leaving: np.ndarray, first_in: np.ndarray, entering: np.ndarray, tensor: np.ndarray, sends: np.ndarray,
    receives: np.ndarray, s_per_byte: np.ndarray, latency: np.ndarray, room: np.ndarray, eager: bool,
    level: np.ndarray, set_first: np.ndarray, members: np.ndarray, set_of: np.ndarray, allowed: np.ndarray,
    device: np.ndarray, rank: np.ndarray, draws: np.ndarray, temperature: np.ndarray, order_share: float,
    critical_share: float, penalty: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """One neighbour for each row of `draws`, kept by the rule of Metropolis: with probability exp(-rise / temperature).

    A neighbour differs in one operator's rank, or as `move` says.

    Parameters
    ----------
    work : float64 [n, D]; memory, kept : float64 [n]; size : float64 [E]; s_per_byte, latency : float64 [D, D]; room :
        float64 [D], memory; edges, first, leaving, tensor, sends, receives, eager : as in `run_schedule`; first_in,
        entering : as first, leaving, of the edges that enter.
    level : int64 [L + 1], set_first : int64 [S + 1], members : int64, set_of : int64 [L, n]
        Sets of level l are level[l] to level[l + 1]; set s is members[set_first[s]:set_first[s + 1]]; op is in set
        set_of[l, op].
    allowed : bool [S, D], devices that a set may be on.
    device, rank : int64 [n], where to start; they become where the walk ends, as `leaving` does.
    draws : float64 [iterations, 8], uniform from 0 to below 1.
    temperature : float64 [iterations], in the unit of time.
    order_share : part of the neighbours that differ in rank.
    critical_share : part of the neighbours whose operator is of the chain that sets the makespan.
    penalty : time that memory lacking by all of a device counts as.

    Returns
    -------
    device, rank : int64 [n], the best that was met, the start included.
    cost : its makespan plus penalty.
    """
    n = len(memory)
    limited = memory.sum() + kept.sum() + size.sum() > room.min()
    length, transfer = np.empty(n), np.empty(len(edges))
    best_device, best_rank, best, cost = device.copy(), rank.copy(), np.inf, np.inf
    old_device, old_rank = device.copy(), rank.copy()
    chain, known = np.zeros(1, dtype=np.int64), 0
    for iteration in range(-1, len(draws)):  # -1: the start itself
        reordered = False
        if iteration >= 0:
            u = draws[iteration]
            old_device[:] = device
            old_rank[:] = rank
            op = chain[int(u[7] * len(chain))] if u[6] < critical_share else int(u[7] * n)
            reordered = u[0] < order_share
            if reordered:
                away = 1 + int(u[2] * u[2] * n / 4)
                shift(rank, op, min(max(rank[op] + (away if u[3] < 0.5 else -away), 0), n - 1))
                sort_leaving(first, leaving, edges, rank)
            elif not move(u, op, level, set_first, members, set_of, allowed, device):
                continue
        for op in range(n):
            length[op] = work[op, device[op]]
        for e in range(len(edges)):
            a, b = device[edges[e, 0]], device[edges[e, 1]]
            transfer[e] = size[e] * s_per_byte[a, b] + latency[a, b]
        start, end, receive, arrival = run_schedule(
            length, transfer, edges, first, leaving, tensor, sends, receives, device, rank, eager, False
        )
        new, most = end.max(), np.inf
        if iteration >= 0:
            most = cost - temperature[iteration] * np.log(1.0 - draws[iteration, 4])
        if limited and new <= most:
            new += penalty * overflow(
                memory, kept, size, edges, first, leaving, tensor, device, room, start, end, receive
            )
        if new <= most:
            cost = new
            if iteration < 0 or iteration >= known + REFRESH:
                chain = critical_operators(start, end, arrival, edges, first_in, entering, device)
                known = iteration
            if cost < best:
                best = cost
                best_device[:] = device
                best_rank[:] = rank
        else:
            device[:] = old_device
            rank[:] = old_rank
            if reordered:
                sort_leaving(first, leaving, edges, rank)
    return best_device, best_rank, best
