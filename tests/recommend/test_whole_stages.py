"""Bounds by whole stages on whole GPUs: no plan is below them, by brute force and by law; each part by brute force."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.brute_force import least, question
from policies.recommend.methods.search import lean, starts
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Request, Space
from policies.recommend.searching import whole_stages
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.message_rates import most_bytes_per_s, most_nodes
from sim.api import Part, Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.kernels.whole_chains import shared_spans
from sim.performance import Performance
from sim.performance.messages import transfer_s
from sim.performance.optimizer import OPTIMIZERS
from sim.performance.stage_sites import StageGpus

PERFORMANCE = Performance()


def request(model, batch, counts, space, performance=PERFORMANCE, node=4):
    fleet = Fleet(performance, [gpu_type(name) for name in counts], list(counts.values()), (node,) * len(counts))
    return Request(performance, model, batch, fleet, sum(counts.values()), space)


@pytest.mark.parametrize(("seed", "tensor"), [(2, (1,)), (4, (1,)), (7, (1,)), (11, (1,)), (3, (1, 2))])
def test_no_plan_of_a_small_model_is_below_the_bound_and_one_is_near(seed, tensor):
    """All plans of up to three stages on any GPUs of two types, mixed parts and their degrees, in whole samples."""
    asked = question(seed, tensor)
    time_s, usd, count = least(asked)
    bound = lower_bound(asked)
    assert count and bound.usd_per_iteration <= usd
    assert bound.iteration_s <= time_s <= 1.25 * bound.iteration_s


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_no_walk_goes_below_the_bound(data):
    """Law: whatever moves lead to, in whatever space, on fleets of several nodes, is no better than the bound."""
    space = Space(
        tensor=data.draw(st.sampled_from([(1,), (1, 2, 4)])),
        schedules=data.draw(st.sampled_from([("",), ("gpipe",), ("gpipe", "async"), ("async",)])),
        recompute=data.draw(st.sampled_from([(False,), (False, True)])), mixed=data.draw(st.booleans()),
        zero=data.draw(st.sampled_from([(0,), (0, 1, 3)])), orders=data.draw(st.booleans()),
        micro_batches=data.draw(st.sampled_from([(1, 2, 4, 8), (3, 6, 24), (2,)])),
    )
    model = data.draw(st.sampled_from(["bert-large", "vgg16", "alexnet", "gpt2-1.5b", "resnet50", "gnmt-16", "dlrm"]))
    performance = Performance(
        overlap=data.draw(st.booleans()), blocking=data.draw(st.sampled_from([False, True, "both"])),
        optimizer=data.draw(st.sampled_from(list(OPTIMIZERS.values()))),
    )
    counts = data.draw(st.sampled_from([{"V100": 5, "P100": 7}, {"A100": 3, "T4": 10}, {"V100": 9}]))
    asked = request(model, data.draw(st.sampled_from([24, 100])), counts, space, performance)
    ground, rng = Ground(asked), np.random.default_rng(data.draw(st.integers(0, 999)))
    moves, found = list(moves_for(ground).values()), []
    for plan in [*lean(asked), *list(starts(asked))[:10]]:
        for _ in range(12):
            if (r := asked.truth(plan) if ground.allows(plan) else None) is not None:
                found.append(r)
            moved = moves[int(rng.integers(len(moves)))](plan, ground, rng)
            plan = moved if moved is not None and ground.allows(moved) else plan
    assume(found)
    bound = lower_bound(asked)
    assert bound.iteration_s <= min(r.iteration_s for r in found)
    assert bound.usd_per_iteration <= min(r.usd_per_iteration for r in found)


def stages_of(data, fleet):
    """Two to four stages of a plan on the fleet, each of one type or of both."""
    left, stages = list(fleet.counts), []
    for s in range(data.draw(st.integers(2, 4))):
        used = [data.draw(st.integers(0, n)) for n in left]
        if not sum(used):
            continue
        left = [n - k for n, k in zip(left, used, strict=True)]
        share = data.draw(st.floats(0.05, 0.95))
        names = fleet.names
        parts = (Part(names[0], used[0], share), Part(names[1], used[1], 1 - share)) if all(used) else ()
        stages.append(Stage(s, s, names[0] if used[0] else names[1], sum(used), parts=parts))
    return stages


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_message_is_faster_than_its_rates(data):
    """Law: the truth's message between neighbours of a plan on full nodes, by the rates of both of its ends."""
    size = data.draw(st.sampled_from([2, 4, 8]))
    counts = {"A100": data.draw(st.integers(1, 9)), "V100": data.draw(st.integers(1, 17))}
    asked = request("vgg16", 64, counts, Space(mixed=True), node=size)
    fleet, stages = asked.fleet, stages_of(data, asked.fleet)
    assume(len(stages) > 1)
    plan = Plan(tuple(stages), 1)
    gpus, at = fleet.gpus(plan), 0
    placed = []
    for stage in stages:
        whole = []
        for part in stage.all_parts:
            nodes = tuple(fleet.spec.gpu_node[gpus[at : at + part.gpus]].tolist())
            whole.append(StageGpus(gpu_type(part.gpu_type), nodes, (0,) * len(nodes), share=part.share))
            at += part.gpus
        one = whole[0] if len(whole) == 1 else StageGpus(
            whole[0].gpu, sum((w.nodes for w in whole), ()), (0,) * stage.gpus, parts=tuple(whole))
        placed.append((one, {fleet.names.index(p.gpu_type): p.gpus for p in stage.all_parts}))
    for (a, used_a), (b, used_b) in pairwise(placed):
        for sender, receiver in ((a, b), (b, a)):
            took_s = transfer_s(1e9, sender, receiver, PERFORMANCE.links)
            for used, beside in ((used_a, used_b), (used_b, used_a)):
                assert 1e9 / most_bytes_per_s(PERFORMANCE, fleet, used, beside) <= took_s * (1 + 1e-9)


