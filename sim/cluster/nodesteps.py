"""Which nodes go and come: GPUs counted by a capacity file become nodes, and two files together become steps. With
maintenance windows: how many GPUs of a node are there for jobs to start on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sim.cluster.maintenance import Window
from sim.cluster.spec import ClusterError, ClusterSpec
from traces.machines.capacity import Capacity

Change = tuple[float, int, np.ndarray, bool]
"""When (s), by which file, which nodes, and whether they are there from then on."""


def _moment(time_s: float) -> str:
    return "from the beginning" if np.isneginf(time_s) else f"at {time_s:.12g} s"


def known_type(cluster: ClusterSpec, name: str, where: str) -> int:
    """Index of a GPU type that the cluster has."""
    index = cluster.type_index(name)
    if index is None:
        raise ClusterError("a GPU type that the cluster lacks", where=where, got=name,
                           allowed=", ".join(t.name for t in cluster.types))
    return index


def counted(capacity: Capacity, cluster: ClusterSpec, where: str, notes: list[str]) -> list[Change]:
    """Nodes that go and come so that as many GPUs are there as the file counts, or fewer."""
    own = capacity.vc == ""
    kinds = sorted(set(capacity.gpu_type[own].tolist()))
    if "" in kinds and len(kinds) > 1:
        raise ClusterError("GPUs of any type and of one type are counted", where=where, got=", ".join(kinds[1:]),
                           allowed="gpu_type blank in all rows without vc, or in none")
    changes: list[Change] = []
    partly = 0
    for kind in kinds:
        nodes = np.arange(cluster.num_nodes)
        if kind:
            nodes = np.flatnonzero(cluster.node_type == known_type(cluster, kind, where))
        gpus = np.cumsum(cluster.node_gpus[nodes].astype(np.int64))
        there = len(nodes)
        time_s, counts = capacity.steps(gpu_type=kind)
        if time_s[0] > -np.inf:
            time_s, counts = np.concatenate(([-np.inf], time_s)), np.concatenate(([0], counts))
        if counts.max() > gpus[-1]:
            raise ClusterError(
                "more GPUs are counted than the cluster has", where=where,
                got=f"{counts.max()} GPUs{f' of {kind}' if kind else ''} {_moment(time_s[counts.argmax()])}",
                allowed=f"up to {gpus[-1]}", todo="Make the cluster as large as it ever was: hetsim cluster from.",
            )
        for now_s, count in zip(time_s.tolist(), counts.tolist(), strict=True):
            stay = int(np.searchsorted(gpus, count, side="right"))
            partly += int((gpus[stay - 1] if stay else 0) != count)
            if stay != there:
                changes.append((now_s, 0, nodes[min(stay, there) : max(stay, there)], stay > there))
            there = stay
    if partly:
        notes.append(f"{partly} counts of {Path(where).name} end within a node: that node is away")
    return changes


def net(changes: list[Change], time_s: np.ndarray, num_nodes: int) -> Iterator[tuple[int, int, bool]]:
    """(step, node, up) of each node that goes or comes, where two files together take it away or not."""
    there = np.ones((2, num_nodes), dtype=bool)
    seen = np.ones(num_nodes, dtype=bool)
    changes = sorted(changes, key=lambda change: change[0])
    at = 0
    for step, until_s in enumerate(time_s.tolist()):
        touched: set[int] = set()
        while at < len(changes) and changes[at][0] <= until_s:
            _, source, nodes, up = changes[at]
            there[source, nodes] = up
            touched.update(nodes.tolist())
            at += 1
        for node in sorted(touched):
            up = bool(there[:, node].all())
            if up != seen[node]:
                seen[node] = up
                yield step, node, up


def step_at(time_s: np.ndarray, when_s: float) -> int:
    """The step that a time is; all that was before the start is step 0."""
    return int(np.searchsorted(time_s, when_s)) if when_s > time_s[0] else 0


def gpus_there(
    nodes: list[tuple[int, int, bool]], windows: tuple[Window, ...], time_s: np.ndarray, node_gpus: np.ndarray
) -> np.ndarray:
    """int64 [changes, 3]: node, step, and GPUs of the node on which jobs may start from then on; in this order.

    Of a node that is away, none; else those that no window drains or holds out of service.
    """
    away: dict[int, dict[int, int]] = {}
    closed: dict[int, dict[int, int]] = {}
    for step, node, up in nodes:
        away.setdefault(node, {})[step] = -1 if up else 1
    for window in windows:
        of_node = closed.setdefault(window.node, {})
        for when_s, change in ((window.drain_s, window.gpus.size), (window.up_s, -window.gpus.size)):
            if when_s < np.inf:
                step = step_at(time_s, when_s)
                of_node[step] = of_node.get(step, 0) + change
    rows = []
    for node in sorted({*away, *closed}):
        gone, out = away.get(node, {}), closed.get(node, {})
        is_away, lacking = 0, 0
        for step in sorted({*gone, *out}):
            is_away += gone.get(step, 0)
            lacking += out.get(step, 0)
            rows.append((node, step, 0 if is_away else int(node_gpus[node]) - lacking))
    return np.array(rows, dtype=np.int64).reshape(-1, 3)
