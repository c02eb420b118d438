"""The peers' own performance model: Pollux' throughput and goodput, and the lookup of measured steps that Sia runs.

- `PolluxModel`: seven parameters for a job on a kind of machine (Qiao et al., Pollux, OSDI 2021, section 3; Jayaram
  Subramanya et al., Sia, SOSP 2023). Its goodput is what both schedulers maximise.
- `MeasuredSteps`: what their simulators take for the truth. A placement that was measured is interpolated in the local
  batch; any other one linearly among all measurements, in (nodes, GPUs, local batch). Outside them nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import QhullError

from sim.performance.graph import PerformanceError
from sim.performance.tables.cells import Row, header_of, read_text, rows_of
from traces.errors import did_you_mean

CANDIDATES = 50
"""Total batch sizes that are tried, in geometric order."""
ROUNDING = 1e-8
"""A quotient this little above an integer is that integer."""


@dataclass(frozen=True)
class Limits:
    """Batch sizes that a job may have: total up to max_bsz, min_local to max_local samples a GPU at once."""

    max_bsz: int
    min_local: int
    max_local: int


@dataclass(frozen=True)
class GradientNoise:
    """Squared norm and variance of the gradient at the batch size `init_bsz`, at some moment of training.

    Raises
    ------
    PerformanceError
        A negative one, both 0, or no batch size.
    """

    sqr: float
    var: float
    init_bsz: int

    def __post_init__(self) -> None:
        if not (0 < self.sqr + self.var < math.inf and min(self.sqr, self.var) >= 0 and self.init_bsz > 0):
            raise PerformanceError("impossible gradient noise", where=f"batch size {self.init_bsz}",
                                   got=(self.sqr, self.var), allowed="numbers from 0 up, not both 0")

    def efficiency(self, batch: object) -> np.ndarray:
        """Progress of a sample at a total batch size, relative to one at init_bsz.

        (noise + init_bsz) / (noise + batch) for the noise scale var / sqr init_bsz, in samples.
        """
        scale = np.asarray(batch, dtype=np.float64) / self.init_bsz
        return np.asarray((self.var + self.sqr) / (self.var + self.sqr * scale))


@dataclass(frozen=True)
class BestBatch:
    """The batch of most goodput; goodput and throughput in samples / s, accum micro-steps before the one that sums."""

    goodput: float
    local_bsz: int
    accum: int
    throughput: float
    efficiency: float


@dataclass(frozen=True)
class PolluxModel:
    """T_acc = alpha_c + beta_c b; T_net = alpha + beta max(R - 2, 0), 0 for one GPU; T = (T_acc^g + T_net^g)^(1/g).

    alpha and beta are alpha_n, beta_n where the R GPUs are on several nodes, else alpha_r, beta_r; b samples a GPU, g =
    gamma. Seconds.

    Raises
    ------
    PerformanceError
        A negative or infinite parameter, or gamma below 1.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), 1 if f.name == "gamma" else 0
            if not least <= value < math.inf:
                what = f"{f.name} is impossible"
                raise PerformanceError(what, where="Pollux' model", got=value, allowed=f"a number from {least} up")

    def accumulation_s(self, local_bsz: object) -> np.ndarray:
        """Seconds of a micro-step that only adds up gradients."""
        return np.asarray(self.alpha_c + self.beta_c * np.asarray(local_bsz, dtype=np.float64))

    def step_time_s(self, nodes: object, replicas: object, local_bsz: object) -> np.ndarray:
        """Seconds of a micro-step that also sums them over the GPUs; arguments broadcast."""
        n, r = (np.asarray(x, dtype=np.float64) for x in (nodes, replicas))
        beyond = np.maximum(r - 2, 0)
        spread = np.where(n > 1, self.alpha_n + self.beta_n * beyond, self.alpha_r + self.beta_r * beyond)
        network, compute = np.where(r > 1, spread, 0.0), self.accumulation_s(local_bsz)
        return np.asarray((compute**self.gamma + network**self.gamma) ** (1 / self.gamma))

    def throughput(self, nodes: object, replicas: object, local_bsz: object, accum: object = 0) -> np.ndarray:
        """Samples / s: R b (s + 1) / (s T_acc + T) with s = accum."""
        r, b, s = (np.asarray(x, dtype=np.float64) for x in (replicas, local_bsz, accum))
        return np.asarray(r * b * (s + 1) / (s * self.accumulation_s(b) + self.step_time_s(nodes, r, b)))

    def goodput(
        self, nodes: object, replicas: object, local_bsz: object, accum: object, noise: GradientNoise
    ) -> np.ndarray:
        """Throughput x efficiency, in samples / s of those at init_bsz."""
        r, b, s = (np.asarray(x, dtype=np.float64) for x in (replicas, local_bsz, accum))
        return self.throughput(nodes, r, b, s) * noise.efficiency(r * b * (s + 1))

    def best_batch(self, nodes: int, replicas: int, noise: GradientNoise, limits: Limits) -> BestBatch:
        """Goodput maximised over `CANDIDATES` total batches from max(init_bsz, R min_local) to max_bsz.

        Each takes as few micro-steps as max_local allows (one GPU that is beyond init_bsz at least two, for it can only
        so measure its noise), and rounds the local batch up, by which it may pass max_bsz, as theirs does. The first of
        equals is taken.

        Raises
        ------
        PerformanceError
            No candidate keeps to the limits.
        """
        low = max(noise.init_bsz, limits.min_local * replicas)
        where = f"{replicas} GPUs on {nodes} nodes"
        allowed = f"up to {limits.max_bsz} samples, {limits.min_local} to {limits.max_local} a GPU"
        if low > limits.max_bsz:
            raise PerformanceError("no batch is allowed", where=where, got=f"{low} samples or more", allowed=allowed)
        local = np.geomspace(low, limits.max_bsz, CANDIDATES) / replicas
        accum = np.maximum(np.ceil(local / limits.max_local - ROUNDING) - 1, 0)
        if replicas == 1:
            accum = np.where(local > noise.init_bsz + ROUNDING, np.maximum(accum, 1), accum)
        local = np.ceil(local / (accum + 1) - ROUNDING)
        fits = (local >= limits.min_local) & (local <= limits.max_local)
        if not fits.any():
            raise PerformanceError("no batch is allowed", where=where, got=f"{local.max():g} a GPU", allowed=allowed)
        value = np.where(fits, self.goodput(nodes, replicas, local, accum, noise), -np.inf)
        i = int(np.argmax(value))
        batch = replicas * local[i] * (accum[i] + 1)
        rate = float(self.throughput(nodes, replicas, local[i], accum[i]))
        return BestBatch(float(value[i]), int(local[i]), int(accum[i]), rate, float(noise.efficiency(batch)))


