"""Planners of other people for mixed GPUs: what each balances, by hand and by brute force, and what all must keep."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.algorithms.balance import capped_shares, least_bottleneck, least_flush, spans
from policies.recommend.methods import method, method_names, sailor
from policies.recommend.methods.heterbo import Trials
from policies.recommend.methods.metis import groupings
from policies.recommend.methods.sailor import even_cuts, replicas_worth
from policies.recommend.methods.whale import peak
from policies.recommend.request.coarse_layers import LAYERS, Layers
from policies.recommend.request.devices import FEW, Devices, Style, divisors
from policies.recommend.request.devices import given as devices_given
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from sim.api import Part
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.graph import GraphBuilder
from sim.performance.memory import stage_memory
from sim.performance.tables import Measurement, Point
from tests.recommend.test_pace import known

PERFORMANCE = Performance()
ALL_GPUS = ("amp", "hetpipe", "metis", "whale")
METHODS = (*ALL_GPUS, "heterbo", "sailor")
PLAIN = Style("", recompute=False, zero=0)


def request(model="bert-large", batch=64, gpus="V100:4,P100:4", max_gpus=10_000, performance=PERFORMANCE, **space):
    names, counts = zip(*(one.split(":") for one in gpus.split(",")), strict=True)
    fleet = Fleet(performance, [gpu_type(name) for name in names], [int(count) for count in counts])
    return Request(performance, model, batch, fleet, max_gpus, Space(**space))


def plans(name, asked):
    return list(method(name).propose(asked))


def even_layers(n=16, values=1.0):
    """A model of n equal matrix products, of which each sends little."""
    build = GraphBuilder("even", "a row", 2.0)
    for i in range(n):
        build.add(f"layer{i}", "gemm", (i - 1,), values, flops=1e12, params=1e6, stored_bytes=1e3)
    return Performance(graphs={"even": build.build()})


def parts_of(stage):
    return stage.parts or (Part(stage.gpu_type, stage.gpus, 1.0),)


def layers_of(plan):
    return [stage.last_op - stage.first_op + 1 for stage in plan.stages]


# -- balancing ---------------------------------------------------------------------------------------------


def cuts_of(n, p):
    """All cuts of n layers into p stages."""
    return [[0, *inner, n] for inner in combinations(range(1, n), p - 1)]


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_the_least_bottleneck_is_that_of_all_cuts(seed):
    rng = np.random.default_rng([seed, 2])
    n, p = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    costs = [np.where(rng.random((n + 1, n + 1)) < 0.15, np.inf, rng.random((n + 1, n + 1))) for _ in range(p)]
    costs = [np.where(np.isfinite(spans(np.arange(n + 1.0))), cost, np.inf) for cost in costs]
    slowest = [max(cost[i, j] for cost, (i, j) in zip(costs, pairwise(cuts), strict=True)) for cuts in cuts_of(n, p)]
    found = least_bottleneck(costs)
    if min(slowest, default=math.inf) == math.inf:
        assert found is None
    else:
        assert found is not None and found[1] == min(slowest)
        assert max(cost[i, j] for cost, (i, j) in zip(costs, pairwise(found[0]), strict=True)) == found[1]


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_the_least_flush_is_that_of_all_cuts(seed):
    rng = np.random.default_rng([seed, 3])
    n, p, m = int(rng.integers(1, 8)), int(rng.integers(1, 5)), int(rng.integers(2, 5))
    cost = spans(np.concatenate(([0.0], np.cumsum(rng.random(n)))))
    borders = [rng.random(n + 1) * rng.choice([0.1, 3.0]) for _ in range(p - 1)]
    times = [
        (m - 1) * max(cost[i, j] for i, j in pairwise(cuts)) + sum(borders[s][cuts[s + 1]] for s in range(p - 1))
        for cuts in cuts_of(n, p)
    ]
    found = least_flush(cost, borders, m)
    assert (found is None) == (not times)
    if found is not None:
        assert found[1] == pytest.approx(min(times), rel=1e-12)


def test_one_micro_batch_is_cut_evenly():
    """Nothing repeats, so that the slowest stage does not count: the cuts are even nevertheless."""
    cuts, time_s = least_flush(spans(np.arange(7.0)), [np.full(7, 0.5)], 1)
    assert cuts == [0, 3, 6] and time_s == 0.5


def test_shares_by_hand():
    """Speeds 3, 2, 1: 1/2, 1/3, 1/6. With 0.2 at most for the first, 0.3 over goes 2 : 1 to the others."""
    assert capped_shares([3, 2, 1], [9, 9, 9]) == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    assert capped_shares([3, 2, 1], [0.2, 9, 9]) == pytest.approx([0.2, 0.8 * 2 / 3, 0.8 / 3])
    assert capped_shares([3, 2, 1], [0.2, 0.3, 0.5]) == pytest.approx([0.2, 0.3, 0.5])
    assert capped_shares([3, 2, 1], [0.2, 0.3, 0.4]) is None


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1.5)), min_size=1, max_size=6))
def test_shares_add_up_and_keep_their_limits(rows):
    speed, most = zip(*rows, strict=True)
    shares = capped_shares(speed, most)
    if sum(most) >= 1:
        assert sum(shares) == pytest.approx(1)
        assert all(share <= limit + 1e-12 for share, limit in zip(shares, most, strict=True))


# -- devices and layers ------------------------------------------------------------------------------------


def test_gpus_stand_type_after_type_and_node_after_node():
    """12 V100 on nodes of 8 and 4, then 4 T4 on a node."""
    asked = request(gpus="V100:12,P100:2,T4:4", mixed=True)
    row = Devices(asked, (12, 0, 4), (0, 2))
    assert row.nodes.tolist() == [0] * 8 + [1] * 4 + [2] * 4 and row.parts(10, 4) == [(0, 2), (2, 2)]
    links = PERFORMANCE.links
    assert row.bytes_per_s(0, 8) == inside(gpu_type("V100"), links)[0]
    assert row.bytes_per_s(4, 8) == row.bytes_per_s(8, 8) == network_bytes_per_s(links, 1)
    stage = row.stage((0, 5), 10, 4, shares=[0.8, 0.2])
    assert [(p.gpu_type, p.gpus, p.share) for p in stage.parts] == [("V100", 2, 0.8), ("T4", 2, 0.2)]
    assert (stage.gpu_type, stage.gpus) == ("V100", 4)


def test_stages_that_the_space_has_not_are_none():
    """Two types where none is mixed; replicas of two types; no share for a type."""
    row = Devices(request(gpus="V100:3,T4:3"), (3, 3), (0, 1))
    assert row.stage((0, 5), 2, 2) is None and row.stage((0, 5), 0, 3, tensor=2) is None
    row = Devices(request(gpus="V100:3,T4:3", mixed=True), (3, 3), (0, 1))
    assert row.stage((0, 5), 2, 4, tensor=2) is None and row.stage((0, 5), 2, 2, shares=[1.0, 0.0]) is None


def test_all_gpus_are_given_or_the_fastest():
    assert devices_given(request(gpus="T4:4,V100:4")) == [(4, 4)]
    assert devices_given(request(gpus="T4:4,V100:4", max_gpus=6)) == [(2, 4)]
    assert devices_given(request(gpus="T4:4,V100:4", max_gpus=3, single_type=True)) == [(3, 0), (0, 3)]


def test_divisors_by_hand():
    assert divisors(12) == [1, 2, 3, 4, 6, 12] and divisors(1) == [1] and divisors(9) == [1, 3, 9]


@pytest.mark.parametrize("model", ["resnet50", "bert-large"])
def test_layers_take_what_their_operators_take(model):
    layers = Layers(request(model))
    v100, middle = gpu_type("V100"), len(layers) // 2
    assert len(layers) <= LAYERS and layers.first_op[0] == 0
    whole = layers.time_s(0, 4.0)
    assert whole[-1] - whole[middle] == pytest.approx(
        sum(PERFORMANCE.stage_time_s(model, *layers.span(middle, len(layers)), v100, 4.0)))
    forward = PERFORMANCE.stage_time_s(model, *layers.span(0, middle), v100, 4.0)[0]
    assert layers.time_s(0, 4.0, recompute=True)[middle] == pytest.approx(whole[middle] + forward)


@pytest.mark.parametrize("style", [PLAIN, Style("", recompute=True, zero=0), Style("", recompute=False, zero=2)])
def test_layers_need_what_the_truth_says(style):
    layers = Layers(request())
    graph, i, j = PERFORMANCE.graph("bert-large"), 3, len(layers) - 2
    need = stage_memory(graph, [layers.span(i, j)], 5.5, 3, replicas=4, zero=style.zero, recompute=style.recompute,
                        value_bytes=PERFORMANCE.value_bytes).total_gib
    assert layers.memory_gib(5.5, 3, 1, 4, style)[i, j] == pytest.approx(need)
    assert layers.most_samples(need, 3, 1, 4, style)[i, j] == pytest.approx(5.5)


def test_tensor_parallelism_is_left_out_where_the_model_has_none():
    """BERT-large has 16 heads; ResNet-50 has no operator that is split."""
    assert Layers(request("bert-large")).ways((1, 2, 3, 4)) == [1, 2, 4]
    assert Layers(request("resnet50")).ways((1, 2)) == [1]


# -- what each of them balances ----------------------------------------------------------------------------


def two_stages(name):
    """The cut of 16 equal layers over a V100 and a T4, in two stages with 8 micro-batches."""
    asked = request("even", 64, "V100:1,T4:1", performance=even_layers(), micro_batches=(8,))
    return asked, [plan for plan in plans(name, asked) if len(plan.stages) == 2]


def test_amp_cuts_evenly_whatever_the_types():
    """It knows one mean speed only."""
    _, found = two_stages("amp")
    assert [layers_of(plan) for plan in found] == [[8, 8]]
    assert [stage.gpu_type for stage in found[0].stages] == ["V100", "T4"]


def test_whale_cuts_by_nominal_peaks():
    asked, found = two_stages("whale")
    v100, t4 = peak(asked, 0), peak(asked, 1)
    first = min(range(1, 16), key=lambda n: max(n / v100, (16 - n) / t4))
    assert layers_of(found[0]) == [first, 16 - first] and found[0].stages[0].gpu_type == "V100"


@pytest.mark.parametrize("name", ["metis", "hetpipe"])
def test_metis_and_hetpipe_cut_by_modelled_speed(name):
    asked, found = two_stages(name)
    at = {plan.stages[0].gpu_type: plan for plan in found}
    each = {t: Layers(asked).time_s(t, 8.0)[1] for t in (0, 1)}
    for first_type, plan in at.items():
        t = ["V100", "T4"].index(first_type)
        first = min(range(1, 16), key=lambda n: max(n * each[t], (16 - n) * each[1 - t]))
        assert layers_of(plan) == [first, 16 - first]


def test_whale_shares_a_batch_by_peaks_until_memory_is_full():
    """V100 and T4 of like memory: in proportion to peaks. Where whole samples fill a V100, the T4 takes the others."""
    asked = request("even", 64, "V100:2,T4:2", performance=even_layers(), micro_batches=(1,), mixed=True)
    (plan,) = (plan for plan in plans("whale", asked) if len(plan.stages) == 1)
    v100, t4 = peak(asked, 0), peak(asked, 1)
    assert [part.share for part in plan.stages[0].parts] == pytest.approx([v100 / (v100 + t4), t4 / (v100 + t4)])

    build = GraphBuilder("wide", "a row", 2.0)
    build.add("layer", "gemm", (-1,), 1.0, flops=1e12, params=1e6, stored_bytes=2.0**30)
    asked = request("wide", 48, "V100:2,T4:2", performance=Performance(graphs={"wide": build.build()}),
                    micro_batches=(1,), mixed=True)
    (plan,) = plans("whale", asked)
    most = 2 / 48 * np.floor(Layers(asked).most_samples(gpu_type("V100").memory_gib, 1, 1, 4, PLAIN)[0, 1])
    assert most < v100 / (v100 + t4)
    assert [part.share for part in plan.stages[0].parts] == pytest.approx([most, 1 - most])


def test_whale_puts_larger_memory_first():
    found = plans("whale", request("bert-large", 64, "V100:2,RTX6000:2"))
    assert {plan.stages[0].gpu_type for plan in found if len(plan.stages) > 1} == {"RTX6000"}


def test_hetpipe_has_as_many_of_each_type_in_each_worker():
    """Of 4 V100 and 2 T4: one worker of six stages, or two of three; each stage has one GPU of each worker."""
    found = plans("hetpipe", request("even", 64, "V100:4,T4:2", performance=even_layers(), micro_batches=(8,)))
    assert [[stage.gpus for stage in plan.stages] for plan in found] == [[1] * 6, [2] * 3]


def test_metis_groups_by_hand():
    """8 GPUs: no group below half of the even one."""
    assert list(groupings(8, 1)) == [(8,)] and list(groupings(8, 2)) == [(4, 4)]
    assert sorted(groupings(8, 3)) == [(2, 2, 4), (2, 4, 2), (4, 2, 2)]
    assert list(groupings(6, 1)) == [] and sorted(groupings(6, 2)) == [(2, 4), (4, 2)]


@settings(max_examples=40)
@given(st.integers(1, 24), st.integers(1, 10))
def test_metis_groups_use_all_gpus(gpus, stages):
    for sizes in groupings(gpus, stages):
        assert sum(sizes) == gpus and len(sizes) == stages and all(size & (size - 1) == 0 for size in sizes)


def test_metis_takes_tensor_parallelism_where_memory_is_short():
    """GPT-3 of 6.7 billion parameters on 4 A100 and 8 V100: in no cut do replicas of one GPU each fit."""
    space = {"micro_batches": (16,), "mixed": False}
    assert plans("metis", request("gpt3-6.7b", 32, "A100:4,V100:8", tensor=(1,), **space)) == []
    found = plans("metis", request("gpt3-6.7b", 32, "A100:4,V100:8", tensor=(1, 2, 4), **space))
    assert found and all(any(stage.tensor > 1 for stage in plan.stages) for plan in found)


def test_sailor_cuts_evenly_and_takes_replicas_that_change_the_largest_share():
    """Of 10 samples, 5 replicas have 2 at most, and so have 6 to 9 of them."""
    assert even_cuts(26, 4) == [0, 6, 13, 19, 26]
    assert replicas_worth(10, 10) == [10, 5, 4, 3, 2, 1] and replicas_worth(10.5, 3) == [3, 2, 1]
    _, found = two_stages("sailor")
    assert found and all(layers_of(plan) == [8, 8] for plan in found)


def test_sailor_takes_the_least_tensor_parallelism_that_fits_or_what_is_worth_it(tmp_path):
    """Two of four layers, 9 ms a sample each on one A100, half of it on two: that is worth it, as 1.5 times would be.

    With 1.5e9 parameters each they need 48 GB alone.
    """
    for params, degrees in ((1000, (1, 2)), (1.5e9, (2, 2))):
        performance = known(tmp_path, ("A100", 1), ("A100", 2), params=params)
        asked = request("toy", 16, "A100:4", performance=performance, tensor=(1, 2), micro_batches=(4,))
        for scaled, degree in zip((False, True), degrees, strict=True):
            row = sailor.row(asked, Layers(asked), PLAIN, [0, 2, 4], 0, 4, 4, 1, scaled)
            assert row.degree == (degree,) * 2 and row.time_s == pytest.approx((0.072 / degree,) * 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_sailor_gives_each_stage_the_type_that_is_best(seed):
    """Against all ways of giving stages to two types, by its own closed form."""
    rng = np.random.default_rng([seed, 7])
    build = GraphBuilder("uneven", "a row", 2.0)
    for i in range(6):
        kind = "gemm" if rng.random() < 0.7 else "pool"
        build.add(f"layer{i}", kind, (i - 1,), 1e4, flops=float(rng.uniform(1e11, 2e12)) * (kind == "gemm"),
                  params=1e6, inner_bytes=float(rng.uniform(1e8, 5e9)))  # fmt: skip
    performance = Performance(graphs={"uneven": build.build()})
    counts = [int(n) for n in rng.integers(1, 5, 2)]
    asked = request("uneven", 16, f"V100:{counts[0]},T4:{counts[1]}", performance=performance, micro_batches=(4,))
    layers, found = Layers(asked), {}
    for time_s, _, make in sailor.candidates(asked, layers, PLAIN):
        plan = make()
        key = len(plan.stages), plan.stages[0].gpus
        found[key] = min(time_s, found.get(key, math.inf))
    for (p, replicas), time_s in found.items():
        cuts, samples = even_cuts(len(layers), p), math.ceil(4 / replicas)
        rows = {t: sailor.row(asked, layers, PLAIN, cuts, t, samples, 4, replicas, False) for t in (0, 1)}
        every = [
            sailor.predicted_s(asked, layers, cuts, (0, 1), rows, [[replicas * (k == t) for k in (0, 1)] for t in of],
                               4, samples)
            for of in product((0, 1), repeat=p) if all(replicas * of.count(t) <= counts[t] for t in (0, 1))
        ]  # fmt: skip
        assert time_s == pytest.approx(min(every), rel=1e-9)


def test_metis_gives_a_faster_type_more_of_the_batch():
    asked = request("resnet50", 64, "V100:4,T4:4", micro_batches=(1,), mixed=True)
    shares = [stage.parts for plan in plans("metis", asked) for stage in plan.stages if stage.parts]
    assert shares
    for parts in shares:
        rate = {part.gpu_type: part.share / part.gpus for part in parts}
        assert rate["V100"] > rate["T4"]


def test_amp_shares_a_mixed_stage_equally():
    found = plans("amp", request("resnet50", 64, "V100:4,T4:2", micro_batches=(1,), mixed=True))
    parts = [stage.parts for plan in found for stage in plan.stages if stage.parts]
    assert parts
    for of in parts:
        assert all(part.share == pytest.approx(part.gpus / sum(p.gpus for p in of)) for part in of)


def test_heterbo_finds_the_type_and_number_in_few_trials():
    """Against all 16 x 3 measured: ResNet-50 scales, so the most V100 are fastest, and one GPU is cheapest."""
    asked = request("resnet50", 256, "V100:16,P100:16,T4:16")
    trials = Trials(asked, PLAIN)
    for objective in ("time", "cost"):
        options, weight = trials.options(objective), trials.candidates(objective).weight
        trace = trials.search(objective)
        values = np.array([Trials(asked, PLAIN).measure(option) for option in options])
        assert len(trace.trials) < len(options) / 3 and trace.regret(values, weight) < 0.02


def test_heterbo_keeps_a_deadline():
    """Cheapest within twice the time of the fastest."""
    asked = request("resnet50", 256, "V100:16,T4:16")
    values = {option: Trials(asked, PLAIN).measure(option) for option in Trials(asked, PLAIN).options("time")}
    trials = Trials(asked, PLAIN)
    deadline_s = 2 * min(values.values())
    trace = trials.search("cost", deadline_s=deadline_s)
    assert trace.best is not None and values[trials.options("cost")[trace.best]] <= deadline_s


@cache
def searched_freely():
    return Trials(request("resnet50", 256, "V100:16,T4:16"), PLAIN).search("time")


@pytest.mark.parametrize("budget", [15.0, 20.0, 30.0, 60.0])
def test_heterbo_keeps_enough_of_its_budget_for_the_job(budget):
    """Trials and 100,000 iterations on the fastest that can be paid; more money, more speed."""
    asked = request("resnet50", 256, "V100:16,T4:16")
    trials = Trials(asked, PLAIN)
    trace, options = trials.search("time", budget=budget, iterations=1e5), trials.options("time")
    usd_per_h = trials.candidates("cost").weight[trace.best]
    assert trace.spent + 1e5 * trials.tried[options[trace.best]] / 3600 * usd_per_h <= budget
    freely = searched_freely()
    assert trace.values[trace.best] >= freely.values[freely.best]
    assert (trace.best == freely.best) == (budget == 60)


def test_heterbo_never_takes_an_unknown_price_for_a_cheap_one():
    unpriced = replace(gpu_type("T4"), name="unpriced", price_usd_per_h=None)
    fleet = Fleet(PERFORMANCE, [gpu_type("V100"), unpriced], [2, 2])
    trials = Trials(Request(PERFORMANCE, "resnet50", 64, fleet, 4), PLAIN)
    assert trials.options("cost") == [(0, 1), (0, 2)] and len(trials.options("time")) == 4
    # Their trials are counted in GPUs.
    assert trials.candidates("time").cost.tolist() == pytest.approx([1 / 6, 2 / 6, 1 / 6, 2 / 6])


# -- what all must keep ------------------------------------------------------------------------------------

CASES = [
    ("resnet50", 64, "V100:4,T4:4", {}),
    ("resnet50", 64, "V100:4,T4:4", {"mixed": True}),
    ("bert-large", 32, "V100:4,P100:4,T4:4", {"mixed": True, "tensor": (1, 2), "micro_batches": (1, 4, 8)}),
    ("bert-large", 32, "V100:4,T4:2", {"recompute": (False, True), "zero": (0, 1), "micro_batches": (2, 4)}),
    ("gpt2-1.5b", 32, "V100:8,P100:8", {}),
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} on {case[2]}, {', '.join(case[3]) or 'plain'}")
def test_plans_are_legal_and_the_same_each_time(name, case):
    model, batch, gpus, space = case
    asked = request(model, batch, gpus, **space)
    found = plans(name, asked)
    assert found == plans(name, request(model, batch, gpus, **space))
    assert len(set(found)) == len(found)
    operators = len(PERFORMANCE.graph(model))
    for plan in found:
        ends = [-1, *(stage.last_op for stage in plan.stages)]
        assert [stage.first_op for stage in plan.stages] == [end + 1 for end in ends[:-1]] and ends[-1] == operators - 1
        used = dict.fromkeys(asked.fleet.names, 0)
        for stage in plan.stages:
            assert sum(part.gpus for part in parts_of(stage)) == stage.gpus
            assert sum(part.share for part in parts_of(stage)) == pytest.approx(1, abs=1e-9)
            assert stage.tensor in asked.space.tensor and all(part.gpus % stage.tensor == 0 for part in parts_of(stage))
            for part in parts_of(stage):
                used[part.gpu_type] += part.gpus
        counts = tuple(used.values())
        if name in ALL_GPUS:
            assert counts == asked.fleet.counts
        elif name == "sailor":
            assert len({stage.gpus // stage.tensor for stage in plan.stages}) == 1
            assert 1 <= sum(n > 0 for n in counts) <= 2
        else:
            assert len(plan.stages) == 1 and sum(n > 0 for n in counts) == 1
        assert asked.space.mixed or all(not stage.parts for stage in plan.stages)
        assert plan.micro_batches in asked.space.micro_batches
        assert plan.recompute in asked.space.recompute and plan.zero in asked.space.zero


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("model", "mixed"), [("resnet50", False), ("bert-large", False), ("resnet50", True)])
def test_some_of_them_run(name, model, mixed):
    asked = request(model, 64, "V100:4,P100:4,T4:4", mixed=mixed)
    assert asked.judged(plans(name, asked))


@pytest.mark.parametrize("name", ALL_GPUS)
def test_in_a_space_of_one_type_each_is_used_by_itself(name):
    found = plans(name, request("resnet50", 64, "V100:4,T4:4", single_type=True))
    kinds = [{part.gpu_type for stage in plan.stages for part in parts_of(stage)} for plan in found]
    assert all(len(kind) == 1 for kind in kinds) and set().union(*kinds) == {"V100", "T4"}


@pytest.mark.parametrize("name", ["amp", "metis"])
def test_those_with_a_cost_model_propose_few(name):
    found = plans(name, request("resnet50", 64, "V100:8,T4:8", mixed=True))
    assert 0 < len(found) <= FEW


@pytest.mark.parametrize("name", METHODS)
def test_where_nothing_can_be_proposed_nothing_is(name):
    """More GPUs than samples and layers; a model that fits nowhere; tensor parallelism only, of a model without."""
    assert not request("gpt2-1.5b", 1, "K80:1").judged(plans(name, request("gpt2-1.5b", 1, "K80:1")))
    assert plans(name, request("resnet50", 64, "V100:4", tensor=(2,))) == []
    asked = request("resnet50", 1, "V100:4,T4:4")
    assert all(asked.truth(plan) is None or plan.micro_batches == 1 for plan in plans(name, asked))


@pytest.mark.parametrize("name", METHODS)
def test_a_model_known_by_rates_is_not_cut(name):
    rates = {("v100", 1): 10.0, ("v100", 2): 18.0, ("t4", 1): 4.0}
    table = MeasuredTable({Point("toy", 0, *key, 1): Measurement(rate) for key, rate in rates.items()}, "by hand")
    found = plans(name, request("toy", 1, "V100:4,T4:4", performance=Performance(table=table)))
    # One sample: one GPU of each type.
    assert [plan.num_gpus for plan in found] == ([1, 1] if name == "heterbo" else [])


def test_they_are_methods():
    assert set(METHODS) <= set(method_names())
