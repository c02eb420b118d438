"""Hydra: least-cost sequences against brute force, deadlines where earliest deadline first meets them, and by hand."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.matching.least_cost import Task, cost_s, least_cost
from policies.matching.machines import Machines
from sim.engine.simulate import RunResult
from tests.helpers import by_job, jobs, nodes, run, segments

INF = float("inf")
ONE = nodes(("V100", 1, 1))


def schedule(result: RunResult) -> list[tuple[str, float, float]]:
    table = segments(result)
    return list(zip(table["job_id"], table["begin_s"], table["end_s"], strict=True))


def cost_of(tasks: list[Task], steps: Any, free_s: list[list[float]], late_weight: float) -> float:
    machines, total = Machines(free_s), 0.0
    for task, on in steps:
        if tasks[task].width > len(machines.free_s[on]):
            return INF
        start_s = machines.take(on, tasks[task].width, tasks[task].time_s[on])
        total += cost_s(tasks[task], start_s + tasks[task].time_s[on], late_weight)
    return total


@st.composite
def few_tasks(draw: st.DrawFn) -> tuple[list[Task], list[list[float]], float]:
    types = draw(st.integers(1, 2))
    free_s = [sorted(draw(st.lists(st.integers(0, 20).map(float), min_size=2, max_size=3))) for _ in range(types)]
    tasks = [Task(draw(st.integers(1, 2)),
                  tuple(float(draw(st.integers(1, 30))) for _ in range(types)),
                  draw(st.just(INF) | st.integers(-5, 60).map(float)))
             for _ in range(draw(st.integers(1, 4)))]
    return tasks, free_s, draw(st.sampled_from([0.0, 1.0, 50.0]))


@given(few_tasks())
@settings(max_examples=80)
def test_the_search_finds_the_least_cost(case: tuple[list[Task], list[list[float]], float]) -> None:
    tasks, free_s, late_weight = case
    steps, exact = least_cost(tasks, Machines(free_s), late_weight, 100_000)
    assert exact
    every = (zip(order, on, strict=True) for order in permutations(range(len(tasks)))
             for on in product(range(len(free_s)), repeat=len(tasks)))
    least = min(cost_of(tasks, way, free_s, late_weight) for way in every)
    assert sorted(task for task, _ in steps) == list(range(len(tasks)))
    assert cost_of(tasks, steps, free_s, late_weight) == pytest.approx(least)


def test_a_search_that_must_end_early_has_a_schedule_all_the_same() -> None:
    tasks = [Task(1, (float(t), 9.0 + t), 20.0) for t in (7, 9, 3, 8, 5, 6)]
    steps, exact = least_cost(tasks, Machines([[0.0, 0.0], [0.0]]), 10.0, 3)
    assert not exact
    assert sorted(task for task, _ in steps) == list(range(6))


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=8))
@settings(max_examples=40)
def test_it_meets_all_deadlines_where_earliest_deadline_first_does(rows: list[tuple[int, int]]) -> None:
    """On one GPU, all there at once, earliest deadline first meets all deadlines that can be met."""
    rows = sorted(rows, key=lambda row: row[1])
    ends = np.cumsum([time for time, _ in rows])
    due = ends + np.array([slack for _, slack in rows])  # earliest deadline first need not be in this order
    shuffled = np.random.default_rng(len(rows)).permutation(len(rows))
    trace = jobs([(0.0, float(rows[i][0]), 1) for i in shuffled], deadline_s=[float(due[i]) for i in shuffled])
    table = by_job(run(trace, ONE, "hydra", {"late_weight": "100000"}))
    assert (table["end_s"] <= table["deadline_s"]).all()


def test_without_deadlines_the_shortest_goes_first_and_with_them_the_urgent_one() -> None:
    rows = [(0.0, 100.0, 1), (1.0, 50.0, 1), (2.0, 10.0, 1)]
    assert [job for job, *_ in schedule(run(jobs(rows), ONE, "hydra"))] == ["0", "2", "1"]
    urgent = jobs(rows, deadline_s=[np.nan, 155.0, 1000.0])
    assert [job for job, *_ in schedule(run(urgent, ONE, "hydra"))] == ["0", "1", "2"]
    ahead = {"late_weight": "0"}
    assert [job for job, *_ in schedule(run(urgent, ONE, "hydra", ahead))] == ["0", "2", "1"]


def test_a_deadline_that_is_past_makes_a_job_no_more_urgent() -> None:
    trace = jobs([(0, 100, 1), (1, 50, 1), (2, 30, 1)], deadline_s=[np.nan, 20.0, 140.0])
    assert [job for job, *_ in schedule(run(trace, ONE, "hydra"))] == ["0", "2", "1"]


def test_gpus_that_are_kept_for_a_gang_are_lent_to_jobs_that_end_by_then() -> None:
    """Of 4 GPUs one is busy until 100: the gang waits, with window 1 nothing else is planned before it."""
    trace = jobs([(0, 100, 1), (1, 20, 4), (2, 90, 1), (3, 99, 1)])
    table = schedule(run(trace, nodes(("V100", 1, 4)), "hydra", {"window": "1"}))
    assert table == [("0", 0, 100), ("2", 2, 92), ("1", 100, 120), ("3", 120, 219)]
