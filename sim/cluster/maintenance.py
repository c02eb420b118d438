"""Maintenance windows: GPUs that take no new jobs from a time on, go out of service, and come back.

A maintenance file, `node,gpu,drain_s,down_s,up_s,known_s` (s, on the clock of the trace's submit_s). From drain_s on
(blank: from down_s on) no job starts on the GPUs; those that run there go on. At down_s what still runs there is
interrupted. At up_s (blank: never) they are back. From known_s on (blank: from the start of the run) policies may know
of it. `gpu` is a number within the node, from 0; blank: all GPUs of the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.cluster.spec import ClusterSpec
from traces.columns import MAX_TIME_S
from traces.errors import TraceError
from traces.reading.text import Table, read_table

MAINTENANCE = ("node", "gpu", "drain_s", "down_s", "up_s", "known_s")


@dataclass(frozen=True, eq=False)
class Window:
    """One maintenance window: GPUs of one node, and when what happens to them.

    Attributes
    ----------
    node : number of the node.
    gpus : int32, numbers of the GPUs in the cluster, ascending. Read-only.
    drain_s : no job starts on them from then on.
    down_s : what still runs there is interrupted.
    up_s : they are back; infinite: never.
    known_s : policies may know of it from then on; -infinite: from the start of the run.
    """

    node: int
    gpus: np.ndarray
    drain_s: float
    down_s: float
    up_s: float
    known_s: float


def read_maintenance(path: str | Path, cluster: ClusterSpec) -> tuple[Window, ...]:
    """Read a maintenance file for a cluster. Windows come in the order of drain_s, then of their first GPU.

    Raises
    ------
    TraceError
        The file cannot be read, lacks a column, a cell is not allowed, the cluster has no such node or GPU, the times
        of a window are not in order (known_s ≤ drain_s ≤ down_s < up_s), or two windows of one GPU overlap.
    """
    table = read_table(Path(path), MAINTENANCE, what="maintenance file")
    node = table.number("node", high=cluster.num_nodes - 1, integer=True).astype(np.int64)
    gpu = table.number("gpu", high=float(cluster.node_gpus.max() - 1), integer=True, blank=True)
    down_s = table.number("down_s", low=-MAX_TIME_S, high=MAX_TIME_S)
    drain_s, up_s, known_s = (_or(table, name, other) for name, other in (
        ("drain_s", down_s), ("up_s", np.inf), ("known_s", -np.inf)))
    beyond = gpu >= cluster.node_gpus[node]
    if beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        raise TraceError(f"node {node[row]} has no such GPU", where=table.where(row, "gpu"), got=int(gpu[row]),
                         allowed=f"0 to {cluster.node_gpus[node[row]] - 1}, or blank: all of them")
    for name, early, late in (("drain_s", drain_s, down_s), ("known_s", known_s, drain_s), ("down_s", down_s, up_s)):
        wrong = (early >= late) if name == "down_s" else (early > late)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise TraceError("the times of a window are not in order", where=table.where(row, name),
                             got=float(early[row]), allowed="known_s ≤ drain_s ≤ down_s < up_s")
    windows = []
    for row in range(len(table)):
        first, past = cluster.node_first[node[row] : node[row] + 2].tolist()
        gpus = np.arange(first, past, dtype=np.int32) if np.isnan(gpu[row]) else np.array([first + gpu[row]], np.int32)
        gpus.flags.writeable = False
        windows.append(Window(int(node[row]), gpus, float(drain_s[row]), float(down_s[row]), float(up_s[row]),
                              float(known_s[row])))
    order = sorted(range(len(windows)), key=lambda row: (windows[row].drain_s, int(windows[row].gpus[0])))
    _refuse_overlap(table, windows, order)
    return tuple(windows[row] for row in order)


def _or(table: Table, name: str, other: np.ndarray | float) -> np.ndarray:
    """A column of times, with another one where it is blank."""
    time_s = table.number(name, low=-MAX_TIME_S, high=MAX_TIME_S, blank=True)
    return np.where(np.isnan(time_s), other, time_s)


def _refuse_overlap(table: Table, windows: list[Window], order: list[int]) -> None:
    """Windows of one GPU follow each other; one may begin as the one before ends."""
    until_s: dict[int, float] = {}
    for row in order:
        for gpu in windows[row].gpus.tolist():
            if windows[row].drain_s < until_s.get(gpu, -np.inf):
                raise TraceError("a GPU is in another window then", where=table.where(row, "node"),
                                 got=f"GPU {gpu} of the cluster, drained from {windows[row].drain_s:.12g} s on",
                                 allowed=f"from {until_s[gpu]:.12g} s on")
            until_s[gpu] = windows[row].up_s
