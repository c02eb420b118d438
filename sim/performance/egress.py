"""What an iteration costs for bytes that leave a zone: activations, their gradients, sums of gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sim.cluster.sites import Sites, egress_usd, ring_egress_usd
from sim.performance.embeddings import touched
from sim.performance.graph import OperatorGraph
from sim.performance.messages import pieces
from sim.performance.running import graph_sums
from sim.performance.stage_sites import StageGpus


def iteration_egress_usd(
    model: OperatorGraph, graphs: Mapping[int, OperatorGraph], spans: Sequence[tuple[int, int]],
    stages: Sequence[StageGpus], batch_size: float, scale: float, value_bytes: float, sites: Sites,
) -> float:  # fmt: skip
    """USD of an iteration for what crosses zones; 0 where nothing does, NaN where a price that counts is unknown.

    A border is crossed by its activations forward and as many bytes of gradients backward, of all samples once:
    2 * cut_bytes * batch_size * scale, each piece at the price between the zones of who sends and who gets it. The
    gradients of a stage go round a ring of its replicas (`ring_egress_usd`), a ring for each GPU of its largest one.
    Sums of tensor parallelism are not counted: replicas do not span zones in any plan that is worth its time.

    Parameters
    ----------
    graphs : of a GPU, by tensor degree.
    spans : first and last operator of each stage.
    scale : bytes of a value over those that graphs count with.
    """
    usd = []
    for q in range(len(spans) - 1):
        sender, receiver = stages[q], stages[q + 1]
        whole = float(model.cut_bytes[spans[q][1]]) * batch_size * scale
        for piece, i, j, *_ in pieces(sender, receiver):
            one, other = sender.sites[i].zone, receiver.sites[j].zone
            usd += [egress_usd(sites, piece * whole, one, other), egress_usd(sites, piece * whole, other, one)]
    for (first, last), stage in zip(spans, stages, strict=True):
        graph = graphs[stage.finest]
        rows = touched(graph, float(batch_size), int(value_bytes)).summed(first, last)
        num_bytes = (value_bytes * graph_sums(graph).dense(first, last) + rows) * stage.finest
        usd.append(ring_egress_usd(sites, num_bytes, {site.zone for site in stage.sites}, stage.replicas))
    return math.fsum(usd)
