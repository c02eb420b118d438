"""Made graphs: JSON with `nodes`, name -> `t` [us], `par`, `out` [bytes], `group`, `bw`; `edges`: [from, to, bytes].

Node and backward node share a `group`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.readers.files import member, number, parse_json, read_bytes, records
from sim.performance.readers.profiled import FILE_VALUE_BYTES, Node, check_edges, profiled_graph, topological


def _edges(document: Any, source: str) -> list[tuple[Hashable, Hashable, str]]:
    found: list[tuple[Hashable, Hashable, str]] = []
    for i, edge in enumerate(records(document, "edges", source)):
        place = f"{source}, edge {i}"
        if not (isinstance(edge, list) and len(edge) == 3 and all(isinstance(end, str) for end in edge[:2])):
            raise PerformanceError("an edge is not [from, to, bytes]", where=place, got=edge)
        number(edge[2], "bytes of an edge", place)
        found.append((edge[0], edge[1], place))
    return found


def read_synthetic(path: Path, *, samples: float | None = None, gpu: str = "") -> OperatorGraph:
    """The forward operators of a made graph, each with the time of the backward node of its group.

    Each keeps its output. Parameters are `par` / 4.

    Parameters
    ----------
    samples : size of the minibatch that the times are for; None: a sample of the graph is that minibatch.
    gpu : GPU type that the times are for, by name.

    Raises
    ------
    PerformanceError
        The file is not such a graph; with file and node or edge.
    """
    source = str(path)
    document = parse_json(read_bytes(path), source)
    table = member(document, "nodes", source)
    if not isinstance(table, Mapping) or not table:
        raise PerformanceError("'nodes' is not a table of nodes, or is empty", where=source)
    nodes: dict[Hashable, Node] = {}
    group: dict[Hashable, str] = {}
    backward: set[Hashable] = set()
    for i, (name, record) in enumerate(table.items()):
        place = f"{source}, node {name!r}"
        group[name] = str(member(record, "group", place))
        if member(record, "bw", place):
            backward.add(name)
        time_us, params, out_bytes = (number(member(record, key, place), key, place) for key in ("t", "par", "out"))
        nodes[name] = Node(
            name, name, place, time_us / 1e6, 0.0, out_bytes, params / FILE_VALUE_BYTES, out_bytes, rank=i
        )
    edges = _edges(document, source)
    topological(nodes, check_edges({name: node.place for name, node in nodes.items()}, edges))
    forward = {group[name]: node for name, node in nodes.items() if name not in backward}
    for name in backward:
        if group[name] not in forward:
            raise PerformanceError("a backward node has no forward node in its group", where=nodes[name].place)
        forward[group[name]].bwd_s += nodes[name].fwd_s
        forward[group[name]].params += nodes[name].params
    kept = [node for name, node in nodes.items() if name not in backward]
    edges = [edge for edge in edges if edge[0] not in backward and edge[1] not in backward]
    return profiled_graph(source, path.name.removesuffix(".json"), kept, edges, samples=samples, gpu=gpu)
