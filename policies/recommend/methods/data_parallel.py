"""Data parallelism on one GPU type: what recommenders before model parallelism choose from.

Each type with 1, 2, 4, ... GPUs and with all there are; the whole model on each GPU, an all-reduce after each
iteration. Of a model that is known by measured rates only this is all that can be told.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.recommend.request.request import Request
from sim.api import Plan, Stage


def propose(request: Request) -> Iterator[Plan]:
    """Plans of one stage: GPU type x GPUs x micro-batches (gradient accumulation)."""
    last = request.performance.last_op(request.model)
    for t in request.fleet.present:
        most = min(request.budget, request.fleet.counts[t])
        for gpus in sorted({1 << k for k in range(most.bit_length())} | {most}):
            for m in (1,) if request.measured else request.space.micro_batches:
                if request.measured or m * gpus <= request.batch_size:
                    yield Plan((Stage(0, last, request.fleet.names[t], gpus),), m)
