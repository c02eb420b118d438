"""What an iteration costs for bytes that leave a zone: activations, their gradients, sums of gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sim.cluster.sites import Sites, egress_usd, ring_egress_usd
from sim.performance.embeddings import tied_rings, touched
from sim.performance.graph import OperatorGraph
from sim.performance.messages import pieces
from sim.performance.running import graph_sums
from sim.performance.stage_sites import StageGpus


def iteration_egress_usd(
    model: OperatorGraph, graphs: Mapping[int, OperatorGraph], spans: Sequence[tuple[int, int]],
    stages: Sequence[StageGpus], devices: int, batch_size: float, scale: float, value_bytes: float, sites: Sites,
) -> float:  # fmt: skip
    """USD of an iteration for what crosses zones; 0 where nothing does, NaN where a price that counts is unknown.

    A border is crossed by its activations forward and as many bytes of gradients backward, of all samples once:
    2 * cut_bytes * batch_size * scale, each piece at the price between the zones of who sends and who gets it. The
    gradients of a stage go round a ring of its replicas (`ring_egress_usd`), a ring for each GPU of its largest one.
    Those of a tied table go round the stages that hold it, each replica with its peers (`tied_rings`).
    Sums of tensor parallelism are not counted: replicas do not span zones in any plan that is worth its time.

    Parameters
    ----------
    graphs : of a GPU, by tensor degree.
    spans : first and last operator of each stage.
    stages, devices : stage q of an interleaved pipeline is on the GPUs of stage q mod `devices`.
    scale : bytes of a value over those that graphs count with.
    """
    usd = []
    for q in range(len(spans) - 1):
        whole = float(model.cut_bytes[spans[q][1]]) * batch_size * scale
        usd += [_sent_usd(whole, *ends, sites) for ends in ((stages[q], stages[q + 1]), (stages[q + 1], stages[q]))]
    for _, sends in tied_rings(model, spans, stages, devices, value_bytes):
        usd += [_sent_usd(num_bytes, a, b, sites) for a, b, num_bytes in sends]
    for (first, last), stage in zip(spans, stages, strict=True):
        graph = graphs[stage.finest]
        rows = touched(graph, float(batch_size), int(value_bytes)).summed(first, last)
        num_bytes = (value_bytes * graph_sums(graph).dense(first, last) + rows) * stage.finest
        usd.append(ring_egress_usd(sites, num_bytes, {site.zone for site in stage.sites}, stage.replicas))
    return math.fsum(usd)


def _sent_usd(num_bytes: float, sender: StageGpus, receiver: StageGpus, sites: Sites) -> float:
    """USD of a message from a stage to another, each piece at the price between the zones of its ends."""
    return math.fsum(
        egress_usd(sites, piece * num_bytes, sender.sites[i].zone, receiver.sites[j].zone)
        for piece, i, j, *_ in pieces(sender, receiver)
    )
