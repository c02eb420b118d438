"""Operators on devices: executed as they are placed, or placed one by one where they start earliest.

Times are in any one unit. A transfer of c, requested at t, uses two channels, the sender's and the receiver's. Sending
begins at s = max(t, sender's channel free) and takes c; receiving begins at r = max(s, receiver's channel free) and
takes c; the tensor is there at r + c. Where both are one (a link from one device to another) it is used once. Requests
are served in their order.

Parameters of several kernels
-----------------------------
edges : int64 [E, 2], source and reader.
first, leaving : int64 [n + 1], int64 [E]; edges that leave op: leaving[first[op]:first[op + 1]].
tensor : int64 [E]; edges of one number are one tensor (of one source), which a device receives at most once
    (`policies.place.placement_problem.tensors`).
sends, receives : int64 [D, D], channels of a transfer by sender and receiver
    (`policies.place.placement_problem.channels`).
rank : int64 [n], 0 to n - 1, each once; the least goes first.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@jit
def topological_order(first: np.ndarray, leaving: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Operators breadth first (Kahn 1962): those without sources by number, then each as its last source is taken.

    Returns
    -------
    int64 [m], m < n where there is a cycle: what is on it, or behind it, is missing.
    """
    n = len(first) - 1
    missing = np.zeros(n, dtype=np.int64)
    for e in range(len(edges)):
        missing[edges[e, 1]] += 1
    order = np.empty(n, dtype=np.int64)
    tail = 0
    for op in range(n):
        if missing[op] == 0:
            order[tail] = op
            tail += 1
    head = 0
    while head < tail:
        op = order[head]
        head += 1
        for i in range(first[op], first[op + 1]):
            reader = edges[leaving[i], 1]
            missing[reader] -= 1
            if missing[reader] == 0:
                order[tail] = reader
                tail += 1
    return order[:tail]


@part
def _push(heap: np.ndarray, offset: int, size: int, item: int, time: np.ndarray, tie: np.ndarray) -> None:
    """Add an item to the binary heap heap[offset:offset + size], least (time, tie) at the top."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        other = heap[offset + up]
        if time[other] < time[item] or (time[other] == time[item] and tie[other] < tie[item]):
            break
        heap[offset + at] = other
        at = up
    heap[offset + at] = item


@part
def _pop(heap: np.ndarray, offset: int, size: int, time: np.ndarray, tie: np.ndarray) -> int:
    """Take the top item off; what is left is heap[offset:offset + size - 1]."""
    top, item, size = heap[offset], heap[offset + size - 1], size - 1
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        a = heap[offset + down]
        if down + 1 < size:
            b = heap[offset + down + 1]
            if time[b] < time[a] or (time[b] == time[a] and tie[b] < tie[a]):
                a, down = b, down + 1
        if time[item] < time[a] or (time[item] == time[a] and tie[item] < tie[a]):
            break
        heap[offset + at] = a
        at = down
    heap[offset + at] = item
    return top


@part
def _book(requested: float, length: float, out: int, into: int, channel: np.ndarray) -> float:
    """Book a transfer on its channels, as the module says; returns when receiving begins."""
    begin = max(requested, channel[out])
    if out != into:
        channel[out] = begin + length
        begin = max(begin, channel[into])
    channel[into] = begin + length
    return begin


@part
def _queues(device: np.ndarray, rank: np.ndarray, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Operators of each device by rank: turn[offset[d]:offset[d + 1]]."""
    n = len(device)
    offset, by_rank, turn = np.zeros(devices + 1, dtype=np.int64), np.empty_like(rank), np.empty_like(rank)
    for op in range(n):
        offset[device[op] + 1] += 1
        by_rank[rank[op]] = op
    for d in range(devices):
        offset[d + 1] += offset[d]
    filled = offset.copy()
    for r in range(n):
        op = by_rank[r]
        turn[filled[device[op]]] = op
        filled[device[op]] += 1
    return offset, turn


