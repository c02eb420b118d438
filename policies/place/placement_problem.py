"""Operator placement: a graph of operators, devices with links between them, and how a placement is executed.

All placers answer one question, `place(graph, devices) -> Schedule` (`Placer`), and are scored by one simulator,
`execute`. Times are in any one unit; it is seconds in the names.

Execution. A device runs one operator at a time. An operator is ready once all that it reads is on its device. A tensor
that is read on another device is sent when its operator ends; a channel takes transfers in the order of their requests:

- links 'shared' (Baechi: Jeon et al. 2020, SoCC, virtual scheduler): a device has one channel for all that it sends and
  receives. Of a transfer of c seconds, requested at t, sending starts at s = max(t, sender's channel free) and takes c,
  receiving starts at r = max(s, receiver's channel free) and takes c: the tensor is there at r + c.
- links 'directed' (Pesto: Hafeez et al. 2021, Middleware): one channel for each ordered pair of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.place.task_graph import Devices, PlacementError, PlacementGraph, column, inverse
from sim.kernels.place import run_schedule

__all__ = [
    "Devices",
    "PlacementError",
    "PlacementGraph",
    "Placer",
    "Schedule",
    "channels",
    "check_placement",
    "costs",
    "execute",
    "groups",
    "peak_bytes",
    "ranks",
    "tensors",
    "work_by_device",
]


@dataclass(frozen=True, eq=False)
class Schedule:
    """An executed placement.

    Attributes
    ----------
    device : int64 [ops].
    order : int64 [ops], rank of each operator by start: a topological order, in which devices ran theirs.
    makespan_s : end of the last operator.
    start_s, end_s : float64 [ops].
    arrival_s : float64 [E], when the reader's device has the tensor.
    peak_bytes : float64 [D], most memory in use at once: kept bytes, outputs until their last reader ended, and what
        was received, from the start of its transfer until its last reader on that device ended.
    fits : no device needs more than it has.
    """

    device: np.ndarray
    order: np.ndarray
    makespan_s: float
    start_s: np.ndarray
    end_s: np.ndarray
    arrival_s: np.ndarray
    peak_bytes: np.ndarray
    fits: bool


Placer = Callable[[PlacementGraph, Devices], Schedule]
"""What every placer is; settings (seed, seconds, ...) are keyword arguments with defaults."""


def execute(
    graph: PlacementGraph, devices: Devices, device: np.ndarray, priority: np.ndarray | None = None, *,
    strict: bool = False,
) -> Schedule:
    """Run the operators, event by event.

    Parameters
    ----------
    device : int64 [ops], where each runs.
    priority : float64 [ops], a free device takes of its ready operators the one of the smallest number (ties: in
        topological order), and an operator sends to the most urgent reader first. None: Baechi's virtual scheduler: a
        device runs operators in the order in which they become ready, and their transfers book their channels in that
        order, too, at the moment the operator is ready.
    strict : a device runs its operators in just the order of `priority`, and waits where the next one is not ready.

    Raises
    ------
    PlacementError
        A device does not exist or is of another kind than the operator, a group is torn apart, or a strict order
        runs against the edges.
    """
    device = check_placement(graph, devices, device)
    eager = priority is None
    rank = graph.rank if priority is None else ranks(graph, priority)
    first, leaving = graph.leaving
    if not eager:  # an operator's transfers leave in the order of their readers
        by_reader = np.lexsort((rank[graph.edges[leaving, 1]], graph.edges[leaving, 0]))
        leaving = leaving[by_reader]
    work, transfer = costs(graph, devices, device)
    start, end, receive, arrival = run_schedule(
        work, transfer, graph.edges, first, leaving, tensors(graph, devices), *channels(devices), device, rank, eager,
        strict,
    )
    if np.isnan(end).any():
        raise PlacementError(
            "operators wait for each other: the strict order runs against the edges",
            got=f"{int(np.isnan(end).sum())} operators that never start",
        )
    makespan = float(end.max(initial=0.0))
    peak = peak_bytes(graph, devices, device, start, end, receive)
    order = inverse(np.lexsort((graph.rank, end, start)))
    return Schedule(
        device, order, makespan, start, end, arrival, peak, bool((peak <= devices.memory_bytes).all())
    )


def channels(devices: Devices) -> tuple[np.ndarray, np.ndarray]:
    """Channels that a transfer uses, int64 [D, D] by sender and receiver: that of the sender, that of the receiver."""
    pair = np.arange(devices.count**2).reshape(devices.count, devices.count)
    if devices.links == "directed":
        return pair, pair
    own = np.broadcast_to(np.arange(devices.count), pair.shape)
    return own.T.copy(), own.copy()


def tensors(graph: PlacementGraph, devices: Devices) -> np.ndarray:
    """int64 [E], number of what each edge carries; edges of one number are sent once to a device."""
    if not devices.cache or not len(graph.edges):
        return np.arange(len(graph.edges))
    pairs = np.column_stack([graph.edges[:, 0], graph.tensor])
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def groups(graph: PlacementGraph) -> np.ndarray:
    """int64 [ops], number of the group of each operator, from 0; what is free is a group of its own."""
    own = np.where(graph.colocate >= 0, graph.colocate, graph.colocate.max(initial=-1) + 1 + np.arange(len(graph)))
    return np.unique(own, return_inverse=True)[1].reshape(-1)


def work_by_device(graph: PlacementGraph, devices: Devices) -> np.ndarray:
    """float64 [ops, D], seconds of each operator on each device; infinite where it, or one of its group, must not run.

    Raises
    ------
    PlacementError
        A group may run nowhere, or a kind of device has no times.
    """
    kinds = graph.work_s.shape[1]
    if kinds > 1 and devices.kind.max() >= kinds:
        raise PlacementError("a kind of device without work_s", got=int(devices.kind.max()), allowed=f"below {kinds}")
    group = groups(graph)
    barred = (graph.device_kind[:, None] >= 0) & (graph.device_kind[:, None] != devices.kind)
    barred_group = np.zeros((group.max(initial=-1) + 1, devices.count), dtype=bool)
    np.logical_or.at(barred_group, group, barred)
    nowhere = barred_group[group].all(axis=1)
    if nowhere.any():
        op = int(nowhere.argmax())
        raise PlacementError("no device is of the right kind", where=f"operator {op}", got=int(graph.device_kind[op]))
    return np.where(barred_group[group], np.inf, graph.work_s[:, devices.kind if kinds > 1 else 0 * devices.kind])


def ranks(graph: PlacementGraph, priority: np.ndarray) -> np.ndarray:
    """int64 [ops], place of each operator by priority; ties in topological order."""
    return inverse(np.lexsort((graph.rank, column("priority", priority, (len(graph),), np.float64, -np.inf))))


def costs(graph: PlacementGraph, devices: Devices, device: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each operator where it is, float64 [ops], and of each edge, float64 [E], 0 within a device."""
    column = devices.kind[device] if graph.work_s.shape[1] > 1 else np.zeros(len(graph), dtype=np.int64)
    source, reader = device[graph.edges[:, 0]], device[graph.edges[:, 1]]
    s_per_byte, latency_s = np.asarray(devices.s_per_byte), np.asarray(devices.latency_s)
    transfer = graph.edge_bytes * s_per_byte[source, reader] + latency_s[source, reader]
    return graph.work_s[np.arange(len(graph)), column], np.where(source == reader, 0.0, transfer)


