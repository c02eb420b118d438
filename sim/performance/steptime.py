"""A law of the step time of data-parallel training, fitted to measured steps of one model on one kind of machine.

For n nodes, R GPUs of which the busiest node has g = ceil(R / n), and b samples a GPU:

    compute   C = (host_s + sample_s (b / batch)^growth) work(b) (1 + straggling (R - 1) / (R + 1))
    in a node I = bus_s + bus_gpu_s (g - 2)                                                     if g > 1, else 0
    network   X = pair' (2 (n - 1) / n (ring_s + ring_gpu_s (g - 1)) + tree_s log2(n / 2) + input_s b / batch)  if n > 1
    step      T = serial C + (((1 - serial) C)^8 + (I + X)^8)^(1/8)

- C: a floor that the host sets, and samples; growth below 1 where larger batches fill the GPU better, above 1 where
  they are padded to their longest sample. Every step waits for its slowest replica: (R - 1) / (R + 1) is how far the
  largest of R evenly spread times lies from their least.
- I, X: the sum of the gradients. A ring over n nodes moves 2 (n - 1) / n times the bytes over each node's link
  (Patarasuk & Yuan 2009), which the node's GPUs share; trees and latencies add steps with log n. pair' is `pair` for
  two nodes and 1 for more. Nodes that read samples over the network pay for each (input_s).
- T: `serial` of the computation is over before gradients are exchanged, and the rest hides them: the longer of the two
  counts, smoothly, as in Pollux (Qiao et al. 2021, section 3.2), whose exponent is fixed here.
- work(b): work of the batches that were measured, where b alone does not tell it (images of random size); 1 elsewhere.

At most 12 parameters are fitted. The law rises with b (where work is 1) and with R on the same nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.performance.calibration import FitError
from sim.performance.graph import PerformanceError
from sim.performance.tables.sia_steps import steps
from traces.errors import did_you_mean
from traces.reading.limits import is_amount, parse_toml

OVERLAP = 8.0
"""Exponent that joins what hides and what is hidden: near the larger of both."""
FREE = ("host_s", "sample_s", "growth", "straggling", "serial", "bus_s", "bus_gpu_s")
"""Parameters of any law; those of `Network` come on top."""


@dataclass(frozen=True, eq=False)
class StepRows:
    """Measured steps of one model on one kind of machine: float64 [rows] each.

    Attributes
    ----------
    nodes, replicas : nodes, and GPUs on all of them together.
    local_bsz : samples a GPU does in the step.
    step_s : seconds of the step, no accumulation.

    Raises
    ------
    PerformanceError
        Lengths that differ, no rows, fewer GPUs than nodes, or a value that is not above 0.
    """

    nodes: np.ndarray
    replicas: np.ndarray
    local_bsz: np.ndarray
    step_s: np.ndarray

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, np.asarray(getattr(self, f.name), dtype=np.float64))
        if len({getattr(self, f.name).shape for f in fields(self)}) != 1 or not len(self.nodes):
            got = ", ".join(str(getattr(self, f.name).shape) for f in fields(self))
            raise PerformanceError("columns differ in length", where="measured steps", got=got, allowed="equal, not 0")
        _placed(self.nodes, self.replicas, self.local_bsz)
        bad = self.step_s[~(np.isfinite(self.step_s) & (self.step_s > 0))]
        if len(bad):
            what = "a step time is impossible"
            raise PerformanceError(what, where="measured steps", got=float(bad[0]), allowed="seconds above 0")

    def __len__(self) -> int:
        return len(self.step_s)

    def where(self, chosen: np.ndarray) -> StepRows:
        """The chosen rows: bool or int [rows]."""
        return StepRows(self.nodes[chosen], self.replicas[chosen], self.local_bsz[chosen], self.step_s[chosen])


def read_steps(path: str | Path) -> dict[tuple[str, str], StepRows]:
    """Measured steps by (model, machine) from Sia's files or the tidy one; see `sim.performance.tables.sia_steps`."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for s in steps(path):
        found.setdefault((s.model, s.machine), []).append((s.nodes, s.replicas, s.local_bsz, s.step_s))
    return {key: StepRows(*np.array(rows).T) for key, rows in sorted(found.items())}


