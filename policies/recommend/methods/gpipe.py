"""GPipe: stages balanced by time, equally many GPUs each, on one GPU type.

Huang et al. 2019 (NeurIPS, arXiv:1811.06965): layers are cut so that the slowest stage is fastest; here with r
replicas of the whole pipeline, for every p x r = GPUs. All micro-batches go forward before any goes backward, where
the space has that schedule ('gpipe'); else the schedules that it has.

May choose: the number of stages and replicas, micro-batches, the number of GPUs.
May not: more than one GPU type, different replicas by stage, tensor parallelism; it looks at no message or memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from policies.recommend.algorithms.balance import least_bottleneck, spans
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Style, divisors, styles
from policies.recommend.request.request import Request
from policies.recommend.searching.one_type import gangs, plan
from sim.api import Plan, Stage
from sim.performance.samples import largest_share


def propose(request: Request) -> Iterator[Plan]:
    """Plans of one type for each gang, way of training, number of stages and of micro-batches."""
    if request.measured or 1 not in request.space.tensor:
        return
    layers, own = Layers(request), "gpipe" in request.space.schedules
    for t, counts in gangs(request):
        for style in styles(request):
            if own and style.schedule != "gpipe":
                continue
            for gpus in counts:
                for p in divisors(gpus):
                    if p <= len(layers):
                        yield from _plans(request, layers, t, style, p, gpus // p)


def _plans(request: Request, layers: Layers, t: int, style: Style, p: int, r: int) -> Iterator[Plan]:
    """p stages of r GPUs, for each number of micro-batches."""
    for m in request.space.micro_batches:
        if m * r > request.batch_size:
            continue
        time_s = layers.time_s(t, largest_share(request.batch_size / (m * r)), recompute=style.recompute)
        found = least_bottleneck([spans(time_s)] * p)
        if found is not None:
            cuts, name = found[0], request.fleet.names[t]
            yield plan(style, [Stage(*layers.span(i, j), name, r) for i, j in pairwise(cuts)], m)
