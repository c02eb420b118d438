"""What was free, and who waited, at any time of a run: step functions that are asked for many spans of time."""

from __future__ import annotations

import numpy as np

from analysis.metrics.occupancy import node_states
from analysis.metrics.series import queue_length
from analysis.run import Run


class Free:
    """GPUs free in a run, by type and on one node: `analysis.metrics.occupancy.node_states`, asked for spans of time.

    A state is that after all events of its instant and holds until the next. GPUs of a node that is out of service
    are not free. Everything is in 1/1000 GPU, as integers: what is taken and given back leaves nothing.

    Attributes
    ----------
    times_s : float64 [times], strictly increasing; the first is the run's begin.
    by_type : int64 [times, types], free of each type of `run.types`.
    """

    def __init__(self, run: Run) -> None:
        state = node_states(run)
        # States of one node follow each other in time: these are in order of node, then of time.
        self._free, self._kind = state.free_milli, run.node_type
        self.times_s, rank = np.unique(state.begin_s, return_inverse=True)
        self._key = state.unit * len(self.times_s) + rank
        before = np.concatenate(([0], self._free[:-1]))
        before[np.searchsorted(state.unit, np.arange(len(self._kind)))] = 0
        change, kind = self._free - before, self._kind[state.unit]
        self.by_type = np.stack([
            np.cumsum(np.bincount(rank[kind == k], weights=change[kind == k], minlength=len(self.times_s)))
            for k in range(len(run.types))
        ], axis=1).astype(np.int64)
        in_time = np.argsort(rank, kind="stable")
        self._rank, self._node_in_time, self._free_in_time = rank[in_time], state.unit[in_time], self._free[in_time]

    def _ranks(self, begin_s: float, end_s: float) -> tuple[int, int]:
        """Rank of the state that holds at `begin_s`, and of the first that no longer holds before `end_s`."""
        low = max(int(np.searchsorted(self.times_s, begin_s, side="right")) - 1, 0)
        return low, max(int(np.searchsorted(self.times_s, end_s)), low + 1)

    def best(self, begin_s: float, end_s: float, allowed: np.ndarray) -> float:
        """The most GPUs of the allowed types that were free at once in the span.

        Parameters
        ----------
        allowed : bool [types].
        """
        low, high = self._ranks(begin_s, end_s)
        return float(self.by_type[low:high, allowed].sum(axis=1).max()) / 1000.0

    def best_node(self, begin_s: float, end_s: float, allowed: np.ndarray) -> float:
        """The most GPUs that were free at once on one node of an allowed type in the span."""
        low, high = self._ranks(begin_s, end_s)
        mine = np.flatnonzero(allowed[self._kind])
        at = np.searchsorted(self._key, mine * len(self.times_s) + low, side="right") - 1
        top = int(self._free[at].max(initial=0))
        first, past = np.searchsorted(self._rank, [low + 1, high])
        later = self._free_in_time[first:past][allowed[self._kind[self._node_in_time[first:past]]]]
        return max(top, int(later.max(initial=0))) / 1000.0

    def enough_s(self, begin_s: float, end_s: float, allowed: np.ndarray, gpus: float) -> float:
        """For how long at least `gpus` of the allowed types were free in the span, wherever they were, in s."""
        low, high = self._ranks(begin_s, end_s)
        edges = np.append(np.maximum(self.times_s[low:high], begin_s), end_s)
        there = self.by_type[low:high, allowed].sum(axis=1) >= round(1000 * gpus)
        return float(np.diff(edges)[there].sum())


class Waiting:
    """How many jobs waited at a time: `analysis.metrics.series.queue_length`."""

    def __init__(self, run: Run) -> None:
        frame = queue_length(run)
        self._time_s, self._count = frame["time_s"].to_numpy(), frame["all"].to_numpy()

    def at(self, time_s: float) -> int:
        """Jobs that waited after all events of that instant."""
        where = int(np.searchsorted(self._time_s, time_s, side="right")) - 1
        return int(self._count[where]) if where >= 0 else 0
