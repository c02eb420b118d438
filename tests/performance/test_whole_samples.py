"""Samples are whole: where a batch does not divide, the largest share decides time and memory (R3-03)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.methods.uneven import propose, split
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.request.whole_samples import in_whole_samples
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.gather import gather
from sim.api import Part, Plan, Stage
from sim.cli.whatif import ask, on_full_nodes, parse_stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.samples import largest_share, of_each, part_samples, uneven, whole_parts, whole_shares
from tests.recommend.test_search_method import every_plan

SPEEDS = Performance()


def iteration(batch: int, *stages: str, m: int = 1, model: str = "gpt2-1.5b"):
    """An iteration on stages, cut as for 64 samples: the same cut for any batch."""
    cut = ask(SPEEDS, model, 64, Plan(tuple(map(parse_stage, stages)), 1)).plan
    return ask(SPEEDS, model, batch, Plan(cut.stages, m)).iteration


def test_r3_03_five_samples_on_four_replicas_are_as_slow_and_as_large_as_eight():
    five, eight = (iteration(batch, "4xA100-80") for batch in (5, 8))
    assert five.iteration_s == eight.iteration_s == pytest.approx(0.2180, abs=1e-3)
    assert five.memory_gib == eight.memory_gib
    assert five.memory_gib[0] == pytest.approx(41.5, abs=0.1)
    assert not iteration(5, "4xA100").fits
    assert iteration(4, "4xA100").fits
    assert not SPEEDS.fits("gpt2-1.5b", 5, gpu_type("A100"), 4)


def test_r3_03_one_sample_more_than_gpus_is_two_on_one_of_them():
    more, twice = (iteration(batch, "256xA100", model="bert-large-512") for batch in (257, 512))
    assert more == twice


def test_r3_03_micro_batches_hold_whole_samples():
    assert iteration(32, *["1xA100"] * 4, m=6) == iteration(36, *["1xA100"] * 4, m=6)


@given(batch=st.integers(1, 200), replicas=st.integers(1, 12), m=st.sampled_from([1, 2, 3, 4, 7]),
       stages=st.integers(1, 3))  # fmt: skip
def test_r3_03_time_and_memory_are_those_of_the_next_batch_that_divides(batch, replicas, m, stages):
    if batch < m * replicas:
        return
    said, next_one = (
        iteration(b, *[f"{replicas}xA100-80"] * stages, m=m, model="resnet50")
        for b in (batch, replicas * m * math.ceil(batch / (replicas * m)))
    )
    assert said == next_one


def test_parts_of_several_types_get_whole_samples_each():
    """30 x 0.7 are 21 on 2 V100: 11 on one of them; 9 on a T4 are nine."""
    parts = (Part("V100", 2, 0.7), Part("T4", 1, 0.3))
    plan = Plan((Stage(0, len(SPEEDS.graph("resnet50")) - 1, "V100", 3, parts=parts),))
    cluster, gpus = on_full_nodes(plan, (gpu_type("V100"), gpu_type("T4")), 8, SPEEDS)
    got = SPEEDS.plan("resnet50", 30, plan, gpus, cluster).compute_s
    last = plan.stages[0].last_op
    work = [sum(SPEEDS.stage_time_s("resnet50", 0, last, gpu_type(name), n)) for name, n in (("V100", 11), ("T4", 9))]
    assert got == pytest.approx(max(work))


def test_below_one_sample_a_replica_is_refused_as_before():
    said = iteration(3, "4xA100-80")
    assert not said.fits
    assert "3 samples" in said.reason


def test_shares_that_round_are_whole():
    assert largest_share(0.7 * 20 / 2) == 7
    assert largest_share(np.nextafter(3.0, 4.0)) == 3
    assert largest_share(3.01) == 4
    assert largest_share(0.5) == 0.5


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0.0, 1.0), st.floats(0.05, 2.0)), min_size=1, max_size=3),
       st.integers(1, 200))  # fmt: skip
def test_whole_shares_hold_all_samples_and_end_no_later_than_any_others(types, wanted):
    """Against all whole numbers near the fractions that end together: none that hold as many samples end sooner."""
    replicas, start_s, slope_s = map(list, zip(*types, strict=True))
    samples = split(np.array(replicas), wanted, np.array(start_s), np.array(slope_s)).tolist()
    if min(samples) < 1:
        return
    got = whole_shares(replicas, samples, list(zip(start_s, slope_s, strict=True)))
    low = [max(1, math.floor(s)) for s in samples]
    assert sum(n * k for n, k in zip(replicas, got, strict=True)) >= wanted

    def end_s(whole):
        return max(a + b * k for a, b, k in zip(start_s, slope_s, whole, strict=True))

    reach = range(7)
    near = np.array(np.meshgrid(*[[k + d for d in reach] for k in low])).reshape(len(low), -1).T
    enough = near[near @ np.array(replicas) >= wanted]
    assert end_s(got) <= min(map(end_s, enough)) * (1 + 1e-9)


def test_planned_shares_of_several_types_are_whole():
    fleet = Fleet(SPEEDS, (gpu_type("V100"), gpu_type("T4")), (3, 2))
    plans = list(propose(Request(SPEEDS, "resnet50", 61, fleet, 5, Space(mixed=True, micro_batches=(1,)))))
    assert plans
    for plan in plans:
        parts = plan.stages[0].parts
        most = [largest_share(61 * part.share / part.gpus) for part in parts]
        assert 61 <= sum(n * part.gpus for n, part in zip(most, parts, strict=True)) < 61 + max(p.gpus for p in parts)


@pytest.mark.parametrize("model", ["resnet50", "bert-large", "gnmt-8"])
@pytest.mark.parametrize("batch", [5, 7, 33])
def test_no_plan_is_below_the_bounds_where_the_batch_does_not_divide(model, batch):
    """Brute force on three GPUs; and the bound of one type knows of the sample that is over."""
    fleet = Fleet(SPEEDS, (gpu_type("V100"), gpu_type("T4")), (3, 1))
    asked = Request(SPEEDS, model, batch, fleet, 3)
    ends = np.unique(np.linspace(0, len(SPEEDS.graph(model)), 5).astype(int)).tolist()
    bound = lower_bound(asked)
    for found in every_plan(asked, ends):
        assert bound.iteration_s <= found.iteration_s
        assert bound.usd_per_iteration <= found.usd_per_iteration


def test_what_is_uneven_is_told_and_what_is_even_is_not():
    decides = "decides time and memory"
    assert uneven(5, 1, [(0, 4, 1.0)]) == [f"stage 0: 5 samples / 4 replicas = 2, 1, 1, 1: one with 2 {decides}"]
    assert uneven(8, 1, [(0, 4, 1.0)]) == uneven(3, 1, [(0, 4, 1.0)]) == []
    assert uneven(100, 8, [(0, 1, 1.0), (1, 5, 1.0)]) == [
        f"100 samples / 8 micro-batches = 4 of 13 and 4 of 12: one with 13 {decides}",
        f"stage 1: 13 samples / 5 replicas = 3, 3, 3, 2, 2: one with 3 {decides}",
    ]
    assert uneven(40, 1, [(0, 16, 1.0)]) == [f"stage 0: 40 samples / 16 replicas = 8 x 3, 8 x 2: one with 3 {decides}"]


def test_parts_take_whole_samples_by_hand():
    """8 on three are 3, 3 and 2. Of 10, half each on two and on three: two each."""
    assert part_samples(8, [3], [1.0]) == [8]
    assert of_each(8, 3) == [3, 3, 2]
    assert part_samples(10, [2, 3], [0.5, 0.5]) == [4, 6]
    assert part_samples(8, [2, 2], [0.55, 0.45]) == [4, 4]
    assert part_samples(4, [3, 2], [0.6, 0.4]) == []
    assert part_samples(12.5, [1, 1], [0.7, 0.3]) == [9, 4]


PARTS = st.lists(st.tuples(st.integers(1, 9), st.floats(0.05, 1.0)), min_size=1, max_size=4)


@given(PARTS, st.integers(1, 300), st.sampled_from([1, 2, 3, 5, 8]))
def test_whole_samples_are_all_of_them_and_no_replica_has_more_than_its_share_rounded_up(parts, batch, m):
    replicas, weights = map(list, zip(*parts, strict=True))
    shares, micro = [w / sum(weights) for w in weights], batch / m
    if micro < 1:
        return
    got = part_samples(micro, replicas, shares)
    if not got:
        assert any(micro * share / n < 1 for share, n in zip(shares, replicas, strict=True))
        return
    assert sum(got) == math.ceil(micro)
    for whole, n, share in zip(got, replicas, shares, strict=True):
        each = of_each(whole, n)
        assert len(each) == n
        assert sum(each) == whole
        assert each[0] - each[-1] <= 1 <= each[-1]
        assert each[0] <= largest_share(micro * share / n)
    again = whole_parts(micro, replicas, got)
    assert sum(again) == pytest.approx(1.0, abs=1e-12)
    assert all(micro * share / n >= 1 - 1e-9 for share, n in zip(again, replicas, strict=True))
    assert part_samples(micro, replicas, again) == got
    assert [largest_share(micro * share / n) for share, n in zip(again, replicas, strict=True)] == [
        of_each(whole, n)[0] for whole, n in zip(got, replicas, strict=True)
    ]


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_plan_in_whole_samples_computes_no_longer_and_needs_no_more_memory(data):
    """And it is what the recommender judges, so that all that it answers is whole."""
    fleet = Fleet(SPEEDS, (gpu_type("V100"), gpu_type("T4")), (4, 4))
    asked = Request(SPEEDS, "resnet50", data.draw(st.integers(8, 90)), fleet, 8, Space(mixed=True))
    share = data.draw(st.floats(0.1, 0.9))
    parts = (Part("V100", data.draw(st.integers(1, 4)), share), Part("T4", data.draw(st.integers(1, 4)), 1 - share))
    gpus, m = sum(part.gpus for part in parts), data.draw(st.sampled_from([1, 2, 3]))
    plan = Plan((Stage(0, len(SPEEDS.graph("resnet50")) - 1, "V100", gpus, parts=parts),), m)
    whole, found = in_whole_samples(plan, asked.batch_size), asked.truth(plan)
    before, after = (SPEEDS.plan("resnet50", asked.batch_size, p, fleet.gpus(p), fleet.spec) for p in (plan, whole))
    assert (found is not None) == before.fits == after.fits
    assert after.iteration_s <= before.iteration_s * (1 + 1e-12)
    if found is not None:
        assert after.memory_part <= before.memory_part
        assert found.iteration_s == after.iteration_s
        assert found.plan.stages == in_whole_samples(found.plan, asked.batch_size).stages


@pytest.mark.parametrize("model, batch, counts", [("resnet50", 61, (3, 2)), ("gnmt-8", 37, (2, 3))])
def test_the_search_finds_whole_samples(model, batch, counts):
    """Each part of each plan found has a whole number of the samples of a micro-batch."""
    fleet = Fleet(SPEEDS, (gpu_type("V100"), gpu_type("T4")), counts)
    asked = Request(SPEEDS, model, batch, fleet, sum(counts), Space(mixed=True, micro_batches=(1, 2, 3)))
    found = gather(asked, ("uneven", "metis", "search"), evaluations=400)
    assert any(stage.parts for r in found for stage in r.plan.stages)
    for r in found:
        micro = batch / r.plan.micro_batches
        for stage in r.plan.stages:
            if stage.parts:
                replicas, shares = [part.gpus for part in stage.parts], [part.share for part in stage.parts]
                samples = part_samples(micro, replicas, shares)
                assert sum(samples) == math.ceil(micro)
                assert shares == pytest.approx(whole_parts(micro, replicas, samples), abs=1e-12)
