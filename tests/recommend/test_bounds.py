"""Lower bounds: no plan is below them, by brute force and by law; by hand where the model is a line."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.methods.search import lean, starts
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Recommendation, Request, Space
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.bounds import Bound, _Choices, lower_bound
from policies.recommend.searching.choices import Work
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import MODELS, MeasuredTable, Performance
from sim.performance.optimizer import OPTIMIZERS
from sim.performance.tables import Measurement, Point
from tests.recommend.test_search_method import every_plan

V100, P100, T4, A100 = (gpu_type(name) for name in ("V100", "P100", "T4", "A100"))
PERFORMANCE = Performance()


def request(model, batch, types, counts, space=None, performance=PERFORMANCE, node=4, rented=None):
    fleet = Fleet(performance, types, counts, (node,) * len(types), rented)
    return Request(performance, model, batch, fleet, sum(counts), space or Space())


def none_below(bound, found):
    for r in found:
        assert bound.iteration_s <= r.iteration_s
        assert math.isnan(r.usd_per_iteration) or bound.usd_per_iteration <= r.usd_per_iteration


@pytest.mark.parametrize(("model", "rented"), [*((model, None) for model in MODELS), ("vgg16", (4, 1)),
                                               ("bert-large", (2, 8))])
def test_no_plan_on_three_gpus_is_below_the_bounds(model, rented):
    """Brute force: all plans of five blocks, any replicas, all micro-batches, of each model of the zoo."""
    asked = request(model, 24, (V100, T4), (2, 1), rented=rented)
    n = len(PERFORMANCE.graph(model))
    ends = np.unique(np.linspace(0, n, 6).astype(int)).tolist()
    none_below(lower_bound(asked), every_plan(asked, ends))


@pytest.mark.parametrize("blocking", [True, "both"])
@pytest.mark.parametrize("model", ["gpt2-1.5b", "vgg16", "gnmt-8"])
def test_no_plan_is_below_the_bounds_where_transfers_block(model, blocking):
    """Brute force again, where messages take the time of the GPUs at one end or at both."""
    performance = Performance(blocking=blocking)
    asked = request(model, 24, (V100, T4), (2, 1), Space(micro_batches=(1, 3, 6)), performance=performance)
    ends = np.unique(np.linspace(0, len(PERFORMANCE.graph(model)), 6).astype(int)).tolist()
    none_below(lower_bound(asked), every_plan(asked, ends))


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_no_walk_goes_below_the_bounds(data):
    """Law: whatever blind moves lead to, in whatever space, is no better than the bounds."""
    space = Space(
        tensor=data.draw(st.sampled_from([(1,), (1, 2)])),
        schedules=data.draw(st.sampled_from([("",), ("gpipe", "async")])),
        recompute=data.draw(st.sampled_from([(False,), (False, True)])), mixed=data.draw(st.booleans()),
        zero=data.draw(st.sampled_from([(0,), (0, 1, 2, 3)])), orders=data.draw(st.booleans()),
    )
    model = data.draw(st.sampled_from(["bert-large", "vgg16", "gpt2-1.5b", "resnet50", "gnmt-16"]))
    performance = Performance(
        overlap=data.draw(st.booleans()), optimizer=data.draw(st.sampled_from(list(OPTIMIZERS.values()))))
    rented = data.draw(st.sampled_from([None, (4, 2, 1), (8, 8, 3)]))
    asked = request(model, data.draw(st.sampled_from([8, 48, 100])), (V100, P100, T4), (5, 2, 4), space, performance,
                    rented=rented)
    ground, rng = Ground(asked), np.random.default_rng(data.draw(st.integers(0, 999)))
    moves, found = list(moves_for(ground).values()), []
    for plan in lean(asked):
        for _ in range(12):
            if (r := asked.truth(plan) if ground.allows(plan) else None) is not None:
                found.append(r)
            moved = moves[int(rng.integers(len(moves)))](plan, ground, rng)
            plan = moved if moved is not None and ground.allows(moved) else plan
    none_below(lower_bound(asked), found)


def test_one_gpu_is_bounded_by_what_it_takes():
    """One V100, one micro-batch: the only plan is the bound, in time and in cost."""
    asked = request("bert-large", 8, (V100,), (1,), Space(micro_batches=(1,)))
    only = asked.truth(Plan((Stage(0, len(PERFORMANCE.graph("bert-large")) - 1, "V100", 1),), 1))
    bound = lower_bound(asked)
    assert bound.iteration_s == pytest.approx(only.iteration_s, rel=1e-8)
    assert bound.usd_per_iteration == pytest.approx(only.usd_per_iteration, rel=1e-8)
    assert bound.reached_by([only])


@pytest.mark.parametrize(("gpus", "whole"), [(1, 4), (3, 4), (4, 4), (5, 8)])
def test_r3_10_a_node_that_is_rented_whole_is_paid_whole(gpus, whole):
    """V100 are rented by four: a plan on one pays four, one on five eight; on one GPU that is the proven bound, too."""
    asked = request("bert-large", 8, (V100,), (8,), Space(micro_batches=(1,)), rented=(4,))
    plan = Plan((Stage(0, len(PERFORMANCE.graph("bert-large")) - 1, "V100", gpus),), 1)
    r = asked.truth(plan)
    assert r.usd_per_iteration == pytest.approx(r.iteration_s / 3600 * whole * V100.price_usd_per_h)
    assert lower_bound(asked).usd_per_iteration <= r.usd_per_iteration
    alone = replace(asked, max_gpus=1, _judged={})
    if gpus == 1:
        assert lower_bound(alone).usd_per_iteration == pytest.approx(r.usd_per_iteration, rel=1e-8)


@pytest.mark.parametrize(("counts", "reach"), [((8,), 1.3), ((16,), 1.6)])
def test_data_parallelism_comes_near_the_bound(counts, reach):
    """ResNet-50 on V100 alone: what the bound leaves open is the latency of the all-reduce, and pipelines."""
    asked = request("resnet50", 512, (V100,), counts, node=8)
    best = min(r.iteration_s for r in asked.judged(starts(asked)))
    assert lower_bound(asked).iteration_s <= best <= reach * lower_bound(asked).iteration_s


def test_multipliers_that_say_nothing_prove_nothing_wrong():
    """Weak duality: of any multipliers at all the bound holds; the solver's are better than random ones."""
    asked = request("vgg16", 64, (V100, T4), (4, 4))
    work, rng = Work(asked), np.random.default_rng(0)
    choices = _Choices(work, 4, work.choices(4))
    best = min(r.iteration_s for r in asked.judged(p for p in starts(asked) if p.micro_batches == 4))
    solved = choices.least_time_s()
    for _ in range(50):
        drawn = choices._bound_s(rng.random((3, len(choices.limits))) * [[1.0], [1.0], [0.01]])
        assert drawn <= solved * (1 + 1e-6) and drawn <= best
    assert solved <= best


