"""Time of operators on a GPU type: a roofline with the efficiencies that the catalogue cites.

    t = max(FLOP / (c e peak) + launches * fill, bytes / (m e_m bandwidth)) + launches * launch

at least launches * host: the host issues kernels one after the other. e and e_m are the type's efficiencies; c, m,
fill, launch and host come from a calibration (`sim.performance.calibration`), for each kind of operator.

Small matrix products do not fill a GPU. With F FLOP a launch their efficiency is c e F / (F + H), which is half of
the best at H = fill c e peak. The first term above is the same thing, and more work never takes less time, as it
would where the efficiency rises in steps. Backward, a matrix product does twice the FLOP.

Where a graph carries measured times, these are taken (`layer_times`), and on request to another type by wave scaling.
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache

import numpy as np

from sim.hardware.gputypes import GpuType, gpu_type
from sim.performance.calibration import Calibration, shipped
from sim.performance.graph import MATRIX_KINDS, VALUE_BYTES, OperatorGraph, PerformanceError, Profile
from sim.performance.optimizer import ADAM, Optimizer
from sim.performance.running import Sums, Times, graph_sums
from sim.performance.wave import reached_gbytes_per_s, wave_scaled_s

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
    single = ("fp32_efficiency",) if gpu.fp32_efficiency is not None else ()
    for name in (*_FIGURES, *single):
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


def operator_times_s(
    graph: OperatorGraph,
    samples: float,
    gpu: GpuType,
    *,
    precision: str | None = None,
    calibration: Calibration | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each operator, forward and backward, for `samples` samples on one GPU: two float64 [ops].

    Bytes backward: a matrix product reads the output's gradient twice, its input and weights, and writes the
    gradients of both; any other operator reads the output's gradient and its input, and writes the input's
    gradient. In single precision each value has twice the bytes.

    Parameters
    ----------
    precision : of the matrix products ('mixed', 'tf32', 'fp32'); None: the calibration's.
    calibration : None: 'tuned'.

    Raises
    ------
    PerformanceError, HardwareError
        A peak, the FLOPs of an operator or the GPU of a profile is unknown.
    """
    fit = calibration or shipped("tuned")
    precision = precision or fit.precision
    if graph.profile is not None:
        return _profiled_times_s(graph, graph.profile, samples, gpu, precision)
    if not math.isfinite(graph.flops_fwd.sum()):
        unknown = graph.ops[int(np.argmin(np.isfinite(graph.flops_fwd)))]
        what, todo = "the FLOPs of an operator are unknown", "Give them, or measured times."
        raise PerformanceError(what, where=f"model {graph.name!r}", got=unknown, allowed="a number", todo=todo)
    times = []
    for arithmetic, memory, launches in device_parts(graph, samples, gpu, precision, fit):
        times.append(np.maximum(np.maximum(arithmetic, memory) + launches * fit.launch_s, launches * fit.host_s))
    return times[0], times[1]


