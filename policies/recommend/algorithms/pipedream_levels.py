"""PipeDream's hierarchical optimizer: stages and replicas of least period, level of the network by level.

Narayanan et al. 2019 (SOSP, section 3.1, doi 10.1145/3341301.3359646). A level is some machines joined by links of
one bandwidth; a machine of a level is all of the level below. Within a level, A(i, j, m) is the least period of a
pipeline over what lies between the cuts i and j on m machines:

    A(i, j, m) = min over k, r of max(A(i, k, m - r), T(k, j, r), 2 a_k / (B r), 2 a_j / (B r))
    T(k, j, r) = (A below (k, j, all machines) + 4 (r - 1) / r x parameter bytes(k, j) / B) / r

with bandwidth B and a_k bytes that cross cut k; below the first level stand the measured times. The formulas are those
of the published optimizer (msr-fiddle/pipedream, optimizer_graph_hierarchical.py), with two of its peculiarities, so
that results can be compared: the first stage of a pipeline is charged no transfer of its own, only what the next one
receives; and above the first level the exchange of a stage that is alone is divided by the machines of the level below.

A cut is a down-set of the operator graph, so that stages may branch; a chain's cuts are its prefixes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.pipedream_table import all_pipelines, pipelines_from

FEWEST = 64
"""Cuts that are tried first where time is limited."""


@dataclass(frozen=True)
class Level:
    """Machines of one level of the network, and the bandwidth of each one's link."""

    machines: int
    bytes_per_s: float


@dataclass(frozen=True, eq=False)
class Cuts:
    """Where a model may be cut: what lies before each cut, smaller ones first; cut 0 is before everything.

    Attributes
    ----------
    within : bool [C, C], whether all that lies before the one cut lies before the other too, and more; false also
        where what lies between is not to be one stage.
    work_s : float64 [C], forward and backward time of a minibatch.
    param_bytes, stored_bytes : float64 [C], parameters, and activations kept for the backward pass.
    cut_bytes : float64 [C], activations that cross the cut; 0 at both ends.
    """

    within: np.ndarray
    work_s: np.ndarray
    param_bytes: np.ndarray
    stored_bytes: np.ndarray
    cut_bytes: np.ndarray

    @classmethod
    def of_chain(cls, work_s: np.ndarray, param_bytes: np.ndarray, stored_bytes: np.ndarray,
                 cut_bytes: np.ndarray) -> Cuts:
        """Cuts of operators in a row, from values of each one; `cut_bytes` [n] are those behind it."""
        work, params, stored = (
            np.concatenate(([0.0], np.cumsum(values))) for values in (work_s, param_bytes, stored_bytes)
        )
        within = np.triu(np.ones((len(work), len(work)), dtype=np.bool_), 1)
        return cls(within, work, params, stored, np.concatenate(([0.0], cut_bytes[:-1], [0.0])))

    @classmethod
    def of_sets(cls, sets: np.ndarray, work_s: np.ndarray, param_bytes: np.ndarray, stored_bytes: np.ndarray,
                cut_bytes: np.ndarray) -> Cuts:
        """Cuts that are down-sets, bool [C, n], from values of each operator; `cut_bytes` [C] cross each."""
        order = np.argsort(sets.sum(axis=1), kind="stable")
        members = sets[order].astype(np.float64)
        size = members.sum(axis=1)
        within = (members @ members.T == size[:, None]) & (size[:, None] < size[None, :])
        work, params, stored = (members @ values for values in (work_s, param_bytes, stored_bytes))
        return cls(within, work, params, stored, np.asarray(cut_bytes, dtype=np.float64)[order])

    def some(self, kept: np.ndarray) -> Cuts:
        """Only these cuts."""
        columns = self.work_s, self.param_bytes, self.stored_bytes, self.cut_bytes
        return Cuts(np.ascontiguousarray(self.within[np.ix_(kept, kept)]), *(column[kept] for column in columns))


@dataclass(frozen=True)
class PipelineStage:
    """What lies between two cuts, on so many of the smallest machines."""

    first_cut: int
    last_cut: int
    replicas: int


@dataclass(frozen=True)
class Pipeline:
    """Stages in order, and the time between two minibatches."""

    period_s: float
    stages: tuple[PipelineStage, ...]


