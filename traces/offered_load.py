"""How much a trace asks of a cluster, and the same trace at another load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from traces.columns import MAX_TIME_S
from traces.digests import digests
from traces.errors import TraceError, did_you_mean
from traces.select import ASKED_FOR, MOST_JOBS, noted
from traces.trace import Trace

MIN_LOAD = 1e-6
"""A load below it is a typing error: the cluster would do nothing all day."""

FURTHEST = 1.5
"""Factor within which thinning and repeating must come to the load asked for: they take whole jobs."""

MOST_OF_IT = 0.8
"""Part of a trace's time that the jobs left after thinning should span."""

DAY_S, WEEK_S = 86_400.0, 604_800.0
JITTER_S = 1800.0
_SHIFTS = 52
"""Stream of the random numbers that move copies."""


def demand_gpu_s(trace: Trace) -> np.ndarray:
    """GPU time that each job asks for, num_gpus x gpu_milli / 1000 x duration_s, in GPU-s."""
    demand: np.ndarray = trace.num_gpus * (trace.gpu_milli / 1000.0) * trace.duration_s
    return demand


def span_s(trace: Trace) -> float:
    """Time from the first to the last submission, in s."""
    return float(trace.submit_s[-1] - trace.submit_s[0])


def loaded_s(trace: Trace) -> float:
    """Time over which a load is taken, in s: `span_s`, or the longest run where all come at once."""
    return span_s(trace) or float(trace.duration_s.max())


def offered_load(trace: Trace, capacity_gpus: float) -> float:
    """GPU time asked for over GPU time there is: sum(demand_gpu_s) / (loaded_s x capacity_gpus).

    Above 1 the queue grows as long as jobs keep coming. Where nothing takes any time, the load is 0.

    Raises
    ------
    TraceError
        The capacity is not positive.
    """
    if not capacity_gpus > 0:
        raise TraceError("no capacity", where="capacity_gpus", got=capacity_gpus, allowed="1 or more GPUs")
    span = loaded_s(trace)
    return float(demand_gpu_s(trace).sum()) / (span * capacity_gpus) if span > 0 else 0.0


def scale_load(trace: Trace, capacity_gpus: float, load: float, by: str = "compress", seed: int = 0) -> Trace:
    """Bring `offered_load` on `capacity_gpus` to `load`; run times never change.

    Parameters
    ----------
    by : {"compress", "thin", "repeat"}
        compress: submissions move together or apart, submit_s' = first + (submit_s - first) x offered_load / load.
        The load is met exactly; daily and weekly rhythms are stretched, so that the trace has no calendar any more.

        thin: some jobs are left out, at the times that they have. Jobs are kept in the order of a hash of seed and
        job id until their load is nearest to what was asked for: a lower load takes a part of the same jobs, and
        what becomes of a job hangs neither on the order of rows nor on other seeds. Only to a lower load.

        repeat: copies of the trace are laid over it until the GPU time is there, the last of them thinned. A copy is
        moved as a whole around the trace: by whole weeks (days, below four weeks; any time, below four days), drawn
        by seed, and half an hour to and fro; what goes beyond the last whole day comes in at the beginning. So bursts
        stay together, and hours stay true; weekdays do but for what went round. A copy of job x is called x~1, x~2,
        …, and has the user and virtual cluster of x; a copy of a group is called so, too. Only to a higher load.
    seed : int
        Of thin and repeat.

    Raises
    ------
    TraceError
        A way or load that is not allowed or cannot be reached so (within `FURTHEST`), no GPU time, or all jobs come at
        once.

    Examples
    --------
    Two jobs of 50 s on one GPU, 100 s apart, ask for all of its time; for half of it they come 200 s apart.

    >>> trace = Trace.from_columns(
    ...     {"job_id": ["a", "b"], "submit_s": [0, 100], "duration_s": [50, 50], "num_gpus": [1, 1]})
    >>> offered_load(trace, 1)
    1.0
    >>> scale_load(trace, 1, 0.5).submit_s.tolist()
    [0.0, 200.0]
    """
    if by not in WAYS:
        raise TraceError("value not allowed", where="load_by", got=by, allowed=", ".join(WAYS),
                         todo=did_you_mean(by, WAYS))
    if not (np.isfinite(load) and load >= MIN_LOAD):
        raise TraceError("value not allowed", where="load", got=load, allowed=f"a number from {MIN_LOAD:g}")
    now = offered_load(trace, capacity_gpus)
    if now == 0 or trace.submit_s[-1] == trace.submit_s[0]:
        raise TraceError("the load cannot be scaled", where=trace.provenance.source,
                         got="no GPU time" if now == 0 else "all jobs submitted at once",
                         allowed="jobs with run times, submitted at different times")
    scaled, how = WAYS[by](trace, load / now, seed)
    reached = offered_load(scaled, capacity_gpus)
    if not load / FURTHEST <= reached <= load * FURTHEST:
        raise TraceError("the load cannot be reached by whole jobs", where=f"load, by {by}", got=f"{reached:.4g}",
                         allowed=f"{load:g}, within a factor of {FURTHEST:g}", todo="Take more jobs, or compress.")
    asked = "" if abs(reached / load - 1) < 0.01 else f" (asked: {load:g})"
    note = f"{how}: load {now:.4g} to {reached:.4g}{asked} on {capacity_gpus:,.4g} GPUs"
    if len(scaled) == len(trace):
        return replace(scaled, provenance=noted(scaled, note))
    counts = dict(scaled.provenance.counts)
    kind = ASKED_FOR + ("left out: jobs, to thin the load" if by == "thin" else "added: copies of jobs")
    counts[kind] = counts.get(kind, 0) + abs(len(scaled) - len(trace))
    return replace(scaled, provenance=replace(noted(scaled, note), counts=counts))


