"""HetPipe: equal virtual workers, each a pipeline of single GPUs of mixed types, partitioned for its slowest stage.

Park, Yi, Yeom and Choi, 'HetPipe: Enabling Large DNN Training on (Whimpy) Heterogeneous GPU Clusters', USENIX ATC 2020.
All GPUs given are divided into r virtual workers with as many GPUs of each type each (its 'equal distribution'; r must
divide the count of every type), which train in data parallelism. In a virtual worker each GPU is one stage; layers are
cut so that the slowest stage, with its transfers in and out, is fastest, within memory. Types follow each other in
the order that is best by this measure. As a plan: stages of r GPUs of one type.

May choose: the number of virtual workers, the order of types, the layers of each stage, micro-batches.
May not: types and numbers of GPUs, replicas by stage, tensor parallelism. Its workers exchange parameters loosely (wave
synchronous parallel); here they wait for each other as all plans do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import numpy as np

from policies.recommend.algorithms.balance import least_bottleneck, spans
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Devices, Style, divisors, given, styles
from policies.recommend.request.request import Request
from sim.api import Plan
from sim.performance.samples import largest_share

MOST_ORDERED = 4
"""Types of which all orders are tried; more are in order of memory, largest first: early stages hold most."""


def propose(request: Request) -> Iterator[Plan]:
    """One plan for each way of training, number of virtual workers and of micro-batches."""
    if request.measured or 1 not in request.space.tensor:
        return
    layers = Layers(request)
    for counts in given(request):
        for style in styles(request):
            for workers in divisors(math.gcd(*counts)):
                for m in request.space.micro_batches:
                    if sum(counts) // workers <= len(layers) and request.batch_size >= m * workers:
                        yield from _plan(request, layers, counts, style, workers, m)


def orders(request: Request, counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Orders of the types that are given."""
    types = [t for t, n in enumerate(counts) if n]
    if len(types) > MOST_ORDERED:
        return [tuple(sorted(types, key=lambda t: -request.fleet.types[t].memory_gib))]
    return list(permutations(types))


def _plan(
    request: Request, layers: Layers, counts: tuple[int, ...], style: Style, workers: int, m: int
) -> Iterator[Plan]:
    """The plan with the fastest slowest stage over all orders of the types; nothing where no cut fits memory."""
    samples, p = largest_share(request.batch_size / (m * workers)), sum(counts) // workers
    memory = [layers.memory_gib(samples, layers.held(style, s, p, m), 1, workers, style) for s in range(p)]
    best: tuple[float, Plan | None] = (math.inf, None)
    for order in orders(request, counts):
        devices = Devices(request, counts, order)
        costs = []
        for s in range(p):
            t = int(devices.types[s * workers])
            moved_s = [
                samples * layers.cut_bytes / devices.bytes_per_s(border * workers, 2 * workers)
                if 0 <= border < p - 1 else np.zeros(len(layers) + 1) for border in (s - 1, s)
            ]  # fmt: skip
            work_s = spans(layers.time_s(t, samples, recompute=style.recompute))
            fits = memory[s] <= request.fleet.types[t].memory_gib
            costs.append(np.where(fits, work_s + 2 * (moved_s[0][:, None] + moved_s[1][None, :]), np.inf))
        found = least_bottleneck(costs)
        if found is not None and found[1] < best[0]:
            cuts = found[0]
            stages = [devices.stage(layers.span(cuts[s], cuts[s + 1]), s * workers, workers) for s in range(p)]
            best = found[1], style.plan(stages, m)
    if best[1] is not None:
        yield best[1]
