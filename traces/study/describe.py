"""What is in a trace, in numbers: one dictionary, from which text (`traces.study.summary`) and pictures are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traces.late import pd
from traces.offered_load import demand_gpu_s, loaded_s, offered_load, span_s
from traces.reading.times import zone
from traces.study.edges import edges, gpus_in_use
from traces.trace import Trace
from traces.words import coded

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
TOP_SHARES = (0.01, 0.05, 0.1)
CURVE = np.linspace(0.0, 1.0, 101)
BINS = 200
WIDTHS = (("below 1", 0.0, 1.0), ("1", 1.0, 2.0), ("2 to 7", 2.0, 8.0), ("8", 8.0, 9.0), ("more than 8", 9.0, np.inf))
"""Classes of GPUs a job: name, from, and below."""


def describe(trace: Trace, gpus_by_type: Mapping[str, int] | None = None, *, top: int = 10) -> dict[str, Any]:
    """Summarise a trace.

    Parameters
    ----------
    gpus_by_type : mapping of GPU type to number of GPUs, optional
        The cluster it is meant for; with it, offered load (GPU time asked for / GPU time there is over
        `loaded_s`) in all and by type. A job of one type counts there; a job of several or any counts in each
        by the share of these GPUs that the type has.
    top : int
        Users that get a row of their own.

    Returns
    -------
    dict
        jobs, users (names that are recorded), span_s, gpu_hours, mean_gpus, max_gpus; duration_s, interarrival_s and
        wait_s (quantiles and mean; wait_s of the jobs that have one, with their number `known`); gpus, vcs, gpu_types
        and top_users (rows: jobs, GPU-hours, shares; of vcs and users also median run time, of vcs users); skew (share
        of jobs and of GPU time of the top 1, 5 and 10 % of users, ranked by that measure); status (jobs); hours and
        weekdays (jobs by hour of the day, and by day from Monday, on the clock that `calendar` tells); calendar; edges
        (`traces.study.edges`); curves (run times at each percent, by class of GPUs) and over_time (jobs submitted and
        GPUs that run, in bins of equal length); provenance; with `gpus_by_type` also load. No NaN; what is unknown is
        None.
    """
    about = trace.provenance
    demand_h = demand_gpu_s(trace) / 3600.0
    taken = trace.num_gpus * trace.gpu_milli / 1000.0
    hour, weekday, calendar = calendar_of(trace)
    waits = trace.wait_s[~np.isnan(trace.wait_s)]
    named = trace.user != ""
    out: dict[str, Any] = {
        "jobs": len(trace), "users": int(pd.Series(trace.user[named], dtype=object).nunique()),
        "span_s": span_s(trace),
        "gpu_hours": float(demand_h.sum()), "mean_gpus": float(taken.mean()), "max_gpus": float(taken.max()),
        "duration_s": _quantiles(trace.duration_s), "interarrival_s": _quantiles(np.diff(trace.submit_s)),
        "wait_s": {"known": len(waits), **_quantiles(waits)},
        "gpus": _by(taken, demand_h), "vcs": _with_detail(_by(trace.vc, demand_h), trace.vc, trace, users=True),
        "gpu_types": _by(trace.gpu_type, demand_h),
        "top_users": _with_detail(_by(trace.user, demand_h)[:top], trace.user, trace) if named.any() else [],
        "skew": _skew(trace.user[named], demand_h[named]) if named.any() else None,
        "status": {k: int(v) for k, v in pd.Series(trace.status, dtype=object).value_counts().items()},
        "hours": np.bincount(hour, minlength=24).tolist(), "weekdays": np.bincount(weekday, minlength=7).tolist(),
        "calendar": calendar, "edges": edges(trace, demand_h * 3600.0),
        "curves": _curves(taken, trace.duration_s), "over_time": _over_time(trace, taken),
        "provenance": {
            "source": about.source, "format": about.format, "rule": about.rule, "rows_read": about.rows_read,
            "counts": dict(about.counts), "notes": list(about.notes), "options": dict(about.options),
            "sha256": about.sha256,
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
    span = loaded_s(trace)
    asked = np.zeros(len(names))
    without = 0.0
    codes, wishes = coded(trace.gpu_type, sort=True)
    for wish, gpu_s in zip(wishes.tolist(), np.bincount(codes, demand_gpu_s(trace)).tolist(), strict=True):
        fits = np.array([allows(wish, n) for n in names]) * gpus
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


def allows(wish: str, gpu_type: str) -> bool:
    """Whether a job with this `gpu_type` cell ('' = any, or names joined by '|') may run on a GPU type."""
    kinds = {w.strip().lower() for w in wish.split("|") if w.strip()}
    return not kinds or gpu_type.lower() in kinds


def calendar_of(trace: Trace) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Hour of the day and day of the week (0: Monday) of each submission, and what of the calendar is true.

    Without an epoch, submit_s = 0 is taken for a Monday, 00:00. Dates are given only where they are real.
    """
    about = trace.provenance
    if about.epoch_s is None:
        hour = (trace.submit_s // 3600 % 24).astype(int)
        return hour, (trace.submit_s // 86_400 % 7).astype(int), {"tz": None, "first": None, "last": None}
    posix = pd.DatetimeIndex(np.floor(trace.submit_s + about.epoch_s).astype("datetime64[s]"), tz="UTC")
    local = posix.tz_convert(zone(about.tz) or "UTC")
    first, last = (str(local[i].isoformat(sep=" ")) if about.date_is_real else None for i in (0, -1))
    return local.hour.to_numpy(), local.day_of_week.to_numpy(), {"tz": about.tz, "first": first, "last": last}


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


def _with_detail(
    rows: list[dict[str, Any]], values: np.ndarray, trace: Trace, *, users: bool = False
) -> list[dict[str, Any]]:
    """The rows of `_by` with the median run time of each value, and how many users it has."""
    groups = pd.DataFrame({"v": values, "d": trace.duration_s, "u": trace.user}).groupby("v")
    median = groups["d"].median()
    for row in rows:
        row["duration_p50_s"] = float(median[row["value"]])
    if users and (trace.user != "").any():
        count = groups["u"].nunique()
        for row in rows:
            row["users"] = int(count[row["value"]])
    return rows


def _skew(user: np.ndarray, gpu_hours: np.ndarray) -> dict[str, dict[str, float]]:
    """Share of jobs and of GPU time that the top users have, ranked by it: ceil(share x users) of them."""
    table = pd.DataFrame({"u": user, "h": gpu_hours}).groupby("u")["h"].agg(["size", "sum"])
    out = {}
    for name, column in (("jobs", "size"), ("gpu_hours", "sum")):
        ranked = np.sort(table[column].to_numpy(np.float64))[::-1]
        total = ranked.sum()
        out[name] = {f"{share:.0%}": float(ranked[: int(np.ceil(share * len(ranked)))].sum() / total) if total > 0
                     else 0.0 for share in TOP_SHARES}
    return out


def _curves(taken: np.ndarray, duration_s: np.ndarray) -> dict[str, list[float]]:
    """Run time at each percent of the jobs, in all and by class of GPUs."""
    classes = {"all": np.ones(len(taken), dtype=bool)}
    classes |= {name: (taken >= low) & (taken < high) for name, low, high in WIDTHS}
    return {name: np.quantile(duration_s[rows], CURVE).tolist() for name, rows in classes.items() if rows.any()}


def _over_time(trace: Trace, taken: np.ndarray) -> dict[str, Any]:
    """Jobs submitted, and mean GPUs that run if waits are as recorded (else none), from first to last submission."""
    first, last = float(trace.submit_s[0]), float(trace.submit_s[-1])
    bounds = np.linspace(first, last, BINS + 1)
    if not (np.diff(bounds) > 0).all():
        return {"begin_s": first, "bin_s": 0.0, "jobs": [], "gpus": []}
    starts = trace.submit_s + np.nan_to_num(trace.wait_s)
    gpus = gpus_in_use(starts, starts + trace.duration_s, taken, bounds)
    jobs = np.histogram(trace.submit_s, bounds)[0]
    return {"begin_s": first, "bin_s": (last - first) / BINS, "jobs": jobs.tolist(), "gpus": gpus.tolist()}
