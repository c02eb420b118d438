"""What a fit says of operators: how much of a GPU's figures each kind reaches, and how well that agrees with rows.

A calibration is a TOML file. hetsim has some of its own (`SHIPPED`); `hetsim perf --calibrate` makes others.

    name = "mine"              # one word
    precision = "mixed"        # what its rows were computed in: mixed, tf32 or fp32
    launch_s = 7.5e-6          # seconds that a GPU loses for each kernel
    host_s = 0.0               # seconds that the host takes to issue a kernel: a GPU is never faster than its host
    source = "..."             # whose rows
    gpus = ["V100"]            # types that rows were of; none: not fitted to rows
    [kinds.conv]               # also gemm, attention, lstm, norm, embedding, elementwise, pool, update (the optimizer)
    compute = 1.0              # large products: fraction of the type's efficiency times peak
    memory = 1.0               # the same of memory efficiency times bandwidth, by the bytes that a graph counts
    fill_s = 3.4e-6            # seconds lost for each product until the GPU is full
    [error]                    # relative error of predicted times; left out where nothing was fitted
    rows = 40
    mean = 0.1
    median = 0.08
    worst = 0.3
    held_out_mean = 0.14       # mean for rows whose model (or kind's size) was left out of the fit; nan: unknown
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from sim.hardware.gputypes import PRECISIONS
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from traces.errors import did_you_mean
from traces.outfile import write_text
from traces.reading.limits import is_amount, parse_toml, plain_bytes

KINDS = ("conv", "gemm", "attention", "lstm", "norm", "embedding", "elementwise", "pool", "update")
"""Kinds of operators, and the optimizer's step."""
SHIPPED = ("tuned", "eager", "scripts", "megatron")
"""Calibrations that hetsim has."""


@dataclass(frozen=True)
class KindFit:
    """What operators of one kind reach; see the head of this file."""

    compute: float
    memory: float
    fill_s: float


@dataclass(frozen=True)
class FitError:
    """Relative error |predicted - measured| / measured of the rows of a fit."""

    rows: int
    mean: float
    median: float
    worst: float
    held_out_mean: float = math.nan

    @classmethod
    def of(cls, predicted_s: np.ndarray, measured_s: np.ndarray, held_out_mean: float = math.nan) -> FitError:
        """The errors of float64 [rows] against float64 [rows]."""
        error = np.abs(predicted_s / measured_s - 1)
        return cls(len(error), float(error.mean()), float(np.median(error)), float(error.max()), held_out_mean)


@dataclass(frozen=True)
class Calibration:
    """Parameters of the operator model; see the head of this file for each.

    Raises
    ------
    PerformanceError
        A kind lacks or is unknown, or a parameter is not a number above 0 (launch_s, host_s, fill_s: from 0).
    """

    name: str
    precision: str
    kinds: Mapping[str, KindFit]
    launch_s: float
    host_s: float
    source: str
    gpus: tuple[str, ...] = ()
    error: FitError | None = None

    def __post_init__(self) -> None:
        where = f"calibration {self.name!r}"
        _one_of(self.precision, PRECISIONS, "precision", where)
        for kind in self.kinds:
            _one_of(kind, KINDS, "kind of operator", where)
        if lacking := set(KINDS) - set(self.kinds):
            what = "a calibration lacks a kind of operator"
            raise PerformanceError(what, where=where, got=sorted(lacking)[0], allowed=", ".join(KINDS))
        _from_zero(self.launch_s, "launch_s", where)
        _from_zero(self.host_s, "host_s", where)
        for kind, fit in self.kinds.items():
            at = f"{where}, [kinds.{kind}]"
            _from_zero(fit.fill_s, "fill_s", at)
            for key in ("compute", "memory"):
                value = getattr(fit, key)
                if not is_amount(value) or value == 0:
                    raise PerformanceError(f"{key} is impossible", where=at, got=value, allowed="a number above 0")

    @property
    def value_bytes(self) -> int:
        """Bytes of a weight, a gradient or an activation in its precision."""
        return VALUE_BYTES if self.precision == "mixed" else 4

    def not_fitted_to(self, gpu_types: Iterable[str]) -> tuple[str, ...]:
        """Which of these types no row was of, in their order: their speeds follow from their figures and the fit of
        the others. None where nothing was fitted."""
        return tuple(name for name in dict.fromkeys(gpu_types) if self.gpus and name not in self.gpus)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a calibration file.

        Raises
        ------
        PerformanceError
            No such file, not TOML, an unknown or missing key, a value that is impossible.
        """
        try:
            text = plain_bytes(Path(path), PerformanceError).decode("utf-8")
        except (OSError, ValueError) as error:
            what = "the calibration cannot be read"
            raise PerformanceError(what, where=str(path), got=str(error), allowed="a TOML file") from None
        return _parsed(text, str(path))

    def save(self, path: str | Path) -> None:
        """Write it, so that `load` gives the same."""
        write_text(Path(path), self.toml())

    def toml(self) -> str:
        """The file's text."""
        lines = [f"{key} = {_written(getattr(self, key))}" for key in _KEYS if key not in ("kinds", "error")]
        tables = {f"kinds.{kind}": asdict(self.kinds[kind]) for kind in KINDS}
        if self.error is not None:
            tables["error"] = asdict(self.error)
        for table, entries in tables.items():
            lines += ["", f"[{table}]", *(f"{key} = {_written(value)}" for key, value in entries.items())]
        return "\n".join(lines) + "\n"

    def column(self, kinds: tuple[str, ...], parameter: str) -> np.ndarray:
        """A parameter of `KindFit` for each operator of a graph: float64 [ops]."""
        return np.array([getattr(self.kinds[kind], parameter) for kind in kinds])


