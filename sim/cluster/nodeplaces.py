"""Where the nodes of a cluster file are: their racks, and the machines that hold several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sim.cluster.spec import ClusterError


class Group(Protocol):
    """A `[[nodes]]` table, as far as its place goes."""

    type: str
    count: int
    gpus: int
    machine: str
    rack_size: int | None


#: What `[[nodes]]` of one machine share.
_OF_A_MACHINE = ("count", "zone", "rack_size", "network_gbytes_per_s", "network_gbits_per_s")


def machines_of(groups: Sequence[Group], where: str, most_gpus: int) -> list[int]:
    """Machine of each node: the k-th nodes of all groups of a kind are one; none: each node is one.

    Raises
    ------
    ClusterError
        Groups of one kind that are not as many, not in one place, of one type, or more GPUs than a node has.
    """
    kinds: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        if group.machine:
            kinds.setdefault(group.machine, []).append(i)
    for kind, of in kinds.items():
        first, types = groups[of[0]], [groups[i].type.lower() for i in of]
        for i in of[1:]:
            for key in _OF_A_MACHINE:
                here, there = getattr(groups[i], key), getattr(first, key)
                if here != there:
                    raise ClusterError(f"{key} of one machine is told twice", where=f"{where}, nodes.{i}.{key}",
                                       got=_said(here, key), allowed=f"{_said(there, key)}, as in the first [[nodes]] "
                                       f"of machine {kind!r}")
        if len(set(types)) < len(types) or len(of) < 2:
            raise ClusterError("a machine has several GPU types, each once", where=f"{where}, nodes.{of[-1]}.machine",
                               got=f"{kind}: {', '.join(groups[i].type for i in of)}",
                               allowed="a [[nodes]] table for each of two types or more",
                               todo="A machine of one type needs no name.")
        if sum(groups[i].gpus for i in of) > most_gpus:
            raise ClusterError("too many GPUs in a machine", where=f"{where}, nodes.{of[-1]}.gpus",
                               got=sum(groups[i].gpus for i in of), allowed=f"up to {most_gpus:,}")
    if not kinds:
        return []
    first_of = {kind: of[0] for kind, of in kinds.items()}
    begin = np.cumsum([0, *(group.count for group in groups)])
    return [int(begin[first_of.get(group.machine, i)]) + k
            for i, group in enumerate(groups) for k in range(group.count)]


def _said(value: object, key: str) -> object:
    """What a table says of a key, in words where it says nothing."""
    return f"no {key}" if value in ("", None) else value


def racks_of(groups: Sequence[Group]) -> np.ndarray:
    """Rack of each node: groups without rack_size share the first rack, others fill racks of their own.

    Nodes of one machine are where those of its first group are.
    """
    racks: list[np.ndarray] = []
    free = int(any(group.rack_size is None for group in groups))
    first: dict[str, int] = {}
    for i, group in enumerate(groups):
        if group.machine and first.setdefault(group.machine, i) < i:
            racks.append(racks[first[group.machine]])
        elif group.rack_size is None:
            racks.append(np.zeros(group.count, dtype=np.int64))
        else:
            racks.append(free + np.arange(group.count) // group.rack_size)
            free = int(racks[-1][-1]) + 1
    return np.concatenate(racks)
