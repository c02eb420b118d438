"""Stages that divide tables and experts among their replicas: memory, sums and all-to-alls, by hand and by law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.api import Part, Plan, Stage
from sim.cli.whatif import ask, on_full_nodes, parse_stage, written
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.embeddings import exchange_s, exchanges, touched
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.memory import does_not_fit, stage_memory
from sim.performance.operator_time import operator_times_s, update_time_s
from sim.performance.running import graph_sums
from sim.performance.stage_sites import gang_on

V100 = gpu_type("V100")
TABLES = "dlrm(rows=195312500, width=128)"
"""25e9 values in 26 tables: 100 GB in single precision."""
EXPERTS = "llama(layers=2, hidden=512, heads=8, inner=1024, experts=8, chosen=2, tokens=128)"
FAT = "llama(layers=48, hidden=1024, heads=8, inner=8192, experts=8, chosen=2, tokens=128)"
"""Of 1e10 parameters nearly all are of experts."""
THIN = "llama(layers=32, hidden=4096, heads=32, inner=512, experts=8, chosen=2, tokens=128)"
"""Most are of attention."""
SINGLE = Performance(calibration="scripts", optimizer="sgd")
MIXED = Performance()
DLRM, MOE = MIXED.graph(TABLES), MIXED.graph(EXPERTS)
LAST = len(DLRM) - 1


def train(model, batch, stages, m=1, performance=MIXED, node=8, **how):
    plan = Plan(tuple(stages), m, **how)
    types = tuple({part.gpu_type: gpu_type(part.gpu_type) for part in plan.parts}.values())
    cluster, gpus = on_full_nodes(plan, types, node, performance)
    return performance.plan(model, batch, plan, gpus, cluster)


def one_stage(model, gpus, sharded=True, name="V100"):
    return [Stage(0, len(MIXED.graph(model)) - 1, name, gpus, sharded=sharded)]


# -- memory ---------------------------------------------------------------------------------------------------


def test_a_hundred_gigabytes_on_eight_gpus_of_sixteen():
    """In single precision, plain SGD: a table is its weights. 93.1 GiB on each of eight V100, or 11.6."""
    assert SINGLE.value_bytes == 4
    whole, divided = (train(TABLES, 4096, one_stage(TABLES, 8, sharded), performance=SINGLE)
                      for sharded in (False, True))
    assert not whole.fits and "/sharded" in whole.reason and divided.fits
    assert whole.memory_gib[0] - divided.memory_gib[0] == pytest.approx(7 / 8 * 100e9 / 2**30, rel=1e-9)
    assert 11.6 < divided.memory_gib[0] < 16


@pytest.mark.parametrize(("model", "gpus", "optimizer", "words"), [
    # Of 25e9 values in tables ZeRO cuts none: 16 of their GPUs are enough.
    (TABLES, 4, "sgd", "try more replicas or more stages"),
    # Two experts on each of four; on eight one each, which no more replicas cut, and of ZeRO the rest is not enough.
    (FAT, 4, "adam", "try more replicas or more stages"),
    (FAT, 8, "adam", "try more stages"),
    # Where most is not divided, ZeRO is of use.
    (THIN, 8, "adam", "try ZeRO 1 or more stages"),
])
def test_advice_for_a_divided_stage_is_what_cuts_what_is_divided(model, gpus, optimizer, words):
    got = train(model, 4096, one_stage(model, gpus), 64, Performance(optimizer=optimizer), recompute=True)
    assert "largest part is optimizer state" in got.reason and got.reason.endswith(words)


def test_zero_is_advised_where_it_is_enough():
    """A part of 10 GiB of which 6 are divided: ZeRO 1 cuts up to 4 of them, which 3 GiB too many are worth."""
    memory = stage_memory(DLRM.sharded(8), [(0, LAST)], 1.0, 1, replicas=8)
    memory = replace(memory, optimizer_gib=10.0, weights_gib=0.0, gradients_gib=0.0, divided=0.6)
    few, many = (does_not_fit(0, "V100", memory, memory.total_gib - lacking) for lacking in (3.0, 5.0))
    assert few.endswith("try more replicas, ZeRO 1, more stages or tensor parallelism")
    assert many.endswith("try more replicas, more stages or tensor parallelism")


@given(st.sampled_from([DLRM, MOE]), st.data(), st.integers(1, 12), st.sampled_from([0, 1, 2, 3]), st.booleans())
def test_never_more_memory_than_where_each_replica_has_all(graph, data, replicas, zero, recompute):
    """Law. Uneven pieces make the fullest replica work more; what is kept of parameters never grows."""
    first = data.draw(st.integers(0, len(graph) - 1))
    last = data.draw(st.integers(first, len(graph) - 1))
    how = {"replicas": replicas, "zero": zero, "recompute": recompute}
    whole, divided = (stage_memory(one, [(first, last)], 2.0, 1, **how) for one in (graph, graph.sharded(replicas)))
    kept = ("weights", "gradients", "optimizer state")
    if zero == 0:
        assert all(divided.parts[name] <= whole.parts[name] * (1 + 1e-12) for name in kept)
    else:
        # ZeRO divides everything, each replica its n-th part; whole experts are never less than that.
        even = stage_memory(graph.sharded(replicas, least=True), [(first, last)], 2.0, 1, **how)
        assert all(even.parts[name] <= divided.parts[name] * (1 + 1e-12) for name in kept)
    if not (graph.shards[first : last + 1] > 0).any() or replicas == 1:
        assert divided == whole


def test_zero_divides_what_all_have_and_no_experts_a_second_time():
    own, sums = MOE.sharded(4), graph_sums(MOE.sharded(4))
    span = (0, len(MOE) - 1)
    memory = stage_memory(own, [span], 1.0, 1, replicas=4, zero=3)
    experts = float(MOE.weight_params[MOE.shards > 0].sum())
    others = MOE.params - experts
    assert sums.alone(*span) == pytest.approx(experts / 4) and sums.summed(*span) == pytest.approx(others)
    assert memory.weights_gib == pytest.approx(2 * (others + experts) / 4 / 2**30)


def test_of_eight_experts_a_replica_of_three_has_three_and_works_for_nine_eighths():
    own, has = MOE.sharded(3), MOE.shards > 0
    assert own.weight_params[has] == pytest.approx(MOE.weight_params[has] * 3 / 8)
    assert own.flops_fwd[has] == pytest.approx(MOE.flops_fwd[has] * 9 / 8)
    assert (own.weight_params[~has] == MOE.weight_params[~has]).all()
    assert (own.flops_fwd[~has] == MOE.flops_fwd[~has]).all()
    many = MOE.sharded(16)
    assert many.weight_params[has] == pytest.approx(MOE.weight_params[has] / 8)
    assert many.flops_fwd[has] == pytest.approx(2 * MOE.flops_fwd[has])


# -- all-to-alls ----------------------------------------------------------------------------------------------


def all_to_all_s(num_bytes, n, performance=MIXED):
    """Of n V100 on a node, by hand: n - 1 rounds, each an n-th of what a GPU has."""
    rate, latency_s = inside(V100, performance.links)
    return (n - 1) / n * num_bytes / rate + (n - 1) * latency_s


@pytest.mark.parametrize("m", [1, 4])
def test_all_to_alls_of_tables_by_hand(m):
    """Of each micro-batch 26 indices of 4 bytes there, 26 sums of 128 values back, and their gradients."""
    samples = 4096 / m / 8
    rows = all_to_all_s(samples * 26 * 128 * 2, 8)
    got = train(TABLES, 4096, one_stage(TABLES, 8), m)
    assert got.tensor_s == pytest.approx(m * (all_to_all_s(samples * 26 * 4, 8) + 2 * rows))
    assert got.iteration_s == np.inf and not got.fits
    again = train(TABLES, 4096, one_stage(TABLES, 8), m, recompute=True)
    assert again.tensor_s == pytest.approx(got.tensor_s + m * (all_to_all_s(samples * 26 * 4, 8) + rows))


def test_values_of_four_bytes_are_twice_as_long_and_indices_are_not():
    rows = all_to_all_s(512 * 26 * 128 * 4, 8)
    assert train(TABLES, 4096, one_stage(TABLES, 8), performance=SINGLE).tensor_s == pytest.approx(
        all_to_all_s(512 * 26 * 4, 8) + 2 * rows)


def test_all_to_alls_of_experts_by_hand():
    """In each layer the copies of 128 tokens for two experts go there and back, forward and backward."""
    each = all_to_all_s(4 * 128 * 2 * 512 * 2, 8)
    assert train(EXPERTS, 32, one_stage(EXPERTS, 8)).tensor_s == pytest.approx(2 * 4 * each)
    # Of three replicas one has three experts: it gets and sends nine eighths.
    uneven = all_to_all_s(9 / 8 * 4 * 128 * 2 * 512 * 2, 3)
    assert train(EXPERTS, 12, one_stage(EXPERTS, 3)).tensor_s == pytest.approx(2 * 4 * uneven)


def test_between_nodes_the_network_link_carries_what_leaves_a_node():
    """Two nodes of four: a node's link passes 4 x 4 of the parts of an eighth, and four messages of each GPU."""
    got, links = train(EXPERTS, 32, one_stage(EXPERTS, 8), node=4), MIXED.links
    part = 4 * 128 * 2 * 512 * 2 / 8
    far = 4 * (4 * part / network_bytes_per_s(links, 1) + links.network_latency_s)
    rate, latency_s = inside(V100, links)
    assert got.tensor_s == pytest.approx(8 * max(far, 3 * (part / rate + latency_s)))


