"""Graphs of dnn-partitioning (Tarnawski et al. 2020, NeurIPS): JSON with the times of an accelerator, called FPGA.

`nodes` have `id`, `name`, `fpgaLatency` [ms], `size` [bytes], `isBackwardNode`, `colorClass` (what must share a
device); `edges` have `sourceId`, `destId`, `size` [bytes of the source's output]. Their `cost` is the time of a
transfer at 2 GiB/s, in ms in most files and in s in those of layers for throughput, so it is not read.
"""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.readers.files import member, node_id, number, parse_json, read_bytes, records
from sim.performance.readers.profiled import (
    FILE_VALUE_BYTES,
    Node,
    check_edges,
    keyed,
    profiled_graph,
    topological,
)

Edges = list[tuple[Hashable, Hashable, str]]


@dataclass
class _File:
    """A file as it is: `nodes` in its order, with `out_bytes` from the edges; `size`, `color` by id."""

    nodes: dict[Hashable, Node]
    backward: set[Hashable]
    edges: Edges
    size: dict[Hashable, float] = field(default_factory=dict)
    color: dict[Hashable, Hashable] = field(default_factory=dict)


def _load(document: Any, source: str) -> _File:
    nodes: list[Node] = []
    backward: set[Hashable] = set()
    size: dict[Hashable, float] = {}
    color: dict[Hashable, Hashable] = {}
    for i, record in enumerate(records(document, "nodes", source)):
        place = f"{source}, node {i}"
        key = node_id(member(record, "id", place), place)
        place = f"{source}, node id {key}"
        is_backward = member(record, "isBackwardNode", place)
        if is_backward not in (0, 1):
            raise PerformanceError("isBackwardNode is no truth value", where=place, got=is_backward)
        if is_backward:
            backward.add(key)
        size[key] = number(member(record, "size", place), "size", place)
        color[key] = record.get("colorClass")
        if not isinstance(color[key], Hashable):
            raise PerformanceError("colorClass is not a number", where=place, got=color[key])
        time_s = number(member(record, "fpgaLatency", place), "fpgaLatency", place) / 1e3
        name = f"{key} {record.get('name', '')}".strip()
        nodes.append(Node(key, name, place, time_s, 0.0, 0.0, 0.0, 0.0, rank=key))
    by_key = keyed(nodes)
    edges: Edges = []
    for i, record in enumerate(records(document, "edges", source)):
        place = f"{source}, edge {i}"
        ends = [node_id(member(record, end, place), place) for end in ("sourceId", "destId")]
        edges.append((ends[0], ends[1], place))
        num_bytes = number(member(record, "size", place), "size", place)
        # A backward node sends each reader what is its own; an output is what the forward ones are sent.
        if ends[0] in by_key and ends[0] not in backward:
            by_key[ends[0]].out_bytes = max(by_key[ends[0]].out_bytes, num_bytes)
    return _File(by_key, backward, edges, size, color)


def _forward_of(file: _File, sources: dict[Hashable, list[Hashable]]) -> dict[Hashable, Hashable]:
    """Forward node to which each backward node's time goes.

    That of its colour which reads something and takes longest; without any, that of the nearest node it reads
    (ties: first in the file), of the nearest that reads it, or the last forward node.
    """
    best: dict[Hashable, Hashable] = {}

    def rank(key: Hashable) -> tuple[bool, float]:
        return bool(sources[key]), file.nodes[key].fwd_s  # weights, which read nothing, have no backward time

    for key in file.nodes:
        color = file.color[key]
        if key not in file.backward and color is not None and (color not in best or rank(key) > rank(best[color])):
            best[color] = key
    found = {key: best[file.color[key]] for key in file.nodes if key in file.backward and file.color[key] in best}
    readers: dict[Hashable, list[Hashable]] = defaultdict(list)
    for reader, of in sources.items():
        for source in of:
            readers[source].append(reader)
    last = [key for key in file.nodes if key not in file.backward][-1:]
    paired = dict(found)
    for key in file.nodes:
        if key in file.backward and key not in paired:
            near = [_nearest(key, along, file.backward, paired) for along in (sources, readers)]
            found[key] = (near[0] or near[1] or last)[0]
    return found