def hierarchical(
    cuts: Cuts, levels: Sequence[Level], *, straight: bool = False, room_bytes: float | np.ndarray = math.inf,
    transfers: bool = True, seconds: float = math.inf,
) -> Pipeline | None:
    """The pipeline of least period that uses all machines of all levels; None: it does not fit.

    Parameters
    ----------
    cuts : where the model may be cut.
    levels : of the network, lowest first.
    straight : stages may not be replicated.
    room_bytes : memory of a machine for the copies that are in flight, of any stage or float64 [C, C] of what lies
        between two cuts; inf: no limit.
    transfers : whether activations cost time.
    seconds : of the processor. Time grows with the third power of the number of cuts (of one level, the second), so
        where it is limited few cuts are tried first (`thinned`), then twice as many while what they will take, by what
        the last ones took, is left. The best pipeline found is the answer: of all cuts if there was time, and else of
        some. inf: all cuts at once.

    Raises
    ------
    RecommendError
        No level, or one without machines or bandwidth.
    """
    for level in levels:
        if level.machines < 1 or not level.bytes_per_s > 0:
            raise RecommendError("a level of the network needs machines and bandwidth", got=level,
                                 allowed="1 machine or more, above 0 bytes/s")
    if not levels:
        raise RecommendError("a hierarchy needs a level", got=list(levels))
    if math.isinf(seconds):
        return _best(cuts, levels, straight, room_bytes, transfers)
    begin_s, count, power = time.process_time(), len(cuts.work_s), 2 if len(levels) == 1 else 3
    best, most = None, FEWEST
    while True:
        kept, before_s = thinned(cuts, most), time.process_time()
        room = room_bytes[np.ix_(kept, kept)] if isinstance(room_bytes, np.ndarray) else room_bytes
        found = _best(cuts.some(kept), levels, straight, room, transfers)
        if found is not None and (best is None or found.period_s < best.period_s):
            stages = (PipelineStage(int(kept[s.first_cut]), int(kept[s.last_cut]), s.replicas) for s in found.stages)
            best = Pipeline(found.period_s, tuple(stages))
        now_s = time.process_time()
        next_s = (now_s - before_s) * (min(2 * most, count) / len(kept)) ** power
        if len(kept) == count or now_s - begin_s + next_s > seconds:
            return best
        most *= 2


def thinned(cuts: Cuts, most: int) -> np.ndarray:
    """About so many of the cuts, int64 ascending, the first and the last among them: all, if there are no more.

    The work is divided into `most` / 2 equal parts. Of the cuts that lie in one, the one with the fewest bytes is kept,
    and of those behind what was last kept for the purpose too: so some of all that is kept lie behind each other.
    """
    count = len(cuts.work_s)
    if count <= most:
        return np.arange(count)
    parts = max(1, most // 2)
    part = np.minimum((cuts.work_s / max(float(cuts.work_s[-1]), 1e-300) * parts).astype(np.int64), parts - 1)
    order = np.lexsort((np.arange(count), cuts.cut_bytes, part))
    begins = np.searchsorted(part[order], np.arange(parts + 1))
    kept, last = {0, count - 1}, 0
    for first, end in pairwise(begins.tolist()):
        inner = order[first:end]
        kept.update(inner[:1].tolist())
        behind = inner[cuts.within[last, inner]]
        if len(behind):
            last = int(behind[0])
            kept.add(last)
    return np.array(sorted(kept), dtype=np.int64)


def _best(
    cuts: Cuts, levels: Sequence[Level], straight: bool, room_bytes: float | np.ndarray, transfers: bool
) -> Pipeline | None:
    work_s = np.where(cuts.within, cuts.work_s[None, :] - cuts.work_s[:, None], np.inf)
    times, settings, below = [work_s], [], 1
    for level in levels:
        most = 1 if straight else level.machines
        settings.append((level.machines, most, float(level.bytes_per_s), below, transfers))
        below = level.machines
    room = np.broadcast_to(np.asarray(room_bytes, dtype=np.float64), work_s.shape).copy()
    arrays = cuts.param_bytes, cuts.stored_bytes, cuts.cut_bytes, room
    for setting in settings[:-1]:
        times.append(all_pipelines(times[-1], *arrays, *setting))
    period_s, split, replicas = pipelines_from(0, times[-1], *arrays, *settings[-1])
    best = float(period_s[-1, levels[-1].machines])
    if best == math.inf:
        return None
    return Pipeline(best, tuple(_stages(0, len(cuts.work_s) - 1, split, replicas, times, settings, arrays)))


def _stages(start: int, end: int, split: np.ndarray, replicas: np.ndarray, times: list[np.ndarray],
            settings: list[tuple[int, int, float, int, bool]], arrays: tuple[np.ndarray, ...],
            ) -> list[PipelineStage]:
    """Stages between two cuts, from the tables of the highest level; those of lower levels are made again."""
    top, machines, last, spans = len(settings) - 1, settings[-1][0], end, []
    while last > start:
        first, r = int(split[last, machines]), int(replicas[last, machines])
        spans.append((first, last, r))
        last, machines = first, machines - r
    out = []
    for first, last, r in reversed(spans):
        if top == 0:
            out.append(PipelineStage(first, last, r))
            continue
        _, lower, each = pipelines_from(first, times[top - 1], *arrays, *settings[top - 1])
        parts = _stages(first, last, lower, each, times[:top], settings[:top], arrays)
        out += [PipelineStage(part.first_cut, part.last_cut, part.replicas * r) for part in parts]
    return out
