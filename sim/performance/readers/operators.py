"""What every reader makes: a list of operators in topological order, put together as an `OperatorGraph`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph, Profile


@dataclass
class Op:
    """An operator with its cost for a whole batch; fields as those of `OperatorGraph`."""

    name: str
    kind: str
    inputs: tuple[int, ...]
    out_bytes: float
    flops: float = 0.0
    params: float = 0.0
    stored_bytes: float = 0.0
    inner_bytes: float = 0.0
    launches: int = 1


def assemble(
    name: str,
    sample: str,
    sample_bytes: float,
    ops: Sequence[Op],
    *,
    samples: float = 1.0,
    profile: Profile | None = None,
) -> OperatorGraph:
    """The graph of operators whose costs, and `sample_bytes`, are for `samples` samples.

    No file says how an operator is split among GPUs, so none is: tensor parallelism would repeat each.
    """
    builder = GraphBuilder(name, sample, sample_bytes / samples)
    block = 0
    for op, of in zip(ops, recompute_blocks(ops), strict=True):
        if of != block:
            builder.next_block()
            block = of
        builder.add(
            op.name,
            op.kind,
            op.inputs,
            op.out_bytes / VALUE_BYTES / samples,
            flops=op.flops / samples,
            params=op.params,
            stored_bytes=op.stored_bytes / samples,
            inner_bytes=op.inner_bytes / samples,
            launches=op.launches,
        )
    return builder.build(profile)


def recompute_blocks(ops: Sequence[Op]) -> list[int]:
    """Number of the block of each operator: about sqrt(n) blocks that keep about the same bytes.

    A block begins only where one operator's output, or none, crosses: there are n such places. With sqrt(n) blocks
    recomputation needs memory of order sqrt(n) (Chen et al. 2016, arXiv:1604.06174, section 3).
    """
    last = list(range(len(ops)))
    for reader, op in enumerate(ops):
        for source in op.inputs:
            if source >= 0:
                last[source] = reader
    # Outputs alive over each border: made before it, read at or after it.
    change = [0] * (len(ops) + 1)
    for producer, reader in enumerate(last):
        change[producer + 1] += 1
        change[reader + 1] -= 1
    narrow, crossing = [], 0
    for at in range(len(ops)):
        crossing += change[at]
        narrow.append(at > 0 and crossing <= 1)
    target = sum(op.stored_bytes for op in ops) / max(1.0, math.sqrt(1 + sum(narrow)))
    blocks, block, kept = [], 0, 0.0
    for op, here in zip(ops, narrow, strict=True):
        if here and kept >= target:
            block, kept = block + 1, 0.0
        blocks.append(block)
        kept += op.stored_bytes
    return blocks
