"""What a GPU-hour costs on each node of a cluster file: the node's own price, its type's, or that of its kind.

Of one GPU type there may be nodes of several prices, such as some on demand and some spot. Costs go by the node; who
looks at the type sees the mean over its GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Protocol

from pydantic import Field, field_validator, model_validator

from sim.cluster.prices import PriceRow, by_type, chosen, prices_file, read_prices
from sim.cluster.spec import ClusterError
from sim.hardware.gputypes import MOST_USD_PER_H, PRICE_KINDS, GpuType, Price, gpu_type
from sim.settings.pricerow import UNKNOWN, unknown_as_none
from sim.settings.values import RefusedError, Settings, setting
from traces.errors import HetsimError, did_you_mean

_Usd = Annotated[float, Field(ge=0, le=MOST_USD_PER_H)]
_Amounts = dict[str, _Usd | None]
_KINDS = (*PRICE_KINDS, UNKNOWN)
_SHOWN_PRICES = 4
"""Of a type whose nodes have many prices, so many are told."""
_AMOUNTS = f"TYPE = price in USD, a number from 0 to 1,000,000, or {UNKNOWN!r}"


class NodePrice(Settings):
    """What a `[[nodes]]` table may say of its price."""

    price_kind: str = setting("", "of these nodes: on-demand, spot, reserved or unknown; left out: the type's price",
                              allowed=", ".join(_KINDS))
    price_per: str = setting("", "node: the catalogue's price of nodes of as many GPUs; left out: its first price",
                             allowed="node")
    price_usd_per_gpu_h: float | None = setting(None, "of these nodes, in place of the type's", unit="USD/GPU-h", ge=0,
                                                le=MOST_USD_PER_H)
    price_usd_per_node_h: float | None = setting(None, "the same for each whole node", unit="USD/node-h", ge=0,
                                                 le=MOST_USD_PER_H)

    @model_validator(mode="after")
    def _one(self) -> NodePrice:
        said = [name for name in NodePrice.model_fields if getattr(self, name) not in ("", None)]
        if self.price_per not in ("", "node"):
            raise RefusedError(f"no such price: of a {self.price_per!r}", allowed="price_per = 'node'")
        if self.price_per and (self.price_kind or "on-demand") in PRICE_KINDS:
            said = [name for name in said if name != "price_kind"]  # of which kind the node's price is
        if len(said) > 1:
            raise RefusedError(f"the price is given twice: {' and '.join(said)}", allowed="one of them")
        if self.price_kind and self.price_kind not in _KINDS:
            raise RefusedError(f"unknown kind of price {self.price_kind!r}", allowed=", ".join(_KINDS),
                               todo=did_you_mean(self.price_kind, _KINDS))
        return self


class TypePrices(Settings):
    """What a cluster file may say of the prices of its GPU types."""

    prices_usd_per_gpu_h: _Amounts = setting(
        {}, "prices that replace the catalogue's, by GPU type", unit="USD/GPU-h", allowed=_AMOUNTS)
    prices_usd_per_node_h: _Amounts = setting(
        {}, "the same for whole nodes: shared by the GPUs of a node", unit="USD/node-h", allowed=_AMOUNTS)
    prices: list[PriceRow] = setting(
        [], "the same with kind, currency, date and source, as in a file of prices", allowed="[[prices]] tables")

    @field_validator("prices_usd_per_gpu_h", "prices_usd_per_node_h", mode="before")
    @classmethod
    def _unknown(cls, amounts: object) -> object:
        if not isinstance(amounts, dict):
            return amounts
        return {name: unknown_as_none(usd) for name, usd in amounts.items()}

    @field_validator("prices", mode="before")
    @classmethod
    def _rows(cls, prices: object) -> object:
        if isinstance(prices, dict):
            raise RefusedError("prices without a unit", allowed="[[prices]] tables",
                               todo="did you mean 'prices_usd_per_gpu_h'?")
        return prices


class Group(Protocol):
    """A `[[nodes]]` table, as far as its price goes."""

    gpus: int
    price_kind: str
    price_per: str
    price_usd_per_gpu_h: float | None
    price_usd_per_node_h: float | None


def priced_groups(
    file: TypePrices, groups: Sequence[Group], found: Sequence[GpuType], where: str, prices: str | None,
) -> list[GpuType]:
    """The GPU type of each group at the group's price.

    Parameters
    ----------
    file, groups, found : the cluster file, its `[[nodes]]`, and their GPU types.
    prices : instead of what the file says: a kind of the catalogue's prices, or a file of prices, of which nodes with a
        `price_kind` take theirs. None: what the file says.

    Raises
    ------
    HetsimError
        A price that is given twice, or for a type that is not there, or of which it is not known what it is for.
    """
    own = _types(file, groups, found, where)
    if prices is not None:
        if prices_file(prices) is None:
            return [gpu.at(prices).in_nodes(group.gpus) if group.price_per else gpu.at(prices)
                    for gpu, group in zip(found, groups, strict=True)]
        table = read_prices(prices)
        return [gpu.priced(chosen(table.get(gpu.name, ()), group.price_kind, f"{prices}, {gpu.name}"))
                for gpu, group in zip(found, groups, strict=True)]
    rows = by_type(file.prices, where)
    return [_priced(gpu, group, own.get(gpu.name), rows.get(gpu.name, ()), f"{where}, nodes.{i}")
            for i, (gpu, group) in enumerate(zip(found, groups, strict=True))]


def at_mean(priced: Sequence[GpuType], gpus: Sequence[int]) -> GpuType:
    """One GPU type of several prices, with so many GPUs at each: at their mean, which is unknown where one is."""
    if len({gpu.price_usd_per_h for gpu in priced}) == 1:
        return priced[0]
    known = [gpu.price_or_nan for gpu in priced]
    mean = sum(usd * n for usd, n in zip(known, gpus, strict=True)) / sum(gpus)
    at: dict[str, int] = {}
    for gpu, n in zip(priced, gpus, strict=True):
        price = "an unknown price" if gpu.price_usd_per_h is None else f"{gpu.price_usd_per_h:g}"
        at[price] = at.get(price, 0) + n
    parts = ", ".join(f"{n} at {price}" for price, n in list(at.items())[:_SHOWN_PRICES])
    parts += f" and {len(at) - _SHOWN_PRICES} other prices" if len(at) > _SHOWN_PRICES else ""
    cite = {**priced[0].cite, "price_usd_per_h": f"mean of its GPUs: {parts}"}
    return replace(priced[0], price_usd_per_h=None if math.isnan(mean) else mean, cite=cite)


def _priced(
    gpu: GpuType, group: Group, own: tuple[float | None, str] | None, rows: Sequence[Price], where: str,
) -> GpuType:
    """The type at a group's own price; else that of its kind; else the file's for the type; else the catalogue's."""
    for usd, share, key in ((group.price_usd_per_gpu_h, 1, "gpu"), (group.price_usd_per_node_h, group.gpus, "node")):
        if usd is not None:
            return _set(gpu, usd / share, f"{where}.price_usd_per_{key}_h")
    if group.price_kind == UNKNOWN:
        return gpu.priced(None)
    if group.price_per:
        return _of_node(gpu.at(group.price_kind or "on-demand"), group.gpus, where)
    if group.price_kind:
        row = chosen(rows, group.price_kind, where)
        return gpu.at(group.price_kind) if row is None else gpu.priced(row)
    if own is not None:
        return _set(gpu, *own)
    return gpu.priced(chosen(rows, "", where)) if rows else gpu


