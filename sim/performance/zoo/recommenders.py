"""Recommendation: large tables, of which a sample reads a few rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import TOKEN_BYTES, linear, softmax_loss

CRITEO_ROWS = 33_762_577
"""Distinct values of the 26 categories of the Criteo Kaggle data."""


def table_rows(
    b: GraphBuilder, name: str, entries: int, width: int, tables: int, *, sparse: bool = True, lookups: int = 1
) -> int:
    """The sum of `lookups` rows of each of `tables` tables with `entries` rows together; read and written.

    Those with sparse gradients may be divided among replicas (Naumov et al. 2019, arXiv:1906.00091, section 4).
    """
    params = entries * width
    return b.add(
        name,
        "embedding",
        (-1,),
        tables * width,
        params=params,
        sparse_params=params if sparse else 0,
        shards=math.inf if sparse else 0,
        stored_bytes=TOKEN_BYTES * tables * lookups,
        inner_bytes=VALUE_BYTES * tables * width * lookups,
    )


def dlrm() -> OperatorGraph:
    """DLRM on the Criteo Kaggle data (Naumov et al. 2019, arXiv:1906.00091, section 5).

    Bottom layers 13-512-256-64-16, 26 tables 16 wide with sparse gradients, products of all pairs of the 27
    vectors, top layers 367-512-256-1.
    """
    return _dlrm("dlrm", {"tables": (CRITEO_ROWS, 26)}, 16, (512, 256, 64, 16), (512, 256, 1))


def dlrm_of_tables(name: str, rows: int, width: int, tables: int, lookups: int) -> OperatorGraph:
    """DLRM with tables of any size, each an operator, so that a plan may put them on several GPUs.

    Layers as in MLPerf's benchmark on Criteo Terabyte: bottom 13-512-256-width, top 1024-1024-512-256-1. Rows are
    divided evenly; its own 204,184,588, at most 40 million a table, are in five large tables and 21 small ones.
    """
    each, rest = divmod(rows, tables)
    named = {f"tables.{k}": (each + (k < rest), 1) for k in range(tables)}
    return _dlrm(name, named, width, (512, 256, width), (1024, 1024, 512, 256, 1), lookups)


def _dlrm(
    name: str, tables: Mapping[str, tuple[int, int]], width: int, bottom: Sequence[int], top: Sequence[int],
    lookups: int = 1,
) -> OperatorGraph:  # fmt: skip
    """Of each operator that reads tables: their rows together, and how many they are."""
    dense, vectors = 13, 1 + sum(many for _, many in tables.values())
    sample = f"a click with {dense} numbers and {vectors - 1} categories"
    b = GraphBuilder(name, sample, TOKEN_BYTES * (dense + (vectors - 1) * lookups))
    x, n_in = -1, dense
    for i, n_out in enumerate(bottom):
        x, n_in = linear(b, f"bottom{i}", x, n_in, n_out), n_out
    rows = [table_rows(b, at, entries, width, many, lookups=lookups) for at, (entries, many) in tables.items()]
    n_in = vectors * (vectors - 1) // 2 + width
    stored = VALUE_BYTES * vectors * width
    # The whole product of the vectors with themselves is computed, half of it kept, beside the bottom's output.
    flops = 2.0 * vectors**2 * width
    inner = 2 * VALUE_BYTES * vectors**2
    b.next_block()
    x = b.add("pairs", "gemm", (x, *rows), n_in, flops=flops, stored_bytes=stored, inner_bytes=inner, launches=3)
    for i, n_out in enumerate(top):
        x, n_in = linear(b, f"top{i}", x, n_in, n_out), n_out
    softmax_loss(b, x, 1)
    return b.build()
