"""GPU types and links: what a device can do and what it costs, read once from `gpus.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import date as day
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from traces.errors import HetsimError, did_you_mean

PRECISIONS = ("mixed", "tf32", "fp32")
"""What matrix products are computed in.

'mixed' : half-precision values, tensor cores where present. 'tf32' : single-precision values, TF32 tensor cores
where present, FP32 elsewhere (what PyTorch 1.7 to 1.11 does unasked). 'fp32' : single precision throughout.
"""


PRICE_KINDS = ("on-demand", "spot", "reserved")
"""Of prices. Spot instances may be taken away at any time; reserved ones are paid whether they are used or not."""

MOST_USD_PER_H = 1e6
"""For a GPU or a node: no provider asks for more."""

_SAME_PRICE = 0.01
"""Prices that differ by less are told as one."""

_RATES = (1e-6, 1e9)
"""How many of a currency may make a USD."""


class HardwareError(HetsimError):
    """An unknown GPU type, precision or kind of price, or a catalogue entry that cannot be used."""


@dataclass(frozen=True)
class Price:
    """What one provider asks for an hour, up to `MOST_USD_PER_H`.

    Raises
    ------
    HardwareError
        A figure that is impossible, or whose meaning is open: of what kind, for how many GPUs, in which money.
    """

    kind: str
    """One of `PRICE_KINDS`."""
    amount_per_h: float | None
    """Of one GPU, or of the whole node; in `currency`. None: nobody knows it."""
    per: str
    """'gpu' or 'node'."""
    date: str
    """A day, month or year: 2025-11-30, 2025-11, 2025 or about 2025."""
    source: str
    node_gpus: int = 0
    """GPUs of the node that the amount is for."""
    currency: str = "USD"
    currency_per_usd: float = 0.0
    """How many of the currency make a USD; of other currencies only."""

    def __post_init__(self) -> None:
        low, high = _RATES
        usd = self.usd_per_h
        rated = self.currency_per_usd == 0 if self.currency == "USD" else low <= self.currency_per_usd <= high
        wrong = {
            "the kind of a price": (self.kind, ", ".join(PRICE_KINDS), self.kind in PRICE_KINDS),
            "what a price is for": (self.per, "gpu or node", self.per in ("gpu", "node")),
            "the GPUs of a price": (self.node_gpus, "node_gpus: 1 or more per node, none per gpu",
                                    (self.node_gpus >= 1) == (self.per == "node") and self.node_gpus >= 0),
            "the rate of a currency": (
                f"{self.currency}, {self.currency_per_usd:g} a USD",
                f"USD alone, or another with currency_per_usd from {low:f} to {high:,.0f}", rated,
            ),
            "a price": (f"{usd or 0:g} USD an hour", f"0 to {MOST_USD_PER_H:,.0f} USD an hour for the {self.per}",
                        usd is None or 0 <= usd <= MOST_USD_PER_H),
            "date and source of a price": (f"{self.date!r}, {self.source!r}", "both", bool(self.date and self.source)),
            "the date of a price": (self.date, "a day, month or year, such as 2025-11-30, 2025-11, about 2025",
                                    _is_date(self.date)),
        }
        for what, (got, allowed, right) in wrong.items():
            if not right:
                raise HardwareError(f"{what} cannot be used", where=self.source, got=got, allowed=allowed)

    @property
    def usd_per_h(self) -> float | None:
        """The amount in USD; None: unknown."""
        return None if self.amount_per_h is None else self.amount_per_h / (self.currency_per_usd or 1.0)

    @property
    def usd_per_gpu_h(self) -> float | None:
        """USD for a GPU-hour: a node's price is shared by its GPUs. None: unknown."""
        usd = self.usd_per_h
        return None if usd is None else usd / (self.node_gpus or 1)

    def __str__(self) -> str:
        """Where it comes from, in words."""
        node = f", a node of {self.node_gpus}" if self.per == "node" else ""
        money = "" if self.currency == "USD" else f", {self.currency_per_usd:g} {self.currency} a USD"
        node = f"{node}, unknown" if self.amount_per_h is None else node
        return f"{self.source}, {self.kind}, {self.date}{node}{money}"


