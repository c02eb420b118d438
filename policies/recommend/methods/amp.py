"""AMP: the same degrees of pipeline, tensor and data parallelism for all GPUs, uneven layers, one mean speed.

Li, Wang, Xing and Zhang, 'AMP: Automatically Finding Model Parallel Strategies with Heterogeneity Awareness', NeurIPS
2022 (arXiv:2210.07297). Enumerates stages x tensor x data parallelism = all GPUs given, and micro-batches; for each, a
dynamic program finds uneven layers; the few best by its own cost model are tried:

    (m - 1) max stage + sum of stages + sum of transfers + the longest all-reduce,

where a layer takes the mean of its times over the GPUs given, whatever types they are: so it knows that the cluster is
mixed, but not which stage is slow. GPUs are in the fleet's order; a stage may have two types, with equal shares, where
the space allows it.

May choose: stages, layers of each, tensor and data parallelism (each one number for all), micro-batches.
May not: types and numbers of GPUs, different replicas by stage, uneven shares; it does not look at memory beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from policies.recommend.algorithms.balance import least_flush, spans
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Candidate, Devices, Style, divisors, first_that_fit, given, styles
from policies.recommend.request.request import Request
from sim.api import Plan
from sim.performance.samples import largest_share


def propose(request: Request) -> Iterator[Plan]:
    """The few best plans of each way of training that run."""
    if request.measured:
        return
    layers = Layers(request)
    for counts in given(request):
        devices = Devices(request, counts, tuple(t for t, n in enumerate(counts) if n))
        for style in styles(request):
            yield from first_that_fit(request, _plans(request, layers, devices, style))


def _plans(request: Request, layers: Layers, devices: Devices, style: Style) -> Iterator[Candidate]:
    """Predicted time and plan for each choice of degrees."""
    n = len(devices)
    nodes = min(request.fleet.node_gpus[t] for t in devices.order)
    for ways in layers.ways(request.space.tensor):
        if n % ways or ways > nodes:
            continue
        for p in divisors(n // ways):
            for m in request.space.micro_batches:
                if p <= len(layers) and request.batch_size >= m * (n // (p * ways)):
                    yield from _plan(request, layers, devices, style, ways, p, m)


def _plan(
    request: Request, layers: Layers, devices: Devices, style: Style, ways: int, p: int, m: int
) -> Iterator[Candidate]:
    """Predicted time and plan of p stages of n / p GPUs."""
    gpus = len(devices) // p
    replicas = gpus // ways
    samples = largest_share(request.batch_size / (m * replicas))
    times_s = [layers.time_s(t, samples, ways, recompute=style.recompute) for t in devices.order]
    mean_s = np.average(times_s, axis=0, weights=[devices.counts[t] for t in devices.order])
    borders = [samples * layers.cut_bytes / devices.bytes_per_s(s * gpus, 2 * gpus) for s in range(p - 1)]
    found = least_flush(spans(mean_s), borders, m)
    if found is None:
        return
    cuts, time_s = found
    gradient_bytes = np.diff(layers.params[cuts]) / ways * layers.value_bytes
    sums_s = [
        2 * (replicas - 1) / replicas * gradient_bytes[s] / devices.bytes_per_s(s * gpus, gpus) for s in range(p)
    ]
    stages = [devices.stage(layers.span(cuts[s], cuts[s + 1]), s * gpus, gpus, tensor=ways) for s in range(p)]
    yield time_s + float(mean_s[-1]) + max(sums_s), lambda: style.plan(stages, m)