def read_models(path: str | Path, fit: str = "peer") -> dict[tuple[str, str], PolluxModel]:
    """Fitted parameters by (model, machine).

    CSV: model, gpu_type (machine), the seven parameters, and `fit`, which chooses among several fits of one job.

    Raises
    ------
    PerformanceError
        Not such a file, an impossible parameter, or no such fit.
    """
    names = [f.name for f in fields(PolluxModel)]
    rows = _rows(path, "model", "gpu_type", "fit", *names)
    found = {(row.text("model"), row.text("gpu_type")): PolluxModel(*(row.number(name) for name in names))
             for row in rows if row.text("fit") == fit}
    if not found:
        allowed = ", ".join(sorted({row.text("fit") for row in rows}))
        raise PerformanceError("no such fit", where=str(path), got=fit, allowed=allowed)
    return found


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """Measured steps of one model on one kind of machine.

    Attributes
    ----------
    placements : GPUs on each node, turned so that they are least, since nodes are in a ring -> float64 [batches, 3],
        rising: local batch, step and sync time in s.
    points : float64 [points, 5]: nodes, GPUs, local batch, and the means of step and sync time in s of all
        measurements there.
    """

    placements: Mapping[tuple[int, ...], np.ndarray]
    points: np.ndarray
    source: str

    @classmethod
    def read(cls, folder: str | Path, machine: str) -> MeasuredSteps:
        """Read `placements-<machine>.csv` and `scalability-<machine>.csv` of a model's folder in Sia's artifact.

        Raises
        ------
        PerformanceError
            Not such files.
        """
        placed: dict[tuple[int, ...], dict[float, list[tuple[float, float]]]] = {}
        means: dict[tuple[float, float, float], list[tuple[float, float]]] = {}
        times = ("local_bsz", "step_time", "sync_time")
        for row in _rows(Path(folder) / f"placements-{machine}.csv", "placement", *times):
            gpus, batch, took = _gpus(row), row.number("local_bsz", above=True), _took(row)
            placed.setdefault(_turned(gpus), {}).setdefault(batch, []).append(took)
            means.setdefault((len(gpus), sum(gpus), batch), []).append(took)
        for row in _rows(Path(folder) / f"scalability-{machine}.csv", "num_nodes", "num_replicas", *times):
            at = (row.integer("num_nodes"), row.integer("num_replicas"), row.number("local_bsz", above=True))
            means.setdefault(at, []).append(_took(row))
        curves = {gpus: np.array([(b, *np.mean(took, axis=0)) for b, took in sorted(rows.items())])
                  for gpus, rows in placed.items()}
        points = np.array([(*at, *np.mean(took, axis=0)) for at, took in means.items()])
        return cls(curves, points, f"{folder}, {machine}")

    def step_s(self, gpus_per_node: tuple[int, ...], local_bsz: float) -> tuple[float, float]:
        """Step and sync time, s, of GPUs on each node and samples on each GPU.

        Raises
        ------
        PerformanceError
            Outside what was measured: nothing is extrapolated.
        """
        curve = self.placements.get(_turned(gpus_per_node))
        if curve is not None:
            if curve[0, 0] <= local_bsz <= curve[-1, 0]:
                step, sync = (float(np.interp(local_bsz, curve[:, 0], curve[:, i])) for i in (1, 2))
                return step, sync
            raise self._unknown(gpus_per_node, local_bsz, f"{curve[0, 0]:g} to {curve[-1, 0]:g} samples a GPU there")
        found = None if self._between is None else self._between(len(gpus_per_node), sum(gpus_per_node), local_bsz)
        if found is None or np.isnan(found).any():
            n, r, b = self.points[:, :3].max(axis=0)
            among = f"among measured ones, up to {n:g} nodes, {r:g} GPUs, {b:g} samples a GPU"
            raise self._unknown(gpus_per_node, local_bsz, among)
        return float(found[0]), float(found[1])

    @cached_property
    def _between(self) -> LinearNDInterpolator | None:
        try:
            return LinearNDInterpolator(self.points[:, :3], self.points[:, 3:])
        except QhullError:  # all of one number of nodes: there is nothing between them
            return None

    def _unknown(self, gpus_per_node: tuple[int, ...], local_bsz: float, allowed: str) -> PerformanceError:
        got = f"{'-'.join(map(str, gpus_per_node))} GPUs on the nodes, {local_bsz:g} samples each"
        return PerformanceError("nobody measured this", where=self.source, got=got, allowed=allowed)


def _turned(gpus: tuple[int, ...]) -> tuple[int, ...]:
    return min((gpus[i:] + gpus[:i] for i in range(len(gpus))), default=())


def _gpus(row: Row) -> tuple[int, ...]:
    digits = row.text("placement")
    if not set(digits) <= set("123456789"):
        where = f"{row.where}, column 'placement'"
        raise PerformanceError("value not allowed", where=where, got=digits, allowed="a digit from 1 to 9 a node")
    return tuple(map(int, digits))


def _took(row: Row) -> tuple[float, float]:
    return row.number("step_time", above=True), row.number("sync_time")


def _rows(path: str | Path, *columns: str) -> list[Row]:
    """The rows of a CSV file that must have these columns."""
    text = read_text(path)
    names = header_of(text)
    for column in columns:
        if column not in names:
            raise PerformanceError(f"column {column!r} is missing", where=f"{path}, header",
                                   got=", ".join(names)[:200], allowed=", ".join(columns),
                                   todo=did_you_mean(column, names))
    return list(rows_of(text, str(path)))