def _compressed(trace: Trace, ratio: float, seed: int) -> tuple[Trace, str]:
    first, about = float(trace.submit_s[0]), trace.provenance
    moved = first + (trace.submit_s - first) / ratio
    if np.abs(moved).max() > MAX_TIME_S:
        raise TraceError("submissions would lie too far apart", where="load", got=f"{ratio:g} times as it is",
                         allowed=f"times within {MAX_TIME_S:g} s", todo="Ask for a higher load.")
    window = about.window_s
    if window is not None:
        window = (first + (window[0] - first) / ratio, first + (window[1] - first) / ratio)
    about = replace(about, epoch_s=None, window_s=window)
    deadline_s = trace.deadline_s + (moved - trace.submit_s)
    return trace.replace(about, submit_s=moved, deadline_s=deadline_s), f"submissions stretched by {1 / ratio:.6g}"


def _thinned(trace: Trace, ratio: float, seed: int) -> tuple[Trace, str]:
    if ratio > 1:
        raise TraceError("thinning only lowers a load", where="load", got=f"{ratio:g} times as it is",
                         allowed="at most the load that the trace has", todo="Use repeat, or compress.")
    rows = _thin_rows(trace, ratio, seed)
    how = f"{len(rows)} of {len(trace)} jobs kept by a hash of their ids (seed {seed})"
    return (trace if len(rows) == len(trace) else trace.select(rows)), how


def _repeated(trace: Trace, ratio: float, seed: int) -> tuple[Trace, str]:
    if ratio < 1:
        raise TraceError("repeating only raises a load", where="load", got=f"{ratio:g} times as it is",
                         allowed="at least the load that the trace has", todo="Use thin, or compress.")
    if ratio * len(trace) > MOST_JOBS:
        raise TraceError("too many jobs", where="load", got=f"{ratio * len(trace):,.0f}",
                         allowed=f"up to {MOST_JOBS:,}", todo="Ask for a lower load, or use compress.")
    whole = int(ratio)
    rest = _share_of(trace, ratio - whole, seed)
    parts = [np.arange(len(trace))] * (whole - 1) + [rest] * (len(rest) > 0)
    if not parts:
        return trace, "repeated once"
    mark = "~"
    while any(mark in name for name in trace.job_id):
        mark += "~"
    said = trace.said()
    tables = {name: [values] for name, values in said.items()}
    for number, (rows, shift_s) in enumerate(zip(parts, _shifts_s(trace, len(parts), seed), strict=True), start=1):
        copy = {name: values[rows] for name, values in said.items()}
        moved = _around(trace, rows, shift_s)
        for name in ("job_id", "group"):  # a copy of a group is another group: its jobs come at another time
            if name in copy:
                copy[name] = np.array([word and f"{word}{mark}{number}" for word in copy[name]], dtype=object)
        copy["deadline_s"] = copy["deadline_s"] + (moved - copy["submit_s"])
        copy["submit_s"] = moved
        for name, values in copy.items():
            tables[name].append(values)
    columns = {name: np.concatenate(values) for name, values in tables.items()}
    how = f"laid over itself {ratio:.4g} times, {len(trace)} to {len(columns['job_id'])} jobs (seed {seed})"
    return Trace.from_columns(columns, trace.provenance, row_word="job"), how


