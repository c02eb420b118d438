"""The trace of a run at the load asked for, and what a cluster is worth on it.

**The load** is the modelled one: GPU time asked for (recorded run times) over what the cluster can do meanwhile, in
GPUs of the type that run times were recorded on, at their modelled speeds. The recorded load takes all GPUs of the
cluster for GPUs of that type. Where run times are replayed as recorded, the two are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance import Performance
from sim.settings.config import RunConfig
from sim.workload.progress import reference_layout
from traces import stretch
from traces.errors import TraceError
from traces.load import offered_load, scale_load
from traces.select import noted
from traces.stretch import Short
from traces.synthetic.generate import GENERATORS
from traces.synthetic.month import MONTH_WEEKS, month
from traces.trace import Trace

DEFAULT_JOBS = 5_000
"""The most jobs of a generated trace where no number is asked for, and those of one whose arrivals are stretched."""

MARGIN = 1.25
"""How much more of a log is made than was found to be missing."""

SPARE = 6.0
"""How many times the jobs that are drawn are made at least."""

TRIES = 12

Whole = Callable[[RunConfig], Trace]
"""Reads a trace before its jobs are selected."""


def own_clock(config: RunConfig) -> bool:
    """Whether a generated trace keeps the times of its log: its jobs are thinned, not its time stretched."""
    return config.trace in GENERATORS and config.load_by == "thin"


def brought(
    config: RunConfig, ready: Callable[[Whole | None], tuple[Trace, np.ndarray]], whole: Whole | None, gpus: int
) -> tuple[Trace, float]:
    """The trace with the jobs and at the load that were asked for, and what the cluster is worth on it.

    Parameters
    ----------
    ready : how it is read (`Whole`; None: as usual) -> all jobs that were selected, and what the cluster is worth on
        each (`worth_by_job`).
    gpus : of the cluster: its worth by recorded durations.

    Raises
    ------
    TraceError
        The load or the number of jobs cannot be reached.
    """
    trace, worth = ready(whole)
    if not own_clock(config):
        total = mean_worth(trace, worth, gpus)
        if config.load is None:
            return trace, total
        capacity = total if config.load_rule == "modelled" else gpus
        return _named(scale_load(trace, capacity, config.load, config.load_by, config.seed), config), total
    weeks, layers, keep, jobs = MONTH_WEEKS, 1, 1.0, config.jobs
    for _ in range(TRIES):
        if config.load is None:
            found = stretch.thinned(trace, jobs or len(trace), config.seed)
        else:
            of_load = worth if config.load_rule == "modelled" else np.full(len(trace), float(gpus))
            found = stretch.at_load(trace, of_load, config.load, jobs, DEFAULT_JOBS, config.seed)
        if not isinstance(found, Short):
            made = _Made(weeks, layers, len(trace) if keep == 1 else None)
            return _drawn(trace, found, worth, made, gpus, config)
        before, kept = len(trace), keep
        if found.denser > 1 and keep < 1:
            keep = min(1.0, keep * found.denser * MARGIN)
        elif found.denser > 1:
            layers = math.ceil(layers * min(found.denser, 1e3) * MARGIN)
        if found.longer > 1:
            weeks = math.ceil(weeks * found.longer * MARGIN)
            # Of a long stretch only the jobs that may be drawn are made.
            keep = min(keep, SPARE * (jobs or DEFAULT_JOBS) / (len(trace) / keep * found.longer))
        trace, worth = ready(partial(_log, weeks=weeks, layers=layers, keep=keep))
        if len(trace) <= before and keep >= kept:
            break
    raise TraceError("not so many jobs at this load", where=f"synthetic {config.trace!r}",
                     got=f"{len(trace):,} jobs are there, of those selected", allowed="a number and a load that they "
                     "come to", todo="Ask for fewer jobs, another load, or a longer window.")


def _log(config: RunConfig, weeks: int, layers: int, keep: float) -> Trace:
    return month(config.trace, config.seed, config.read, weeks, layers, keep)


@dataclass(frozen=True)
class _Made:
    """What was made of a log: weeks of so many such logs, with so many jobs (None: only those that may be drawn)."""

    weeks: int
    layers: int
    jobs: int | None


def _drawn(
    trace: Trace, rows: np.ndarray, worth: np.ndarray, made: _Made, gpus: int, config: RunConfig
) -> tuple[Trace, float]:
    """The jobs drawn of a log, with a note, and what the cluster is worth on them."""
    drawn = trace if len(rows) == len(trace) else trace.select(rows)
    total = mean_worth(drawn, worth[rows], gpus)
    length = "a month" if made.weeks == MONTH_WEEKS else f"{made.weeks} weeks"
    logs = "the log" if made.layers == 1 else f"{made.layers} such logs laid over each other"
    there = f" of {made.jobs:,}" if made.jobs is not None else ""
    note = f"{len(rows):,}{there} jobs of {length} of {logs}, at their own times; by a hash of ids (seed {config.seed})"
    if config.load is not None:
        reached = offered_load(drawn, total if config.load_rule == "modelled" else gpus)
        asked = "" if abs(reached / config.load - 1) < 0.01 else f" (asked: {config.load:g})"
        note += f": {config.load_rule} load {reached:.4g}{asked}"
    return replace(drawn, provenance=noted(drawn, note)), total


def _named(trace: Trace, config: RunConfig) -> Trace:
    """The last note of a scaled trace says which load it means."""
    *others, last = trace.provenance.notes
    last = last.replace(": load ", f": {config.load_rule} load ", 1)
    return replace(trace, provenance=replace(trace.provenance, notes=(*others, last)))


def mean_worth(trace: Trace, worth: np.ndarray, gpus: int) -> float:
    """What a cluster is worth on a trace: the mean over its jobs, weighted by recorded GPU time; unknown ones left out.
    Where it is worth nothing, its GPUs."""
    gpu_s = trace.duration_s * trace.num_gpus * trace.gpu_milli
    known = np.isfinite(worth)
    total, worked = float(gpu_s[known].sum()), float(gpu_s[known] @ worth[known])
    return worked / total if total > 0 and worked > 0 else float(gpus)


def worth_by_job(trace: Trace, cluster: ClusterSpec, performance: Performance, reference: GpuType) -> np.ndarray:
    """What a cluster can do on each job, in GPUs of the reference type: sum over types of GPUs × relative speed.

    The speed of a type is that of the gang asked for, data-parallel on 8-GPU nodes, against the reference type (0 where
    its memory does not fit); NaN where the reference type cannot. Without it a load of 0.7 on a cluster of old GPUs
    would be an overload that no number shows.
    """
    measured = set(performance.table.job_types) if performance.table is not None else set()
    there = cluster.gpus_by_type()
    worth: dict[tuple[str, int, int], float] = {}
    keys = list(zip(trace.model.tolist(), trace.batch_size.tolist(), trace.num_gpus.tolist(), strict=True))
    for model, batch, gang in dict.fromkeys(keys):
        layout = reference_layout(gang)
        rates = [
            performance.data_parallel(model, batch, gpu, layout).rate
            if model not in measured or performance.fits(model, batch, gpu, gang) else 0.0
            for gpu in (reference, *cluster.types)
        ]
        worth[model, batch, gang] = float(np.array(rates[1:]) / rates[0] @ there) if rates[0] > 0 else np.nan
    return np.array([worth[key] for key in keys])


def worth_gpus(trace: Trace, cluster: ClusterSpec, performance: Performance, reference: GpuType) -> float:
    """What a cluster can do on a trace, in GPUs of the reference type: `mean_worth` of `worth_by_job`."""
    return mean_worth(trace, worth_by_job(trace, cluster, performance, reference), cluster.num_gpus)
