"""Recommendation: large tables, of which a sample reads a few rows."""

from __future__ import annotations

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import TOKEN_BYTES, linear, softmax_loss

CRITEO_ROWS = 33_762_577
"""Distinct values of the 26 categories of the Criteo Kaggle data."""


def table_rows(b: GraphBuilder, name: str, entries: int, width: int, tables: int, *, sparse: bool = True) -> int:
    """One row of each of `tables` tables with `entries` rows together; read and written."""
    params = entries * width
    return b.add(
        name,
        "embedding",
        (-1,),
        tables * width,
        params=params,
        sparse_params=params if sparse else 0,
        stored_bytes=TOKEN_BYTES * tables,
        inner_bytes=VALUE_BYTES * tables * width,
    )


def dlrm() -> OperatorGraph:
    """DLRM on the Criteo Kaggle data (Naumov et al. 2019, arXiv:1906.00091, section 5).

    Bottom layers 13-512-256-64-16, 26 tables 16 wide with sparse gradients, products of all pairs of the 27
    vectors, top layers 367-512-256-1.
    """
    width, tables, dense = 16, 26, 13
    b = GraphBuilder("dlrm", "a click with 13 numbers and 26 categories", TOKEN_BYTES * (dense + tables))
    x, n_in = -1, dense
    for i, n_out in enumerate((512, 256, 64, width)):
        x, n_in = linear(b, f"bottom{i}", x, n_in, n_out), n_out
    rows = table_rows(b, "tables", CRITEO_ROWS, width, tables)
    vectors = tables + 1
    n_in = vectors * (vectors - 1) // 2 + width
    stored = VALUE_BYTES * vectors * width
    # The whole product of the vectors with themselves is computed, half of it kept, beside the bottom's output.
    flops = 2.0 * vectors**2 * width
    inner = 2 * VALUE_BYTES * vectors**2
    b.next_block()
    x = b.add("pairs", "gemm", (x, rows), n_in, flops=flops, stored_bytes=stored, inner_bytes=inner, launches=3)
    for i, n_out in enumerate((512, 256, 1)):
        x, n_in = linear(b, f"top{i}", x, n_in, n_out), n_out
    softmax_loss(b, x, 1)
    return b.build()
