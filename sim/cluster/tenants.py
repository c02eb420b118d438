"""Tenants: which queues there are, what each is guaranteed, what it may hold at most, and what it holds now.

A virtual cluster is a queue. One called `org/team` lies in the queue `org`, which holds what all in it hold; `org` may
be a virtual cluster with jobs of its own as well. A quota (ceiling) and a guarantee are of GPUs of any type, or of one
type (`org/team@V100`). Of a guarantee, what is not given by type may be of any type.

A ceiling binds; a guarantee is a promise that the policy keeps: what is guaranteed to one queue and idle may be lent to
others, who have it until its owner claims it (capacity scheduling, as of YARN).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from sim.cluster.spec import WHOLE, ClusterSpec
from sim.settings.config import EngineConfig
from sim.settings.values import ConfigError
from traces.errors import did_you_mean

NO_QUOTA = np.iinfo(np.int64).max
"""The ceiling of a queue that has none."""


class Tenants:
    """The queues of a run, as a policy may read them.

    Tables are int64 [queues, types + 1], in milli-GPU: a column a GPU type of the cluster, the last for all types.

    Attributes
    ----------
    names : of each queue: the virtual clusters in the order of `jobs.vc_names`, then the queues around them.
    paths : of each queue, itself and the queues around it, the outermost first.
    """

    def __init__(
        self, names: tuple[str, ...], vc: np.ndarray, ceiling: np.ndarray, guarantee: np.ndarray, held: np.ndarray
    ) -> None:
        self.names = names
        index = {name: i for i, name in enumerate(names)}
        self.paths = tuple(tuple(index[queue] for queue in (*outer_queues(name), name)) for name in names)
        # Lists: reading one number from a list is three times as fast as from an array.
        self._vc = vc.tolist()
        self._ceiling, self._guarantee, self._held = ceiling.tolist(), guarantee.tolist(), held.tolist()
        self._any = ceiling.shape[1] - 1
        self._untyped = [g[-1] - sum(g[:-1]) for g in self._guarantee]

    @property
    def ceiling_milli(self) -> np.ndarray:
        """What each queue may hold at most; huge where there is no limit."""
        return np.array(self._ceiling, dtype=np.int64)

    @property
    def guarantee_milli(self) -> np.ndarray:
        """What each queue is guaranteed: at least the sum of what is guaranteed to those in it."""
        return np.array(self._guarantee, dtype=np.int64)

    @property
    def held_milli(self) -> np.ndarray:
        """What the running jobs of each queue, and of those in it, hold now."""
        return np.array(self._held, dtype=np.int64)

    @property
    def owed_milli(self) -> np.ndarray:
        """Guarantee that is not used: max(g - h, 0) by type; in all, its sum and what is left of the untyped part.

        The untyped part u = g - Σ g[type] is used by what is held above the guarantees by type:
        owed = Σ max(g[type] - h[type], 0) + max(u - Σ max(h[type] - g[type], 0), 0).
        """
        lacks = np.maximum(self.guarantee_milli - self.held_milli, 0)
        untyped = np.maximum(np.array(self._untyped) - self._above(), 0)
        return np.column_stack((lacks[:, :-1], lacks[:, :-1].sum(axis=1) + untyped))

    @property
    def borrowed_milli(self) -> np.ndarray:
        """Held above the guarantee: max(h - g, 0) by type; in all, max(Σ max(h[type] - g[type], 0) - u, 0)."""
        above = np.maximum(self.held_milli - self.guarantee_milli, 0)
        return np.column_stack((above[:, :-1], np.maximum(self._above() - np.array(self._untyped), 0)))

    def _above(self) -> np.ndarray:
        """int64 [queues]: held above the guarantees by type."""
        return np.maximum(self.held_milli - self.guarantee_milli, 0)[:, :-1].sum(axis=1)

    # -- one job ------------------------------------------------------------------------------------------------------

    def may(self, row: int, gpu_type: int, gpus: float) -> bool:
        """Whether a job may take so many GPUs of a type under the ceilings of its queue and of those around it."""
        return self.over(self._vc[row], {gpu_type: round(gpus * WHOLE)}) is None

    def claims(self, row: int, gpu_type: int, gpus: float) -> bool:
        """Whether its queue, or one around it, is owed so many GPUs of a type."""
        milli = round(gpus * WHOLE)
        return any(self._owed(queue, gpu_type) >= milli for queue in self.paths[self._vc[row]])

    def used(self, queue: int) -> float:
        """Held / guaranteed; inf where nothing is guaranteed."""
        return self._held[queue][-1] / self._guarantee[queue][-1] if self._guarantee[queue][-1] else float("inf")

    def lends(self, row: int, gpu_type: int, gpus: float, vc: int) -> int:
        """How many queues a job shares with a virtual cluster from whose running jobs it may reclaim; -1: it may not.

        Where their paths part, the job's side is owed so many GPUs of the type, and the other side holds borrowed GPUs
        of that type, as do all queues on the way down to the virtual cluster. What is owed by type is taken from what
        is held above the guarantee of that type, else only from what is above the whole guarantee.
        """
        mine, other, milli = self.paths[self._vc[row]], self.paths[vc], round(gpus * WHOLE)
        shared = 0
        while shared < min(len(mine), len(other)) and mine[shared] == other[shared]:
            shared += 1
        if shared == len(mine) or self._owed(mine[shared], gpu_type) < milli:
            return -1
        by_type = self._guarantee[mine[shared]][gpu_type] - self._held[mine[shared]][gpu_type] >= milli
        for queue in other[shared:]:
            held, guarantee = self._held[queue], self._guarantee[queue]
            if held[gpu_type] <= guarantee[gpu_type] or not (by_type or self._borrows(queue)):
                return -1
        return shared

    def _owed(self, queue: int, gpu_type: int) -> int:
        """GPUs of a type (milli) that a queue may claim: what it is owed of the type, and of any type."""
        held, guarantee = self._held[queue], self._guarantee[queue]
        lacks = guarantee[gpu_type] - held[gpu_type]
        above = sum(h - g for h, g in zip(held[:-1], guarantee[:-1], strict=True) if h > g)
        return max(lacks, 0) + max(self._untyped[queue] - above, 0)

    def _borrows(self, queue: int) -> bool:
        held, guarantee = self._held[queue][:-1], self._guarantee[queue][:-1]
        return sum(h - g for h, g in zip(held, guarantee, strict=True) if h > g) > self._untyped[queue]

    # -- a virtual cluster --------------------------------------------------------------------------------------------

    def over(self, vc: int, milli_of: Mapping[int, int]) -> tuple[int, int, int] | None:
        """The ceiling that a virtual cluster would break with more GPUs (milli, by type): queue, column, what is left.

        None: it breaks none. The outermost queue is named first.
        """
        total = sum(milli_of.values())
        for queue in self.paths[vc]:
            held, ceiling = self._held[queue], self._ceiling[queue]
            for column, milli in (*milli_of.items(), (self._any, total)):
                if held[column] + milli > ceiling[column]:
                    return queue, column, ceiling[column] - held[column]
        return None

    def most_milli(self, vc: int, fixed_only: bool) -> list[int]:
        """The most that one job of a virtual cluster may ever hold of each GPU type.

        `fixed_only` leaves out the virtual cluster's own ceiling of any type, which may change with time.
        """
        bounds = [self._ceiling[queue] for queue in self.paths[vc]]
        outer = [c[-1] for c in (bounds[:-1] if fixed_only else bounds)]
        return [min(NO_QUOTA, *outer, *(c[t] for c in bounds)) for t in range(self._any)]

    def scratch(self) -> TenantLedger:
        """A copy of its own, to try what a decision would do."""
        copy = TenantLedger.__new__(TenantLedger)
        copy.__dict__ |= self.__dict__
        copy._held = [list(held) for held in self._held]
        return copy


class TenantLedger(Tenants):
    """The same, kept: what jobs take and give back. The run's own is the book's; policies have scratch copies."""

    def take(self, row: int, gpu_type: int, milli: int) -> None:
        """Count what a job takes, or, negative, gives back, in its queue and in those around it."""
        for queue in self.paths[self._vc[row]]:
            held = self._held[queue]
            held[gpu_type] += milli
            held[-1] += milli

    def reading(self) -> Tenants:
        """The same queues, always up to date, for who may only read."""
        view = Tenants.__new__(Tenants)
        view.__dict__ |= self.__dict__
        return view

    def change_ceiling(self, vc: int, by_milli: int) -> None:
        """A virtual cluster's ceiling of any type changes."""
        self._ceiling[vc][-1] += by_milli