@dataclass(frozen=True)
class Network:
    """What leaving a node costs a job; see the head of this file. Seconds, but for `pair`, a factor."""

    ring_s: float
    ring_gpu_s: float = 0.0
    tree_s: float = 0.0
    pair: float = 1.0
    input_s: float = 0.0

    @classmethod
    def of_link(cls, gradient_bytes: float, link_bytes_per_s: float) -> Network:
        """A ring at a speed that is known (bytes / s of a node's link, as reached), and nothing else."""
        return cls(gradient_bytes / link_bytes_per_s)

    def scaled(self, factor: float) -> Network:
        """For gradients `factor` times as long; reading samples is left out, for it is not theirs."""
        return Network(self.ring_s * factor, self.ring_gpu_s * factor, self.tree_s * factor, self.pair)

    def exchange_s(self, nodes: np.ndarray, busiest: np.ndarray, batches: np.ndarray) -> np.ndarray:
        """X: float64 [rows], for GPUs on the `busiest` node and samples in units of the law's batch."""
        ring = 2 * (nodes - 1) / nodes * (self.ring_s + self.ring_gpu_s * (busiest - 1))
        all_s = ring + self.tree_s * np.log2(np.maximum(nodes, 2) / 2) + self.input_s * batches
        return np.where(nodes > 1, np.where(nodes == 2, self.pair, 1.0) * all_s, 0.0)


