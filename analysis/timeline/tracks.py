"""A run as a timeline: which job lies on which track of which GPU when, in whole microseconds since the first submit.

A track is a lane of a GPU: jobs that share a GPU lie side by side. A time becomes microseconds by one rule wherever it
stands, so that stretches that abut still do, and none overlaps another. `analysis.timeline.traceevents` writes it for
viewers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.metrics.series import capacity, gpus_in_use, queue_length
from analysis.run import Run, RunError, explode

US_PER_S = 1_000_000


@dataclass(frozen=True, eq=False)
class Timeline:
    """A run, or a window of it, as slices: one for each segment and GPU slot.

    Attributes
    ----------
    run : the run.
    begin_s, end_s : window, in s on the trace's clock. Slices are cut at it.
    segment : int64 [slices], row of the segments table, in order of begin; slots of one segment follow each other.
    gpu, lane : int64 [slices], number of the GPU in the cluster; lane on it, from 0.
    begin_us, end_us : int64 [slices], since the first submit.
    """

    run: Run
    begin_s: float
    end_s: float
    segment: np.ndarray
    gpu: np.ndarray
    lane: np.ndarray
    begin_us: np.ndarray
    end_us: np.ndarray

    @cached_property
    def paid_us(self) -> np.ndarray:
        """int64 [slices]: when the restart overhead was over, at most the end."""
        over_s = self.run.column("segments", "begin_s") + self.run.column("segments", "overhead_s")
        paid: np.ndarray = self.since_submit_us(over_s)[self.segment].clip(self.begin_us, self.end_us)
        return paid

    @cached_property
    def node(self) -> np.ndarray:
        """int64 [slices]: node of the GPU."""
        return np.searchsorted(self.run.column("nodes", "first_gpu"), self.gpu, side="right") - 1

    @cached_property
    def counters(self) -> dict[str, pd.DataFrame]:
        """Step functions in the window by name: time_s, then a column a GPU type (or set of types that jobs ask for).

        A state that is like the one before it is left out.
        """
        run = self.run
        return {
            "jobs waiting": self._states(queue_length(run, by_type=True)),
            "GPUs held": self._states(gpus_in_use(run, by_type=True)),
            "GPUs in service": self._states(capacity(run)),
        }

    def _states(self, frame: pd.DataFrame) -> pd.DataFrame:
        time_s = frame["time_s"].to_numpy()
        first = max(0, int(np.searchsorted(time_s, self.begin_s, side="right")) - 1)
        inside = frame[first : int(np.searchsorted(time_s, self.end_s, side="right"))]
        values = inside.drop(columns="time_s").to_numpy()
        new = np.ones(len(inside), dtype=bool)
        new[1:] = (values[1:] != values[:-1]).any(axis=1)
        kept = inside[new].reset_index(drop=True)
        return kept.assign(time_s=kept["time_s"].clip(lower=self.begin_s))

    @cached_property
    def outages(self) -> list[tuple[int, float, str]]:
        """Node, time in s, and whether it went 'out of service' or came 'back in service', in the window."""
        words = ("out of service", "back in service")
        events = [(int(node), time_s, what) for node, *times in self.run.outages.itertuples(index=False)
                  for time_s, what in zip(times, words, strict=True)]
        return [event for event in events if self.begin_s <= event[1] <= self.end_s]

    def since_submit_us(self, time_s: np.ndarray) -> np.ndarray:
        """int64: times of the trace's clock as microseconds since the first submit."""
        return microseconds(time_s, self.run.window_s[0])


def timeline(run: Run, begin_s: float | None = None, end_s: float | None = None,
             jobs: Sequence[str] = ()) -> Timeline:
    """The timeline of a run, or of a window of it.

    Parameters
    ----------
    begin_s, end_s : window, in s on the trace's clock; left out: all of the run, or all of the named jobs.
    jobs : ids; only their segments are there. Counters are those of the whole cluster.

    Raises
    ------
    RunError
        An empty window, or a job that the run does not know.
    """
    rows = np.array([run.row_of(name) for name in jobs], dtype=np.int64)
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    wanted = np.isin(run.segment_job, rows) if jobs else np.ones(len(begin), dtype=bool)
    origin, closed = run.window_s
    first, last = origin, closed
    if jobs and wanted.any():
        first, last = float(run.column("jobs", "submit_s")[rows].min()), float(end[wanted].max())
    low = max(origin, first if begin_s is None else begin_s)
    high = min(closed, last if end_s is None else end_s)
    if not low <= high:
        raise RunError("nothing lies in the window", got=f"{low:g} to {high:g} s",
                       allowed=f"within {origin:g} to {closed:g} s, the begin before the end")
    inside = (begin < high) & (end > low) | (begin == end) & (begin >= low) & (begin <= high)
    segment, gpu = explode(run.tables["segments"]["gpu_ids"])
    taken = (wanted & inside)[segment]
    segment, gpu = segment[taken], gpu[taken].astype(np.int64)
    begin_us, end_us = microseconds(begin, origin), microseconds(end, origin)
    order = np.lexsort((gpu, segment, end_us[segment], begin_us[segment]))
    segment, gpu = segment[order], gpu[order]
    begin_us, end_us = begin_us[segment], end_us[segment]
    lane = lanes(gpu, begin_us, end_us, run.segment_job[segment])
    low_us, high_us = microseconds(np.array([low, high]), origin).tolist()
    return Timeline(run, low, high, segment, gpu, lane, begin_us.clip(low_us, high_us), end_us.clip(low_us, high_us))


def microseconds(time_s: np.ndarray, origin_s: float) -> np.ndarray:
    """int64: times as whole microseconds since the origin. Never decreasing in time; whole seconds stay whole."""
    since = np.asarray(time_s, dtype=np.float64) - origin_s
    whole = np.floor(since)
    parts: np.ndarray = whole.astype(np.int64) * US_PER_S + np.rint((since - whole) * US_PER_S).astype(np.int64)
    return parts


def lanes(gpu: np.ndarray, begin_us: np.ndarray, end_us: np.ndarray, job: np.ndarray) -> np.ndarray:
    """int64 [slices]: lane of each slice on its GPU, so that those of one lane never overlap; as few as can be.

    Slices are in order of begin, then of end. A slice takes the lane that its job had last if that is free, else the
    first free one, else a new one: a lane is added only where all are taken at that instant, so that there are as many
    as slices lie over one instant at most. One without length overlaps those that begin before and end after it.
    """
    lane = np.zeros(len(gpu), dtype=np.int64)
    order = np.argsort(gpu, kind="stable")
    meets = (gpu[order][1:] == gpu[order][:-1]) & (begin_us[order][1:] < end_us[order][:-1])
    shared = np.isin(gpu, gpu[order][1:][meets])
    ends_us: dict[int, list[int]] = {}
    last: dict[tuple[int, int], int] = {}
    columns = (np.flatnonzero(shared), gpu[shared], begin_us[shared], end_us[shared], job[shared])
    for i, g, begin, end, j in zip(*(column.tolist() for column in columns), strict=True):
        until = ends_us.setdefault(g, [])
        candidates = [last[g, j]] if (g, j) in last else []
        place = next((k for k in (*candidates, *range(len(until))) if until[k] <= begin), len(until))
        if place == len(until):
            until.append(end)
        until[place] = end
        lane[i] = last[g, j] = place
    return lane
