"""Pollux' rule: the GPU time of a job tells which of six trainings it becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from traces.reading.reader import choice
from traces.recipes.recipe import NAMES, Recipe, draw, filled
from traces.trace import Trace


@dataclass(frozen=True)
class Application:
    """One of Pollux' trainings.

    Attributes
    ----------
    name, zoo : str
        Its name in Pollux, and that of the same network in the zoo; empty: the zoo has none.
    first_batch, largest_batch : int
        Samples an iteration of all GPUs: what it starts with on one GPU, and the most that still trains.
    tuned : tuple of (GPUs, batch size)
        The choices of a user who tunes, as in the published workloads: those with 50 to 80 % of the ideal speed-up,
        and under twelve hours.
    """

    name: str
    zoo: str
    first_batch: int
    largest_batch: int
    tuned: tuple[tuple[int, int], ...]


APPLICATIONS = {
    app.name: app
    for app in (
        Application("cifar10", "resnet18-cifar", 128, 4096, ((6, 2048), (8, 2048), (12, 4096), (16, 4096))),
        Application("ncf", "neumf", 256, 32_768, ((1, 32_768),)),
        Application("deepspeech2", "", 20, 640, ((6, 320), (8, 320), (12, 640))),
        Application("bert", "bert-base-384", 12, 384, ((6, 384), (8, 384), (12, 384), (16, 384))),
        Application("yolov3", "yolov3", 8, 512, ((4, 64),)),
        Application("imagenet", "resnet50", 200, 12_800, ((24, 3200), (32, 6400), (48, 6400))),
    )
}
CATEGORIES: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1.0, ("cifar10", "ncf")),
    (10.0, ("deepspeech2", "bert")),
    (100.0, ("yolov3",)),
    (np.inf, ("imagenet",)),
)
"""GPU time below which a job is of a category, in GPU-hours, and its trainings, each as likely."""


def pollux(
    trace: Trace, seed: int, *, names: str = "zoo", overwrite: bool = False, configuration: str = "recorded"
) -> Trace:
    """Give each job the training of its category, and a batch.

    - `model`: by the job's GPU time, num_gpus × duration_s: below 1 GPU-hour cifar10 or ncf, below 10 deepspeech2 or
      bert, below 100 yolov3, from there on imagenet.
    - `batch_size` (of all GPUs together), `configuration` "recorded": the training's first batch × num_gpus, at most
      its largest, as of users who do not tune (Pollux' realistic workloads).
    - `configuration` "tuned": `num_gpus` and `batch_size` are one of the training's published choices, each as likely.
      This replaces GPU counts of the trace, and so duration_s is scaled to keep each job's GPU time.

    Pollux further draws its jobs from Philly's: at least 60 s, under 1,000 GPU-hours, of some hours of the day; in its
    realistic workloads it draws the GPUs of yolov3 and imagenet anew from jobs of up to a day. Filter the trace to have
    the same. Iterations are left blank, and a job runs as long as its log says: in Pollux it runs until the training
    converges, by measured curves that are not shipped here.

    Raises
    ------
    TraceError
        A setting is not allowed.

    Source: Qiao et al., OSDI 2021, sections 5.1 and 5.3; github.com/petuum/adaptdl, branch osdi21-artifact,
    simulator/workload.py, simulator/applications.py and the workloads of simulator/ and benchmark/, Apache 2.0.
    """
    choice("names", names, NAMES)
    choice("configuration", configuration, ("recorded", "tuned"))
    gpu_hours = trace.duration_s * trace.num_gpus * trace.gpu_milli / 3.6e6
    category = np.searchsorted([most for most, _ in CATEGORIES], gpu_hours, side="right")
    which, how = draw(trace, seed, "pollux application"), draw(trace, seed, "pollux configuration")
    model, batch_size = np.full(len(trace), "", dtype=object), np.zeros(len(trace), dtype=np.int64)
    num_gpus = trace.num_gpus.astype(np.int64)
    for index, (_, choices) in enumerate(CATEGORIES):
        for place, name in enumerate(choices):
            app = APPLICATIONS[name]
            rows = np.flatnonzero((category == index) & ((which * len(choices)).astype(int) == place))
            model[rows] = (app.zoo or app.name) if names == "zoo" else app.name
            if configuration == "tuned":
                tuned = np.array(app.tuned)[(how[rows] * len(app.tuned)).astype(int)]
                num_gpus[rows], batch_size[rows] = tuned.T
            else:
                batch_size[rows] = np.minimum(app.first_batch * num_gpus[rows], app.largest_batch)
    said = []
    if configuration == "tuned":
        columns_of_jobs = _regrouped(trace, num_gpus, overwrite)
        said.append(f"num_gpus of {int((columns_of_jobs['num_gpus'] != trace.num_gpus).sum())} jobs, GPU time kept")
        provenance = replace(trace.provenance, rule=trace.provenance.rule + "; scaled to GPU counts of Pollux' choices")
        trace = trace.replace(provenance, **columns_of_jobs)
    return filled(trace, "pollux", seed, {"model": model, "batch_size": batch_size}, overwrite=overwrite, said=said)


def _regrouped(trace: Trace, num_gpus: np.ndarray, overwrite: bool) -> dict[str, np.ndarray]:
    """Columns of jobs on other GPUs with the same GPU time; a job that has a model keeps its own."""
    moved = (trace.model == "") | overwrite
    gpu_s = trace.duration_s * trace.num_gpus * (trace.gpu_milli / 1000)
    return {
        "num_gpus": np.where(moved, num_gpus, trace.num_gpus),
        "duration_s": np.where(moved, gpu_s / num_gpus, trace.duration_s),
        "gpu_milli": np.where(moved, 1000, trace.gpu_milli),
        "worker_gpus": np.where(moved, 1, trace.worker_gpus),
    }


RECIPE = Recipe(
    name="pollux",
    apply=pollux,
    source="Qiao et al., OSDI 2021, section 5; https://github.com/petuum/adaptdl (branch osdi21-artifact)",
    fills=("model", "batch_size"),
    needs="num_gpus, duration_s. Work until convergence: measured curves, which are not shipped",
    settings={"configuration": "recorded (default): the trace's GPUs; tuned: GPUs and batch of Pollux' tuned jobs"},
)
