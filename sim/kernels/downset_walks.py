"""Down-sets of a DAG: listing them, and dynamic programs over chains of them.

A down-set holds, with a vertex, all that the vertex needs. It is a row of 64-bit words, and its number grows with
its size, so that each comes after those it contains. `down_sets` lists them with the vertices that can be added to
each; `lattice` chooses a chain of down-sets, whose differences are the stages of a pipeline.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@jit
def holds(row: np.ndarray, vertex: int) -> bool:
    """Whether a row of words holds a vertex."""
    return (row[vertex >> 6] >> np.uint64(vertex & 63)) & np.uint64(1) != 0


@jit
def down_sets(
    first_parent: np.ndarray, parents: np.ndarray, first_child: np.ndarray, children: np.ndarray,
    keys: np.ndarray, limit: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All down-sets of a DAG, smaller ones first, and the steps from each to those with one vertex more.

    Parameters
    ----------
    first_parent, parents : int64 [n + 1], int64 [edges]
        Vertex v needs parents[first_parent[v]:first_parent[v + 1]], each once.
    first_child, children : int64 [n + 1], int64 [edges]
        The same edges from the other end.
    keys : uint64 [n]
        Random words, one a vertex: a set's hash is the xor of its vertices' (Zobrist).
    limit : int
        Sets that may be listed.

    Returns
    -------
    sets : uint64 [I, words]
        I = 0: there are more than `limit`.
    first_above : int64 [I + 1]
    vertex_above, above : int64 [steps]
        Set i with vertex_above[s] added is set above[s], for s in first_above[i]:first_above[i + 1].
    """
    n = len(first_parent) - 1
    words = max(1, (n + 63) >> 6)
    sets = np.zeros((min(limit, 64), words), dtype=np.uint64)
    hashes = np.zeros(len(sets), dtype=np.uint64)
    first_above = np.zeros(len(sets) + 1, dtype=np.int64)
    vertex_above = np.empty(256, dtype=np.int64)
    above = np.empty(256, dtype=np.int64)
    maker = np.zeros(len(sets), dtype=np.int64)  # a step that leads to the set; -1 for the empty one
    maker[0] = -1
    slots = np.full(256, -1, dtype=np.int64)
    ready = np.empty(n, dtype=np.int64)
    count, steps, i = 1, 0, 0
    source = np.zeros(len(sets), dtype=np.int64)
    while i < count:
        # Vertices that can be added: those of the set this one came from, without the one that was added, and
        # the children of that one which now have all their parents.
        ready_n = 0
        if i == 0:
            for v in range(n):
                if first_parent[v] == first_parent[v + 1]:
                    ready[ready_n] = v
                    ready_n += 1
        else:
            added, old = vertex_above[maker[i]], source[i]
            for s in range(first_above[old], first_above[old + 1]):
                if vertex_above[s] != added:
                    ready[ready_n] = vertex_above[s]
                    ready_n += 1
            for c in range(first_child[added], first_child[added + 1]):
                child = children[c]
                complete = True
                for p in range(first_parent[child], first_parent[child + 1]):
                    if not holds(sets[i], parents[p]):
                        complete = False
                        break
                if complete:
                    ready[ready_n] = child
                    ready_n += 1
        if steps + ready_n > len(above):
            vertex_above = np.concatenate((vertex_above, np.empty(steps + ready_n, dtype=np.int64)))
            above = np.concatenate((above, np.empty(steps + ready_n, dtype=np.int64)))
        for r in range(ready_n):
            v = ready[r]
            word, bit = v >> 6, np.uint64(1) << np.uint64(v & 63)
            key = hashes[i] ^ keys[v]
            mask = len(slots) - 1
            slot = np.int64(key & np.uint64(mask))
            found = -1
            while slots[slot] >= 0:
                j = slots[slot]
                if hashes[j] == key:
                    same = True
                    for w in range(words):
                        if sets[j, w] != (sets[i, w] | bit if w == word else sets[i, w]):
                            same = False
                            break
                    if same:
                        found = j
                        break
                slot = (slot + 1) & mask
            if found < 0:
                if count == limit:
                    return sets[:0], first_above[:1], vertex_above[:0], above[:0]
                if count == len(sets):
                    grown = np.zeros((min(limit, 2 * count), words), dtype=np.uint64)
                    grown[:count] = sets
                    sets = grown
                    more = len(sets) - count
                    hashes = np.concatenate((hashes, np.zeros(more, dtype=np.uint64)))
                    maker = np.concatenate((maker, np.zeros(more, dtype=np.int64)))
                    source = np.concatenate((source, np.zeros(more, dtype=np.int64)))
                    first_above = np.concatenate((first_above, np.zeros(more, dtype=np.int64)))
                sets[count] = sets[i]
                sets[count, word] |= bit
                hashes[count], maker[count], source[count] = key, steps, i
                found = count
                slots[slot] = found
                count += 1
                if 2 * count > len(slots):
                    slots = np.full(2 * len(slots), -1, dtype=np.int64)
                    mask = len(slots) - 1
                    for j in range(1, count):
                        slot = np.int64(hashes[j] & np.uint64(mask))
                        while slots[slot] >= 0:
                            slot = (slot + 1) & mask
                        slots[slot] = j
            vertex_above[steps], above[steps] = v, found
            steps += 1
        first_above[i + 1] = steps
        i += 1
    return sets[:count].copy(), first_above[: count + 1].copy(), vertex_above[:steps].copy(), above[:steps].copy()


