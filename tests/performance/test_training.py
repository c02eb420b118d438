"""Plans put together: tensor parallelism, recomputation, ZeRO and interleaving, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.api import Plan, Stage
from sim.cli.whatif import ask, balanced
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.gpu_links import gang_allreduce_s
from sim.performance.memory import CONTEXT_GIB
from sim.performance.operator_time import operator_times_s
from sim.performance.recompute import recompute_s
from sim.performance.zoo import zoo_graph
from sim.performance.zoo.language import gpt

A100 = gpu_type("A100-80")
LINKS = Links(network_gbytes_per_s=200.0, rack_gbytes_per_s=200.0)
GPT = gpt(4, 512, 8, 256, 1024)
LAST = len(GPT) - 1


def speed(**more) -> Performance:
    return Performance(LINKS, graphs={"gpt": GPT}, **more)


def nodes_of(*gpus: int) -> ClusterSpec:
    return ClusterSpec.build("test", [A100], [0] * len(gpus), list(gpus), links=LINKS)


def run(plan: Plan, *nodes: int, batch: int = 32, performance: Performance | None = None):
    gpus = np.arange(plan.num_gpus, dtype=np.int32)
    return (performance or speed()).plan("gpt", batch, plan, gpus, nodes_of(*nodes))


def test_two_gpus_share_each_operator_and_sum_what_they_split():
    """A replica of 2: the times of one GPU's share, and 4 all-reduces a layer of 256 x 512 values a sample, plus those
    of the embedding forward and of the logits' input backward."""
    got = run(Plan((Stage(0, LAST, "A100-80", 2, 2),)), 2, batch=4)
    share = GPT.tensor_parallel(2)
    forward, backward = operator_times_s(share, 4, A100)
    one_sum = gang_allreduce_s(4 * 256 * 512 * 2.0, A100, (2,), 1, LINKS)
    sums = sum(int((b > 0).sum()) for b in (share.reduce_fwd_bytes, share.reduce_bwd_bytes))
    whole = float(forward.sum() + backward.sum())
    assert got.tensor_s == pytest.approx(got.compute_s - whole, rel=1e-9)
    assert sums >= 4 * 4
    assert got.tensor_s == pytest.approx(sums * one_sum, rel=0.02)  # the loss sums a few bytes only
    assert got.allreduce_s == 0.0


def test_tensor_parallel_groups_follow_each_other_in_the_placement():
    """4 GPUs as 2 replicas of 2 on two nodes of 2: sums stay within a node, gradients cross the network. As one node of
    4 nothing crosses; as 4 nodes each sum crosses and is slower."""
    plan = Plan((Stage(0, LAST, "A100-80", 4, 2),))
    here, apart, alone = run(plan, 4), run(plan, 2, 2), run(plan, 1, 1, 1, 1)
    assert here.tensor_s == apart.tensor_s < alone.tensor_s
    assert here.allreduce_s < apart.allreduce_s


def test_recomputation_adds_a_forward_and_keeps_a_layers_input_only():
    plan = Plan((Stage(0, LAST, "A100-80", 1),), 4)
    kept, again = run(plan, 1), run(replace(plan, recompute=True), 1)
    forward, _ = operator_times_s(GPT, 8, A100)
    extra = (again.compute_s - kept.compute_s) / 4
    assert 0.5 * forward.sum() < extra <= forward.sum() * (1 + 1e-9)
    assert again.memory_gib[0] < kept.memory_gib[0]


def test_sums_that_recomputation_repeats_count_as_sums():
    """Forward sums are done again with the forward pass: against free sums, computation differs by tensor_s."""
    plan = Plan((Stage(0, LAST, "A100-80", 2, 2),), recompute=True)
    once, again = run(replace(plan, recompute=False), 2), run(plan, 2)
    share = GPT.tensor_parallel(2)
    forward, backward = operator_times_s(share, 32, A100)
    free = forward.sum() + backward.sum() + recompute_s(share, forward, 0, LAST)
    assert again.tensor_s == pytest.approx(again.compute_s - free, rel=1e-9)
    assert 1.4 * once.tensor_s < again.tensor_s <= 1.5 * once.tensor_s * (1 + 1e-9)


