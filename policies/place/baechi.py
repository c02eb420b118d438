"""The placers of Baechi (Jeon et al. 2020, SoCC): m-TOPO, m-ETF and m-SCT.

All place whole colocation groups and heed memory; what they place is run without an order of theirs, by
`execute(..., priority=None)`, as Baechi's virtual scheduler does.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from policies.place.placement_problem import (
    Devices,
    PlacementError,
    PlacementGraph,
    Schedule,
    channels,
    execute,
    groups,
    tensors,
    work_by_device,
)
from sim.kernels.place import place_earliest

FAVOURITE_BELOW = 0.1
"""An edge of m-SCT's linear program is to a favourite child where its variable is at most this (Baechi's default)."""


def m_topo(graph: PlacementGraph, devices: Devices) -> Schedule:
    """Fill one device after the other, in topological order.

    The next group goes to the current device while what is there, and what the group keeps, is below
    sum of all memory / devices + largest operator, and to the next device otherwise; the last takes the rest. A group
    that must not run there goes to the first device where it may.
    """
    need = graph.memory_bytes + graph.kept_bytes
    limit = need.sum() // devices.count + need.max(initial=0.0)
    group = groups(graph)
    kept, total = (np.bincount(group, weights=column) for column in (graph.kept_bytes, need))
    _, one = np.unique(group, return_index=True)
    may = np.isfinite(work_by_device(graph, devices))[one]
    on, used, current = np.full(len(kept), -1), np.zeros(devices.count), 0
    for g in group[graph.order]:
        if on[g] >= 0:
            continue
        bound = min(limit, devices.memory_bytes[current])
        while current < devices.count - 1 and not used[current] + kept[g] < bound:
            current += 1
            bound = min(limit, devices.memory_bytes[current])
        on[g] = current if may[g, current] else may[g].argmax()
        used[on[g]] += total[g]
    return execute(graph, devices, on[group])


def m_etf(graph: PlacementGraph, devices: Devices) -> Schedule:
    """Earliest task first: of ready operators and devices, the pair that can start first, where it fits.

    Raises
    ------
    PlacementError
        An operator fits on no device any more.
    """
    return execute(graph, devices, earliest(graph, devices)[0])


def m_sct(graph: PlacementGraph, devices: Devices, *, favourite_below: float = FAVOURITE_BELOW) -> Schedule:
    """Small communication time: as m-ETF, but a device waits for the favourite child of what it ran last.

    Favourite children come from `relaxed_favourites`; m-SCT is within (2 + 2r)/(2 + r) of the optimum with devices
    without number and memory without limit, r = longest transfer / shortest operator (Hanen and Munier 1995).

    Raises
    ------
    PlacementError
        As `m_etf`.
    """
    shortest_s = work_by_device(graph, devices).min(axis=1)
    relaxed = relaxed_favourites(graph, shortest_s, _transfer_s(graph, devices))
    child = favourite_children(graph, relaxed, favourite_below)
    return execute(graph, devices, earliest(graph, devices, child)[0])


def earliest(
    graph: PlacementGraph, devices: Devices, favourite: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Device int64 [ops] and start float64 [ops] by earliest start; favourite: int64 [ops], child or -1 (m-SCT).

    Raises
    ------
    PlacementError
        An operator fits on no device any more.
    """
    favourite = np.full(len(graph), -1) if favourite is None else favourite
    device, start = place_earliest(
        work_by_device(graph, devices), graph.memory_bytes, graph.kept_bytes, groups(graph), devices.memory_bytes,
        graph.edges, *graph.leaving, *graph.entering, tensors(graph, devices), graph.edge_bytes, devices.s_per_byte,
        devices.latency_s, *channels(devices), graph.rank, favourite,
    )
    stuck = np.isnan(start)
    if stuck.any():
        op = int(graph.order[stuck[graph.order]][0])
        raise PlacementError(
            f"{int(stuck.sum())} operators cannot be placed: memory is full", where=f"operator {op}",
            got=f"{graph.memory_bytes[op]:.0f} bytes, and {graph.kept_bytes[op]:.0f} kept",
            allowed=", ".join(f"{size:.0f}" for size in devices.memory_bytes) + " bytes in all",
        )
    return device, start


def relaxed_favourites(graph: PlacementGraph, work_s: np.ndarray, transfer_s: np.ndarray) -> np.ndarray:
    """The linear program behind m-SCT (Hanen and Munier 1995; Jeon et al. 2020, section 3.3), by HiGHS.

        min w  with  s_i + p_i + c_ij x_ij <= s_j,  s_i + p_i <= w,  0 <= x <= 1,
        sum_j x_ij >= readers of i - 1,  sum_i x_ij >= sources of j - 1

    x_ij = 0: j is the favourite child of i and no transfer lies between them. An optimum is seldom unique.

    Parameters
    ----------
    work_s, transfer_s : p, float64 [ops], and c, float64 [E].

    Returns
    -------
    x, float64 [E].
    """
    edges, ops = len(graph.edges), len(graph)
    source, reader = graph.edges.T
    e, i = np.arange(edges), np.arange(ops)
    readers, sources = np.bincount(source, minlength=ops), np.bincount(reader, minlength=ops)
    # Rows: an edge each; readers of each operator; sources of each; an end each.
    rows = np.concatenate([e, e, e, edges + source, edges + ops + reader, edges + 2 * ops + i, edges + 2 * ops + i])
    columns = np.concatenate([
        edges + source, edges + reader, e, e, e, edges + i, np.full(ops, edges + ops),
    ])
    ones_e, ones = np.ones(edges), np.ones(ops)
    values = np.concatenate([ones_e, -ones_e, transfer_s, -ones_e, -ones_e, ones, -ones])
    bound = np.concatenate([-work_s[source], 1.0 - np.maximum(readers, 1), 1.0 - np.maximum(sources, 1), -work_s])
    matrix = csr_array((values, (rows, columns)), shape=(edges + 3 * ops, edges + ops + 1))
    cost = np.zeros(edges + ops + 1)
    cost[-1] = 1.0
    limits = np.column_stack([np.zeros(len(cost)), np.concatenate([ones_e, np.full(ops + 1, np.inf)])])
    found = linprog(cost, A_ub=matrix, b_ub=bound, bounds=limits, method="highs")
    if found.x is None:
        raise PlacementError("the linear program of m-SCT was not solved", got=found.message)
    return np.asarray(found.x[:edges])


def favourite_children(graph: PlacementGraph, relaxed: np.ndarray, below: float) -> np.ndarray:
    """int64 [ops], favourite child, at most one, of at most one parent; -1: none.

    Edges with x <= `below` are gone through by source; of two of one source, or of one reader, the later wins.
    """
    child, parent = np.full(len(graph), -1), np.full(len(graph), -1)
    _, leaving = graph.leaving
    for e in leaving[relaxed[leaving] <= below]:
        source, reader = graph.edges[e]
        child[source] = reader
        if parent[reader] >= 0 and child[parent[reader]] == reader:
            child[parent[reader]] = -1
        parent[reader] = source
    return child


def _transfer_s(graph: PlacementGraph, devices: Devices) -> np.ndarray:
    """float64 [E], mean over all pairs of devices; 0 where there is one device."""
    apart = ~np.eye(devices.count, dtype=bool)
    if devices.count == 1:
        return np.zeros(len(graph.edges))
    mean_s_per_byte, mean_latency_s = (np.asarray(x)[apart].mean() for x in (devices.s_per_byte, devices.latency_s))
    return graph.edge_bytes * mean_s_per_byte + mean_latency_s