@part
def contains(big: np.ndarray, small: np.ndarray) -> bool:
    """Whether a row of words holds all vertices of another."""
    outside = np.uint64(0)
    for w in range(len(big)):
        outside |= small[w] & ~big[w]
    return outside == np.uint64(0)


@part
def entries(last: np.ndarray, border: np.ndarray, smaller: np.ndarray) -> np.ndarray:
    """What a next stage of each type finds after a set: [T, V], min over types p of max(last[p], border[p]).

    inf where a smaller vector finds as little: it leads to all that this one leads to, on fewer units.
    """
    types, count_v = last.shape
    found = np.full((types, count_v), np.inf)
    for t in range(types):
        within = np.full(count_v, np.inf)  # the least at a vector or a smaller one, which comes before it
        for v in range(count_v):
            for s in range(types):
                if smaller[v, s] >= 0:
                    within[v] = min(within[v], within[smaller[v, s]])
            for p in range(types):
                found[t, v] = min(found[t, v], max(last[p, v], border[p, t]))
            if found[t, v] < within[v]:
                within[v] = found[t, v]
            else:
                found[t, v] = np.inf
    return found


@jit
def lattice(
    sets: np.ndarray, cost: np.ndarray, fixed: np.ndarray, memory: np.ndarray,
    border: np.ndarray, step: np.ndarray, smaller: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Least period of a chain of down-sets for every vector of units, and how it is reached.

    D[i, t, v], of plans for set i on the units v whose last stage is on type t, is the least over sets j within i and
    sizes q of max(D[j, p, v - q of t], border[j, p, t], stage), stage = fixed[t, q] + cost[i, t, q] - cost[j, t, q].

    Parameters
    ----------
    sets : uint64 [I, words]
        Down-sets, smaller ones first; the last one holds all.
    cost : float64 [I, T, Q], s
        Sum over the vertices of a set of what each takes as part of a stage on `units[q]` units of type t.
    fixed : float64 [T, Q], s
        What a stage takes beside; inf: that option is not there.
    memory : float64 [I, T, Q]
        Sum over the vertices of a set of what each holds on a unit, as a share of its memory; a stage fits up to 1.
    border : float64 [I, T, T], s
        Transfer at the cut after a set, from type t to type t of the next stage.
    step : int64 [V, T, Q]
        See `sim.kernels.partition`; vectors are in lexicographic order, vectors[0] is zero.
    smaller : int64 [V, T]
        Index of vectors[v] with one unit less of type t, or -1.

    Returns
    -------
    best : float64 [I, T, V]
        D; inf: none, or none that beats a plan of the same last type on fewer units.
    back : int64 [I, T, V]
        j x Q + q.
    """
    count, types, sizes = cost.shape
    count_v = len(step)
    best = np.full((count, types, count_v), np.inf)
    back = np.full((count, types, count_v), -1, dtype=np.int64)
    reach = np.full((count, types, count_v), np.inf)
    reach[0, :, 0] = 0.0
    for i in range(1, count):
        for j in range(i - 1, -1, -1):
            if not contains(sets[i], sets[j]):
                continue
            for t in range(types):
                for q in range(sizes):
                    stage = fixed[t, q] + cost[i, t, q] - cost[j, t, q]
                    if not (stage < np.inf and memory[i, t, q] - memory[j, t, q] <= 1 + 1e-9):
                        continue
                    for v in range(count_v):
                        value = max(reach[j, t, v], stage)
                        u = step[v, t, q]
                        if u >= 0 and value < best[i, t, u]:
                            best[i, t, u], back[i, t, u] = value, j * sizes + q
        reach[i] = entries(best[i], border[i], smaller)
    return best, back
