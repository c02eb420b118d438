"""Piper: stages with data and tensor parallelism and recomputation, of least period, on devices of one type.

Tarnawski, Narayanan, Phanishayee 2021 (NeurIPS, 'Piper: Multidimensional Planner for DNN Parallelization'). A stage
is what lies between two down-sets of the operator graph. With d replicas of t devices each, N micro-batches an
iteration and a bandwidth B, it takes

    T = (sum of operator times + border bytes / B + 4 (d - 1) x parameter bytes / (N B)) / d

a micro-batch, and each device holds  sum of (flight bytes x ceil(s / d) + fixed bytes),  s the replicas of this stage
and all after it. Each operator runs in one of two ways: it keeps its activations or computes them again. The period
is the largest T. The program is exact but for the choice of ways within a stage, which is Piper's greedy one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.piper_table import border_bytes, choose_ways, stage_costs, stages_before

KEEP, RECOMPUTE = 0, 1


@dataclass(frozen=True, eq=False)
class Piper:
    """What there is to plan: n operators, E edges, T degrees of tensor parallelism, two ways (keep, recompute).

    Attributes
    ----------
    tensor : degrees of tensor parallelism.
    time_s : float64 [T, n, 2], forward and backward of a micro-batch on t devices; inf: not possible.
    param_bytes : float64 [T, n, 2], parameters on each device.
    flight_bytes, fixed_bytes : float64 [T, n, 2], memory of each device for a micro-batch in flight, and otherwise.
    edges : int64 [E, 2], source and reader.
    edge_bytes : float64 [E], sent once forward and once backward where the ends are in different stages.
    sync_in, sync_out : float64 [T, E, 2], what the reader's and the source's way add to that.
    devices, memory_bytes, bytes_per_s : devices that there are, with memory and bandwidth of each.
    micro_batches : of an iteration.
    """

    tensor: tuple[int, ...]
    time_s: np.ndarray
    param_bytes: np.ndarray
    flight_bytes: np.ndarray
    fixed_bytes: np.ndarray
    edges: np.ndarray
    edge_bytes: np.ndarray
    sync_in: np.ndarray
    sync_out: np.ndarray
    devices: int
    memory_bytes: float
    bytes_per_s: float
    micro_batches: int

    def __post_init__(self) -> None:
        if min(self.devices, self.micro_batches, *self.tensor) < 1 or not self.bytes_per_s > 0:
            raise RecommendError(
                "a pipeline needs devices, micro-batches and bandwidth",
                got=f"{self.devices} devices, {self.micro_batches} micro-batches, {self.bytes_per_s} bytes/s",
                allowed="1 or more of each",
            )

    @property
    def operators(self) -> int:
        return self.time_s.shape[1]


@dataclass(frozen=True)
class PiperStage:
    """Operators of a stage, ascending; devices of a replica; replicas; of the operators, those computed again."""

    ops: tuple[int, ...]
    tensor: int
    data: int
    recomputed: tuple[int, ...]


@dataclass(frozen=True)
class PiperPlan:
    """Stages in order, and the time of the slowest for a micro-batch."""

    period_s: float
    stages: tuple[PiperStage, ...]


def best_plan(
    piper: Piper, sets: np.ndarray, *, data: bool = True, tensor: bool = True, recompute: bool = True
) -> PiperPlan | None:
    """The plan of least period on at most all devices (`best_plans`); None: nothing fits."""
    return best_plans(piper, sets, [piper.devices], data=data, tensor=tensor, recompute=recompute)[0]


def best_plans(
    piper: Piper, sets: np.ndarray, devices: Sequence[int], *, data: bool = True, tensor: bool = True,
    recompute: bool = True,
) -> list[PiperPlan | None]:
    """For each number of devices, up to all that there are, the plan of least period on at most so many.

    Parameters
    ----------
    sets : bool [I, n], down-sets between which stages lie, smaller ones first, from none to all operators.
    data, tensor, recompute : whether stages may be replicated, use tensor parallelism, compute activations again.

    Returns
    -------
    None where nothing fits.
    """
    kept = [i for i, degree in enumerate(piper.tensor) if tensor or degree == 1]
    time_s = piper.time_s[kept].copy()
    if not recompute:
        time_s[:, :, RECOMPUTE] = np.inf
    table = stages_before(
        np.ascontiguousarray(sets, dtype=np.bool_), np.array(piper.tensor, dtype=np.int64)[kept], time_s,
        *(values[kept] for values in (piper.param_bytes, piper.flight_bytes, piper.fixed_bytes)), piper.edges,
        piper.edge_bytes, piper.sync_in[kept], piper.sync_out[kept], piper.devices, piper.micro_batches,
        float(piper.bytes_per_s), float(piper.memory_bytes), piper.devices if data else 1,
    )
    return [_follow(piper, sets, table, kept, k, recompute) for k in devices]


def _follow(
    piper: Piper, sets: np.ndarray, table: tuple[np.ndarray, ...], kept: list[int], k: int, recompute: bool
) -> PiperPlan | None:
    """The plan on at most k devices that a table (`stages_before`) stands for."""
    period, above, degree, replicas = table
    s, low, stages = period.shape[2] - 1, 0, []
    best = float(period[0, k, s])
    if best == math.inf:
        return None
    while low < len(sets) - 1:
        # An entry that less would do as well for tells nothing of its stage.
        while k > 0 and period[low, k - 1, s] == period[low, k, s]:
            k -= 1
        while s > 0 and period[low, k, s - 1] == period[low, k, s]:
            s -= 1
        high, t, d = int(above[low, k, s]), kept[degree[low, k, s]], int(replicas[low, k, s])
        stages.append(_stage(piper, np.flatnonzero(sets[high] & ~sets[low]), t, d, s, recompute))
        low, k, s = high, k - d * piper.tensor[t], s - d
    return PiperPlan(best, tuple(stages))


def _stage(piper: Piper, ops: np.ndarray, t: int, d: int, s: int, recompute: bool) -> PiperStage:
    """A stage with the ways that suit s replicas from it to the end."""
    cost, choice = np.empty((len(ops), 2)), np.empty(len(ops), dtype=np.int64)
    stage_costs(ops, _border(piper, ops, t), piper.time_s[t], piper.param_bytes[t], d, piper.micro_batches,
                float(piper.bytes_per_s), cost)
    if not recompute:
        cost[:, RECOMPUTE] = np.inf
    need = piper.flight_bytes[t, ops] * -(-s // d) + piper.fixed_bytes[t, ops]
    choose_ways(cost, need, float(piper.memory_bytes), choice)
    return PiperStage(tuple(ops.tolist()), piper.tensor[t], d, tuple(ops[choice == RECOMPUTE].tolist()))


def _border(piper: Piper, ops: np.ndarray, t: int) -> np.ndarray:
    """Bytes [n, 2] that the operators of a stage send and receive across its borders."""
    inside, border = np.zeros(piper.operators, dtype=np.bool_), np.empty((piper.operators, 2))
    inside[ops] = True
    border_bytes(inside, piper.edges, piper.edge_bytes, piper.sync_in[t], piper.sync_out[t], border)
    return border


def period_s(piper: Piper, stages: Sequence[PiperStage]) -> float:
    """Period of given stages; inf where one does not fit its memory."""
    slowest, after = 0.0, 0
    for stage in reversed(stages):
        t, ops = piper.tensor.index(stage.tensor), np.array(stage.ops)
        after += stage.data
        ways = np.isin(ops, stage.recomputed).astype(np.int64)
        in_flight = -(-after // stage.data)
        need = (piper.flight_bytes[t, ops, ways] * in_flight + piper.fixed_bytes[t, ops, ways]).sum()
        if need > piper.memory_bytes:
            return math.inf
        cost = np.empty((len(ops), 2))
        stage_costs(ops, _border(piper, ops, t), piper.time_s[t], piper.param_bytes[t], stage.data,
                    piper.micro_batches, float(piper.bytes_per_s), cost)
        slowest = max(slowest, float(cost[np.arange(len(ops)), ways].sum()))
    return slowest


def equal_stages(
    piper: Piper, layers: Sequence[int], before: Sequence[int], after: Sequence[int], *, tensor: bool = True
) -> PiperPlan | None:
    """The best plan of stages with equally many layers, all alike: what PipeDream-2BW's planner considers.

    Narayanan et al. 2021 (ICML, 'Memory-Efficient Pipeline-Parallel DNN Training'). All stages have as many
    replicas and devices a replica, and all operators or none are computed again. `before` and `after` join the first
    and the last stage, or are stages of their own. Later stages have a layer more where layers do not divide.
    """
    best: PiperPlan | None = None
    for ops, t, again in product(_layouts(piper, layers, before, after), piper.tensor, (False, True)):
        if t > 1 and not tensor:
            continue
        for d in range(1, min(piper.devices // t, piper.micro_batches) // len(ops) + 1):
            if piper.micro_batches % d:
                continue
            plan = tuple(PiperStage(stage, t, d, stage if again else ()) for stage in ops)
            period = period_s(piper, plan)
            if period < (math.inf if best is None else best.period_s):
                best = PiperPlan(period, plan)
    return best


def _layouts(
    piper: Piper, layers: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> Iterable[list[tuple[int, ...]]]:
    """Operators of each stage, for all numbers of stages, with the ends in stages of their own or not."""
    for apart in (False, True):
        for count in range(1, min(len(layers), piper.devices - 2 * apart) + 1):
            larger = len(layers) % count
            sizes = [len(layers) // count + (i >= count - larger) for i in range(count)]
            ends = np.cumsum([0, *sizes])
            stages = [list(layers[i:j]) for i, j in pairwise(ends)]
            if apart:
                stages = [[], *stages, []]
            stages[0] += before
            stages[-1] += after
            if all(stages):
                yield [tuple(sorted(stage)) for stage in stages]
