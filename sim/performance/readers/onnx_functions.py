"""Local functions of an ONNX model: each call becomes the function's nodes, where that makes no giant of the model."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any

from sim.performance.graph import PerformanceError
from sim.performance.readers.onnx_settle import STANDARD, graphs_in

MOST_NODES = 100_000
"""Of a model, its functions in place: far more than exporters write."""
MOST_BYTES = 2**31
"""Of its nodes: no file of this format holds more."""

_Key = tuple[str, str, str]


def without_functions(model: Any, where: str) -> Any:
    """The model with the nodes of its local functions in place of their calls.

    Raises
    ------
    PerformanceError
        A function calls itself, or the calls multiply to more than `MOST_NODES` or `MOST_BYTES`.
    """
    import onnx.inliner

    if not model.functions:
        return model
    nodes, size_bytes = _inlined(model, where)
    for what, got, most in (("nodes", nodes, MOST_NODES), ("bytes", size_bytes, MOST_BYTES)):
        if got > most:
            raise PerformanceError(f"the local functions of an ONNX model call each other for too many {what}",
                                   where=where, got=got if got < 10**15 else f"{float(min(got, 10**300)):.3g}",
                                   allowed=f"up to {most:,} {what}",
                                   todo="Write the model with fewer calls, or a part of it.")
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # the inliner raises types of its own
        raise PerformanceError("the local functions of an ONNX model cannot be put in place", where=where,
                               got=" ".join(str(error).split())[:300]) from error


def _inlined(model: Any, where: str) -> tuple[int, int]:
    """Nodes of the model, and their bytes, once its functions are in place."""
    bodies = {_key(function.domain, function.name, function): function for function in model.functions}
    nodes = {key: _all_nodes(function.node) for key, function in bodies.items()}
    calls = {key: {called for called in map(_called, inside) if called in bodies} for key, inside in nodes.items()}
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        raise PerformanceError("a local function of an ONNX model calls itself", where=where,
                               got=" -> ".join(":".join(filter(None, key)) for key in error.args[1])) from None
    counts: dict[_Key, tuple[int, int]] = {}
    for key in order:
        counts[key] = _sum(nodes[key], counts)
    return _sum(_all_nodes(model.graph.node), counts)


def _sum(nodes: list[Any], counts: dict[_Key, tuple[int, int]]) -> tuple[int, int]:
    found = [counts.get(_called(node)) or (1, node.ByteSize()) for node in nodes]
    return sum(count for count, _ in found), sum(size for _, size in found)


def _all_nodes(nodes: Any) -> list[Any]:
    """Nodes, and those in their branches and bodies."""
    found = list(nodes)
    for node in found:  # the list grows meanwhile
        found += [inside for graph in graphs_in(node) for inside in graph.node]
    return found


def _called(node: Any) -> _Key:
    return _key(node.domain, node.op_type, node)


def _key(domain: str, name: str, of: Any) -> _Key:
    return "" if domain in STANDARD else domain, name, getattr(of, "overload", "")
