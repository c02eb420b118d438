"""The order of a cluster's GPU types: which type a policy that is blind to speed tries first, one rule for all.

The order is of the types alone and knows no job, so that such a policy stays blind: all its jobs prefer the same type.
It does not depend on the order in which the cluster was written, but for `listed`.

========  ==========================================================================================================
fastest   most samples a second on one GPU, by the performance model: the geometric mean over the models that jobs
          without one are given; of equal ones the cheaper, then by name
cheapest  lowest price of a GPU-hour, whatever it does in it; an unknown price comes last; of equal ones the faster,
          then by name
listed    as the cluster is written
random    drawn by the seed, one order for the whole run: what runs of several seeds differ by is what the order is
          worth (an order for each job would be another scheduler, which spreads jobs over all types)
========  ==========================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance.calibration import named_calibration
from sim.performance.model import Performance
from sim.performance.zoo import MODELS

STREAM = 15
"""Of the random order: `default_rng([seed, STREAM])`."""
IN_WORDS = {
    "fastest": "fastest first",
    "cheapest": "cheapest first",
    "listed": "as the cluster is written",
    "random": "in an order drawn by the seed",
}


def with_type_order(cluster: ClusterSpec, rule: str, calibration: str, seed: int) -> ClusterSpec:
    """The same cluster, its types in the order in which they are tried. Nodes keep their places and numbers.

    `calibration` (a shipped one or a file) is that of the speeds, `seed` that of the random order.
    """
    types = cluster.types
    if rule == "listed" or len(types) == 1:
        return cluster
    by_name = sorted(range(len(types)), key=lambda t: types[t].name)
    if rule == "random":
        order = [by_name[i] for i in np.random.default_rng([seed, STREAM]).permutation(len(types)).tolist()]
    else:
        slow = [-speed for speed in speeds(types, calibration)]
        price = [math.inf if gpu.price_usd_per_h is None else gpu.price_usd_per_h for gpu in types]
        first, then = (slow, price) if rule == "fastest" else (price, slow)
        order = sorted(by_name, key=lambda t: (first[t], then[t]))
    return cluster.with_types_in(order)


def speeds(types: Sequence[GpuType], calibration: str = "tuned") -> list[float]:
    """Samples a second on one GPU of each type, forward and backward, whether or not they fit its memory.

    The geometric mean over the models of the zoo that jobs without a model are given, in the largest of their batches.
    """
    performance = Performance(calibration=named_calibration(calibration))
    batches = {name: max(model.gpu_batch_sizes) for name, model in MODELS.items() if model.gpu_batch_sizes}
    found = []
    for gpu in types:
        logs = [math.log(batch / sum(float(part.sum()) for part in performance.op_times_s(model, batch, gpu)))
                for model, batch in batches.items()]
        found.append(math.exp(math.fsum(logs) / len(logs)))
    return found
