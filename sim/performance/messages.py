"""Messages between pipeline stages: activations forward, their gradients backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from sim.cluster.spec import Links
from sim.performance.gpu_links import (
    gang_allreduce_s,
    gang_link,
    inside,
    joined,
    network_bytes_per_s,
    stage_link,
)
from sim.performance.graph import OperatorGraph
from sim.performance.stage_sites import StageGpus, tensor_group

Reach = tuple[Any, ...]
"""Of a piece that leaves a node: racks crossed and, where nodes do not send alike, the sites at this end and at
the other; empty: it stays on its node."""
ROUNDING = 1e-12
"""Of a micro-batch: a piece as small as this comes of rounding."""


def message_s(
    model: OperatorGraph, shares: Mapping[int, OperatorGraph], last_op: int, samples: float, sender: StageGpus,
    receiver: StageGpus, links: Links,
) -> float:  # fmt: skip
    """Seconds of a micro-batch's message (activations or their gradients) across the border after `last_op`.

    All of what crosses is sent once. What each GPU of a receiving replica needs whole is then gathered; of tensors that
    are split among them each keeps its part. Where the receiver has several types, the slowest part's gathering counts,
    each at its own degree: a replica of one GPU gathers nothing.

    Parameters
    ----------
    shares : by tensor degree, the graph of one GPU of so many.
    samples : of a micro-batch, times the bytes of a value / VALUE_BYTES.
    """
    whole = float(model.cut_bytes[last_op]) * samples
    took = transfer_s(whole, sender, receiver, links)
    gathered = [0.0]
    for one in receiver.all_parts:
        if one.tensor > 1:
            # whole = kept + split, and a GPU's share of them is kept + split / t.
            part = float(shares[one.tensor].cut_bytes[last_op]) * samples
            kept = max(0.0, whole - (whole - part) / (1 - 1 / one.tensor))
            gathered.append(gang_allreduce_s(
                kept * one.share / one.replicas, one.gpu, *tensor_group(one), links.among(one.sites),
                stage_link(one, links),
            ))  # fmt: skip
    # An all-gather is the second half of a ring all-reduce.
    return took + max(gathered) / 2


def transfer_s(num_bytes: float, sender: StageGpus, receiver: StageGpus, links: Links) -> float:
    """One micro-batch's message of `num_bytes` from a stage to the next; as long from there to here.

    Each GPU of either side holds a stretch of the micro-batch's samples, in the order of the placement and as long as
    its share, and sends each piece to whoever needs it; all pieces go at once. Pieces that leave a node share that
    node's network link, those within a node their GPU's link; the message takes as long as the busiest link plus its
    latency. Unlike types of a machine are joined by PCIe, at the slower's rate; where GPUs of a node are not joined
    alike, all pieces of a GPU go over the slowest link class that one of them needs.
    """
    return max(latency_s + share * num_bytes / rate for rate, latency_s, share in busiest(sender, receiver, links))


@lru_cache(maxsize=65536)
def busiest(sender: StageGpus, receiver: StageGpus, links: Links) -> tuple[tuple[float, float, float], ...]:
    """Of each kind of link: bytes/s, latency (s), and the most that one of them carries, of the whole message."""
    load: defaultdict[tuple[str, int, Reach], float] = defaultdict(float)
    near: dict[tuple[str, int, Reach], tuple[float, float]] = {}
    for piece, i, j, a_one, b_one, slots in pieces(sender, receiver):
        if sender.nodes[i] == receiver.nodes[j]:
            gpu = joined(a_one.gpu, b_one.gpu)
            link = inside(gpu, links, gang_link(gpu, slots, links))
            for port in (("gpu out", i, ()), ("gpu in", j, ())):
                load[port] += piece
                near[port] = min(near.get(port, link), link)
        else:
            racks = 1 + (sender.racks[i] != receiver.racks[j])
            there: Reach = ()
            back: Reach = ()
            if sender.sites:
                there, back = (sender.sites[i], receiver.sites[j]), (receiver.sites[j], sender.sites[i])
            load["node out", sender.nodes[i], (racks, *there)] += piece
            load["node in", receiver.nodes[j], (racks, *back)] += piece
    far: dict[Reach, tuple[float, float]] = {}
    for reach in {port[2] for port in load} - {()}:
        racks, *ends = reach
        seen = links.hop(*ends) if ends else links
        far[reach] = network_bytes_per_s(seen, racks), seen.network_latency_s
    most: defaultdict[tuple[float, float], float] = defaultdict(float)
    for port, share in load.items():
        link = far[port[2]] if port[2] else near[port]
        most[link] = max(most[link], share)
    return tuple((*link, share) for link, share in most.items())


def pieces(
    sender: StageGpus, receiver: StageGpus
) -> Iterator[tuple[float, int, int, StageGpus, StageGpus, tuple[int, ...]]]:
    """Each piece of a message, as a part of the whole; its sender's and its receiver's place in their stages, and the
    parts that they are of; their numbers within their nodes, where these matter."""
    a, b, i, j = _ends(sender), _ends(receiver), 0, 0
    at = 0.0
    while i < len(a) and j < len(b):
        (a_end, a_one, a_index), (b_end, b_one, b_index) = a[i], b[j]
        until = min(a_end, b_end)
        piece, at = until - at, until
        slots = (a_one.slots[a_index], b_one.slots[b_index]) if a_one.slots and b_one.slots else ()
        yield piece, i, j, a_one, b_one, slots
        # Shares may round, so that ends that meet differ in the last bit: that is no piece of its own.
        i, j = i + (a_end <= until + ROUNDING), j + (b_end <= until + ROUNDING)


def _ends(stage: StageGpus) -> list[tuple[float, StageGpus, int]]:
    """For each GPU of a stage: where its stretch of the micro-batch ends (of 1), its part, and its place there."""
    ends, begin = [], 0.0
    for part in stage.all_parts:
        n = len(part.nodes)
        ends += [(begin + part.share * (i + 1) / n, part, i) for i in range(n)]
        begin += part.share
    # Whatever the shares round to, the last stretch ends with the micro-batch.
    ends[-1] = (1.0, *ends[-1][1:])
    return ends
