"""Uncertain speeds: the belief by hand, the value of a run by a closed form, what is asked for by law."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend import RecommendError
from policies.recommend.methods import exact
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request
from policies.recommend.uncertain_speeds.belief import ACROSS_ERROR, PUBLISHED_ERROR, Belief, Rescaled, spread_of
from policies.recommend.uncertain_speeds.profiling import Run, runs_of
from policies.recommend.uncertain_speeds.uncertain import (
    advise,
    candidates_under,
    expected_fall,
    recommend_with_profiling,
)
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError

PERFORMANCE = Performance()
NAMES = ("T4", "L4", "A10")


def request(names=NAMES, gpus=2, model="resnet50", batch=64, **prices):
    types = [replace(gpu_type(name), **({"price_usd_per_h": prices[name]} if name in prices else {})) for name in names]
    return Request(PERFORMANCE, model, batch, Fleet(PERFORMANCE, types, [gpus] * len(types)), gpus * len(types))


def whole(name, gpus=1, model="resnet50"):
    """The whole model on GPUs of one type."""
    return Plan((Stage(0, len(PERFORMANCE.graph(model)) - 1, name, gpus),))


def profiler(belief, errors, asked=None):
    """Measures exactly what the hidden errors [types, kinds] say."""
    def measure(run):
        if asked is not None:
            asked.append(run.gpu_type)
        e = errors[belief.row(run.gpu_type)]
        return {kind: s * math.exp(e[belief.kinds.index(kind)]) for kind, s in run.modelled_s.items() if s > 0}

    return measure


def two_by_two(common=0.5):
    return Belief(("A", "B"), ("conv", "gemm"), np.zeros(4),
                  np.kron(np.diag([0.09, 0.01]), common + (1 - common) * np.eye(2)))  # fmt: skip


# -- the belief --------------------------------------------------------------------------------------------


def test_the_posterior_of_one_type_and_one_kind_by_hand():
    """Variance 0.09, noise variance 0.01, measured 0.2: mean 0.2 x 0.9, variance 0.09 x 0.1."""
    after = Belief(("A",), ("conv",), np.zeros(1), np.array([[0.09]])).given("A", {"conv": 0.2}, noise=0.1)
    assert after.mean.tolist() == pytest.approx([0.18]) and after.covariance.item() == pytest.approx(0.009)


def test_a_kind_says_something_of_its_type_and_nothing_of_another():
    """The other kind moves by the common half of 0.18; of its variance 0.09 there remains 0.09 - 0.045^2 / 0.1."""
    after = two_by_two().given("A", {"conv": 0.2}, noise=0.1)
    assert after.mean.tolist() == pytest.approx([0.18, 0.09, 0, 0])
    assert np.diag(after.covariance).tolist() == pytest.approx([0.009, 0.09 - 0.045**2 / 0.1, 0.01, 0.01])
    assert after.covariance[:2, 2:].tolist() == [[0, 0], [0, 0]]


@settings(deadline=None, max_examples=50)
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0.01, 0.5), st.floats(0, 1))
def test_the_order_of_measurements_is_nothing_to_the_belief(x, y, noise, common):
    b = two_by_two(common)
    at_once = b.given("A", {"conv": x, "gemm": y}, noise)
    for one, other in ((("conv", x), ("gemm", y)), (("gemm", y), ("conv", x))):
        by_one = b.given("A", dict([one]), noise).given("A", dict([other]), noise)
        np.testing.assert_allclose(by_one.mean, at_once.mean, atol=1e-9)
        np.testing.assert_allclose(by_one.covariance, at_once.covariance, atol=1e-9)
    assert (np.diag(at_once.covariance) <= np.diag(b.covariance) + 1e-12).all()


def test_draws_have_the_mean_and_covariance_of_the_belief():
    b = two_by_two().given("A", {"conv": 0.2}, noise=0.1)
    draws = b.draws(200_000, np.random.default_rng(0)).reshape(-1, 4)
    np.testing.assert_allclose(draws.mean(axis=0), b.mean, atol=3e-3)
    np.testing.assert_allclose(np.cov(draws.T), b.covariance, atol=1e-3)


def test_the_spread_follows_from_the_calibrations_errors():
    """Of a Gaussian the mean of |e| is s sqrt(2 / pi)."""
    as_sd = math.sqrt(math.pi / 2)
    assert spread_of(PERFORMANCE, "A100") == pytest.approx(PUBLISHED_ERROR * as_sd)
    assert spread_of(PERFORMANCE, "K80") == pytest.approx(ACROSS_ERROR * as_sd)
    fitted = Performance(calibration="scripts")
    assert spread_of(fitted, "K80") == pytest.approx(fitted.calibration.error.mean * as_sd)
    assert spread_of(fitted, "H100") == pytest.approx(fitted.calibration.error.held_out_mean * as_sd)


def test_the_prior_is_of_the_types_that_are_there_and_the_models_kinds():
    r = request()
    r = replace(r, fleet=Fleet(PERFORMANCE, r.fleet.types, [2, 0, 2]))
    b = Belief.prior(r, {"T4": 0.0, "A10": 0.2}, common=0.25)
    assert b.types == ("T4", "A10") and set(b.kinds) == set(PERFORMANCE.graph("resnet50").kind)
    n = len(b.kinds)
    assert not b.covariance[:n, :n].any()
    assert b.covariance[n, n] == pytest.approx(0.04) and b.covariance[n, n + 1] == pytest.approx(0.01)


# -- a model with errors -----------------------------------------------------------------------------------


def test_errors_rescale_the_operators_of_their_type_and_kind():
    """Convolutions on a T4 take twice as long; all else is as it was."""
    model = Rescaled(PERFORMANCE, ("T4",), ("conv",), np.array([[math.log(2)]]))
    conv = np.array(PERFORMANCE.graph("resnet50").kind) == "conv"
    for name, factor in (("T4", np.where(conv, 2.0, 1.0)), ("L4", np.ones(len(conv)))):
        both = (p.op_times_s("resnet50", 8, gpu_type(name)) for p in (model, PERFORMANCE))
        for ours, base in zip(*both, strict=True):
            np.testing.assert_allclose(ours, base * factor, rtol=1e-15)


def test_another_order_of_operators_keeps_each_ones_error():
    model = Rescaled(PERFORMANCE, ("T4",), ("conv",), np.array([[0.3]]))
    order = tuple(reversed(range(len(PERFORMANCE.graph("resnet50")))))
    # Times do not ask whether the order is a topological one; kinds must follow it.
    model._shares[("resnet50", 1, order)] = replace(
        PERFORMANCE.graph("resnet50"), kind=PERFORMANCE.graph("resnet50").kind[::-1]
    )
    straight, turned = (model._times("resnet50", 8, gpu_type("T4"), 1, o) for o in ((), order))
    np.testing.assert_allclose(turned.fwd_s, straight.fwd_s[::-1])


def test_without_errors_the_truth_is_the_truth_and_with_them_memory_is():
    r = request()
    b = Belief.prior(r)
    for plan in exact.propose(request(gpus=1)):
        base, none = r.truth(plan), b.under(r).truth(plan)
        slower = b.under(r, np.full((3, len(b.kinds)), 0.2)).truth(plan)
        assert (base is None) == (none is None) == (slower is None)
        if base is not None:
            assert none.iteration_s == base.iteration_s and slower.iteration_s > base.iteration_s
            assert slower.plan.memory_gib == base.plan.memory_gib


# -- what a run is worth -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_the_value_of_a_run_is_the_closed_form(noise):
    """A plan of 0 and one of x ~ N(0, 1), seen with noise n: E[max(0, -E[x | seen])] = phi(0) / sqrt(1 + n^2)."""
    rng = np.random.default_rng([0, 7])
    n = 40_000
    x = rng.standard_normal(n)
    fall = expected_fall(np.column_stack([np.zeros(n), x]), (x + noise * rng.standard_normal(n))[:, None])
    assert fall == pytest.approx(0.39894 / math.sqrt(1 + noise**2), abs=0.015)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_what_says_nothing_is_worth_nothing(seed):
    """Results that have nothing to do with six plans' values: what chance fits is not taken for worth."""
    rng = np.random.default_rng([seed, 3])
    value, seen = 1 + 0.1 * rng.standard_normal((256, 6)), rng.standard_normal((256, 3))
    assert expected_fall(value, seen) < 0.02


