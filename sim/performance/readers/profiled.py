"""From measured nodes and edges, as a file has them, to a graph with a profile."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError, Profile
from sim.performance.layer_times import Timing
from sim.performance.readers.operators import Op, assemble
from traces.errors import did_you_mean

FILE_VALUE_BYTES = 4
"""The profiles are of single precision: so many bytes have a parameter, a kept value and one that crosses a border."""

_KINDS = (
    (r"batchnorm|layernorm|groupnorm|normalization|softmax|_bn|^bn", "norm"),
    (r"conv", "conv"),
    (r"lstm|gru", "lstm"),
    (r"embedding", "embedding"),
    (r"attention", "attention"),
    (r"linear|gemm|matmul|transformerlayer|classifier", "gemm"),
    (r"pool", "pool"),
)


@dataclass
class Node:
    """A node of a profile. `place` is where the file has it; `rank` orders nodes that could come in any order."""

    key: Hashable
    name: str
    place: str
    fwd_s: float
    bwd_s: float
    out_bytes: float
    params: float
    stored_bytes: float
    rank: float = 0.0
    is_input: bool = False


def kind_of(name: str, params: float) -> str:
    """Kind of an operator by its name; where that says nothing, 'gemm' with weights and 'elementwise' without.

    Only the conversion of a profile to another GPU type looks at it.
    """
    for pattern, kind in _KINDS:
        if re.search(pattern, name.lower()):
            return kind
    return "gemm" if params else "elementwise"


def samples_of(samples: float | None) -> tuple[float, str]:
    """Samples of a profile and what a sample is: a minibatch of the profile as a whole, where nobody says."""
    if samples is None:
        return 1.0, "a minibatch of the profile"
    if isinstance(samples, bool) or not (math.isfinite(samples) and samples > 0):
        raise PerformanceError("samples of a profile must be a number above 0", got=samples)
    return float(samples), "a sample of the profile"


def check_edges(
    places: Mapping[Hashable, str], edges: Iterable[tuple[Hashable, Hashable, str]]
) -> dict[Hashable, list[Hashable]]:
    """Sources of each node, each once however often the file has the edge.

    Parameters
    ----------
    places : node -> where the file has it.
    edges : (source, reader, where the file has it).

    Raises
    ------
    PerformanceError
        An end of an edge is not a node.
    """
    sources: dict[Hashable, dict[Hashable, None]] = {key: {} for key in places}
    for source, reader, place in edges:
        for end in (source, reader):
            if end not in places:
                raise PerformanceError(
                    "an edge names a node that does not exist",
                    where=place,
                    got=end,
                    todo=did_you_mean(str(end), map(str, places)),
                )
        sources[reader][source] = None
    return {key: list(found) for key, found in sources.items()}


def keyed(nodes: Sequence[Node]) -> dict[Hashable, Node]:
    """Nodes by key.

    Raises
    ------
    PerformanceError
        Two have the same.
    """
    found: dict[Hashable, Node] = {}
    for node in nodes:
        if node.key in found:
            raise PerformanceError(
                "two nodes have the same id",
                where=node.place,
                got=node.key,
                todo=f"The first is at {found[node.key].place}.",
            )
        found[node.key] = node
    return found


def topological(nodes: Mapping[Hashable, Node], sources: Mapping[Hashable, Sequence[Hashable]]) -> list[Hashable]:
    """Nodes so that each follows what it reads; of those that could be next, the one of the smallest rank.

    Raises
    ------
    PerformanceError
        There is a cycle; the message names a node on it.
    """
    readers: dict[Hashable, list[Hashable]] = {key: [] for key in nodes}
    for reader, of in sources.items():
        for source in of:
            readers[source].append(reader)
    missing = {key: len(sources[key]) for key in nodes}
    place = {key: i for i, key in enumerate(nodes)}
    keys = list(nodes)
    ready = [(nodes[key].rank, place[key]) for key in keys if not missing[key]]
    heapq.heapify(ready)
    order: list[Hashable] = []
    while ready:
        key = keys[heapq.heappop(ready)[1]]
        order.append(key)
        for reader in readers[key]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (nodes[reader].rank, place[reader]))
    if len(order) < len(keys):
        left = {key for key in keys if missing[key]}
        at, seen = next(key for key in keys if key in left), set()
        while at not in seen:  # walking back among nodes that wait for each other ends on a cycle
            seen.add(at)
            at = next(source for source in sources[at] if source in left)
        raise PerformanceError("the graph has a cycle", where=nodes[at].place, got=nodes[at].name)
    return order


def profiled_graph(
    source: str,
    name: str,
    nodes: Sequence[Node],
    edges: Iterable[tuple[Hashable, Hashable, str]],
    *,
    samples: float | None,
    gpu: str,
    notes: tuple[str, ...] = (),
) -> OperatorGraph:
    """The graph of measured nodes, whose sizes in bytes are of values of `FILE_VALUE_BYTES`.

    The graph has them as all graphs have, of values of `VALUE_BYTES`; in the precision that was measured each is again
    as large as in the file. Input nodes are dropped: whoever reads one reads the sample (-1), as does a node without
    any source. FLOPs are NaN, since no profile has them: the times stand in their place.

    Raises
    ------
    PerformanceError
        A duplicate id, an edge to nowhere, a cycle, or nothing but inputs.
    """
    by_key = keyed(nodes)
    sources = check_edges({key: node.place for key, node in by_key.items()}, edges)
    order = [by_key[key] for key in topological(by_key, sources)]
    kept = [node for node in order if not node.is_input]
    if not kept:
        raise PerformanceError("the graph has no operator", where=source)
    number_of = {node.key: i for i, node in enumerate(kept)}
    count, sample = samples_of(samples)
    scale = VALUE_BYTES / FILE_VALUE_BYTES
    ops = [
        Op(
            node.name,
            kind_of(node.name, node.params),
            tuple(dict.fromkeys(number_of.get(of, -1) for of in sources[node.key])) or (-1,),
            node.out_bytes * scale,
            flops=math.nan,
            params=node.params,
            stored_bytes=node.stored_bytes * scale,
        )
        for node in kept
    ]
    fwd_s, bwd_s = (np.array([getattr(node, part) for node in kept]) for part in ("fwd_s", "bwd_s"))
    fwd_s.flags.writeable = bwd_s.flags.writeable = False
    sample_bytes = scale * sum(node.out_bytes for node in order if node.is_input)
    profile = Profile.of_one(fwd_s, bwd_s, count, gpu, source, notes)
    return assemble(name, sample, sample_bytes, ops, samples=count, profile=profile)


def with_degrees(
    graph: OperatorGraph, by_degree: Mapping[int, Sequence[Node]], nodes: Sequence[Node]
) -> OperatorGraph:
    """A graph of `profiled_graph` with what the same nodes take and keep on one of several GPUs that share each.

    Parameters
    ----------
    by_degree : by tensor degree, the nodes in the order of `nodes`; their outputs are those of the graph.
    nodes : the nodes of which the graph was made, by their names its operators.
    """
    assert graph.profile is not None
    gpu, one = graph.profile.only()
    place = {node.name: i for i, node in enumerate(nodes)}
    at = [place[op] for op in graph.ops]
    timings, shares = dict(graph.profile.timings), {}
    per_sample = VALUE_BYTES / FILE_VALUE_BYTES / one.samples
    for ways, of in by_degree.items():
        fwd_s, bwd_s, params, stored = (
            np.array([getattr(of[i], part) for i in at]) for part in ("fwd_s", "bwd_s", "params", "stored_bytes")
        )
        shares[ways] = {"out_bytes": graph.out_bytes, "weight_params": params, "stored_bytes": stored * per_sample}
        for array in (fwd_s, bwd_s, *shares[ways].values()):
            array.flags.writeable = False
        timings[gpu, ways] = (Timing(one.samples, fwd_s, bwd_s),)
    return replace(graph, profile=replace(graph.profile, timings=timings, shares=shares))
