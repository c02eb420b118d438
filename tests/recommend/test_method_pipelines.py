"""Planners of pipelines on one GPU type as methods: what they propose for real models, and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.recommend.algorithms.pipedream_levels import Level
from policies.recommend.methods import gpipe, method, method_names, pipedream, piper
from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Style
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.one_type import bytes_per_s, gangs, micro_batch_counts, plans
from sim.api import Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.readers.operators import Op, assemble

PERFORMANCE = Performance()
NAMES = ("gpipe", "pipedream", "piper")
MODELS = (("gpt2-1.5b", 32), ("resnet50", 128))
WIDE = Space(tensor=(1, 2), recompute=(False, True), schedules=("", "gpipe", "async"))


def request(model, batch, fleet=None, space=None, performance=PERFORMANCE, node_gpus=4, **changes):
    fleet = fleet or {"V100": 8, "P100": 6, "T4": 0}
    types, counts = tuple(map(gpu_type, fleet)), tuple(fleet.values())
    return Request(performance, model, batch, Fleet(performance, types, counts, (node_gpus,) * len(types)),
                   changes.pop("max_gpus", sum(counts)), space or Space(), **changes)


@pytest.fixture(scope="module")
def proposed():
    """All plans of each method for each model and space, with the request that asked for them."""
    out = {}
    for name in NAMES:
        for model, batch in MODELS:
            for space in (Space(), WIDE):
                asked = request(model, batch, space=space)
                out[name, model, space] = asked, list(method(name).propose(asked))
    return out


def test_they_are_methods():
    assert set(NAMES) <= set(method_names())


def test_plans_are_whole_of_one_type_and_within_the_fleet(proposed):
    for asked, found in proposed.values():
        fleet = asked.fleet
        for plan in found:
            ends = [-1, *(stage.last_op for stage in plan.stages)]
            assert [stage.first_op for stage in plan.stages] == [end + 1 for end in ends[:-1]]
            assert ends[-1] == len(PERFORMANCE.graph(asked.model)) - 1
            (name,) = {stage.gpu_type for stage in plan.stages}
            assert plan.num_gpus <= fleet.counts[fleet.names.index(name)]
            assert all(plan.micro_batches * stage.gpus // stage.tensor <= asked.batch_size for stage in plan.stages)


def test_plans_stay_within_the_space(proposed):
    for asked, found in proposed.values():
        for plan in found:
            space = asked.space
            assert plan.micro_batches in space.micro_batches and plan.schedule in space.schedules
            assert plan.recompute in space.recompute and plan.zero in space.zero and plan.order == ()
            assert all(stage.tensor in space.tensor and not stage.parts for stage in plan.stages)


def test_both_types_and_several_counts_are_tried(proposed):
    for asked, found in proposed.values():
        tried = {(plan.stages[0].gpu_type, plan.num_gpus) for plan in found}
        assert {name for name, _ in tried} <= {"V100", "P100"}
        if asked.model == "resnet50":
            assert {("V100", 8), ("P100", 6), ("V100", 1)} <= tried


def test_the_truth_accepts_some_and_the_best_pipeline_beats_one_gpu(proposed):
    """GPT-2 1.5B fits no single GPU, so that any answer is a pipeline."""
    for (_, model, space), (asked, found) in proposed.items():
        answers = asked.judged(found)
        if space is WIDE or model == "resnet50":
            assert answers
        if answers and model == "gpt2-1.5b":
            assert len(answers[0].plan.stages) * answers[0].plan.stages[0].tensor > 1


def test_the_same_request_gets_the_same_plans():
    for name in NAMES:
        first, again = (list(method(name).propose(request("resnet50", 64, {"V100": 4}))) for _ in range(2))
        assert first == again and first


def test_where_each_replica_must_have_two_gpus_only_piper_has_plans():
    asked = request("bert-large", 32, {"V100": 8}, Space(tensor=(2,)))
    found = list(piper.propose(asked))
    assert {stage.tensor for plan in found for stage in plan.stages} == {2} and asked.judged(found)
    assert not list(gpipe.propose(asked)) and not list(pipedream.propose(asked))


def test_what_cannot_be_divided_gets_no_tensor_parallelism():
    assert not list(piper.propose(request("resnet50", 64, {"V100": 4}, Space(tensor=(2,)))))


# -- by hand -----------------------------------------------------------------------------------------------


def chain(flops, params):
    """A model of matrix products in a row, each as long as its arithmetic."""
    costs = enumerate(zip(flops, params, strict=True))
    ops = [Op(f"op{i}", "gemm", (i - 1,), 1e3, flops=work, params=weights) for i, (work, weights) in costs]
    return Performance(graphs={"chain": assemble("chain", "sample", 1e3, ops)})


def test_gangs_are_powers_of_two_and_all_there_are():
    asked = request("resnet50", 24, {"V100": 6, "P100": 0, "T4": 4}, max_gpus=5)
    assert list(gangs(asked)) == [(0, [1, 2, 4, 5]), (2, [1, 2, 4])]
    assert micro_batch_counts(asked) == [1, 2, 4, 8, 16, 24]


def test_a_gang_that_fills_its_nodes_has_two_levels():
    asked = request("resnet50", 24, {"V100": 12})
    inside, between = bytes_per_s(asked, 0, 4), bytes_per_s(asked, 0, 8)
    assert inside > between
    assert pipedream.levels(asked, 0, 4) == [Level(4, inside)]
    assert pipedream.levels(asked, 0, 12) == [Level(4, inside), Level(3, between)]
    assert pipedream.levels(asked, 0, 6) == [Level(6, between)]


def test_a_replicas_micro_batches_are_fewer_of_a_plans():
    """8 micro-batches of one replica each, stages of 4 and 1 replicas: 2 of a plan's, or 8 where 32 samples allow."""
    asked = request("resnet50", 32, {"V100": 8})
    stages = [Stage(0, 3, "V100", 4), Stage(4, len(PERFORMANCE.graph("resnet50")) - 1, "V100", 1)]
    assert [plan.micro_batches for plan in plans(asked, Style("", False, 0), stages, 8)] == [2, 8]
    few = replace(asked, batch_size=16)
    assert [plan.micro_batches for plan in plans(few, Style("", False, 0), stages, 8)] == [2]


