"""Power caps: how much slower a GPU trains under one, read once from `powercaps.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import numpy as np

from sim.hardware.gputypes import GpuType, HardwareError


def speed_under(gpu: GpuType, cap_w: float) -> float:
    """Speed of a GPU under a cap of `cap_w` W relative to none, in (0, 1]: linear between the measured points.

    While it is held it then draws its cap, as without one it draws its limit: an upper bound, and close to one where a
    job keeps it busy.

    Raises
    ------
    HardwareError
        The type's power limit is unknown, or the cap is below what was measured or above the limit.
    """
    if not gpu.power_w > 0:
        raise HardwareError("a GPU type of unknown power limit cannot be capped", got=gpu.name)
    cap, speed = curve_of(gpu.name)
    share = cap_w / gpu.power_w
    if not cap[0] <= share <= 1.0:
        raise HardwareError("no such power cap", got=f"{cap_w:g} W on {gpu.name}",
                            allowed=f"{cap[0] * gpu.power_w:g} to {gpu.power_w:g} W")
    return float(np.interp(share, cap, speed))


@cache
def curve_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Caps (shares of the board's limit, ascending) and speeds of a GPU type; of one not measured, of `otherwise`."""
    table = tomllib.loads(files("sim.hardware").joinpath("powercaps.toml").read_text("utf-8"))
    found = table.get(name, table[table["otherwise"]])
    return np.array(found["cap"]), np.array(found["speed"])
