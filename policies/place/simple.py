"""Placements without search: one device, blocks of equal work, and layers in turn, as people place by hand.

None gives an order: devices run operators as they become ready (`execute`, priority None) unless `priority` says more.
"""

from __future__ import annotations

import numpy as np

from policies.place.placement_problem import (
    Devices,
    PlacementError,
    PlacementGraph,
    Schedule,
    execute,
    groups,
    work_by_device,
)


def single(graph: PlacementGraph, devices: Devices) -> Schedule:
    """All on one device: the one on which it is fastest, of those with memory enough if there is one.

    Raises
    ------
    PlacementError
        No device may run all of it.
    """
    work = work_by_device(graph, devices)
    able = np.flatnonzero(np.isfinite(work).all(axis=0))
    if not len(able):
        raise PlacementError("no one device may run all operators", todo="Place some of them elsewhere.")
    found = [execute(graph, devices, np.full(len(graph), d)) for d in able]
    return min(found, key=lambda schedule: (not schedule.fits, schedule.makespan_s))


def expert(graph: PlacementGraph, devices: Devices) -> Schedule:
    """Contiguous blocks of equal work along the topological order, one a device.

    Groups go whole, in the order of their first operator, so that a backward operator is where its forward one is. A
    group is in block b where the middle of its work lies in the b-th of D equal parts. Blocks skip devices of the wrong
    kind.
    """
    group = groups(graph)
    work = work_by_device(graph, devices)
    first = np.full(group.max(initial=-1) + 1, len(graph))
    np.minimum.at(first, group, graph.rank)
    order = np.argsort(first)
    size = np.bincount(group, weights=graph.work_s.min(axis=1))[order]
    middle = np.cumsum(size) - size / 2
    block = np.empty(len(order), dtype=np.int64)
    block[order] = np.minimum(middle / max(size.sum(), np.finfo(float).tiny) * devices.count, devices.count - 1)
    return execute(graph, devices, _allowed(block[group], work, group))


def layers(graph: PlacementGraph, devices: Devices, layer: np.ndarray) -> Schedule:
    """Layers to devices in turn, as recurrent networks are placed (Wu et al. 2016, arXiv:1609.08144, section 5).

    Parameters
    ----------
    layer : int64 [ops], layer of each operator; layer l goes to device l mod D. -1: to where the first operator is
        that it reads, and what reads nothing, where its first reader is.

    Raises
    ------
    PlacementError
        Not one layer for each operator, or a group in two of them.
    """
    layer = np.array(layer, dtype=np.int64)
    if layer.shape != (len(graph),):
        raise PlacementError("not one layer for each operator", got=layer.shape, allowed=f"({len(graph)},)")
    for (first, near), order, end in ((graph.entering, graph.order, 0), (graph.leaving, graph.order[::-1], 1)):
        for op in order[layer[order] < 0]:
            if first[op] < first[op + 1]:
                layer[op] = layer[graph.edges[near[first[op]], end]]
    device = np.maximum(layer, 0) % devices.count
    return execute(graph, devices, _allowed(device, work_by_device(graph, devices), groups(graph)))


def _allowed(device: np.ndarray, work: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The placement, with each group that must not run where it is on the first device where it may."""
    may = np.isfinite(work)
    return np.where(may[np.arange(len(device)), device], device, may.argmax(axis=1))
