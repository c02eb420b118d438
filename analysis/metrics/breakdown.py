"""A run broken down: a row a job, a GPU type, a user or a virtual cluster. NaN where there is no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.metrics.costs import cost_by_type_usd, price_usd_per_gpu_h, segment_egress_usd
from analysis.metrics.energy import J_PER_KWH, energy_by_type_kwh
from analysis.metrics.fairness import rho
from analysis.metrics.gputime import (
    capacity_gpu_s,
    gpu_hours,
    of_types,
    ratio,
    segment_gpu_s,
    segment_gpus,
    utilisation,
    work,
)
from analysis.metrics.jobtimes import (
    bounded_slowdown,
    deadline_met,
    finished,
    jct_s,
    of_jobs,
    preempted,
    queue_s,
    slowdown,
)
from analysis.metrics.occupancy import fragmented_gpu_s, free_gpu_s, partly_free_gpu_s, stranded_gpu_s
from analysis.metrics.offered import offered_load
from analysis.metrics.once import per_run
from analysis.run import Run
from traces.late import pd

PER_JOB = (
    "jct_s", "queue_s", "slowdown", "bounded_slowdown", "rho", "gpu_s", "wasted_gpu_s", "cost_usd", "energy_kwh",
    "preemptions", "deadline_met", "finished",
)  # fmt: skip
"""Columns of `per_job`."""


def per_job(run: Run, n: str = "mean") -> pd.DataFrame:
    """One row a job of jobs.parquet, in its order; the index is job_id. NaN where a job has no such value.

    Columns: jct_s, queue_s, slowdown (JCT / recorded duration), bounded_slowdown, rho (finish-time fairness, `n`
    as in `fairness.rho`); gpu_s held, and of it wasted_gpu_s (overhead and lost work); cost_usd at the run's
    own price, of GPUs held and of bytes that left a zone; energy_kwh of GPUs held, at their power limit; preemptions
    (count); deadline_met (nullable boolean), finished (done, killed or failed). The first five are of jobs that count
    and finished; GPU time, cost, energy and preemptions are of every job. In a measuring window that follows its jobs
    the times and preemptions are those of their whole life, GPU time, cost and energy those in the window.
    """
    return _per_job(run, n).copy(deep=False)


@per_run
def _per_job(run: Run, n: str) -> pd.DataFrame:
    spent, gpus, gpu_s = work(run), segment_gpus(run), segment_gpu_s(run)
    held = run.held
    length = (run.column("segments", "end_s") - run.column("segments", "begin_s"))[held.segment]
    used_s = held.milli / 1000.0 * length

    def charged(rate: np.ndarray) -> np.ndarray:
        """Sum over a job's GPU-s of a rate of the node; a rate that is unknown counts only where time was held."""
        value = np.where(used_s > 0, used_s * rate[held.node], 0.0)
        return of_jobs(run, np.bincount(held.segment, weights=value, minlength=len(gpus)))

    return times(run).assign(
        rho=rho(run, n),
        gpu_s=of_jobs(run, gpu_s),
        wasted_gpu_s=of_jobs(run, gpus * (spent.overhead_s + spent.lost_s)),
        cost_usd=charged(price_usd_per_gpu_h(run) / 3600.0) + of_jobs(run, segment_egress_usd(run)),
        energy_kwh=charged(run.column("nodes", "busy_w").astype(float) / J_PER_KWH),
        preemptions=preempted(run),
    )[list(PER_JOB)]


def times(run: Run) -> pd.DataFrame:
    """Of the columns of `per_job` those of times and how jobs ended, which take little to work out."""
    columns = {**time_columns(run), "deadline_met": deadline_met(run).array, "finished": finished(run)}
    return pd.DataFrame(columns, index=pd.Index(run.jobs["job_id"], name="job_id"))


def time_columns(run: Run) -> dict[str, np.ndarray]:
    """The columns of `times` that are times."""
    return {"jct_s": jct_s(run), "queue_s": queue_s(run), "slowdown": slowdown(run),
            "bounded_slowdown": bounded_slowdown(run)}


