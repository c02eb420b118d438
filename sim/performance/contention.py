"""Jobs on the network: those that share a node's link, or a rack's uplink, slow each other down.

Mean field. A job spends other_s seconds of an iteration off the network and network_s on it at its full rate d (that of
its nodes' links, of the slower level where it crosses racks), so that it sends network_s d bytes over each of its
links. While it sends, it has its max-min share r of these links among the average uses of the others
(`sim.kernels.fairshare.balanced_rates`), and

    iteration = other_s + network_s d / r

A job alone has r = d. Jobs that always send get equal shares of a link.

A link is a node's, one direction standing for both; it carries all the traffic of each job that spans this node and
another. An uplink is a rack's: as much as its nodes may send between racks together; a job in several racks sends over
each of their uplinks what it sends over one node's link (a ring enters and leaves a rack once).

Averages know no phases: jobs neither fall into step, so that one sends while the other computes, nor collide on
purpose; what two jobs send in bursts is taken as a steady stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.kernels.fairshare import balanced_rates
from sim.performance.gpu_links import network_bytes_per_s
from sim.performance.graph import PerformanceError
from sim.performance.iteration import Iteration

TOLERANCE, MAX_ROUNDS = 1e-12, 5_000
ACCEPTED = 1e-9
"""Largest relative error of a balance that is taken, should rounding keep it above the tolerance."""
ROUNDED_BITS = 40
"""Binary digits of a rate that count, so that jobs that are alike stay alike to the last digit."""


def network_s(iteration: Iteration, nodes: int) -> float:
    """Seconds of an iteration that a gang on so many nodes spends on the network: all-reduce and transfers.

    What of them runs inside nodes counts as well: it waits for the rest.
    """
    return iteration.allreduce_s + iteration.transfer_s if nodes > 1 else 0.0


def shared_network_s(
    other_s: Sequence[float], network_s: Sequence[float], full_rate: Sequence[float],
    paths: Sequence[Sequence[int]], capacity: Sequence[float],
) -> np.ndarray:  # fmt: skip
    """Seconds of an iteration on the network for jobs that share links: float64 [jobs], network_s d / r.

    Parameters
    ----------
    other_s, network_s : of each job, s; 0 or more, and above 0.
    full_rate : d of each job, bytes/s (or any unit that the capacities have).
    paths : links of each job; `capacity` of each link.

    Raises
    ------
    PerformanceError
        No balance was found (relative error above 1e-9 after 5,000 steps).
    """
    other, alone, full = (np.array(a, dtype=np.float64) for a in (other_s, network_s, full_rate))
    ptr = np.cumsum([0, *map(len, paths)])
    links = np.array([link for path in paths for link in path], dtype=np.int64)
    size = np.array(capacity, dtype=np.float64)
    rate, _, error = balanced_rates(other, alone * full, full, ptr, links, size, TOLERANCE, MAX_ROUNDS)
    if not error <= ACCEPTED:
        raise PerformanceError(
            "no balance between jobs that share links", where=f"{len(full)} jobs", got=f"relative error {error:.2g}",
            allowed=f"{ACCEPTED:g}", todo="Please report it; contention = none does without.",
        )  # fmt: skip
    digits, exponent = np.frexp(rate)
    rate = np.ldexp(np.round(digits * 2.0**ROUNDED_BITS) / 2.0**ROUNDED_BITS, exponent)
    return np.where(rate < full * (1.0 - ACCEPTED), alone * (full / rate), alone)


@dataclass
class _Sender:
    other_s: float
    network_s: float
    full_rate: float
    path: tuple[int, ...]


class Network:
    """The jobs that use a cluster's links at one time, by any number that names them. Solves anew what has changed."""

    def __init__(self, cluster: ClusterSpec) -> None:
        if cluster.node_site:
            raise PerformanceError(
                "nodes that do not send alike cannot share links", where=f"cluster {cluster.name!r}",
                got="adapters by the kind of node, or zones", allowed="contention = none, or nodes that send alike",
            )  # fmt: skip
        if cluster.node_machine:
            raise PerformanceError(
                "machines of several GPU types cannot share links", where=f"cluster {cluster.name!r}",
                got="nodes with a machine", allowed="contention = none, or machines of one type",
            )  # fmt: skip
        self._cluster = cluster
        nodes_of = np.bincount(cluster.node_rack)
        link, uplink = (network_bytes_per_s(cluster.links, racks) for racks in (1, 2))
        self._capacity = [link] * cluster.num_nodes + (uplink * nodes_of).tolist()
        self._jobs: dict[int, _Sender] = {}
        self._on: dict[int, set[int]] = {}
        """Jobs on each link that has any."""
        self._changed: set[int] = set()
        """Links on which something has changed since they were last settled."""

    def join(self, job: int, other_s: float, network_s: float, gpus: np.ndarray) -> None:
        """A job begins to send between the nodes of its GPUs; one that is all on one node does not."""
        nodes = np.unique(self._cluster.gpu_node[gpus])
        if len(nodes) == 1 or not network_s > 0:
            return
        racks = np.unique(self._cluster.node_rack[nodes])
        path = nodes.tolist()
        if len(racks) > 1:
            path += (self._cluster.num_nodes + racks).tolist()
        full = network_bytes_per_s(self._cluster.links, len(racks))
        self._jobs[job] = _Sender(max(0.0, other_s), network_s, full, tuple(path))
        self._changed.update(path)
        for link in path:
            self._on.setdefault(link, set()).add(job)

    def pace(self, job: int, other_s: float) -> None:
        """A job now spends so much of an iteration off the network."""
        if job in self._jobs:
            self._jobs[job].other_s = max(0.0, other_s)
            self._changed.update(self._jobs[job].path)

    def leave(self, job: int) -> None:
        """A job sends no more."""
        if job in self._jobs:
            path = self._jobs.pop(job).path
            self._changed.update(path)
            for link in path:
                self._on[link].discard(job)

    def settle(self) -> dict[int, float]:
        """Seconds of an iteration on the network, of each job that what has changed can reach.

        Raises
        ------
        PerformanceError
            As `shared_network_s`.
        """
        found: dict[int, float] = {}
        for link in sorted(self._changed):
            group = self._reached(link, found)
            if len(group) == 1:
                found[group[0]] = self._jobs[group[0]].network_s
            elif group:
                jobs = [self._jobs[job] for job in group]
                links = sorted({link for job in jobs for link in job.path})
                number = {link: i for i, link in enumerate(links)}
                took = shared_network_s(
                    [job.other_s for job in jobs], [job.network_s for job in jobs], [job.full_rate for job in jobs],
                    [[number[link] for link in job.path] for job in jobs], [self._capacity[link] for link in links],
                )  # fmt: skip
                found.update(zip(group, took.tolist(), strict=True))
        self._changed.clear()
        return found

    def _reached(self, link: int, known: dict[int, float]) -> list[int]:
        """Jobs joined to a link by links that they share, in order; none where they are known already."""
        group: set[int] = set()
        todo = list(self._on.get(link, ()))
        while todo:
            job = todo.pop()
            if job not in group and job not in known:
                group.add(job)
                todo += [other for link in self._jobs[job].path for other in self._on[link] if other not in group]
        return sorted(group)
