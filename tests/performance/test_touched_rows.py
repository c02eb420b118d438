"""Tables with sparse gradients: the rows that a batch touches are exchanged and stepped, by hand and by law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.api import Plan, Stage
from sim.cli.whatif import on_full_nodes
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.embeddings import touched
from sim.performance.operator_time import update_time_s

SPEEDS = Performance()
DLRM = SPEEDS.graph("dlrm")
TABLE = DLRM.ops.index("tables")
V100 = gpu_type("V100")
VALUES, INDICES = 26 * 16, 26 * 4
"""Of a click: values read in 26 rows of 16, and bytes of 26 numbers that say which."""


def gang(batch: int, gpus: int, speeds: Performance = SPEEDS):
    return speeds.data_parallel("dlrm", batch, V100, (gpus,))


def free() -> Performance:
    """DLRM as if its tables had no gradients at all."""
    dense = DLRM.weight_params - DLRM.sparse_params
    return Performance(graphs={"dlrm": replace(DLRM, weight_params=dense, sparse_params=np.zeros(len(DLRM)))})


def test_rows_of_the_whole_batch_by_hand():
    rows = touched(DLRM, 4096.0, 2)
    assert rows.params[TABLE] == rows.params.sum() == 4096 * VALUES
    assert rows.num_bytes.sum() == 4096 * (2 * VALUES + INDICES) / 2
    assert rows.stepped(0, TABLE) == 4096 * VALUES
    assert rows.summed(TABLE + 1, len(DLRM) - 1) == 0


def test_a_batch_that_touches_all_rows_exchanges_no_more_than_the_table():
    rows = touched(DLRM, 1e9, 2)
    assert rows.params[TABLE] == DLRM.sparse_params[TABLE]
    assert rows.num_bytes[TABLE] == 2 * DLRM.sparse_params[TABLE]


def test_each_replica_gathers_the_rows_of_all_and_steps_them():
    """On four V100 the exchange is an all-reduce of half the rows' bytes more; the step is that of all rows more."""
    got, without = gang(4096, 4), gang(4096, 4, free())
    dense = float((DLRM.weight_params - DLRM.sparse_params).sum())
    lines = SPEEDS.allreduce_lines(V100, (4,))
    took = [min(start + n * slope for start, slope in zip(*lines, strict=True))
            for n in (2 * dense, 2 * dense + 4096 * (2 * VALUES + INDICES) / 2)]  # fmt: skip
    assert without.allreduce_s == pytest.approx(took[0])
    assert got.allreduce_s == pytest.approx(took[1])
    assert got.update_s - without.update_s == pytest.approx(update_time_s(4096 * VALUES, V100))


def test_one_gpu_steps_its_rows_and_exchanges_nothing():
    assert gang(512, 1).allreduce_s == 0
    assert gang(512, 1).update_s > gang(512, 1, free()).update_s


@given(st.integers(1, 6), st.sampled_from([64, 512, 4096]))
def test_replicating_tables_is_never_free_and_more_samples_never_cost_less(gpus, batch):
    one, more = gang(batch * 8, gpus), gang(batch * 16, gpus)
    without = gang(batch * 8, gpus, free())
    assert one.update_s > without.update_s
    assert one.allreduce_s > without.allreduce_s or gpus == 1
    assert one.allreduce_s <= more.allreduce_s
    assert one.update_s <= more.update_s


def test_asynchronous_stages_exchange_the_rows_of_a_micro_batch():
    """Each micro-batch is followed by its own exchange: of a quarter of the rows, four times."""
    last = len(DLRM) - 1
    cluster, gpus = on_full_nodes(plan := Plan((Stage(0, last, "V100", 2),), 4, schedule="async"), (V100,), 8, SPEEDS)
    got = SPEEDS.plan("dlrm", 4096, plan, gpus, cluster)
    dense = float((DLRM.weight_params - DLRM.sparse_params).sum())
    assert got.update_s == pytest.approx(4 * update_time_s(dense + 1024 * VALUES, V100))
