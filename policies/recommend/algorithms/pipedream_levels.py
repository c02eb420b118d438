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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from sim.kernels.pipedream_table import all_pipelines, pipelines_from


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
    transfers: bool = True,
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
