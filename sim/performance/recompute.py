"""Activation recomputation: the backward pass runs a block forward again instead of keeping what is inside it.

Chen et al. 2016, arXiv:1604.06174: of each block only what enters it is kept (a tensor that several blocks read, once).
A block is a run of operators with one number in `OperatorGraph.block`; a stage's border cuts it in two. A block that
stores no more than enters it is left alone: nothing would be saved.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from sim.performance.graph import OperatorGraph


def recompute_s(graph: OperatorGraph, fwd_s: np.ndarray, first_op: int, last_op: int) -> float:
    """Seconds by which recomputation lengthens the backward pass of a micro-batch in a stage.

    The forward time of the blocks that are recomputed.

    Parameters
    ----------
    fwd_s : float64 [ops], forward time of each operator of the graph.
    """
    again, _, _ = recomputed_blocks(graph, first_op, last_op)
    return float(fwd_s[first_op : last_op + 1][again].sum())


@lru_cache(maxsize=4096)
def recomputed_blocks(graph: OperatorGraph, first_op: int, last_op: int) -> tuple[np.ndarray, float, float]:
    """What recomputation does to the operators first_op to last_op (inclusive), for one sample.

    Returns
    -------
    again : bool [ops of the stage], whether the operator's block is recomputed: it stores more than enters it.
    kept_bytes : what enters those blocks (each tensor once), and what the other blocks store.
    once_bytes : activations of the largest recomputed block, less those that are kept anyway: tensors that enter it and
        are what one of its operators stores (one that stores as much as it reads).
    """
    span = slice(first_op, last_op + 1)
    numbers, block = np.unique(graph.block[span], return_inverse=True)
    reader, source, num_bytes = _reads(graph)
    enters = (reader >= first_op) & (reader <= last_op)
    enters &= (source < first_op) | (graph.block[source] != graph.block[reader])
    reads, source, num_bytes = reader[enters], source[enters], num_bytes[enters]
    reader = block[reads - first_op]

    def bytes_of_blocks(chosen: np.ndarray) -> np.ndarray:
        """What some reads bring into each block; a tensor that several operators of a block read enters it once."""
        _, distinct = np.unique(np.stack((reader[chosen], source[chosen])), axis=1, return_index=True)
        return np.bincount(reader[chosen][distinct], weights=num_bytes[chosen][distinct], minlength=len(numbers))

    entering = bytes_of_blocks(np.ones(len(reads), dtype=bool))
    stored = np.bincount(block, weights=graph.stored_bytes[span], minlength=len(numbers))
    again = stored > entering
    stored_too = bytes_of_blocks(graph.stored_bytes[reads] >= graph.in_bytes[reads])
    read_again = again[reader]
    _, distinct = np.unique(source[read_again], return_index=True)
    kept = stored[~again].sum() + num_bytes[read_again][distinct].sum()
    return again[block], float(kept), float((stored - stored_too)[again].max(initial=0.0))


@lru_cache(maxsize=64)
def _reads(graph: OperatorGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who reads whom (-1: the sample), and how many bytes: int64 [reads], int64 [reads], float64 [reads]."""
    reader = np.array([op for op, sources in enumerate(graph.inputs) for _ in set(sources)], dtype=np.int64)
    source = np.array([one for sources in graph.inputs for one in set(sources)], dtype=np.int64)
    num_bytes = np.where(source < 0, 0.0, graph.out_bytes[source])
    # The sample's bytes are what its first reader reads besides other operators.
    others = np.bincount(reader, weights=num_bytes, minlength=len(graph))
    return reader, source, np.where(source < 0, np.maximum(graph.in_bytes - others, 0.0)[reader], num_bytes)