@dataclass(frozen=True)
class StepTimeLaw:
    """Step times of one model on one kind of machine; see the head of this file for each parameter.

    `network` None: no row left its node, so the law cannot tell what that costs. `batch` is the local batch that
    sample_s and input_s are for (not fitted: the geometric mean of the rows). `error` is that of the rows.

    Raises
    ------
    PerformanceError
        A parameter that is not a finite number from 0 up.
    """

    batch: float
    host_s: float
    sample_s: float
    growth: float
    straggling: float = 0.0
    serial: float = 1 / 3
    bus_s: float = 0.0
    bus_gpu_s: float = 0.0
    network: Network | None = None
    work: Mapping[int, float] = field(default_factory=dict)
    error: FitError | None = None
    source: str = ""

    def __post_init__(self) -> None:
        flat = [(key, getattr(self, key)) for key in ("batch", *FREE)]
        flat += [(f"network.{key}", value) for key, value in (asdict(self.network) if self.network else {}).items()]
        flat += [(f"work.{key}", value) for key, value in self.work.items()]
        for key, value in flat:
            if not is_amount(value):
                what = f"{key} is impossible"
                raise PerformanceError(what, where=self._where, got=value, allowed="a number from 0 up")
        if self.batch == 0 or self.serial > 1:
            what = "batch is 0" if self.batch == 0 else "serial is more than all of the computation"
            raise PerformanceError(what, where=self._where, got=(self.batch, self.serial), allowed="above 0; up to 1")

    @property
    def _where(self) -> str:
        return f"step-time law {self.source!r}"

    @property
    def parameters(self) -> int:
        """How many parameters were free."""
        return len(FREE) + (len(fields(Network)) if self.network else 0)

    def step_time_s(self, nodes: object, replicas: object, local_bsz: object) -> np.ndarray:
        """Seconds of a step: float64, of the shape that the three (numbers or arrays) have together.

        Raises
        ------
        PerformanceError
            Fewer GPUs than nodes, something below 1 node or at 0 samples, or several nodes where `network` is None.
        """
        n, r, b = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (nodes, replicas, local_bsz)))
        _placed(n, r, b)
        if self.network is None and (n > 1).any():
            raise PerformanceError("the law was fitted to single nodes", where=self._where, got=f"{n.max():g} nodes",
                                   allowed="1 node", todo="Give it a network: with_network.")
        return self._time_s(n, r, b, self._work(b))

    def _time_s(self, n: np.ndarray, r: np.ndarray, b: np.ndarray, work: np.ndarray) -> np.ndarray:
        busiest, batches = np.ceil(r / n), b / self.batch
        compute = (self.host_s + self.sample_s * batches**self.growth) * work
        compute = compute * (1 + self.straggling * (r - 1) / (r + 1))
        exchange = np.where(busiest > 1, self.bus_s + self.bus_gpu_s * (busiest - 2), 0.0)
        if self.network is not None:
            exchange = exchange + self.network.exchange_s(n, busiest, batches)
        hides = (1 - self.serial) * compute
        longer = np.maximum(np.maximum(hides, exchange), 1e-30)  # taken out of the powers, which else leave the range
        joined = longer * ((hides / longer) ** OVERLAP + (exchange / longer) ** OVERLAP) ** (1 / OVERLAP)
        return np.asarray(self.serial * compute + joined)

    def _work(self, b: np.ndarray) -> np.ndarray:
        sizes, at = np.unique(b, return_inverse=True)
        return np.array([self.work.get(int(size), 1.0) for size in sizes])[at].reshape(b.shape)

    def with_network(self, network: Network) -> StepTimeLaw:
        """The same job where leaving a node costs this; its error is unknown."""
        return replace(self, network=network, error=None)

    def errors(self, rows: StepRows) -> np.ndarray:
        """|predicted / measured - 1|: float64 [rows]."""
        return np.asarray(np.abs(self.step_time_s(rows.nodes, rows.replicas, rows.local_bsz) / rows.step_s - 1))

    def toml(self) -> str:
        """The law as TOML, which `from_toml` reads."""
        lines = [f"{key} = {getattr(self, key)!r}" for key in ("batch", *FREE)]
        lines.append("source = " + json.dumps(self.source, ensure_ascii=False).replace("\x7f", "\\u007f"))
        tables: dict[str, Mapping[Any, Any]] = {"work": self.work}
        tables |= {key: asdict(part) for key in ("network", "error") if (part := getattr(self, key)) is not None}
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {value!r}" for key, value in table.items())] if table else []
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, where: str = "step-time law") -> StepTimeLaw:
        """Read what `toml` wrote.

        Raises
        ------
        PerformanceError
            Not TOML, an unknown or missing key, or a value that is impossible.
        """
        try:
            table = parse_toml(text)
            work = {int(size): factor for size, factor in table.pop("work", {}).items()}
        except (ValueError, AttributeError) as error:
            what = "the law cannot be read"
            raise PerformanceError(what, where=where, got=str(error), allowed="TOML as `toml` writes it") from None
        parts = {name: _filled(part, table.pop(name), f"{where}, [{name}]")
                 for name, part in (("network", Network), ("error", FitError)) if name in table}
        law: StepTimeLaw = _filled(cls, table | parts, where)
        return replace(law, work=work)


def _filled(kind: type, table: Any, where: str) -> Any:
    """An object of a dataclass from a table of its fields."""
    known = [f.name for f in fields(kind)]
    if not isinstance(table, dict):
        raise PerformanceError("not a table", where=where, got=table, allowed=", ".join(known))
    for key in table:
        if key not in known:
            raise PerformanceError("unknown key", where=where, got=key, allowed=", ".join(known),
                                   todo=did_you_mean(key, known))
    try:
        return kind(**table)
    except TypeError as error:
        raise PerformanceError("a key is missing", where=where, got=str(error), allowed=", ".join(known)) from None


def _placed(nodes: np.ndarray, replicas: np.ndarray, local_bsz: np.ndarray) -> None:
    """Refuse placements that cannot be."""
    good = np.isfinite(nodes + replicas + local_bsz) & (nodes >= 1) & (replicas >= nodes) & (local_bsz > 0)
    if not good.all():
        n, r, b = (float(x[~good][0]) for x in (nodes, replicas, local_bsz))
        raise PerformanceError("an impossible placement", where="measured steps or a question",
                               got=f"{r:g} GPUs on {n:g} nodes, {b:g} samples each",
                               allowed="1 node or more, a GPU or more on each, above 0 samples")
