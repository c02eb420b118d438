"""From a model to the graph of one training step: each operator forward, and once more backward."""

from __future__ import annotations

import numpy as np

from policies.place.placement_problem import PlacementError, PlacementGraph
from sim.performance.graph import VALUE_BYTES, OperatorGraph


def training_step(
    fwd_s: np.ndarray,
    bwd_s: np.ndarray,
    out_bytes: np.ndarray,
    kept_bytes: np.ndarray,
    edges: np.ndarray,
    *,
    gradients_apart: bool = True,
) -> PlacementGraph:
    """Operators 0 to n - 1 forward, n to 2 n - 1 backward; each pair is colocated, as are weights and gradients.

    Edge (u, v) has a mirror (n + v, n + u), the gradient of u's output, of as many bytes. What the backward operator
    needs of its own forward one is edge (u, n + u). Outputs forward and gradients are kept until they are read.

    Parameters
    ----------
    fwd_s, bwd_s : float64 [n], or [n, kinds of device].
    out_bytes : float64 [n], output of each operator.
    kept_bytes : float64 [n], weights and what belongs to them (gradients, optimizer state).
    edges : int64 [E, 2], source and reader.
    gradients_apart : gradients of an operator for its several sources are tensors of their own; else they are one,
        which a device receives once, as in the graphs on which Baechi was run for comparison.
    """
    n, edges = len(fwd_s), np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    op, crossing = np.arange(n), np.asarray(out_bytes)[edges[:, 0]]
    tensor = np.zeros(2 * len(edges) + n, dtype=np.int64)
    if gradients_apart:
        tensor[len(edges) : 2 * len(edges)] = edges[:, 0]
    return PlacementGraph(
        work_s=np.concatenate([fwd_s, bwd_s]),
        memory_bytes=np.tile(out_bytes, 2),
        edges=np.concatenate([edges, n + edges[:, ::-1], np.column_stack([op, n + op])]),
        edge_bytes=np.concatenate([crossing, crossing, out_bytes]),
        colocate=np.tile(op, 2),
        kept_bytes=np.concatenate([kept_bytes, np.zeros(n)]),
        tensor=tensor,
    )


def profiled_step(graph: OperatorGraph, *, bytes_per_parameter: float = 4.0) -> PlacementGraph:
    """The training step of a graph with measured times (`graph.profile`), for the samples that were timed.

    Parameters
    ----------
    bytes_per_parameter : kept for each weight; 4: the weight in single precision.

    Raises
    ------
    PlacementError
        The graph has no measured times.
    """
    if graph.profile is None:
        raise PlacementError("the graph has no measured times", where=f"model {graph.name!r}")
    _, timing = graph.profile.only()
    out_bytes = graph.out_bytes * timing.samples * graph.profile.value_bytes / VALUE_BYTES
    pairs = [(source, op) for op, sources in enumerate(graph.inputs) for source in sources if source >= 0]
    return training_step(
        timing.fwd_s, timing.bwd_s, out_bytes, graph.weight_params * bytes_per_parameter, np.array(pairs),
    )
