"""A smaller graph for solvers that cannot take the fine one: edges are contracted while the graph stays acyclic.

Contracting an edge (u, v) keeps a graph acyclic exactly where it is the only path from u to v (Pesto: Hafeez et al.
2021, Middleware, section 3.3). Each contraction is tested on the graph as it then is, with a topological order that is
repaired after it, so no condition on batches of edges is needed. A round goes through the edges, most bytes first, and
lets each vertex grow once.

What a contraction costs is parallelism: the longest path may then lead through both ends. A vertex therefore takes at
most 2 / target of all work, and no path may become longer than the longest one is; where nothing can be contracted any
more, both limits grow a little. (By bytes and work alone, Inception-v3 at 100 vertices has a longest path of 589 ms,
with the limit on paths 475 ms, where that of the fine graph is 412 ms.)

A backward operator is colocated with its forward one. Contracting both halves of a training graph at will would chain
all colocations together, so the forward half is contracted and the backward half mirrors it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.place.placement_problem import PlacementGraph

TARGET = 200
"""Vertices that Pesto leaves to its solver."""
GROWTH = 1.05, 1.01
"""How the most work of a vertex, and the longest path, grow where nothing else can be contracted."""


@dataclass(frozen=True, eq=False)
class Coarse:
    """`graph`: the contracted one, its vertices in topological order; `group` int64 [ops]: vertex of each operator."""

    graph: PlacementGraph
    group: np.ndarray


def mirrors(graph: PlacementGraph) -> tuple[np.ndarray, np.ndarray]:
    """Which operator is the other half of each, and which are behind the loss: int64 [ops] (-1: none), bool [ops].

    Halves are the two operators of a colocation group of just these two, joined by an edge. There are none at all
    where a path leads from a backward operator to a forward one: then contracting one half could close a cycle through
    the other.
    """
    ops = len(graph)
    members: dict[int, list[int]] = {}
    for op, group in enumerate(graph.colocate.tolist()):
        if group >= 0:
            members.setdefault(group, []).append(op)
    other = np.full(ops, -1)
    backward = np.zeros(ops, dtype=bool)
    for source, target in graph.edges.tolist():
        group = graph.colocate[source]
        if group >= 0 and graph.colocate[target] == group and len(members[group]) == 2:
            other[source], other[target] = target, source
            backward[target] = True
    forward = (other >= 0) & ~backward
    for source, target in sorted(graph.edges.tolist(), key=lambda edge: graph.rank[edge[0]]):
        backward[target] |= backward[source]
    if (forward & backward).any():
        return np.full(ops, -1), np.zeros(ops, dtype=bool)
    return other, backward


class _Quotient:
    """The graph as contracted so far: a vertex is named by one of its operators."""

    def __init__(self, graph: PlacementGraph) -> None:
        ops = len(graph)
        self.after: list[dict[int, float]] = [{} for _ in range(ops)]
        self.before: list[set[int]] = [set() for _ in range(ops)]
        for (source, target), size in zip(graph.edges.tolist(), graph.edge_bytes.tolist(), strict=True):
            self.after[source][target] = self.after[source].get(target, 0.0) + size
            self.before[target].add(source)
        self.order: list[int] = graph.order.tolist()  # -1: a vertex that is now part of another
        self.rank: list[int] = graph.rank.tolist()
        self.parent = list(range(ops))
        self.weight: list[float] = graph.work_s.min(axis=1).tolist()
        self.colocate: list[int] = graph.colocate.tolist()
        kind_of = dict(zip(self.colocate, [-1] * ops, strict=True))
        for group, kind in zip(self.colocate, graph.device_kind.tolist(), strict=True):
            kind_of[group] = max(kind_of[group], kind)
        self.kind = [
            kind_of[group] if group >= 0 else kind
            for group, kind in zip(self.colocate, graph.device_kind.tolist(), strict=True)
        ]
        other, backward = mirrors(graph)
        self.other: list[int] = other.tolist()
        self.backward: list[bool] = backward.tolist()
        self.count = ops

    def between(self, u: int, v: int) -> set[int] | None:
        """Vertices behind u, in the order, that lead to v; None where one of them follows u: a second path."""
        found, stack = {v}, [v]
        while stack:
            at = stack.pop()
            for source in self.before[at]:
                if source == u:
                    if at != v:
                        return None
                elif self.rank[source] > self.rank[u] and source not in found:
                    found.add(source)
                    stack.append(source)
        return found

    def contract(self, u: int, v: int, between: set[int]) -> None:
        """Make v part of u; what leads to v moves before both in the order."""
        first, last = self.rank[u], self.rank[v]
        window = [op for op in self.order[first : last + 1] if op not in (u, v, -1)]
        window = [op for op in window if op in between] + [u] + [op for op in window if op not in between]
        self.order[first : last + 1] = window + [-1] * (last + 1 - first - len(window))
        for place, op in enumerate(window, start=first):
            self.rank[op] = place
        del self.after[u][v]
        self.before[v].discard(u)
        for target, size in self.after[v].items():
            self.after[u][target] = self.after[u].get(target, 0.0) + size
            self.before[target].discard(v)
            self.before[target].add(u)
        for source in self.before[v]:
            size = self.after[source].pop(v)
            self.after[source][u] = self.after[source].get(u, 0.0) + size
            self.before[u].add(source)
        self.parent[v] = u
        self.weight[u] += self.weight[v]
        self.kind[u] = max(self.kind[u], self.kind[v])
        self.colocate[u] = max(self.colocate[u], self.colocate[v])
        self.count -= 1

    def measure(self) -> float:
        """Longest way of work to each vertex (`head`) and from it (`tail`), itself aside; the longest of all."""
        self.head, self.tail = [0.0] * len(self.parent), [0.0] * len(self.parent)
        vertices = [op for op in self.order if op >= 0]
        for v in vertices:
            self.head[v] = max((self.head[p] + self.weight[p] for p in self.before[v]), default=0.0)
        for v in reversed(vertices):
            self.tail[v] = max((self.tail[s] + self.weight[s] for s in self.after[v]), default=0.0)
        return max(self.head[v] + self.weight[v] for v in vertices)

    def allowed(self, u: int, v: int, cap: float, longest: float) -> bool:
        """Whether an edge may be contracted as far as weight, the way through both and device kinds go."""
        both = self.weight[u] + self.weight[v]
        if both > cap or (self.kind[u] != self.kind[v] and -1 not in (self.kind[u], self.kind[v])):
            return False
        head = max((self.head[p] + self.weight[p] for p in self.before[v] if p != u), default=0.0)
        tail = max((self.tail[s] + self.weight[s] for s in self.after[u] if s != v), default=0.0)
        return max(head, self.head[u]) + both + max(tail, self.tail[v]) <= longest

    def grow(self, u: int, v: int, cap: float, longest: float) -> tuple[int, ...]:
        """Contract (u, v), and the mirrored edge where both have other halves; the vertices it made, if any."""
        if self.backward[u] != self.backward[v]:
            return ()
        mirror_v, mirror_u = self.other[v], self.other[u]
        pairs = [(u, v)]
        if mirror_u >= 0 and mirror_v >= 0:
            if self.backward[u] or mirror_u not in self.after[mirror_v]:
                return ()
            pairs.append((mirror_v, mirror_u))
        elif self.colocate[u] != self.colocate[v] and -1 not in (self.colocate[u], self.colocate[v]):
            return ()
        plans = [self.between(*pair) if self.allowed(*pair, cap, longest) else None for pair in pairs]
        if None in plans:
            return ()
        for pair, plan in zip(pairs, plans, strict=True):
            assert plan is not None
            self.contract(*pair, plan)
        if len(pairs) == 2:
            self.other[u], self.other[mirror_v] = mirror_v, u
        elif mirror_u >= 0 or mirror_v >= 0:
            self.other[u] = max(mirror_u, mirror_v)
            self.other[self.other[u]] = u
        return tuple(pair[0] for pair in pairs)

    def round(self, cap: float, longest: float, target: int) -> bool:
        """One pass over the edges, most bytes first; whether any was contracted."""
        edges = sorted((-size, u, v) for u, targets in enumerate(self.after) for v, size in targets.items())
        grown: set[int] = set()
        for _, u, v in edges:
            if self.count <= target:
                break
            if u in grown or v in grown or self.parent[u] != u or self.parent[v] != v:
                continue
            grown.update(self.grow(u, v, cap, longest))
        return bool(grown)


def coarsen(graph: PlacementGraph, target: int = TARGET, *, cache: bool = False) -> Coarse:
    """Contract edges until about `target` vertices are left, or as many as can be.

    The coarse graph is acyclic; work, memory and crossing bytes are those of the fine graph (memory as if all outputs
    were kept until the last reader of the vertex has ended). Operators of different
    colocation groups meet in a vertex only as forward halves whose backward halves meet in another, and operators
    bound to different kinds of devices never do.

    Parameters
    ----------
    target : vertices, both halves of a training graph together.
    cache : whether a tensor is sent once to each device, see `contracted`.
    """
    quotient = _Quotient(graph)
    total = sum(quotient.weight)
    cap, longest = 2 * total / max(target, 1), quotient.measure()
    while quotient.count > target:
        quotient.measure()
        if quotient.round(cap * (1 + 1e-9), longest * (1 + 1e-9), target):
            continue
        if longest >= total and cap >= total:
            break
        cap, longest = min(cap * GROWTH[0], total), min(longest * GROWTH[1], total)
    group = np.full(len(quotient.parent), -1)
    for vertex, op in enumerate(op for op in quotient.order if op >= 0):
        group[op] = vertex
    for op, above in enumerate(quotient.parent):
        top = above
        while quotient.parent[top] != top:
            top = quotient.parent[top]
        group[op] = group[top]
    return Coarse(contracted(graph, group, cache=cache), group)


def contracted(graph: PlacementGraph, group: np.ndarray, *, cache: bool = False) -> PlacementGraph:
    """The graph whose vertices are the groups: int64 [ops] from 0, every number used, acyclic between groups.

    All edges from one group to another become one, with the sum of their bytes (`cache`: one for each tensor). A
    colocation group is what its operators belong to, joined where a vertex has operators of several.
    """
    vertices = int(group.max()) + 1
    crossing = group[graph.edges[:, 0]] != group[graph.edges[:, 1]]
    source, reader = graph.edges[crossing].T
    size = graph.edge_bytes[crossing]
    ends = np.stack([group[source], group[reader]], axis=1)
    if cache:
        _, tensor = np.unique(np.stack([source, graph.tensor[crossing]], axis=1), axis=0, return_inverse=True)
        rows, edge = np.unique(np.column_stack([ends, tensor]), axis=0, return_inverse=True)
        edge_bytes, tensor = np.zeros(len(rows)), rows[:, 2]
        np.maximum.at(edge_bytes, edge, size)
    else:
        rows, edge = np.unique(ends, axis=0, return_inverse=True)
        edge_bytes, tensor = np.zeros(len(rows)), np.arange(len(rows))
        np.add.at(edge_bytes, edge, size)
    kind = np.full(vertices, -1)
    np.maximum.at(kind, group, graph.device_kind)
    return PlacementGraph(
        work_s=_summed(graph.work_s, group, vertices),
        memory_bytes=_summed(graph.memory_bytes, group, vertices),
        edges=rows[:, :2],
        edge_bytes=edge_bytes,
        colocate=_joined(graph.colocate, group, vertices),
        device_kind=kind,
        kept_bytes=_summed(graph.kept_bytes, group, vertices),
        tensor=tensor,
    )


def _summed(values: np.ndarray, group: np.ndarray, vertices: int) -> np.ndarray:
    total = np.zeros((vertices, *values.shape[1:]))
    np.add.at(total, group, values)
    return total


def _joined(colocate: np.ndarray, group: np.ndarray, vertices: int) -> np.ndarray:
    """Colocation of vertices: those that share a colocation group, directly or through others; int64 [vertices]."""
    first: dict[int, int] = {}
    parent = list(range(vertices))

    def top(vertex: int) -> int:
        while parent[vertex] != vertex:
            vertex = parent[vertex]
        return vertex

    for vertex, name in zip(group.tolist(), colocate.tolist(), strict=True):
        if name >= 0:
            a, b = sorted((top(vertex), top(first.setdefault(name, vertex))))
            parent[b] = a
    tops = np.array([top(vertex) for vertex in range(vertices)])
    counts = np.bincount(tops, minlength=vertices)
    return np.where(counts[tops] > 1, tops, -1)
