"""Models for jobs of a trace that names none, or none that is known: which there are, and who gets which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.hardware.gputypes import GpuType
from sim.performance import MODELS, Performance
from traces.assign import ModelChoice, assign
from traces.trace import Trace

#: Gangs that train a model, fewest and most GPUs: small models do not fill many, the largest are not for few.
GANGS = {"lstm-lm": (1, 8), "transformer": (1, 8), "gpt2-1.5b": (8, 1_000_000)}


def with_models(trace: Trace, performance: Performance, reference: GpuType, seed: int) -> Trace:
    """Give each job a model of the zoo and a batch size where it has none that the performance model knows.

    Models that neither the zoo nor the measured table has are replaced, and so are those without a batch size; the
    trace notes it. A job type that was measured in one batch size only needs none: it gets 1, which nothing reads.
    """
    table = performance.table
    alone = {model for model in table.job_types if not table.needs_batch(model)} if table is not None else set()
    bare = np.array([model in alone for model in trace.model.tolist()] if alone else False) & (trace.batch_size == 0)
    if bare.any():
        note = f"{int(bare.sum())} jobs of measured job types have no batch size, and need none"
        trace = with_notes(trace, note, batch_size=np.where(bare, 1, trace.batch_size))
    trace = _own_iterations(trace, set(table.job_types) if table is not None else set())
    is_known = {model: performance.known(model) for model in set(trace.model.tolist())}
    known = np.array([is_known[model] for model in trace.model.tolist()]) & (trace.batch_size > 0)
    if known.all():
        return trace
    named = trace.model != ""
    strange = sorted(set(trace.model[named & ~known].tolist()))
    if strange:
        names = ", ".join(strange[:5]) + (", …" if len(strange) > 5 else "")
        count = int((named & ~known).sum())
        lacks = "the zoo lacks" if table is None else "neither the zoo nor the measured table has"
        note = f"{count} jobs name a model that {lacks}, or no batch size: replaced ({names})"
        model = trace.model.copy()
        model[~known] = ""
        iterations = np.where(known | ~named, trace.work_iters, np.nan)  # of another model
        batch = np.where(known, trace.batch_size, 0)
        trace = with_notes(trace, note, model=model, batch_size=batch, work_iters=iterations)
    return assign(trace, model_choices(performance, reference), seed)


def _own_iterations(trace: Trace, measured: set[str]) -> Trace:
    """Without the iterations that were counted at rates of another source, but for models with measured rates.

    At the rates of the zoo they would be other work than was recorded, by several times; the run time is the work.
    """
    if not trace.provenance.rates:
        return trace
    modelled = np.array([model not in measured for model in trace.model.tolist()]) & ~np.isnan(trace.work_iters)
    if not modelled.any():
        return trace
    note = (f"{int(modelled.sum())} jobs have iterations at the rates of {trace.provenance.rates}, and no measured "
            "rate here (--measured): their work is their run time")
    return with_notes(trace, note, work_iters=np.where(modelled, np.nan, trace.work_iters))


def model_choices(performance: Performance, reference: GpuType) -> list[ModelChoice]:
    """Models of the zoo, equally likely, in batches that fit the reference type (whatever the cluster: a trace means
    the same work on each).

    A data-parallel gang holds the whole model on each GPU, so what fits one GPU fits a gang of any size. Models that
    a measured table has are not given: it may not have been measured in the batch that would be drawn.
    """
    choices = []
    for name, model in MODELS.items():
        if name in performance.graphs or (performance.table is not None and name in performance.table.job_types):
            continue
        batches = tuple(batch for batch in model.gpu_batch_sizes if performance.fits(name, batch, reference, 1))
        if batches:
            fewest, most = GANGS.get(name, (1, 1_000_000))
            choices.append(ModelChoice(name, 1.0, batches, fewest, most))
    return choices


def with_notes(trace: Trace, *notes: str, **columns: np.ndarray) -> Trace:
    """The trace with more notes and some columns replaced."""
    provenance = replace(trace.provenance, notes=(*trace.provenance.notes, *notes))
    return trace.replace(provenance, **columns)