def test_gpipe_balances_four_equal_operators_two_and_two():
    asked = request("chain", 64, {"V100": 2}, Space(micro_batches=(1,)), chain([1e12] * 4, [1e3] * 4))
    pairs = [plan for plan in gpipe.propose(asked) if len(plan.stages) == 2]
    assert [[(s.first_op, s.last_op, s.gpus) for s in plan.stages] for plan in pairs] == [[(0, 1, 1), (2, 3, 1)]]


def test_gpipe_takes_its_own_schedule_where_it_may():
    asked = request("resnet50", 64, {"V100": 2}, WIDE)
    assert {plan.schedule for plan in gpipe.propose(asked)} == {"gpipe"}
    assert {plan.schedule for plan in gpipe.propose(replace(asked, space=Space()))} == {""}


def test_pipedream_replicates_work_and_not_weights():
    """Three quarters of the work in an operator of few weights, the rest in one of many: 3 replicas and 1."""
    asked = request("chain", 64, {"V100": 4}, performance=chain([3e12, 1e12], [1e3, 4e8]))
    shapes = {tuple(stage.gpus for stage in plan.stages) for plan in pipedream.propose(asked)}
    assert (3, 1) in shapes


def test_piper_splits_what_no_gpu_can_hold():
    """Weights of 24 GiB with their gradients and optimizer's state, in two operators, on GPUs of 16 GiB."""
    asked = request("chain", 64, {"V100": 2}, performance=chain([1e12, 1e12], [12 * 2**30 / 16] * 2))
    found = list(piper.propose(asked))
    assert found and all(len(plan.stages) == 2 for plan in found)
    assert asked.judged(found)


def test_pipers_layers_add_up_to_the_models_memory():
    """Its fixed and flight bytes, layer by layer, sum to what the memory model says of the whole model.

    But for the words that logits are tied to: a layer knows no other, so that of the logits counts its copy.
    """
    asked = request("gpt2-1.5b", 32)
    layers, style = Layers(asked), Style("", False, 0)
    problem = piper.problem(asked, layers, 0, style, (1,), 8, 32)
    whole = layers.memory_gib(1.0, 1, 1, 1, style)[0, -1] + 16 * 50257 * 1600 / 2**30
    added = (problem.fixed_bytes + problem.flight_bytes)[0, :, 0].sum() / 2**30
    room = asked.fleet.types[0].memory_gib - problem.memory_bytes / 2**30
    assert added + room == pytest.approx(whole, rel=1e-6)
    assert np.isinf(problem.time_s[:, :, 1]).all()