def test_a_wider_space_or_fleet_never_raises_the_bounds():
    narrow = lower_bound(request("bert-large", 32, (V100, T4), (2, 2)))
    for wider in (
        request("bert-large", 32, (V100, T4), (4, 2)),
        request("bert-large", 32, (V100, T4, A100), (2, 2, 1)),
        request("bert-large", 32, (V100, T4), (2, 2), Space(zero=(0, 1), recompute=(False, True), tensor=(1, 2))),
    ):
        bound = lower_bound(wider)
        assert bound.iteration_s <= narrow.iteration_s * (1 + 1e-6)
        assert bound.usd_per_iteration <= narrow.usd_per_iteration * (1 + 1e-6)


def test_what_fits_nowhere_has_no_bound():
    """13 billion parameters take 194 GiB: four T4 have 64."""
    assert lower_bound(request("gpt3-13b", 4, (T4,), (4,))).iteration_s == math.inf


def test_cost_is_bounded_over_types_with_a_price():
    free = replace(A100, name="X100", price_usd_per_h=None)
    both, priced = (request("vgg16", 64, *on) for on in (((free, T4), (2, 2)), ((T4,), (2,))))
    assert lower_bound(both).usd_per_iteration == pytest.approx(lower_bound(priced).usd_per_iteration, rel=1e-12)
    assert lower_bound(both).iteration_s < lower_bound(priced).iteration_s
    assert lower_bound(request("vgg16", 64, (free,), (2,))).usd_per_iteration == math.inf


def test_of_measured_rates_nothing_can_be_told():
    table = MeasuredTable({Point("toy", 0, "v100", 1, 1): Measurement(10.0)}, "by hand")
    assert lower_bound(request("toy", 1, (V100,), (1,), performance=Performance(table=table))) == Bound(0.0, 0.0)


def test_gap_by_hand():
    """Bounds 1 s and 2 $: the fastest plan takes 1.5 s, the cheapest costs 2 $; a plan without price has no cost."""
    bound = Bound(1.0, 2.0)
    slow, fast = (Recommendation(Plan(()), *row, (1,)) for row in ((3.0, 2.0), (1.5, math.nan)))
    assert bound.gap([slow, fast]) == (0.5, 0.0)
    assert not bound.reached_by([slow, fast])
    assert math.isnan(bound.gap([fast])[1])
    assert bound.gap([])[0] == math.inf
