"""Sums of gradients that run while the backward pass does."""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def exposed_allreduce_s(
    bwd_s: np.ndarray,
    grad_bytes: np.ndarray,
    bucket_bytes: float,
    first_bucket_bytes: float,
    start_s: np.ndarray,
    s_per_byte: np.ndarray,
) -> float:
    """Seconds by which the sums of the gradients outlast the backward pass (Li et al. 2020, VLDB, section 3.2.3).

    The backward pass goes through the operators from the last to the first; an operator's gradients are ready when it
    is done. Gradients are put into a bucket in that order until it holds `bucket_bytes` or more (the first bucket:
    `first_bucket_bytes`), or none are left; then the bucket waits for the all-reduces before it, and is summed in

        min over i of  start_s[i] + bytes * s_per_byte[i]      (`collectives.allreduce_lines`)

    An operator's gradients stay together. The backward pass is not slowed by the messages beside it.

    Parameters
    ----------
    bwd_s, grad_bytes : float64 [ops], in the order of the forward pass.
    bucket_bytes, first_bucket_bytes : PyTorch has 25 MiB and 1 MiB; inf: one bucket at the end, no overlap.
    start_s, s_per_byte : float64 [ways], 1 or more.

    Returns
    -------
    Seconds from the end of the backward pass to that of the last all-reduce; 0 where there is nothing to sum.
    """
    end, ready, free, waiting, full = 0.0, 0.0, 0.0, 0.0, first_bucket_bytes
    for op in range(len(bwd_s) - 1, -1, -1):
        end += bwd_s[op]
        if grad_bytes[op] > 0.0:
            ready = end
            waiting += grad_bytes[op]
        if waiting > 0.0 and waiting >= full:
            free = max(free, ready) + np.min(start_s + waiting * s_per_byte)
            waiting, full = 0.0, bucket_bytes
    if waiting > 0.0:
        free = max(free, ready) + np.min(start_s + waiting * s_per_byte)
    return max(0.0, free - end)
