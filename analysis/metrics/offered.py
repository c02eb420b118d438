"""Offered load: what the trace asks of the cluster, before any policy; and how far the run fell behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from analysis.metrics.jobtimes import gpus_asked, of_jobs, unfinished, whole_life
from analysis.run import Run, wishes
from traces.arrow import as_numpy, word
from traces.late import pd


def offered_load(run: Run) -> pd.DataFrame:
    """Offered load, backlog and drain time: one row for 'all', then one for each GPU type.

    With demand D = sum(duration_s * GPUs) in GPU-s, G = sum(GPUs) asked for, T = last minus first submit,
    and N GPUs:

    - ``window_s = T + D / G``: the arrivals, and one mean run time (weighted by GPUs) for the last of them
      to end in.
    - ``span_load = D / (N T)``: the usual definition, that of `traces.offered_load.offered_load` and of the setting
    `load`;
      None where all jobs come at once.
    - ``load = D / (N * window_s)``. For a long trace this is close to `span_load`; for jobs that all come at
      once, G / N. Above 1 more is asked for than the window has, and in a long trace a queue grows whatever
      the policy. None where nothing asks for the type.
    - ``backlog_gpu_h``: recorded GPU time of the work that would have been done by the end of `window_s` if no job ever
      waited, and was not: the sum over jobs of ``GPUs * max(0, min(duration_s, end - submit_s) - duration_s * share)``,
      `share` being that of `work_total` which stood by then. So it is 0 only where nobody was behind: a job on faster
      GPUs than recorded makes up for no other. Of a type, the part of it that the demand below has there.
    - ``drain_s``: from the end of `window_s` to the last time that jobs which ask were on GPUs (of the type), at
      least 0; None while any of them is unfinished.

    Durations are those recorded in the trace. Rejected jobs and jobs submitted after the run's end ask for nothing; in
    a measuring window, only the jobs submitted in it ask. Jobs that the log cuts off ask for what it shows of them. A
    run or measuring window that stops within `window_s` is judged at its end, unless it follows its jobs. The demand of
    jobs that may run on several types goes to those types so that the highest demand a GPU becomes as low as possible.
    """
    found = loads(run)
    return pd.DataFrame(list(found.values()), index=pd.Index(list(found), name="gpu_type"), dtype=object)


def loads(run: Run) -> dict[str, dict[str, Any]]:
    """The rows of `offered_load` by name."""
    drained, until_s = not unfinished(run).any(), whole_life(run).window_s[1]
    run = run if run.life is None else run.life[0]  # work lost later stands until then: a window has it cut away
    rejected = as_numpy(pc.equal(run.tables["jobs"]["state"], word("rejected")))
    counts = ~rejected & (run.column("jobs", "submit_s") <= until_s) & run.asked
    gpus = gpus_asked(run)[counts]
    submit, duration = run.column("jobs", "submit_s")[counts], run.column("jobs", "duration_s")[counts]
    codes, allowed = wishes(run)
    codes = codes[counts]
    demand = np.bincount(codes, weights=gpus * duration, minlength=len(allowed))
    asked = np.bincount(codes, weights=gpus, minlength=len(allowed))
    there = np.bincount(run.node_type, weights=run.column("nodes", "gpus"), minlength=len(run.types))
    share = _least_load(allowed, demand, there)
    rows: list[dict[str, Any]] = []
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
        stop = min(float(submit.min()) + window, until_s)
        behind = np.clip(stop - submit, 0.0, duration) - duration * _share_done(run, stop)[counts]
        last = min(_last_end_s(run, None if kind == 0 else kind - 1), until_s)
        rows.append(
            {
                "gpus": capacity,
                "load": total / (capacity * window) if window > 0 else None,
                "span_load": total / (capacity * span) if span > 0 else None,
                "window_s": window,
                "backlog_gpu_h": float((part[codes] * gpus * np.maximum(behind, 0.0)).sum()) / 3600.0,
                "drain_s": max(0.0, last - stop) if drained else None,
            }
        )
    return dict(zip(("all", *run.types), rows, strict=True))


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


def _share_done(run: Run, stop_s: float) -> np.ndarray:
    """float64 [jobs]: share of its work that each job had done at `stop_s`, less what it had lost by then."""
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    ended = end <= stop_s
    so_far = np.maximum(0.0, stop_s - begin - run.column("segments", "overhead_s")) * run.column("segments", "rate")
    done = np.where(ended, run.column("segments", "work_done") - run.column("segments", "work_lost"), so_far)
    total = run.column("jobs", "work_total")
    with np.errstate(over="ignore"):  # beyond all bounds is beyond 1, too
        share = np.divide(of_jobs(run, done), total, out=np.ones(len(total)), where=total > 0)
    bounded: np.ndarray = np.clip(share, 0.0, 1.0)
    return bounded


def _last_end_s(run: Run, kind: int | None) -> float:
    """The last end of jobs of the window on one type (None: on any), in s; -inf where none ran there."""
    held = run.held
    job = run.segment_job[held.segment]
    mine = (job >= 0) & run.asked[job]
    if kind is not None:
        mine &= run.node_type[held.node] == kind
    return float(run.column("segments", "end_s")[held.segment[mine]].max(initial=-np.inf))


def modelled_load(run: Run) -> float | None:
    """Load by modelled speed, ``D / (W T)``: what the setting `load` means where work is iterations.

    D and T as in `offered_load`; W is what the cluster is worth on the trace, in GPUs of the kind that durations were
    recorded on: the GPUs of each type times their mean modelled speed (`work.worth_gpus` of `run.json`, from
    `sim.workload.at_load.worth_gpus`). None where durations are replayed as recorded, all jobs come at once, or the run
    was made before `run.json` had it.
    """
    worth = run.info.get("work", {}).get("worth_gpus")
    load = loads(run)["all"]
    if not worth or load["span_load"] is None:
        return None
    return float(load["span_load"] * load["gpus"] / worth)
