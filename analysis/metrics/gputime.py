"""GPU time: held, offered, worked, wasted; by node and by GPU type. Sums of GPU-s, one entry a node or a segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.run import Run
from traces.late import pd


def segment_gpus(run: Run) -> np.ndarray:
    """GPUs that each segment holds, shares added up, in GPUs."""
    held = run.held
    gpus: np.ndarray = np.bincount(held.segment, weights=held.milli, minlength=len(run.segment_job)) / 1000.0
    return gpus


def segment_gpu_s(run: Run) -> np.ndarray:
    """GPU time of each segment, in GPU-s: ``gpus * (end_s - begin_s)``."""
    held: np.ndarray = segment_gpus(run) * (run.column("segments", "end_s") - run.column("segments", "begin_s"))
    return held


def held_gpu_s(run: Run) -> np.ndarray:
    """GPU time held on each node, in GPU-s: ``sum(gpus * (end_s - begin_s))``, overheads included."""
    held = run.held
    length = run.column("segments", "end_s") - run.column("segments", "begin_s")
    used: np.ndarray = np.bincount(
        held.node, weights=held.milli / 1000.0 * length[held.segment], minlength=len(run.node_type)
    )
    return used


def capacity_gpu_s(run: Run) -> np.ndarray:
    """GPU time that each node offered, in GPU-s: ``gpus * (window - time down in it) - time of GPUs out``.

    The window is that of the run, first submit to last event, or the measuring window. GPUs that are out for
    maintenance while their node is up are not there; those that are drained are.
    """
    begin, end = run.window_s
    lost, out = (_away_s(run, times) for times in (run.outage_columns, run.gpus_out_columns))
    offered: np.ndarray = run.column("nodes", "gpus") * (end - begin - lost) - out
    return offered


def _away_s(run: Run, times: Mapping[str, np.ndarray]) -> np.ndarray:
    """Time between down_s and up_s within the window, summed by node."""
    away = np.clip(times["up_s"], *run.window_s) - np.clip(times["down_s"], *run.window_s)
    total: np.ndarray = np.bincount(times["node"], weights=away, minlength=len(run.node_type))
    return total


def of_types(run: Run, per_node: np.ndarray) -> dict[str, float]:
    """Sum of a value of nodes over the nodes of each GPU type."""
    total = np.bincount(run.node_type, weights=per_node, minlength=len(run.types))
    return dict(zip(run.types, total.tolist(), strict=True))


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``; None where the whole is nothing."""
    return part / whole if whole > 0 else None


def utilisation(run: Run) -> dict[str, float | None]:
    """Share of the offered GPU time that jobs held, ``held_gpu_s / capacity_gpu_s``: 'all', then by GPU type.

    This is allocation, from 0 to 1, not what the device's own counters would show. None where nothing was
    offered (a window of no length).
    """
    held, offered = held_gpu_s(run), capacity_gpu_s(run)
    by_type = of_types(run, offered)
    pairs = {"all": (float(held.sum()), float(offered.sum()))}
    pairs |= {name: (part, by_type[name]) for name, part in of_types(run, held).items()}
    return {name: ratio(*pair) for name, pair in pairs.items()}


def gpu_hours(run: Run) -> dict[str, float]:
    """GPU time held by GPU type, in GPU-h: ``held_gpu_s / 3600``."""
    return {name: held / 3600.0 for name, held in of_types(run, held_gpu_s(run)).items()}


@dataclass(frozen=True)
class Work:
    """What each segment's time was spent on, in s; the three add up to its length. All are float64 [segments].

    Attributes
    ----------
    overhead_s : restart, no progress.
    lost_s : work that was thrown away later, at this segment's end or at that of a later one of the job.
    lasting_s : work that stood when the job left, or when the run ended.
    """

    overhead_s: np.ndarray
    lost_s: np.ndarray
    lasting_s: np.ndarray


def work(run: Run) -> Work:
    """Split each segment's time into overhead, lost and lasting work.

    A segment that loses work loses the latest that still stands, which may be that of earlier segments: a job
    then falls back to the level of work ``K_k = sum(work_done - work_lost)`` over its first k segments. Of
    segment k, which lifts the job from ``K_(k-1)`` by `work_done`, there lasts what lies below all later levels,
    ``clip(min(K_j for j >= k) - K_(k-1), 0, work_done)``, at the segment's own rate.

    An attempt that the trace records as failed, and that is replayed, is no waste here: a job's recorded run time is
    that of all its attempts, each does its part of the work, and the tables have nothing lost at its end. Nor is the
    time of jobs that ended as killed or failed (`measures` has it apart, as unsuccessful).
    """
    job = run.segment_job
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    done, lost = run.column("segments", "work_done"), run.column("segments", "work_lost")
    length = end - begin
    overhead = np.minimum(run.column("segments", "overhead_s"), length)
    thrown = np.zeros(len(job))
    if (lost > 0).any():
        order = np.lexsort((begin, job))
        mine = np.isin(job[order], job[lost > 0])
        thrown[order[mine]] = _thrown_away(job[order[mine]], done[order[mine]], lost[order[mine]])
    rate = run.column("segments", "rate")
    lost_s = np.divide(thrown, rate, out=np.zeros(len(job)), where=rate > 0)
    lost_s = np.minimum(lost_s, length - overhead)
    return Work(overhead, lost_s, length - overhead - lost_s)


def _thrown_away(job: np.ndarray, done: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Work of each segment that does not last; segments in order of job and time."""
    level = pd.Series(done - lost).groupby(job).cumsum().to_numpy()
    least = pd.Series(level[::-1]).groupby(job[::-1]).cummin().to_numpy()[::-1]
    before = np.where(np.concatenate(([True], job[1:] != job[:-1])), 0.0, np.concatenate(([0.0], level[:-1])))
    gone: np.ndarray = done - np.clip(least - before, 0.0, done)
    return gone


def wasted_gpu_s(run: Run) -> dict[str, float]:
    """GPU time held that made no lasting progress, in GPU-s: 'overhead' (restarts) and 'lost' (work done again)."""
    spent, gpus = work(run), segment_gpus(run)
    return {"overhead": float(gpus @ spent.overhead_s), "lost": float(gpus @ spent.lost_s)}
