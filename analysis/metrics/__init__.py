"""Metrics of a run: pure functions from its tables to numbers, each with its formula and unit.

What has no value (no job finished, a price unknown) is None in a scalar and NaN in an array; never zero.
Times are seconds on the trace's clock; a share of a GPU counts as that share. `measures` is the run as one flat
row, `per_job` a row a job, `by_type` and `by_group` a row a GPU type, user or virtual cluster. What this module
exports is what `docs/metrics.md` names; all else is in `analysis.metrics`, a subject a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from analysis.metrics.breakdown import by_group, by_type, free_parts, per_job, time_columns
from analysis.metrics.costs import cost_egress_usd, cost_known_usd, cost_usd
from analysis.metrics.energy import energy_held_kwh, energy_kwh
from analysis.metrics.fairness import jain_index, rho
from analysis.metrics.gputime import capacity_gpu_s, gpu_hours, held_gpu_s, ratio, utilisation, wasted_gpu_s, work
from analysis.metrics.jobtimes import (
    bounded_slowdown,
    censored,
    deadline_met,
    deadlines_met,
    ends_badly,
    finished,
    in_state,
    jct_s,
    lateness_s,
    makespan_s,
    queue_s,
    slowdown,
    weighted_jct_s,
)
from analysis.metrics.measures import ALL_LEVELS, MEASURES
from analysis.metrics.offered import loads, modelled_load
from analysis.run import Run
from sim.hardware.gputypes import PRICE_KINDS
from sim.results.schema import STATES
from traces.late import pd

__all__ = [
    "MEASURES",
    "bounded_slowdown",
    "by_group",
    "by_type",
    "capacity_gpu_s",
    "cost_egress_usd",
    "cost_known_usd",
    "cost_usd",
    "deadline_met",
    "end_reasons",
    "energy_kwh",
    "finished",
    "gpu_hours",
    "held_gpu_s",
    "jain_index",
    "jct_s",
    "lateness_s",
    "makespan_s",
    "measures",
    "per_job",
    "preemptions",
    "queue_s",
    "rho",
    "slowdown",
    "summary",
    "utilisation",
    "wasted_gpu_s",
    "work",
]

LEVELS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
SUMMARY = ("jobs_finished", "jobs_rejected", "jobs_refused", "jobs_unfinished", "jct_mean_s", "jct_p50_s", "jct_p99_s",
           "queue_mean_s", "makespan_s")
"""Measures of jobs in `summary`."""
SAME = 1e-9
"""A rho above 1 by less is 1: times are only known to their last binary digits."""


def end_reasons(run: Run) -> dict[str, int]:
    """How many segments ended for each reason."""
    counts = run.tables["segments"]["end_reason"].value_counts().to_pylist()
    return {str(row["values"]): int(row["counts"]) for row in sorted(counts, key=lambda row: str(row["values"]))}


def preemptions(run: Run) -> int:
    """Segments that a policy ended by queueing the job again (not moves, resizes, failures, changes of speed)."""
    return end_reasons(run).get("preempted", 0)


def measures(run: Run, n: str = "mean") -> dict[str, float | int | None]:
    """The run as one flat row: every measure of `MEASURES`, in that order; None where it has no value.

    `n`: which number of jobs finish-time fairness divides the cluster by, see `analysis.metrics.fairness.rho`.
    All of it follows from the tables, so that equal runs have equal rows; the simulator's own time is in `summary`.

    Examples
    --------
    Two jobs of 100 s at once, on one GPU: the second waits until the first is done.

    >>> from pathlib import Path
    >>> from analysis.run import load_run
    >>> from policies.registry import make
    >>> from sim.cluster.clusterfiles import load_cluster
    >>> from sim.engine.simulate import simulate
    >>> from sim.workload.progress import Recorded
    >>> from traces.trace import Trace
    >>> trace = Trace.from_columns(
    ...     {"job_id": ["a", "b"], "submit_s": [0, 0], "duration_s": [100, 100], "num_gpus": [1, 1]})
    >>> cluster = load_cluster("v100:1x1")
    >>> simulate(trace, cluster, make("fifo"), Recorded(trace, cluster)).write(Path("run"))
    >>> found = measures(load_run("run"))
    >>> found["jct_mean_s"], found["queue_mean_s"], found["makespan_s"], found["utilisation_share"]
    (150.0, 50.0, 200.0, 1.0)
    """
    job = per_job(run, n)
    found = _of_jobs(run, job) | _of_gpus(run, job) | _of_fairness(run, job) | _of_money(run)
    return {name: found[name] for name in MEASURES}


def _of_jobs(run: Run, job: Mapping[str, Any] | pd.DataFrame) -> dict[str, float | int | None]:
    """How many jobs ended how, and their times."""
    met, late, reason = deadlines_met(run), lateness_s(run), end_reasons(run)
    return {
        "jobs": int(run.counted.sum()),
        "jobs_cut": int((run.asked & run.cut).sum()),
        "jobs_finished": int(finished(run).sum()),
        **{f"jobs_{name}": int(in_state(run, name).sum()) for name in STATES},
        "jobs_censored": int(censored(run).sum()),
        **_quantiles("jct_{}_s", job["jct_s"], ALL_LEVELS),
        "jct_weighted_s": weighted_jct_s(run),
        **_quantiles("queue_{}_s", job["queue_s"], ALL_LEVELS),
        **_quantiles("slowdown_{}", job["slowdown"], "mean p50 p99"),
        **_quantiles("bounded_slowdown_{}", job["bounded_slowdown"], "mean p50 p99"),
        "makespan_s": makespan_s(run),
        "preemptions": reason.get("preempted", 0),
        "moves": reason.get("migrated", 0) + reason.get("resized", 0),
        "leases_ended": reason.get("lease_ended", 0),
        "node_failures": reason.get("node_failed", 0),
        "deadline_jobs": len(met),
        "deadline_met_share": _mean(met),
        "lateness_mean_s": _mean(late),
        "tardiness_mean_s": _mean(np.maximum(late, 0.0)),
    }


def _of_gpus(run: Run, job: pd.DataFrame) -> dict[str, float | int | None]:
    """GPU time: there, held, free and of no use, wasted, asked for."""
    held, capacity = float(held_gpu_s(run).sum()), float(capacity_gpu_s(run).sum())
    wasted, load = wasted_gpu_s(run), loads(run)["all"]
    waste = wasted["overhead"] + wasted["lost"]
    return {
        "window_s": run.window_s[1] - run.window_s[0],
        "capacity_gpu_h": capacity / 3600.0,
        "held_gpu_h": held / 3600.0,
        "utilisation_share": ratio(held, capacity),
        **{name: parts["all"] for name, parts in free_parts(run).items()},
        "goodput_share": ratio(held - waste, held),
        "wasted_gpu_h": waste / 3600.0,
        "wasted_overhead_gpu_h": wasted["overhead"] / 3600.0,
        "wasted_lost_gpu_h": wasted["lost"] / 3600.0,
        "wasted_share": ratio(waste, held),
        "unsuccessful_gpu_h": float(job["gpu_s"].to_numpy()[ends_badly(run)].sum()) / 3600.0,
        "offered_load": load["load"],
        "offered_load_span": load["span_load"],
        "modelled_load": modelled_load(run),
        "backlog_gpu_h": load["backlog_gpu_h"],
        "drain_s": load["drain_s"],
    }


def _of_fairness(run: Run, job: pd.DataFrame) -> dict[str, float | int | None]:
    stretched = job["slowdown"].to_numpy()
    speed = np.divide(1.0, stretched, out=np.full(len(stretched), np.nan), where=stretched > 0)
    return {
        **_quantiles("rho_{}", job["rho"], "mean p50 p99"),
        "rho_worst": _mean(job["rho"], np.max),
        "unfair_share": _mean(job["rho"].dropna() > 1.0 + SAME),
        "jain_speed": jain_index(speed),
        "jain_user_gpu_s": jain_index(_held_by(run, "user", job)),
        "jain_vc_gpu_s": jain_index(_held_by(run, "vc", job)),
    }


def _of_money(run: Run) -> dict[str, float | int | None]:
    return {
        "cost_usd": cost_usd(run),
        "cost_known_usd": cost_known_usd(run),
        "cost_egress_usd": cost_egress_usd(run),
        "cost_node_usd": cost_usd(run, per="node"),
        "cost_cluster_usd": cost_usd(run, per="cluster"),
        **{f"cost_{kind.replace('-', '_')}_usd": cost_usd(run, kind) for kind in PRICE_KINDS},
        "energy_kwh": energy_kwh(run),
        "energy_held_kwh": energy_held_kwh(run),
    }


def _held_by(run: Run, column: str, job: pd.DataFrame) -> np.ndarray:
    """GPU time held by each user or virtual cluster, in GPU-s; jobs without a name are nobody's."""
    name = run.tables["jobs"][column].to_pandas()
    named = (name.fillna("") != "").to_numpy()
    total: np.ndarray = job["gpu_s"].to_numpy()[named]
    code = pd.factorize(name[named])[0]
    return np.bincount(code, weights=total)


