"""Wave scaling: the time of a kernel on one GPU type from its measured time on another.

Yu et al. 2021 (Habitat, USENIX ATC, arXiv:2102.00527), section 3.3. A kernel of arithmetic intensity x (FLOP a byte)
is bound by memory and by arithmetic in parts gamma and 1 - gamma. With D the memory bandwidth, C the clock, S the
SMs and R the ridge (peak over bandwidth) of the type asked for,

    T' = T (D / D')^gamma (C / C')^(1 - gamma) (S / S')^(1 - gamma),    gamma = 1 - x / 2R  (x <= R), else R / 2x

C S is what an SM does at best times their number; between architectures whose SMs do unequal work a cycle, the ratio
of peaks says more, and is what is used here unless asked otherwise.
"""

from __future__ import annotations

import math

import numpy as np

from sim.hardware.gputypes import GpuType
from sim.performance.graph import PerformanceError


def memory_part(intensity: np.ndarray, ridge: float) -> np.ndarray:
    """Gamma, from 1 (memory alone) to 0: float64 [n]. An unknown intensity (NaN) counts as memory alone, as there."""
    x = np.where(np.isnan(intensity), 0.0, intensity)
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(x <= ridge, 1 - 0.5 * x / ridge, 0.5 * ridge / np.where(x > 0, x, 1.0))


def reached_gbytes_per_s(gpu: GpuType) -> float:
    """Memory bandwidth that is reached, GB/s."""
    return gpu.memory_efficiency * gpu.mem_gbytes_per_s


def reached_tflops(gpu: GpuType, precision: str) -> float:
    """Rate of large matrix products, TFLOP/s."""
    peak, efficiency = gpu.matrix_tflops(precision)
    return peak * efficiency


def wave_scaled_s(
    time_s: np.ndarray,
    intensity: np.ndarray,
    measured_on: GpuType,
    gpu: GpuType,
    *,
    precision: str = "mixed",
    by_clock: bool = False,
) -> np.ndarray:
    """Seconds on `gpu` of kernels that took `time_s` on `measured_on`: float64 [n]. The same type: unchanged.

    Parameters
    ----------
    intensity : float64 [n], FLOP a byte of memory traffic; NaN where unknown.
    by_clock : SMs times clock as published, in place of peaks of `precision` (same architecture only).

    Raises
    ------
    PerformanceError, HardwareError
        A figure of either type is unknown.
    """
    memory = reached_gbytes_per_s(measured_on) / reached_gbytes_per_s(gpu)
    if by_clock:
        compute = _sm_clock(measured_on) / _sm_clock(gpu)
    else:
        compute = reached_tflops(measured_on, precision) / reached_tflops(gpu, precision)
    ridge = 1e3 * reached_tflops(gpu, precision) / reached_gbytes_per_s(gpu)
    gamma = memory_part(np.asarray(intensity, dtype=np.float64), ridge)
    return np.asarray(time_s, dtype=np.float64) * memory**gamma * compute ** (1 - gamma)


def _sm_clock(gpu: GpuType) -> float:
    if gpu.sms is None or gpu.clock_mhz is None or not 0 < gpu.sms * gpu.clock_mhz < math.inf:
        raise PerformanceError(
            "sms or clock_mhz of a GPU type is unknown",
            where=f"GPU type {gpu.name!r}",
            got=(gpu.sms, gpu.clock_mhz),
            allowed="numbers above 0",
            todo="Correct its entry in the catalogue, or scale by peaks.",
        )
    return gpu.sms * gpu.clock_mhz
