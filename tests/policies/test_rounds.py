"""Rounds: who holds GPUs when, by hand; time received comes to time deserved; and a whole policy on it, Gavel's."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from policies.checks import check_policy
from policies.mechanisms import Rounds
from sim.api import Policy, PolicyError, View
from sim.cli.schedulers import replay as runner
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import simulate
from sim.performance import MeasuredTable, Performance
from sim.performance.tables.points import Measurement, Point
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled, Recorded
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


def replay(trace: Trace, cluster: ClusterSpec, policy: Policy, **engine: Any):
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


@pytest.mark.parametrize("spare", ["idle", "fill"])
def test_who_runs_keeps_gpus_within_the_quota_only(spare: str) -> None:
    """Of three GPUs of its tenant the newcomer takes two, on the other type: job 0 keeps none of its two."""
    policy = fixed([[0.0, 0.5], [1.0, 0.0]])(round_s=10.0, spare=spare)
    trace = jobs([(0, 30, 2), (5, 10, 2)], vc=["p", "p"], gpu_type=["T4", "V100"])
    columns = segments(replay(trace, nodes(("V100", 1, 2), ("T4", 1, 2)), policy, quotas={"p": 3}))
    found = columns[["job_id", "begin_s", "end_s"]].itertuples(index=False, name=None)
    assert list(found) == [("0", 0, 10), ("1", 10, 20), ("0", 20, 40)]


def test_shares_of_nothing_win_nothing() -> None:
    """What a solver leaves where it means 0 brings no time; a type that the job may not use neither."""
    policy = fixed([[1.0, 1e-9], [0.5, 0.5]])(round_s=10.0)
    trace = jobs([(0, 30, 1), (0, 30, 1)], gpu_type=["", "V100"])
    found = schedule(trace, PAIR, policy)
    assert {ids[0] for _, _, _, ids in found} == {0}


# -- by hand: what a mechanism like Gavel's does otherwise -------------------------------------------------------


def who(trace: Trace, cluster: ClusterSpec, policy: Policy) -> list[tuple[str, float, int]]:
    """(job, begin, first GPU) of each segment, by begin."""
    return [(job, begin, ids[0]) for job, begin, _, ids in schedule(trace, cluster, policy)]


@dataclass
class Asked(Rounds):
    """Equal shares; keeps the times at which it was asked for them."""

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self.times_s: list[float] = []

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        self.times_s.append(view.now_s)
        return np.full((rows.size, len(view.cluster.types)), 1.0 / rows.size)


@pytest.mark.parametrize(
    ("every_s", "times_s"), [(0.0, [0, 10, 20, 30, 40, 52, 62]), (15.0, [0, 20, 40, 52]), (25.0, [0, 30, 52])])
def test_shares_are_found_anew_after_an_event_and_some_time(every_s: float, times_s: list[float]) -> None:
    """Job 1 comes at 12, job 0 ends at 35 and job 2 comes: that counts from the rounds of 20 and 40 on.

    By 40 the last solve, at 30, is not yet 25 s old. Where nothing runs, at 52, it is asked at once.
    """
    policy = Asked(round_s=10.0, solve_every_s=every_s, spare="fill")
    trace = jobs([(0, 35, 1), (12, 25, 1), (35, 9, 1), (52, 15, 1)])
    replay(trace, nodes(("V100", 1, 2)), policy)
    assert policy.times_s == times_s


def test_deficits_order_jobs_of_one_priority() -> None:
    """Half the time each. After the solve at 10, since job 2 has come, job 0 had 10 s for 5 and job 1 none.

    All three have half a round of credit: job 1 is owed 5 s, job 2 nothing, and job 0 owes 5 s.
    """
    trace = jobs([(0, 20, 1), (0, 10, 1), (1, 10, 1)])
    settings = {"round_s": 10.0, "solve_every_s": 5.0, "accounting": "since-solve"}
    found = who(trace, nodes(("V100", 1, 1)), fixed([[0.5], [0.5], [0.5]])(**settings))
    assert [job for job, _, _ in found] == ["0", "1", "2", "0"]


def test_priority_is_the_share_over_the_share_received_since_the_solve() -> None:
    """Credit of 5 s each, then 15 of 20 (2/3 / 0.75 < 1/3 / 0.25), 15 of 30, 25 of 40 (1.07 > 0.89), 35 of 50."""
    policy = fixed([[2 / 3], [1 / 3]])(round_s=10.0, accounting="since-solve", solve_every_s=1e6)
    found = who(jobs([(0, 35, 1), (0, 20, 1)]), nodes(("V100", 1, 1)), policy)
    assert [(job, begin) for job, begin, _ in found] == [("0", 0), ("1", 10), ("0", 20), ("1", 40), ("0", 50)]


@pytest.mark.parametrize(("spare", "begin_s"), [("idle", [0.0, 40.0]), ("fill", [0.0, 0.0])])
def test_gpus_that_nobody_deserves(spare: str, begin_s: list[float]) -> None:
    """Job 1 deserves no V100 while job 0 is there, and a T4 it may not use: it fills one, or waits."""

    @dataclass
    class First(Rounds):
        """All to the first job."""

        def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
            return np.where(rows == rows[0], 1.0, 0.0)[:, None] * np.array([1.0, 0.0])

    trace = jobs([(0, 40, 1), (0, 40, 1)], gpu_type=["", "V100"])
    found = schedule(trace, nodes(("V100", 1, 2), ("T4", 1, 1)), First(round_s=10.0, spare=spare))
    assert [begin for _, begin, _, _ in found] == begin_s
    assert {ids[0] for _, _, _, ids in found} <= {0, 1}


@pytest.mark.parametrize(("walk", "job", "gpu"), [("pairs", ["0", "1"], [1, 0]), ("types", ["0"], [0])])
def test_pairs_are_walked_by_priority_or_type_by_type(walk: str, job: list[str], gpu: list[int]) -> None:
    """Job 0 deserves more of the T4, on which it leaves the V100 to job 1; type by type it wins the V100 first."""
    policy = fixed([[0.5, 0.9], [0.4, 0.0]])(round_s=10.0, walk=walk, accounting="since-solve", solve_every_s=1e6)
    found = schedule(jobs([(0, 10, 1), (0, 10, 1)]), PAIR, policy)
    assert [(name, ids[0]) for name, begin, _, ids in found if begin == 0] == list(zip(job, gpu, strict=True))


def test_the_order_of_types_is_drawn_for_each_round() -> None:
    """One job that deserves both alike is on the type that was drawn first; another seed, another order."""

    def drawn(seed: int) -> list[int]:
        policy = fixed([[0.5, 0.5]])(round_s=10.0, walk="shuffled", shuffle_seed=seed, spare="fill")
        found = schedule(jobs([(0, 200, 1)]), PAIR, policy)
        return [ids[0] for _, begin, end, ids in found for _ in range(round((end - begin) / 10))]

    def orders(seed: int) -> list[int]:
        generator, first = random.Random(seed), []
        for _ in range(20):
            generator.shuffle(order := [0, 1])
            first.append(order[0])
        return first

    assert drawn(5) == orders(5) == drawn(5)
    assert drawn(6) == orders(6) != drawn(5)


@pytest.mark.parametrize(("wide_first", "gpus"), [(False, [[0], [1, 2]]), (True, [[2], [0, 1]])])
def test_wider_gangs_may_choose_first(wide_first: bool, gpus: list[list[int]]) -> None:
    policy = fixed([[1.0], [0.5]])(round_s=10.0, wide_first=wide_first, placement="first-fit")
    found = schedule(jobs([(0, 10, 1), (0, 10, 2)]), nodes(("V100", 1, 4)), policy)
    assert [ids for _, _, _, ids in found] == gpus


@dataclass
class Steps(Rounds):
    """Everybody deserves all of his time."""

    needs_throughput: ClassVar[bool] = True

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.ones((rows.size, len(view.cluster.types)))


def test_rounds_of_whole_steps() -> None:
    """Rounds of 10 s: at 1/4 of a step a second 2 steps fit, in 8 s, at 0.35 3, in 8.57 s; of 20 s one is made.

    Job 2 ends the first round at 20 s; job 0 and 1 wait for it, and then for another that ends when job 1 stops.
    """
    cluster, rate = nodes(("V100", 1, 3)), {"a": 0.25, "b": 0.35, "c": 0.05}
    table = MeasuredTable({Point(m, 0, "V100", 1, 1): Measurement(r) for m, r in rate.items()}, "a test")
    speeds = Performance(table=table, links=cluster.links)
    trace = jobs([(0, 1, 1)] * 3, model=list(rate), batch_size=[1] * 3, work_iters=[5, 6, 1])
    truth = Modelled(trace, cluster, speeds, cluster.types[0])
    policy = Steps(round_s=10.0, whole_steps=True)
    result = simulate(trace, cluster, policy, truth, EngineConfig(preemption_overhead_s=0.0), performance=speeds)
    found = [(row.job_id, row.begin_s, row.end_s, row.gpu_ids[0]) for row in segments(result).itertuples()]
    of_b = 3 / 0.35
    assert found == [
        ("0", 0, pytest.approx(8), 0), ("1", 0, pytest.approx(of_b), 1), ("2", 0, pytest.approx(20), 2),
        ("0", 20, pytest.approx(28), 0), ("1", 20, pytest.approx(20 + of_b), 1),
        ("0", pytest.approx(20 + of_b), pytest.approx(24 + of_b), 0),
    ]


def test_whole_steps_take_rates_and_wait_for_the_end_of_the_round() -> None:
    trace, cluster = jobs([(0, 10, 1)]), nodes(("V100", 1, 1))
    with pytest.raises(PolicyError, match="whole steps cannot be"):
        replay(trace, cluster, Steps(whole_steps=True, between="fill"))
    with pytest.raises(PolicyError, match="needs_throughput"):
        replay(trace, cluster, fixed([[1.0]])(whole_steps=True))


@pytest.mark.parametrize(
    ("first_s", "accounting", "begin_s"),
    [(5, "since-solve", 15), (5, "gavel-simulator", 105), (0, "since-solve", 10), (0, "gavel-simulator", 10)])
def test_faults_of_gavels_simulator(first_s: float, accounting: str, begin_s: float) -> None:
    """Job 1 comes right after job 0, and there is a GPU for it: it has it from the next round on. There it waits for
    the next solve, 100 s after the first; one at time 0 counts as none."""
    policy = fixed([[1.0], [1.0]])(round_s=10.0, accounting=accounting, solve_every_s=100.0, spare="fill")
    found = schedule(jobs([(first_s, 200, 1), (first_s + 1, 10, 1)]), nodes(("V100", 1, 2)), policy)
    assert [(job, begin) for job, begin, _, _ in found] == [("0", first_s), ("1", begin_s)]


# -- by law --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accounting", ["integrals", "since-solve"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(weights=st.lists(st.integers(1, 8), min_size=2, max_size=6))
def test_time_received_is_within_two_rounds_of_time_deserved(accounting: str, weights: list[int]) -> None:
    """One GPU, shares by weight, rounds of 1 s: each job has had its share of any number of rounds, up to two."""
    share = np.array(weights) / sum(weights)
    policy = fixed(share[:, None].tolist())(round_s=1.0, accounting=accounting)
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


LIKE_GAVEL = {"accounting": "since-solve", "solve_every_s": 60.0, "spare": "fill", "walk": "types", "wide_first": True}


@pytest.mark.parametrize("own", [
    {}, {"between": "fill"}, {"placement": "first-fit", "round_s": 7.0}, LIKE_GAVEL, {**LIKE_GAVEL, "between": "fill"},
    {**LIKE_GAVEL, "accounting": "gavel-simulator", "walk": "shuffled"},
], ids=str)
def test_it_passes_the_conformance_suite(own: dict) -> None:
    report = check_policy(GavelMaxMin, {"round_s": 30.0, **own}, runner=runner)
    assert report.ok, report.text
