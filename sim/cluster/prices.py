"""Prices of GPU types: those of the catalogue by kind, or those of a TOML file, in which a type has one of each kind.

    [[prices]]
    gpu_type = "A100"
    kind = "spot"
    amount_per_h = 9.6      # or "unknown": never zero, never cheapest; as is a type that the file does not name
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
from sim.settings.pricerow import MoneyRow
from sim.settings.values import ConfigError, Settings, checked, read_toml, setting
from traces.errors import did_you_mean


class PriceRow(MoneyRow):
    """One `[[prices]]` table."""

    gpu_type: str = setting(..., "GPU type of the catalogue, or of one's own, any case", min_length=1)


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
    if prices_file(prices) is None:
        return [gpu.at(prices) for gpu in types]
    table = read_prices(prices)
    return [gpu.priced(chosen(table.get(gpu.name, ()), "", f"{prices}, {gpu.name}")) for gpu in types]


def prices_file(prices: str) -> str | None:
    """The file that is named; None: a kind of the catalogue's prices is.

    Raises
    ------
    HardwareError
        Neither is.
    """
    if prices.lower().endswith(".toml"):
        return prices
    if prices not in PRICE_KINDS:
        raise HardwareError("unknown prices", got=prices, allowed=f"{', '.join(PRICE_KINDS)}, or a FILE.toml",
                            todo=did_you_mean(prices, PRICE_KINDS))
    return None


def read_prices(path: str | Path) -> dict[str, tuple[Price, ...]]:
    """The prices of a file, by GPU type: one of each kind at most."""
    file = checked(PriceFile, read_toml(path), lambda key: f"{path}, {key}" if key else str(path), error=ConfigError)
    return by_type(file.prices, str(path))


def by_type(rows: Sequence[PriceRow], where: str) -> dict[str, tuple[Price, ...]]:
    """`[[prices]]` tables by GPU type.

    Raises
    ------
    HetsimError
        A row that says too little, or a type with two prices of one kind; the message names the row.
    """
    found: dict[str, tuple[Price, ...]] = {}
    for i, row in enumerate(rows):
        try:
            name, price = gpu_type(row.gpu_type).name, Price(**row.model_dump(exclude={"gpu_type"}))
        except HardwareError as error:
            raise ConfigError(error.what, where=f"{where}, prices.{i}", got=error.got, allowed=error.allowed,
                              todo=error.todo) from None
        if any(price.kind == other.kind for other in found.get(name, ())):
            raise ConfigError("a GPU type has two prices of a kind", where=f"{where}, prices.{i}",
                              got=f"{name}, {price.kind}", allowed="one of each type and kind")
        found[name] = (*found.get(name, ()), price)
    return found


def chosen(prices: Sequence[Price], kind: str, where: str) -> Price | None:
    """The price of a kind; of no kind the only one there is. None: unknown.

    Raises
    ------
    ConfigError
        No kind is said, and there are several.
    """
    if kind:
        return next((price for price in prices if price.kind == kind), None)
    if len(prices) > 1:
        raise ConfigError("a GPU type has two prices", where=where, got=", ".join(price.kind for price in prices),
                          allowed="one, or nodes that say which: price_kind in the [[nodes]] of a cluster file",
                          todo="Say the kind of the nodes, or keep a file for each kind.")
    return prices[0] if prices else None
