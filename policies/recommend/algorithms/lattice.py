"""The best pipeline over the down-sets of a graph for every vector of GPU counts: stages where the model branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.recommend.algorithms.all_downsets import DownSets
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.vectors import count_vectors
from sim.kernels.downset_walks import lattice


@dataclass(frozen=True)
class LatticeStage:
    """A stage of a chain: the down-set at its end, its type, and its units as an index into the sizes."""

    end: int
    type: int
    size: int


@dataclass(frozen=True, eq=False)
class LatticeFront:
    """Least periods by vector of units.

    Attributes
    ----------
    vectors : int64 [V, T]; all vectors within the limits.
    period_s : float64 [V], s; of the best chain that uses exactly the vector; inf: none, or none that is better than on
        fewer units. So the least over all vectors within v is the optimum within v.
    chains : stages of each, first to last; () where there is none.
    """

    vectors: np.ndarray
    period_s: np.ndarray
    chains: tuple[tuple[LatticeStage, ...], ...]


def lattice_front(
    sets: DownSets, cost_s: np.ndarray, border_s: np.ndarray, limits: Sequence[int], total: int, units: Sequence[int],
    *, fixed_s: np.ndarray | None = None, memory: np.ndarray | None = None, capacity: Sequence[float] | None = None,
) -> LatticeFront:
    """The best pipeline for every vector of units: stages are the steps of a chain of down-sets.

    In a steady state a micro-batch is done every

        period = max over stages s of max(fixed[t_s, q_s] + sum of cost[g, t_s, q_s] over groups g of s,
                                          border[end of s, t_s, t_{s+1}]),

    exact over chains, types and units of each stage, within the limits. Steps: pairs of down-sets x types x sizes x
    vectors (Tarnawski et al. 2021, Piper, section 4, with counts of several types).

    Parameters
    ----------
    cost_s : float64 [groups, T, Q]
        What a group takes as part of a stage on `units[q]` units of type t; inf: it cannot be there.
    border_s : float64 [I, T, T]
        Transfer at the cut after each down-set, from type t to type t of the next stage.
    limits, total, units : units of each type; of all; sizes that a stage may have, ascending, the first 1.
    fixed_s : float64 [T, Q]
        What a stage takes beside (default 0); inf: no stage has that many units of that type.
    memory, capacity : float64 [groups, T, Q], [T]
        What a group holds on a unit, and what a unit has (default: no limit).

    Raises
    ------
    RecommendError
        Shapes that do not fit one another, a negative or unknown figure, or units that do not ascend from 1.
    """
    types, sizes, groups = len(limits), len(units), len(sets.groups)
    fixed_s = np.zeros((types, sizes)) if fixed_s is None else fixed_s
    memory = np.zeros((groups, types, sizes)) if memory is None else memory
    room = np.full(types, np.inf) if capacity is None else np.asarray(capacity, dtype=float)
    shapes = {"cost_s": (cost_s, (groups, types, sizes)), "border_s": (border_s, (len(sets), types, types)),
              "fixed_s": (fixed_s, (types, sizes)), "memory": (memory, (groups, types, sizes)),
              "capacity": (room, (types,))}
    for name, (array, shape) in shapes.items():
        if array.shape != shape or not (array >= 0).all():
            raise RecommendError("a table of the lattice is of the wrong shape, or negative or unknown", where=name,
                                 got=array.shape, allowed=f"{shape}, 0 or more")
    if list(units) != sorted(set(units)) or units[0] != 1:
        raise RecommendError("sizes of stages do not ascend from 1", where="units", got=list(units))
    vectors, step = count_vectors(tuple(limits), total, tuple(units))
    # Down-sets are told apart by sums, where an infinity would leave no difference: what cannot be there fills it.
    share = np.divide(memory, room[:, None], out=np.where(memory > 0, 2.0, 0.0), where=room[:, None] > 0)
    share[~np.isfinite(cost_s)] = 2.0
    cost, held = (np.tensordot(sets.members.astype(float), table, axes=1)
                  for table in (np.where(np.isfinite(cost_s), cost_s, 0.0), np.minimum(share, 2.0)))
    index = {tuple(vector): v for v, vector in enumerate(vectors.tolist())}
    smaller = np.array([[index.get((*v[:t], v[t] - 1, *v[t + 1 :]), -1) for t in range(types)] for v in index])
    best, back = lattice(sets.sets, cost, fixed_s, held, border_s, step, smaller)
    period = best[-1].min(axis=0)
    within = period.copy()  # the least at a vector or a smaller one, which comes before it
    for v, near in enumerate(smaller):
        fewer = within[near[near >= 0]].min(initial=np.inf)
        period[v] = period[v] if period[v] < fewer else np.inf
        within[v] = min(within[v], fewer)

    def chain(v: int) -> tuple[LatticeStage, ...]:
        i, t = len(sets) - 1, int(best[-1, :, v].argmin())
        stages = []
        while i:
            before, q = divmod(int(back[i, t, v]), sizes)
            stages.append(LatticeStage(i, t, q))
            v = index[(*vectors[v, :t].tolist(), int(vectors[v, t]) - units[q], *vectors[v, t + 1 :].tolist())]
            i, t = before, int(np.maximum(best[before, :, v], border_s[before, :, t]).argmin())
        return tuple(reversed(stages))

    return LatticeFront(vectors, period, tuple(chain(v) if period[v] < np.inf else () for v in range(len(vectors))))
