"""The cluster: what is there (ClusterSpec, fixed) and what is free (Ledger, the only place where GPUs move).

A GPU is a number from 0 to num_gpus - 1, counted node by node. Shares are integers, thousandths of a GPU, so
that five jobs of 0.2 fill a GPU exactly and a million allocations leave no rounding behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sim.cluster.sites import ALIKE, Site, Sites, slowest
from sim.hardware.gputypes import GpuType
from sim.kernels.ledger import give, take
from traces.errors import HetsimError

WHOLE = 1000
"""Milli-GPU in a GPU."""
CLOSED = 2 * WHOLE
"""What a closed GPU lacks: more than a GPU, so that it is below nothing even when nobody holds any of it."""


class ClusterError(HetsimError):
    """A cluster description that cannot be used."""


@dataclass(frozen=True)
class Links:
    """Bandwidths (Gbyte/s, one direction) and latencies (s) between GPUs that are not on one node.

    Within a node the links are those of the GPU type: NVLink where it has it, else PCIe; unless the fields below say
    otherwise (`sim.performance.gpu_links.gang_link`). Names are of `sim.hardware.linkclasses`.
    """

    network_gbytes_per_s: float = 12.5
    """Per node, within a rack: 100 Gbit/s by default."""
    rack_gbytes_per_s: float = 12.5
    """Per node, between racks."""
    network_latency_s: float = 20e-6
    node_latency_s: float = 5e-6
    network_class: str = ""
    """Class of a node's adapters, for what large messages reach; empty: 90 %."""
    node_class: str = ""
    """Class that joins all GPUs of a node, in place of the type's own."""
    gpus_per_nvlink: int = 0
    """GPUs of a node that NVLink joins, counted from its first: groups of so many; 0: all, 1: none."""
    gpus_per_switch: int = 0
    """GPUs under one PCIe switch; 0: all of a socket."""
    gpus_per_socket: int = 0
    """GPUs of one CPU socket; 0: all of a node."""
    host_class: str = ""
    """Class between the switches of a socket; empty: through the host bridge, by the type's PCIe generation."""
    socket_class: str = ""
    """Class between sockets; empty: by the type's PCIe generation."""
    sites: Sites = ALIKE
    """Adapters by the kind of node, and zones; none: all nodes send at the rates above."""

    @property
    def alike(self) -> bool:
        """Whether the same link joins any two GPUs of a node, wherever they are in it."""
        return bool(self.node_class) or not (self.gpus_per_nvlink or self.gpus_per_switch or self.gpus_per_socket)

    @property
    def switch_gpus(self) -> int:
        """GPUs under one PCIe switch; 0: all of a node. No switch spans sockets."""
        return self.gpus_per_switch or self.gpus_per_socket

    def site(self, gpu: GpuType, node_gpus: int, zone: str = "") -> Site:
        """That of a node of so many GPUs of a type."""
        found = self.sites.adapter(gpu.name, node_gpus)
        return Site(*(found or (self.network_gbytes_per_s, self.rack_gbytes_per_s)), zone)

    def among(self, members: Iterable[Site]) -> Links:
        """The links as a ring over nodes of these sites finds them; of no sites: as they are."""
        found = frozenset(members)
        return self if not found else self._at(*slowest(self.sites, found))

    def hop(self, own: Site, peer: Site) -> Links:
        """The links as a node finds them that sends to another, or is sent to: its own adapter, what joins the zones.

        The other's adapter is the other's affair: it may serve several.
        """
        return self._at(*slowest(self.sites, frozenset((own, own._replace(zone=peer.zone)))))

    def _at(self, network: float, rack: float, latency_s: float) -> Links:
        return replace(self, network_gbytes_per_s=network, rack_gbytes_per_s=rack, sites=ALIKE,
                       network_latency_s=max(self.network_latency_s, latency_s))

    @property
    def fastest(self) -> Links:
        """With the best adapter of any node, and all in one zone: what no plan beats."""
        best = [(self.network_gbytes_per_s, self.rack_gbytes_per_s)]
        best += [(a.network_gbytes_per_s, a.rack_gbytes_per_s) for a in self.sites.adapters]
        return self if not self.sites else self._at(max(a for a, _ in best), max(b for _, b in best), 0.0)

    def groups(self, gpu: GpuType) -> tuple[int, ...]:
        """GPUs of a node that each faster link of a type joins, from near to far; empty: all are joined alike.

        A link whose groups lie in those of a nearer one joins nothing that is not joined better.
        """
        sizes: list[int] = []
        if self.node_class:
            return ()
        nvlink = self.gpus_per_nvlink if gpu.nvlink_gbytes_per_s > 0 else 1
        for size in (nvlink, self.switch_gpus, self.gpus_per_socket):
            if size == 0:
                break
            if size > 1 and all(near % size for near in sizes):
                sizes.append(size)
        return tuple(sizes)


