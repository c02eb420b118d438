"""Types of the user's own, GPUs and CPUs, from a TOML file: as good as those of the catalogue, wherever one is named.

    [gpu.MyCard]                  # figures as in sim/hardware/gpus.toml
    like = "A100"                 # figures that are not given are those of this type
    memory_gib = 64
    source = "our own card"
    [[gpu.MyCard.prices]]         # rows as in a file of prices, without gpu_type
    ...
    [cpu.Xeon]                    # all sockets of a server are one device
    sockets = 2
    ...

`docs/hardware.md` lists the keys. A run keeps its types by value (`as_table`): the file may change, the run does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import model_validator

from sim.hardware.gputypes import GpuType, HardwareError, Price, gpu_type
from sim.settings.pricerow import UNKNOWN, MoneyRow
from sim.settings.values import ConfigError, RefusedError, Settings, checked, read_toml, setting

_COMPUTE, _MEMORY = 0.71, 0.82
"""Efficiencies where the user knows none: the means of those that the catalogue cites as measured."""
_NEEDED = ("memory_gib", "peak_tflops", "mem_gbytes_per_s", "pcie_gbytes_per_s", "power_w")
_NAME = re.compile(r"[A-Za-z][\w.-]{0,39}", re.ASCII)


class OwnGpu(Settings):
    """A `[gpu.NAME]` table."""

    like: str = setting("", "type of the catalogue whose figures are taken where none is given here")
    memory_gib: float | None = setting(None, "capacity", unit="GiB", gt=0, le=1e5)
    peak_tflops: float | None = setting(None, "dense peak in mixed precision", unit="TFLOP/s", gt=0, le=1e6)
    fp32_tflops: float | None = setting(None, "peak in single precision; left out: unknown", unit="TFLOP/s", gt=0,
                                        le=1e6)
    tf32_tflops: float | None = setting(None, "dense peak of TF32; 0: it multiplies in FP32; left out: unknown",
                                        unit="TFLOP/s", ge=0, le=1e6)
    mem_gbytes_per_s: float | None = setting(None, "bandwidth of its memory", unit="Gbyte/s", gt=0, le=1e6)
    compute_efficiency: float | None = setting(None, f"what large products reach of the peak; left out: {_COMPUTE}",
                                               gt=0, lt=1)
    fp32_efficiency: float | None = setting(None, "the same in single precision; left out: compute_efficiency", gt=0,
                                            lt=1)
    memory_efficiency: float | None = setting(None, f"what is reached of the bandwidth; left out: {_MEMORY}", gt=0,
                                              lt=1)
    nvlink_gbytes_per_s: float | None = setting(None, "all its links together, one direction; left out: none",
                                                unit="Gbyte/s", ge=0, le=1e5)
    pcie_gbytes_per_s: float | None = setting(None, "one direction", unit="Gbyte/s", gt=0, le=1e5)
    power_w: float | None = setting(None, "limit of the board", unit="W", gt=0, le=1e5)
    idle_w: float | None = setting(None, "drawn by one that nobody holds; left out: unknown", unit="W", ge=0, le=1e5)
    sms: int | None = setting(None, "multiprocessors; left out: unknown", ge=1, le=1_000_000)
    clock_mhz: float | None = setting(None, "boost clock; left out: unknown", unit="MHz", gt=0, le=1e5)
    source: str = setting(..., "where the figures are from", min_length=1)
    prices: list[MoneyRow] = setting([], "what it costs; none: unknown", allowed="[[prices]] tables")

    @model_validator(mode="after")
    def _whole(self) -> OwnGpu:
        lacking = [name for name in _NEEDED if getattr(self, name) is None]
        if not self.like and lacking:
            raise RefusedError(f"a type lacks {', '.join(lacking)}", allowed=", ".join(_NEEDED),
                               todo='Give them, or a type that it is like: like = "A100".')
        if None not in (self.peak_tflops, self.fp32_tflops) and self.fp32_tflops > self.peak_tflops:  # type: ignore[operator]
            raise RefusedError("fp32_tflops is above peak_tflops", allowed="at most the peak in mixed precision")
        return self


class OwnCpu(Settings):
    """A `[cpu.NAME]` table: a server without a GPU. Its sockets are one device, which plans count as a GPU."""

    sockets: int = setting(1, "of the server", ge=1, le=64)
    memory_gib: float = setting(..., "of the server", unit="GiB", gt=0, le=1e6)
    mem_gbytes_per_s: float = setting(..., "of a socket", unit="Gbyte/s", gt=0, le=1e5)
    fp32_tflops: float = setting(..., "peak of a socket in single precision", unit="TFLOP/s", gt=0, le=1e4)
    peak_tflops: float | None = setting(None, "peak of a socket in half precision; left out: fp32_tflops",
                                        unit="TFLOP/s", gt=0, le=1e4)
    compute_efficiency: float | None = setting(None, f"what large products reach of the peak; left out: {_COMPUTE}",
                                               gt=0, lt=1)
    memory_efficiency: float | None = setting(None, f"what is reached of the bandwidth; left out: {_MEMORY}", gt=0,
                                              lt=1)
    pcie_gbytes_per_s: float = setting(..., "of the server, one direction", unit="Gbyte/s", gt=0, le=1e5)
    power_w: float = setting(..., "of a socket", unit="W", gt=0, le=1e4)
    source: str = setting(..., "where the figures are from", min_length=1)
    prices: list[MoneyRow] = setting([], "what the server costs; none: unknown", allowed="[[prices]] tables")

    def as_gpu(self) -> dict[str, Any]:
        """The device that all sockets make: rates and power add up; nothing joins it to another but PCIe."""
        rows = self.model_dump(exclude={"sockets"}, exclude_none=True)
        peak = self.peak_tflops if self.peak_tflops is not None else self.fp32_tflops
        rates = {"mem_gbytes_per_s": self.mem_gbytes_per_s, "fp32_tflops": self.fp32_tflops, "peak_tflops": peak,
                 "power_w": self.power_w}
        return {**rows, **{name: value * self.sockets for name, value in rates.items()}, "tf32_tflops": 0.0,
                "prices": _plain(self.prices)}


class HardwareFile(Settings):
    """A file of types."""

    gpu: dict[str, OwnGpu] = setting({}, "GPU types by name", allowed="[gpu.NAME] tables")
    cpu: dict[str, OwnCpu] = setting({}, "CPU types by name", allowed="[cpu.NAME] tables")


def read_hardware(path: str) -> dict[str, GpuType]:
    """The types of a file, by name.

    Raises
    ------
    HetsimError
        The file cannot be read, has no types, or one that cannot be: named with its file, table and key.
    """
    types = own_types(read_toml(path), path)
    if not types:
        raise ConfigError("the file has no types", where=path, allowed="[gpu.NAME] or [cpu.NAME] tables")
    return types


def own_types(table: Mapping[str, Any], where: str) -> dict[str, GpuType]:
    """Types by name, of tables that were read.

    Raises
    ------
    HetsimError
        Nonsense: a figure out of bounds, a name that is none or of the catalogue, a type that is like none.
    """
    file = checked(HardwareFile, table, lambda key: f"{where}, {key}" if key else where)
    found: dict[str, GpuType] = {}
    for room, rows in (("gpu", file.gpu), ("cpu", file.cpu)):
        for name, row in rows.items():
            at = f"{where}, {room}.{name}"
            if not _NAME.fullmatch(name):
                raise ConfigError("not a name of a type", where=at, got=name,
                                  allowed="a letter, then up to 39 letters, digits, '.', '_' and '-'")
            if name.lower() in map(str.lower, found):
                raise ConfigError("a type is there twice", where=at, got=name, allowed="each name once, in any case")
            own = row if isinstance(row, OwnGpu) else OwnGpu.model_validate(row.as_gpu())
            found[name] = _made(name, own, at)
    return found


def _made(name: str, row: OwnGpu, at: str) -> GpuType:
    """One type: its own figures over those of the one that it is like."""
    try:
        gpu_type(name)
    except HardwareError:
        pass
    else:
        if gpu_type(name).own is None:
            raise ConfigError("a type of the catalogue has this name", where=at, got=name, allowed="another name",
                              todo='Figures of it may be taken: like = "' + gpu_type(name).name + '".')
    try:
        base = gpu_type(row.like) if row.like else None
        prices = tuple(Price(**price) for price in _priced(row.prices))
    except HardwareError as error:
        raise ConfigError(error.what, where=at, got=error.got, allowed=error.allowed, todo=error.todo) from None
    given = row.model_dump(exclude={"like", "source", "prices"}, exclude_none=True)
    guessed = [key for key in ("compute_efficiency", "memory_efficiency") if base is None and key not in given]
    figures: dict[str, Any] = {"compute_efficiency": _COMPUTE, "memory_efficiency": _MEMORY, "nvlink_gbytes_per_s": 0.0}
    if base is not None:
        figures = {key: getattr(base, key) for key in OwnGpu.model_fields if key not in ("like", "source", "prices")}
    source = row.source + (f"; else as {base.name}" if base is not None else "")
    source += f"; estimate: {' and '.join(guessed)}" if guessed else ""
    cite = dict.fromkeys(("device", "idle", "single", "compute_efficiency", "memory_efficiency"), source)
    return GpuType(**{**figures, **given}, name=name, price_usd_per_h=None, cite=cite, prices=prices,
                   own=source).at("on-demand")


def as_table(types: Iterable[GpuType]) -> dict[str, Any]:
    """Types as the tables of a file that has all their figures: `own_types` of it gives the same types."""
    names = [key for key in OwnGpu.model_fields if key not in ("like", "source", "prices")]
    rows = {}
    for gpu in types:
        figures = {key: getattr(gpu, key) for key in names if getattr(gpu, key) is not None}
        money = [{key: UNKNOWN if value is None else value for key, value in vars(price).items()}
                 for price in gpu.prices]
        rows[gpu.name] = {**figures, "source": gpu.own or "", **({"prices": money} if money else {})}
    return {"gpu": rows} if rows else {}


def _plain(rows: Iterable[MoneyRow]) -> list[dict[str, Any]]:
    return [{key: UNKNOWN if value is None else value for key, value in row.model_dump().items()} for row in rows]


def _priced(rows: Iterable[MoneyRow]) -> list[dict[str, Any]]:
    return [row.model_dump() for row in rows]
