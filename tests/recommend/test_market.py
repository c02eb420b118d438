"""Prices of GPU types and the moves that pay at them: by hand, against plain Python, and by law."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.recommend.market.classes import JobClass
from policies.recommend.market.gpu_prices import CAP, Market
from sim.hardware.gputypes import gpu_type
from sim.kernels.bidding import cheapest, classes_that_fit, clear, costs_per_s, first_move

V100, P100, T4 = (gpu_type(name) for name in ("V100", "P100", "T4"))
ONE = np.ones(1)


def demand(counts, iteration_s, first, jobs, price, worth):
    """GPUs of each type that jobs ask for: each class the first of its plans of least cost, in plain Python."""
    total = [0.0] * len(price)
    for c, n in enumerate(jobs):
        plans = range(first[c], first[c + 1])
        if n and plans:
            costs = [(worth + sum(price * counts[p])) * iteration_s[p] for p in plans]
            best = plans[costs.index(min(costs))]
            total = [have + n * more for have, more in zip(total, counts[best], strict=True)]
    return np.array(total)


# -- prices --------------------------------------------------------------------------------------------------


def step(jobs, *, price=1.0, floor=1.0, cap=100.0, worth=0.0, supply=2.0):
    """The price after one step where jobs may take 1 GPU (1 s an iteration) or 2 (0.6 s)."""
    return float(clear(
        np.array([[1.0], [2.0]]), np.array([1.0, 0.6]), np.array([0, 2]), np.array([jobs]), supply * ONE,
        price * ONE, floor * ONE, cap, worth, 0.3, 1,
    )[0])  # fmt: skip


def test_what_a_second_costs():
    """Time is worth 5: 5 + 2 x 3 + 1 x 4. Who has no jobs needs no cost."""
    counts, first = np.array([[2.0, 1.0], [0.0, 0.0], [1.0, 1.0]]), np.array([0, 2, 3])
    cost = costs_per_s(counts, first, np.array([4, 0]), np.array([3.0, 4.0]), 5.0)
    assert cost[:2].tolist() == [15.0, 5.0] and np.isnan(cost[2])


def test_a_price_moves_with_demand_less_supply():
    """One GPU costs 1 an iteration, two 1.2: three jobs ask for 3 of 2 GPUs, half more than there are."""
    assert step(3) == pytest.approx(np.exp(0.3 * 0.5))
    assert step(2) == 1.0
    assert step(1, price=4.0) == pytest.approx(4 * np.exp(-0.3 * 0.5))


def test_jobs_whose_time_is_worth_more_ask_for_more():
    """With an hour worth 1 one GPU costs 2, two 3 x 0.6 = 1.8: three jobs ask for 6. A step is at most `rate`."""
    assert step(3, worth=1.0) == pytest.approx(np.exp(0.3))
    assert step(1, worth=1.0) == 1.0


def test_a_price_stays_between_its_floor_and_its_cap():
    assert step(0, price=1.1) == 1.0
    assert step(100, price=99.0) == 100.0


def test_a_type_that_is_not_there_keeps_its_price():
    assert step(3, price=7.0, supply=0.0) == 7.0


def test_prices_rest_where_each_job_is_on_the_type_that_it_needs_more_than_others_do():
    """Both are faster on A, the second four times, the first twice; there is one of each.

    A gets dearer until the first leaves it: exp(0.3 x 3) = 2.46 > 2. There prices rest, each type has its job.
    """
    table = np.array([[1.0, 0.0], [0.0, 1.0]] * 2), np.array([1.0, 2.0, 1.0, 4.0]), np.array([0, 2, 4])
    jobs, supply, floor = np.array([1, 1]), np.ones(2), np.ones(2)
    price = clear(*table, jobs, supply, floor, floor, 100.0, 0.0, 0.3, 50)
    assert price == pytest.approx([np.exp(0.9), 1.0])
    assert demand(*table, jobs, price, 0.0).tolist() == [1.0, 1.0]


whole = st.integers(0, 3).map(float)
classes = st.lists(  # plans of each class: GPUs of two types, and time
    st.lists(st.tuples(whole, whole, st.sampled_from([1.0, 2.0, 3.0, 5.0])), max_size=4), min_size=1, max_size=4,
)


def table(drawn):
    rows = [plan for plans in drawn for plan in plans]
    first = np.cumsum([0, *map(len, drawn)])
    return np.array([row[:2] for row in rows]).reshape(-1, 2), np.array([row[2] for row in rows], float), first


@given(classes, st.lists(st.integers(0, 5), min_size=4, max_size=4), st.tuples(whole, whole),
       st.tuples(st.floats(1, 8), st.floats(1, 8)), st.sampled_from([0.0, 1.0, 10.0]))
def test_prices_rise_where_demand_exceeds_supply_and_rest_only_where_it_does_not(drawn, jobs, supply, price, worth):
    plans, jobs = table(drawn), np.array(jobs[: len(drawn)])
    price, floor, cap = np.array(price), np.ones(2), 8.0
    wanted = demand(*plans, jobs, price, worth)
    new = clear(*plans, jobs, np.array(supply), price, floor, cap, worth, 0.3, 1)
    assert ((floor <= new) & (new <= cap * floor)).all()
    for t in range(2):
        if supply[t] == 0 or wanted[t] == supply[t]:
            assert new[t] == price[t]
        elif wanted[t] > supply[t]:
            assert new[t] > price[t] or new[t] == cap
        else:
            assert new[t] < price[t] or new[t] == 1.0
    assert (clear(*plans, jobs, np.array(supply), price, floor, cap, worth, 0.3, 0) == price).all()


# -- the catalogue's prices ----------------------------------------------------------------------------------


def known(*rows):
    """A class of jobs: (GPUs of each type, seconds an iteration)."""
    counts, iteration_s = zip(*rows, strict=True)
    return JobClass(("toy", 1, 1, 1000, 3), (None,) * len(rows), np.array(counts, np.int32), np.array(iteration_s))


def test_an_unknown_price_counts_as_the_dearest_and_a_free_type_as_almost_nothing():
    unknown, free = replace(P100, price_usd_per_h=None), replace(T4, price_usd_per_h=0.0)
    assert Market((V100, unknown, T4), np.ones(3), 5.0).floor.tolist() == [3.06, 3.06, 0.526]
    assert Market((unknown, unknown), np.ones(2), 5.0).floor.tolist() == [1.0, 1.0]
    assert Market((V100, free), np.ones(2), 5.0).floor.tolist() == [3.06, 1e-6]


def test_costs_and_what_fits_class_by_class():
    """At the catalogue's prices, time worth 5: (5 + 3.06) x 2 s, (5 + 0.526) x 6 s; (5 + 6.12) x 1 s."""
    market = Market((V100, T4), np.array([2, 1]), 5.0)
    assert market.add(known(([1, 0], 2.0), ([0, 1], 6.0))) == 0
    assert market.add(known(([2, 0], 1.0))) == 1
    market.update(np.array([1, 0]), np.array([0, 0]))
    assert market.costs(0) == pytest.approx([16.12, 33.156])
    assert np.isnan(market.costs(1)).all()
    market.update(np.array([1, 0]), np.array([0, 1]))
    assert market.costs(1) == pytest.approx([11.12])
    assert market.fits(np.array([1, 1])).tolist() == [True, False]
    assert market.fits(np.array([2, 0])).tolist() == [True, True]
    assert market.fits(np.array([0, 0])).tolist() == [False, False]