# -- names ------------------------------------------------------------------------------------------------------------


def outer_queues(name: str) -> tuple[str, ...]:
    """Names of the queues around one, the outermost first: `a`, `a/b` of `a/b/c`."""
    steps = name.split("/")
    return tuple("/".join(steps[:n]) for n in range(1, len(steps)))


def queue_names(vc_names: Iterable[str]) -> tuple[str, ...]:
    """The virtual clusters, then the queues around them that are none."""
    own = tuple(vc_names)
    around = dict.fromkeys(outer for name in own for outer in outer_queues(name))
    return (*own, *sorted(around.keys() - set(own)))


def is_plain(name: str, vc_names: tuple[str, ...]) -> bool:
    """Whether a quota's name is just a virtual cluster, with no queue in it: no type, no sum over others."""
    return name in vc_names and not any(vc.startswith(name + "/") for vc in vc_names)


def named_queue(name: str, vc_names: tuple[str, ...], cluster: ClusterSpec, setting: str) -> tuple[str, int]:
    """The queue, and the column of the GPU type (any: the last), of a quota's or guarantee's name.

    Raises
    ------
    ConfigError
        The trace has no such virtual cluster and none in a queue of that name, or the cluster has no such GPU type.
    """
    queues = queue_names(vc_names)
    if name in queues:
        return name, len(cluster.types)
    queue, at, kind = name.rpartition("@")
    if not at or queue not in queues:
        raise ConfigError(
            f"a {setting} names a virtual cluster that the trace does not have", where=f"setting 'engine.{setting}s'",
            got=name, allowed=", ".join(queues[:20]), todo=did_you_mean(queue if at else name, queues),
        )
    column = cluster.type_index(kind)
    if column is None:
        types = [t.name for t in cluster.types]
        raise ConfigError(
            f"a {setting} names a GPU type that the cluster lacks", where=f"setting 'engine.{setting}s'", got=name,
            allowed=", ".join(types), todo=did_you_mean(kind, types),
        )
    return queue, column


