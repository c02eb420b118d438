"""GPU types and links: what a device can do and what it costs, read once from `gpus.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from traces.errors import HetsimError, did_you_mean


class HardwareError(HetsimError):
    """An unknown GPU type, or a catalogue entry that cannot be used."""


@dataclass(frozen=True)
class GpuType:
    """One GPU type of the catalogue.

    Peaks are vendor figures; the efficiency factors turn them into what training reaches. A price of None is
    unknown: it never counts as zero and never as cheapest. `cite` names source and date of each figure.
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

    @property
    def price_or_nan(self) -> float:
        """Price in USD per GPU-hour, NaN where unknown."""
        return math.nan if self.price_usd_per_h is None else self.price_usd_per_h


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
