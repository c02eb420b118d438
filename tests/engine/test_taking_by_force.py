"""Whom a waiting job of higher priority takes GPUs from: from nobody while what is free would do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cluster.scratch import NO_QUOTA, Gang, Scratch
from sim.cluster.spec import Ledger
from sim.kernels.placement import RULES
from sim.kernels.preempt import select
from tests.helpers import jobs, nodes, run, segments


@pytest.mark.parametrize("rule", ["first-fit", "best-fit", "consolidate"])
def test_what_a_job_that_was_hit_leaves_is_free(rule: str) -> None:
    """Node 0: a, brief, on 7 GPUs, and b, the longest, on one. Node 1: c on 8. At 1 come d (4 GPUs) and e (1 GPU).

    d hits c, of which it takes four; that is when the other four are free. e takes one of these: b goes on.
    """
    trace = jobs([(0, 10, 7), (0, 1000, 1), (0, 100, 8), (1, 20, 4), (1, 30, 1)])
    result = run(trace, nodes(("V100", 2, 8)), "srtf", {"placement": rule})
    table = segments(result).groupby("job_id")
    assert table["end_s"].min()["2"] == 1
    assert table["end_s"].min()["1"] > 1
    assert set(table["gpu_ids"].first()["4"]) < set(range(8, 16))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_running_job_is_hit_while_what_is_free_would_do(data: st.DataObject) -> None:
    """Played again job by job: free is what nobody holds, and all that a job held that others took a GPU from."""
    cluster = nodes(("V100", data.draw(st.integers(1, 3)), data.draw(st.sampled_from([4, 8]))))
    rule = data.draw(st.sampled_from(list(RULES)))
    gang = st.tuples(st.sampled_from([1, 1, 2, 4]), st.integers(1, 4)).map(lambda g: Gang(g[0] * g[1], 1000, g[0]))
    gangs = data.draw(st.lists(gang, min_size=2, max_size=12))
    n, ledger = len(gangs), Ledger(cluster)
    key = np.array(data.draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)), dtype=float)
    columns = (*(np.array(column, dtype=np.int32) for column in list(zip(*gangs, strict=True))[:3]),
               np.full(n, 1, dtype=np.uint64), np.zeros(n, dtype=np.int32))  # fmt: skip
    free = Scratch(ledger.state, np.array([NO_QUOTA // 2]), ledger.shape, columns)
    holds: dict[int, set[int]] = {}
    slots, slot_n = np.zeros(columns[0].sum(), dtype=np.int32), np.zeros(n, dtype=np.int32)
    slot_at = np.concatenate(([0], np.cumsum(columns[0])[:-1])).astype(np.int64)
    for row in range(n):
        where = data.draw(st.sampled_from(["waits", *RULES]))
        if where != "waits" and (got := free.place(gangs[row], where)) is not None:
            slots[slot_at[row] : slot_at[row] + got.size], slot_n[row] = got, got.size
            holds[row] = set(got.tolist())
    order = sorted(range(n), key=lambda row: (key[row], row not in holds, row))
    running = np.array([row for row in order if row in holds], dtype=np.int32)
    queue = np.array([row for row in order if row not in holds], dtype=np.int32)
    rows, ends, out = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int64), np.empty(100, dtype=np.int32)
    chosen = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32), np.empty(n), np.zeros(3)
    trial = free.copy()
    count = select(running, key[running], queue, key[queue], True, RULES[rule], (slots, slot_at, slot_n), columns,
                   trial.vc_left, trial.state, ledger.shape, (rows, ends, out), chosen)
    begins = [0, *ends[:count].tolist()]
    gpus = {row: out[begins[k] : begins[k + 1]].copy() for k, row in enumerate(rows[:count].tolist())}

    hit: set[int] = set()
    for row in order:
        mine = holds.pop(row, set())
        if row not in gpus:
            continue
        assert not mine or row in hit, "moved, though nobody took its GPUs"
        takes = set(gpus[row].tolist())
        from_whom = [other for other in holds if other not in hit and holds[other] & takes]
        assert not from_whom or free.copy().place(gangs[row], rule) is None, "what is free would have done"
        for other in from_whom:
            free.give(np.array(sorted(holds[other]), dtype=np.int32))
            hit.add(other)
        assert free.take(gpus[row])
