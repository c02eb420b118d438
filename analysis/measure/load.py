"""Offered load: what the trace asks of the cluster, before any policy; and how far the run fell behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.measure.jobtimes import in_state
from analysis.run import Run, wishes


def offered_load(run: Run) -> pd.DataFrame:
    """Offered load, backlog and drain time: one row for 'all', then one for each GPU type.

    With demand D = sum(duration_s * GPUs) in GPU-s, G = sum(GPUs) asked for, T = last minus first submit,
    and N GPUs:

    - ``window_s = T + D / G``: the arrivals, and one mean run time (weighted by GPUs) for the last of them
      to end in.
    - ``span_load = D / (N T)``: the usual definition, that of `traces.window.offered_load` and of the setting `load`;
      None where all jobs come at once.
    - ``load = D / (N * window_s)``. For a long trace this is close to `span_load`; for jobs that all come at
      once, G / N. Above 1 more is asked for than the window has, and in a long trace a queue grows whatever
      the policy. None where nothing asks for the type.
    - ``backlog_gpu_h``: GPU time that would have been used by the end of the window if no job ever waited,
      less what was used by then, at least 0.
    - ``drain_s``: from the end of the window to the last time the type was in use, at least 0; None while
      jobs are unfinished.

    Durations are those recorded in the trace. Rejected jobs and jobs submitted after the run's end ask for
    nothing; in a measuring window, only the jobs that count ask. A run that stops within the window is judged at its
    end. The demand of jobs that may run on several types goes to those types so that the highest demand a GPU
    becomes as low as possible.
    """
    counts = ((run.jobs["state"] != "rejected") & (run.jobs["submit_s"] <= run.window_s[1])).to_numpy() & run.counted
    jobs = run.jobs.loc[counts, ["num_gpus", "gpu_milli", "submit_s", "duration_s"]]
    gpus = (jobs["num_gpus"] * (jobs["gpu_milli"] / 1000.0)).to_numpy()
    submit, duration = jobs["submit_s"].to_numpy(), jobs["duration_s"].to_numpy()
    codes, allowed = wishes(run)
    codes = codes[counts]
    demand = np.bincount(codes, weights=gpus * duration, minlength=len(allowed))
    asked = np.bincount(codes, weights=gpus, minlength=len(allowed))
    there = np.bincount(run.node_type, weights=run.column("nodes", "gpus"), minlength=len(run.types))
    share = _least_load(allowed, demand, there)
    drained = not in_state(run, "unfinished").any()
    rows = []
    for kind in range(len(run.types) + 1):
        part = np.ones(len(allowed)) if kind == 0 else share[:, kind - 1]
        total, want = float(part @ demand), float(part @ asked)
        capacity = float(there.sum() if kind == 0 else there[kind - 1])
        if want == 0:
            rows.append(
                {"gpus": capacity} | dict.fromkeys(("load", "span_load", "window_s", "backlog_gpu_h", "drain_s"))
            )
            continue
        span = float(np.ptp(submit))
        window = span + total / want
        stop = min(float(submit.min()) + window, run.window_s[1])
        due = float((part[codes] * gpus * np.clip(stop - submit, 0.0, duration)).sum())
        used, last = _used(run, None if kind == 0 else kind - 1, stop)
        rows.append(
            {
                "gpus": capacity,
                "load": total / (capacity * window) if window > 0 else None,
                "span_load": total / (capacity * span) if span > 0 else None,
                "window_s": window,
                "backlog_gpu_h": max(0.0, due - used) / 3600.0,
                "drain_s": max(0.0, last - stop) if drained else None,
            }
        )
    return pd.DataFrame(rows, index=pd.Index(("all", *run.types), name="gpu_type"), dtype=object)


def _least_load(allowed: np.ndarray, demand: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Share of each wish's demand that goes to each type, so that loads are as even as they can be.

    Each wish in turn fills its types like water, given the others; this lowers sum(load^2 * GPUs) at each
    step, and ends at its least value.
    """
    load = np.zeros(len(there))
    placed = np.zeros(allowed.shape)
    for _ in range(200):
        before = load.copy()
        for wish in np.flatnonzero(demand > 0):
            kinds = np.flatnonzero(allowed[wish])
            if not len(kinds):
                continue
            load -= placed[wish] / there
            kinds = kinds[np.argsort(load[kinds], kind="stable")]
            # Water level if the first k types share the demand; the right k is the last whose bed is below.
            level = (demand[wish] + np.cumsum(load[kinds] * there[kinds])) / np.cumsum(there[kinds])
            top = level[np.flatnonzero(level >= load[kinds])[-1]]
            placed[wish] = 0.0
            placed[wish, kinds] = np.maximum(0.0, top - load[kinds]) * there[kinds]
            load += placed[wish] / there
        if np.abs(load - before).max(initial=0.0) <= 1e-12 * load.max(initial=0.0):
            break
    share: np.ndarray = np.divide(
        placed, demand[:, None], out=np.zeros(placed.shape), where=demand[:, None] > 0
    )
    return share


def _used(run: Run, kind: int | None, stop_s: float) -> tuple[float, float]:
    """GPU-s held until `stop_s`, and the last end, on one type (None: all)."""
    held = run.held
    job = run.segment_job[held.segment]
    mine = (job >= 0) & run.counted[job]
    if kind is not None:
        mine &= run.node_type[held.node] == kind
    segment = held.segment[mine]
    begin, end = run.column("segments", "begin_s")[segment], run.column("segments", "end_s")[segment]
    worked = np.clip(np.minimum(end, stop_s) - begin, 0.0, None)
    return float((held.milli[mine] / 1000.0 * worked).sum()), float(end.max(initial=-np.inf))
