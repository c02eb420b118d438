"""Where nodes send from: adapters that differ by the kind of node, and zones with rates and prices between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from traces.errors import HetsimError


class SiteError(HetsimError):
    """Zones between which nothing is known."""


class Site(NamedTuple):
    """What matters of a node to who sends from it."""

    network_gbytes_per_s: float
    """Of the node, within a rack."""
    rack_gbytes_per_s: float
    """Of the node, between racks."""
    zone: str = ""


@dataclass(frozen=True)
class Adapter:
    """The network rates of nodes of so many GPUs of a type: virtual machines of more GPUs have more of an adapter."""

    gpu_type: str
    node_gpus: int
    network_gbytes_per_s: float
    rack_gbytes_per_s: float


@dataclass(frozen=True)
class ZoneLink:
    """What joins two zones, the same in both directions."""

    one: str
    other: str
    gbytes_per_s: float
    """Of each node, in one direction."""
    latency_s: float
    egress_usd_per_gb: float
    """Of 10^9 bytes that leave a zone for the other; NaN: unknown."""


@dataclass(frozen=True)
class Sites:
    """All that a cluster says of them; none: all nodes send alike."""

    adapters: tuple[Adapter, ...] = ()
    zones: tuple[ZoneLink, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.adapters or self.zones)

    def adapter(self, gpu_type: str, node_gpus: int) -> tuple[float, float] | None:
        """Rates within and between racks of a node of a kind: that of as many GPUs, else of the next larger one of the
        type (a node that is used in part), else of its largest. None: nothing is said of the type.
        """
        mine = sorted((a for a in self.adapters if a.gpu_type == gpu_type), key=lambda a: a.node_gpus)
        found = next((a for a in mine if a.node_gpus >= node_gpus), mine[-1] if mine else None)
        return None if found is None else (found.network_gbytes_per_s, found.rack_gbytes_per_s)

    def between(self, one: str, other: str) -> ZoneLink:
        """The link of two zones.

        Raises
        ------
        SiteError
            Nothing is said of them.
        """
        for link in self.zones:
            if {link.one, link.other} == {one, other}:
                return link
        raise SiteError("nothing is known of what joins two zones", got=f"{one!r} and {other!r}",
                        allowed="a [[links.zones]] table for each two zones of a cluster")


ALIKE = Sites()
"""Nothing is said of any: all nodes send alike."""


@lru_cache(maxsize=65536)
def slowest(sites: Sites, members: frozenset[Site]) -> tuple[float, float, float]:
    """Rates within and between racks (Gbyte/s) and latency (s, 0: the cluster's) of a ring over nodes of some sites.

    A ring is as slow as its slowest node, and as the slowest link between two of its zones.
    """
    network = min(site.network_gbytes_per_s for site in members)
    rack = min(site.rack_gbytes_per_s for site in members)
    latency_s = 0.0
    for one, other in combinations(sorted({site.zone for site in members}), 2):
        link = sites.between(one, other)
        network, rack = min(network, link.gbytes_per_s), min(rack, link.gbytes_per_s)
        latency_s = max(latency_s, link.latency_s)
    return network, rack, latency_s


def egress_usd(sites: Sites, num_bytes: float, one: str, other: str) -> float:
    """USD for bytes that go from a zone to another: nothing within one, NaN where the price is unknown."""
    return 0.0 if one == other or num_bytes == 0 else num_bytes / 1e9 * sites.between(one, other).egress_usd_per_gb


def ring_egress_usd(sites: Sites, num_bytes: float, zones: Iterable[str], members: int) -> float:
    """USD of one all-reduce by a ring over n members in these zones.

    Each member sends 2 (n - 1) / n of the bytes to the next. Members of a zone follow each other, so that the ring
    leaves each zone once; of two zones that is there and back.
    """
    found = sorted(set(zones))
    if len(found) < 2:
        return 0.0
    sent = 2 * (members - 1) / members * num_bytes
    return math.fsum(egress_usd(sites, sent, zone, found[(i + 1) % len(found)]) for i, zone in enumerate(found))


def distinct(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Each once, in order: of a ring no more matters."""
    return tuple(sorted(set(sites)))
