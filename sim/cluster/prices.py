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
from typing import Annotated

from pydantic import Field, field_validator

from sim.hardware.gputypes import PRICE_KINDS, GpuType, HardwareError, Price, gpu_type
from sim.settings.values import ConfigError, Settings, checked, read_toml, setting
from traces.errors import did_you_mean

UNKNOWN = "unknown"
"""A price that nobody knows, as files say it."""


def unknown_as_none(value: object) -> object:
    """'unknown' as None, so that nothing else of text is taken for it."""
    return None if value == UNKNOWN else value


Amount = Annotated[float, Field(ge=0, le=1e9)]


class PriceRow(Settings):
    """One `[[prices]]` table."""

    gpu_type: str = setting(..., "GPU type of the catalogue, any case", min_length=1)
    kind: str = setting(..., "on-demand, spot or reserved")
    amount_per_h: Amount | None = setting(..., "price of an hour, in `currency`",
                                          allowed=f"a number from 0 to 1,000,000,000, or {UNKNOWN!r}")
    per: str = setting(..., "what the amount is for: gpu or node")
    node_gpus: int = setting(0, "GPUs of the node", unit="GPU", ge=0, le=1024)
    currency: str = setting("USD", "of the amount")
    currency_per_usd: float = setting(0.0, "how many of another currency make a USD; 0: not said", ge=0, le=1e9)
    date: str = setting(..., "when it was asked for", min_length=1)
    source: str = setting(..., "who asks for it", min_length=1)

    _said = field_validator("amount_per_h", mode="before")(unknown_as_none)


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
