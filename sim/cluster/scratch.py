"""What would be free if: a copy of what is free, from which a policy takes and to which it gives (`Scratch`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cluster.spec import WHOLE, ClusterError
from sim.kernels.ledger import give, take
from sim.kernels.placement import RULES, place

ANY_TYPE = (1 << 64) - 1
"""Bit mask of GPU types that allows all of them."""
NO_QUOTA = np.iinfo(np.int64).max
"""milli-GPU that a virtual cluster without a quota may still take."""

Arrays = tuple[np.ndarray, ...]
"""A group of arrays, as the kernels want them (`sim.kernels.ledger`)."""


def numbered(numbers: np.ndarray, size: int, what: str) -> None:
    """Refuse numbers of GPUs or jobs that are not there. (Compiled kernels do not look.)

    Raises
    ------
    ClusterError
    """
    if numbers.size and (numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= size):
        raise ClusterError(f"{what} that are not there", got=numbers.tolist()[:8], allowed=f"integers, 0 to {size - 1}")


class Gang(NamedTuple):
    """What is to be placed: a job's own gang (`Scratch.gang`), or another."""

    num_gpus: int
    """Slots."""
    gpu_milli: int = WHOLE
    """Share of a GPU that each slot takes, in thousandths."""
    worker_gpus: int = 1
    """Slots that lie together on a node."""
    types: int = ANY_TYPE
    """Bit t set: may lie on `cluster.types[t]`."""
    vc: int | None = None
    """Virtual cluster that is charged; None: none."""


class Scratch:
    """Free GPUs and quotas as they would be. Nothing real is taken here, so a policy may try and throw away.

    `view.scratch()` gives what is free now; `view.scratch(without=rows)` what would be free without these running jobs.

    Attributes
    ----------
    milli, idle, type_idle : int32 arrays, free share of each GPU (negative: it is closed), wholly free GPUs of each
        node, of each type.
    vc_left : int64 array, what each virtual cluster may still take, milli-GPU; below 0 where its quota has shrunk.
    state : the first three, as the kernels want them.
    """

    __slots__ = ("_gangs", "_shape", "state", "vc_left")

    def __init__(self, state: Arrays, vc_left: np.ndarray, shape: Arrays, gangs: Arrays) -> None:
        free, idle, type_idle = state
        self.state = (free.copy(), idle.copy(), type_idle.copy())
        self.vc_left, self._shape, self._gangs = vc_left.copy(), shape, gangs

    @property
    def milli(self) -> np.ndarray:
        return self.state[0]

    @property
    def idle(self) -> np.ndarray:
        return self.state[1]

    @property
    def type_idle(self) -> np.ndarray:
        return self.state[2]

    @property
    def arrays(self) -> tuple[Arrays, np.ndarray, Arrays, Arrays]:
        """The groups gangs, vc_left, state, shape that kernels such as `sim.kernels.admit.admit` take from."""
        return self._gangs, self.vc_left, self.state, self._shape

    def copy(self) -> Scratch:
        """The same once more: what is taken from one is not taken from the other."""
        return Scratch(self.state, self.vc_left, self._shape, self._gangs)

    def emptied(self) -> Scratch:
        """The same cluster idle and without quotas; nodes that are away count as there."""
        _, node_type, node_gpus, _, _ = self._shape
        by_type = np.bincount(node_type, weights=node_gpus, minlength=self.type_idle.size).astype(np.int32)
        state = (np.full_like(self.milli, WHOLE), node_gpus, by_type)
        return Scratch(state, np.full_like(self.vc_left, NO_QUOTA), self._shape, self._gangs)

    def gang(self, row: int) -> Gang:
        """What a job asks for; `gang(row)._replace(num_gpus=2)` is the same with other GPUs."""
        if not isinstance(row, int | np.integer) or not 0 <= row < self._gangs[0].size:
            numbered(np.array([row]), self._gangs[0].size, "jobs")
        return Gang(*(int(column[row]) for column in self._gangs))

    def type_milli(self) -> np.ndarray:
        """int64 [types]: free milli-GPU of each GPU type, those in pieces too."""
        _, node_type, _, gpu_node, _ = self._shape
        weights = np.bincount(node_type[gpu_node], weights=np.maximum(self.milli, 0), minlength=self.type_idle.size)
        return weights.astype(np.int64)

    def take(
        self, gpus: np.ndarray, milli: int = WHOLE, vc: int | None = None, *, within_quota: bool = False
    ) -> bool:
        """Take `milli` of each GPU listed (int32; listed twice, taken twice), whatever the quota says, unless asked to.

        Returns False, and takes nothing, where one of them lacks it or does not exist, or the quota is used up.
        """
        if within_quota and vc is not None and gpus.size * milli > self.vc_left[vc]:
            return False
        if take(gpus, milli, self.state, self._shape) >= 0:
            return False
        self._charge(vc, gpus.size * milli)
        return True

    def give(self, gpus: np.ndarray, milli: int = WHOLE, vc: int | None = None) -> None:
        """Return what `take`, `place` or a running job took.

        Raises
        ------
        ClusterError
            GPUs that are not there: the kernels would write beside the ledger.
        """
        numbered(gpus, self.milli.size, "GPUs")
        give(gpus, milli, self.state, self._shape)
        self._charge(vc, -gpus.size * milli)

    def place(self, gang: int | Gang, rule: str = "consolidate") -> np.ndarray | None:
        """Take GPUs for a job (its row) or a gang by one of the rules of `sim.kernels.placement`, within its quota.

        Returns the GPUs, int32, one a slot; None where no allowed type can hold the gang now (nothing is taken).
        """
        need, milli, worker, types, vc = gang if isinstance(gang, Gang) else self.gang(gang)
        if need > self.milli.size * WHOLE or not self._within(vc, need * milli):
            return None
        out = np.empty(max(need, 0), dtype=np.int32)
        # The kernels are compiled for the columns' own types.
        numbers = (np.int32(need), np.int32(milli), np.int32(worker), np.uint64(types))
        if place(RULES[rule], *numbers, self.state, self._shape, out, 0) < 0:
            return None
        self._charge(vc, need * milli)
        return out

    def place_by_type(
        self, counts: np.ndarray, milli: int = WHOLE, vc: int | None = None, rule: str = "consolidate"
    ) -> np.ndarray | None:
        """Take counts[t] slots of each GPU type t, by a rule in each type, within the quota.

        Returns the GPUs in the order of the types, int32; None where a type has too few (nothing is taken).
        """
        if not self._within(vc, int(counts.sum()) * milli):
            return None
        parts: list[np.ndarray] = []
        for t in np.flatnonzero(counts).tolist():
            part = self.place(Gang(int(counts[t]), milli, 1, 1 << t, vc), rule)
            if part is None:
                for taken in parts:
                    self.give(taken, milli, vc)
                return None
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def _within(self, vc: int | None, milli: int) -> bool:
        return vc is None or milli <= self.vc_left[vc]

    def _charge(self, vc: int | None, milli: int) -> None:
        if vc is not None:
            self.vc_left[vc] -= milli