# -- from the settings ------------------------------------------------------------------------------------------------


def make_tenants(
    cluster: ClusterSpec, vc_names: tuple[str, ...], vc: np.ndarray, config: EngineConfig, quota_milli: dict[int, int]
) -> TenantLedger:
    """The queues of a run, all empty.

    Parameters
    ----------
    vc : int32 [jobs], the virtual cluster of each job.
    quota_milli : plain quotas at the start of the run, by virtual cluster, of the settings and of the capacity file.

    Raises
    ------
    ConfigError
        A name that trace or cluster do not have; a guarantee above the queue's own ceiling; guarantees of queues above
        the ceiling of the one around them, or of all above what the cluster has.
    """
    names = queue_names(vc_names)
    given = _table(config.guarantees, names, vc_names, cluster, "guarantee", -1)
    ceiling = _table(config.quotas, names, vc_names, cluster, "quota", NO_QUOTA)
    for queue, milli in quota_milli.items():
        ceiling[queue, -1] = min(milli, ceiling[queue, -1])
    own, guarantee = _summed(given, names)
    top = [i for i, name in enumerate(names) if not outer_queues(name)]
    there = np.append(cluster.gpus_by_type(), cluster.num_gpus) * WHOLE
    _fits(guarantee[top].sum(axis=0), there, cluster, "guarantees of all queues above what the cluster has")
    for queue, name in enumerate(names):
        _fits(own[queue], ceiling[queue], cluster, f"guarantee of queue {name!r} above its own ceiling")
        _fits(guarantee[queue], ceiling[queue], cluster, f"guarantees in queue {name!r} above its ceiling")
    return TenantLedger(names, vc, ceiling, guarantee, np.zeros_like(guarantee))


def _table(
    given: Mapping[str, int], names: tuple[str, ...], vc_names: tuple[str, ...], cluster: ClusterSpec, setting: str,
    absent: int,
) -> np.ndarray:
    """int64 [queues, types + 1], milli-GPU: what the settings say; `absent` where they say nothing."""
    table = np.full((len(names), len(cluster.types) + 1), absent, dtype=np.int64)
    for name, gpus in given.items():
        queue, column = named_queue(name, vc_names, cluster, setting)
        table[names.index(queue), column] = gpus * WHOLE
    return table


def _summed(given: np.ndarray, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Guarantees with what follows from them: of each queue alone, and with the queues in it.

    By type the larger of what is given and the sum of those in the queue; in all at least the sum of the types and of
    the untyped parts of those in the queue.
    """
    own = np.maximum(given, 0)
    own[:, -1] = np.maximum(own[:, -1], own[:, :-1].sum(axis=1))
    total = own.copy()
    deepest_first = sorted(range(len(names)), key=lambda i: -names[i].count("/"))
    for queue in deepest_first:
        inner = [i for i, name in enumerate(names) if outer_queues(name)[-1:] == (names[queue],)]
        if inner:
            untyped = (total[inner, -1] - total[inner, :-1].sum(axis=1)).sum()
            total[queue, :-1] = np.maximum(own[queue, :-1], total[inner, :-1].sum(axis=0))
            total[queue, -1] = max(own[queue, -1], total[queue, :-1].sum() + untyped)
    return own, total


def _fits(guarantee: np.ndarray, most: np.ndarray, cluster: ClusterSpec, what: str) -> None:
    """Refuse a guarantee above `most` of a type, or above what all types together allow."""
    together = np.minimum(most[:-1], cluster.gpus_by_type() * WHOLE).sum()
    most = np.append(most[:-1], min(most[-1], together))
    columns = [*(t.name for t in cluster.types), "any type"]
    for column in np.flatnonzero(guarantee > most).tolist():
        raise ConfigError(what, where="setting 'engine.guarantees'",
                          got=f"{guarantee[column] / WHOLE:g} GPUs of {columns[column]}",
                          allowed=f"at most {most[column] / WHOLE:g}")