@pytest.mark.parametrize("after", ["0.attention.scores", "1.act", "1.norm2"])
def test_all_of_what_crosses_a_border_is_sent_however_it_is_split(after):
    """Between 2 GPUs that share operators and 1 that does not, messages are no smaller than between 1 and 1: a split
    tensor's parts all go. Backward the sharing GPUs gather what each needs whole, so that 2 to 1 and 1 to 2 agree."""
    cut = GPT.ops.index(after)
    first, second = Stage(0, cut, "A100-80", 1), Stage(cut + 1, LAST, "A100-80", 1)
    shared = [replace(stage, gpus=2, tensor=2) for stage in (first, second)]
    plain = run(Plan((first, second), 4), 1, 1)
    for stages, nodes in (((shared[0], second), (2, 1)), ((first, shared[1]), (1, 2))):
        assert run(Plan(stages, 4), *nodes).transfer_s > 0.4 * plain.transfer_s
    left, right = run(Plan((shared[0], second), 1), 2, 1), run(Plan((first, shared[1]), 1), 1, 2)
    assert left.transfer_s == pytest.approx(right.transfer_s, rel=1e-6)


def test_with_tensor_parallelism_a_model_is_cut_between_layers():
    plan = balanced(speed(), "gpt", 32, Plan((Stage(0, -1, "A100-80", 2, 2), Stage(0, -1, "A100-80", 2, 2)), 4))
    assert GPT.block[plan.stages[1].first_op] > GPT.block[plan.stages[0].last_op]


def test_zero_shards_the_state_of_an_optimizer_over_replicas():
    """16 bytes a parameter: stage 1 shards 12 of them over 4 replicas, 2 two more, 3 all; the step is a quarter."""
    plan = Plan((Stage(0, LAST, "A100-80", 4),))
    whole = run(plan, 4, batch=4)
    params = GPT.params / 2**30
    for stage, bytes_a_parameter in ((1, 4 + 12 / 4), (2, 2 + 14 / 4), (3, 16 / 4)):
        got = run(replace(plan, zero=stage), 4, batch=4)
        saved = whole.memory_gib[0] - got.memory_gib[0]
        assert saved <= (16 - bytes_a_parameter) * params * (1 + 1e-9)
        assert saved >= (16 - bytes_a_parameter) * params * 0.5
        assert got.update_s == pytest.approx(whole.update_s / 4)
        assert got.allreduce_s == pytest.approx(whole.allreduce_s * (1.5 if stage == 3 else 1.0))


