"""Metrics of a run: pure functions from its tables to numbers, each with its formula and unit.

What has no value (no job finished, a price unknown) is None in a scalar and NaN in an array; never zero.
Times are seconds on the trace's clock; a share of a GPU counts as that share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.run import FINISHED, Run
from analysis.series import gpus_in_use, queue_length

__all__ = [
    "by_group",
    "capacity_gpu_s",
    "cost_known_usd",
    "cost_usd",
    "end_reasons",
    "finished",
    "gpu_hours",
    "gpus_in_use",
    "held_gpu_s",
    "jain_index",
    "jct_s",
    "makespan_s",
    "preemptions",
    "queue_length",
    "queue_s",
    "run_s",
    "slowdown",
    "summary",
    "utilisation",
]

SLOWDOWN_BOUND_S = 10.0


def finished(run: Run) -> np.ndarray:
    """bool [jobs]: the job left after its work, as done, killed or failed (whatever its recorded end was)."""
    return run.jobs["state"].isin(FINISHED).to_numpy()


def jct_s(run: Run) -> np.ndarray:
    """Job completion time of each job, in s: ``end_s - submit_s``; NaN for a job that did not finish."""
    return np.where(finished(run), run.column("jobs", "end_s") - run.column("jobs", "submit_s"), np.nan)


def run_s(run: Run) -> np.ndarray:
    """Time that each job held GPUs, in s: ``sum(end_s - begin_s)`` over its segments, overheads included."""
    job, length = run.segment_job, run.column("segments", "end_s") - run.column("segments", "begin_s")
    return np.bincount(job[job >= 0], weights=length[job >= 0], minlength=len(run.jobs))


def queue_s(run: Run) -> np.ndarray:
    """Time that each finished job waited, in s: JCT minus the time in its segments; NaN for other jobs.

    Summed as the gaps before the first and between further segments, which is the same number but exactly 0
    for a job that never waited.
    """
    job, n = run.segment_job, len(run.jobs)
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    order = np.lexsort((begin, job))
    order = order[job[order] >= 0]
    job, begin, end = job[order], begin[order], end[order]
    first = np.ones(len(job), dtype=bool)
    first[1:] = job[1:] != job[:-1]
    submit = run.column("jobs", "submit_s")
    ready = np.where(first, submit[job], np.concatenate((begin[:1], end[:-1])))
    waited = np.bincount(job, weights=begin - ready, minlength=n)
    last = submit.astype(float)
    last[job] = end
    return np.where(finished(run), waited + (run.column("jobs", "end_s") - last), np.nan)


def slowdown(run: Run, bound_s: float = SLOWDOWN_BOUND_S) -> np.ndarray:
    """Bounded slowdown of each finished job, ``max(1, JCT / max(duration_s, bound_s))``; NaN for other jobs.

    `duration_s` is the recorded run time: what the job takes on its reference GPUs with no queue. The bound
    keeps very short jobs from ruling the mean. Source: Feitelson and Rudolph, "Metrics and Benchmarking for
    Parallel Job Scheduling", JSSPP 1998.
    """
    ratio: np.ndarray = jct_s(run) / np.maximum(run.column("jobs", "duration_s"), bound_s)
    bounded: np.ndarray = np.maximum(ratio, 1.0)
    return bounded


def makespan_s(run: Run) -> float | None:
    """First submit to the last time at which a job gave back GPUs, in s; None where nothing ran."""
    end = run.column("segments", "end_s")
    return float(end.max() - run.column("jobs", "submit_s").min()) if len(end) else None


def held_gpu_s(run: Run) -> np.ndarray:
    """GPU time held on each node, in GPU-s: ``sum(gpus * (end_s - begin_s))``, overheads included."""
    held = run.held
    length = run.column("segments", "end_s") - run.column("segments", "begin_s")
    used: np.ndarray = np.bincount(
        held.node, weights=held.milli / 1000.0 * length[held.segment], minlength=len(run.nodes)
    )
    return used


def capacity_gpu_s(run: Run) -> np.ndarray:
    """GPU time that each node offered, in GPU-s: ``gpus * (window - time down in it)``.

    The window is that of the run, first submit to last event.
    """
    begin, end = run.window_s
    outages = run.outages
    down = np.clip(outages["up_s"].to_numpy(), begin, end) - np.clip(outages["down_s"].to_numpy(), begin, end)
    lost = np.bincount(outages["node"].to_numpy(np.int64), weights=down, minlength=len(run.nodes))
    offered: np.ndarray = run.column("nodes", "gpus") * (end - begin - lost)
    return offered


def _by_type(run: Run, per_node: np.ndarray) -> dict[str, float]:
    return dict(
        zip(
            run.types,
            np.bincount(run.node_type, weights=per_node, minlength=len(run.types)).tolist(),
            strict=True,
        )
    )


def utilisation(run: Run) -> dict[str, float | None]:
    """Share of the offered GPU time that jobs held, ``held_gpu_s / capacity_gpu_s``: 'all', then by GPU type.

    This is allocation, from 0 to 1, not what the device's own counters would show. None where nothing was
    offered (a window of no length).
    """
    held, offered = held_gpu_s(run), capacity_gpu_s(run)
    pairs = {"all": (float(held.sum()), float(offered.sum()))}
    by_type = _by_type(run, offered)
    pairs |= {name: (h, by_type[name]) for name, h in _by_type(run, held).items()}
    return {name: h / c if c > 0 else None for name, (h, c) in pairs.items()}


def gpu_hours(run: Run) -> dict[str, float]:
    """GPU time held by GPU type, in GPU-h: ``held_gpu_s / 3600``."""
    return {name: held / 3600.0 for name, held in _by_type(run, held_gpu_s(run)).items()}


def cost_known_usd(run: Run) -> float:
    """Cost of the GPU time of known price, in USD: ``sum(held GPU-h * price)``; a lower bound of the cost."""
    price = run.column("nodes", "price_usd_per_gpu_h")
    return float(np.nansum(held_gpu_s(run) / 3600.0 * price))


def cost_usd(run: Run) -> float | None:
    """Cost of the GPU time held, in USD; None as soon as time was held on a GPU of unknown price."""
    unknown = np.isnan(run.column("nodes", "price_usd_per_gpu_h"))
    return None if (held_gpu_s(run)[unknown] > 0).any() else cost_known_usd(run)


def end_reasons(run: Run) -> dict[str, int]:
    """How many segments ended for each reason."""
    return {str(k): int(v) for k, v in run.segments["end_reason"].value_counts().sort_index().items()}


def preemptions(run: Run) -> int:
    """Segments that a policy ended by queueing the job again (not moves, resizes, failures, changes of speed)."""
    return end_reasons(run).get("preempted", 0)


def jain_index(values: np.ndarray) -> float | None:
    """Jain's fairness index ``sum(x)^2 / (n * sum(x^2))``: 1 where all are equal, 1/n where one has all.

    NaN entries are left out; None for no entries or only zeros. Source: Jain, Chiu and Hawe, DEC-TR-301,
    1984.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    top = np.abs(x).max(initial=0.0)
    if top == 0:
        return None
    x = x / top
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def by_group(run: Run, column: str) -> pd.DataFrame:
    """One row for each virtual cluster or user (`column` 'vc' or 'user'), in order of GPU time held.

    Columns: jobs, finished, jct_mean_s, jct_p50_s, queue_mean_s, slowdown_mean, gpu_hours. The job counts
    add up to all jobs of the trace; a job without a name is under the empty text.
    """
    job, length = run.segment_job, run.column("segments", "end_s") - run.column("segments", "begin_s")
    held = np.bincount(run.held.segment, weights=run.held.milli / 3.6e6, minlength=len(length)) * length
    frame = pd.DataFrame(
        {
            "group": run.jobs[column].fillna(""),
            "finished": finished(run),
            "jct": jct_s(run),
            "queue": queue_s(run),
            "slowdown": slowdown(run),
            "held": np.bincount(job[job >= 0], weights=held[job >= 0], minlength=len(run.jobs)),
        }
    )
    table = frame.groupby("group").agg(
        jobs=("group", "size"),
        finished=("finished", "sum"),
        jct_mean_s=("jct", "mean"),
        jct_p50_s=("jct", "median"),
        queue_mean_s=("queue", "mean"),
        slowdown_mean=("slowdown", "mean"),
        gpu_hours=("held", "sum"),
    )
    return table.rename_axis(column).sort_values("gpu_hours", ascending=False, kind="stable")


