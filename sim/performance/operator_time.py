"""Time of operators on a GPU type: a roofline with the efficiencies that the catalogue cites.

    t = max(FLOP / (efficiency * peak), bytes / (efficiency * bandwidth)) + launches * LAUNCH_S

Small matrix products do not fill a GPU. With F FLOP a launch their efficiency is e_c F / (F + H), which is
half of the best at H = FILL_S e_c peak. The first term then is

    FLOP / (e_c peak) + launches * FILL_S

so that more work never takes less time, as it would where the efficiency rises in steps. Backward, a matrix
product does twice the FLOP.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from sim.hardware import GpuType
from sim.performance.graph import MATRIX_KINDS, VALUE_BYTES, OperatorGraph, PerformanceError

LAUNCH_S = 7.5e-6
"""Cost of starting a kernel: 5 to 10 microseconds (Placeto's simulator has 5.7 between operators)."""
FILL_S = 3.4e-6
"""Half of the best is reached at FILL_S e_c peak FLOP: 1 GFLOP where an A100 reaches 0.95 of its peak.

From Calculon's table (0.1 below 1 GFLOP, 0.6 above, 0.95 at most). The same time is assumed for all types, so
that a smaller GPU is filled by less work.
"""
UPDATE_BYTES = 28
"""Traffic of a mixed-precision Adam step for each parameter.

Reads a gradient (2), reads and writes weight and two moments in single precision (24), writes the weight (2).
"""

_FIGURES = (
    "memory_gib",
    "peak_tflops",
    "mem_gbytes_per_s",
    "pcie_gbytes_per_s",
    "compute_efficiency",
    "memory_efficiency",
)


def checked(gpu: GpuType) -> GpuType:
    """Return the type if its figures can be used: unknown is never taken for enough.

    Raises
    ------
    PerformanceError
        A figure is missing, NaN, zero or below; an efficiency is above 1.

    Warns
    -----
    UserWarning
        An efficiency is exactly 1: no GPU reaches its peak.
    """
    for name in _FIGURES:
        value = getattr(gpu, name)
        top = 1.0 if name.endswith("efficiency") else math.inf
        if value is None or not 0 < value <= top or math.isinf(value):
            raise PerformanceError(
                f"{name} of a GPU type is unknown or impossible",
                where=f"GPU type {gpu.name!r}",
                got=value,
                allowed="above 0, at most 1" if top == 1.0 else "a number above 0",
                todo="Correct its entry in the catalogue.",
            )
        if value == 1.0 and top == 1.0:
            warnings.warn(f"GPU type {gpu.name!r}: {name} is 1.0; no GPU reaches its peak", stacklevel=2)
    return gpu


def operator_times_s(graph: OperatorGraph, samples: float, gpu: GpuType) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each operator, forward and backward, for `samples` samples on one GPU: two float64 [ops].

    Bytes backward: a matrix product reads the output's gradient twice, its input and weights, and writes the
    gradients of both; any other operator reads the output's gradient and its input, and writes the input's
    gradient.
    """
    compute = gpu.compute_efficiency * gpu.peak_tflops * 1e12
    bandwidth = gpu.memory_efficiency * gpu.mem_gbytes_per_s * 1e9
    matrix = np.isin(graph.kind, MATRIX_KINDS)
    # Each launch reads the weights: an LSTM does so at every step.
    weights = np.where(matrix, graph.weight_params * VALUE_BYTES * graph.launches, 0.0)
    fwd_bytes = samples * (graph.in_bytes + graph.out_bytes + graph.inner_bytes) + weights
    outputs_read = np.where(matrix, 2.0, 1.0)
    bwd_bytes = (
        samples * (2 * graph.in_bytes + outputs_read * graph.out_bytes + 2 * graph.inner_bytes) + 2 * weights
    )
    times = []
    for passes, num_bytes in ((1.0, fwd_bytes), (2.0, bwd_bytes)):
        flops = passes * samples * graph.flops_fwd
        launches = np.where(matrix, passes, 1.0) * graph.launches
        arithmetic = np.where(matrix, flops / compute + launches * FILL_S, 0.0)
        times.append(np.maximum(arithmetic, num_bytes / bandwidth) + launches * LAUNCH_S)
    return times[0], times[1]


def update_time_s(params: float, gpu: GpuType) -> float:
    """Seconds of an optimizer step over `params` parameters: bound by memory."""
    return params * UPDATE_BYTES / (gpu.memory_efficiency * gpu.mem_gbytes_per_s * 1e9)
