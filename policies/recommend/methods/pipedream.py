"""PipeDream: replicated stages for the least time between two micro-batches, on one GPU type, level by level.

Narayanan et al. 2019 (SOSP, doi 10.1145/3341301.3359646; `policies.recommend.algorithms.pipedream_levels`). Each type
with 1, 2, 4, ... GPUs and with all there are; levels are the GPUs of a node and the nodes. Gradients are exchanged
after every micro-batch, as in the paper, or once an iteration, as all plans but asynchronous ones do; stages are
replicated or not: all are proposed. No stage gets more weights than fit, and copies in flight have what is left.

May choose: stages, the layers and replicas of each, micro-batches, the number of GPUs.
May not: more than one GPU type, tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from policies.recommend.algorithms.pipedream_levels import Cuts, Level, hierarchical
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Style, styles
from policies.recommend.request.request import Request
from policies.recommend.searching.one_type import bytes_per_s, gangs, micro_batch_counts, plans
from sim.api import Plan, Stage
from sim.performance.memory import GIB
from sim.performance.samples import largest_share


def propose(request: Request) -> Iterator[Plan]:
    """Plans of one type for each gang, way of training and number of micro-batches."""
    if request.measured or 1 not in request.space.tensor:
        return
    layers = Layers(request)
    for t, counts in gangs(request):
        name = request.fleet.names[t]
        for style, micro_batches in product(styles(request), micro_batch_counts(request)):
            room_gib = request.fleet.types[t].memory_gib - layers.memory_gib(0.0, 0, 1, 1, style)
            for once in (False, True):
                cuts = cuts_of(request, layers, t, style, micro_batches, once=once)
                cuts = replace(cuts, within=cuts.within & (room_gib >= 0))
                for gpus, straight in product(counts, (False, True)):
                    found = hierarchical(cuts, levels(request, t, gpus), straight=straight, room_bytes=room_gib * GIB)
                    if found is not None:
                        stages = [Stage(*layers.span(s.first_cut, s.last_cut), name, s.replicas) for s in found.stages]
                        yield from plans(request, style, stages, micro_batches)


def levels(request: Request, t: int, gpus: int) -> list[Level]:
    """GPUs of a node, then nodes; one level of GPUs where they do not fill their nodes."""
    node = request.fleet.node_gpus[t]
    if gpus <= node or gpus % node:
        return [Level(gpus, bytes_per_s(request, t, gpus))]
    return [Level(node, bytes_per_s(request, t, node)), Level(gpus // node, bytes_per_s(request, t, gpus))]


def cuts_of(request: Request, layers: Layers, t: int, style: Style, micro_batches: int, *, once: bool) -> Cuts:
    """The cuts between layers, for a micro-batch on one GPU; `once`: gradients are exchanged once an iteration."""
    samples = largest_share(request.batch_size / micro_batches)
    one, two = (np.diag(layers.memory_gib(samples, held, 1, 1, style), 1) for held in (1, 2))
    params = np.diff(layers.params) * layers.value_bytes / (micro_batches if once else 1)
    return Cuts.of_chain(
        np.diff(layers.time_s(t, samples, recompute=style.recompute)), params, (two - one) * GIB,
        layers.cut_bytes[1:] * samples,
    )
