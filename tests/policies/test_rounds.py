"""Rounds: who holds GPUs when, by hand; time received comes to time deserved; and a whole policy on it, Gavel's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from policies.checks import check_policy
from policies.mechanisms import Rounds
from sim.api import Policy, View
from sim.cli.schedulers import replay as runner
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import simulate
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import jobs, nodes, segments
from traces.trace import Trace

SPEED = {("a", "V100"): 3.0, ("a", "T4"): 1.0, ("b", "V100"): 0.8, ("b", "T4"): 1.0}
"""Iterations a second of a whole gang by model and GPU type; others: 1."""
PAIR = nodes(("V100", 1, 1), ("T4", 1, 1))


@dataclass
class GavelMaxMin(Rounds):
    """Max-min fairness over what each job gets of its speed on an equal share (Gavel, OSDI'20, section 4.1).

    max z  where  sum_t X[m,t] speed[m,t] / equal[m] >= z,  sum_t X[m,t] <= 1,  sum_m X[m,t] gpus[m] <= GPUs[t]
    """

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        jobs, types, there = view.jobs, view.cluster.types, view.cluster.gpus_by_type()
        n, k = rows.size, len(types)
        if n == 0:
            return np.zeros((0, k))
        speed = np.array([[SPEED.get((model, gpu.name), 1.0) for gpu in types] for model in jobs.model[rows]])
        speed *= self._types[rows]
        equal = (speed * there / there.sum()).sum(axis=1)
        worth = tuple(map(tuple, speed / equal[:, None]))
        return fairest(worth, tuple(jobs.gpus[rows].tolist()), tuple(there.tolist()))


@cache
def fairest(worth: tuple[tuple[float, ...], ...], gpus: tuple[int, ...], there: tuple[int, ...]) -> np.ndarray:
    """X of max z above; `worth` is speed over equal share. Kept: a case's rounds ask for the same programme again."""
    n, k = len(gpus), len(there)
    # Variables: X row by row, then z.
    fair = np.zeros((n, n * k + 1))
    whole, room = np.zeros_like(fair), np.zeros((k, n * k + 1))
    for i in range(n):
        own = slice(i * k, i * k + k)
        fair[i, own], fair[i, -1] = -np.array(worth[i]), 1.0
        whole[i, own] = 1.0
        room[np.arange(k), np.arange(i * k, i * k + k)] = gpus[i]
    most = np.concatenate((np.zeros(n), np.ones(n), there))
    cost = np.append(np.zeros(n * k), -1.0)
    shares: np.ndarray = linprog(cost, np.vstack((fair, whole, room)), most, method="highs").x[:-1].reshape(n, k)
    shares.setflags(write=False)
    return shares


def fixed(shares: list[list[float]]) -> type[Rounds]:
    """A policy whose jobs deserve these shares of time on each type, whatever happens."""

    @dataclass
    class Fixed(Rounds):
        """Fixed shares."""

        def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
            return np.array(shares)[rows]

    return Fixed


def replay(trace: Trace, cluster: ClusterSpec, policy: Policy, **engine: float):
    config = EngineConfig(**{"preemption_overhead_s": 0.0, **engine})
    return simulate(trace, cluster, policy, Recorded(trace, cluster), config)


def schedule(trace: Trace, cluster: ClusterSpec, policy: Policy) -> list[tuple[str, float, float, list[int]]]:
    """(job, begin, end, GPUs) of each segment, by begin."""
    columns = segments(replay(trace, cluster, policy))[["job_id", "begin_s", "end_s", "gpu_ids"]]
    return [(job, begin, end, list(ids)) for job, begin, end, ids in columns.itertuples(index=False)]


# -- by hand -------------------------------------------------------------------------------------------------


def test_a_third_of_the_time_is_every_third_round() -> None:
    """Rounds of 10 s. Job 0 has the larger share; then job 1 has had nothing; then 20/10 > 10/10, then a tie."""
    policy = fixed([[2 / 3], [1 / 3]])(round_s=10.0)
    found = schedule(jobs([(0, 35, 1), (0, 20, 1)]), nodes(("V100", 1, 1)), policy)
    assert found == [("0", 0, 10, [0]), ("1", 10, 20, [0]), ("0", 20, 40, [0]), ("1", 40, 50, [0]), ("0", 50, 55, [0])]


def test_jobs_change_types_at_the_end_of_a_round_and_stay_where_the_type_stays() -> None:
    """Half the time on each type: they swap. Job 2 deserves all of a T4, and stays on the one that it has."""
    cluster = nodes(("V100", 1, 1), ("T4", 1, 2))
    policy = fixed([[0.5, 0.5], [0.5, 0.5], [0, 1]])(round_s=10.0)
    found = schedule(jobs([(0, 20, 1), (0, 20, 1), (0, 20, 1)]), cluster, policy)
    assert found == [
        ("0", 0, 10, [0]), ("1", 0, 10, [2]), ("2", 0, 20, [1]), ("0", 10, 20, [2]), ("1", 10, 20, [0])]


@pytest.mark.parametrize(("between", "begin_s"), [("wait", 10.0), ("fill", 4.0)])
def test_gpus_that_come_free_within_a_round(between: str, begin_s: float) -> None:
    """Job 0 ends at 4. Job 2 is then started at once, or when the round ends; job 1 keeps its GPU until then."""
    policy = fixed([[1.0], [0.5], [0.5]])(round_s=10.0, between=between)
    found = schedule(jobs([(0, 4, 1), (0, 30, 1), (1, 3, 1)]), nodes(("V100", 1, 2)), policy)
    assert ("2", begin_s, begin_s + 3, [0]) in found
    assert found[1] == ("1", 0, 30, [1])


def test_a_round_begins_at_once_where_nothing_runs() -> None:
    policy = fixed([[1.0], [1.0]])(round_s=10.0)
    result = replay(jobs([(0, 3, 1), (1000, 3, 1)]), nodes(("V100", 1, 1)), policy)
    assert segments(result)["begin_s"].tolist() == [0, 1000]
    assert result.tables["decisions"]["now_s"].to_pylist() == [0, 3, 1000], "no alarm in the idle time"


def test_shares_of_nothing_win_nothing() -> None:
    """What a solver leaves where it means 0 brings no time; a type that the job may not use neither."""
    policy = fixed([[1.0, 1e-9], [0.5, 0.5]])(round_s=10.0)
    trace = jobs([(0, 30, 1), (0, 30, 1)], gpu_type=["", "V100"])
    found = schedule(trace, PAIR, policy)
    assert {ids[0] for _, _, _, ids in found} == {0}


# -- by law --------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 8), min_size=2, max_size=6))
def test_time_received_is_within_two_rounds_of_time_deserved(weights: list[int]) -> None:
    """One GPU, shares by weight, rounds of 1 s: each job has had its share of any number of rounds, up to two."""
    share = np.array(weights) / sum(weights)
    policy = fixed(share[:, None].tolist())(round_s=1.0)
    result = replay(jobs([(0, 1000, 1)] * share.size), nodes(("V100", 1, 1)), policy, horizon_s=60.0)
    table = segments(result)
    job, begin_s, until_s = table["job_id"].to_numpy(int), table["begin_s"].to_numpy(), table["end_s"].to_numpy()
    for end_s in range(1, 61):
        had_s = np.clip(np.minimum(until_s, end_s) - begin_s, 0, None)
        received_s = np.bincount(job, had_s, share.size)
        assert received_s.sum() == end_s
        assert (np.abs(received_s - share * end_s) <= 2).all(), (end_s, received_s)


# -- Gavel's -------------------------------------------------------------------------------------------------


def test_gavels_max_min_gives_each_type_to_whom_it_serves_best() -> None:
    """Model a is three times as fast on the V100, b slower: a gets the V100, b the T4, and nobody moves.

    By equal shares a has (3 + 1) / 2 = 2 and b 0.9. On T4 b has 1 / 0.9 of that, and time on the V100 would cost it.
    """
    trace = jobs([(0, 50, 1), (0, 50, 1)], model=["b", "a"], batch_size=[1, 1])
    assert schedule(trace, PAIR, GavelMaxMin(round_s=10.0)) == [("0", 0, 50, [1]), ("1", 0, 50, [0])]


def test_two_alike_share_the_fast_type_by_turns() -> None:
    """Both of model a: half the time on each type is the only fair share, (3 + 1) / 2 / 2 = 1 each."""
    trace = jobs([(0, 400, 1), (0, 400, 1)], model=["a", "a"], batch_size=[1, 1])
    table = segments(replay(trace, PAIR, GavelMaxMin(round_s=10.0)))
    on_fast = table[[ids[0] == 0 for ids in table["gpu_ids"]]]
    had_s = (on_fast["end_s"] - on_fast["begin_s"]).groupby(on_fast["job_id"]).sum()
    assert had_s.tolist() == [200, 200]


@pytest.mark.parametrize("own", [{}, {"between": "fill"}, {"placement": "first-fit", "round_s": 7.0}], ids=str)
def test_it_passes_the_conformance_suite(own: dict) -> None:
    report = check_policy(GavelMaxMin, {"round_s": 30.0, **own}, runner=runner)
    assert report.ok, report.text
