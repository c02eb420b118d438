"""Prices of GPU types: those of the catalogue by kind, or those of a TOML file.

    [[prices]]
    gpu_type = "A100"
    kind = "spot"
    amount_per_h = 9.6
    per = "node"            # or "gpu"; a node's price is shared by its GPUs
    node_gpus = 8
    currency = "USD"        # another one needs currency_per_usd
    date = "2025-11-30"
    source = "my contract"
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.hardware.gputypes import PRICE_KINDS, GpuType, HardwareError, Price, gpu_type
from sim.settings.values import ConfigError, Settings, checked, read_toml, setting
from traces.errors import did_you_mean


class PriceRow(Settings):
    """One `[[prices]]` table."""

    gpu_type: str = setting(..., "GPU type of the catalogue, any case", min_length=1)
    kind: str = setting(..., "on-demand, spot or reserved")
    amount_per_h: float = setting(..., "price of an hour, in `currency`", ge=0, le=1e9)
    per: str = setting(..., "what the amount is for: gpu or node")
    node_gpus: int = setting(0, "GPUs of the node", unit="GPU", ge=0, le=1024)
    currency: str = setting("USD", "of the amount")
    currency_per_usd: float = setting(0.0, "how many of another currency make a USD; 0: not said", ge=0, le=1e9)
    date: str = setting(..., "when it was asked for", min_length=1)
    source: str = setting(..., "who asks for it", min_length=1)


class PriceFile(Settings):
    """A file of prices."""

    prices: list[PriceRow] = setting(..., "the [[prices]] tables", allowed="one or more [[prices]]", min_length=1)


def priced(types: Sequence[GpuType], prices: str) -> list[GpuType]:
    """The types at their prices of a kind, or of a file; a type that has none there has an unknown price.

    Raises
    ------
    HetsimError
        No such kind; a file that cannot be read, has two prices for a type, or a figure that says too little.
    """
    if not prices.lower().endswith(".toml"):
        if prices not in PRICE_KINDS:
            raise HardwareError("unknown prices", got=prices, allowed=f"{', '.join(PRICE_KINDS)}, or a FILE.toml",
                                todo=did_you_mean(prices, PRICE_KINDS))
        return [gpu.at(prices) for gpu in types]
    table = read_prices(prices)
    return [gpu.priced(table.get(gpu.name)) for gpu in types]


def read_prices(path: str | Path) -> dict[str, Price]:
    """The prices of a file, by GPU type."""
    file = checked(PriceFile, read_toml(path), lambda key: f"{path}, {key}" if key else str(path), error=ConfigError)
    found: dict[str, Price] = {}
    for i, row in enumerate(file.prices):
        name = gpu_type(row.gpu_type).name
        if name in found:
            raise ConfigError("a GPU type has two prices", where=f"{path}, prices.{i}", got=name,
                              allowed="one of each type: a file for each kind")
        found[name] = Price(**row.model_dump(exclude={"gpu_type"}))
    return found
