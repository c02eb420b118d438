"""GPU types and links: what a device can do and what it costs, read once from `gpus.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from traces.errors import HetsimError, did_you_mean

PRECISIONS = ("mixed", "tf32", "fp32")
"""What matrix products are computed in.

'mixed' : half-precision values, tensor cores where present. 'tf32' : single-precision values, TF32 tensor cores
where present, FP32 elsewhere (what PyTorch 1.7 to 1.11 does unasked). 'fp32' : single precision throughout.
"""


class HardwareError(HetsimError):
    """An unknown GPU type or precision, or a catalogue entry that cannot be used."""


@dataclass(frozen=True)
class GpuType:
    """One GPU type of the catalogue.

    Peaks are vendor figures; the efficiency factors turn them into what training reaches. A price of None is
    unknown: it never counts as zero and never as cheapest. `cite` names source and date of each figure ('single':
    of those about single precision, SMs and clock). A figure of None is unknown and refused where it is needed.
    """

    name: str
    memory_gib: float
    peak_tflops: float
    """Dense peak that training in mixed precision uses (tensor cores where present), TFLOP/s."""
    mem_gbytes_per_s: float
    compute_efficiency: float
    memory_efficiency: float
    nvlink_gbytes_per_s: float
    """One direction, all links of a GPU together; 0: none."""
    pcie_gbytes_per_s: float
    """One direction."""
    power_w: float
    price_usd_per_h: float | None
    cite: Mapping[str, str]
    fp32_tflops: float | None = None
    """Peak in single precision without tensor cores, TFLOP/s."""
    tf32_tflops: float | None = None
    """Dense peak of TF32 tensor cores, TFLOP/s; 0: none, it multiplies in FP32."""
    sms: int | None = None
    """Streaming multiprocessors."""
    clock_mhz: float | None = None
    """Boost clock."""
    fp32_efficiency: float | None = None
    """`compute_efficiency` in single precision; None: nobody measured it, `compute_efficiency` is taken for it."""

    @property
    def price_or_nan(self) -> float:
        """Price in USD per GPU-hour, NaN where unknown."""
        return math.nan if self.price_usd_per_h is None else self.price_usd_per_h

    def matrix_tflops(self, precision: str) -> tuple[float, float]:
        """Peak of matrix products in a precision, TFLOP/s, and the fraction of it that large ones reach.

        Raises
        ------
        HardwareError
            The precision is none of `PRECISIONS`, or the peak in it is unknown.
        """
        if precision not in PRECISIONS:
            allowed = ", ".join(PRECISIONS)
            todo = did_you_mean(precision, PRECISIONS)
            raise HardwareError("unknown precision", got=precision, allowed=allowed, todo=todo)
        if precision == "mixed":
            return self.peak_tflops, self.compute_efficiency
        tensor = self.tf32_tflops if precision == "tf32" else 0.0
        name = "tf32_tflops" if tensor is None else "fp32_tflops"
        peak = tensor if tensor is None or tensor > 0 else self.fp32_tflops
        if peak is None or not 0 < peak < math.inf:
            raise HardwareError(
                f"{name} of a GPU type is unknown or impossible",
                where=f"GPU type {self.name!r}",
                got=peak,
                allowed="a number above 0",
                todo=f"Its speed in {precision} cannot be told without it: correct its entry in the catalogue.",
            )
        if tensor or self.fp32_efficiency is None:
            return peak, self.compute_efficiency
        return peak, self.fp32_efficiency


@cache
def catalogue() -> Mapping[str, GpuType]:
    """The GPU types that hetsim knows, by name; an entry without a price has an unknown one."""
    table = tomllib.loads(files("sim").joinpath("gpus.toml").read_text("utf-8"))
    unpriced = {"price_usd_per_h": None}
    return {name: GpuType(**{"name": name, **unpriced, **entry}) for name, entry in table["gpu"].items()}


def gpu_type(name: str) -> GpuType:
    """Return one GPU type by name, any case.

    Raises
    ------
    HardwareError
        The name is unknown; the message lists the known ones.
    """
    known = {n.lower(): t for n, t in catalogue().items()}
    if name.lower() not in known:
        raise HardwareError(
            "unknown GPU type", got=name, allowed=", ".join(catalogue()), todo=did_you_mean(name.lower(), known)
        )
    return known[name.lower()]