def by_type(run: Run) -> pd.DataFrame:
    """One row for each GPU type, in node order. NaN where there is no value.

    Columns: gpus; capacity_gpu_h, held_gpu_h, utilisation_share (held / capacity); of the free GPU time (capacity less
    held): partly_free_share (on nodes of which a part is held), fragmented_share (`fragmented_gpu_s`), stranded_share
    (`stranded_gpu_s`); cost_usd at the run's own price, of GPUs held; energy_kwh, held and idle; offered_load.
    """
    columns: dict[str, Mapping[Any, Any]] = {
        "gpus": of_types(run, run.column("nodes", "gpus")),
        "capacity_gpu_h": of_types(run, capacity_gpu_s(run) / 3600.0),
        "held_gpu_h": gpu_hours(run),
        "utilisation_share": utilisation(run),
        **free_parts(run),
        "cost_usd": cost_by_type_usd(run),
        "energy_kwh": energy_by_type_kwh(run),
        "offered_load": offered_load(run)["load"].to_dict(),
    }
    rows = {name: [parts[kind] for kind in run.types] for name, parts in columns.items()}
    frame = pd.DataFrame(rows, index=pd.Index(run.types, name="gpu_type"), dtype=float)
    return frame.astype({"gpus": np.int64})


def free_parts(run: Run) -> dict[str, dict[str, float | None]]:
    """Shares of the free GPU time: partly_free_share, fragmented_share, stranded_share; 'all', then by GPU type."""
    free = of_types(run, free_gpu_s(run))
    parts = {
        "partly_free_share": of_types(run, partly_free_gpu_s(run)),
        "fragmented_share": of_types(run, fragmented_gpu_s(run)),
        "stranded_share": stranded_gpu_s(run),
    }
    return {
        name: {"all": ratio(sum(part.values()), sum(free.values()))} | {t: ratio(part[t], free[t]) for t in run.types}
        for name, part in parts.items()
    }


def by_group(run: Run, column: str, n: str = "mean") -> pd.DataFrame:
    """One row for each virtual cluster or user (`column` 'vc' or 'user') that is there, in order of GPU time held.

    Columns: jobs and jobs_finished, of jobs that count; jct_mean_s, jct_p50_s, queue_mean_s, bounded_slowdown_mean,
    rho_mean (`n` as in `analysis.metrics.fairness.rho`) and deadline_met_share of these; held_gpu_h, wasted_gpu_h,
    cost_usd (NaN: a price is unknown) and energy_held_kwh of all its jobs. The names are those of `MEASURES`. The job
    counts add up to all jobs that count; a job without a name is under the empty text.
    """
    job = per_job(run, n).reset_index()
    code, names = pd.factorize(run.jobs[column].fillna(""))
    grouped = job.astype({"deadline_met": "Float64"}).groupby(code, observed=True)

    def total(values: np.ndarray) -> np.ndarray:
        """Sum over each group; one that is unknown makes its group's unknown."""
        return np.bincount(code, weights=values, minlength=len(names))

    table = pd.DataFrame({
        "jobs": total(run.counted.astype(float)).astype(np.int64),
        "jobs_finished": grouped["finished"].sum(),
        "jct_mean_s": grouped["jct_s"].mean(),
        "jct_p50_s": grouped["jct_s"].median(),
        "queue_mean_s": grouped["queue_s"].mean(),
        "bounded_slowdown_mean": grouped["bounded_slowdown"].mean(),
        "rho_mean": grouped["rho"].mean(),
        "deadline_met_share": grouped["deadline_met"].mean().astype(float),
        "held_gpu_h": total(job["gpu_s"].to_numpy() / 3600.0),
        "wasted_gpu_h": total(job["wasted_gpu_s"].to_numpy() / 3600.0),
        "cost_usd": total(job["cost_usd"].to_numpy()),
        "energy_held_kwh": total(job["energy_kwh"].to_numpy()),
    })
    table.index = pd.Index(names, name=column)
    return table.sort_index().sort_values("held_gpu_h", ascending=False, kind="stable")
