"""Bayesian optimisation where trials cost differently: by hand, by integration, by law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from policies.recommend import RecommendError
from policies.recommend.algorithms.bayes import Candidates, _Search, explore


def candidates(n=8, cost=None, weight=None, line=0):
    """One line of n candidates, at ln 1 .. ln n."""
    size = np.arange(1.0, n + 1)
    return Candidates(np.log(size)[:, None], np.ones(n) if cost is None else np.array(cost, dtype=float),
                      np.ones(n) if weight is None else np.array(weight, dtype=float), np.full(n, line), size)


def amdahl(n):
    """Time of a job a tenth of which does not scale, on 1 .. n machines."""
    return 0.1 + 0.9 / np.arange(1.0, n + 1)


def test_the_best_of_a_smooth_line_is_found_in_few_trials():
    values = amdahl(40)
    trace = explore(candidates(40), lambda i: float(values[i]), first=[0])
    assert trace.best == 39 and trace.regret(values, np.ones(40)) == 0
    assert len(trace.trials) <= 10 and trace.stopped == "nothing to gain"


def test_each_trial_says_what_was_spent_and_found():
    values = [3.0, 2.0, 4.0]
    trace = explore(candidates(3, cost=[1, 2, 3], line=-1), values.__getitem__, first=[0, 1, 2])
    assert [(t.index, t.value, t.spent, t.best) for t in trace.trials] == [(0, 3, 1, 3), (1, 2, 3, 2), (2, 4, 6, 2)]
    assert trace.stopped == "all tried" and trace.spent == 6 and trace.best == 1


def test_of_equal_promise_the_cheaper_is_tried():
    """Candidates 1 and 2 are mirror images around the one measured; 2 costs a tenth."""
    mirrored, cost = np.array([[0.0], [-1.0], [1.0]]), np.array([1.0, 10.0, 1.0])
    c = Candidates(mirrored, cost, np.ones(3), np.full(3, -1), np.zeros(3))
    assert [t.index for t in explore(c, lambda i: 1.0, first=[0], trials=2).trials] == [0, 2]


@settings(max_examples=40)
@given(st.floats(0.2, 5), st.floats(0.3, 3), st.floats(0.2, 5))
def test_the_expected_improvement_is_the_integral(best, weight, limit):
    """E[(b - g)+ 1{g <= ln limit}] by numeric integration over the belief about the third candidate.

    Where nothing that is known keeps the limit: the probability that it does.
    """
    c = candidates(3, weight=[1, 1, weight], line=-1)
    search = _Search(c, limit, math.inf, None, {0: best, 1: 2 * best}, 0)
    mean, sd = search._belief([0, 1], np.log([best, 2 * best]))
    b, top = math.log(best) - math.log(weight), math.log(limit)

    def worth(g):
        return (b - g if best <= limit else 1.0) * norm.pdf(g, mean[2], sd[2])

    end = min(b, top) if best <= limit else top
    want, _ = quad(worth, min(mean[2], end) - 12 * sd[2], end, limit=200, points=[min(mean[2], end)])
    found = search.improvement()
    assert found is not None and found[2] == pytest.approx(want, rel=1e-5, abs=1e-8)


def test_beyond_where_scaling_out_stops_to_pay_nothing_is_tried():
    """Eight machines are no faster than two, so 9 .. 16 are left alone, however much they promise."""
    values = np.concatenate(([1.0, 0.6], np.full(6, 0.7), np.linspace(0.1, 0.01, 8)))
    trace = explore(candidates(16), lambda i: float(values[i]), first=[0, 1, 7])
    assert max(t.index for t in trace.trials) == 7 and trace.best == 1


def test_candidates_on_no_line_say_nothing_of_each_other():
    values = np.concatenate(([1.0, 0.6], np.full(6, 0.7), np.linspace(0.1, 0.01, 8)))
    trace = explore(candidates(16, line=-1), lambda i: float(values[i]), first=[0, 1, 7])
    assert trace.best is not None and trace.best > 7


def test_the_price_decides_where_cost_is_the_objective():
    """Times 1, 0.55, 0.4 at prices 1, 2, 3: one machine is cheapest, three are fastest."""
    values = [1.0, 0.55, 0.4]
    assert explore(candidates(3), values.__getitem__, first=[0, 1, 2]).best == 2
    assert explore(candidates(3, weight=[1, 2, 3]), values.__getitem__, first=[0, 1, 2]).best == 0


def test_a_deadline_is_kept():
    """Cheapest within 0.6: two machines; within 0.1 there is nothing, and that is said."""
    values = np.array([1.0, 0.55, 0.4])
    c = candidates(3, weight=[1, 2, 3])
    assert explore(c, values.__getitem__, first=[0], limit=0.6).best == 1
    none = explore(c, values.__getitem__, first=[0], limit=0.1)
    assert none.best is None and none.regret(values, c.weight, 0.1) == 0 and none.regret(values, c.weight) == math.inf


def test_enough_is_kept_to_finish_with_the_best():
    """Budget 10, a trial 2, finishing 4 x value: after four trials a fifth would leave too little for it."""
    values = [1.0, 0.5, 0.49, 0.48, 0.47, 0.46]
    trace = explore(
        candidates(6, cost=[2] * 6, line=-1), values.__getitem__, first=range(6), budget=10,
        finish=lambda i, value: 4 * value,
    )
    assert trace.spent + 4 * values[trace.best] <= 10 and trace.spent == 8
    assert trace.stopped == "budget"


def test_the_best_is_one_that_can_be_paid():
    """Finishing costs 3, 5, 9; trials 1 each; of a budget of 9, 6 are left after three: the third is out of reach."""
    finish = [3.0, 5.0, 9.0]
    trace = explore(
        candidates(3, line=-1), [3.0, 2.0, 1.0].__getitem__, first=[0, 1, 2], budget=9, finish=lambda i, _: finish[i],
    )
    assert trace.spent == 3 and trace.best == 1 and [t.best for t in trace.trials] == [3, 2, 2]


def test_what_is_known_costs_nothing_and_is_not_measured_again():
    asked = []
    trace = explore(candidates(4), lambda i: asked.append(i) or 1.0 / (i + 1), first=[0, 1], known={0: 1.0, 3: 0.25})
    assert 0 not in asked and 3 not in asked and trace.best == 3
    assert trace.spent == len(asked)


def test_while_nothing_works_the_cheapest_is_tried():
    """Two of three run out of memory."""
    values = [math.inf, 2.0, math.inf]
    trace = explore(candidates(3, cost=[3, 2, 1], line=-1), values.__getitem__)
    assert [t.index for t in trace.trials][:2] == [2, 1] and trace.best == 1
    assert math.isnan(trace.trials[0].expected) and trace.trials[0].best == math.inf


def test_nothing_works_at_all():
    trace = explore(candidates(3), lambda i: math.inf)
    assert trace.best is None and trace.stopped == "all tried" and len(trace.trials) == 3


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_laws(seed):
    """No candidate twice, costs add up, the budget holds, the best is the best measured, the seed decides."""
    rng = np.random.default_rng([seed, 1])
    n = int(rng.integers(2, 12))
    values, cost = rng.uniform(0.1, 1, n), rng.uniform(0.1, 1, n)
    values[rng.random(n) < 0.2] = math.inf
    c = Candidates(rng.normal(size=(n, 2)), cost, np.ones(n), rng.integers(-1, 2, n), rng.uniform(size=n))
    budget = float(rng.uniform(0, cost.sum()))
    trace, again = (explore(c, lambda i: float(values[i]), budget=budget, seed=seed) for _ in range(2))
    indices = [t.index for t in trace.trials]
    assert len(set(indices)) == len(indices) and indices == [t.index for t in again.trials]
    assert trace.spent == pytest.approx(cost[indices].sum()) and trace.spent <= budget + 1e-12
    least = min((values[i] for i in indices), default=math.inf)
    assert trace.best is None if least == math.inf else values[trace.best] == least
    assert trace.regret(values, np.ones(n)) >= 0


@pytest.mark.parametrize(("column", "bad"), [("cost", 0.0), ("cost", math.nan), ("weight", math.inf), ("weight", -1.0)])
def test_an_unknown_cost_is_refused(column, bad):
    with pytest.raises(RecommendError, match=f"the {column} of a candidate"):
        candidates(2, **{column: [1.0, bad]})


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_an_impossible_value_is_refused(bad):
    with pytest.raises(RecommendError, match="must be above 0"):
        explore(candidates(2), lambda i: bad)


@pytest.mark.parametrize("bad", [0.0, math.nan])
def test_an_impossible_limit_is_refused(bad):
    with pytest.raises(RecommendError, match="limit"):
        explore(candidates(2), lambda i: 1.0, limit=bad)


def test_columns_of_other_lengths_are_refused():
    with pytest.raises(RecommendError, match="as many entries"):
        Candidates(np.zeros((2, 1)), np.ones(3), np.ones(2), np.zeros(2), np.zeros(2))
