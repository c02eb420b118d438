"""Objectives and limits by hand: which plan is best, how near the others come, and what is said where nothing fits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.recommend import RecommendError, ranked
from policies.recommend.methods import method
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.objective import Limits, on
from policies.recommend.request.request import Recommendation, Request, Space
from policies.recommend.searching.gather import gather
from policies.recommend.searching.nofit import leanest, nothing_fits, remedies
from policies.recommend.searching.plain import on_one_type, saving
from sim.api import Plan, Stage
from sim.hardware.gputypes import catalogue, gpu_type
from sim.performance import Performance

V100, T4, A100 = (gpu_type(name) for name in ("V100", "T4", "A100"))
PERFORMANCE = Performance()


def plan(time_s, usd, gpus=1, kind="V100"):
    return Recommendation(Plan((Stage(0, 9, kind, gpus),)), time_s, usd, (gpus,))


FAST, CHEAP, UNPRICED = plan(1.0, 8.0, 4), plan(4.0, 2.0), plan(0.5, math.nan, 8, "H200")
BETWEEN = plan(2.0, 5.0, 2)


def asked(model="gpt2-1.5b", batch=4, types=(V100,), counts=(8,), most=8, **space):
    return Request(PERFORMANCE, model, batch, Fleet(PERFORMANCE, types, counts), most, Space(**space))


# -- which is best -----------------------------------------------------------------------------------------------------


def test_the_best_by_each_objective_within_each_limit():
    plans = [CHEAP, BETWEEN, FAST]
    assert ranked(plans, "time")[0] is FAST
    assert ranked(plans, "cost")[0] is CHEAP
    assert ranked(plans, "cost", 2.0)[0] is BETWEEN
    assert ranked(plans, "cost", limits=Limits(time_s=3.0))[0] is BETWEEN
    assert ranked(plans, "time", limits=Limits(usd=5.0))[0] is BETWEEN
    assert ranked(plans, "time", limits=Limits(time_s=4.0, usd=2.0))[0] is CHEAP


def test_a_blank_price_is_within_no_budget_and_never_the_cheapest():
    plans = [UNPRICED, FAST, CHEAP]
    assert ranked(plans, "time")[0] is UNPRICED
    assert UNPRICED not in ranked(plans, "cost")
    assert ranked(plans, "time", limits=Limits(usd=1e9))[0] is FAST
    with pytest.raises(RecommendError, match="no plan has a known cost"):
        ranked([UNPRICED], "cost")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(time_s=0.8), ["within 0.8 s", "fastest plan takes 1 s (4 V100)"]),
        (Limits(usd=1.0), ["1 USD an iteration", "cheapest plan costs 2 USD and takes 4 s (1 V100)"]),
        (Limits(time_s=3.0, usd=3.0), ["cheapest plan within 3 s costs 5 USD and takes 2 s (2 V100)",
                                       "fastest plan that the budget allows takes 4 s (1 V100)"]),
    ],
)
def test_limits_that_exclude_all_plans_name_the_nearest(limits, words):
    with pytest.raises(RecommendError, match="no plan is within the limits") as caught:
        ranked([CHEAP, BETWEEN, FAST], "time", limits=limits)
    assert all(word in str(caught.value) for word in words)


def test_a_budget_without_prices_says_that_no_cost_is_known():
    with pytest.raises(RecommendError, match="no plan has a known cost"):
        ranked([UNPRICED], "time", limits=Limits(usd=5.0))


@pytest.mark.parametrize("limits", [{"times_best": 0.5}, {"time_s": 0.0}, {"usd": -1.0}, {"usd": math.nan},
                                    {"time_s": math.inf}])
def test_impossible_limits_are_refused(limits):
    with pytest.raises(RecommendError):
        Limits(**limits)


def test_an_unknown_objective_names_the_nearest():
    with pytest.raises(RecommendError, match="did you mean 'cost'"):
        ranked([FAST], "costs")


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=8), st.floats(1, 5))
def test_tighter_limits_never_give_a_better_plan(points, times_best):
    plans = [plan(time_s, usd) for time_s, usd in points]
    free, bound = ranked(plans, "cost")[0], ranked(plans, "cost", times_best)[0]
    assert bound.usd_per_iteration >= free.usd_per_iteration
    assert bound.iteration_s <= times_best * min(r.iteration_s for r in plans)


def test_the_gpus_of_a_plan_in_words():
    mixed = Plan((Stage(0, 1, "V100", 4), Stage(2, 3, "T4", 2), Stage(4, 5, "V100", 1)))
    assert on(Recommendation(mixed, 1.0, 1.0, (5, 2))) == "5 V100 + 2 T4"


# -- nothing fits ------------------------------------------------------------------------------------------------------


def test_the_lack_of_memory_is_what_the_performance_model_says():
    """One GPU, one sample at a time: the whole model, and nothing is said of time or price."""
    need = PERFORMANCE.stage_memory_gib("gpt2-1.5b", 0, len(PERFORMANCE.graph("gpt2-1.5b")) - 1, 1, 1)
    said = str(nothing_fits(asked(most=1), list(catalogue().values())))
    assert f"{need:.2f} GiB needed on a GPU of V100" in said
    assert "16 GiB there" in said
    assert "USD" not in said
    assert " s " not in said


def test_the_leanest_plan_needs_no_more_than_any_other_that_was_proposed():
    request = asked(most=8)
    near = leanest(request)
    assert near.need_gib <= near.there_gib
    assert request.truth(near.plan) is not None


def test_each_advice_makes_a_plan_fit():
    """On one V100: three of them, or one GPU of 40 GiB or more; a smaller batch does not help, as weights do not."""
    helps = list(remedies(asked(most=1), list(catalogue().values())))
    assert helps[0] == "up to 3 of these GPUs"
    (named,) = [text for text in helps if "A100" in text]
    for gpu in catalogue().values():
        there = gather(asked(types=(gpu,), counts=(1,), most=1), ("data-parallel",))
        assert (gpu.name in named.replace(",", "").split()) == (bool(there) and not gpu.sockets), gpu.name
    assert gather(asked(most=3), ("exact",))
    assert not gather(asked(most=2), ("exact",))
    assert not any("batch" in text for text in helps)


def test_cpus_are_advised_only_to_who_asks_for_them():
    """A server of 768 GiB holds nearly any model; it is named where a smaller one is among the types asked for."""
    cpu = gpu_type("CPU")
    small = replace(cpu, name="small", memory_gib=16.0)
    assert not any("CPU" in text for text in remedies(asked(most=1), [cpu]))
    assert "up to 1 GPUs of CPU" in list(remedies(asked(types=(small,), counts=(1,), most=1), [cpu]))


def test_the_smallest_number_of_small_gpus_is_advised_beside_larger_ones():
    """One sample of GPT-3 13B on GPUs of 8 GiB: 42 hold it in 42 stages, 41 do not; larger ones do, too."""
    p4 = gpu_type("P4")
    helps = list(remedies(asked("gpt3-13b", 1, (p4,), (8,)), [T4, gpu_type("H100")]))
    assert helps == ["42 P4", "up to 8 GPUs of H100"]
    for count in (41, 42):
        request = asked("gpt3-13b", 1, (p4,), (count,), count)
        near = leanest(request)
        assert (near.need_gib <= p4.memory_gib) == (request.truth(near.plan) is not None) == (count == 42)


def test_a_plan_that_fits_is_found_by_whatever_method():
    """Half the memory suffices for a pipeline of two; data parallelism alone would find nothing."""
    assert not asked(most=4).judged(method("data-parallel").propose(asked(most=4)))
    assert gather(asked(most=4), ("data-parallel",))


def test_recomputation_and_a_smaller_batch_are_advised_where_activations_are_too_many():
    request = asked("bert-large", 256, (T4,), (1,), 1, micro_batches=(1,))
    helps = list(remedies(request))
    batch = next(text for text in helps if text.startswith("a batch of"))
    assert any("micro-batches" in text for text in helps)
    smaller = replace(request, batch_size=int(batch.split()[-1]), _judged={})
    assert gather(smaller, ("data-parallel",))
    assert not gather(replace(request, batch_size=2 * smaller.batch_size, _judged={}), ("data-parallel",))


def test_a_type_without_memory_is_no_fit():
    """P-47: its memory is unknown, so nothing can be planned with it."""
    with pytest.raises(RecommendError, match="memory of a GPU type is unknown"):
        asked(types=(replace(V100, memory_gib=None),))


# -- several methods ---------------------------------------------------------------------------------------------------


def test_the_search_goes_on_from_the_best_of_the_others_and_is_never_worse_than_one_type():
    request = asked("bert-large", 64, (V100, T4), (2, 4), 6, mixed=True)
    others = gather(replace(request, _judged={}), ("exact", "uneven"))
    all_ = gather(request, ("exact", "uneven", "search"), evaluations=100)
    assert all_[0].iteration_s <= others[0].iteration_s
    single = on_one_type(all_)
    assert all_[0].iteration_s <= single[0].iteration_s
    assert len({r.counts for r in all_}) == len(all_)
    assert gather(replace(request, _judged={}), ("exact", "uneven", "search"), evaluations=100) == all_


def test_only_plans_of_the_space_are_gathered():
    request = asked("bert-large", 64, (V100, T4), (2, 2), 4, mixed=False, recompute=(True,))
    found = gather(request, ("exact", "uneven"))
    assert found
    assert all(r.plan.recompute and not any(stage.parts for stage in r.plan.stages) for r in found)


def test_no_saving_has_a_reason():
    from policies.recommend.searching.bounds import Bound

    request = asked(types=(V100,), counts=(2,))
    none = saving(request, FAST, FAST, "time", Bound(0.5, 1.0))
    assert none["time"] == 0
    assert none["reason"] == "there is one GPU type only"
    several = asked(types=(V100, T4), counts=(2, 2))
    assert "saves more than 50.0 %" in saving(several, FAST, FAST, "time", Bound(0.5, 1.0))["reason"]
    assert saving(several, FAST, CHEAP, "time", Bound(0.5, 1.0)) == {"time": 0.75, "cost": -3.0, "reason": ""}
