"""What is free while a decision is made: a copy that starts and moves take from, so that no two of them collide."""

from __future__ import annotations

import numpy as np

from sim.api import View
from sim.kernels.ledger import give
from sim.kernels.placement import CONSOLIDATE, place


class Free:
    """Free GPUs and quotas as they will be once the decision so far is carried out.

    Attributes
    ----------
    milli, idle, type_idle : int32, free share of each GPU, wholly free GPUs of each node and of each type.
    vc_left : int64, what each virtual cluster may still take, milli-GPU.
    """

    def __init__(self, view: View, out: np.ndarray) -> None:
        spec = view.cluster
        self.milli, self.idle, self.type_idle = view.free_milli.copy(), view.idle.copy(), view.type_idle.copy()
        self.vc_left = view.vc_left.copy()
        self._shape = (spec.node_first, spec.node_type, spec.node_gpus, spec.gpu_node)
        self._out = out

    def take(self, counts: np.ndarray, milli: int, vc: int) -> np.ndarray | None:
        """Take slots of each type, those of a type on as few nodes as possible, fullest first.

        Returns the GPUs in the order of the types, int32; None where a type has too few.
        """
        at, state = 0, (self.milli, self.idle, self.type_idle, *self._shape)
        for t in np.flatnonzero(counts).tolist():
            at = place(CONSOLIDATE, int(counts[t]), milli, 1, np.uint64(1 << t), *state, self._out, at)
            if at < 0:
                return None
        self.vc_left[vc] -= at * milli
        return self._out[:at].copy()

    def give(self, gpus: np.ndarray, vc: int) -> None:
        """Return whole GPUs, each listed once."""
        _, node_type, _, gpu_node = self._shape
        give(gpus, 1000, self.milli, self.idle, self.type_idle, gpu_node, node_type)
        self.vc_left[vc] += gpus.size * 1000
