"""Shares of time by linear programs: optima by hand, brute probes, and laws that hold whatever the jobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shares.centre import centred
from policies.shares.demand import Demand, grouped
from policies.shares.finish_time import fairest_finish
from policies.shares.linear import SolverError, can_rise, raise_least, raise_sum
from policies.shares.objectives import fair_need, fairest, in_order, worthiest
from policies.shares.water_filling import always, by_tenant, filled

FEW = settings(max_examples=40, deadline=None, derandomize=True)


def single(speed: object, gpus: object, there: object) -> Demand:
    """Each job a group of its own."""
    speed = np.array(speed, dtype=float)
    return Demand(speed, np.array(gpus, dtype=float), np.ones(len(speed)), np.array(there, dtype=float))


@st.composite
def demands(draw: st.DrawFn, most: int = 6) -> Demand:
    """Some jobs on one to three types; some do not run on some types."""
    n, types = draw(st.integers(1, most)), draw(st.integers(1, 3))
    speed = draw(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 3.0]), min_size=types, max_size=types),
                          min_size=n, max_size=n))
    gpus = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=n, max_size=n))
    there = draw(st.lists(st.integers(1, 3), min_size=types, max_size=types))
    demand = single(speed, gpus, there)
    return Demand(np.where(demand.gpus[:, None] <= demand.there, demand.speed, 0.0), demand.gpus, demand.jobs,
                  demand.there)


def is_feasible(demand: Demand, shares: np.ndarray) -> bool:
    used = (demand.jobs * demand.gpus) @ shares
    return bool((shares >= 0).all() and (shares.sum(axis=1) <= 1 + 1e-7).all() and (used <= demand.there + 1e-6).all()
                and (shares[demand.speed == 0] == 0).all())


def level(demand: Demand, shares: np.ndarray, need: np.ndarray) -> float:
    asks = (need > 0) & (demand.fastest > 0)
    return float((demand.rate(shares)[asks] / need[asks]).min(initial=np.inf))


# -- fairness, by hand ---------------------------------------------------------------------------------------


def test_on_one_type_fair_shares_are_equal() -> None:
    """Three jobs, two GPUs: 2/3 of the time each, whatever their speeds; of a gang of two, half of that."""
    demand = single([[1], [5], [9]], [1, 1, 1], [2])
    assert fairest(demand, fair_need(demand, np.ones(3))) == pytest.approx(np.full((3, 1), 2 / 3))
    demand = single([[1], [5]], [1, 2], [1.5])  # z = gpus x: 1 x + 2 (x / 2) = 1.5
    assert fairest(demand, fair_need(demand, np.ones(2))) == pytest.approx(np.array([[0.75], [0.375]]))


def test_weights_are_shares_of_what_is_there() -> None:
    demand = single([[2], [2]], [1, 1], [1])
    assert fairest(demand, fair_need(demand, np.array([3.0, 1.0]))) == pytest.approx(np.array([[0.75], [0.25]]))


def test_two_jobs_two_types() -> None:
    """a: 3 and 1, b: 0.8 and 1. Means 2 and 0.9; a on the V100 has 1.5, b on the T4 1.11: b cannot have more."""
    demand = single([[3, 1], [0.8, 1]], [1, 1], [1, 1])
    need = fair_need(demand, np.ones(2))
    assert fairest(demand, need) == pytest.approx(np.eye(2))
    assert raise_least(demand, need).level == pytest.approx(1 / 0.9)


def test_three_jobs_two_types_by_hand() -> None:
    """a, a and b on one V100 and one T4. By prices of 1 and p for the types and y for b's time:

    each a has v and u of V100 and T4 with 3 v + u = 2 z; b has w of the T4 (w = 0.9 z), none of the V100. V100:
    v = 1/2, so u = 2 z - 1.5, and 2 (2 z - 1.5) + 0.9 z = 1: z = 4 / 4.9.
    """
    demand = single([[3, 1], [3, 1], [0.8, 1]], [1, 1, 1], [1, 1])
    shares = fairest(demand, fair_need(demand, np.ones(3)))
    z = 4 / 4.9
    assert shares[2] == pytest.approx([0, 0.9 * z], abs=1e-7)
    assert shares[:2].sum(axis=0) == pytest.approx([1, 1 - 0.9 * z])
    assert level(demand, shares, fair_need(demand, np.ones(3))) == pytest.approx(z)


def test_what_is_left_goes_to_who_gains_most() -> None:
    """Job 0 runs on the T4 only and holds the level down; job 1 gets the V100 whole, not just what the level asks."""
    demand = single([[0, 1], [4, 1]], [1, 1], [1, 1])
    assert fairest(demand, fair_need(demand, np.ones(2))) == pytest.approx(np.array([[0, 1], [1, 0]]))


def test_makespan_by_hand() -> None:
    """Work 6 and 2 on one type with one GPU of speed 2: all is done after 4 s; the shares are 3/4 and 1/4."""
    demand = single([[2], [2]], [1, 1], [1])
    assert fairest(demand, np.array([6.0, 2.0])) == pytest.approx(np.array([[0.75], [0.25]]))
    # Two types: a's work of 6 at 3 or 1, b's of 2 at 1 or 1: each on its own type is done after 2 s.
    apart = single([[3, 1], [1, 1]], [1, 1], [1, 1])
    assert raise_least(apart, np.array([6.0, 2.0])).level == pytest.approx(1 / 2)


# -- throughput and cost, by hand ----------------------------------------------------------------------------


def test_total_throughput_and_cost_by_hand() -> None:
    """One V100 and one T4. Most work: 3 + 1 on (a, b). For its money: 3/6 and 1/6, or 0.8/6 and 1/1."""
    demand = single([[3, 1], [0.8, 1], [0.5, 0.5]], [1, 1, 1], [1, 1])
    shares, met = worthiest(demand, demand.speed)
    assert (shares * demand.speed).sum() == pytest.approx(4)
    assert met == 1
    shares, _ = worthiest(demand, demand.speed / np.array([6.0, 1.0]))
    # a is worth 0.5 on the V100 and 1 on the T4, b 0.13 and 1: the T4 to b (or a), but a is worth 0.5 beside.
    assert shares == pytest.approx(np.array([[1, 0], [0, 1], [0, 0]]))


def test_deadlines_come_before_cost() -> None:
    """c must have 0.4 a second, 0.8 of either type: that costs 0.8 (0.5 - 0.5/6) on the V100, 0.8 (1.2 - 0.5) on T4."""
    demand = single([[3, 1], [0.8, 1.2], [0.5, 0.5]], [1, 1, 1], [1, 1])
    shares, met = worthiest(demand, demand.speed / np.array([6.0, 1.0]), np.array([0, 0, 0.4]))
    assert met == 1
    assert demand.rate(shares)[2] == pytest.approx(0.4)
    assert shares[2] == pytest.approx([0.8, 0], abs=1e-6) and shares[1] == pytest.approx([0, 1], abs=1e-6)


def test_deadlines_that_cannot_all_be_met_are_met_to_the_same_part() -> None:
    demand = single([[1], [1]], [1, 1], [1])
    shares, met = worthiest(demand, demand.speed, np.array([1.0, 0.6]))
    assert met == pytest.approx(1 / 1.6)
    assert demand.rate(shares) == pytest.approx([1 / 1.6, 0.6 / 1.6])


def test_in_order_by_hand() -> None:
    """Job 0 takes its best, job 1 the next best with room; job 2 finds no two GPUs, and 3 does not pass it."""
    speed = np.array([[3, 1.0], [2, 1], [1, 1], [1, 1]])
    assert in_order(speed, np.array([1, 1, 2, 1.0]), np.array([1, 2.0])).tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    nowhere = np.array([[0, 0.0], [1, 2]])
    assert in_order(nowhere, np.ones(2), np.ones(2)).tolist() == [[0, 0], [0, 1]]


def test_equal_shares() -> None:
    """Two GPUs of one type, one of the other, three jobs: 2/3 and 1/3 of the time; a gang of two, half of that."""
    demand = single([[1, 1]] * 3, [1, 1, 2], [2, 1])
    assert demand.equal() == pytest.approx(np.array([[2 / 3, 1 / 3], [2 / 3, 1 / 3], [1 / 3, 1 / 6]]))
    assert single([[1, 1]], [1], [4, 2]).equal() == pytest.approx(np.array([[2 / 3, 1 / 3]])), "never more than all"


# -- laws ----------------------------------------------------------------------------------------------------


@FEW
@given(demands(), st.data())
def test_no_shares_beat_the_level(demand: Demand, data: st.DataObject) -> None:
    """Shares are feasible, reach the level, and the prices prove that no other shares do."""
    need = fair_need(demand, np.array(data.draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=demand.gpus.size,
                                                         max_size=demand.gpus.size))))
    best = raise_least(demand, need, priced=True)
    shares = fairest(demand, need)
    assert is_feasible(demand, shares)
    if not (need > 0).any():
        return
    assert level(demand, shares, need) >= best.level * (1 - 1e-7)
    assert best.price @ need == pytest.approx(1)
    # max over feasible X of sum_i price_i rate_i is the level: a program of its own.
    bound = raise_sum(demand, best.price[:, None] * demand.speed)
    assert best.price @ demand.rate(bound) == pytest.approx(best.level, rel=1e-6)


@FEW
@given(demands(4), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_grouped_shares_are_as_good_as_single_ones(demand: Demand, copies: list[int]) -> None:
    """Each objective of alike jobs in one column is that of as many columns as jobs."""
    which = np.repeat(np.arange(demand.gpus.size), copies[: demand.gpus.size])
    left = np.array([3.0, 1.0, 7.0, 2.0])[which]
    many = Demand(demand.speed[which], demand.gpus[which], np.ones(which.size), demand.there)
    few, first, group = grouped(many.speed, many.gpus, many.there, left)
    assert few.jobs.sum() == which.size and (many.speed[first][group] == many.speed).all()
    for need in (fair_need(many, np.ones(which.size)), left):
        shares = fairest(few, need[first])[group]
        assert is_feasible(many, shares)
        assert level(many, shares, need) == pytest.approx(level(many, fairest(many, need), need), rel=1e-6)
    worth = [(demand.speed * shares).sum() for demand, shares in (
        (many, worthiest(few, few.speed)[0][group]), (many, worthiest(many, many.speed)[0]))]
    assert worth[0] == pytest.approx(worth[1], rel=1e-6)
    age_s, whole_s = left / 2, left + 1
    grouped_r = fairest_finish(few, age_s[first], left[first], whole_s[first])[1]
    assert grouped_r == pytest.approx(fairest_finish(many, age_s, left, whole_s)[1], rel=1e-5)


@FEW
@given(demands())
def test_the_centre_is_as_good_and_equals_share_what_they_cannot_tell_apart(demand: Demand) -> None:
    need = fair_need(demand, np.ones(demand.gpus.size))
    shares = fairest(demand, need, centre=True)
    assert is_feasible(demand, shares)
    assert level(demand, shares, need) == pytest.approx(level(demand, fairest(demand, need), need), rel=1e-6)


def test_the_centre_by_hand() -> None:
    """Two jobs that are alike on two types that are alike, each with a GPU: half of the time on each."""
    demand = single([[1, 1], [1, 1]], [1, 1], [1, 1])
    assert centred(demand, np.ones(2)) == pytest.approx(np.full((2, 2), 0.5), abs=1e-6)
    # At a level of 1/2 of one job, one GPU: x in [1/2, 1], rows x - 1/2, x, 1 - x twice: max of
    # log(x) + log(x - 1/2) + 2 log(1 - x) at 8 x^2 - 7 x + 1 = 0.
    alone = single([[1]], [1], [1])
    assert centred(alone, np.ones(1), 0.5) == pytest.approx((7 + 17**0.5) / 16, abs=1e-4)
    with pytest.raises(SolverError):
        centred(alone, np.ones(1), 2.0)


# -- finish times --------------------------------------------------------------------------------------------


def test_finish_time_fairness_by_hand() -> None:
    """One GPU, two jobs of 10 s, both new: each counts on half, 20 s; halves give both ratio 1."""
    demand = single([[1], [1]], [1, 1], [1])
    shares, r = fairest_finish(demand, np.zeros(2), np.full(2, 10.0), np.full(2, 20.0))
    assert r == pytest.approx(1) and shares == pytest.approx(np.full((2, 1), 0.5), abs=1e-5)
    # Job 1 is 10 s old and did nothing: (10 + 10 / x) / 20 = (10 / (1 - x)) / 20 -> x = 0.618
    shares, r = fairest_finish(demand, np.array([0, 10.0]), np.full(2, 10.0), np.full(2, 20.0))
    golden = (5**0.5 - 1) / 2
    assert shares[1, 0] == pytest.approx(golden, abs=1e-5) and r == pytest.approx(0.5 / (1 - golden), rel=1e-6)


@FEW
@given(st.integers(0, 2**32 - 1))
def test_finish_time_fairness_against_a_fine_grid(seed: int) -> None:
    """Two jobs on two types: no point of a grid of shares has a smaller ratio."""
    rng = np.random.default_rng(seed)
    demand = single(rng.uniform(0.3, 3, (2, 2)), [1, 1], [1, 1])
    age_s, left, whole_s = rng.uniform(0, 20, 2), rng.uniform(1, 20, 2), rng.uniform(5, 40, 2)
    shares, r = fairest_finish(demand, age_s, left, whole_s)
    assert is_feasible(demand, shares)
    # Shares (u, v) of job 0; job 1 has the rest of each GPU, as far as its time goes, first on its faster type.
    u, v = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
    fast = int(demand.speed[1].argmax())
    most = np.array([1 - u, 1 - v])
    first = most[fast]
    second = np.minimum(most[1 - fast], 1 - first)
    rates = (demand.speed[0, 0] * u + demand.speed[0, 1] * v,
             demand.speed[1, fast] * first + demand.speed[1, 1 - fast] * second)
    with np.errstate(divide="ignore"):
        ratio = np.maximum(*((age_s[i] + left[i] / rates[i]) / whole_s[i] for i in range(2)))
    grid = float(ratio[u + v <= 1].min())
    assert r <= grid * (1 + 1e-6)
    assert r >= grid * (1 - 0.05), "the grid comes close to the best"


@FEW
@given(demands(), st.integers(0, 2**32 - 1))
def test_finish_times_of_the_centre_are_as_good(demand: Demand, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = demand.gpus.size
    given_ = rng.uniform(0, 20, n), rng.uniform(1, 20, n), rng.uniform(5, 40, n)
    best = fairest_finish(demand, *given_)[1]
    assert fairest_finish(demand, *given_, centre=True)[1] == pytest.approx(best, rel=1e-5)


# -- water filling -------------------------------------------------------------------------------------------


def levels(demand: Demand, shares: np.ndarray, weight: np.ndarray) -> np.ndarray:
    need = fair_need(demand, weight)
    runs = need > 0
    return np.asarray(demand.rate(shares)[runs] / need[runs])


def test_water_rises_where_it_can() -> None:
    """Job 0 runs on the T4 only, and not well enough for the level; jobs 1 and 2 share the V100 evenly all the same."""
    demand = single([[0, 1], [4, 0], [4, 0]], [1, 1, 1], [1, 1])
    assert filled(demand, always(np.ones(3))) == pytest.approx(np.array([[0, 1], [0.5, 0], [0.5, 0]]))


@FEW
@given(demands(5), st.data())
def test_water_filling_is_lexicographic(demand: Demand, data: st.DataObject) -> None:
    """By brute probing: no job can have more unless one with no more than it has less."""
    weight = np.array(data.draw(st.lists(st.sampled_from([1.0, 3.0]), min_size=demand.gpus.size,
                                         max_size=demand.gpus.size)))
    shares = filled(demand, always(weight))
    assert is_feasible(demand, shares)
    need = fair_need(demand, weight)
    runs = np.flatnonzero(need > 0)
    had = np.zeros(need.size)
    had[runs] = levels(demand, shares, weight)
    for row in runs:
        keep = np.where(had <= had[row] * (1 + 1e-6), had, np.minimum(had, had[row])) * need
        keep[row] = 0
        raised = raise_least(demand, np.where(np.arange(need.size) == row, need, 0.0), keep * (1 - 1e-9))
        assert raised.level <= had[row] + 1e-3 * demand.fastest[row] / need[row]


@FEW
@given(demands(5))
def test_who_can_rise_is_told_by_one_program(demand: Demand) -> None:
    """The same as asking for each job alone."""
    need = fair_need(demand, np.ones(demand.gpus.size))
    best = raise_least(demand, need)
    floor = np.where(need > 0, best.level * need, 0.0) if (need > 0).any() else np.zeros(need.size)
    rises = can_rise(demand, floor, np.ones(need.size, dtype=bool))
    for row in np.flatnonzero(need > 0):
        alone = raise_least(demand, np.where(np.arange(need.size) == row, demand.fastest, 0.0), floor)
        assert rises[row] == (alone.level > 1e-3), (row, alone.level)


def test_tenants_by_hand() -> None:
    """Two and a half GPUs of one type. Tenant 0, weight 3, has one job of one GPU; what it cannot use tenant 1 has."""
    demand = single([[1], [1], [1]], [1, 1, 1], [2.5])
    weights = by_tenant(np.array([0, 1, 1]), np.array([3.0, 1.0]), np.array([1.0, 2, 1]), np.ones(3), "fair")
    # All rise 3 : 2/3 : 1/3 until job 0 is full at 1; jobs 1 and 2 then share 1.5 as 2 : 1, job 1 full at 1, 2 at 0.5.
    assert filled(demand, weights) == pytest.approx(np.array([[1], [1], [0.5]]))
    both = single([[1]] * 4, [1] * 4, [2])
    weights = by_tenant(np.array([0, 0, 1, 1]), np.array([1.0, 1.0]), np.ones(4), np.ones(4), "fifo")
    assert filled(both, weights) == pytest.approx(np.array([[1], [0], [1], [0]]), abs=1e-6), "the first of each tenant"
    weights = by_tenant(np.array([0, 0, 1, 1]), np.array([3.0, 1.0]), np.ones(4), np.ones(4), "fair")
    assert filled(single([[1]] * 4, [1] * 4, [1]), weights) == pytest.approx(
        np.array([[0.375], [0.375], [0.125], [0.125]]))


def test_tenants_in_groups_are_as_single_jobs() -> None:
    """Three alike jobs of one tenant in one column rise as they do in three."""
    each = single([[2, 1]] * 3 + [[1, 1]], [1] * 4, [1, 1])
    tenant = np.array([0, 0, 0, 1])
    alone = filled(each, by_tenant(tenant, np.ones(2), np.ones(4), np.ones(4), "fair"))
    few, first, group = grouped(each.speed, each.gpus, each.there, tenant.astype(float))
    together = filled(few, by_tenant(tenant[first], np.ones(2), np.ones(2), few.jobs, "fair"))[group]
    assert levels(each, together, np.ones(4)) == pytest.approx(levels(each, alone, np.ones(4)), rel=1e-6)


# -- bad input -----------------------------------------------------------------------------------------------


def test_nobody_and_nothing() -> None:
    """No jobs; jobs that run nowhere; types without GPUs: no shares, no errors."""
    nobody = Demand(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.ones(2))
    assert grouped(nobody.speed, nobody.gpus, nobody.there)[0].gpus.size == 0
    for demand in (nobody, single([[0, 0], [0, 0]], [1, 1], [1, 1]), single([[0, 0]], [1], [0, 0])):
        n = demand.gpus.size
        none = np.zeros((n, 2))
        assert fairest(demand, fair_need(demand, np.ones(n))).tolist() == none.tolist()
        assert fairest(demand, fair_need(demand, np.ones(n)), centre=True).tolist() == none.tolist()
        assert filled(demand, always(np.ones(n))).tolist() == none.tolist()
        assert worthiest(demand, demand.speed, np.ones(n))[0].tolist() == none.tolist()
        assert fairest_finish(demand, np.ones(n), np.ones(n), np.ones(n))[0].tolist() == none.tolist()


def test_a_row_of_zeros_among_others_has_no_share_and_holds_nobody_down() -> None:
    demand = single([[0, 0], [3, 1], [3, 1]], [1, 1, 1], [1, 1])
    shares = fairest(demand, fair_need(demand, np.ones(3)))
    assert shares[0].tolist() == [0, 0]
    assert demand.rate(shares)[1:] == pytest.approx([2, 2])


def test_floors_that_cannot_be_kept_and_time_that_is_up() -> None:
    demand = single([[1], [1]], [1, 1], [1])
    with pytest.raises(SolverError) as refused:
        raise_sum(demand, demand.speed, np.ones(2))
    assert not refused.value.limit
    many = np.random.default_rng(0).uniform(0.2, 3, (400, 3))
    with pytest.raises(SolverError) as late:
        raise_least(single(many, np.ones(400), [9, 9, 9]), np.ones(400), limit_s=1e-9)
    assert late.value.limit