def test_a_crowd_that_no_price_clears_leaves_the_price_at_its_cap():
    market = Market((V100,), np.array([1]), 5.0)
    market.add(known(([1], 1.0)))
    for _ in range(20):
        market.update(np.array([0]), np.array([50]))
    assert market.price.tolist() == [3.06 * CAP]
    for _ in range(20):
        market.update(np.array([0]), np.array([0]))
    assert market.price.tolist() == [3.06]


# -- moves ---------------------------------------------------------------------------------------------------


def test_a_move_pays_when_what_it_saves_exceeds_the_restart():
    """A second costs 4 on plan 0 (2 s), 6 on plan 1 (1 s): per second 4 - 6 / 2 = 1 is saved, a restart costs 6 x 10.

    So it pays after more than 60 s.
    """
    for stretch_s, answer in ((60.0, (-1, -1)), (61.0, (0, 1))):
        assert first_move(
            np.array([0]), np.array([0]), np.array([2.0]), np.array([stretch_s]), np.array([1]), np.array([1]),
            np.array([[1.0], [2.0]]), np.array([2.0, 1.0]), np.array([0, 2]), np.array([4.0, 6.0]), 10.0,
        ) == answer


def test_a_job_on_spread_gpus_leaves_them_for_another_plan_but_not_for_its_own():
    """An iteration takes 2 s on full nodes, 4 s where the job is: plan 1 at 6 a second and 1 s then saves 4 - 6 / 4."""
    def moved(stretch_s: float, plans: int) -> tuple[int, int]:
        return first_move(
            np.array([0]), np.array([0]), np.array([4.0]), np.array([stretch_s]), np.array([1]), np.array([1]),
            np.array([[1.0], [2.0]]), np.array([2.0, 1.0]), np.array([0, plans]), np.array([4.0, 6.0]), 10.0,
        )

    assert [moved(24.0, 2), moved(25.0, 2), moved(1e6, 1)] == [(-1, -1), (0, 1), (-1, -1)]


