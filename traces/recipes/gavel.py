"""Gavel's rule: one of 26 job types, equally likely; weights and service-level objectives for some."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traces.errors import TraceError, did_you_mean
from traces.reading.reader import choice
from traces.recipes.recipe import JobType, Recipe, draw, drawn_types, filled
from traces.trace import Trace

ALONE = 1
"""GPUs of a type that Gavel never trains on several."""


def _types() -> tuple[JobType, ...]:
    """The 26 types; a batch is that of a GPU (each worker of a gang loads so many samples)."""
    tables = (
        ("ResNet-18", "resnet18-cifar", (16, 32, 64, 128, 256), 1_000_000),
        ("ResNet-50", "resnet50", (16, 32, 64, 128), 1_000_000),
        ("Transformer", "transformer-multi30k", (16, 32, 64, 128, 256), 1_000_000),
        ("LM", "lstm-wikitext2", (5, 10, 20, 40, 80), 1_000_000),
        ("Recommendation", "autoencoder-ml20m", (512, 1024, 2048, 4096, 8192), ALONE),
    )
    named = [
        JobType(f"{name} (batch size {batch})", zoo, batch, batch_of_gpu=True, max_gpus=most)
        for name, zoo, batches, most in tables for batch in batches
    ]
    return (*named, JobType("A3C", "", 0, max_gpus=ALONE), JobType("CycleGAN", "", 0, max_gpus=ALONE))


TYPES = _types()
PRIORITY_SHARE, PRIORITY = 0.2, 5.0
SLO_FACTORS, SLO_SHARES = (1.2, 2.0, 10.0), (0.33, 0.34, 0.33)
GANGS, GANG_SHARES = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)


def gavel(
    trace: Trace, seed: int, *, names: str = "zoo", overwrite: bool = False, jobs: str = "recorded",
    priorities: bool = False, deadlines: bool = False, without: str = "",
) -> Trace:
    """Give jobs what Gavel's generator gives them.

    - `model`, `batch_size`: one of `TYPES`, each as likely; Recommendation, A3C and CycleGAN only on one GPU.
    - `priority`, if `priorities`: 5 with probability 0.2, else 1.
    - `deadline_s`, if `deadlines`: submit_s + f duration_s, f = 1.2, 2 or 10 with probability 0.33, 0.34, 0.33.
    - `num_gpus`, `duration_s`, if `jobs` is "drawn", for all jobs, in place of the recorded ones: 1, 2, 4, 8 GPUs with
      probability 0.70, 0.10, 0.15, 0.05; 60 × 10^u s, u uniform in [1.5, 3) with probability 0.8, else in [3, 4).
      Gavel's traces made of Philly's ("msr") keep the recorded ones.

    Iterations are left blank: Gavel's are duration_s × its measured rate on a V100, which the simulator has (names
    "table": those of Gavel's own table of rates).

    Parameters
    ----------
    without : str
        Beginnings of names of types to leave out, separated by ",": "A3C,CycleGAN" are not in the zoo.

    Raises
    ------
    TraceError
        A setting is not allowed.

    Source: Narayanan et al., OSDI 2020, section 7.1; github.com/stanford-futuredata/gavel, scheduler/job_table.py and
    scheduler/utils.py (generate_job), MIT licence.
    """
    choice("jobs", jobs, ("recorded", "drawn"))
    types = _all_but(without)
    said: tuple[str, ...] = ()
    if jobs == "drawn":
        drawn = _drawn_jobs(trace, seed)
        other = {name: getattr(trace, name) != getattr(drawn, name) for name in ("num_gpus", "duration_s")}
        said = tuple(f"{name} of {int(rows.sum())} of {len(trace)} jobs drawn in place of the recorded"
                     for name, rows in other.items())
        trace = drawn
    columns = drawn_types(types, draw(trace, seed, "gavel type"), trace.num_gpus, names)
    if priorities:
        columns["priority"] = np.where(draw(trace, seed, "gavel priority") < PRIORITY_SHARE, PRIORITY, 1.0)
    if deadlines:
        factor = _one_of(SLO_FACTORS, SLO_SHARES, draw(trace, seed, "gavel slo"))
        columns["deadline_s"] = trace.submit_s + factor * trace.duration_s
    return filled(trace, "gavel", seed, columns, overwrite=overwrite, said=said)


def _all_but(without: str) -> tuple[JobType, ...]:
    """The types whose names begin with none of those named.

    Raises
    ------
    TraceError
        A name is that of no type, or no type is left that trains on several GPUs.
    """
    left_out = [name.strip() for name in without.split(",") if name.strip()]
    models = sorted({kind.name.split(" (")[0] for kind in TYPES})
    for name in left_out:
        if not any(kind.name.startswith(name) for kind in TYPES):
            raise TraceError("no such job type", where="setting 'without'", got=name, allowed=", ".join(models),
                             todo=did_you_mean(name, models))
    left = tuple(kind for kind in TYPES if not kind.name.startswith(tuple(left_out)))
    if all(kind.max_gpus == ALONE for kind in left):
        raise TraceError("no job type is left for several GPUs", where="setting 'without'", got=without,
                         allowed="fewer of " + ", ".join(models))
    return left


def _drawn_jobs(trace: Trace, seed: int) -> Trace:
    """The trace with Gavel's GPU counts and durations."""
    long = draw(trace, seed, "gavel long") >= 0.8
    u = draw(trace, seed, "gavel duration")
    minutes = 10 ** np.where(long, 3 + u, 1.5 + 1.5 * u)
    gangs = _one_of(GANGS, GANG_SHARES, draw(trace, seed, "gavel gang"))
    provenance = replace(trace.provenance, rule="duration_s and num_gpus drawn by Gavel's distributions")
    whole = {"gpu_milli": np.full(len(trace), 1000), "worker_gpus": np.ones(len(trace), dtype=np.int64)}
    return trace.replace(provenance, duration_s=60 * minutes, num_gpus=gangs, **whole)


def _one_of(values: tuple[float, ...], shares: tuple[float, ...], draws: np.ndarray) -> np.ndarray:
    """Of each job one value, with the probabilities `shares`."""
    which = np.searchsorted(np.cumsum(shares), draws, side="right")
    return np.array(values)[np.minimum(which, len(values) - 1)]


RECIPE = Recipe(
    name="gavel",
    apply=gavel,
    source="Narayanan et al., OSDI 2020, section 7.1; https://github.com/stanford-futuredata/gavel",
    fills=("model", "batch_size", "priority", "deadline_s"),
    needs="num_gpus; deadlines: duration_s. Iterations: rates of a V100, which the simulator applies",
    settings={
        "jobs": "recorded (default), or drawn: GPU counts and durations by Gavel's distributions",
        "priorities": "whether a fifth of the jobs have weight 5 (default: no)",
        "deadlines": "whether jobs have objectives of 1.2, 2 or 10 times their duration (default: no)",
        "without": "job types to leave out, such as A3C,CycleGAN, which the zoo lacks",
    },
)