def _mean(values: Any, of: Callable[[np.ndarray], Any] = np.mean) -> float | None:
    """Mean (or another statistic) of the values that are there; None where none is."""
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    return float(of(known)) if len(known) else None


def _quantiles(name: str, values: Any, levels: str) -> Mapping[str, float | None]:
    """Mean and percentiles (p50, …, p999) of the values that are there, under `name` with the level put in."""
    known = np.asarray(values)
    known = known[~np.isnan(known)]
    wanted = levels.split()
    if not len(known):
        return {name.format(level): None for level in wanted}
    found = np.percentile(known, [LEVELS[level] for level in wanted if level != "mean"]).tolist()
    return {name.format(level): value for level, value in zip(wanted, [float(known.mean()), *found], strict=True)}


def summary(run: Run) -> dict[str, Any]:
    """The run in fifteen numbers, ready for JSON: what has no value is None, never NaN.

    Keys: those of `measures` that take little to work out (jobs_finished, jobs_rejected, jobs_refused, jobs_unfinished;
    jct_mean_s, jct_p50_s, jct_p99_s, queue_mean_s; makespan_s, cost_usd, preemptions); utilisation (all, by GPU type);
    gpu_hours (held, all types); wall_s and peak_mib of the simulator itself; run_dir.
    """
    of_jobs = _of_jobs(run, time_columns(run))
    return {
        **{name: of_jobs[name] for name in SUMMARY},
        "utilisation": utilisation(run),
        "gpu_hours": sum(gpu_hours(run).values()),
        "cost_usd": cost_usd(run),
        "preemptions": of_jobs["preemptions"],
        "wall_s": run.timing.get("wall_s"),
        "peak_mib": run.timing.get("peak_mib"),
        "run_dir": str(run.path),
    }
