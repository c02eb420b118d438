"""Piper: stages with their own data and tensor parallelism, for the least time a micro-batch, on one GPU type.

Tarnawski et al. 2021 (NeurIPS; `policies.recommend.algorithms.piper_stages`). Each type with 1, 2, 4, ... GPUs and with
all there are. Recomputation is of all layers or none, as a plan has it. A sum over the GPUs of a replica is part of a
layer's time.

May choose: stages, the layers, replicas and tensor parallelism of each, micro-batches, recomputation, the number of
GPUs.
May not: more than one GPU type.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from policies.recommend.algorithms.piper_stages import KEEP, RECOMPUTE, Piper, PiperPlan, best_plans
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Style, styles
from policies.recommend.request.request import Request
from policies.recommend.searching.one_type import bytes_per_s, gangs, micro_batch_counts, plans
from sim.api import Plan, Stage
from sim.performance.memory import GIB
from sim.performance.samples import largest_share


def propose(request: Request) -> Iterator[Plan]:
    """Plans of one type for each gang, way of training and number of micro-batches."""
    if request.measured:
        return
    layers = Layers(request)
    for t, counts in gangs(request):
        node = request.fleet.node_gpus[t]
        tensor = tuple(ways for ways in layers.ways(request.space.tensor) if ways <= min(node, counts[-1]))
        if not tensor:
            continue
        sets = np.tri(len(layers) + 1, len(layers), -1, dtype=np.bool_)
        # Between nodes all is slower: gangs within one are planned by themselves.
        gang_sets = [[n for n in counts if (n <= node) == within] for within in (True, False)]
        for style, micro_batches, sizes in product(styles(request), micro_batch_counts(request), gang_sets):
            if sizes:
                piper = problem(request, layers, t, style, tensor, sizes[-1], micro_batches)
                for found in best_plans(piper, sets, sizes, recompute=style.recompute):
                    if found is not None:
                        yield from plans(request, style, _stages(request, layers, t, found), micro_batches)


def problem(
    request: Request, layers: Layers, t: int, style: Style, tensor: tuple[int, ...], gpus: int, micro_batches: int
) -> Piper:
    """Piper's problem: layers in a chain, each with one way to run (a plan computes all again, or nothing)."""
    samples, n = largest_share(request.batch_size / micro_batches), len(layers)
    way = RECOMPUTE if style.recompute else KEEP
    time_s = np.full((len(tensor), n, 2), np.inf)
    params, flight, fixed = np.zeros((3, *time_s.shape))
    passing_gib = 0.0
    for i, ways in enumerate(tensor):
        time_s[i, :, way] = np.diff(layers.time_s(t, samples, ways, recompute=style.recompute))
        params[i, :, way] = np.diff(layers.params) * layers.value_bytes / ways
        empty, one, two = (
            np.diag(layers.memory_gib(size, held, ways, 1, style), 1)
            for size, held in ((0.0, 0), (samples, 1), (samples, 2))
        )  # fmt: skip
        flight[i, :, way], fixed[i, :, way] = two - one, empty - request.performance.context_gib
        passing_gib = max(passing_gib, float((2 * one - two - empty).max()))
    edges, sync = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), np.zeros((len(tensor), n - 1, 2))
    room_gib = request.fleet.types[t].memory_gib - request.performance.context_gib - passing_gib
    return Piper(
        tensor, time_s, params, flight * GIB, fixed * GIB, edges, layers.cut_bytes[1:-1] * samples, sync, sync,
        gpus, room_gib * GIB, bytes_per_s(request, t, gpus), micro_batches,
    )


def _stages(request: Request, layers: Layers, t: int, found: PiperPlan) -> list[Stage]:
    """The stages of a plan."""
    name = request.fleet.names[t]
    return [
        Stage(*layers.span(stage.ops[0], stage.ops[-1] + 1), name, stage.data * stage.tensor, stage.tensor)
        for stage in found.stages
    ]
