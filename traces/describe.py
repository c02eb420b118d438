"""What is in a trace, in numbers, and what is odd about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traces.trace import Trace
from traces.window import demand_gpu_s, offered_load, span_s

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
YEAR_S = 366 * 86_400.0


@dataclass(frozen=True)
class Oddity:
    """Something allowed that a user may want to know: how many jobs, and the ids of the first ones."""

    what: str
    count: int
    first: tuple[str, ...]


def describe(trace: Trace, gpus_by_type: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Summarise a trace.

    Parameters
    ----------
    gpus_by_type : mapping of GPU type to number of GPUs, optional
        The cluster it is meant for; with it, offered load (GPU time asked for / GPU time there is over
        `span_s`) in all and by type. A job of one type counts there; a job of several or any counts in each
        by the share of these GPUs that the type has.

    Returns
    -------
    dict
        jobs, users, span_s, gpu_hours, duration_s and interarrival_s (quantiles and mean), gpus, vcs and
        gpu_types (list of rows: jobs, GPU-hours, shares), status (jobs), hours and weekdays (jobs by hour of
        the day in UTC and by day from Monday; where the trace has no epoch, submit_s = 0 is taken for a
        Monday 00:00), provenance; with `gpus_by_type` also load.
    """
    about = trace.provenance
    # POSIX time 0 was a Thursday; without an epoch, time 0 is taken for a Monday, 00:00.
    clock_s = trace.submit_s + (about.epoch_s + 3 * 86_400 if about.epoch_s is not None else 0.0)
    demand_h = demand_gpu_s(trace) / 3600.0
    gaps_s = np.diff(trace.submit_s)
    taken = trace.num_gpus * trace.gpu_milli / 1000.0
    out: dict[str, Any] = {
        "jobs": len(trace), "users": int(pd.Series(trace.user, dtype=object).nunique()),
        "span_s": span_s(trace),
        "gpu_hours": float(demand_h.sum()), "mean_gpus": float(taken.mean()), "max_gpus": float(taken.max()),
        "duration_s": _quantiles(trace.duration_s), "interarrival_s": _quantiles(gaps_s),
        "gpus": _by(taken, demand_h), "vcs": _by(trace.vc, demand_h),
        "gpu_types": _by(trace.gpu_type, demand_h),
        "status": {k: int(v) for k, v in pd.Series(trace.status, dtype=object).value_counts().items()},
        "hours": np.bincount((clock_s // 3600 % 24).astype(int), minlength=24).tolist(),
        "weekdays": np.bincount((clock_s // 86_400 % 7).astype(int), minlength=7).tolist(),
        "provenance": {
            "source": about.source, "format": about.format, "rule": about.rule, "rows_read": about.rows_read,
            "counts": dict(about.counts), "notes": list(about.notes),
        },
    }
    if gpus_by_type is not None:
        out["load"] = load_by_type(trace, gpus_by_type)
    return out


def load_by_type(trace: Trace, gpus_by_type: Mapping[str, int]) -> dict[str, Any]:
    """Offered load on a cluster: total, by_type, and gpu_hours_without_type (asked for on types not there).

    Raises
    ------
    TraceError
        The cluster has no GPUs.
    """
    names = list(gpus_by_type)
    gpus = np.array([gpus_by_type[n] for n in names], dtype=float)
    span = span_s(trace)
    asked = np.zeros(len(names))
    without = 0.0
    demand = pd.Series(demand_gpu_s(trace)).groupby(trace.gpu_type).sum()
    for wish, gpu_s in demand.items():
        kinds = {w.strip().lower() for w in str(wish).split("|") if w.strip()}
        fits = np.array([not kinds or n.lower() in kinds for n in names]) * gpus
        if fits.sum() > 0:
            asked += gpu_s * fits / fits.sum()
        else:
            without += gpu_s
    with np.errstate(invalid="ignore", divide="ignore"):
        load = np.where(span * gpus > 0, asked / (span * gpus), 0.0)
    return {
        "total": offered_load(trace, int(gpus.sum())), "span_s": span,
        "by_type": {n: float(x) for n, x in zip(names, load, strict=True)},
        "gpu_hours_without_type": without / 3600.0,
    }


def check(trace: Trace, *, wider_than: int | None = None, longer_than_s: float = YEAR_S) -> list[Oddity]:
    """List what is odd about a trace; an empty list where nothing is.

    Parameters
    ----------
    wider_than : int, optional
        GPUs of the cluster it is meant for: wider jobs can never run.
    longer_than_s : float
        Run time, in s, above which the unit is doubted (default: a year).
    """
    taken = trace.num_gpus * trace.gpu_milli / 1000.0
    same = ("submit_s", "duration_s", "num_gpus", "gpu_milli", "gpu_type", "vc", "user", "status", "model")
    frame = pd.DataFrame({name: getattr(trace, name) for name in same})
    worker = trace.num_gpus // trace.worker_gpus
    known = ~np.isnan(trace.estimate_s)
    tests: list[tuple[str, np.ndarray]] = [
        ("zero-length jobs", trace.duration_s == 0),
        ("jobs that share their second of submission", frame["submit_s"].duplicated(keep=False).to_numpy()),
        ("jobs equal to an earlier one in all but the id", frame.duplicated().to_numpy()),
        (f"jobs longer than {longer_than_s:g} s: is the unit seconds?", trace.duration_s > longer_than_s),
        ("jobs submitted before time 0", trace.submit_s < 0),
        ("jobs on a fraction of a GPU", trace.gpu_milli < 1000),
        ("gangs of several workers", (worker > 1) & (trace.worker_gpus > 1)),
        ("jobs whose end is not known", trace.status == "unknown"),
        ("jobs tried more than once", trace.attempts > 1),
        ("jobs without an estimate", ~known if known.any() else np.zeros(len(trace), dtype=bool)),
        ("jobs whose estimate is below their run time", known & (trace.estimate_s < trace.duration_s)),
    ]
    if wider_than is not None:
        tests.append((f"jobs wider than {wider_than} GPUs: they can never run", taken > wider_than))
    found = ((what, np.flatnonzero(hit)) for what, hit in tests)
    return [Oddity(what, len(rows), tuple(trace.job_id[rows[:5]])) for what, rows in found if len(rows)]


def as_text(summary: Mapping[str, Any]) -> str:
    """The summary of `describe` as lines to print."""
    about = summary["provenance"]
    lines = [
        f"{about['source']} ({about['format']})",
        f"jobs          {summary['jobs']:,} of {about['rows_read']:,} rows read; {summary['users']:,} users",
        f"rule          {about['rule']}",
        *(f"counted       {n:,} {what}" for what, n in about["counts"].items()),
        *(f"note          {note}" for note in about["notes"]),
        f"span          {summary['span_s'] / 86_400:.2f} days from first to last submission",
        f"GPU time      {summary['gpu_hours']:,.1f} GPU-hours; {summary['mean_gpus']:.2f} GPUs a job, "
        f"at most {summary['max_gpus']:g}",
        "status        " + ", ".join(f"{k} {v:,}" for k, v in summary["status"].items()),
    ]
    for name, label in (("duration_s", "run time, s"), ("interarrival_s", "gap, s")):
        cells = ", ".join(f"{k} {v:,.0f}" for k, v in summary[name].items())
        lines.append(f"{label:<14}{cells}")
    for name, label in (("gpus", "GPUs"), ("vcs", "vc"), ("gpu_types", "GPU type")):
        for row in summary[name][:12]:
            value = f"{row['value']:g}" if name == "gpus" else row["value"] or "(none)"
            lines.append(f"{label:<9} {value:<12} {row['jobs']:>9,} jobs {row['jobs_share']:7.2%}"
                         f" {row['gpu_hours']:>14,.1f} GPU-hours {row['gpu_hours_share']:7.2%}")
        if len(summary[name]) > 12:
            lines.append(f"{label:<9} and {len(summary[name]) - 12} more")
    lines += _load_lines(summary["load"]) if "load" in summary else []
    return "\n".join(lines) + "\n"


def _load_lines(load: Mapping[str, Any]) -> list[str]:
    lines = [f"offered load  {load['total']:.3f} in all"]
    for name, value in load["by_type"].items():
        notice = ": above 1, its queue grows" if value > 1 else ""
        lines.append(f"offered load  {value:.3f} on {name}{notice}")
    if load["gpu_hours_without_type"] > 0:
        lines.append(f"offered load  {load['gpu_hours_without_type']:,.1f} GPU-hours ask for types not there")
    return lines


def _quantiles(values: np.ndarray) -> dict[str, float]:
    if len(values) == 0:
        return {}
    out = {f"p{100 * q:g}": float(x) for q, x in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)}
    return out | {"mean": float(values.mean())}


def _by(values: np.ndarray, gpu_hours: np.ndarray) -> list[dict[str, Any]]:
    """Jobs and GPU-hours by value, numbers ascending, names by number of jobs."""
    table = pd.DataFrame({"v": values, "h": gpu_hours}).groupby("v", sort=True)["h"].agg(["size", "sum"])
    if table.index.dtype.kind not in "if":
        table = table.sort_values("size", ascending=False, kind="stable")
    total = float(gpu_hours.sum())
    return [
        {"value": value, "jobs": int(n), "jobs_share": float(n) / len(values), "gpu_hours": float(h),
         "gpu_hours_share": float(h) / total if total > 0 else 0.0}
        for value, n, h in zip(table.index.tolist(), table["size"], table["sum"], strict=True)
    ]