def summary(run: Run) -> dict[str, Any]:
    """The run in fifteen numbers, ready for JSON: what has no value is None, never NaN.

    Keys: jobs_done (done, killed or failed: all that ran to their recorded end), jobs_rejected,
    jobs_unfinished; jct_mean_s, jct_p50_s, jct_p99_s, queue_mean_s over jobs_done; makespan_s; utilisation
    ('all' and by GPU type); gpu_hours (all types); cost_usd (None: a price is unknown); preemptions; wall_s
    and peak_mib of the simulator itself; run_dir.
    """
    state = run.jobs["state"]
    jct = jct_s(run)[finished(run)]
    quantile = np.percentile(jct, [50, 99]).tolist() if len(jct) else [None, None]
    return {
        "jobs_done": len(jct),
        "jobs_rejected": int((state == "rejected").sum()),
        "jobs_unfinished": int((state == "unfinished").sum()),
        "jct_mean_s": float(jct.mean()) if len(jct) else None,
        "jct_p50_s": quantile[0],
        "jct_p99_s": quantile[1],
        "queue_mean_s": float(queue_s(run)[finished(run)].mean()) if len(jct) else None,
        "makespan_s": makespan_s(run),
        "utilisation": utilisation(run),
        "gpu_hours": sum(gpu_hours(run).values()),
        "cost_usd": cost_usd(run),
        "preemptions": preemptions(run),
        "wall_s": run.timing.get("wall_s"),
        "peak_mib": run.timing.get("peak_mib"),
        "run_dir": str(run.path),
    }
