"""How long operators take on one GPU, as planners cut a model by it, also where no layer was measured on one alone.

Of a model whose layers were measured a type may have no times of degree 1 (its memory is too small for it, say). Plans
of other degrees need none, but planners cut a model by the times of one GPU. There the least degree t that was
measured stands in:

    seconds on one GPU = t x seconds on one of t,

which counts the sums over the t GPUs as work. No plan is judged by it: one whose type has no times in its degree is no
plan (`Request.truth`).
"""

from __future__ import annotations

import numpy as np

from sim.performance import GpuType, Performance
from sim.performance.graph import OperatorGraph
from sim.performance.operator_time import span_update_s


def least_degree(performance: Performance, model: str, gpu: GpuType) -> int:
    """The least tensor degree in which the model's layers were measured on a type; 1 where times are modelled."""
    profile = performance.graph(model).profile
    return 1 if profile is None else profile.least_degree(gpu.name)


def measured(graph: OperatorGraph, gpu: GpuType) -> bool:
    """Whether the times of a graph (of one of so many GPUs) are known on a type: modelled, measured or predicted."""
    return graph.profile is None or graph.profile.measures(gpu.name)


def pace_s(performance: Performance, model: str, samples: float, gpu: GpuType) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each operator forward and backward on one GPU (module text): two float64 [ops].

    Raises
    ------
    PerformanceError
        The type was not measured in any degree.
    """
    ways = least_degree(performance, model, gpu)
    fwd_s, bwd_s = performance.op_times_s(model, samples, gpu, ways)
    return (fwd_s, bwd_s) if ways == 1 else (ways * fwd_s, ways * bwd_s)


def step_pace_s(performance: Performance, model: str, gpu: GpuType) -> float:
    """Seconds of the optimizer step of all operators on one GPU; errors as `pace_s`."""
    ways = least_degree(performance, model, gpu)
    graph = performance.graph(model)
    share = graph if ways == 1 else graph.tensor_parallel(ways)
    return ways * span_update_s(share, 0, len(graph) - 1, gpu, performance.calibration, performance.optimizer)