def _of_node(gpu: GpuType, node_gpus: int, where: str) -> GpuType:
    """The type at the catalogue's price of nodes of so many GPUs."""
    found = gpu.in_nodes(node_gpus)
    if found.rented_gpus != node_gpus:
        sold = sorted({str(price.node_gpus) for price in gpu.prices if price.node_gpus}, key=int)
        known = f"nodes of {', '.join(sold)} GPUs" if sold else "a type of which the catalogue knows prices of nodes"
        raise ClusterError("no price of such a node is known", where=f"{where}.price_per", allowed=known,
                           got=f"{gpu.name}, {node_gpus} GPUs a node", todo="Give price_usd_per_node_h instead.")
    return found


def _set(gpu: GpuType, usd_per_gpu_h: float | None, where: str) -> GpuType:
    """The type with the file's own price, which then is cited as such."""
    return replace(gpu, price_usd_per_h=usd_per_gpu_h, cite={**gpu.cite, "price_usd_per_h": f"set in {where}"})


def _types(
    file: TypePrices, groups: Sequence[Group], found: Sequence[GpuType], where: str,
) -> dict[str, tuple[float | None, str]]:
    """USD for a GPU-hour that the file's two tables say for a type, and where they do."""
    own: dict[str, tuple[float | None, str]] = {}
    sizes: Mapping[str, set[int]] = {gpu.name: set() for gpu in found}
    for gpu, group in zip(found, groups, strict=True):
        sizes[gpu.name].add(group.gpus)
    rows: dict[str, tuple[float | None, str]] = dict.fromkeys(by_type(file.prices, where), (0.0, f"{where}, prices"))
    for key in ("prices_usd_per_gpu_h", "prices_usd_per_node_h"):
        at = f"{where}, {key}"
        for text, usd in getattr(file, key).items():
            try:
                name = gpu_type(text).name
            except HetsimError as error:
                raise ClusterError(error.what, where=at, got=error.got, allowed=error.allowed,
                                   todo=error.todo) from None
            if name in own or name in rows:
                raise ClusterError("a GPU type has two prices", where=at, got=name,
                                   allowed="one, of the GPU or of the node",
                                   todo=f"The other one is in {(own | rows)[name][1]}.")
            share = 1
            if key.endswith("node_h") and name in sizes:
                if len(sizes[name]) > 1:
                    raise ClusterError("a node's price, and nodes of several sizes", where=at,
                                       got=f"{name}: nodes of {', '.join(map(str, sorted(sizes[name])))} GPUs",
                                       allowed="nodes of one size",
                                       todo="Give price_usd_per_node_h in each of the [[nodes]] tables instead.")
                share = min(sizes[name])
            own[name] = None if usd is None else usd / share, at
    for name, (_, at) in (own | rows).items():
        if name not in sizes:
            raise ClusterError("a price for a GPU type that the cluster lacks", where=at, got=name,
                               allowed=", ".join(sizes))
    return own