def test_interleaved_stages_share_gpus_and_shorten_the_bubble():
    """4 GPUs, 8 micro-batches, 48 layers cut evenly: the bubble is (p - 1)/(v m) of the work, so 2 chunks halve it."""
    performance = Performance(LINKS, graphs={"gpt": gpt(48, 1024, 8, 256, 512)})
    one = ask(performance, "gpt", 64, Plan((Stage(0, -1, "A100-80", 1),) * 4, 8))
    two = ask(performance, "gpt", 64, Plan((Stage(0, -1, "A100-80", 1),) * 8, 8, schedule="interleaved", chunks=2))
    assert one.plan.num_gpus == two.plan.num_gpus == 4
    assert len(one.iteration.memory_gib) == len(two.iteration.memory_gib) == 4
    bubble = [answer.iteration.bubble_s / answer.iteration.compute_s for answer in (one, two)]
    assert bubble == pytest.approx([3 / 8, 3 / 16], rel=0.1)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan((Stage(0, LAST, "A100-80", 3, 2),)), "does not divide the GPUs"),
        (Plan((Stage(0, LAST, "A100-80", 3, 3),)), "does not divide the 8 attention heads"),
        (Plan((Stage(0, LAST, "A100-80", 1),), schedule="zigzag"), "unknown pipeline schedule"),
        (Plan((Stage(0, LAST, "A100-80", 1),) * 3, chunks=2), "as many stages"),
        (Plan((Stage(0, LAST, "A100-80", 1),), zero=4), "ZeRO"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_the_reason(plan, what):
    with pytest.raises(PerformanceError, match=what):
        run(plan, 4)


def test_memory_that_lacks_names_its_largest_part_and_what_helps():
    got = run(Plan((Stage(0, LAST, "A100-80", 1),)), 1, batch=4096)
    assert not got.fits
    for word in ("stage 0", "A100-80", "80.0 GiB", "activations", "recompute"):
        assert word in got.reason


def test_single_precision_moves_twice_the_bytes():
    """The calibration of scripts computes in single precision: a value has 4 bytes, in messages as in memory."""
    plan = Plan((Stage(0, LAST, "A100-80", 2),))
    mixed, single = run(plan, 2), run(plan, 2, performance=speed(calibration="scripts"))
    assert single.allreduce_s > 1.5 * mixed.allreduce_s
    assert single.memory_gib[0] - CONTEXT_GIB > mixed.memory_gib[0] - CONTEXT_GIB


def test_parameter_servers_by_hand():
    """4 workers on 2 nodes, a server for each node: 2 (latency + 4 / 2 bytes / (half a node's link)). Asynchronous,
    each worker sends and fetches alone, unless the servers' links are full."""
    plan = Plan((Stage(0, LAST, "A100-80", 4),))
    gradients, half = 2 * GPT.params, 0.9 * 200e9 / 2
    got = run(plan, 2, 2, performance=speed(exchange="servers"))
    assert got.allreduce_s == pytest.approx(2 * (LINKS.network_latency_s + 2 * gradients / half), rel=1e-9)
    freely = run(plan, 2, 2, performance=speed(exchange="async-servers"))
    alone = 2 * (LINKS.network_latency_s + gradients / half)
    work = freely.compute_s + freely.update_s
    assert freely.allreduce_s == pytest.approx(max(work + alone, 2 * gradients / half) - work, rel=1e-9)
    assert freely.iteration_s <= got.iteration_s


def test_asynchronous_micro_batches_take_as_long_each_however_many_there_are():
    stage = (Stage(0, LAST, "A100-80", 8),)
    freely = speed(exchange="async-servers")
    plans = {m: Plan(stage, m, schedule="async") for m in (1, 2, 4)}
    each = [run(plan, 8, batch=8 * m, performance=freely).iteration_s / m for m, plan in plans.items()]
    assert each == pytest.approx([each[0]] * 3, rel=1e-9)


def test_the_fastest_exchange_is_no_slower_than_ring_and_tree():
    plan = Plan((Stage(0, LAST, "A100-80", 8),))
    ring, tree, fastest = (run(plan, 2, 2, 2, 2, performance=speed(exchange=e)) for e in ("ring", "tree", "fastest"))
    assert fastest.allreduce_s == min(ring.allreduce_s, tree.allreduce_s)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"exchange": "rings"}, "did you mean 'ring'"),
        ({"exchange": "tree", "overlap": True}, "only rings overlap"),
        ({"exchange": "async-servers"}, "and a pipeline"),
    ],
)
def test_an_exchange_that_makes_no_sense_is_refused(more, what):
    plan = Plan((Stage(0, 9, "A100-80", 2), Stage(10, LAST, "A100-80", 2)))
    with pytest.raises(PerformanceError, match=what):
        run(plan, 4, performance=speed(**more))


@settings(max_examples=30)
@given(st.integers(1, 3), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.integers(0, 3))
def test_an_iteration_is_the_sum_of_its_parts(stages, ways, m, recompute, zero):
    cuts = np.linspace(0, LAST + 1, stages + 1).astype(int)
    plan = Plan(tuple(Stage(int(a), int(b) - 1, "A100-80", ways, ways) for a, b in pairwise(cuts)),
                m, recompute=recompute, zero=zero)
    got = run(plan, stages * ways, batch=16)
    parts = got.compute_s + got.bubble_s + got.transfer_s + got.allreduce_s + got.update_s
    assert got.iteration_s == pytest.approx(parts, rel=1e-9)
    assert 0 <= got.tensor_s <= got.compute_s


def test_a_zoo_model_is_asked_as_it_was():
    """Without any of this, data parallelism is what it always was: compute, ring, step."""
    got = Performance().data_parallel("resnet50", 256, gpu_type("V100"), (4,))
    forward, backward = operator_times_s(zoo_graph("resnet50"), 64, gpu_type("V100"))
    assert got.compute_s == pytest.approx(float(forward.sum() + backward.sum()), rel=1e-12)
