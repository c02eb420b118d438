"""Which GPU-count vectors are worth having: those that no other one with as few GPUs of each type equals in time."""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def first_of_fronts(vectors: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Mask [V] of the vectors that none before them in `order` is within: n[t] <= v[t] of each type t.

    Only what was kept is compared with: where one that was not kept beats a vector, that which beat it does so, too.

    Parameters
    ----------
    vectors : int64 [V, T].
    order : int64, rows of `vectors` from best to worst; rows that are not in it are not kept.
    """
    types = vectors.shape[1]
    keep = np.zeros(len(vectors), dtype=np.bool_)
    kept, count = np.empty(len(order), dtype=np.int64), 0
    for v in order:
        beaten = False
        for k in range(count):
            beaten = True
            for t in range(types):
                if vectors[kept[k], t] > vectors[v, t]:
                    beaten = False
                    break
            if beaten:
                break
        if not beaten:
            keep[v] = True
            kept[count] = v
            count += 1
    return keep
