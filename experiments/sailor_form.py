"""Sailor's closed form of an iteration (Strati et al. 2025, SOSP, and what its simulator does beyond it).

A plan is one or more pipelines; each stage has replicas, each on a virtual machine of `tensor` GPUs, and all replicas
work on micro-batches of b samples. With m micro-batches, stages of c_s seconds (the slowest replica, forward and
backward of its layers) and transfers of t_s seconds:

    T = max over pipelines of [(m - 1) max_s (c_s + t_s) + sum_s (c_s + t_s) + max_s u_s] + sync
    m = ceil(B / (b x replicas of the first stage x pipelines))

    t_s    first stage: what it sends, twice if there are more than three stages; last one: twice what it sends back;
           others: what they send on, and back. A message is one replica's micro-batch, whole on each GPU of it; the
           slowest pair of replicas counts, replica j sends to replica j mod (replicas there).
    u_s    the step of one layer, the stage's first one, not of all.
    sync   the longest all-reduce over the replicas of a stage, then that of the longest pipeline's stages over the
           pipelines: rings of 2 (n - 1) steps over buckets of 5e8 bytes, at the rate of machines of one GPU whatever
           they have; gradients are those of the least tensor degree of the stage, at most 4 (over pipelines: of 1).
    rate   of a message of x MB: a log2(x)^2 + b log2(x) + c GB/s, by zone, GPU type and GPUs at both ends.
    USD    T x the price of the GPUs, and 10^9 bytes that leave a zone at its price.

`checked` compares it with the times that Sailor's simulator gave.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.readers.layer_table import read_layers
from sim.performance.readers.sailor_files import TYPES

BUCKET_BYTES = 500_000_000
MOST_SHARED = 4
"""Tensor degree of the gradients that a stage sums, at most."""
BYTES_A_PARAM = 24
OVERHEAD_BYTES = {1: 2e9}
"""What the framework takes of a GPU, by tensor degree; with more than one GPU 3e9."""
SHARED_OVERHEAD_BYTES = 3e9
Curve = tuple[float, float, float]
"""a, b, c of the rate of a message."""
End = tuple[str, str, int]
"""Zone, GPU type (as Sailor names it) and GPUs of the machine that sends or receives."""


@dataclass(frozen=True)
class Replica:
    """One replica of a stage: a machine of `tensor` GPUs, and the samples of its micro-batch (0: those of the plan)."""

    gpu: str
    tensor: int
    zone: str
    samples: int = 0


@dataclass(frozen=True)
class StageOf:
    """Layers, first and last, and the replicas that hold them."""

    first: int
    last: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True)
class Pipelines:
    """A plan as Sailor has it: pipelines of stages, and samples of a micro-batch of each replica."""

    pipelines: tuple[tuple[StageOf, ...], ...]
    micro_batch: int
    global_batch: int
    micro_batches: int = 0
    """0: the next whole number."""

    @property
    def count(self) -> int:
        """Micro-batches of an iteration."""
        each = self.micro_batch * len(self.pipelines[0][0].replicas) * len(self.pipelines)
        return self.micro_batches or math.ceil(self.global_batch / each)

    def replicas(self) -> Iterator[Replica]:
        """Those of all stages."""
        return (one for pipeline in self.pipelines for stage in pipeline for one in stage.replicas)

    def gpus(self) -> dict[str, int]:
        """GPUs of each type."""
        out: dict[str, int] = {}
        for one in self.replicas():
            out[one.gpu] = out.get(one.gpu, 0) + one.tensor
        return out


@dataclass(frozen=True)
class Form:
    """What the closed form reads.

    Attributes
    ----------
    graph : the model's measured layers.
    network : the curve of each two ends.
    usd_per_h, egress_usd_per_gb, memory_gib : as `prices.json` has them.
    """

    graph: OperatorGraph
    network: Mapping[tuple[End, End], Curve]
    usd_per_h: Mapping[str, float] = field(default_factory=dict)
    egress_usd_per_gb: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    memory_gib: Mapping[str, float] = field(default_factory=dict)

    def iteration_s(self, plan: Pipelines) -> float:
        """T of the module text."""
        m = plan.count
        return max(self._pipeline_s(pipeline, plan.micro_batch, m) for pipeline in plan.pipelines) + self._sync_s(plan)

    def usd(self, plan: Pipelines) -> float:
        """Price of an iteration: GPUs, and what leaves zones."""
        hour = sum(n * self.usd_per_h[gpu] for gpu, n in plan.gpus().items())
        return self.iteration_s(plan) * hour / 3600 + self.egress_usd(plan)

    def egress_usd(self, plan: Pipelines) -> float:
        """USD of an iteration for activations, their gradients and sums of gradients that leave a zone."""
        total = 0.0
        for stages in plan.pipelines:
            for a, b in pairwise(stages):
                size = self._border(a.last) * plan.micro_batch * plan.count
                for these, those in ((a.replicas, b.replicas), (b.replicas, a.replicas)):
                    total += sum(self._price(one, those[j % len(those)]) for j, one in enumerate(these)) * size
            for stage in stages:
                n = len(stage.replicas)
                ring = 2 * (n - 1) / n * self._params(1, stage.first, stage.last)
                total += ring * sum(self._price(one, stage.replicas[(j + 1) % n])
                                    for j, one in enumerate(stage.replicas))  # fmt: skip
        return total / 1e9

    def fits(self, plan: Pipelines) -> bool:
        """Whether each GPU has memory: 24 bytes a parameter, activations of p - s micro-batches, the framework."""
        for stages in plan.pipelines:
            for s, stage in enumerate(stages):
                for one in set(stage.replicas):
                    span = slice(stage.first, stage.last + 1)
                    share = self.graph.tensor_parallel(one.tensor)
                    kept = float(share.stored_bytes[span].sum()) * self._scale
                    held = kept * (one.samples or plan.micro_batch) * (len(stages) - s)
                    need = float(share.weight_params[span].sum()) * BYTES_A_PARAM + held
                    need += OVERHEAD_BYTES.get(one.tensor, SHARED_OVERHEAD_BYTES)
                    if need > self.memory_gib[one.gpu] * 2**30:
                        return False
        return True

    def rate(self, one: End, other: End, num_bytes: float) -> float:
        """Bytes a second of a message between two machines."""
        return bytes_per_s(num_bytes, self.network[one, other])

    # -- parts of T ----------------------------------------------------------------------------------------------------

    def _pipeline_s(self, stages: Sequence[StageOf], samples: int, m: int) -> float:
        work, step = [], 0.0
        for stage in stages:
            took = [self._replica_s(one, stage, samples) for one in dict.fromkeys(stage.replicas)]
            work.append(max(time for time, _ in took))
            step = max(step, *(update for _, update in took))
        length = [c + t for c, t in zip(work, self._transfers_s(stages, samples), strict=True)]
        return (m - 1) * max(length) + sum(length) + step

    def _replica_s(self, one: Replica, stage: StageOf, samples: int) -> tuple[float, float]:
        """Seconds of a micro-batch, and of the step."""
        assert self.graph.profile is not None
        profile, name = self.graph.profile.of_degree(one.tensor), TYPES[one.gpu]
        fwd, bwd, _ = profile.times_s(name, one.samples or samples)
        span = slice(stage.first, stage.last + 1)
        # The step does not depend on the micro-batch, but what was measured does a little.
        timed = {t.samples: t.update_s for t in profile.timings[name, one.tensor]}
        update = timed.get(one.samples or samples)
        update = profile.update_s(name) if update is None else update
        assert update is not None
        return float(fwd[span].sum() + bwd[span].sum()), float(update[stage.first])

    def _transfers_s(self, stages: Sequence[StageOf], samples: int) -> list[float]:
        out = []
        for s, stage in enumerate(stages):
            ahead = self._message_s(stage, stages[s + 1], stage.last, samples) if s + 1 < len(stages) else 0.0
            # The bytes of its own first layer's output, not of what it was given.
            back = self._message_s(stage, stages[s - 1], stage.first, samples) if s else 0.0
            if s == 0:
                out.append(ahead if len(stages) <= 3 else 2 * ahead)
            else:
                out.append(2 * back if s == len(stages) - 1 else ahead + back)
        return out

    def _message_s(self, sender: StageOf, receiver: StageOf, layer: int, samples: int) -> float:
        there = receiver.replicas
        pairs = {(one, there[j % len(there)]) for j, one in enumerate(sender.replicas)}
        size = self._border(layer)
        return max(self._sent_s(size * (a.samples or samples), self._curve(a, b, a.tensor, b.tensor)) for a, b in pairs)

    def _sync_s(self, plan: Pipelines) -> float:
        inside = max(self._stage_sync_s(stage) for stages in plan.pipelines for stage in stages)
        longest = max(plan.pipelines, key=len)
        across = max(
            self._ring_s(self._params(1, stage.first, stage.last), len(plan.pipelines), self._curve(one, one, 1, 1))
            for stage in longest for one in stage.replicas
        )  # fmt: skip
        return inside + across

    def _stage_sync_s(self, stage: StageOf) -> float:
        least = min(MOST_SHARED, *(one.tensor for one in stage.replicas))
        size = self._params(1, stage.first, stage.last) / least
        pairs = set(pairwise(stage.replicas))
        n = len(stage.replicas)
        return max((self._ring_s(size, n, self._curve(a, b, 1, 1)) for a, b in pairs), default=0.0)

    @staticmethod
    def _ring_s(num_bytes: float, members: int, curve: Curve) -> float:
        if members <= 1 or num_bytes == 0:
            return 0.0
        full, rest = divmod(num_bytes, BUCKET_BYTES)
        of = [(full, BUCKET_BYTES), (1, rest)] if rest else [(full, BUCKET_BYTES)]
        return 2 * (members - 1) * sum(n * Form._sent_s(size / members, curve) for n, size in of if n)

    @staticmethod
    def _sent_s(num_bytes: float, curve: Curve) -> float:
        return num_bytes / bytes_per_s(num_bytes, curve)

    # -- look-ups ------------------------------------------------------------------------------------------------------

    def _curve(self, one: Replica, other: Replica, n: int, k: int) -> Curve:
        return self.network[(one.zone, one.gpu, n), (other.zone, other.gpu, k)]

    def _price(self, one: Replica, other: Replica) -> float:
        return self.egress_usd_per_gb.get(one.zone, {}).get(other.zone, 0.0)

    @property
    def _scale(self) -> float:
        assert self.graph.profile is not None
        return self.graph.profile.value_bytes / VALUE_BYTES

    def _border(self, layer: int) -> float:
        """Bytes of a sample that a layer gives the next, of tensor degree 1."""
        return float(self.graph.out_bytes[layer]) * self._scale

    def _params(self, ways: int, first: int, last: int) -> float:
        assert self.graph.profile is not None
        params = self.graph.tensor_parallel(ways).weight_params[first : last + 1]
        return float(np.sum(params)) * self.graph.profile.value_bytes


def bytes_per_s(num_bytes: float, curve: Curve) -> float:
    """The rate of a message."""
    x, (a, b, c) = math.log2(num_bytes / 1e6), curve
    return 1e9 * (a * x * x + b * x + c)


def read_form(folder: Path, model: str) -> Form:
    """The closed form of one model, out of Sailor's files."""
    with open(folder / "network.csv", newline="") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    network = {
        ((row["from_zone"], row["from_gpu"], int(row["from_n"])), (row["to_zone"], row["to_gpu"], int(row["to_n"]))):
        (float(row["a"]), float(row["b"]), float(row["c"])) for row in rows
    }  # fmt: skip
    prices = json.loads((folder / "prices.json").read_text())
    return Form(read_layers(folder)[model], network, prices["gpu_usd_per_h"], prices["egress_usd_per_gb"],
                prices["gpu_memory_gib"])  # fmt: skip


def as_pipelines(row: Mapping[str, Any]) -> Pipelines:
    """A row of `plans.json`."""
    pipelines = tuple(
        tuple(
            StageOf(*stage["layers"], tuple(Replica(gpu, ways, zone) for gpu, ways, zone, n in stage["replicas"]
                                            for _ in range(n)))
            for stage in pipeline
        )
        for pipeline in row["pipelines"]
    )  # fmt: skip
    return Pipelines(pipelines, row["micro_batch"], row["global_batch"])


def checked(folder: Path, plans: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float, float]]:
    """Each row that has a plan: seconds by this form, and USD."""
    forms: dict[str, Form] = {}
    out = []
    for row in plans:
        if row.get("pipelines"):
            form = forms.setdefault(row["model"], read_form(folder, row["model"]))
            plan = as_pipelines(row)
            out.append((row, form.iteration_s(plan), form.usd(plan)))
    return out