def _nearest(
    start: Hashable,
    neighbours: dict[Hashable, list[Hashable]],
    backward: set[Hashable],
    paired: dict[Hashable, Hashable],
) -> list[Hashable]:
    """Breadth first: the first node met that is forward, or whose forward node is known; [] for none."""
    queue, seen = deque([start]), {start}
    while queue:
        for key in neighbours.get(queue.popleft(), []):
            if key not in backward:
                return [key]
            if key in paired:
                return [paired[key]]
            if key not in seen:
                seen.add(key)
                queue.append(key)
    return []


def _set_sizes(file: _File, sources: dict[Hashable, list[Hashable]], edges: Edges) -> Edges:
    """Tell weights from activations in `size`, which is the sum of both; returns the edges without weights' own.

    In a graph of operators weights are nodes: they read nothing, take no time and are as large as their output.
    Each goes to the first node that reads it. In a graph of layers, which has no such node, what exceeds the
    output is weights. The output of a node that nobody reads is not in the file: then all of `size` is weights if
    the node takes time, and output if it takes none.

    Warns
    -----
    UserWarning
        A layer that takes time has no reader: its weights are counted with its output, too high.
    """
    forward = [node for key, node in file.nodes.items() if key not in file.backward]
    weights = {node.key for node in forward if not (sources[node.key] or node.fwd_s or node.bwd_s)}
    operators = any(file.size[key] for key in weights)
    readers = {source for source, _, _ in file.edges}
    for node in forward:
        if node.key in weights:
            node.is_input, node.out_bytes = True, 0.0
            continue
        size = file.size[node.key]
        if node.key not in readers and not node.fwd_s:
            node.out_bytes = size
        elif node.key not in readers and not operators and size:
            warnings.warn(
                f"{node.place}: its output is not in the file and counts as weights, {size:g} bytes with them",
                stacklevel=3,
            )
        node.stored_bytes = max(size, node.out_bytes) if operators else node.out_bytes
        node.params = 0.0 if operators else max(0.0, size - node.out_bytes) / FILE_VALUE_BYTES
    owned: set[Hashable] = set()
    for source, reader, _ in edges:
        if source in weights and source not in owned:
            owned.add(source)
            file.nodes[reader].params += file.size[source] / FILE_VALUE_BYTES
    return [edge for edge in edges if edge[0] not in weights]


def read_dnn_partitioning(path: Path, *, samples: float | None = None, gpu: str = "") -> OperatorGraph:
    """The forward operators of a dnn-partitioning graph, each with the time of its backward nodes.

    A backward node belongs to the forward node of its `colorClass`; those without partner (sums of gradients,
    optimizer steps of shared weights) to the nearest node they read. No time is lost. A graph without backward
    nodes is one of inference: its backward times are NaN, unknown.

    Parameters
    ----------
    samples : size of the minibatch that was timed; None: a sample of the graph is that minibatch.
    gpu : GPU type it was timed on; the file does not tell.

    Raises
    ------
    PerformanceError
        The file is not such a graph; with file and node or edge.
    """
    source = str(path)
    document = parse_json(read_bytes(path), source)
    file = _load(document, source)
    if len(file.backward) == len(file.nodes):
        raise PerformanceError("the graph has backward nodes only", where=source)
    sources = check_edges({key: node.place for key, node in file.nodes.items()}, file.edges)
    topological(file.nodes, sources)
    for key, of in _forward_of(file, sources).items():
        file.nodes[of].bwd_s += file.nodes[key].fwd_s
    edges = [edge for edge in file.edges if edge[0] not in file.backward and edge[1] not in file.backward]
    edges = _set_sizes(file, sources, edges)
    forward = [node for key, node in file.nodes.items() if key not in file.backward]
    if not file.backward:
        for node in forward:
            node.bwd_s = float("nan")
    return profiled_graph(source, path.name.removesuffix(".json"), forward, edges, samples=samples, gpu=gpu)
