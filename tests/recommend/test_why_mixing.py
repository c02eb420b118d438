"""Why mixing pays: the parts of a saving, the planner that is blind to operators, the certificate of one type."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.recommend.methods import method
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.objective import Limits
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation, Request, Space
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.blind import OneSpeed, blind_plans, may_mix, mixes
from policies.recommend.searching.bounds import Bound, lower_bound
from policies.recommend.searching.cheapest_type import cheapest_type, most_saved
from policies.recommend.searching.gather import gather
from policies.recommend.searching.why_mixing import split
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance

V100, T4 = (gpu_type(name) for name in ("V100", "T4"))
PERFORMANCE = Performance()


def asked(model="vgg16", batch=64, types=(V100, T4), counts=(4, 4), space=None, rented=None):
    fleet = Fleet(PERFORMANCE, types, counts, (8,) * len(types), rented)
    return Request(PERFORMANCE, model, batch, fleet, sum(counts), space or Space(mixed=True))


def made(counts, iteration_s, usd, types=("V100", "T4")):
    stages = [Stage(i, i, name, n) for i, (name, n) in enumerate(zip(types, counts, strict=True)) if n]
    return Recommendation(Plan(tuple(stages), 1), iteration_s, usd, counts)


# -- the parts ----------------------------------------------------------------------------------------------------

ONE = made((4, 0), 10.0, 4.0)


def test_the_parts_by_hand():
    """10 s on the 4 V100; blind, 9 s on 4 GPUs of both types and 7 s on 8; with operators seen, 6 s."""
    request = asked()
    blind = [made((3, 1), 9.0, 5.0), made((4, 4), 7.0, 6.0)]
    why = split(request, [ONE, made((4, 4), 6.0, 5.5)], blind, "time", bound=Bound(5.0, 1.0))
    assert (why.exchanged, why.added, why.operators, why.saved) == pytest.approx((0.1, 0.2, 0.1, 0.4))
    assert why.possible == pytest.approx(0.5)
    assert (why.one_type_gpus, why.swapped.counts, why.blind.counts) == (4, (3, 1), (4, 4))


def test_by_cost_what_is_cheaper_on_no_more_gpus_is_price():
    blind = [made((2, 2), 12.0, 3.0), made((0, 4), 30.0, 3.5)]
    why = split(asked(), [ONE, made((2, 1), 13.0, 2.0)], blind, "cost")
    assert (why.exchanged, why.added, why.operators) == pytest.approx((0.25, 0.0, 0.25))
    assert math.isnan(why.possible)


def test_all_planners_keep_to_the_limits():
    """The cheapest blind plan is too slow; the best on one type is the best of those within the time."""
    found = [made((1, 0), 40.0, 2.0), ONE, made((4, 2), 8.0, 3.0)]
    blind = [made((2, 2), 12.0, 1.0), made((4, 1), 9.0, 3.6)]
    why = split(asked(), found, blind, "cost", Limits(time_s=10.0))
    assert (why.exchanged, why.added, why.operators) == pytest.approx((0.0, 0.1, 0.15))
    assert split(asked(), found, blind, "cost", Limits(time_s=9.5)) is None
    assert split(asked(), found[2:], blind) is None


def test_a_fleet_with_less_of_a_type_has_less_of_it_for_the_one():
    """The GPUs that there are of the one type count, not those that its plan takes."""
    fewer = [made((3, 0), 10.0, 4.0), made((3, 1), 8.0, 4.0)]
    assert split(asked(), fewer, fewer[1:]).added == 0.0
    assert split(asked(counts=(3, 4)), fewer, fewer[1:]).added == pytest.approx(0.2)


def test_an_unknown_objective_is_refused():
    with pytest.raises(RecommendError, match="unknown objective"):
        split(asked(), [ONE], [], "tim")


PLANS = st.lists(
    st.builds(lambda a, b, s, usd: made((a, b), s, usd), st.integers(0, 4), st.integers(0, 4), st.floats(0.01, 100.0),
              st.floats(0.01, 100.0)).filter(lambda r: sum(r.counts) > 0), max_size=8)  # fmt: skip


@given(PLANS, PLANS, st.sampled_from(("time", "cost")), st.one_of(st.none(), st.floats(0.01, 100.0)))
def test_the_parts_add_up_and_none_is_below_nothing(found, blind, objective, time_s):
    """Law: for any plans, objective and limits."""
    found = [ONE, *found]
    limits = Limits(time_s=time_s)
    why = split(asked(), found, [r for r in blind if mixes(r)], objective, limits)
    if why is None:
        assert not [r for r in found if not mixes(r) and r.iteration_s <= time_s]
        return
    parts = why.exchanged, why.added, why.operators
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(why.saved, abs=1e-12)
    assert sum(why.swapped.counts) <= why.one_type_gpus or not mixes(why.swapped)


# -- the blind planner --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "ways"), [("vgg16", 1), ("lstm-lm", 1), ("dlrm", 1), ("bert-base", 2)])
def test_one_speed_keeps_the_time_of_the_whole_model_and_gives_operators_one_ratio(model, ways):
    blind = OneSpeed(PERFORMANCE, (V100, T4))
    times = [np.array(blind.op_times_s(model, 512.0, gpu, ways)) for gpu in (V100, T4)]
    truths = [np.array(PERFORMANCE.op_times_s(model, 512.0, gpu, ways)) for gpu in (V100, T4)]
    assert [mine.sum() for mine in times] == pytest.approx([truth.sum() for truth in truths])
    ratio = times[0] / times[1]
    assert np.allclose(ratio, ratio.flat[0])
    assert np.ptp(truths[0] / truths[1]) > 0.05, "else there is nothing to be blind to"


def test_on_one_type_in_one_stage_its_belief_is_the_truth():
    request = asked(types=(V100, T4))
    believed = replace(request, performance=OneSpeed(PERFORMANCE, (V100, T4)), _judged={})
    for name in ("V100", "T4"):
        plan = Plan((Stage(0, 21, name, 2),), 2)
        assert believed.truth(plan).iteration_s == pytest.approx(request.truth(plan).iteration_s)


def test_its_plans_mix_types_are_judged_by_the_truth_and_are_the_same_again():
    def ask():
        request = asked(model="alexnet", batch=256)
        found = gather(request, evaluations=60)
        return request, blind_plans(request, found, 60)

    request, plans = ask()
    assert plans and all(map(mixes, plans))
    for r in plans:
        again = request.performance.plan("alexnet", 256, r.plan, request.fleet.gpus(r.plan), request.fleet.spec)
        assert r.iteration_s == again.iteration_s
        assert request.found_by[r.plan]
    assert [r.plan for r in ask()[1]] == [r.plan for r in plans]


def test_where_types_do_not_differ_nothing_is_lost_by_being_blind():
    """The same GPU under two names: the belief is the truth, and all that is saved comes from more GPUs."""
    twin = replace(V100, name="Twin")
    request = asked(model="vgg16", batch=4096, types=(V100, twin), counts=(2, 4))
    for mine, truth in zip(OneSpeed(PERFORMANCE, (V100, twin)).op_times_s("vgg16", 512.0, twin),
                           PERFORMANCE.op_times_s("vgg16", 512.0, twin), strict=True):  # fmt: skip
        assert mine == pytest.approx(truth)
    found = gather(request, evaluations=400)
    why = split(request, found, blind_plans(request, found, 400, share=1.0))
    assert why.added > 0.1
    assert why.exchanged + why.operators < 0.01


def test_who_sees_operators_instead_loses_nothing():
    """With the truth as its belief it is no blind planner: what was found is not better than what it finds itself."""
    request = asked(model="alexnet", batch=512, counts=(4, 4))
    found = gather(request, evaluations=600)
    again = blind_plans(request, found, 600, share=1.0, believed=PERFORMANCE)
    assert split(request, found, again).operators < 0.01


def test_nobody_is_blind_where_nothing_can_be_mixed():
    alone = asked(types=(V100,), counts=(4,))
    kept = asked(space=Space(single_type=True))
    assert not may_mix(alone) and not may_mix(kept)
    assert blind_plans(alone, []) == [] == blind_plans(kept, [])


# -- the certificate ----------------------------------------------------------------------------------------------


def test_one_gpu_with_the_whole_batch_costs_what_is_proven():
    """T4 against V100: cheapest for all of vgg16, and one T4 takes the batch whole."""
    request = asked(batch=32)
    proof = cheapest_type(request)
    assert (proof.gpu_type, proof.operators, proof.types) == ("T4", 22, ("V100", "T4"))
    alone = request.truth(Plan((Stage(0, 21, "T4", 1),), 1))
    assert alone.usd_per_iteration == pytest.approx(proof.usd_per_iteration, rel=1e-9)


@pytest.mark.parametrize("model", ["vgg16", "dlrm", "nasnet-mobile", "bert-base"])
def test_no_plan_costs_less_than_is_proven(model):
    """Law: 300 random plans of all that the space allows, and all that the search finds."""
    space = Space(tensor=(1, 2), schedules=("1f1b", "gpipe"), recompute=(False, True), zero=(0, 1), mixed=True)
    request = asked(model=model, batch=32, space=space)
    proof = cheapest_type(request)
    assert proof is not None
    ground, rng = Ground(request), np.random.default_rng(3)
    moves = list(moves_for(ground).values())
    found = gather(request, ("exact", "uneven", "search"), 100)
    plan, judged = found[0].plan, list(found)
    for _ in range(300):
        moved = moves[int(rng.integers(len(moves)))](plan, ground, rng)
        if moved is not None and ground.allows(moved):
            plan = moved
            judged += [r for r in [request.truth(plan)] if r is not None]
    assert len({r.counts for r in judged}) > 5
    assert min(r.usd_per_iteration for r in judged) >= proof.usd_per_iteration * (1 - 1e-9)


def test_a_bound_takes_the_certificate_where_it_says_more():
    request = asked(model="dlrm", batch=2048)
    proof, bound = cheapest_type(request), lower_bound(request)
    assert bound.usd_per_iteration < proof.usd_per_iteration
    assert bound.at_least(proof.usd_per_iteration).usd_per_iteration == pytest.approx(proof.usd_per_iteration)
    assert bound.at_least(0.0) == bound
    cheapest = min(r.usd_per_iteration for r in request.judged(method("data-parallel").propose(request)))
    assert cheapest >= proof.usd_per_iteration * (1 - 1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"types": (V100, replace(T4, price_usd_per_h=None))},  # who is of unknown price may be cheaper
        {"types": (V100,), "counts": (4,)},
        {"rented": (8, 8)},  # one GPU is paid as eight
        {"space": Space(schedules=("async",))},
        {"types": (V100, replace(T4, price_usd_per_h=T4.price_or_nan * 2))},  # neither is cheapest for all
    ],
)
def test_nothing_is_certified_that_is_not_proven(change):
    assert cheapest_type(asked(batch=32)) is not None
    assert cheapest_type(asked(batch=32, **change)) is None


def test_what_mixing_saves_at_most_by_hand():
    """Each operator where it is cheapest, against all on the one type that is cheapest for all."""
    on_v100, on_t4 = (np.sum(PERFORMANCE.op_times_s("vgg16", 32.0, gpu)) for gpu in (V100, T4))
    dear = replace(T4, price_usd_per_h=V100.price_or_nan * on_v100 / on_t4)
    request = asked(batch=32, types=(V100, dear))
    usd = np.zeros((2, 22))
    for row, gpu in zip(usd, (V100, dear), strict=True):
        forward, backward = PERFORMANCE.op_times_s("vgg16", 32.0, gpu)
        steps = [PERFORMANCE.update_s("vgg16", o, o, gpu, 32) for o in range(22)]
        row[:] = gpu.price_or_nan / 3600 * (forward + backward + steps)
    by_hand = 1 - usd.min(axis=0).sum() / usd.sum(axis=1).min()
    assert most_saved(request) == pytest.approx(by_hand)
    assert by_hand > 0.01
    assert most_saved(asked(batch=32)) == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(most_saved(asked(batch=32, rented=(8, 1))))


@pytest.mark.parametrize("factor", [1.5, 2.0, 2.5])
def test_no_mixture_saves_more_than_it_may(factor):
    """Law: at prices between which no type is cheapest for all, against one GPU that has memory for all."""
    request = asked(batch=32, types=(V100, replace(T4, price_usd_per_h=T4.price_or_nan * factor)))
    found = gather(request, evaluations=200)
    alone = min(r.usd_per_iteration for r in found if sum(r.counts) == 1)
    assert 1 - min(r.usd_per_iteration for r in found) / alone <= most_saved(request) + 1e-9