def test_a_run_costs_its_start_and_its_steps():
    r = request(T4=3.6)
    run = next(run for run in runs_of(r, start_s=100, steps=10) if run.gpu_type == "T4")
    forward, backward = PERFORMANCE.op_times_s("resnet50", 64 // 6, gpu_type("T4"))
    assert run.seconds == pytest.approx(100 + 10 * (forward.sum() + backward.sum()))
    assert run.usd == pytest.approx(run.seconds * 0.001)
    assert sum(run.modelled_s.values()) == pytest.approx(forward.sum() + backward.sum())


# -- the choice --------------------------------------------------------------------------------------------


def refuse(run):
    raise AssertionError(f"nothing was to be measured, but {run.gpu_type} was")


@pytest.mark.parametrize("objective", ["time", "cost"])
def test_where_all_is_certain_nothing_is_asked(objective):
    r = request()
    plans = [whole(name, gpus) for name in NAMES for gpus in (1, 2)]
    certain = Belief.prior(r, dict.fromkeys(NAMES, 0.0))
    choice = recommend_with_profiling(r, plans, refuse, 1e9, objective=objective, belief=certain, draws=32)
    value = [r.truth(p).iteration_s if objective == "time" else r.truth(p).usd_per_iteration for p in plans]
    assert choice.plan == plans[int(np.argmin(value))] and choice.expected == pytest.approx(min(value))
    assert choice.expected_regret == 0 and (choice.spent_s, choice.spent_usd) == (0, 0)


def test_the_one_decisive_unknown_is_asked():
    """The T4 is certain, the L4 may be faster or slower, the A10 is in no plan."""
    r = request()
    b = Belief.prior(r, {"T4": 0.0, "L4": 0.4, "A10": 1.0})
    # As fast as each other, as far as is known.
    shift = math.log(r.truth(whole("T4")).iteration_s / r.truth(whole("L4")).iteration_s)
    mean = b.mean.reshape(3, -1).copy()
    mean[1] = shift
    b, asked = replace(b, mean=mean.ravel()), []
    for error, best in ((-0.3, "L4"), (0.3, "T4")):
        choice = recommend_with_profiling(
            r, [whole("T4"), whole("L4")], profiler(b, mean + error, asked), 1e6, belief=b, draws=128
        )
        assert [run.gpu_type for run in choice.runs] == ["L4"] and choice.plan == whole(best)
        assert choice.expected_regret < 0.01
    assert asked == ["L4", "L4"]


def test_what_cannot_change_the_plan_is_not_asked():
    """Four A10 are faster than one T4, however wrong both are; then neither's speed matters."""
    r = request(gpus=4)
    choice = recommend_with_profiling(r, [whole("T4"), whole("A10", 4)], refuse, 1e9, draws=128)
    assert choice.plan == whole("A10", 4) and choice.stopped == "nothing is worth its cost"


def test_a_short_job_is_not_worth_a_run():
    r = request()
    plans = [whole(name, 2) for name in NAMES]
    for objective in ("time", "cost"):
        assert not recommend_with_profiling(r, plans, refuse, 0, objective=objective, draws=64).runs


@settings(deadline=None, max_examples=10)
@given(st.floats(0, 0.2), st.integers(0, 100))
def test_no_more_than_the_budget_is_spent(budget_usd, seed):
    r = replace(request(), seed=seed)
    b = Belief.prior(r)
    e = b.draws(1, np.random.default_rng([seed, 0]))[0]
    choice = recommend_with_profiling(
        r, [whole(name, 2) for name in NAMES], profiler(b, e), 1e7, objective="cost", budget_usd=budget_usd, draws=64
    )
    assert choice.spent_usd <= budget_usd and choice.spent_usd == pytest.approx(sum(run.usd for run in choice.runs))
    assert len({run.gpu_type for run in choice.runs}) == len(choice.runs)
    if choice.stopped == "budget":
        assert choice.spent_usd + sum(run.usd for run in runs_of(r) if run not in choice.runs) > budget_usd


@pytest.mark.parametrize("objective", ["time", "cost"])
def test_profiling_pays_in_the_mean(objective):
    """Twenty hidden errors: regret falls, and so does the job's whole cost with the runs paid."""
    r = request()
    b = Belief.prior(r)
    plans = candidates_under(r, b, exact.propose, draws=4)
    iterations, none, ours, spent = 1e6, [], [], []
    first = recommend_with_profiling(r, plans, refuse, 0, objective=objective, draws=64)
    for e in b.draws(20, np.random.default_rng([0, 9])):
        there = b.under(r, e)
        value = {p: getattr(there.truth(p), "iteration_s" if objective == "time" else "usd_per_iteration")
                 for p in plans}  # fmt: skip
        choice = recommend_with_profiling(r, plans, profiler(b, e), iterations, objective=objective, draws=64)
        none.append(value[first.plan])
        ours.append(value[choice.plan])
        spent.append(choice.spent_s if objective == "time" else choice.spent_usd)
    assert np.mean(none) > 1.01 * np.mean(ours)
    assert iterations * np.mean(none) > iterations * np.mean(ours) + np.mean(spent)


def test_one_run_after_the_other_is_paid_one_after_the_other():
    """Once the cheap T4 turns out as dear as the A10 is, a run there is worth 3 USD: both are paid, both waited for."""
    r = request()
    b = Belief.prior(r, {"T4": 0.4, "L4": 0.0, "A10": 0.1})
    runs = [Run(run.gpu_type, run.samples, run.modelled_s, run.seconds, usd)
            for run, usd in zip(runs_of(r), (0.01, 0.01, 3.0), strict=True)]  # fmt: skip
    plans = [whole("T4"), whole("A10")]
    e = np.zeros((3, len(b.kinds)))
    usd = [r.truth(plan).usd_per_iteration for plan in plans]
    e[0] = math.log(usd[1] / usd[0])
    choice = recommend_with_profiling(r, plans, profiler(b, e), 1e7, objective="cost", belief=b, runs=runs)
    assert [run.gpu_type for run in choice.runs] == ["T4", "A10"] and choice.stopped == "nothing is worth its cost"
    assert choice.spent_usd == pytest.approx(3.01)
    assert choice.spent_s == pytest.approx(runs[0].seconds + runs[2].seconds)


def test_each_type_by_itself_is_among_the_candidates():
    """Though no draw is asked for, and the L4 is neither fastest nor cheapest as modelled."""
    r = request()
    plans = candidates_under(r, Belief.prior(r), exact.propose, draws=0)
    alone = {plan.parts[0].gpu_type for plan in plans if len({part.gpu_type for part in plan.parts}) == 1}
    assert alone == set(NAMES) and len(set(plans)) == len(plans)
    found = r.judged(plans)
    everything = r.judged(exact.propose(r))
    assert found[0].iteration_s == everything[0].iteration_s
    assert min(f.usd_per_iteration for f in found) == min(f.usd_per_iteration for f in everything)


def test_a_method_asked_again_finds_plans_that_the_runs_make_worth_having():
    """Only the T4 is a candidate; measured four times slower, it gives way to what the method then proposes."""
    r = request()
    b = Belief.prior(r)
    e = np.zeros((3, len(b.kinds)))
    e[0] = math.log(4)
    plans = [whole("T4"), whole("L4")]
    once, again = (
        recommend_with_profiling(r, plans, profiler(b, e), 1e7, belief=b, draws=64, propose=propose)
        for propose in (None, exact.propose)
    )
    assert again.runs and again.expected < 0.8 * once.expected and again.plan not in plans


def test_the_seed_decides():
    r = request()
    b = Belief.prior(r)
    e = b.draws(1, np.random.default_rng(3))[0]
    plans = [whole(name, 2) for name in NAMES]
    one, two = (recommend_with_profiling(r, plans, profiler(b, e), 1e6, draws=64) for _ in range(2))
    assert (one.plan, one.runs, one.expected) == (two.plan, two.runs, two.expected)


def test_a_run_of_unknown_price_is_not_asked_to_save_money():
    """L4 plans are then of unknown cost, and so is a run on one."""
    r = request(L4=None)
    b = Belief.prior(r)
    plans, e = [whole(name, 2) for name in NAMES], np.zeros((3, len(b.kinds)))
    choice = recommend_with_profiling(r, plans, profiler(b, e), 1e9, objective="cost", draws=64)
    assert "L4" not in {run.gpu_type for run in choice.runs} and choice.plan != whole("L4", 2)
    assert math.isfinite(choice.spent_usd)
    timed = recommend_with_profiling(r, plans, profiler(b, e), 1e9, budget_usd=1.0, draws=64)
    assert "L4" not in {run.gpu_type for run in timed.runs}


# -- what is refused ---------------------------------------------------------------------------------------


def test_impossible_requests_are_refused():
    r = request()
    plans = [whole("T4"), whole("L4")]
    for named, match in (({"objective": "tmie"}, "unknown objective"), ({"draws": 8}, "too few draws"),
                         ({"iterations": -1.0}, "iterations"), ({"iterations": math.nan}, "iterations")):  # fmt: skip
        with pytest.raises(RecommendError, match=match):
            recommend_with_profiling(r, plans, refuse, **{"iterations": 1.0, **named})
    with pytest.raises(RecommendError, match="no candidate fits"):
        recommend_with_profiling(r, [whole("T4", 3)], refuse, 1, draws=32)
    with pytest.raises(RecommendError, match="no candidate fits"):
        recommend_with_profiling(r, [], refuse, 1, draws=32)
    with pytest.raises(RecommendError, match="no plan has a known cost"):
        recommend_with_profiling(request(T4=None), [whole("T4")], refuse, 1, objective="cost", draws=32)
    with pytest.raises(RecommendError, match="spread"):
        Belief.prior(r, {"T4": math.nan})
    with pytest.raises(RecommendError, match="common part"):
        Belief.prior(r, common=1.5)
    with pytest.raises(RecommendError, match="nothing is believed"):
        Belief.prior(r).given("V100", {"conv": 0.1})
    with pytest.raises(PerformanceError, match="unknown model"):
        request(model="resnet51")


@pytest.mark.parametrize(("measured", "match"), [({"conv": 0.0}, "above 0"), ({"conv": math.nan}, "above 0"),
                                                 ({"convv": 1.0}, "has not")])  # fmt: skip
def test_an_impossible_measurement_is_refused(measured, match):
    r = request()
    run = Run("T4", 1, {"conv": 1.0}, 1e-9, 1e-9)
    with pytest.raises(RecommendError, match=match):
        recommend_with_profiling(r, [whole("T4"), whole("L4")], lambda _: measured, 1e9, runs=[run], draws=64,
                                 belief=Belief.prior(r, dict.fromkeys(NAMES, 1.0)))  # fmt: skip


def test_advice_is_the_first_step_of_choosing_with_profiling():
    """Whoever makes the runs themselves is told the same runs, and where there are none the same plan."""
    asked = request()
    belief = Belief.prior(asked)
    plans = candidates_under(asked, belief, exact.propose, draws=2)
    for iterations in (10, 1e6):
        made: list[str] = []
        measure = profiler(belief, np.zeros((len(belief.types), len(belief.kinds))), made)
        choice = recommend_with_profiling(asked, plans, measure, iterations, belief=belief, draws=64)
        found = advise(asked, plans, iterations, belief=belief, draws=64)
        assert [run.gpu_type for run in found.runs] == made[: len(found.runs)]
        assert bool(found.runs) == bool(made) == (iterations > 10)
        assert set(found.worth) == set(runs_of(asked))
        if not made:
            assert (found.plan, found.expected, found.stopped) == (choice.plan, choice.expected, choice.stopped)