@cache
def shipped(name: str) -> Calibration:
    """One of hetsim's own calibrations.

    'tuned': mixed precision, well optimized: the efficiencies of the catalogue and nothing fitted. 'eager': plain
    PyTorch in mixed precision, fitted to operators timed on an H100. 'scripts': training scripts of 2018 to 2021 in
    single precision (TF32 where present), fitted to published whole-model rates. 'megatron': transformers trained by
    DeepSpeed and Megatron in single precision (TF32 where present), fitted to published times of layers.

    Raises
    ------
    PerformanceError
        Unknown name.
    """
    _one_of(name, SHIPPED, "calibration", "")
    return _parsed(files("sim").joinpath("performance", "calibrations", f"{name}.toml").read_text("utf-8"), name)


def for_graphs(fit: Calibration, graphs: Iterable[OperatorGraph]) -> Calibration:
    """A calibration in the precision in which the graphs were measured: their values are as large as they were there.

    Raises
    ------
    PerformanceError
        They were measured in several.
    """
    sizes = {graph.profile.value_bytes: graph.name for graph in graphs if graph.profile is not None}
    if len(sizes) > 1:
        raise PerformanceError("models were measured with values of different size", where="measured layers",
                               got=", ".join(f"{name!r}: {size} bytes" for size, name in sorted(sizes.items())),
                               allowed="one size", todo="Ask about one at a time.")  # fmt: skip
    size = next(iter(sizes), fit.value_bytes)
    return fit if size == fit.value_bytes else replace(fit, precision="mixed" if size == VALUE_BYTES else "fp32")


def named_calibration(text: str) -> Calibration:
    """What a user named: one of `SHIPPED`, or a .toml file.

    Raises
    ------
    PerformanceError
        Neither.
    """
    return Calibration.load(text) if text.endswith(".toml") else shipped(text)


_KEYS = tuple(f.name for f in fields(Calibration))


def _parsed(text: str, where: str) -> Calibration:
    try:
        table = parse_toml(text)
    except ValueError as error:
        what = "the calibration cannot be read"
        raise PerformanceError(what, where=where, got=str(error), allowed="a TOML file") from None
    _keys(table, Calibration, where, ("gpus", "error"))
    kinds = table["kinds"] if isinstance(table["kinds"], dict) else {}
    for kind, entry in kinds.items():
        _keys(entry, KindFit, f"{where}, [kinds.{kind}]")
    errors = table.get("error")
    if errors is not None:
        _keys(errors, FitError, f"{where}, [error]", ("held_out_mean",))
    gpus = table.get("gpus", [])
    if not isinstance(gpus, list) or not all(isinstance(gpu, str) for gpu in gpus):
        raise PerformanceError("gpus is not a list of GPU types", where=where, got=gpus, allowed="a list of texts")
    for key in ("name", "source", "precision"):
        if not isinstance(table[key], str) or not table[key]:
            raise PerformanceError(f"{key} is not a text", where=where, got=table[key], allowed="a text")
    return Calibration(
        table["name"],
        table["precision"],
        {kind: KindFit(**entry) for kind, entry in kinds.items()},
        table["launch_s"],
        table["host_s"],
        table["source"],
        tuple(gpus),
        None if errors is None else FitError(**errors),
    )


def _keys(table: Any, of: type, where: str, optional: tuple[str, ...] = ()) -> None:
    """Refuse a table with a key that `of` does not have, or without one that it has."""
    known = [f.name for f in fields(of)]
    if not isinstance(table, dict):
        raise PerformanceError("not a table", where=where, got=table, allowed=", ".join(known))
    for key in table:
        _one_of(key, tuple(known), "key", where)
    for key in known:
        if key not in table and key not in optional:
            raise PerformanceError("a key is missing", where=where, got=sorted(table), allowed=key)


def _one_of(name: str, known: tuple[str, ...], what: str, where: str) -> None:
    if name not in known:
        todo = did_you_mean(str(name), known)
        raise PerformanceError(f"unknown {what}", where=where, got=name, allowed=", ".join(known), todo=todo)


def _from_zero(value: object, key: str, where: str) -> None:
    if not is_amount(value):
        raise PerformanceError(f"{key} is impossible", where=where, got=value, allowed="seconds, 0 or more")


def _written(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{quoted}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    return str(float(value)) if isinstance(value, float) else str(value)
