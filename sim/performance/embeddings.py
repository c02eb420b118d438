"""Embedding tables: copies of tied ones and the sums between their stages; rows touched of those with sparse gradients.

**Tied.** A stage that has a user of a table but not its first one keeps a copy: weights, gradients and optimizer state
of P more parameters, which it steps as its own. After each stage has summed the gradients of its copy over its
replicas, the k stages that hold one sum theirs, each replica with its peers, all at once (as the first and the last
stage of Megatron-LM, its embedding group): by a ring, of which each replica sends 2 (k - 1) / k of the table to the
next stage that holds one. For two stages that is the table there and the table back.

**Touched.** A sample reads v values in rows of a table with sparse gradients (`inner_bytes` of the operator that reads
them) and says which by i bytes of indices (`stored_bytes`). After the backward pass each replica gathers the rows of
all others, with their indices: an all-gather of

    S = samples (v b + i)  bytes of all replicas together, b bytes a value,

half of an all-reduce of as many, and never more than that of the whole table. Each replica then steps the rows of all:
samples v parameters, at most the table. Rows that several samples touch are counted each time. So do PyTorch's sparse
all-reduce, which gathers indices and values, and its SparseAdam, which steps the rows that have a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sim.cluster.spec import Links
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.messages import transfer_s
from sim.performance.running import Sums, holders
from sim.performance.stage_sites import StageGpus


def tied_sums_s(
    model: OperatorGraph, spans: Sequence[tuple[int, int]], stages: Sequence[StageGpus], devices: int,
    value_bytes: int, links: Links,
) -> list[float]:  # fmt: skip
    """Seconds that each stage waits for the sums of its tables' gradients with the other stages that hold them.

    Parameters
    ----------
    model : all of it, not a GPU's share.
    spans, stages : operators of each stage, and where it is; stage q is on the GPUs of stage q mod `devices`.
    """
    waits = [0.0] * len(spans)
    for users, params in model.tied:
        ring = sorted({q % devices for q in holders(users, spans)})
        if len(ring) < 2:
            continue
        num_bytes = 2 * (len(ring) - 1) / len(ring) * value_bytes * params
        took = max(
            max(transfer_s(num_bytes * max(a.replicas, b.replicas), *ends, links) for ends in ((a, b), (b, a)))
            for a, b in ((stages[q], stages[after]) for q, after in zip(ring, ring[1:] + ring[:1], strict=True))
        )
        for q in ring:
            waits[q] += took
    return waits


@dataclass(frozen=True, eq=False)
class Touched:
    """Of each operator's sparse parameters, for some samples of all replicas together.

    Attributes
    ----------
    params : stepped: float64 [ops].
    num_bytes : whose all-reduce takes as long as the exchange: float64 [ops].
    stepped, summed : running sums of both.
    """

    params: np.ndarray
    num_bytes: np.ndarray
    stepped: Sums
    summed: Sums


@lru_cache(maxsize=256)
def touched(graph: OperatorGraph, samples: float, value_bytes: int) -> Touched:
    """What so many samples touch; `graph` is a GPU's."""
    sparse = graph.sparse_params
    rows = np.where(sparse > 0, samples * graph.inner_bytes / VALUE_BYTES, 0.0)
    indices = np.where(sparse > 0, samples * graph.stored_bytes, 0.0)
    params = np.minimum(rows, sparse)
    num_bytes = np.minimum((rows * value_bytes + indices) / 2, sparse * value_bytes)
    return Touched(params, num_bytes, Sums(params), Sums(num_bytes))
