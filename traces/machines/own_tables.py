"""hetsim's own side tables: GPUs over time, and nodes that leave and come back.

A capacity file, `time_s,vc,gpu_type,gpus`: from time_s on (s, on the clock of the trace's submit_s; blank: from the
beginning), a virtual cluster has so many GPUs of a type. Blank vc: the cluster as a whole; blank gpu_type: of any type.

An outage file, `time_s,node,up`: from time_s on, a node of the cluster, named by its number, is down (0) or up (1).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traces.columns import MAX_TIME_S
from traces.errors import TraceError
from traces.late import pd
from traces.machines.capacity import About, Capacity, MachineReader
from traces.outfile import written
from traces.reading.text import read_table

CAPACITY = ("time_s", "vc", "gpu_type", "gpus")
OUTAGES = ("time_s", "node", "up")


def read_capacity(path: str | Path) -> Capacity:
    """Read a capacity file.

    Raises
    ------
    TraceError
        The file cannot be read, lacks a column, a cell is not allowed, or a (vc, gpu_type) has two counts at one time.
    """
    table = read_table(Path(path), CAPACITY, what="capacity file")
    time_s = table.number("time_s", low=-MAX_TIME_S, high=MAX_TIME_S, blank=True)
    gpus = table.number("gpus", high=1e9, integer=True)
    about = About(str(path), MACHINES.name, "GPUs as given")
    return Capacity.from_columns(np.where(np.isnan(time_s), -np.inf, time_s), table.text("vc"),
                                 table.text("gpu_type"), gpus.astype(np.int64), about=about, lines=table.lines)


def write_capacity(capacity: Capacity, path: str | Path) -> None:
    """Write a capacity file."""
    frame = pd.DataFrame({
        "time_s": [f"{t:.15g}" if np.isfinite(t) else "" for t in capacity.time_s.tolist()],
        "vc": capacity.vc, "gpu_type": capacity.gpu_type, "gpus": capacity.gpus,
    })
    with written(Path(path)) as part:
        frame.to_csv(part, index=False, lineterminator="\n")


@dataclass(frozen=True, eq=False)
class NodeTimes:
    """When nodes leave and come back: arrays [changes], in order of time.

    Attributes
    ----------
    time_s : float64, from when on; -inf: from the beginning.
    node : int64, number of the node in its cluster.
    up : bool, whether it is there from then on. Before its first change a node is there.
    """

    time_s: np.ndarray
    node: np.ndarray
    up: np.ndarray


def read_outages(path: str | Path, num_nodes: int) -> NodeTimes:
    """Read an outage file for a cluster of so many nodes.

    Raises
    ------
    TraceError
        The file cannot be read, lacks a column, a cell is not allowed, the cluster has no such node, or a node goes
        down that is down already (or comes back that is there).
    """
    table = read_table(Path(path), OUTAGES, what="outage file")
    time_s = table.number("time_s", low=-MAX_TIME_S, high=MAX_TIME_S, blank=True)
    time_s = np.where(np.isnan(time_s), -np.inf, time_s)
    node = table.number("node", high=num_nodes - 1, integer=True).astype(np.int64)
    up = table.number("up", high=1, integer=True).astype(bool)
    order = np.lexsort((time_s, node))
    first = np.concatenate(([True], node[order[1:]] != node[order[:-1]]))
    before = np.concatenate(([True], up[order[:-1]]))
    again = (up[order] == np.where(first, True, before)) | (
        ~first & np.concatenate(([False], time_s[order[1:]] == time_s[order[:-1]])))
    if again.any():
        row = int(order[np.flatnonzero(again)[0]])
        raise TraceError(f"node {node[row]} is {'up' if up[row] else 'down'} already", where=table.where(row, "up"),
                         got=int(up[row]), allowed="0 and 1 in turn for each node, 0 first, each at a later time")
    order = np.argsort(time_s, kind="stable")
    return NodeTimes(time_s[order], node[order], up[order])


def write_outages(times: NodeTimes, path: str | Path) -> None:
    """Write an outage file."""
    frame = pd.DataFrame({
        "time_s": [f"{t:.15g}" if np.isfinite(t) else "" for t in times.time_s.tolist()],
        "node": times.node, "up": times.up.astype(int),
    })
    with written(Path(path)) as part:
        frame.to_csv(part, index=False, lineterminator="\n")


MACHINES = MachineReader(
    name="capacity",
    description="hetsim's own: time_s,vc,gpu_type,gpus",
    public="written by hetsim cluster from",
    header=CAPACITY,
    read=read_capacity,
)
