"""A job as a long chain of operators in steady state, as arrays: no model, no units of hardware, nothing but numbers.

Operators are cut into stages of consecutive ones; each stage takes one *option*: so many GPUs of one type, used in
some way (replicas, tensor parallelism, recomputation). The period of the pipeline is its slowest stage or transfer,
the cost of an iteration is period x sum over stages of price x GPUs. Three solvers share the form:

- `chain_renting.Renting`: no limits on counts; least period, least cost, either within the other, or the front;
- `chain_fleet.FleetTable`: the least period for each vector of counts of a small fleet;
- `chain_large.large_fleet`: a plan and a proven bound where there are too many vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.chain_steady import reaches


@dataclass(frozen=True, eq=False)
class Chain:
    """n operators in order, O options, K GPU types, G groups of options, F layers.

    A stage of operators i..j-1 on option o takes  start_s[o] + time_s[o, j] - time_s[o, i]  seconds a micro-batch.

    Parameters
    ----------
    time_s : float64 [O, n + 1]
        Running sums over the operators, on each option; they do not fall.
    start_s : float64 [O]
        What a stage takes beside its operators (the latency of an all-reduce, divided by the micro-batches).
    kind, units : int64 [O]
        GPU type of each option, and how many of it a stage takes, >= 1.
    usd_per_s : float64 [K]
        Price of a GPU of each type; NaN: unknown. Any unit will do.
    reach : int64 [F, O, n]
        A stage that starts at operator i may end at this cut at most (i: it can't start there). By layer: that of
        the last stage, of the last but one, ...; the last layer is for all others. It does not fall with i, nor rise
        with the layer.
    group : int64 [O]
        Options that transfers do not tell apart.
    border_s : float64 [n + 1, G, G]
        Transfer at each cut from an option of one group to one of another.
    label : int64 [O]
        What the caller calls an option.

    Raises
    ------
    RecommendError
        Arrays of unlike shape, a time that is unknown, below 0 or falls, a price below 0.
    """

    time_s: np.ndarray
    start_s: np.ndarray
    kind: np.ndarray
    units: np.ndarray
    usd_per_s: np.ndarray
    reach: np.ndarray
    group: np.ndarray
    border_s: np.ndarray
    label: np.ndarray

    def __post_init__(self) -> None:
        options, n = self.time_s.shape[0], self.time_s.shape[1] - 1
        layers, groups = self.reach.shape[0], self.border_s.shape[1]
        shapes = {
            "start_s": (options,), "kind": (options,), "units": (options,), "group": (options,), "label": (options,),
            "reach": (layers, options, n), "border_s": (n + 1, groups, groups),
        }  # fmt: skip
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise RecommendError(f"{name} of a chain has another shape", got=getattr(self, name).shape,
                                     allowed=f"{shape}, as time_s has it")
        if min(options, n) < 1:
            raise RecommendError("a chain needs an operator and an option", got=self.time_s.shape)
        # Written so that NaN is refused too.
        sound = {
            "time_s": bool((np.diff(self.time_s, axis=1) >= 0).all()),
            "start_s": bool((self.start_s >= 0).all()),
            "border_s": bool((self.border_s >= 0).all()),
            "units": bool((self.units >= 1).all()),
            "usd_per_s": not (self.usd_per_s < 0).any(),
            "kind": set(self.kind.tolist()) <= set(range(len(self.usd_per_s))),
            "group": set(self.group.tolist()) <= set(range(groups)),
            "reach": bool((np.diff(self.reach, axis=2) >= 0).all() and (np.diff(self.reach, axis=0) <= 0).all()
                          and (self.reach >= np.arange(n)).all() and (self.reach <= n).all()),
        }  # fmt: skip
        for name, is_sound in sound.items():
            if not is_sound:
                raise RecommendError(f"{name} of a chain breaks its rule", allowed="see `Chain`")

    @property
    def kinds(self) -> int:
        return len(self.usd_per_s)

    def stage_s(self, first: int, last: int, option: int) -> float:
        """Seconds of a micro-batch in a stage of operators first..last, as the solvers count it."""
        return float(self.start_s[option] + (self.time_s[option, last + 1] - self.time_s[option, first]))

    def partition(self, stages: Sequence[tuple[int, int, int]]) -> Partition:
        """The partition of stages (first, last, option), first to last."""
        counts = np.bincount(self.kind[[o for *_, o in stages]], self.units[[o for *_, o in stages]], self.kinds)
        times = [self.stage_s(*stage) for stage in stages]
        times += [float(self.border_s[b[0], self.group[a[2]], self.group[b[2]]])
                  for a, b in pairwise(stages)]
        used = counts > 0
        labelled = tuple((first, last, int(self.label[option])) for first, last, option in stages)
        usd_per_s = float(counts[used] @ self.usd_per_s[used])
        return Partition(labelled, tuple(int(count) for count in counts), max(times), usd_per_s)


@dataclass(frozen=True)
class Partition:
    """Stages of a chain.

    Attributes
    ----------
    stages : (first operator, last operator, label of the option), in order.
    counts : GPUs of each type.
    period_s : seconds a micro-batch.
    usd_per_s : price of the GPUs; NaN where one that is used has no price.
    """

    stages: tuple[tuple[int, int, int], ...]
    counts: tuple[int, ...]
    period_s: float
    usd_per_s: float

    @property
    def usd(self) -> float:
        """Cost of a micro-batch."""
        return self.period_s * self.usd_per_s


def chain_of(
    op_s: np.ndarray,
    kind: Sequence[int],
    units: Sequence[int],
    usd_per_s: Sequence[float],
    *,
    params: np.ndarray | None = None,
    sync: np.ndarray | None = None,
    reach: np.ndarray | None = None,
    group: Sequence[int] | None = None,
    border_s: np.ndarray | None = None,
) -> Chain:
    """A chain from the times of its operators.

    A stage takes the sum of its operators' times and the least over its lines of  start + slope x parameters:  an
    all-reduce by the better of several algorithms. Each line becomes an option, since a solver takes the best anyway.

    Parameters
    ----------
    op_s : float64 [O, n]
        Seconds of a micro-batch in each operator on each option, all its replicas working.
    kind, units, usd_per_s : as in `Chain`.
    params : float64 [n], parameters of each operator.
    sync : float64 [O, L, 2]
        Start (s) and slope (s a parameter) of each line, a micro-batch's share of it.
    reach : int64 [F, O, n], as in `Chain`; None: all fits. `reach_of` makes it.
    group, border_s : as in `Chain`; None: transfers take no time.

    Returns
    -------
    Chain, its options labelled by their row in `op_s`.
    """
    op_s = np.asarray(op_s, dtype=np.float64)
    options, n = op_s.shape
    lines = np.zeros((options, 1, 2)) if sync is None else np.asarray(sync, dtype=np.float64)
    weights = np.zeros(n) if params is None else np.asarray(params, dtype=np.float64)
    row = np.repeat(np.arange(options), lines.shape[1])
    start_s, slope = lines.reshape(-1, 2).T
    time_s = np.zeros((len(row), n + 1))
    np.cumsum(op_s[row] + slope[:, None] * weights, axis=1, out=time_s[:, 1:])
    everything = np.full((1, options, n), n, dtype=np.int64) if reach is None else np.asarray(reach, dtype=np.int64)
    groups = np.zeros(options, dtype=np.int64) if group is None else np.asarray(group, dtype=np.int64)
    kept = np.sort(np.unique(np.column_stack([row, start_s, slope]), axis=0, return_index=True)[1])
    return Chain(
        time_s[kept], np.ascontiguousarray(start_s[kept]), np.asarray(kind, dtype=np.int64)[row[kept]],
        np.asarray(units, dtype=np.int64)[row[kept]], np.asarray(usd_per_s, dtype=np.float64),
        np.ascontiguousarray(everything[:, row[kept]]), groups[row[kept]],
        np.zeros((n + 1, int(groups.max()) + 1, int(groups.max()) + 1)) if border_s is None
        else np.asarray(border_s, dtype=np.float64),
        row[kept],
    )  # fmt: skip


def reach_of(
    fixed: np.ndarray, stored: np.ndarray, passing: np.ndarray, share: Sequence[float], room: Sequence[float],
    in_flight: int = 1,
) -> np.ndarray:
    """How far a stage fits:  sum of fixed + share x (f x sum of stored + max of passing) <= room.

    f is 1 for the last stage, 2 for the one before, ..., `in_flight` at most (1F1B; Narayanan et al. 2021).

    Parameters
    ----------
    fixed, stored, passing : float64 [n], of each operator.
    share : float [O], of a micro-batch on a GPU of the option; room : float [O], what the GPU has (less what each
        needs however few operators it has).

    Returns
    -------
    int64 [F, O, n], only as many layers as memory tells apart.
    """
    layers: list[np.ndarray] = []
    for f in range(1, in_flight + 1):
        rows = []
        for a, size in zip(share, room, strict=True):
            prefix = np.concatenate([[0.0], np.cumsum(fixed + a * f * stored)])
            rows.append(reaches(prefix, np.asarray(a * passing, dtype=np.float64), float(size)))
        layers.append(np.array(rows))
    while len(layers) > 1 and np.array_equal(layers[-1], layers[-2]):
        layers.pop()
    return np.array(layers)


def by_cost(found: Iterable[Partition]) -> tuple[Partition, ...]:
    """Those that no other one equals or beats in both period and cost, fastest first; none of unknown cost."""
    front: list[Partition] = []
    for partition in sorted((p for p in found if not math.isnan(p.usd)), key=lambda p: (p.period_s, p.usd)):
        if not front or partition.usd < front[-1].usd:
            front.append(partition)
    return tuple(front)
