"""Hare: Smith's order on one GPU, the relaxation's bound against brute force, turns and narrower gangs by hand."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.checks import Case
from policies.heterogeneous import hare
from policies.heterogeneous.hare import Hare
from policies.matching.machines import Machines
from policies.matching.relaxation import relaxed
from sim.cli.schedulers import replay
from sim.engine.simulate import RunResult
from tests.helpers import by_job, jobs, nodes, run, segments

ONE = nodes(("V100", 1, 1))


def schedule(result: RunResult) -> list[tuple[str, float, float]]:
    table = segments(result)
    return list(zip(table["job_id"], table["begin_s"], table["end_s"], strict=True))


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 9)), min_size=1, max_size=8), st.booleans())
@settings(max_examples=40)
def test_on_one_gpu_it_is_smiths_order(rows: list[tuple[int, int]], switches: bool) -> None:
    """All there at once: time over weight, the least first, which is the least weighted sum of completion times."""
    trace = jobs([(0.0, float(time_s), 1) for time_s, _ in rows], priority=[float(weight) for _, weight in rows])
    table = by_job(run(trace, ONE, "hare", {"switches": str(switches)}))
    got = sum(weight * table["end_s"][str(i)] for i, (_, weight) in enumerate(rows))
    smith = sorted(rows, key=lambda row: row[0] / row[1])
    assert got == pytest.approx(np.dot(np.cumsum([time for time, _ in smith]), [weight for _, weight in smith]))


@st.composite
def few_jobs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[float]]]:
    types, n = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    free_s = [draw(st.lists(st.sampled_from([0.0, 0.0, 7.0]), min_size=2, max_size=3)) for _ in range(types)]
    time_s = np.array([[float(draw(st.integers(1, 50))) for _ in range(types)] for _ in range(n)])
    width = np.array([draw(st.integers(1, 2)) for _ in range(n)])
    weight = np.array([float(draw(st.integers(1, 5))) for _ in range(n)])
    return time_s, width, weight, free_s


@given(few_jobs())
@settings(max_examples=60)
def test_no_schedule_is_better_than_the_relaxations_bound(case: Any) -> None:
    time_s, width, weight, free_s = case
    found = relaxed(time_s, width, weight, Machines(free_s))
    n, types = time_s.shape
    least = np.inf
    for order in permutations(range(n)):
        for on in product(range(types), repeat=n):
            machines, total = Machines(free_s), 0.0
            for i, t in zip(order, on, strict=True):
                total += weight[i] * (machines.take(t, int(width[i]), time_s[i, t]) + time_s[i, t])
            least = min(least, total)
    assert found.bound_s <= least * (1 + 1e-9)
    assert (found.middle_s > 0).all()


def test_the_relaxation_gives_each_job_the_type_that_it_gains_most_by() -> None:
    """Two jobs, equally long on the slow type; on the fast one the first gains more: it is in the middle earlier."""
    time_s = np.array([[10.0, 100.0], [50.0, 100.0]])
    found = relaxed(time_s, np.ones(2, dtype=int), np.ones(2), Machines([[0.0], [0.0]]))
    assert found.middle_s[0] < found.middle_s[1]


def test_a_shorter_job_takes_the_gpu_and_gives_it_back_where_tasks_take_turns() -> None:
    trace = jobs([(0, 1000, 1), (100, 50, 1)])
    assert schedule(run(trace, ONE, "hare")) == [("0", 0, 100), ("1", 100, 150), ("0", 150, 1050)]
    assert schedule(run(trace, ONE, "hare", {"switches": "false"})) == [("0", 0, 1000), ("1", 1000, 1050)]


def test_a_gang_runs_on_fewer_gpus_where_it_ends_sooner_so() -> None:
    """One of two GPUs is busy for long: the gang of two takes the other, unless it must be whole."""
    case = Case("half", (("V100", 1, 2),), {
        "job_id": ["0", "1"], "submit_s": [0.0, 10.0], "duration_s": [5000.0, 100.0], "num_gpus": [1, 2],
        "model": ["resnet50"] * 2, "batch_size": [32, 64], "estimate_s": [5000.0, 100.0],
    })
    half, whole = (
        {row["job_id"]: row for row in replay(case, Hare(switches=False, fewer=fewer)).tables["jobs"]}
        for fewer in (True, False)
    )
    assert half["1"]["first_start_s"] == 10.0
    assert half["1"]["end_s"] < half["0"]["end_s"] == whole["1"]["first_start_s"]


def test_where_the_solver_finds_nothing_the_order_is_time_over_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ArithmeticError("no solution")

    monkeypatch.setattr(hare, "relaxed", fails)
    trace = jobs([(0, 30, 1), (0, 10, 1), (0, 20, 1)], priority=[9.0, 1.0, 1.0])
    assert [job for job, *_ in schedule(run(trace, ONE, "hare"))] == ["0", "1", "2"]
