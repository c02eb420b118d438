"""Power caps: how much slower a GPU trains under one, and what it then draws, read once from `powercaps.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from sim.hardware.gputypes import GpuType, HardwareError


@dataclass(frozen=True)
class Capped:
    """A GPU under a cap: `speed` relative to none, and `power_w`, what it draws while it is held."""

    speed: float
    power_w: float


@dataclass(frozen=True, eq=False)
class Curve:
    """Measured points, float64 [points] each, ascending in `cap`, the share of the board's power limit."""

    cap: np.ndarray
    speed: np.ndarray
    draw: np.ndarray


def capped(gpu: GpuType, cap_w: float) -> Capped:
    """A GPU of a type under a cap of `cap_w` W: linear between the measured points.

    What it draws is ``power_w * draw(cap_w / power_w)``: as without a cap, an upper bound of what a job makes it draw.

    Raises
    ------
    HardwareError
        The type's power limit is unknown, or the cap is below what was measured or above the limit.
    """
    if np.isnan(gpu.power_w):
        raise HardwareError("the power limit of the GPU type is unknown: it cannot be capped", got=gpu.name)
    curve, share = curve_of(gpu.name), cap_w / gpu.power_w
    if not curve.cap[0] <= share <= 1.0:
        raise HardwareError("no such power cap", got=f"{cap_w:g} W on {gpu.name}",
                            allowed=f"{curve.cap[0] * gpu.power_w:g} to {gpu.power_w:g} W")
    return Capped(float(np.interp(share, curve.cap, curve.speed)),
                  float(gpu.power_w * np.interp(share, curve.cap, curve.draw)))


@cache
def curve_of(name: str) -> Curve:
    """The curve of a GPU type by its name; of a type that was not measured that of `otherwise`."""
    table = tomllib.loads(files("sim.hardware").joinpath("powercaps.toml").read_text("utf-8"))
    found = table.get(name, table[table["otherwise"]])
    return Curve(*(np.array(found[part], dtype=np.float64) for part in ("cap", "speed", "draw")))
