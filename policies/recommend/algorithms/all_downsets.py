"""Down-sets of an operator graph: all the ways to cut it so that nothing flows backward.

A *down-set* (ideal) holds, with an operator, all that the operator reads. A chain of down-sets 0 = D_0 < ... < D_p =
all cuts the graph into p stages D_s - D_{s-1}, each of which reads only itself and stages before it; listed stage by
stage, the operators are in a topological order in which every stage is consecutive. So a model that branches has as
many cuts as down-sets, and a chain has one a gap (Tarnawski et al. 2020, section 5.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.downset_walks import down_sets as list_down_sets

LIMIT = 100_000
"""Down-sets that are listed before it is said that there are too many."""

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class DownSets:
    """All down-sets of a graph of groups of operators.

    Attributes
    ----------
    groups : operators of each group, ascending; groups are in a topological order.
    sets : uint64 [I, words], groups in each down-set, as bits; the empty one first, all last, smaller ones first.
    first_above : int64 [I + 1], with the next two the steps from a down-set to those with one group more.
    group_above, above : int64 [steps]; set i and group_above[s] are set above[s], first_above[i] <= s <
        first_above[i + 1].
    """

    groups: Groups
    sets: np.ndarray
    first_above: np.ndarray
    group_above: np.ndarray
    above: np.ndarray

    def __len__(self) -> int:
        return len(self.sets)

    @cached_property
    def members(self) -> np.ndarray:
        """bool [I, groups]: whether a down-set holds a group."""
        bits = np.unpackbits(self.sets.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        return bits[:, : len(self.groups)].astype(bool)

    @cached_property
    def below(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The steps from above: first [I + 1], and the set and the group that it lacks [steps], as int64."""
        order = np.argsort(self.above, kind="stable")
        from_set = np.repeat(np.arange(len(self)), np.diff(self.first_above))
        first = np.searchsorted(self.above[order], np.arange(len(self) + 1)).astype(np.int64)
        return first, from_set[order].astype(np.int64), self.group_above[order]

    def stages(self, chain: Sequence[int]) -> Groups:
        """Operators of each stage of a chain of down-sets, in a topological order.

        `chain` names down-sets, each within the next; the empty one may be left out.
        """
        inside = np.vstack([np.zeros(len(self.groups), dtype=bool), self.members[list(chain)]])
        if (inside[:-1] > inside[1:]).any():
            raise RecommendError("this is no chain of down-sets", got=list(chain), allowed="each within the next")
        return tuple(
            tuple(op for g in np.flatnonzero(after & ~before) for op in self.groups[g])
            for before, after in pairwise(inside)
        )

    def order(self, chain: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Operators in the topological order of a chain's stages, and the place where each stage begins."""
        stages = self.stages(chain)
        starts = np.cumsum([0, *map(len, stages)])[:-1]
        return tuple(op for stage in stages for op in stage), tuple(starts.tolist())


def group(inputs: Sequence[Sequence[int]], labels: Sequence[int] | np.ndarray | None = None) -> tuple[Groups, Groups]:
    """Operators contracted into groups, and the groups that each group reads; both in a topological order.

    Operators of one label are together, and so are all on a path that leaves a group and comes back to it
    (strongly connected components): what is left is a DAG.

    Parameters
    ----------
    inputs : operators that each one reads; negative: not an operator (the sample).
    labels : of each operator (default: each by itself).
    """
    n = len(inputs)
    label = np.unique(np.arange(n) if labels is None else np.asarray(labels), return_inverse=True)[1]
    edges = np.array([(s, op) for op, sources in enumerate(inputs) for s in sources if s >= 0], dtype=np.int64)
    source, reader = label[edges.reshape(-1, 2)].T
    count = int(label.max()) + 1 if n else 0
    graph = csr_array((np.ones(len(source)), (source, reader)), shape=(count, count))
    component = connected_components(graph, directed=True, connection="strong")[1][label] if n else label
    read: list[set[int]] = [set() for _ in range(count)]
    for s, r in zip(component[edges.reshape(-1, 2)[:, 0]], component[edges.reshape(-1, 2)[:, 1]], strict=True):
        if s != r:
            read[r].add(int(s))
    members: list[list[int]] = [[] for _ in range(count)]
    for op, c in enumerate(component.tolist()):
        members[c].append(op)
    return _sorted(members, read)


def _sorted(members: list[list[int]], read: list[set[int]]) -> tuple[Groups, Groups]:
    """Groups that have members, in a topological order (depth first, by first member), and what each reads."""
    place: dict[int, int] = {}
    for root in sorted((c for c, ops in enumerate(members) if ops), key=lambda c: members[c][0]):
        stack = [root]
        while stack:
            c = stack[-1]
            missing = [s for s in sorted(read[c], key=lambda s: members[s][0]) if s not in place]
            if missing:
                stack.append(missing[0])
                continue
            stack.pop()
            if c not in place:
                place[c] = len(place)
    in_order = sorted(place, key=place.__getitem__)
    return (tuple(tuple(members[c]) for c in in_order),
            tuple(tuple(sorted(place[s] for s in read[c])) for c in in_order))


def down_sets(
    inputs: Sequence[Sequence[int]], labels: Sequence[int] | np.ndarray | None = None, *, limit: int = LIMIT
) -> DownSets | None:
    """All down-sets of a graph of operators, or None: there are more than `limit`, found in time ~ limit.

    Parameters
    ----------
    inputs, labels : see `group`.
    """
    return down_sets_of(*group(inputs, labels), limit=limit)


def down_sets_of(groups: Groups, read: Groups, *, limit: int = LIMIT) -> DownSets | None:
    """`down_sets` of groups in a topological order, each of which reads the groups `read`."""
    n = len(groups)
    first_parent, parents = _rows(read)
    readers: list[list[int]] = [[] for _ in range(n)]
    for g, sources in enumerate(read):
        for s in sources:
            readers[s].append(g)
    first_child, children = _rows(readers)
    keys = np.random.default_rng([0, 0]).integers(0, 2**63, n, dtype=np.int64).astype(np.uint64)
    found = list_down_sets(first_parent, parents, first_child, children, keys, int(limit))
    return DownSets(groups, *found) if len(found[0]) else None


def _rows(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Lists as one array and where each begins."""
    first = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return first, np.array([x for row in lists for x in row], dtype=np.int64)


def coarsen(inputs: Sequence[Sequence[int]], weight: Sequence[float], *, limit: int = LIMIT) -> tuple[int, ...]:
    """Labels of operators under which there are at most `limit` down-sets, with as many groups as can be.

    The lightest pair of a group and its first reader goes together, again and again; nothing else lies on a path
    between the two, so the graph stays a DAG. The more pairs, the fewer down-sets: bisection finds how many.

    Parameters
    ----------
    weight : of each operator, what a group should have little of.
    """
    merges = list(_merges(inputs, weight))

    def labels(count: int) -> tuple[int, ...]:
        label = list(range(len(inputs)))
        for u, v in reversed(merges[:count]):  # u goes to v, which may go on to another later
            label[u] = label[v]
        return tuple(label)

    enough = bisect_left(
        range(len(merges)), True, key=lambda count: down_sets(inputs, labels(count), limit=limit) is not None
    )
    found = labels(enough)
    return found if down_sets(inputs, found, limit=limit) is not None else (0,) * len(inputs)


def _merges(inputs: Sequence[Sequence[int]], weight: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Pairs of operators whose groups go together, lightest first: (operator of one, of its first reader)."""
    groups, read = group(inputs)
    if len(groups) < len(inputs):
        raise RecommendError("the operators read one another in a circle", where="coarsen")
    heavy = [float(weight[members[0]]) for members in groups]
    # A group and its first reader, in this order, can stand where the reader stands: nothing between needs the group.
    reads = [set(sources) for sources in read]
    readers: list[set[int]] = [set() for _ in groups]
    for g, sources in enumerate(read):
        for s in sources:
            readers[s].add(g)
    heap = [(heavy[u] + heavy[min(r)], u, min(r)) for u, r in enumerate(readers) if r]
    heapify(heap)
    gone: set[int] = set()
    while heap:
        together, u, v = heappop(heap)
        if u in gone or v in gone or v != min(readers[u], default=-1) or together != heavy[u] + heavy[v]:
            continue
        yield groups[u][0], groups[v][0]
        gone.add(u)
        heavy[v] = together
        for s in reads[u]:
            readers[s].discard(u)
            readers[s].add(v)
        for r in readers[u] - {v}:
            reads[r].discard(u)
            reads[r].add(v)
        reads[v] = (reads[v] | reads[u]) - {u}
        readers[v] |= readers[u] - {v}
        for g in (v, *reads[v]):
            if readers[g]:
                heappush(heap, (heavy[g] + heavy[min(readers[g])], g, min(readers[g])))
