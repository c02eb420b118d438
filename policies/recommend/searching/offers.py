"""What one stage of a plan may be on: the one place that lists it for those who go through all plans of a kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policies.recommend.request.request import Request
from sim.performance.samples import largest_share, too_few


@dataclass(frozen=True)
class Offer:
    """Replicas of a stage on one type.

    Attributes
    ----------
    t : the type, by its number in the fleet.
    tensor : GPUs of a replica.
    replicas : how many.
    samples : of a micro-batch, on the replica that has most.
    """

    t: int
    tensor: int
    replicas: int
    samples: float

    @property
    def gpus(self) -> int:
        """Of the stage."""
        return self.tensor * self.replicas


def offers(request: Request, t: int, tensor: int, micro_batches: int) -> Iterator[Offer]:
    """All that can be best with so many micro-batches, fewest replicas first.

    Of the replica counts that leave the fullest replica as many samples the least one: more of them take as long, cost
    more, and sum gradients over more.
    """
    micro, before = request.batch_size / micro_batches, 0.0
    for replicas in range(1, min(request.fleet.counts[t], request.budget) // tensor + 1):
        if too_few(micro / replicas):
            return
        samples = largest_share(micro / replicas)
        if samples != before:
            before = samples
            yield Offer(t, tensor, replicas, samples)
