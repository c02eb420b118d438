"""Stages that divide tables or experts in the search: found where they are best, only where there is something."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.methods.search import lean, starts
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.cheapest_type import SAFETY, cheapest_type
from policies.recommend.searching.gather import gather
from policies.recommend.searching.nofit import leanest, nothing_fits
from policies.recommend.searching.plain import full
from policies.recommend.searching.sharding import with_shards
from sim.api import Part, Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from tests.recommend.test_search_method import every_plan

V100, T4 = gpu_type("V100"), gpu_type("T4")
TABLES = "dlrm(rows=195312500, width=128)"
ONE_TABLE = "dlrm(rows=195312500, width=128, tables=1)"
EXPERTS = "llama(layers=1, hidden=256, heads=4, inner=8192, experts=4, chosen=1, tokens=32)"
SINGLE, MIXED = Performance(calibration="scripts", optimizer="sgd"), Performance()
MAYBE, ALWAYS = (False, True), (True,)


def request(model, batch, types, counts, space, performance=MIXED, node=4):
    fleet = Fleet(performance, types, counts, (node,) * len(types))
    return Request(performance, model, batch, fleet, sum(counts), space)


def best(asked, evaluations=300):
    return min(gather(asked, evaluations=evaluations), key=lambda r: r.iteration_s)


def test_a_hundred_gigabytes_are_planned_for_once_they_may_be_divided():
    """One table of 93.1 GiB is on no V100; of 26 a pipeline of eight stages has some each, and is slower."""
    asked = request(ONE_TABLE, 4096, (V100,), (8,), Space(micro_batches=(1, 2)), SINGLE, node=8)
    assert not gather(asked, ("gpipe",)) and leanest(asked).need_gib > 93
    assert "tables or experts divided among replicas" in str(nothing_fits(asked))
    may = replace(asked, space=replace(asked.space, sharded=MAYBE), _judged={})
    found = best(may)
    assert any(stage.sharded for stage in found.plan.stages)
    pipeline, both = (best(request(TABLES, 4096, (V100,), (8,), Space(micro_batches=(1, 2), sharded=sharded), SINGLE,
                                   node=8)) for sharded in ((False,), MAYBE))  # fmt: skip
    assert len(pipeline.plan.stages) == 8 and both.iteration_s < pipeline.iteration_s
    row = full(may, found)
    assert "sharded" in row["layout"] and any(stage.get("sharded") for stage in row["stages"])


def every_way(asked, ends):
    """Each plan of given blocks, with each set of stages divided that may be."""
    ground = Ground(asked)
    repeated = replace(asked, space=replace(asked.space, sharded=(False,)))
    for r in every_plan(repeated, ends):
        may = [(False, True) if ground.may_shard(r.plan, stage) else (False,) for stage in r.plan.stages]
        for chosen in product(*may):
            plan = replace(r.plan, stages=tuple(
                replace(stage, sharded=one) for stage, one in zip(r.plan.stages, chosen, strict=True)))
            found = asked.truth(plan) if ground.allows(plan) else None
            if found is not None:
                yield found


@pytest.mark.parametrize(("model", "batch", "types", "counts"), [
    (EXPERTS, 12, (V100, T4), (2, 2)), ("dlrm(rows=4000000, width=64, tables=4)", 512, (V100, T4), (2, 1)),
    ("dlrm-1tb", 64, (V100,), (3,)),
])
def test_the_best_of_all_plans_is_found_and_none_is_below_the_bounds(model, batch, types, counts):
    """Brute force over all cuts between five blocks, all GPUs, all sets of stages that are divided."""
    space = Space(micro_batches=(1, 2), sharded=MAYBE)
    asked = request(model, batch, types, counts, space, Performance(optimizer="sgd"))
    ends = np.unique(np.linspace(0, len(MIXED.graph(model)), 6).astype(int)).tolist()
    plans = list(every_way(asked, ends))
    mine = replace(asked, _judged={}, _shared={})
    found, bound, proof = gather(mine, evaluations=800), lower_bound(mine), cheapest_type(mine)
    if not plans:
        assert not found
        return
    assert any(stage.sharded for r in plans for stage in r.plan.stages)
    assert min(r.iteration_s for r in found) <= min(r.iteration_s for r in plans) * 1.005
    assert min(r.usd_per_iteration for r in found) <= min(r.usd_per_iteration for r in plans) * 1.005
    for r in (*plans, *found):
        assert bound.iteration_s <= r.iteration_s and bound.usd_per_iteration <= r.usd_per_iteration
        assert proof is None or proof.usd_per_iteration <= r.usd_per_iteration * (1 + SAFETY)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_no_walk_leaves_the_space_or_goes_below_the_bounds(data):
    """Law: whatever blind moves lead to, flags are where they may be, and no plan is better than the bounds."""
    space = Space(
        micro_batches=(1, 2, 4), sharded=data.draw(st.sampled_from([MAYBE, ALWAYS])), mixed=data.draw(st.booleans()),
        zero=data.draw(st.sampled_from([(0,), (0, 1)])), tensor=data.draw(st.sampled_from([(1,), (1, 2)])),
        recompute=data.draw(st.sampled_from([(False,), (False, True)])),
        schedules=data.draw(st.sampled_from([("",), ("", "async")])),
    )
    asked = request(EXPERTS, data.draw(st.sampled_from([8, 20])), (V100, T4), (4, 3), space)
    ground, rng = Ground(asked), np.random.default_rng(data.draw(st.integers(0, 999)))
    moves, found, divided = list(moves_for(ground).values()), [], 0
    gang = Plan((Stage(0, ground.operators - 1, "V100", 4),))
    for plan in with_shards([gang, *list(lean(asked))[:24]], ground):
        for _ in range(8):
            r = asked.truth(plan) if ground.allows(plan) else None
            if r is not None:
                found.append(r)
                divided += any(stage.sharded for stage in plan.stages)
            moved = moves[int(rng.integers(len(moves)))](plan, ground, rng)
            plan = moved if moved is not None and ground.allows(moved) else plan
    bound = lower_bound(asked)
    assert divided and found
    assert all(bound.iteration_s <= r.iteration_s and bound.usd_per_iteration <= r.usd_per_iteration for r in found)


def test_models_without_such_operators_know_nothing_of_it():
    for model, sharded in (("vgg16", MAYBE), ("vgg16", ALWAYS), (EXPERTS, (False,))):
        ground = Ground(request(model, 32, (V100, T4), (2, 2), Space(sharded=sharded)))
        plain = Ground(request(model, 32, (V100, T4), (2, 2), Space()))
        assert not ground.shards and list(moves_for(ground)) == list(moves_for(plain))
        plans = list(starts(plain.request))
        assert list(with_shards(plans, ground)) == plans
    asked, told = (request("vgg16", 32, (V100, T4), (2, 2), Space(sharded=sharded)) for sharded in (MAYBE, (False,)))
    assert [r.plan for r in gather(asked, evaluations=150)] == [r.plan for r in gather(told, evaluations=150)]
    assert asked.evaluations == told.evaluations and lower_bound(asked) == lower_bound(told)


def test_where_all_must_be_divided_all_are_that_can():
    asked = request(EXPERTS, 16, (V100, T4), (4, 2), Space(micro_batches=(1, 2), sharded=ALWAYS, mixed=True))
    ground, found = Ground(asked), gather(asked, evaluations=200)
    assert found and all(
        stage.sharded == ground.may_shard(r.plan, stage) for r in found for stage in r.plan.stages)


def test_what_may_be_divided_by_hand():
    ground = Ground(request(EXPERTS, 16, (V100, T4), (4, 4), Space(sharded=MAYBE, mixed=True, tensor=(1, 2))))
    last, fc1 = ground.operators - 1, MIXED.graph(EXPERTS).ops.index("0.experts.fc1")
    parts = (Part("V100", 2, 0.5), Part("T4", 2, 0.5))
    cases = [
        (Stage(0, last, "V100", 2), True), (Stage(0, last, "V100", 1), False), (Stage(0, last, "V100", 4, 2), False),
        (Stage(0, last, "V100", 4, 1, parts), False), (Stage(0, fc1 - 1, "V100", 2), False),
        (Stage(fc1, last, "V100", 2), True),
    ]
    assert [ground.may_shard(Plan((stage,)), stage) for stage, _ in cases] == [may for _, may in cases]
