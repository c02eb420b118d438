"""Whale: all GPUs at once, batch shares and layers in proportion to nominal FLOPS, within memory.

Jia et al., 'Whale: Efficient Giant Model Training over Heterogeneous GPUs', USENIX ATC 2022, section 3.3. Two balances:

* within a stage, each replica's share of a micro-batch is in proportion to its GPU's peak; where that exceeds a GPU's
  memory, what is over goes to those that have room, in the same proportion;
* between stages, layers are cut so that arithmetic over the peak of the stage's GPUs is most even, within memory. GPUs
  with more memory come first, as early stages hold more micro-batches.

With Whale a person says how many stages there are; here each number that divides the GPUs given is proposed (one stage:
data parallelism over all of them), with each number of micro-batches.

May choose: batch shares, layers of each stage. May not: types and numbers of GPUs, replicas by stage, tensor
parallelism. It knows peaks, not how fast a model runs. Stages of two types need a space that allows them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from policies.recommend.algorithms.balance import capped_shares, least_bottleneck, spans
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Devices, Style, divisors, given, styles
from policies.recommend.request.request import Request
from sim.api import Plan, Stage


def propose(request: Request) -> Iterator[Plan]:
    """One plan for each way of training, number of stages and of micro-batches."""
    if request.measured or 1 not in request.space.tensor:
        return
    layers, types = Layers(request), request.fleet.types
    for counts in given(request):
        row = sorted((t for t, n in enumerate(counts) if n), key=lambda t: (-types[t].memory_gib, -peak(request, t), t))
        devices = Devices(request, counts, tuple(row))
        for style in styles(request):
            for p in divisors(len(devices)):
                for m in request.space.micro_batches:
                    if p <= len(layers) and request.batch_size >= m * len(devices) // p:
                        yield from _plan(request, layers, devices, style, p, m)


def peak(request: Request, t: int) -> float:
    """Nominal FLOP/s of a type in the precision that is trained in."""
    return request.fleet.types[t].matrix_tflops(request.performance.calibration.precision)[0]


def _plan(
    request: Request, layers: Layers, devices: Devices, style: Style, p: int, m: int
) -> Iterator[Plan]:
    """p stages of n / p GPUs; nothing where memory or the space has no such plan."""
    gpus, micro = len(devices) // p, request.batch_size / m
    costs, limits = [], []
    for s in range(p):
        parts = devices.parts(s * gpus, gpus)
        held = layers.held(style, s, p, m)
        most = [
            n / micro * np.floor(layers.most_samples(request.fleet.types[t].memory_gib, held, 1, gpus, style))
            for t, n in parts
        ]
        speed = sum(n * peak(request, t) for t, n in parts)
        costs.append(np.where(sum(most) >= 1, spans(layers.flops) / speed, np.inf))
        limits.append(most)
    found = least_bottleneck(costs)
    if found is None:
        return
    cuts, stages = found[0], list[Stage | None]()
    for s in range(p):
        speeds = [n * peak(request, t) for t, n in devices.parts(s * gpus, gpus)]
        shares = capped_shares(speeds, [float(most[cuts[s], cuts[s + 1]]) for most in limits[s]])
        span = layers.span(cuts[s], cuts[s + 1])
        stages.append(None if shares is None else devices.stage(span, s * gpus, gpus, shares=shares))
    plan = style.plan(stages, m)
    if plan is not None:
        yield plan