@given(st.integers(0, LAST - 1))
def test_what_tables_send_does_not_depend_on_where_stages_are_cut(cut):
    """Law: bytes are conserved; with latency set aside, so is time over any number of micro-batches."""
    own = DLRM.sharded(4)

    def sent(*spans):
        found = [one for span in spans for one in exchanges(own, *span)]
        return sum(one.values_bytes for one in found), sum(one.index_bytes for one in found)

    assert sent((0, cut), (cut + 1, LAST)) == sent((0, LAST)) == (26 * 128 * 2, 26 * 4)
    free = replace(MIXED.links, node_latency_s=0.0)
    gang = gang_on(V100, (4,), 1)
    one, eight = (exchange_s(own, (0, LAST), samples, gang, free, 2, False) for samples in (64.0, 8.0))
    assert np.array(one) == pytest.approx(8 * np.array(eight))


def test_a_cut_within_experts_brings_tokens_home_and_back():
    own, fc1 = MOE.sharded(4), MOE.ops.index("0.experts.fc1")
    wide = 128 * 2 * 2 * 1024 * 2
    front, back = exchanges(own, 0, fc1), exchanges(own, fc1 + 1, fc1 + 2)
    assert [one.values_bytes for one in front] == [128 * 2 * 512 * 2, wide]
    assert [one.values_bytes for one in back] == [wide, 128 * 2 * 512 * 2]


