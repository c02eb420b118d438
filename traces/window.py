"""Parts of a trace, and the same trace at another load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traces.errors import TraceError
from traces.schema import MAX_TIME_S
from traces.trace import Provenance, Trace

MIN_LOAD = 1e-6
"""A load below it is a typing error: the cluster would do nothing all day."""


def demand_gpu_s(trace: Trace) -> np.ndarray:
    """GPU time that each job asks for, num_gpus x gpu_milli / 1000 x duration_s, in GPU-s."""
    demand: np.ndarray = trace.num_gpus * (trace.gpu_milli / 1000.0) * trace.duration_s
    return demand


def span_s(trace: Trace) -> float:
    """Time from the first to the last submission, in s; the longest run where all come at once."""
    span = float(trace.submit_s[-1] - trace.submit_s[0])
    return span if span > 0 else float(trace.duration_s.max())


def offered_load(trace: Trace, capacity_gpus: float) -> float:
    """GPU time asked for over GPU time there is: sum(demand_gpu_s) / (span_s x capacity_gpus).

    Above 1 the queue grows as long as jobs keep coming. Where nothing takes any time, the load is 0.

    Raises
    ------
    TraceError
        The capacity is not positive.
    """
    if not capacity_gpus > 0:
        raise TraceError("no capacity", where="capacity_gpus", got=capacity_gpus, allowed="1 or more GPUs")
    span = span_s(trace)
    return float(demand_gpu_s(trace).sum()) / (span * capacity_gpus) if span > 0 else 0.0


def head(trace: Trace, jobs: int) -> Trace:
    """The first `jobs` jobs of a trace by submission (all, where it has fewer).

    Raises
    ------
    TraceError
        `jobs` is below 1.
    """
    if jobs < 1:
        raise TraceError("no jobs left", where="jobs", got=jobs, allowed="1 or more")
    if jobs >= len(trace):
        return trace
    note = f"first {jobs} of {len(trace)} jobs"
    return replace(trace.select(slice(0, jobs)), provenance=_noted(trace, note))


def scale_load(trace: Trace, capacity_gpus: float, load: float) -> Trace:
    """Move submissions together or apart so that `offered_load` on `capacity_gpus` is `load`.

    submit_s' = first + (submit_s - first) x offered_load / load. Run times do not change; daily and weekly
    rhythms are stretched with the rest.

    Raises
    ------
    TraceError
        The load is not positive and finite, the trace asks for no GPU time, or all jobs come at once.
    """
    if not (np.isfinite(load) and load >= MIN_LOAD):
        raise TraceError("value not allowed", where="load", got=load, allowed=f"a number from {MIN_LOAD:g}")
    now = offered_load(trace, capacity_gpus)
    first = trace.submit_s[0]
    if now == 0 or trace.submit_s[-1] == first:
        raise TraceError("the load cannot be scaled", where=trace.provenance.source,
                         got="no GPU time" if now == 0 else "all jobs submitted at once",
                         allowed="jobs with run times, submitted at different times")
    factor = now / load
    note = f"submissions stretched by {factor:.6g}: load {now:.4g} to {load:g} on {capacity_gpus:,.4g} GPUs"
    submit_s = first + (trace.submit_s - first) * factor
    if np.abs(submit_s).max() > MAX_TIME_S:
        raise TraceError("submissions would lie too far apart", where="load", got=load,
                         allowed=f"times within {MAX_TIME_S:g} s", todo="Ask for a higher load.")
    return trace.replace(provenance=_noted(trace, note), submit_s=submit_s)


def _noted(trace: Trace, note: str) -> Provenance:
    return replace(trace.provenance, notes=(*trace.provenance.notes, note))