WAYS: dict[str, Callable[[Trace, float, int], tuple[Trace, str]]] = {
    "compress": _compressed, "thin": _thinned, "repeat": _repeated,
}
"""Way of scaling a load -> (trace, load wanted / load that it has, seed) -> scaled trace, and how in words."""


def by_hash(trace: Trace, seed: int) -> np.ndarray:
    """Rows in the order of a hash of seed and job id."""
    return np.argsort(hashes(trace.job_id, seed), kind="stable")


def hashes(job_ids: np.ndarray, seed: int) -> np.ndarray:
    """Hash of seed and each job id, uint64: who has a small one stays when jobs are left out."""
    return np.frombuffer(digests(job_ids, hash_key(seed), 8), dtype="<u8")


def hash_key(seed: int) -> bytes:
    """The key under which `hashes` are made."""
    return f"thin {seed}".encode()


def _thin_rows(trace: Trace, ratio: float, seed: int) -> np.ndarray:
    """Rows, ascending, whose load is nearest to `ratio` of that of all: the first so many in the order of the hash.

    The load of so many is over their own time of submissions, as `offered_load` measures it. Where any that span most
    of the trace's time come as near, the few that happen to lie close together are not taken for a load.
    """
    order = by_hash(trace, seed)
    submit_s, demand = trace.submit_s[order], demand_gpu_s(trace)[order]
    span = np.maximum.accumulate(submit_s) - np.minimum.accumulate(submit_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(span > 0, np.cumsum(demand) / span, np.inf)
    off = np.abs(load / (ratio * demand.sum() / span[-1]) - 1.0)
    off[span < MOST_OF_IT * span[-1]] += 1.0
    return np.sort(order[: int(np.argmin(off)) + 1])


def _share_of(trace: Trace, share: float, seed: int) -> np.ndarray:
    """Rows, ascending, whose GPU time is nearest to `share` of all, first those with the smallest hash."""
    order = by_hash(trace, seed)
    grown = np.concatenate(([0.0], np.cumsum(demand_gpu_s(trace)[order])))
    wanted = share * grown[-1]
    count = int(np.searchsorted(grown, wanted))
    if count > 0 and wanted - grown[count - 1] < grown[min(count, len(trace))] - wanted:
        count -= 1
    return np.sort(order[:count])


def _shifts_s(trace: Trace, copies: int, seed: int) -> np.ndarray:
    """How far each copy is moved, in s: no two alike while there are whole weeks (or days) enough."""
    span, rng = span_s(trace), np.random.default_rng([seed, _SHIFTS])
    unit = WEEK_S if span >= 4 * WEEK_S else DAY_S if span >= 4 * DAY_S else 0.0
    if unit == 0.0:
        return rng.uniform(0.0, span, copies)
    steps = np.arange(1, int(span // unit))
    drawn = np.concatenate([rng.permutation(steps) for _ in range(-(-copies // len(steps)))])[:copies]
    return drawn * unit + rng.uniform(-JITTER_S, JITTER_S, copies)


def _around(trace: Trace, rows: np.ndarray, shift_s: float) -> np.ndarray:
    """Times of submission moved around the whole days of a trace (around all of it, below four days)."""
    first, span = float(trace.submit_s[0]), span_s(trace)
    period = span // DAY_S * DAY_S if span >= 4 * DAY_S else span
    around: np.ndarray = first + (trace.submit_s[rows] - first + shift_s) % period
    return around