def device_parts(
    graph: OperatorGraph, samples: float, gpu: GpuType, precision: str, fit: Calibration
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Forward and backward: seconds of arithmetic, seconds of memory traffic, launches, each float64 [ops]."""
    peak, efficiency = gpu.matrix_tflops(precision)
    # Nothing is faster than the peak, whatever a fit on another type says.
    compute = np.minimum(fit.column(graph.kind, "compute") * efficiency, 1.0) * peak * 1e12
    bandwidth = fit.column(graph.kind, "memory") * gpu.memory_efficiency * gpu.mem_gbytes_per_s * 1e9
    fill_s = fit.column(graph.kind, "fill_s")
    matrix = np.isin(graph.kind, MATRIX_KINDS)
    fwd_bytes, bwd_bytes = traffic_bytes(graph, samples, precision)

    def parts(passes: float, num_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        launches = np.where(matrix, passes, 1.0) * graph.launches
        arithmetic = passes * samples * graph.flops_fwd / compute + launches * fill_s
        return np.where(matrix, arithmetic, 0.0), num_bytes / bandwidth, launches

    return parts(1.0, fwd_bytes), parts(2.0, bwd_bytes)


def traffic_bytes(graph: OperatorGraph, samples: float, precision: str) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that each operator moves forward and backward: two float64 [ops]."""
    size = 1.0 if precision == "mixed" else 2.0
    matrix = np.isin(graph.kind, MATRIX_KINDS)
    # Each launch reads the weights: an LSTM does so at every step.
    weights = np.where(matrix, graph.weight_params * VALUE_BYTES * graph.launches, 0.0)
    fwd = samples * (graph.in_bytes + graph.out_bytes + graph.inner_bytes) + weights
    outputs_read = np.where(matrix, 2.0, 1.0)
    bwd = samples * (2 * graph.in_bytes + outputs_read * graph.out_bytes + 2 * graph.inner_bytes) + 2 * weights
    return size * fwd, size * bwd


def divided_times_s(
    times: Times, whole: OperatorGraph, part: OperatorGraph, samples: float, gpu: GpuType, calibration: Calibration
) -> tuple[np.ndarray, np.ndarray]:
    """Operator times, as believed of a graph, for a replica's part of it (`OperatorGraph.sharded`), in that ratio."""
    two = zip(operator_times_s(whole, samples, gpu, calibration=calibration),
              operator_times_s(part, samples, gpu, calibration=calibration), strict=True)  # fmt: skip
    fwd, bwd = (np.where(whole.shards > 0, less / np.maximum(all_of_it, 1e-300), 1.0) for all_of_it, less in two)
    return times.fwd_s * fwd, times.bwd_s * bwd


def source(graph: OperatorGraph, samples: float, gpu: GpuType) -> str:
    """Where the times for `samples` samples on `gpu` come from: 'modelled', or one of `layer_times.SOURCES`."""
    if graph.profile is None:
        return "modelled"
    measured_on = _profiled_on(graph, graph.profile, gpu)
    return graph.profile.times_s(_key(graph.profile, gpu), samples)[2] if measured_on.name == gpu.name else "predicted"


def _key(profile: Profile, gpu: GpuType) -> str:
    """The name under which the profile has the times for a type."""
    return profile.measured_on(gpu.name)


def _profiled_on(graph: OperatorGraph, profile: Profile, gpu: GpuType) -> GpuType:
    """The type whose measured times are taken for `gpu`."""
    name = _key(profile, gpu)
    if not name:
        raise PerformanceError(
            "the profile does not say on which GPU type it was measured",
            where=f"model {graph.name!r}, {profile.source}",
            got="",
            allowed="a type of the catalogue",
            todo="Name it when the graph is read.",
        )
    return gpu_type(name)


def _profiled_times_s(
    graph: OperatorGraph, profile: Profile, samples: float, gpu: GpuType, precision: str
) -> tuple[np.ndarray, np.ndarray]:
    """The profile's times, for other samples and another type; where FLOPs are unknown, in the ratio of bandwidths."""
    measured_on = _profiled_on(graph, profile, gpu)
    fwd_s, bwd_s, _ = profile.times_s(_key(profile, gpu), samples)
    if np.isnan(bwd_s).any():
        raise PerformanceError(
            "the graph is one of inference: the file has no backward times, and a training step needs them",
            where=f"model {graph.name!r}, {profile.source}",
            got=f"{np.isnan(bwd_s).sum()} of {len(bwd_s)} operators without one",
            todo="Take the graph of training, where there is one.",
        )
    if measured_on.name == gpu.name:
        return fwd_s, bwd_s
    times = []
    for passes, time_s, num_bytes in zip(
        (1.0, 2.0), (fwd_s, bwd_s), traffic_bytes(graph, samples, precision), strict=True
    ):
        flops = passes * samples * graph.flops_fwd
        intensity = np.divide(flops, num_bytes, out=np.full(len(graph), np.nan), where=num_bytes > 0)
        times.append(wave_scaled_s(time_s, intensity, measured_on, gpu, precision=precision))
    return times[0], times[1]


def update_times_s(
    graph: OperatorGraph, gpu: GpuType, calibration: Calibration | None = None, optimizer: Optimizer = ADAM
) -> np.ndarray:
    """Seconds of each operator's optimizer step, all its dense parameters on one GPU: float64 [ops].

    Measured where the profile has it, on another type in the ratio of bandwidths (the step is bound by memory); else
    `update_time_s`.
    """
    profile = graph.profile
    if profile is not None and (found := profile.update_s(_key(profile, gpu))) is not None:
        return found * _slower(graph, profile, gpu)
    return (graph.weight_params - graph.sparse_params) * update_time_s(1.0, gpu, calibration, optimizer)


def span_update_s(
    graph: OperatorGraph, first: int, last: int, gpu: GpuType, calibration: Calibration, optimizer: Optimizer,
    among: int = 1, sparse: float = 0.0,
) -> float:  # fmt: skip
    """Seconds of the optimizer step of operators first to last (inclusive), shared evenly by `among` replicas.

    `sparse`: parameters of tables with sparse gradients that are stepped, too (`sim.performance.embeddings`).
    """
    profile = graph.profile
    if profile is None or profile.update_s(_key(profile, gpu)) is None:
        params = graph_sums(graph).dense(first, last) + sparse
        # What a replica has alone, it steps alone.
        alone = graph_sums(graph).alone_dense(first, last) + sparse if graph.among > 1 else 0.0
        return update_time_s((params - alone) / among + alone, gpu, calibration, optimizer)
    return _steps(graph, _key(profile, gpu))(first, last) * _slower(graph, profile, gpu) / among


@lru_cache(maxsize=256)
def _steps(graph: OperatorGraph, measured_on: str) -> Sums:
    """The measured steps as running sums."""
    steps = graph.profile.update_s(measured_on) if graph.profile is not None else None
    assert steps is not None
    return Sums(steps)


def _slower(graph: OperatorGraph, profile: Profile, gpu: GpuType) -> float:
    """Memory bandwidth where a step was measured, over that of `gpu`."""
    measured_on = _profiled_on(graph, profile, gpu)
    return 1.0 if measured_on.name == gpu.name else reached_gbytes_per_s(measured_on) / reached_gbytes_per_s(gpu)


def update_time_s(
    params: float, gpu: GpuType, calibration: Calibration | None = None, optimizer: Optimizer = ADAM
) -> float:
    """Seconds of an optimizer step over `params` parameters: bound by memory."""
    fit = calibration or shipped("tuned")
    memory, moved = fit.kinds["update"].memory, optimizer.step_bytes(fit.value_bytes)
    return params * moved / (memory * gpu.memory_efficiency * gpu.mem_gbytes_per_s * 1e9)
