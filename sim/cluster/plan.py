"""How one job runs on the GPUs that it gets: a plan of stages and parts, and the placement that carries it.

Below both the interface of policies and the performance model, which speak of the same plans.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from operator import attrgetter

import numpy as np


@dataclass(frozen=True)
class Part:
    """Replicas of one GPU type in a stage of several: each works on share / replicas of every micro-batch."""

    gpu_type: str
    gpus: int
    share: float
    """Of a micro-batch's samples, in (0, 1]; those of a stage add up to 1."""
    tensor: int = 0
    """GPUs of a replica; 0: as many as `Stage.tensor`. Degrees of a stage divide the largest of them."""


@dataclass(frozen=True)
class Stage:
    """One pipeline stage: consecutive operators of a model, on `gpus` GPUs: gpus / tensor replicas.

    All are of `gpu_type` and get the same number of samples, unless `parts` says otherwise. Its parts may have tensor
    degrees of their own, too: one GPU of a fast type a replica beside four of a slow one.
    """

    first_op: int
    last_op: int
    """Inclusive."""
    gpu_type: str
    gpus: int
    tensor: int = 1
    """GPUs that share each operator of a replica (tensor parallelism); they follow each other in the placement."""
    parts: tuple[Part, ...] = ()
    """Replicas of several types, in the order of the placement: `gpus` is their sum, `gpu_type` and `tensor` the first
    one's."""
    sharded: bool = False
    """Embedding tables and experts are divided among the replicas (of one type, one GPU each), not repeated."""

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """`parts`, or one part with all GPUs where the stage is of one type."""
        return self.parts or (Part(self.gpu_type, self.gpus, 1.0),)

    def degree(self, part: Part) -> int:
        """GPUs of a replica of one of its parts."""
        return part.tensor or self.tensor

    def replicas_of(self, part: Part) -> int:
        """Replicas of one of its parts."""
        return part.gpus // self.degree(part)

    @property
    def replicas(self) -> int:
        """Of all its parts."""
        return sum(map(self.replicas_of, self.all_parts))

    @property
    def unlike(self) -> bool:
        """Whether its parts differ in their tensor degree."""
        return len(set(map(self.degree, self.parts))) > 1


@dataclass(frozen=True)
class Plan:
    """How one job's model runs: stages in order, and micro-batches an iteration. One stage: data parallelism.

    The GPUs of its placement are in this order: stage after stage, in a stage part after part.

    With `chunks` = v > 1 (interleaved 1F1B) there are v p stages, and stage s runs on the GPUs of stage s mod p.
    """

    stages: tuple[Stage, ...]
    micro_batches: int = 1
    iteration_s: float = float("nan")
    """Predicted time of an iteration, as the planner believed it."""
    memory_gib: tuple[float, ...] = ()
    """Peak memory of a GPU of each stage; of several parts, of that which comes nearest to its GPU's limit."""
    schedule: str = ""
    """'1f1b', 'gpipe', 'interleaved' or 'async'; empty: that of the performance model."""
    chunks: int = 1
    """Stages that each GPU runs (interleaved 1F1B)."""
    recompute: bool = False
    """Backward computes each block's activations again instead of keeping them."""
    zero: int = 0
    """Stage of ZeRO: 1 shards the optimizer's state over a stage's replicas, 2 gradients too, 3 weights too."""
    order: tuple[int, ...] = ()
    """All operators in another topological order than the graph's; `first_op` and `last_op` are then positions in it.

    So the stages may be any chain of down-sets of the graph.
    """

    @property
    def devices(self) -> tuple[Stage, ...]:
        """The stages that hold GPUs of their own: all of them, unless stages are interleaved."""
        return self.stages[: len(self.stages) // self.chunks]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all stages that hold GPUs of their own, in the order of the placement."""
        return tuple(part for stage in self.devices for part in stage.all_parts)

    @property
    def num_gpus(self) -> int:
        return sum(stage.gpus for stage in self.devices)


@dataclass(slots=True, eq=False)
class Placement:
    """The GPUs that a job gets, and on what terms."""

    gpus: np.ndarray
    """int32 cluster GPU numbers, one a slot, in stage order where there is a plan."""
    plan: Plan | None = None
    milli: int = 0
    """Share of each of these GPUs, 1/1000, for a policy that `shares_gpus`; 0: the share that the job asks for."""
    batch_size: int = 0
    """Samples an iteration from now on, for a policy that `sets_batch`; 0: the job's own."""
    cap_w: float = 0.0
    """Power that each of these GPUs may draw at most, in W, for a policy that `caps_power`; 0: no cap."""

    def same(self, other: Placement) -> bool:
        """Whether a job runs alike on both: all else equal, and the same GPUs in each part of its plan, in any order.

        What the planner predicted (`Plan.iteration_s`, `memory_gib`) does not count.
        """
        if self.gpus.size != other.gpus.size or _terms(self) != _terms(other):
            return False
        if self.plan is None and other.plan is None and (self.gpus == other.gpus).all():
            return True  # as they are in nearly each round of nearly each job
        cuts = [0, self.gpus.size]
        if self.plan is not None and other.plan is not None:
            mine, its = (replace(plan, iteration_s=0.0, memory_gib=()) for plan in (self.plan, other.plan))
            if mine != its:
                return False
            cuts = np.cumsum([0, *(part.gpus for part in mine.parts)]).tolist()
        elif self.plan is not other.plan:
            return False
        return all(
            np.array_equal(np.sort(self.gpus[a:b]), np.sort(other.gpus[a:b])) for a, b in pairwise(cuts)
        )


_terms = attrgetter(*(f.name for f in fields(Placement) if f.name not in ("gpus", "plan")))
"""All of a placement but where it is."""
