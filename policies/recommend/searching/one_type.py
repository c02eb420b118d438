"""Planners of pipelines on one GPU type: the gangs that they look at, and what their micro-batches are in a plan.

Such a planner gives a micro-batch to one replica of a stage. A plan's micro-batches are shared by all replicas. So N of
theirs are N / d of a plan's, for each number d of replicas that occurs: the replicas of such a stage then work on as
many samples at once as the planner thought, and hold as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies.recommend.request.devices import Style
from policies.recommend.request.request import Request
from sim.api import Plan, Stage
from sim.performance.gpu_links import inside, network_bytes_per_s

MOST_GPUS = 1024
"""GPUs of the largest gang: the planners' time grows with its square."""


def gangs(request: Request) -> Iterator[tuple[int, list[int]]]:
    """Each type that is there, and numbers of its GPUs: 1, 2, 4, ... and all within the budget, ascending."""
    for t in request.fleet.present:
        most = min(request.budget, request.fleet.counts[t], MOST_GPUS)
        yield t, doubled(most)


def micro_batch_counts(request: Request) -> list[int]:
    """Micro-batches of an iteration, for one replica each: 1, 2, 4, ... and one for each sample, ascending."""
    return doubled(int(request.batch_size))


def doubled(most: int) -> list[int]:
    """1, 2, 4, ... and `most`, ascending."""
    return sorted({1 << k for k in range(most.bit_length())} | {most})


def bytes_per_s(request: Request, t: int, gpus: int) -> float:
    """Bandwidth between GPUs of a gang: within a node where it fits into one, else of a node's network link."""
    if gpus <= request.fleet.node_gpus[t]:
        return inside(request.fleet.types[t], request.performance.links)[0]
    return network_bytes_per_s(request.performance.links, 1)


def plans(request: Request, style: Style, stages: Sequence[Stage], micro_batches: int) -> Iterator[Plan]:
    """Stages planned for so many micro-batches of one replica each, as plans of the space (module text)."""
    replicas = {stage.gpus // stage.tensor for stage in stages}
    for m in sorted({micro_batches // d for d in replicas} & set(request.space.micro_batches)):
        if m * max(replicas) <= request.batch_size:
            yield plan(style, stages, m)


def plan(style: Style, stages: Sequence[Stage], m: int) -> Plan:
    """Stages with m micro-batches, trained in this way."""
    return Plan(tuple(stages), m, schedule=style.schedule, recompute=style.recompute, zero=style.zero)