# -- sums and steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_of_what_is_divided_are_not_summed(overlap):
    """The sums are those of a model without experts' or tables' parameters."""
    for model, graph in ((TABLES, DLRM), (EXPERTS, MOE)):
        bare = replace(graph, weight_params=np.where(graph.shards > 0, 0, graph.weight_params),
                       sparse_params=np.zeros(len(graph)))
        without = Performance(graphs={"bare": bare}, overlap=overlap)
        got = train(model, 512, one_stage(model, 8), performance=Performance(overlap=overlap))
        stage = [Stage(0, len(graph) - 1, "V100", 8)]
        assert got.allreduce_s == pytest.approx(train("bare", 512, stage, performance=without).allreduce_s, rel=1e-6)


def test_a_replica_steps_its_part_alone():
    experts = float(MOE.weight_params[MOE.shards > 0].sum())
    for zero, among in ((0, 1), (1, 8)):
        step = update_time_s((MOE.params - experts) / among + experts / 8, V100)
        assert train(EXPERTS, 32, one_stage(EXPERTS, 8), zero=zero).update_s == pytest.approx(step)
    rows, own = (touched(graph, 4096.0, 2) for graph in (DLRM, DLRM.sharded(8)))
    assert own.params == pytest.approx(rows.params / 8) and not own.num_bytes.any()


