"""Where a log begins and ends, and what that hides: jobs that were cut off, and jobs that are not in it at all.

A log taken from t0 to t1 shows some jobs whole and others not. Those cut off can be counted. Those that are missing
cannot; but where a log leaves out what had not ended when it was taken, long runs become rare among the last
submissions, and that can be seen (length-biased sampling: Cox, Renewal Theory, 1962, section 5).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traces.select import asked_for
from traces.trace import Trace

REACH = (0.5, 0.9, 0.99)
"""Quantiles of the run time that say how far back from its end a log is looked at."""
ENOUGH = 100
"""Jobs before that a statement about the last ones rests on, at least, and at least as many as these."""
FILL = 0.05
"""Part of the time of submissions that is compared with the rest, at the beginning."""


def edges(trace: Trace, demand_gpu_s: np.ndarray) -> dict[str, Any]:
    """What is known of jobs at both ends of a log.

    A job ends at submit_s + wait_s + duration_s; where no wait is recorded it is taken as 0, so that the end is the
    earliest that it can be. Begin and end of the log are those of `Provenance.window_s`; where it is not known, the
    first and the last submission.

    Returns
    -------
    dict
        begin_s, end_s, known (whether the log says so); submitted_before: jobs; cut: jobs that are cut off, at
        its begin and at its end (`cut_off`); end_after: jobs that end after the end, gpu_share (their part of
        all GPU time), beyond_share (the part after the end); unknown_status: jobs; late: a row for each run time X at
        the quantiles `REACH`: within_s (X), jobs (submitted in the last X), longer (how many of them run longer than
        X), expected (how many would, if they were like those submitted before, of which there must be `ENOUGH`; none
        where jobs were chosen, since the end is then the user's), missing (expected - longer - others that were cut at
        the end, where it is more than three standard deviations, sqrt(expected), else 0); fill: GPUs that run in the
        first `FILL` of the time of submissions over those in the rest (1: the cluster was as full as later; None:
        nothing runs).
    """
    about, submit_s = trace.provenance, trace.submit_s
    begin_s, end_s = about.window_s or (float(submit_s[0]), float(submit_s[-1]))
    starts_s = submit_s + np.nan_to_num(trace.wait_s)
    ends_s = starts_s + trace.duration_s
    total, (begun, going) = float(demand_gpu_s.sum()), cut_off(trace)
    after = ends_s > end_s
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(trace.duration_s > 0, np.clip(ends_s - end_s, 0, trace.duration_s) / trace.duration_s, 0.0)
    return {
        "begin_s": begin_s, "end_s": end_s, "known": about.window_s is not None,
        "submitted_before": int((submit_s < begin_s).sum()),
        "end_after": {
            "jobs": int(after.sum()), "gpu_share": float(demand_gpu_s[after].sum()) / total if total > 0 else 0.0,
            "beyond_share": float((demand_gpu_s * part).sum()) / total if total > 0 else 0.0,
        },
        "unknown_status": int((trace.status == "unknown").sum()),
        "cut": {"begin": int(begun.sum()), "end": int(going.sum())},
        "late": [] if any(asked_for(what) for what in about.counts) else _late(trace, end_s, going),
        "fill": _fill(starts_s, ends_s, trace.num_gpus * trace.gpu_milli / 1000.0, submit_s),
    }


def cut_off(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the jobs that the log cuts off at its begin, and at its end (column `cut`).

    The first are there from the first instant, and no wait is known; the others go on at the last. How long they run
    is then a lower bound.
    """
    both = trace.cut == "both"
    return both | (trace.cut == "before"), both | (trace.cut == "after")


def gpus_in_use(starts_s: np.ndarray, ends_s: np.ndarray, gpus: np.ndarray, bounds_s: np.ndarray) -> np.ndarray:
    """Mean number of GPUs in use between each two bounds, each job holding its GPUs from start to end."""
    held = _integral(starts_s, gpus, bounds_s) - _integral(ends_s, gpus, bounds_s)
    mean: np.ndarray = np.maximum(np.diff(held), 0.0) / np.diff(bounds_s)
    return mean


def _integral(times_s: np.ndarray, gpus: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """Sum over jobs of gpus x max(0, at - time), for each `at`."""
    order = np.argsort(times_s, kind="stable")
    base = times_s[order[0]]
    times, weights = times_s[order] - base, gpus[order]
    count = np.searchsorted(times, at_s - base, side="right")
    weight = np.concatenate(([0.0], np.cumsum(weights)))[count]
    moment = np.concatenate(([0.0], np.cumsum(weights * times)))[count]
    area: np.ndarray = weight * (at_s - base) - moment
    return area


def _late(trace: Trace, end_s: float, going: np.ndarray) -> list[dict[str, float]]:
    submit_s, duration_s, rows = trace.submit_s, trace.duration_s, []
    for reach_s in np.unique(np.quantile(duration_s, REACH)):
        late = submit_s > end_s - reach_s
        before = int((~late).sum())
        if reach_s <= 0 or not late.any() or before < max(ENOUGH, int(late.sum())):
            continue
        longer = int((duration_s[late] > reach_s).sum())
        expected = float((duration_s[~late] > reach_s).mean()) * int(late.sum())
        short = expected - longer - int((going & late & (duration_s <= reach_s)).sum())
        rows.append({
            "within_s": float(reach_s), "jobs": int(late.sum()), "longer": longer, "expected": expected,
            "missing": short if short > 3 * np.sqrt(expected) else 0.0,
        })
    return rows


def _fill(starts_s: np.ndarray, ends_s: np.ndarray, gpus: np.ndarray, submit_s: np.ndarray) -> float | None:
    first, last = float(submit_s[0]), float(submit_s[-1])
    if last <= first:
        return None
    early, later = gpus_in_use(starts_s, ends_s, gpus, np.array([first, first + FILL * (last - first), last]))
    return float(early / later) if later > 0 else None