def test_rates_by_hand():
    """Of 16 V100 on nodes of 8: seven begin at 0 or behind seven, as 1 + 6, 7 or 6 + 1; eight fill a node."""
    asked = request("vgg16", 64, {"V100": 16, "A100": 8}, Space(), node=8)
    far = PERFORMANCE.links.network_gbytes_per_s * 0.9e9

    def rate(n, beside):
        return most_bytes_per_s(PERFORMANCE, asked.fleet, {0: n}, beside) / far

    assert rate(8, [0]) == rate(8, [1]) == pytest.approx(1)
    assert rate(16, [0]) == pytest.approx(2)
    assert rate(7, [0]) > 10 and rate(7, [1]) == pytest.approx(7 / 6)
    assert rate(12, [0]) == pytest.approx(12 / 8)
    assert [most_nodes(n, 16, 8) for n in (1, 4, 8, 9)] == [1, 2, 1, 2]


@pytest.mark.parametrize("seed", range(6))
def test_the_best_way_to_share_a_span_is_found(seed):
    """Brute force over all levels of all spans; and the least and most that fit in the time."""
    rng, levels, blocks = np.random.default_rng(seed), 7, 5
    one, other = (np.cumsum(np.cumsum(rng.random((levels, blocks + 1)), axis=0), axis=1) for _ in range(2))
    one[:, 0] = other[:, 0] = 0.0
    level = np.sort(rng.integers(0, levels, levels))[::-1].copy()
    part, rest = np.linspace(0.1, 0.9, levels), np.linspace(0.1, 0.9, levels)
    out, share = np.full((blocks + 1, blocks + 1), np.inf), np.empty((blocks + 1, blocks + 1, 2))
    share[:] = 1.0, 0.0
    most = float(one[-1, -1])
    shared_spans(out, share, one, other, level, part, rest, most)
    for i in range(blocks + 1):
        for j in range(i, blocks + 1):
            a, b = one[:, j] - one[:, i], other[:, j] - other[:, i]
            each = np.maximum(a, b[level])
            assert out[i, j] == (each.min() if out[i, j] < math.inf else math.inf)
            if out[i, j] < math.inf:
                assert share[i, j, 1] == part[np.flatnonzero((a <= most) | (np.arange(levels) == 0)).max()]
                assert share[i, j, 0] == 1 - rest[np.flatnonzero((b <= most) | (np.arange(levels) == 0)).max()]


def test_with_less_work_less_is_proven_and_never_too_much(monkeypatch):
    """Vgg16 on two types: none, a little, all of the work; bounds rise and the best plan stays above."""
    bounds = []
    for steps in (0, 300_000, 40_000_000):
        monkeypatch.setattr(whole_stages, "MOST_STEPS", steps)
        asked = request("vgg16", 64, {"V100": 4, "P100": 4}, Space(mixed=True))
        bounds.append(lower_bound(asked).iteration_s)
    best_s = min(r.iteration_s for r in asked.judged(starts(asked)))
    assert bounds[0] <= bounds[1] <= bounds[2] <= best_s
    assert bounds[0] < bounds[2]