def slow_first_move(plan, owner, time_s, stretch_s, free, quota, counts, iteration_s, first, cost, overhead_s):
    """The rule, word by word."""
    for i in range(len(plan)):
        now, pays = plan[i], []
        for p in range(first[owner[i]], first[owner[i] + 1]) if now >= 0 else ():
            saved = stretch_s[i] * (cost[now] - cost[p] * iteration_s[p] / time_s[i])
            extra = counts[p] - counts[now]
            fits = (extra <= free).all() and extra.sum() <= quota[i]
            if p != now and saved > max(0.0, overhead_s * cost[p]) and fits:
                pays.append((cost[p] * iteration_s[p], p))
        if pays:
            return i, min(pays)[1]
    return -1, -1


@given(st.data())
def test_the_first_move_is_that_of_the_rule(data):
    """Times are powers of two and all else whole, so that both ways round nothing."""
    drawn = data.draw(st.lists(
        st.lists(st.tuples(whole, whole, st.sampled_from([1.0, 2.0, 4.0])), min_size=1, max_size=5), min_size=1,
        max_size=3,
    ))
    counts, iteration_s, first = table(drawn)
    jobs = np.ones(len(drawn), dtype=np.int64)
    cost = costs_per_s(counts, first, jobs, np.array([1.0, 2.0]), float(data.draw(st.integers(1, 5))))
    running = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=5))
    owner = np.array(running, dtype=np.int64)
    plan = np.array([data.draw(st.one_of(st.just(-1), st.integers(first[c], first[c + 1] - 1))) for c in running],
                    dtype=np.int64)
    time_s = np.array([iteration_s[p] * data.draw(st.sampled_from([1.0, 2.0])) for p in plan])
    stretch_s = np.array([float(data.draw(st.integers(0, 16))) for _ in running])
    quota = np.array([data.draw(st.integers(0, 4)) for _ in running], dtype=np.int64)
    free = np.array(data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3))), dtype=np.int64)
    overhead_s = float(data.draw(st.integers(0, 8)))
    case = plan, owner, time_s, stretch_s, free, quota, counts, iteration_s, first, cost, overhead_s
    assert first_move(*case) == slow_first_move(*case)


@given(st.data())
def test_the_cheapest_plan_that_fits_is_the_first_of_least_cost(data):
    """Against a search over all plans of the class. Whole numbers, so that equal costs are equal."""
    drawn = data.draw(classes)
    counts, iteration_s, first = table(drawn)
    jobs = np.ones(len(drawn), dtype=np.int64)
    cost = costs_per_s(counts, first, jobs, np.array([1.0, 2.0]), float(data.draw(st.integers(0, 3))))
    c = data.draw(st.integers(0, len(drawn) - 1))
    free = np.array(data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3))), dtype=np.int64)
    quota = data.draw(st.integers(-1, 6))
    fit = [p for p in range(first[c], first[c + 1]) if (counts[p] <= free).all() and counts[p].sum() <= quota]
    best = min(fit, key=lambda p: cost[p] * iteration_s[p], default=-1)
    assert cheapest(counts, iteration_s, cost, first[c], first[c + 1], free, quota) == best


def test_a_waiting_job_that_needs_nearly_all_of_a_type_does_not_keep_all_others_off_it():
    """One that must have all eight V100 waits; small ones still take V100, where they are three times as fast."""
    market = Market((V100, T4), np.array([8, 8]), 5.0)
    market.add(known(([8, 0], 1.0)))
    small = market.add(known(([1, 0], 1.0), ([0, 1], 3.0)))
    for _ in range(200):
        market.update(running=np.array([0, 4]), waiting=np.array([1, 0]))
    assert market.price[0] == market.floor[0] and market.costs(small).argmin() == 0
    for _ in range(200):  # while it runs it is counted: the others go where it is not
        market.update(running=np.array([1, 4]), waiting=np.array([0, 0]))
    assert market.price[0] > market.floor[0] and market.costs(small).argmin() == 1


@given(st.data())
def test_a_class_fits_where_one_of_its_plans_does(data):
    """Against the comparison of all plans with what is free, class by class."""
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    plan = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=2, max_size=2)
    counts = np.array(data.draw(st.lists(plan, min_size=sum(sizes), max_size=sum(sizes)))).reshape(-1, 2)
    free = np.array(data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=2)))
    fits = (counts <= free).all(axis=1)
    wanted = [bool(fits[a:b].any()) for a, b in pairwise(first.tolist())]
    assert classes_that_fit(counts, first, free).tolist() == wanted


@given(classes, st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_the_market_knows_which_classes_fit_as_a_look_at_all_plans_does(drawn, free):
    market = Market((V100, T4), np.array([8, 8]), 5.0)
    for plans in drawn:
        counts = np.array([plan[:2] for plan in plans], np.int32).reshape(-1, 2)
        market.add(JobClass(("toy", 1, 1, 1000, 3), (None,) * len(plans), counts, np.ones(len(plans))))
    wanted = [any(a <= free[0] and b <= free[1] for a, b, _ in plans) for plans in drawn]
    assert market.fits(np.array(free)).tolist() == wanted