def test_experts_read_the_weights_that_they_have():
    """Few tokens: a product is as long as its weights are read, of which a quarter is there."""
    whole, own = (operator_times_s(graph, 0.001, V100)[0] for graph in (MOE, MOE.sharded(4)))
    fc1, launch_s = MOE.ops.index("1.experts.fc1"), MIXED.calibration.launch_s
    assert own[fc1] - launch_s == pytest.approx((whole[fc1] - launch_s) / 4, rel=1e-3)
    assert (own[MOE.shards == 0] == whole[MOE.shards == 0]).all()


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "async"])
@pytest.mark.parametrize("model", [TABLES, EXPERTS])
def test_one_gpu_has_all_and_sends_nothing(model, schedule):
    alone, whole = (train(model, 16, one_stage(model, 1, sharded), schedule=schedule) for sharded in (True, False))
    assert alone == whole


def test_chunks_of_a_pipeline_are_divided_together():
    """Interleaved: both chunks of a GPU are; the one without experts is as it was."""
    n = len(MOE)
    cuts = [(0, 1), (2, n // 2), (n // 2 + 1, n - 3), (n - 2, n - 1)]
    stages = [Stage(a, b, "V100", 2, sharded=True) for a, b in cuts]
    got, whole = (train(EXPERTS, 32, [replace(stage, sharded=sharded) for stage in stages], 2, schedule="interleaved",
                        chunks=2) for sharded in (True, False))
    assert got.fits and got.memory_gib[1] < whole.memory_gib[1]


# -- what is asked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "stage", "said"), [
    ("resnet50", "8xV100/sharded", "no tables with sparse gradients and no experts"),
    (EXPERTS, "4xV100:0.5+4xT4:0.5", "several GPU types"),
    (EXPERTS, "8xV100/2", "tensor parallelism over 2"),
])
def test_what_cannot_be_divided_is_refused(model, stage, said):
    asked = replace(parse_stage(stage), sharded=True)
    with pytest.raises(PerformanceError, match=said):
        ask(MIXED, model, 64, Plan((asked,)))


def test_a_pipeline_says_which_stage_has_nothing_to_divide():
    n, head = len(DLRM), DLRM.ops.index("pairs")
    stages = [Stage(0, head - 1, "V100", 4, sharded=True), Stage(head, n - 1, "V100", 4, sharded=True)]
    with pytest.raises(PerformanceError, match="stage 1"):
        train(TABLES, 64, stages)


@pytest.mark.parametrize("text", ["8xV100/sharded@0-99", "1xA100/sharded@3-3", "8xV100@0-99", "8xA100/4@0-99"])
def test_a_stage_is_written_as_it_is_read(text):
    assert written(parse_stage(text)) == text
    assert parse_stage(text).sharded == ("sharded" in text)


@pytest.mark.parametrize("text", ["8xV100/shard", "8xV100/2/sharded/2", "8xV100/sharded:0.5+8xT4:0.5",
                                  "8xV100:0.5+8xT4:0.5/sharded"])
def test_other_words_are_refused(text):
    with pytest.raises(PerformanceError):
        parse_stage(text)


def test_parts_are_refused_where_stages_are_made_by_hand():
    parts = (Part("V100", 2, 0.5), Part("T4", 2, 0.5))
    with pytest.raises(PerformanceError, match="several GPU types"):
        train(EXPERTS, 64, [Stage(0, len(MOE) - 1, "V100", 4, 1, parts, sharded=True)])