@jit
def run_schedule(
    work: np.ndarray, transfer: np.ndarray, edges: np.ndarray, first: np.ndarray, leaving: np.ndarray,
    tensor: np.ndarray, sends: np.ndarray, receives: np.ndarray, device: np.ndarray, rank: np.ndarray, eager: bool,
    strict: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Execute placed operators, event by event.

    Events are two for each operator: it sends what it made (when it ends; eager: when it is ready), and it is ready.
    At one instant all that is sent comes first, then all that is ready, each in the order of rank; then free devices
    take their next operator.

    Parameters
    ----------
    work : float64 [n], length of each operator on its device.
    transfer : float64 [E], length of each transfer; that within a device is not read.
    leaving : also the order in which an operator sends.
    device : int64 [n].
    eager : an operator is queued, and books its transfers, when it becomes ready; else the least rank goes first.
    strict : a device waits for its operator of the next rank (not eager).

    Returns
    -------
    start, end : float64 [n]; NaN: never starts.
    receive : float64 [E], start of the transfer at the receiver; NaN where nothing is sent for the edge.
    arrival : float64 [E], when the reader's device has the tensor.
    """
    n, devices = len(work), len(sends)
    start, end = np.full(n, np.nan), np.full(n, np.nan)
    receive, arrival = np.full(len(edges), np.nan), np.full(len(edges), np.nan)
    missing, ready = np.zeros(n, dtype=np.int64), np.zeros(n)
    tensors = 0
    for e in range(len(edges)):
        missing[edges[e, 1]] += 1
        tensors = max(tensors, tensor[e] + 1)
    there = np.full((tensors, devices), np.nan)
    free, channel = np.zeros(devices), np.zeros(devices * devices)
    # Events: op sends, n + op is ready. Ties at one instant: by kind, then rank.
    time, tie = np.zeros(2 * n), np.empty(2 * n, dtype=np.int64)
    events, count = np.empty(2 * n, dtype=np.int64), 0
    for op in range(n):
        tie[op], tie[n + op] = rank[op], n + rank[op]
        if missing[op] == 0:
            _push(events, 0, count, n + op, time, tie)
            count += 1
    offset, turn = _queues(device, rank, devices)
    waiting, size, done = np.empty(n, dtype=np.int64), np.zeros(devices, dtype=np.int64), offset.copy()
    untimed = np.zeros(n)
    while count > 0:
        event = _pop(events, 0, count, time, tie)
        count -= 1
        now = time[event]
        op = event - n if event >= n else event
        d = device[op]
        if event >= n and eager:
            start[op] = max(free[d], now)
            free[d] = end[op] = start[op] + work[op]
            time[op] = now
            _push(events, 0, count, op, time, tie)
            count += 1
        elif event >= n:
            _push(waiting, offset[d], size[d], op, untimed, rank)
            size[d] += 1
        else:
            for i in range(first[op], first[op + 1]):
                e = leaving[i]
                reader = edges[e, 1]
                to = device[reader]
                if to == d:
                    arrival[e] = end[op]
                else:
                    if np.isnan(there[tensor[e], to]):
                        receive[e] = _book(end[op], transfer[e], sends[d, to], receives[d, to], channel)
                        there[tensor[e], to] = receive[e] + transfer[e]
                    arrival[e] = there[tensor[e], to]
                ready[reader] = max(ready[reader], arrival[e])
                missing[reader] -= 1
                if missing[reader] == 0:
                    time[n + reader] = ready[reader]
                    _push(events, 0, count, n + reader, time, tie)
                    count += 1
        if eager or (count > 0 and time[events[0]] <= now):
            continue
        for d in range(devices):
            if size[d] == 0 or free[d] > now or (strict and waiting[offset[d]] != turn[done[d]]):
                continue
            op = _pop(waiting, offset[d], size[d], untimed, rank)
            size[d] -= 1
            done[d] += 1
            start[op] = now
            free[d] = time[op] = end[op] = now + work[op]
            _push(events, 0, count, op, time, tie)
            count += 1
    return start, end, receive, arrival


@part
def _ready_at(
    op: int, d: int, first_in: np.ndarray, entering: np.ndarray, edges: np.ndarray, tensor: np.ndarray,
    device: np.ndarray, end: np.ndarray, there: np.ndarray, channel: np.ndarray, sends: np.ndarray,
    receives: np.ndarray, edge_bytes: np.ndarray, per_byte: np.ndarray, latency: np.ndarray,
) -> float:
    """When all that op reads would be on device d, each transfer looked at as if it were the only one."""
    ready = 0.0
    for i in range(first_in[op], first_in[op + 1]):
        e = entering[i]
        source = edges[e, 0]
        at = device[source]
        if at == d:
            ready = max(ready, end[source])
        elif not np.isnan(there[tensor[e], d]):
            ready = max(ready, there[tensor[e], d])
        else:
            begin = max(end[source], channel[sends[at, d]], channel[receives[at, d]])
            ready = max(ready, begin + edge_bytes[e] * per_byte[at, d] + latency[at, d])
    return ready


@jit
def _take(
    now: float, d: int, child: int, ready: np.ndarray, at: np.ndarray, rank: np.ndarray
) -> tuple[int, float]:
    """Operator that free device d takes now (-1: none), and when, after now, it could take one.

    child : the favourite child that d is kept awake for; -1: none.
    """
    best, best_urgent, then = -1, False, np.inf
    for op in ready:
        when = at[op, d]
        if child >= 0:
            latest = when
            for other in at[op]:
                if other < np.inf:
                    latest = max(latest, other)
            urgent = latest <= now
            when = when if op == child else latest
        else:
            urgent = False
        if when > now:
            then = min(then, when)
        elif best < 0 or (urgent and not best_urgent) or (urgent == best_urgent and rank[op] < rank[best]):
            best, best_urgent = op, urgent
    return best, then


@jit
def place_earliest(
    work: np.ndarray, memory: np.ndarray, kept: np.ndarray, group: np.ndarray, capacity: np.ndarray,
    edges: np.ndarray, first: np.ndarray, leaving: np.ndarray, first_in: np.ndarray, entering: np.ndarray,
    tensor: np.ndarray, edge_bytes: np.ndarray, per_byte: np.ndarray, latency: np.ndarray, sends: np.ndarray,
    receives: np.ndarray, rank: np.ndarray, favourite: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """List scheduling by earliest start: m-ETF, and with favourites m-SCT (Jeon et al. 2020, SoCC, section 3).

    At each instant at which a device ends an operator, or some ready operator could start, the free devices take, as
    long as one can start now, the operator of the least rank (ties: the first device). An operator takes its whole
    group with it. A device whose last operator has a favourite child that is ready and not placed, and that would
    start nowhere earlier than here, is kept awake for it: it takes but the child, or, before the child, an urgent
    operator: one that could start by now wherever it may run.

    Parameters
    ----------
    work : float64 [n, D]; infinite: the operator must not run there.
    memory, kept : float64 [n], bytes from an operator's start to the end of its last reader; bytes of its whole group
        from the time that the group is placed.
    group : int64 [n], 0 to groups - 1.
    capacity : float64 [D], bytes.
    first_in, entering : as first and leaving, of the edges that enter, in the order in which they are sent.
    edge_bytes : float64 [E]. per_byte, latency : float64 [D, D], of a transfer.
    favourite : int64 [n], favourite child; -1: none.

    Returns
    -------
    device : int64 [n]; -1: never placed, since it fits nowhere.
    start : float64 [n].
    """
    n, devices = work.shape
    device, start, end = np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan)
    tensors = 0
    missing, readers = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for e in range(len(edges)):
        missing[edges[e, 1]] += 1
        readers[edges[e, 0]] += 1
        tensors = max(tensors, tensor[e] + 1)
    there = np.full((tensors, devices), np.nan)
    group_kept = np.zeros(n)
    for op in range(n):
        group_kept[group[op]] += kept[op]
    offset, members = _queues(group, rank, n)
    free, channel, used = np.zeros(devices), np.zeros(devices * devices), np.zeros(devices)
    last, ended = np.full(devices, -1), np.ones(devices, dtype=np.bool_)
    ready, count = np.empty(n, dtype=np.int64), 0
    at = np.empty((n, devices))  # earliest start of each ready operator on each device; infinite: not there
    for op in range(n):
        if missing[op] == 0:
            ready[count] = op
            count += 1
    now = 0.0
    while True:
        for d in range(devices):
            if not ended[d] and free[d] <= now:
                ended[d] = True
                for i in range(first[last[d]], first[last[d] + 1]):
                    reader = edges[leaving[i], 1]
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        ready[count] = reader
                        count += 1
            free[d] = max(free[d], now)
        for i in range(count):
            op = ready[i]
            for d in range(devices):
                at[op, d] = np.inf
                placed = device[op]
                if (placed >= 0 and placed != d) or work[op, d] == np.inf:
                    continue
                needed = memory[op] + (group_kept[group[op]] if placed < 0 else 0.0)
                if used[d] + needed <= capacity[d]:
                    at[op, d] = max(free[d], _ready_at(
                        op, d, first_in, entering, edges, tensor, device, end, there, channel, sends, receives,
                        edge_bytes, per_byte, latency,
                    ))
        chosen, on, then = -1, -1, np.inf
        for d in range(devices):
            if free[d] > now:
                then = min(then, free[d])
                continue
            child = favourite[last[d]] if last[d] >= 0 else -1
            if child >= 0 and (device[child] >= 0 or missing[child] > 0 or at[child, d] > at[child].min()):
                child = -1
            best, when = _take(now, d, child, ready[:count], at, rank)
            then = min(then, when)
            if best >= 0 and (chosen < 0 or rank[best] < rank[chosen]):
                chosen, on = best, d
        if chosen < 0:
            if then == np.inf:
                return device, start
            now = then
            continue
        op = chosen
        begin = now
        for i in range(first_in[op], first_in[op + 1]):
            e = entering[i]
            source = edges[e, 0]
            origin = device[source]
            arrival = end[source]
            if origin != on:
                if np.isnan(there[tensor[e], on]):
                    length = edge_bytes[e] * per_byte[origin, on] + latency[origin, on]
                    there[tensor[e], on] = length + _book(
                        end[source], length, sends[origin, on], receives[origin, on], channel
                    )
                arrival = there[tensor[e], on]
            begin = max(begin, arrival)
            readers[source] -= 1
            if readers[source] == 0:
                used[origin] -= memory[source]
        if device[op] < 0:
            used[on] += group_kept[group[op]]
            for i in range(offset[group[op]], offset[group[op] + 1]):
                device[members[i]] = on
        used[on] += memory[op]
        start[op] = begin
        free[on] = end[op] = begin + work[op, on]
        last[on], ended[on] = op, False
        for i in range(count):
            if ready[i] == op:
                count -= 1
                ready[i] = ready[count]
                break
