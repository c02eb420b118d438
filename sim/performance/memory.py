"""Memory that a GPU needs for its part of a model."""

from __future__ import annotations

from sim.performance.graph import OperatorGraph

PARAM_BYTES = 16
"""Mixed-precision Adam: weight and gradient (2 + 2), weight and two moments in single precision (12).

Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1.
"""
CONTEXT_GIB = 1.0
"""CUDA context, libraries' workspaces and what the allocator cannot use. An estimate."""


def in_flight(schedule: str, stage: int, stages: int, micro_batches: int) -> int:
    """Micro-batches whose activations a stage holds at once.

    Min(m, p - s) under 1F1B (s from 0), m under GPipe.
    """
    return micro_batches if schedule == "gpipe" else min(micro_batches, stages - stage)


def memory_gib(graph: OperatorGraph, first_op: int, last_op: int, samples: float, held: int) -> float:
    """GiB that a GPU needs for operators first_op to last_op (inclusive).

    PARAM_BYTES * parameters + held * samples * stored activations + samples * (largest operator's input and
    output, whose gradients pass through) + CONTEXT_GIB.

    Parameters
    ----------
    samples : samples of a micro-batch that the GPU works on.
    held : micro-batches whose activations it keeps (`in_flight`).
    """
    span = slice(first_op, last_op + 1)
    passing = (graph.in_bytes[span] + graph.out_bytes[span]).max()
    num_bytes = (
        PARAM_BYTES * graph.weight_params[span].sum()
        + held * samples * graph.stored_bytes[span].sum()
        + samples * passing
    )
    return float(num_bytes) / 2**30 + CONTEXT_GIB
