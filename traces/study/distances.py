"""How far two traces are apart: run times, sizes, arrivals, virtual clusters, in numbers.

Curves that are only published (shares below some run times, jobs by hour) are compared by `ks_to_curve` and
`profile_correlation` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from traces.offered_load import demand_gpu_s
from traces.study.describe import calendar_of
from traces.trace import Trace

Profile = Sequence[float] | np.ndarray

#: Size classes of `compare`: fewest GPUs. Classes with fewer jobs in either trace have no distance.
SIZES = (1, 2, 3, 5, 8, 9, 16, 17, 24)
FEWEST = 20


def ks(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance of two samples: the largest difference of their cumulative distributions."""
    at = np.concatenate((a, b))
    below = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def ks_to_curve(values: np.ndarray, at: Profile, below: Profile) -> float:
    """Largest difference to a published distribution at its points: share of values <= at[i] against below[i]."""
    share = np.searchsorted(np.sort(values), at, side="right") / len(values)
    return float(np.abs(share - np.asarray(below)).max())


def profile_correlation(a: Profile, b: Profile) -> float:
    """Pearson's correlation of two profiles; NaN where one of them is flat."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def dispersion(counts: np.ndarray) -> float:
    """Index of dispersion, variance / mean: 1 for a Poisson process."""
    return float(counts.var() / counts.mean())


def by_hour(trace: Trace) -> np.ndarray:
    """Jobs by hour of the day, int64 [24], in the zone of the trace; without a calendar, submit_s = 0 is 00:00."""
    return np.bincount(calendar_of(trace)[0], minlength=24)


def per_hour(trace: Trace) -> np.ndarray:
    """Jobs in each clock hour from the first submission to the last, int64."""
    hour = _clock_s(trace).astype(np.int64) // 3600
    return np.bincount(hour - hour.min())


def gaps(trace: Trace) -> dict[str, float]:
    """Gaps between submissions: mean and quantiles in s, coefficient of variation, share of zeros ({} for one job)."""
    if len(trace) < 2:
        return {}
    gap_s = np.diff(trace.submit_s)
    mean_s = float(gap_s.mean())
    quantile = np.quantile(gap_s, (0.5, 0.9, 0.99))
    return {"mean_s": mean_s, "cv": float(gap_s.std()) / mean_s if mean_s > 0 else float("nan"),
            "zero": float((gap_s == 0).mean()),
            **dict(zip(("p50_s", "p90_s", "p99_s"), quantile.tolist(), strict=True))}


def skew(trace: Trace) -> dict[str, tuple[float, float]]:
    """Virtual cluster -> its share of jobs and of GPU time, the one with the most jobs first."""
    names, index, count = np.unique(trace.vc.astype(str), return_inverse=True, return_counts=True)
    gpu_s = np.bincount(index, demand_gpu_s(trace))
    total = max(float(gpu_s.sum()), 1e-300)
    order = np.argsort(-count, kind="stable")
    return {str(names[i]): (float(count[i]) / len(trace), float(gpu_s[i]) / total) for i in order}


def compare(a: Trace, b: Trace) -> dict[str, Any]:
    """Distances of a trace `a` to a trace `b`.

    Returns
    -------
    dict
        jobs (of both); duration_ks; sizes: rows (gpus "8-8" from-to, jobs and jobs_b, duration_ks or NaN where either
        has fewer than `FEWEST`, gpu_time and gpu_time_b: shares); gpu_time_off (largest difference of these shares);
        size_ks; hour_correlation, hour_error (mean absolute difference of shares by hour x 24); dispersion,
        dispersion_b, dispersion_ratio (of hourly counts); gaps, gaps_b (see `gaps`); vc_jobs_off, vc_gpu_time_off
        (half the sum of differences of shares by virtual cluster: 0 alike, 1 nothing in common); mean_s, mean_s_b.
    """
    rows = _by_size(a, b)
    hours_a, hours_b = by_hour(a) / len(a), by_hour(b) / len(b)
    index_a, index_b = dispersion(per_hour(a)), dispersion(per_hour(b))
    vcs_a, vcs_b = skew(a), skew(b)
    off = [0.5 * sum(abs(vcs_a.get(vc, (0.0, 0.0))[i] - vcs_b.get(vc, (0.0, 0.0))[i]) for vc in {*vcs_a, *vcs_b})
           for i in (0, 1)]
    return {
        "jobs": (len(a), len(b)), "duration_ks": ks(a.duration_s, b.duration_s), "size_ks": ks(_taken(a), _taken(b)),
        "mean_s": float(a.duration_s.mean()), "mean_s_b": float(b.duration_s.mean()),
        "sizes": rows, "gpu_time_off": max(abs(r["gpu_time"] - r["gpu_time_b"]) for r in rows),
        "hour_correlation": profile_correlation(hours_a, hours_b),
        "hour_error": float(24 * np.abs(hours_a - hours_b).mean()),
        "dispersion": index_a, "dispersion_b": index_b,
        "dispersion_ratio": index_a / index_b if index_b > 0 else float("nan"),
        "gaps": gaps(a), "gaps_b": gaps(b), "vc_jobs_off": off[0], "vc_gpu_time_off": off[1],
    }


def as_text(distances: Mapping[str, Any]) -> str:
    """What `compare` returns as lines to print."""
    d = distances
    lines = [
        f"jobs                     {d['jobs'][0]:,} against {d['jobs'][1]:,}",
        f"run time                 KS distance {d['duration_ks']:.3f}; mean {d['mean_s']:,.0f} s, "
        f"{d['mean_s_b']:,.0f} s",
        f"GPUs                     KS distance {d['size_ks']:.3f}; shares of GPU time at most "
        f"{100 * d['gpu_time_off']:.1f} points apart",
    ]
    lines += [
        f"  {r['gpus'] + ' GPUs':<23}jobs {r['jobs']:,}, {r['jobs_b']:,}; run time KS {_number(r['duration_ks'])}; "
        f"GPU time {r['gpu_time']:.1%}, {r['gpu_time_b']:.1%}" for r in d["sizes"]
    ]
    lines += [
        f"hours of the day         correlation {_number(d['hour_correlation'])}, mean error {d['hour_error']:.1%}",
        f"dispersion of an hour    {d['dispersion']:.1f}, {d['dispersion_b']:.1f}: ratio "
        f"{_number(d['dispersion_ratio'])}",
    ]
    for label, gap in (("gaps, first", d["gaps"]), ("gaps, second", d["gaps_b"])):
        if gap:
            lines.append(f"{label:<25}mean {gap['mean_s']:,.1f} s, coefficient of variation {gap['cv']:.1f}, zero "
                         f"{gap['zero']:.1%}, median {gap['p50_s']:,.0f} s, p99 {gap['p99_s']:,.0f} s")
    lines.append(f"virtual clusters         {100 * d['vc_jobs_off']:.1f} points of jobs and "
                 f"{100 * d['vc_gpu_time_off']:.1f} of GPU time lie in others")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"


def _clock_s(trace: Trace) -> np.ndarray:
    """Submissions on the clock of the source: POSIX time where it is known."""
    clock_s: np.ndarray = trace.submit_s + (trace.provenance.epoch_s or 0.0)
    return clock_s


def _taken(trace: Trace) -> np.ndarray:
    """GPUs that each job takes."""
    taken: np.ndarray = trace.num_gpus * (trace.gpu_milli / 1000.0)
    return taken


def _by_size(a: Trace, b: Trace) -> list[dict[str, Any]]:
    """Rows of `compare`, a size class each; classes without a job in either are left out."""
    edges = (0.0, *SIZES, np.inf)
    rows = []
    total = [max(float(demand_gpu_s(t).sum()), 1e-300) for t in (a, b)]
    for low, high in pairwise(edges):
        mine = [(_taken(t) >= low) & (_taken(t) < high) for t in (a, b)]
        count = [int(m.sum()) for m in mine]
        if not any(count):
            continue
        share = [float(demand_gpu_s(t)[m].sum()) / whole for t, m, whole in zip((a, b), mine, total, strict=True)]
        far = ks(a.duration_s[mine[0]], b.duration_s[mine[1]]) if min(count) >= FEWEST else float("nan")
        rows.append({"gpus": _named(low, high), "jobs": count[0], "jobs_b": count[1], "duration_ks": far,
                     "gpu_time": share[0], "gpu_time_b": share[1]})
    return rows


def _named(low: float, high: float) -> str:
    if low == 0:
        return "below 1"
    return f"{low:g} or more" if np.isinf(high) else f"{low:g}" if high == low + 1 else f"{low:g} to {high - 1:g}"
