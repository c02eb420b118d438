"""Tables that several operators use, as tied embeddings: copies on stages that lack the first user, and their sums.

A stage that has a user of a table but not its first one keeps a copy: weights, gradients and optimizer state of P more
parameters, which it steps as its own. After each stage has summed the gradients of its copy over its replicas, the k
stages that hold one sum theirs, each replica with its peers, all at once (Narayanan et al. 2021, arXiv:2104.04473,
section 4; Megatron-LM's group of embeddings): by a ring, of which each replica sends 2 (k - 1) / k of the table to the
next stage that holds one. For two stages that is the table there and the table back.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.cluster.spec import Links
from sim.performance.graph import OperatorGraph
from sim.performance.messages import transfer_s
from sim.performance.running import holders
from sim.performance.stage_sites import StageGpus


def tied_sums_s(
    model: OperatorGraph, spans: Sequence[tuple[int, int]], stages: Sequence[StageGpus], devices: int,
    value_bytes: int, links: Links,
) -> list[float]:  # fmt: skip
    """Seconds that each stage waits for the sums of its tables' gradients with the other stages that hold them.

    Parameters
    ----------
    model : all of it, not a GPU's share.
    spans, stages : operators of each stage, and where it is; stage q is on the GPUs of stage q mod `devices`.
    """
    waits = [0.0] * len(spans)
    for users, params in model.tied:
        ring = sorted({q % devices for q in holders(users, spans)})
        if len(ring) < 2:
            continue
        num_bytes = 2 * (len(ring) - 1) / len(ring) * value_bytes * params
        took = max(
            max(transfer_s(num_bytes * max(a.replicas, b.replicas), *ends, links) for ends in ((a, b), (b, a)))
            for a, b in ((stages[q], stages[after]) for q, after in zip(ring, ring[1:] + ring[:1], strict=True))
        )
        for q in ring:
            waits[q] += took
    return waits
