"""The trace of a run at the load asked for, and what a cluster is worth on it.

**The load** is the modelled one: GPU time asked for (recorded run times) over what the cluster can do meanwhile, in
GPUs of the type that run times were recorded on, at their modelled speeds. The recorded load takes all GPUs of the
cluster for GPUs of that type. Where run times are replayed as recorded, the two are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance import Performance
from sim.settings.config import RunConfig
from sim.workload.progress import reference_layout
from traces import stretch
from traces.assign import ModelChoice, drawn
from traces.errors import TraceError
from traces.load import offered_load, scale_load
from traces.select import noted
from traces.stretch import Crowd, Short
from traces.synthetic.generate import GENERATORS
from traces.synthetic.month import MONTH_WEEKS, month
from traces.synthetic.pool import Logs, Pool
from traces.trace import Trace
from traces.words import alike, coded

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
    config: RunConfig, ready: Callable[[Whole | None], tuple[Trace, np.ndarray]], whole: Whole | None, gpus: int,
    worth_of: Callable[[Pool], np.ndarray | float] | None = None,
) -> tuple[Trace, float]:
    """The trace with the jobs and at the load that were asked for, and what the cluster is worth on it.

    Parameters
    ----------
    ready : how it is read (`Whole`; None: as usual) -> all jobs that were selected, and what the cluster is worth on
        each (`worth_by_job`).
    gpus : of the cluster: its worth by recorded durations.
    worth_of : what `ready` says that it is worth on each job of a pool of them, none of which is made yet (one number
        for all); None where `ready` takes or changes jobs, so that it must see them.

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
    found = _rows(Crowd.of(trace, config.seed), worth, gpus, config)
    if not isinstance(found, Short):
        few = trace if len(found) == len(trace) else trace.select(found)
        return _drawn(few, worth[found], _Made(MONTH_WEEKS, 1, len(trace)), gpus, config)
    before = len(trace)
    del trace, worth
    logs = None if worth_of is None else Logs(config.trace, config.seed, config.read)
    weeks, layers, keep = MONTH_WEEKS, 1, 1.0
    for _ in range(TRIES):
        kept = keep
        if found.denser > 1 and keep < 1:
            keep = min(1.0, keep * found.denser * MARGIN)
        elif found.denser > 1:
            layers = math.ceil(layers * min(found.denser, 1e3) * MARGIN)
        if found.longer > 1:
            weeks = math.ceil(weeks * found.longer * MARGIN)
            # Of a long stretch only the jobs that may be drawn are made.
            keep = min(keep, SPARE * (config.jobs or DEFAULT_JOBS) / (before / keep * found.longer))
        if logs is None or worth_of is None:
            trace, worth = ready(partial(_log, weeks=weeks, layers=layers, keep=keep))
            there = len(trace)
            found = _rows(Crowd.of(trace, config.seed), worth, gpus, config)
        else:
            pool = logs.pool(weeks, layers, keep)
            there = len(pool)
            found = _rows(pool.crowd, worth_of(pool), gpus, config)
        if not isinstance(found, Short):
            made = _Made(weeks, layers, there if keep == 1 else None)
            if logs is None:
                return _drawn(trace if len(found) == there else trace.select(found), worth[found], made, gpus, config)
            drawn_rows = pool.drawn(found)
            del logs, pool  # all that is not needed to make their trace: most of it
            few = drawn_rows.trace()
            del drawn_rows
            return _drawn(*ready(partial(_given, few)), made, gpus, config)
        if there <= before and keep >= kept:
            break
        before = there
    raise TraceError("not so many jobs at this load", where=f"synthetic {config.trace!r}",
                     got=f"{there:,} jobs are there, of those selected", allowed="a number and a load that they "
                     "come to", todo="Ask for fewer jobs, another load, or a longer window.")


def _rows(log: Crowd, worth: np.ndarray | float, gpus: int, config: RunConfig) -> np.ndarray | Short:
    """The jobs to draw of a log."""
    if config.load is None:
        return stretch.thinned(log, config.jobs or len(log))
    of_load = worth if config.load_rule == "modelled" else float(gpus)
    return stretch.at_load(log, of_load, config.load, config.jobs, DEFAULT_JOBS)


