"""Many questions of `hetsim perf` at once: the [perf] and [figure] tables of an experiment file.

Each list of [perf] is gone through in full: all combinations, GPUs fastest, then batches, links, types, models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from sim.cli.whatif import ask, parse_stage
from sim.cluster.plan import Plan
from sim.cluster.spec import Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.gpu_links import gang_link_names
from sim.settings.values import ConfigError, Settings, checked, read_toml, setting

Key = Literal["model", "gpu", "link", "batch_size", "batch_per_gpu", "gpus"]
"""What is gone through; a column each of the answer."""
Measure = Literal["samples_per_s", "iteration_s", "allreduce_s", "compute_s", "mfu", "memory_gib",
                  "usd_per_1000_iterations"]
ROWS = 100_000


class Questions(Settings):
    """The [perf] table."""

    model: list[str] = setting(..., "models of the zoo", allowed="a list of names", min_length=1)
    gpu: list[str] = setting(["V100"], "GPU types", allowed="a list of names", min_length=1)
    gpus: list[int] = setting([1], "GPUs of the job, data parallel", unit="GPU", allowed="a list of integers from 1",
                              min_length=1)
    batch_per_gpu: list[int] | None = setting(None, "samples that each GPU gets; left out: 32, or by batch_size",
                                              unit="samples", allowed="a list of integers from 1", min_length=1)
    batch_size: list[int] | None = setting(None, "instead: samples of all GPUs together", unit="samples",
                                           allowed="a list of integers from 1", min_length=1)
    link: list[str] = setting(["own"], "what joins GPUs of a node: own (of the GPU type), a link class, or network "
                              "(each GPU on a node of its own)", allowed="a list of names", min_length=1)
    node_gpus: int = setting(8, "GPUs on a node", unit="GPU", ge=1, le=1024)
    network_gbytes_per_s: float = setting(Links.network_gbytes_per_s, "of a node", unit="Gbyte/s", gt=0, le=1e6)
    calibration: str = setting("tuned", "how well GPUs are used")
    overlap: bool = setting(True, "sum gradients while the backward pass still runs")


class Picture(Settings):
    """The [figure] table."""

    x: Key = setting(..., "what goes along")
    y: Measure = setting(..., "what is drawn")
    line: Key = setting(..., "what each line or bar colour is")
    relative_to: str | None = setting(None, "divide each line by its value at this x")
    title: str = setting("", "above the figure")


class _File(Settings):
    perf: Questions = Field(..., description="section [perf]", json_schema_extra={"unit": "", "allowed": "a table"})
    figure: Picture | None = Field(
        None, description="section [figure]", json_schema_extra={"unit": "", "allowed": "a table"})  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """Questions, and how their answers are drawn."""

    questions: Questions
    figure: Picture | None
    where: str

    def rows(self, on_progress: Callable[[int, int], None] | None = None) -> pd.DataFrame:
        """One row an answer: what was asked (`Key`), then as `Answer.row`.

        Raises
        ------
        HetsimError
            An unknown model, GPU type, link or calibration.
        """
        q = self.questions
        speeds: dict[str, Performance] = {}
        for link in q.link:
            inside = "" if link in ("own", "network") else link
            links = Links(q.network_gbytes_per_s, q.network_gbytes_per_s, node_class=inside)
            speeds[link] = Performance(links, calibration=q.calibration, overlap=q.overlap)
        batches = q.batch_size or q.batch_per_gpu or [32]
        asked = list(product(q.model, q.gpu, q.link, batches, q.gpus))
        out: list[dict[str, Any]] = []
        for n, (model, gpu, link, batch, gpus) in enumerate(asked):
            plan = Plan((parse_stage(f"{gpus}x{gpu}"),))
            whole = batch if q.batch_size else batch * gpus
            answer = ask(speeds[link], model, whole, plan, node_gpus=1 if link == "network" else q.node_gpus)
            key = {"model": model, "gpu": gpu, "link": link, "batch_per_gpu": whole / gpus}
            out.append(key | answer.row())
            if on_progress is not None:
                on_progress(n + 1, len(asked))
        return pd.DataFrame(out)


def load_experiment(path: str | Path) -> Experiment:
    """Read an experiment file.

    Raises
    ------
    ConfigError
        It cannot be read, an unknown key (with the nearest right one), a value that is impossible, too many questions.
    """
    file = checked(_File, read_toml(path), lambda dotted: f"{path}, {dotted}" if dotted else str(path))
    q = file.perf
    if q.batch_size and q.batch_per_gpu:
        raise ConfigError("the batch is given twice", where=f"{path}, perf", got="batch_size and batch_per_gpu",
                          allowed="one of them")
    for name in ("gpus", "batch_per_gpu", "batch_size"):
        if min(getattr(q, name) or [1]) < 1:
            raise ConfigError("value not allowed", where=f"{path}, perf.{name}", got=min(getattr(q, name)),
                              allowed="1 or more")
    for name in q.gpu:
        gpu_type(name)
    known = ("own", "network", *gang_link_names())
    for name in q.link:
        if name not in known:
            raise ConfigError("unknown link", where=f"{path}, perf.link", got=name, allowed=", ".join(known))
    picture = file.figure
    if picture is not None and picture.relative_to is not None:
        along = [str(value) for value in getattr(q, picture.x) or []]
        if picture.relative_to not in along:
            raise ConfigError("no such value", where=f"{path}, figure.relative_to", got=picture.relative_to,
                              allowed=", ".join(along) or f"values of perf.{picture.x}")
    if len(q.model) * len(q.gpu) * len(q.gpus) * len(q.batch_size or q.batch_per_gpu or [0]) * len(q.link) > ROWS:
        raise ConfigError("too many questions", where=f"{path}, perf", allowed=f"up to {ROWS:,} combinations")
    return Experiment(q, picture, str(path))