def check_placement(graph: PlacementGraph, devices: Devices, device: np.ndarray) -> np.ndarray:
    """The placement as int64 [ops].

    Raises
    ------
    PlacementError
        As `execute` says.
    """
    device = np.array(device, dtype=np.int64)
    if device.shape != (len(graph),):
        raise PlacementError("not one device for each operator", got=device.shape, allowed=f"({len(graph)},)")
    nowhere = (device < 0) | (device >= devices.count)
    if nowhere.any():
        got = int(device[nowhere.argmax()])
        raise PlacementError("a device that does not exist", got=got, allowed=f"0 to {devices.count - 1}")
    if graph.work_s.shape[1] > 1 and devices.kind.max() >= graph.work_s.shape[1]:
        raise PlacementError("a kind of device without work_s", got=int(devices.kind.max()))
    wrong = (graph.device_kind >= 0) & (devices.kind[device] != graph.device_kind)
    if wrong.any():
        raise PlacementError("an operator on a device of another kind", where=f"operator {int(wrong.argmax())}")
    grouped = np.flatnonzero(graph.colocate >= 0)
    _, one, group = np.unique(graph.colocate[grouped], return_index=True, return_inverse=True)
    torn = device[grouped] != device[grouped[one]][group]
    if torn.any():
        op = int(grouped[torn.argmax()])
        raise PlacementError(
            "a group on more than one device", where=f"operator {op}", got=int(device[op]),
            todo=f"Put all operators of group {int(graph.colocate[op])} on one device.",
        )
    return device


def peak_bytes(
    graph: PlacementGraph, devices: Devices, device: np.ndarray, start: np.ndarray, end: np.ndarray, receive: np.ndarray
) -> np.ndarray:
    """float64 [D], most memory in use at once, as `Schedule` says.

    What is let go at an instant goes before what begins at it.

    Parameters
    ----------
    receive : float64 [E], start of each transfer at its receiver; NaN: none (same device, or it has the tensor).
    """
    source, reader = graph.edges.T
    freed = np.full(len(graph), -np.inf)
    np.maximum.at(freed, source, end[reader])
    freed[np.isneginf(freed)] = np.inf
    copy = tensors(graph, devices) * devices.count + device[reader]
    sent = np.flatnonzero(~np.isnan(receive))
    copy_freed = np.zeros(copy.max(initial=-1) + 1)
    np.maximum.at(copy_freed, copy, end[reader])
    where = np.concatenate([device, device[reader[sent]]])
    size = np.concatenate([graph.memory_bytes, graph.edge_bytes[sent]])
    begin = np.concatenate([start, receive[sent]])
    time = np.concatenate([begin, freed, copy_freed[copy[sent]]])
    change, where = np.concatenate([size, -size]), np.concatenate([where, where])
    peak = np.bincount(device, weights=graph.kept_bytes, minlength=devices.count)
    for d in range(devices.count):
        here = np.flatnonzero(where == d)
        steps = change[here[np.lexsort((change[here], time[here]))]]
        peak[d] += np.cumsum(steps).max(initial=0.0)
    return peak
