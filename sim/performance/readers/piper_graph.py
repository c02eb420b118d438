"""Graphs of Piper (Tarnawski et al. 2021, NeurIPS): JSON, each node with its cost by degree of tensor parallelism.

`nodes` have `id`, `name` and `TMPCs`: degree -> ways to run the node, 'vanilla' or 'activation recomp', each with
`timePerSample` (forward and backward), `parameterSize` [bytes], `memoryUsageA` [bytes for each micro-batch in
flight]; `edges` have `sourceId`, `destId`, `communicationCost` [bytes].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.readers.files import member, node_id, number, parse_json, read_bytes, records
from sim.performance.readers.profiled import FILE_VALUE_BYTES, Node, keyed, profiled_graph, with_degrees

LONG_S = 1.0
"""No operator of a real model takes this long for a sample; some of Piper's own files are in ms per minibatch."""
_DEGREE = re.compile(r"[1-9]\d{0,4}", re.ASCII)
_UNITS_S = {"s": 1.0, "ms": 1e-3}


def _degrees(nodes: list[Any], degree: int | None, source: str) -> list[int]:
    """The degrees that are read, the graph's own first: the one asked for, or all that each node has."""
    found: list[set[int]] = []
    for i, record in enumerate(nodes):
        place = f"{source}, node {i}"
        by_degree = member(record, "TMPCs", place)
        if not isinstance(by_degree, Mapping) or str(degree or 1) not in by_degree:
            raise PerformanceError(
                f"no cost for {degree or 1}-way tensor parallelism", where=place,
                allowed=", ".join(by_degree) if isinstance(by_degree, Mapping) else "",
            )  # fmt: skip
        found.append({int(ways) for ways in by_degree if _DEGREE.fullmatch(ways)})
    return [degree] if degree is not None else sorted(set.intersection(*found))


def _node(record: Any, degree: int, unit_s: float, place: str) -> Node:
    key = node_id(member(record, "id", place), place)
    place = f"{place} (id {key})"
    ways = {str(member(way, "id", place)): way for way in records(record["TMPCs"], str(degree), place)}
    if "vanilla" not in ways:
        raise PerformanceError("no way to run the node is called 'vanilla'", where=place, got=list(ways))
    way = ways["vanilla"]
    time, params, stored_bytes = (
        number(member(way, name, place), name, place) for name in ("timePerSample", "parameterSize", "memoryUsageA")
    )
    # Recomputation is one more forward pass.
    fwd = time / 3
    if again := ways.get("activation recomp"):
        fwd = number(member(again, "timePerSample", place), "timePerSample", place) - time
        if not 0 <= fwd <= time * (1 + 1e-9):
            raise PerformanceError(
                "the forward pass that recomputation adds takes no time that it could",
                where=place,
                got=fwd,
                allowed=f"0 to {time}, the time of both passes",
            )
    name = f"{key} {record.get('name', '')}".strip()
    fwd_s, bwd_s = fwd * unit_s, (time - fwd) * unit_s
    return Node(key, name, place, fwd_s, bwd_s, 0.0, params / FILE_VALUE_BYTES, stored_bytes, rank=key)


def read_piper(
    path: Path, *, samples: float | None = None, gpu: str = "", degree: int | None = None, time_unit: str | None = None
) -> OperatorGraph:
    """The graph of a Piper file, with its times.

    The forward time is what recomputation adds to the whole; where a file lacks it, a third of the whole. Nodes
    that read nothing, take no time and have no parameters are inputs. Where edges from one node differ, its output
    is as large as the largest.

    Parameters
    ----------
    samples : samples that the times are for; None: a sample of the graph is what the file calls one.
    gpu : GPU type it was timed on; the file does not tell.
    degree : the one degree of tensor parallelism whose costs are read, as if they were a GPU's own; None: all that
        each node has, the sums over the GPUs in their times.
    time_unit : 's' or 'ms'; None: seconds, refused where an operator would take `LONG_S` or more.

    Raises
    ------
    PerformanceError
        The file is not such a graph, or lacks the degree; with file and node or edge.
    """
    source = str(path)
    document = parse_json(read_bytes(path), source)
    if time_unit is not None and time_unit not in _UNITS_S:
        raise PerformanceError("not a unit of time", where=source, got=time_unit, allowed="'s' or 'ms'")
    unit_s = _UNITS_S[time_unit or "s"]
    listed = list(records(document, "nodes", source))
    degrees = _degrees(listed, degree, source)
    by_degree = {
        ways: [_node(record, ways, unit_s, f"{source}, node {i}") for i, record in enumerate(listed)]
        for ways in degrees
    }
    nodes = by_degree[degrees[0]]
    slowest = max(nodes, key=lambda node: node.fwd_s + node.bwd_s)
    if time_unit is None and slowest.fwd_s + slowest.bwd_s >= LONG_S:
        raise PerformanceError(
            "as seconds, the time of an operator is too long",
            where=slowest.place,
            got=slowest.fwd_s + slowest.bwd_s,
            todo="Say time_unit='ms' if the file's times are in milliseconds, or time_unit='s' if they are right.",
        )
    by_key, edges = keyed(nodes), []
    for i, record in enumerate(records(document, "edges", source)):
        place = f"{source}, edge {i}"
        ends = [node_id(member(record, end, place), place) for end in ("sourceId", "destId")]
        edges.append((ends[0], ends[1], place))
        num_bytes = number(member(record, "communicationCost", place), "communicationCost", place)
        if ends[0] in by_key:
            by_key[ends[0]].out_bytes = max(by_key[ends[0]].out_bytes, num_bytes)
    reading = {reader for _, reader, _ in edges}
    for node in nodes:
        node.is_input = node.key not in reading and not (node.fwd_s or node.bwd_s or node.params)
    name = path.name.removesuffix(".json")
    graph = profiled_graph(source, name, nodes, edges, samples=samples, gpu=gpu)
    return with_degrees(graph, {ways: by_degree[ways] for ways in degrees[1:]}, nodes)
