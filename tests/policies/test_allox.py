"""AlloX: the matching against brute force and known optima; schedules by hand; the public simulator, job by job."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.estimate.time_left import UNKNOWN_TIME
from policies.matching.positions import matched, turns
from sim.engine.simulate import RunResult
from tests.helpers import by_job, jobs, nodes, run, segments
from tests.policies.test_gavel_rounds import TO_HORIZON, replay_of, same_ends

ONE = nodes(("V100", 1, 1))
AS_IN_ROUNDS = {"solve_every_s": 1920.0, "spare": "fill", "walk": "types", "wide_first": True, "between": "wait",
                "busy": "left-out"}


def total_s(time_s: np.ndarray, kind: np.ndarray, ready_s: np.ndarray) -> float:
    """Sum of completion times when each machine does its jobs in the order of the matching."""
    machine, position = matched(time_s, kind, ready_s)
    total = 0.0
    for m in range(kind.size):
        mine = np.flatnonzero(machine == m)
        mine = mine[np.argsort(-position[mine])]
        total += (ready_s[m] + np.cumsum(time_s[mine, kind[m]])).sum()
    return float(total)


def least_s(time_s: np.ndarray, kind: np.ndarray, ready_s: np.ndarray) -> float:
    """The same, over all ways to spread the jobs; on one machine the shortest come first."""
    ways = product(range(kind.size), repeat=len(time_s))
    return min(sum((ready_s[m] + np.cumsum(np.sort(time_s[np.array(way) == m, kind[m]]))).sum()
                   for m in range(kind.size)) for way in ways)


cases = st.integers(1, 3).flatmap(lambda kinds: st.tuples(
    st.lists(st.lists(st.integers(1, 40) | st.just(np.inf), min_size=kinds, max_size=kinds)
             .filter(lambda row: min(row) < np.inf), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, kinds - 1), st.sampled_from([0, 0, 5, 30])), min_size=0, max_size=1),
    st.just(kinds),
))


@given(cases)
@settings(max_examples=60)
def test_the_matching_is_the_least_sum_of_completion_times(case: Any) -> None:
    rows, more, kinds = case
    time_s = np.array(rows, dtype=float)
    kind = np.array([*range(kinds), *(k for k, _ in more)])
    ready_s = np.array([*(0.0 for _ in range(kinds)), *(float(r) for _, r in more)])
    assert total_s(time_s, kind, ready_s) == pytest.approx(least_s(time_s, kind, ready_s), abs=1e-9)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 8))
@settings(max_examples=60)
def test_on_identical_machines_it_is_the_sum_of_shortest_first(times: list[int], machines: int) -> None:
    """The known optimum: the shortest first, each on the machine that is free first."""
    free, ends = np.zeros(machines), []
    for time_s in sorted(times):
        m = int(free.argmin())
        free[m] += time_s
        ends.append(free[m])
    got = total_s(np.array(times, dtype=float)[:, None], np.zeros(machines, dtype=int), np.zeros(machines))
    assert got == pytest.approx(sum(ends))


def test_few_positions_are_tried_first_and_as_many_as_it_takes() -> None:
    """One machine of two runs all of the jobs: on the other each takes a thousand times as long."""
    time_s = np.column_stack((np.arange(1.0, 41.0), np.arange(1.0, 41.0) * 1e3))
    machine, position = matched(time_s, np.array([0, 1]), np.zeros(2))
    assert machine.tolist() == [0] * 40
    assert position.tolist() == list(range(40, 0, -1))
    assert turns(machine, position).tolist() == list(range(40))


def test_a_job_that_no_machine_can_run_is_left_out() -> None:
    time_s = np.array([[np.inf, np.inf], [3.0, np.inf], [2.0, np.inf]])
    machine, position = matched(time_s, np.array([0, 1, 1]), np.zeros(3))
    assert machine.tolist() == [-1, 0, 0]
    assert position.tolist() == [0, 1, 2]


def schedule(result: RunResult) -> list[tuple[str, float, float]]:
    table = segments(result)
    return list(zip(table["job_id"], table["begin_s"], table["end_s"], strict=True))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), min_size=1, max_size=8))
@settings(max_examples=25)
def test_on_one_gpu_it_is_shortest_job_first(rows: list[tuple[int, int]]) -> None:
    trace = jobs([(float(submit), float(time), 1) for submit, time in sorted(rows)])
    ours, sjf = (schedule(run(trace, ONE, policy)) for policy in ("allox", "sjf"))
    assert [row[1:] for row in ours] == [row[1:] for row in sjf]


def test_who_runs_goes_on_and_with_preempts_the_shortest_go_first() -> None:
    trace = jobs([(0, 1000, 1), (1, 100, 1)])
    assert schedule(run(trace, ONE, "allox")) == [("0", 0, 1000), ("1", 1000, 1100)]
    rounds = run(trace, ONE, "allox", {"preempts": "true", "round_s": "50"})
    assert schedule(rounds) == [("0", 0, 50), ("1", 50, 150), ("0", 150, 1100)]


def test_fairness_matches_only_the_least_served_users() -> None:
    """User a has two GPUs; as one comes free, half of the waiting jobs is that of b, though a's is shorter."""
    trace = jobs([(0, 100, 1), (0, 300, 1), (1, 10, 1), (2, 50, 1)], user=["a", "a", "a", "b"])
    two = nodes(("V100", 1, 2))
    for chosen, order in (({"alpha": "1"}, "0123"), ({"alpha": "0.5"}, "0123"),
                          ({"alpha": "0.5", "fair_to": "users"}, "0132")):
        assert "".join(job for job, _, _ in schedule(run(trace, two, "allox", chosen))) == order


def test_a_gang_counts_by_its_work_and_passes_nobody_by_that_fits() -> None:
    """Of 4 GPUs one is busy: the gang of 4 waits for it, and the short single jobs go meanwhile."""
    trace = jobs([(0, 100, 1), (1, 50, 4), (2, 30, 1), (3, 30, 2)])
    assert schedule(run(trace, nodes(("V100", 1, 4)), "allox")) == [
        ("0", 0, 100), ("2", 2, 32), ("3", 3, 33), ("1", 100, 150)]


@pytest.mark.parametrize("horizon_s", TO_HORIZON)
@pytest.mark.parametrize("name", ["contS_12-12-12_s0_allox", "contS_8-8-8_s0_allox"])
def test_in_gavels_rounds_jobs_end_when_theirs_do(
    name: str, horizon_s: float | None, oracle_dir: Path, data_dir: Path
) -> None:
    replay = replay_of(name, oracle_dir / "gavel", data_dir, horizon_s, "allox", **AS_IN_ROUNDS)
    same_ends(replay.play(), oracle_dir / "gavel", name, horizon_s)


@pytest.mark.parametrize("policy", ["allox", "hydra", "hare"])
def test_an_unknown_run_time_is_the_mean_of_the_known_and_counted(policy: str) -> None:
    """Job 1, of unknown time, counts as (100 + 20) / 2 while both wait: it lets job 3 go first."""
    trace = jobs([(0, 50, 1), (1, 10, 1), (1, 100, 1), (1, 20, 1)])
    believed = np.array([50.0, np.nan, 100.0, 20.0])
    result = run(trace, ONE, policy, estimate_s=believed)
    starts = by_job(result)["first_start_s"]
    assert starts["3"] < starts["1"] < np.inf
    assert result.info["policy_counts"] == {UNKNOWN_TIME: 1}