def _log(config: RunConfig, weeks: int, layers: int, keep: float) -> Trace:
    return month(config.trace, config.seed, config.read, weeks, layers, keep)


def _given(trace: Trace, config: RunConfig) -> Trace:
    """A trace that is there already (`Whole`)."""
    return trace


@dataclass(frozen=True)
class _Made:
    """What was made of a log: weeks of so many such logs, with so many jobs (None: only those that may be drawn)."""

    weeks: int
    layers: int
    jobs: int | None


def _drawn(
    few: Trace, worth: np.ndarray, made: _Made, gpus: int, config: RunConfig
) -> tuple[Trace, float]:
    """The jobs drawn of a log, with a note, and what the cluster is worth on them."""
    total = mean_worth(few, worth, gpus)
    length = "a month" if made.weeks == MONTH_WEEKS else f"{made.weeks} weeks"
    logs = "the log" if made.layers == 1 else f"{made.layers} such logs laid over each other"
    there = f" of {made.jobs:,}" if made.jobs is not None else ""
    note = f"{len(few):,}{there} jobs of {length} of {logs}, at their own times; by a hash of ids (seed {config.seed})"
    if config.load is not None:
        reached = offered_load(few, total if config.load_rule == "modelled" else gpus)
        asked = "" if abs(reached / config.load - 1) < 0.01 else f" (asked: {config.load:g})"
        note += f": {config.load_rule} load {reached:.4g}{asked}"
    return replace(few, provenance=noted(few, note)), total


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
    model, models = coded(trace.model)
    kind, kinds = _kinds(model, trace.batch_size, trace.num_gpus)
    return _worth([(models[m], batch, gang) for m, batch, gang in kinds], cluster, performance, reference)[kind]


def _kinds(*columns: np.ndarray) -> tuple[np.ndarray, list[list[int]]]:
    """Kind of each row (`traces.words.alike`), and the values of each kind."""
    kind, first = alike(*columns)
    return kind, np.column_stack([values[first] for values in columns]).tolist()


def worth_on_pool(
    pool: Pool, choices: Sequence[ModelChoice], seed: int, cluster: ClusterSpec, performance: Performance,
    reference: GpuType,
) -> np.ndarray:
    """`worth_by_job` on the jobs of a pool, with the models that `traces.assign` would give them."""
    number: dict[tuple[str, int, int], int] = {}
    parts = []
    for log in pool.logs:
        gang = log.column("num_gpus")
        which, batch = drawn(log.ids(), gang, log.column("gpu_milli"), choices, seed)
        kind, kinds = _kinds(which, batch, gang)
        named = [(choices[index].name, size, slots) for index, size, slots in kinds]
        parts.append(np.array([number.setdefault(one, len(number)) for one in named], dtype=np.int32)[kind])
    return _worth(list(number), cluster, performance, reference)[np.concatenate(parts)[pool.at]]


def _worth(
    kinds: Sequence[tuple[str, int, int]], cluster: ClusterSpec, performance: Performance, reference: GpuType
) -> np.ndarray:
    """`worth_by_job`, of kinds of jobs: model, global batch, slots."""
    measured = set(performance.table.job_types) if performance.table is not None else set()
    there = cluster.gpus_by_type()
    worth = np.empty(len(kinds))
    for index, (model, batch, gang) in enumerate(kinds):
        layout = reference_layout(gang)
        rates = [
            performance.data_parallel(model, batch, gpu, layout).rate
            if model not in measured or performance.fits(model, batch, gpu, gang) else 0.0
            for gpu in (reference, *cluster.types)
        ]
        worth[index] = float(np.array(rates[1:]) / rates[0] @ there) if rates[0] > 0 else np.nan
    return worth


def worth_gpus(trace: Trace, cluster: ClusterSpec, performance: Performance, reference: GpuType) -> float:
    """What a cluster can do on a trace, in GPUs of the reference type: `mean_worth` of `worth_by_job`."""
    return mean_worth(trace, worth_by_job(trace, cluster, performance, reference), cluster.num_gpus)