def _is_date(text: str) -> bool:
    """Whether it is a day of the calendar, or a month or a year; 'about' may stand before it."""
    text = text.removeprefix("about ")
    try:
        day.fromisoformat({4: f"{text}-01-01", 7: f"{text}-01"}.get(len(text), text))
    except ValueError:
        return False
    return len(text) in (4, 7, 10)


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
    """Limit of the board: an upper bound of what a GPU at work draws."""
    price_usd_per_h: float | None
    cite: Mapping[str, str]
    idle_w: float | None = None
    """Drawn by a GPU that nobody holds; None: unknown."""
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
    prices: tuple[Price, ...] = ()
    """What is known of its price; `price_usd_per_h` is the one that counts."""
    rented_gpus: int = 1
    """GPUs of the node that this price is for; 1: it is rented by the GPU."""
    sockets: int = 0
    """Of a server without a GPU, which all its sockets are: its rates are theirs together. 0: a GPU."""
    own: str | None = None
    """Where the figures of a type of the user's own are from; None: it is one of the catalogue."""

    def priced(self, price: Price | None) -> GpuType:
        """The type at this price; None: it is unknown."""
        return replace(self, price_usd_per_h=None if price is None else price.usd_per_gpu_h,
                       rented_gpus=1 if price is None else max(price.node_gpus, 1),
                       cite={**self.cite, "price": "unknown" if price is None else str(price)})

    def at(self, kind: str) -> GpuType:
        """The type at its price of a kind, the first one that is known; else unknown.

        Raises
        ------
        HardwareError
            No such kind.
        """
        if kind not in PRICE_KINDS:
            raise HardwareError("unknown kind of price", got=kind, allowed=", ".join(PRICE_KINDS),
                                todo=did_you_mean(kind, PRICE_KINDS))
        return self.priced(next((price for price in self.prices if price.kind == kind), None))

    def in_nodes(self, node_gpus: int) -> GpuType:
        """The type as rented in whole nodes of so many GPUs, at the price of its kind that is for just such nodes.

        As it is where none is known, or where the price that counts is the user's own.
        """
        mine = self._row
        sold = () if mine is None else self.prices
        found = next((price for price in sold if (price.kind, price.node_gpus) == (mine.kind, node_gpus)), None)  # type: ignore[union-attr]
        return self if found is None else self.priced(found)

    @property
    def _row(self) -> Price | None:
        """The price of the catalogue, or of the type's own, that counts; None: another one does."""
        row = next((price for price in self.prices if str(price) == self.cite.get("price")), None)
        return None if row is None or row.usd_per_gpu_h != self.price_usd_per_h else row

    def alone(self, node_gpus: int) -> str:
        """What to say where the price that counts is that of a node of one GPU, and nodes have `node_gpus`.

        Providers ask more for a GPU among others than for one by itself, or sell none: then the price is too low, or a
        guess. Empty where it is neither, or where the price is the user's own.
        """
        mine, usd = self._row, self.price_usd_per_h
        if mine is None or usd is None or mine.node_gpus != 1 or node_gpus < 2:
            return ""
        sold = [price for price in self.prices if price.kind == mine.kind and price.node_gpus >= node_gpus]
        near = min(sold, key=lambda price: price.node_gpus, default=None)
        other = None if near is None else near.usd_per_gpu_h
        if near is not None and other is not None and abs(other / usd - 1) < _SAME_PRICE:
            return ""
        asks = "no price of such a node is known" if near is None or other is None else (
            f"{near.source} asks {other:.4g} for each of {near.node_gpus}")
        return (f"{self.name} is priced as a node of one GPU ({mine.source}: {usd:.4g} USD/GPU-h), but nodes here have "
                f"{node_gpus}: {asks}")

    def usd_per_gpu_h(self, kind: str) -> float | None:
        """Its price of a kind, the first that the catalogue knows, in USD per GPU-hour; None: unknown."""
        return next((price.usd_per_gpu_h for price in self.prices if price.kind == kind), None)

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


_OWN: ContextVar[Mapping[str, GpuType]] = ContextVar("types of the user's own", default=MappingProxyType({}))


@contextmanager
def with_types(types: Iterable[GpuType]) -> Iterator[None]:
    """Within it types of the user's own are known by name, beside those of the catalogue and those known already.

    Raises
    ------
    HardwareError
        Two types of one name, in any case, differ in more than their price.
    """
    known = dict(_OWN.get())
    by_word = {name.lower(): gpu for name, gpu in catalogue().items()}
    for gpu in types:
        other = by_word.get(gpu.name.lower())
        if other is None:
            known[gpu.name] = by_word[gpu.name.lower()] = gpu
        elif _unpriced(other) != _unpriced(gpu):
            raise HardwareError("two types have one name", got=gpu.name, allowed="types of different names",
                                todo=f"One is of {other.own or 'the catalogue'}, the other of {gpu.own}.")
    token = _OWN.set(MappingProxyType(known))
    try:
        yield
    finally:
        _OWN.reset(token)


def _unpriced(gpu: GpuType) -> GpuType:
    """A type without the price that counts, which a cluster or a file of prices may have set."""
    none = gpu.priced(None)
    return replace(none, cite={key: text for key, text in none.cite.items() if key != "price_usd_per_h"})


def catalogue() -> Mapping[str, GpuType]:
    """The GPU types that are known, by name: those of hetsim at their prices on demand, and the user's own."""
    own = _OWN.get()
    return {**_shipped(), **own} if own else _shipped()


@cache
def _shipped() -> Mapping[str, GpuType]:
    table = tomllib.loads(files("sim.hardware").joinpath("gpus.toml").read_text("utf-8"))
    types = {}
    for name, entry in {**table["gpu"], **{name: _server(entry) for name, entry in table["cpu"].items()}}.items():
        prices = tuple(Price(**row) for row in entry.get("prices", ()))
        types[name] = GpuType(**{**entry, "name": name, "price_usd_per_h": None, "prices": prices}).at("on-demand")
    return types


def _server(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A server without a GPU as one device: rates and power of its sockets add up; PCIe alone joins it to others."""
    rates = ("peak_tflops", "fp32_tflops", "mem_gbytes_per_s", "power_w")
    return {**entry, **{name: entry[name] * entry["sockets"] for name in rates},
            "tf32_tflops": 0.0, "nvlink_gbytes_per_s": 0.0}


def gpu_type(name: str) -> GpuType:
    """Return one GPU type by name, any case.

    Raises
    ------
    HardwareError
        The name is unknown; the message lists the known ones.
    """
    known = {n.lower(): t for n, t in catalogue().items()}
    if name.lower() not in known:
        todo = did_you_mean(name.lower(), known) or "A type of your own: --hardware FILE, or [gpu.NAME] in the cluster."
        raise HardwareError("unknown GPU type", got=name, allowed=", ".join(catalogue()), todo=todo)
    return known[name.lower()]