@dataclass(frozen=True, eq=False)
class ClusterSpec:
    """Nodes, their GPU types and links. All arrays are read-only.

    Attributes
    ----------
    types : the GPU types present, in the order in which placement tries them (`sim.performance.type_order`).
    node_type : int32 [nodes], index into `types`.
    node_gpus : int32 [nodes], GPUs on the node.
    node_rack : int32 [nodes], rack of the node.
    node_first : int32 [nodes + 1], first GPU of each node; the last entry is the number of GPUs.
    gpu_node : int32 [GPUs], node of each GPU.
    node_usd_per_gpu_h : float64 [nodes], price of a GPU-hour there; NaN: unknown. `types` have the mean.
    node_zone : zone of each node; empty: all are in one.
    node_machine : machine of each node; empty: each node is one. GPUs of several types in one machine are a node each:
        placement, the ledger and results know them as such, and links join them as GPUs of one machine.
    """

    name: str
    types: tuple[GpuType, ...]
    node_type: np.ndarray
    node_gpus: np.ndarray
    node_rack: np.ndarray
    links: Links
    node_first: np.ndarray
    gpu_node: np.ndarray
    node_usd_per_gpu_h: np.ndarray
    node_zone: tuple[str, ...] = ()
    node_machine: tuple[int, ...] = ()

    @classmethod
    def build(
        cls,
        name: str,
        types: Sequence[GpuType],
        node_type: Sequence[int],
        node_gpus: Sequence[int],
        node_rack: Sequence[int] | None = None,
        links: Links | None = None,
        node_usd_per_gpu_h: Sequence[float] | None = None,
        node_zone: Sequence[str] = (),
        node_machine: Sequence[int] = (),
    ) -> ClusterSpec:
        """Make a cluster from one type index and one GPU count a node; without prices of nodes at those of the types.

        Raises
        ------
        ClusterError
            No nodes, a node without GPUs, or a type that is named twice.
        """
        if len(node_type) == 0:
            raise ClusterError(
                "the cluster has no nodes", where=f"cluster {name!r}", got=0, allowed="at least one node"
            )
        counts = np.asarray(node_gpus, dtype=np.int64)
        if (counts < 1).any() or counts.sum() > 10_000_000:
            raise ClusterError(
                "GPUs of a node",
                where=f"cluster {name!r}",
                got=int(counts.min()),
                allowed="1 or more on each node, 10,000,000 in all",
            )
        if len({t.name for t in types}) != len(types):
            raise ClusterError("a GPU type is listed twice", where=f"cluster {name!r}", got=[t.name for t in types])
        rack = np.zeros(len(counts)) if node_rack is None else node_rack
        usd = [types[t].price_or_nan for t in node_type] if node_usd_per_gpu_h is None else node_usd_per_gpu_h
        arrays = [
            np.asarray(node_type, dtype=np.int32),
            counts.astype(np.int32),
            np.asarray(rack, dtype=np.int32),
            np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            np.repeat(np.arange(len(counts)), counts).astype(np.int32),
        ]
        prices = np.array(usd, dtype=np.float64)
        prices.flags.writeable = False
        for array in arrays:
            array.flags.writeable = False
        return cls(name, tuple(types), arrays[0], arrays[1], arrays[2], links or Links(), arrays[3], arrays[4], prices,
                   tuple(node_zone), tuple(node_machine))  # fmt: skip

    @cached_property
    def node_site(self) -> tuple[Site, ...]:
        """Site of each node; empty: all nodes send alike."""
        if not self.links.sites:
            return ()
        kinds = zip(self.node_type.tolist(), self.node_gpus.tolist(), self.node_zone or ("",) * self.num_nodes,
                    strict=True)  # fmt: skip
        return tuple(self.links.site(self.types[t], gpus, zone) for t, gpus, zone in kinds)

    def machines(self, gpus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each GPU its machine, and its number there: those of the machine's first node come first."""
        nodes = self.gpu_node[gpus]
        slots = gpus - self.node_first[nodes]
        if not self.node_machine:
            return nodes, slots
        machine, before = self._machines
        return machine[nodes], slots + before[nodes]

    @cached_property
    def _machines(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each node its machine, and how many GPUs earlier nodes of the machine have."""
        there: dict[int, int] = {}
        before = np.zeros(self.num_nodes, dtype=np.int64)
        for node, (machine, gpus) in enumerate(zip(self.node_machine, self.node_gpus.tolist(), strict=True)):
            before[node] = there.get(machine, 0)
            there[machine] = before[node] + gpus
        return np.array(self.node_machine), before

    def with_it(self, node: int) -> tuple[int, ...]:
        """All nodes of a node's machine: they fail together."""
        if not self.node_machine:
            return (node,)
        return tuple(np.flatnonzero(self._machines[0] == self.node_machine[node]).tolist())

    @property
    def zoned(self) -> bool:
        """Whether there are several zones, so that bytes may leave one."""
        return bool(self.links.sites.zones)

    @property
    def num_nodes(self) -> int:
        return len(self.node_type)

    @property
    def num_gpus(self) -> int:
        return len(self.gpu_node)

    @property
    def gpu_type(self) -> np.ndarray:
        """int32 [GPUs]: type index of each GPU."""
        return self.node_type[self.gpu_node]

    def gpus_by_type(self) -> np.ndarray:
        """int64 [types]: how many GPUs the cluster has of each type."""
        return np.bincount(self.node_type, weights=self.node_gpus, minlength=len(self.types)).astype(np.int64)

    def with_types_in(self, order: Sequence[int]) -> ClusterSpec:
        """The same nodes, with `types` in another order: all their present indices, each once."""
        if list(order) == list(range(len(self.types))):
            return self
        now = np.empty(len(order), dtype=np.int32)
        now[order] = np.arange(len(order))
        node_type = now[self.node_type]
        node_type.flags.writeable = False
        return replace(self, types=tuple(self.types[t] for t in order), node_type=node_type)

    def type_index(self, name: str) -> int | None:
        """Index of a GPU type by name (any case), None where the cluster has none."""
        for i, t in enumerate(self.types):
            if t.name.lower() == name.lower():
                return i
        return None


class Ledger:
    """Which share of which GPU is free. Every change of `free_milli` in a run goes through here.

    Attributes
    ----------
    free_milli : int32 [GPUs], free share of each GPU; 0 on a node that is down, negative where it is closed (drained,
        or out for maintenance). What jobs give back there leaves it negative, also in a copy that is only tried out.
    idle : int32 [nodes], GPUs of a node that are wholly free.
    type_idle : int32 [types], the same by type.
    state, shape : these three, and the cluster's arrays, as the kernels want them (`sim.kernels.ledger`).
    """

    def __init__(self, cluster: ClusterSpec) -> None:
        self.cluster = cluster
        self.free_milli = np.full(cluster.num_gpus, WHOLE, dtype=np.int32)
        self.idle = cluster.node_gpus.copy()
        self.type_idle = cluster.gpus_by_type().astype(np.int32)
        # Own, writable copies: to Numba a read-only array is another type, and kernels would compile twice.
        self.gpu_node, self.node_type = cluster.gpu_node.copy(), cluster.node_type.copy()
        sizes = [cluster.links.groups(gpu) for gpu in cluster.types]
        groups = np.zeros((len(sizes), max(map(len, sizes))), dtype=np.int32)
        for t, of_type in enumerate(sizes):
            groups[t, : len(of_type)] = of_type
        self.shape: tuple[Any, ...] = (
            cluster.node_first.copy(), self.node_type, cluster.node_gpus.copy(), self.gpu_node,
            groups if groups.size else (),
        )  # fmt: skip
        self.state = (self.free_milli, self.idle, self.type_idle)

    def take(self, gpus: np.ndarray, milli: int) -> int:
        """Take `milli` of each GPU listed (a GPU listed twice gives twice).

        Returns -1, or the position of the first GPU that has less than that free (then nothing is taken).
        """
        return int(take(gpus, milli, self.state, self.shape))

    def give(self, gpus: np.ndarray, milli: int) -> None:
        """Return what `take` took."""
        give(gpus, milli, self.state, self.shape)

    def count_by_type(self, gpus: np.ndarray) -> dict[int, int]:
        """How many of some GPUs are of each type, for the types among them."""
        counts = np.bincount(self.node_type[self.gpu_node[gpus]])
        return {t: n for t, n in enumerate(counts.tolist()) if n}

    def node_down(self, node: int) -> None:
        """Take a node out of service; the caller has freed all of its GPUs first."""
        free = self.free_milli[self.cluster.node_first[node] : self.cluster.node_first[node + 1]]
        assert (free % CLOSED == WHOLE).all(), "a node goes down with jobs on it"
        free -= WHOLE
        self._count(node)

    def node_up(self, node: int) -> None:
        """Put a node back into service, all of it free but for GPUs that are closed."""
        self.free_milli[self.cluster.node_first[node] : self.cluster.node_first[node + 1]] += WHOLE
        self._count(node)

    def close(self, gpus: np.ndarray) -> None:
        """Let nobody take of some GPUs (of one node, each listed once); what is held of them stays held."""
        self.free_milli[gpus] -= CLOSED
        self._count(int(self.gpu_node[gpus[0]]))

    def reopen(self, gpus: np.ndarray) -> None:
        """Undo `close`: what nobody holds of the GPUs is free again, if their node is up."""
        self.free_milli[gpus] += CLOSED
        self._count(int(self.gpu_node[gpus[0]]))

    def balanced(self, node_down: np.ndarray) -> bool:
        """Whether all that was taken is given back, and idle GPUs are counted right. `node_down`: bool [nodes]."""
        free, nodes, types = self.free_milli, len(self.idle), len(self.type_idle)
        idle = np.bincount(self.gpu_node[free == WHOLE], minlength=nodes)
        by_type = np.bincount(self.node_type, weights=idle, minlength=types)
        whole = free % CLOSED == np.where(node_down, 0, WHOLE)[self.gpu_node]
        return bool((free <= WHOLE).all() and whole.all() and (idle == self.idle).all()
                    and (by_type == self.type_idle).all())  # fmt: skip

    def _count(self, node: int) -> None:
        """Count the idle GPUs of a node anew."""
        free = self.free_milli[self.cluster.node_first[node] : self.cluster.node_first[node + 1]]
        idle = int(np.count_nonzero(free == WHOLE))
        self.type_idle[self.cluster.node_type[node]] += idle - self.idle[node]
        self.idle[node] = idle
