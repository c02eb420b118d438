"""Memory of a stage: by hand, against published figures, against the twin that plays the schedule, and by law."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.memory import (
    CONTEXT_GIB,
    GIB,
    StageMemory,
    chunks_in_flight,
    does_not_fit,
    in_flight,
    memory_form,
    memory_gib,
    stage_memory,
    weight_versions,
)
from sim.performance.recompute import recompute_s, recomputed_blocks
from sim.performance.zoo import zoo_graph
from tests.performance.twins import Twin


def small() -> OperatorGraph:
    """Two blocks of two operators, the sample of 100 bytes; the second block reads the first operator too.

    Outputs of 20, 40, 60 and 80 bytes (2 a value), 1,000 to 4,000 parameters, stored 500, 600, 700 and 10 bytes.
    """
    b = GraphBuilder("small", "a number", 100.0)
    first = b.add("a", "gemm", (-1,), 10, params=1000, stored_bytes=500)
    x = b.add("b", "gemm", (first,), 20, params=2000, stored_bytes=600)
    b.next_block()
    x = b.add("c", "gemm", (x, first), 30, params=3000, stored_bytes=700)
    b.add("d", "gemm", (x, first), 40, params=4000, stored_bytes=10)
    return b.build()


def wide(params: float, sparse: float = 0.0) -> OperatorGraph:
    """One operator with so many parameters."""
    b = GraphBuilder("wide", "a number", 2.0)
    b.add("a", "embedding", (-1,), 1, params=params, sparse_params=sparse)
    return b.build()


def state_gb(memory: StageMemory) -> float:
    """Weights, gradients and optimizer in GB of 10^9 bytes."""
    return (memory.weights_gib + memory.gradients_gib + memory.optimizer_gib) * GIB / 1e9


def test_a_stage_by_hand() -> None:
    """Operators b and c: 5,000 parameters, stored 1,300, the most that passes is c's 40 + 20 + 60."""
    got = stage_memory(small(), [(1, 2)], 3, 4)
    assert got.weights_gib * GIB == got.gradients_gib * GIB == 2 * 5000
    assert got.optimizer_gib * GIB == 12 * 5000
    assert got.activations_gib * GIB == 4 * 3 * 1300
    assert got.working_gib * GIB == 3 * 120
    assert (got.recomputed_gib, got.context_gib, got.in_flight) == (0.0, CONTEXT_GIB, 4)
    assert got.total_gib == sum(got.parts.values()) == memory_gib(small(), 1, 2, 3, 4)


def test_p48_stages_hold_micro_batches_by_schedule() -> None:
    """P-48: of 4 stages with 8 micro-batches stage 0 holds 4 in 1F1B and 8 in GPipe."""
    assert [in_flight("1f1b", s, 4, 8) for s in range(4)] == [4, 3, 2, 1]
    assert [in_flight("gpipe", s, 4, 8) for s in range(4)] == [8, 8, 8, 8]
    assert [in_flight("1f1b", s, 4, 2) for s in range(4)] == [2, 2, 2, 1]
    # It never ends, so that m is not a bound; each in flight has its own version of the weights.
    assert [in_flight("async", s, 4, 1) for s in range(4)] == [4, 3, 2, 1]
    assert [weight_versions("async", s, 4) for s in range(4)] == [4, 3, 2, 1]
    assert [weight_versions("1f1b", s, 4) for s in range(4)] == [1, 1, 1, 1]
    held = [stage_memory(small(), [(0, 3)], 1, in_flight(s, 0, 4, 8)).activations_gib for s in ("1f1b", "gpipe")]
    assert held[1] == 2 * held[0] > 0


def test_interleaving_holds_more_by_the_published_factor() -> None:
    """Korthikanti et al. 2022, section 4.2.3: (1 + (p - 1) / (p v)) times what 1F1B holds on the first GPU."""
    for p, v in ((4, 2), (8, 3), (2, 5)):
        assert in_flight("interleaved", 0, p, 4 * p, v) == pytest.approx(p * (1 + (p - 1) / (p * v)))


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 1000))
def test_unequal_chunks_hold_what_their_twin_holds(p: int, groups: int, chunks: int, seed: int) -> None:
    rng, m, q = np.random.default_rng(seed), p * groups, p * chunks
    stored, none = rng.uniform(1.0, 10.0, q), np.zeros(q - 1)
    fwd, bwd = rng.uniform(0.1, 2.0, (2, q))
    twin = Twin("interleaved", fwd, bwd, none, none, m, chunks=chunks, stored=stored)
    for g in range(p):
        counts = chunks_in_flight(g, p, m, chunks)
        assert (counts @ stored[g::p]).max() == pytest.approx(twin.most_stored[g])
        assert counts.sum(axis=1).max() == twin.most_held[g]
        assert counts.sum(axis=1).max() / chunks == in_flight("interleaved", g, p, m, chunks)


def test_the_worst_moment_of_unequal_chunks_counts() -> None:
    """Chunks of operator a (stores 500) and d (10), 2 GPUs, 4 micro-batches: GPU 0 holds 3 and 2, or 4 and 1."""
    counts = chunks_in_flight(0, 2, 4, 2)
    assert counts.tolist() == [[3, 2], [4, 1], [4, 1], [3, 2]]
    got = stage_memory(small(), [(0, 0), (3, 3)], 1, counts)
    assert got.activations_gib * GIB == 4 * 500 + 10
    assert got.weights_gib * GIB == 2 * 5000 and got.in_flight == 2.5


def test_zero_shards_as_published() -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters on 64 GPUs need 120, 31.4, 16.6 and 1.9 GB."""
    graph = wide(7.5e9)
    got = [state_gb(stage_memory(graph, [(0, 0)], 1, 1, replicas=64, zero=z)) for z in range(4)]
    assert got == pytest.approx([120, 31.4, 16.6, 1.9], rel=0.02)


def test_zero_gathers_the_largest_block() -> None:
    """Block 1 of 7,000 parameters: its whole gradient (ZeRO 2), its weights too (3); alone there is nothing to do."""
    passing = stage_memory(small(), [(0, 3)], 1, 1).working_gib * GIB
    working = [stage_memory(small(), [(0, 3)], 1, 1, replicas=2, zero=z).working_gib * GIB for z in range(4)]
    assert working == [passing, passing, passing + 14_000, passing + 28_000]
    alone = [stage_memory(small(), [(0, 3)], 1, 1, zero=z) for z in range(4)]
    assert {one.total_gib for one in alone} == {alone[0].total_gib}


def test_weight_versions_multiply_the_weights_only() -> None:
    one, four = (stage_memory(small(), [(0, 3)], 1, 1, versions=v) for v in (1, 4))
    assert four.weights_gib == 4 * one.weights_gib
    assert replace(four, weights_gib=one.weights_gib) == one


def test_single_precision_keeps_as_much_state_and_twice_the_activations() -> None:
    mixed, single = (stage_memory(small(), [(0, 3)], 5, 2, value_bytes=b) for b in (2, 4))
    assert state_gb(single) == pytest.approx(state_gb(mixed)) and single.weights_gib == 2 * mixed.weights_gib
    assert single.activations_gib == 2 * mixed.activations_gib and single.working_gib == 2 * mixed.working_gib


def test_tables_with_sparse_gradients_have_no_gradient() -> None:
    got = stage_memory(wide(1000, sparse=900), [(0, 0)], 1, 1)
    assert got.gradients_gib * GIB == 2 * 100 and got.weights_gib * GIB == 2 * 1000


def test_recomputation_by_hand() -> None:
    """The sample (100) enters block 0, a's 20 and b's 40 enter block 1. Block 1 stores 710, block 0 1,100, of which the
    sample is there already."""
    again, kept, once = recomputed_blocks(small(), 0, 3)
    assert again.all() and kept == 100 + 20 + 40 and once == 1100 - 100
    got = stage_memory(small(), [(0, 3)], 3, 4, recompute=True)
    assert got.activations_gib * GIB == 4 * 3 * 160 and got.recomputed_gib * GIB == 3 * 1000
    assert recompute_s(small(), np.array([1.0, 2.0, 4.0, 8.0]), 0, 3) == 15.0


def test_a_block_that_stores_less_than_enters_it_is_not_recomputed() -> None:
    """Operator d alone stores 10 bytes, and c's 60 and a's 20 enter it."""
    again, kept, once = recomputed_blocks(small(), 3, 3)
    assert not again.any() and (kept, once) == (10.0, 0.0)
    assert recompute_s(small(), np.ones(4), 3, 3) == 0.0


def test_a_recomputed_transformer_layer_keeps_its_input() -> None:
    """Korthikanti et al. 2022, section 5: 2 s b h bytes a layer; here of 1,024 tokens and 1,600 wide, 48 layers."""
    graph = zoo_graph("gpt2-1.5b")
    layers = np.flatnonzero((graph.block >= 10) & (graph.block < 20))
    again, kept, once = recomputed_blocks(graph, int(layers[0]), int(layers[-1]))
    assert again.all() and kept == 10 * 2 * 1024 * 1600
    # The layer's input is kept anyway: it is not stored once more while the layer is computed again.
    assert once == pytest.approx(graph.stored_bytes[layers].sum() / 10 - 2 * 1024 * 1600)


def test_recomputing_all_that_is_kept_once_takes_no_more_memory_and_no_less() -> None:
    """One micro-batch and one layer: its input, and then its inside, is what is there without recomputation as well."""
    graph = zoo_graph("gpt2-1.5b")
    layer = np.flatnonzero(graph.block == 10)
    span = [(int(layer[0]), int(layer[-1]))]
    plain, again = (stage_memory(graph, span, 1, 1, recompute=one).total_gib for one in (False, True))
    assert again == pytest.approx(plain, rel=1e-12)


def test_recomputation_lengthens_backward_by_the_forward_pass() -> None:
    speed, v100 = Performance(), gpu_type("V100")
    fwd, _ = speed.op_times_s("gpt2-1.5b", 1, v100)
    graph = speed.graph("gpt2-1.5b")
    assert recompute_s(graph, fwd, 0, len(graph) - 1) == pytest.approx(fwd.sum(), rel=0.02)


MODELS = ("resnet50", "gpt2-1.5b", "transformer", "dlrm", "inception-v3")


@settings(max_examples=60)
@given(st.sampled_from(MODELS), st.data())
def test_laws_of_memory(model: str, data: Any) -> None:
    """Recomputation never holds more, sharding never adds state, and memory is linear in samples and micro-batches."""
    graph = zoo_graph(model)
    first = data.draw(st.integers(0, len(graph) - 1))
    last = data.draw(st.integers(first, len(graph) - 1))
    samples, held = data.draw(st.floats(0.5, 64.0)), data.draw(st.integers(1, 8))
    span, replicas = [(first, last)], data.draw(st.integers(1, 16))
    plain = stage_memory(graph, span, samples, held)
    recomputed = stage_memory(graph, span, samples, held, recompute=True)
    assert recomputed.activations_gib <= plain.activations_gib
    assert recomputed.recomputed_gib * held <= plain.activations_gib * (1 + 1e-12)
    sharded = [state_gb(stage_memory(graph, span, samples, held, replicas=replicas, zero=z)) for z in range(4)]
    assert sharded == sorted(sharded, reverse=True)
    assert sharded[3] == pytest.approx(sharded[0] / replicas)
    fixed, once = (memory_gib(graph, first, last, *a) for a in ((1e-12, 0), (samples, 0)))
    stored = memory_gib(graph, first, last, samples, 1) - once
    assert plain.total_gib == pytest.approx(once + held * stored)
    assert memory_gib(graph, first, last, 2 * samples, held) == pytest.approx(2 * plain.total_gib - fixed)


def test_tensor_parallelism_divides_what_it_splits() -> None:
    """Pass the graph of one GPU: an eighth of the weights of a layer, and no less than an eighth of what it stores."""
    graph = zoo_graph("gpt3-6.7b")
    layer = np.flatnonzero(graph.block == 5)
    span = [(int(layer[0]), int(layer[-1]))]
    whole, part = (stage_memory(one, span, 1, 1) for one in (graph, graph.tensor_parallel(8)))
    assert state_gb(part) == pytest.approx(state_gb(whole) / 8, rel=0.01)
    assert whole.activations_gib / 8 < part.activations_gib < whole.activations_gib / 2


def test_what_does_not_fit_says_what_where_how_much_and_what_helps() -> None:
    graph = zoo_graph("gpt2-1.5b")
    many = stage_memory(graph, [(0, 100)], 4, 8)
    assert does_not_fit(1, "V100", many, 1000.0) == "" == does_not_fit(1, "V100", many, many.total_gib)
    assert does_not_fit(1, "V100", many, 16.0) == (
        f"stage 1 does not fit: a V100 needs {many.total_gib:.1f} GiB and has 16.0 GiB; the largest part is "
        f"activations, {many.activations_gib:.1f} GiB of 8 micro-batches in flight: "
        "try recompute, more micro-batches or tensor parallelism"
    )
    few = stage_memory(graph, [(0, 387)], 1, 1, recompute=True)
    largest = f"largest part is optimizer state, {few.optimizer_gib:.1f} GiB: try "
    assert does_not_fit(0, "V100", few, 16.0).endswith(largest + "more stages or tensor parallelism")
    shared = replace(few, replicas=8)
    assert does_not_fit(0, "V100", shared, 16.0).endswith(largest + "ZeRO 1, more stages or tensor parallelism")
    again = replace(many, recompute=True)
    assert does_not_fit(0, "V100", again, 16.0).endswith("try more micro-batches or tensor parallelism")
    assert does_not_fit(0, "K80", stage_memory(small(), [(0, 3)], 1, 1), 0.5).endswith("try a GPU with more memory")


@pytest.mark.parametrize("available", [None, math.nan, 0.0, -1.0])
def test_p47_memory_that_is_unknown_is_not_enough(available: float | None) -> None:
    """P-47: neither in the comparison nor through the door, whatever is asked for."""
    with pytest.raises(PerformanceError, match="GPU type 'V100': the memory of a GPU type is unknown"):
        does_not_fit(0, "V100", stage_memory(small(), [(0, 3)], 1, 1), available)
    unknown = replace(gpu_type("V100"), memory_gib=available)  # type: ignore[arg-type]
    with pytest.raises(PerformanceError, match="GPU type 'V100': memory_gib of a GPU type is unknown"):
        Performance().fits("resnet50", 32, unknown, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spans": []}, "impossible operators"),
        ({"spans": [(2, 1)]}, "impossible operators"),
        ({"spans": [(0, 4)]}, "impossible operators.*allowed: spans within 0 to 3"),
        ({"samples": 0}, "impossible samples"),
        ({"samples": math.nan}, "impossible samples"),
        ({"held": -1}, "impossible micro-batches in flight"),
        ({"held": math.nan}, "impossible micro-batches in flight"),
        ({"held": np.ones((2, 3))}, "impossible micro-batches in flight"),
        ({"replicas": 0}, "impossible replicas"),
        ({"zero": 4}, "impossible stage of ZeRO of a stage; got 4; allowed: 0, 1, 2 or 3"),
        ({"versions": 0}, "impossible versions"),
        ({"value_bytes": 8}, "impossible bytes of a value"),
    ],
)
def test_an_impossible_stage_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PerformanceError, match=f"model 'small': {message}"):
        stage_memory(**({"graph": small(), "spans": [(0, 3)], "samples": 1, "held": 1} | change))


@settings(max_examples=60)
@given(st.data())
def test_the_form_for_planners_is_the_same_memory(data):
    """fixed + samples (passing + held stored), whatever the stage, samples, micro-batches and precision."""
    graph = zoo_graph(data.draw(st.sampled_from(["vgg16", "bert-large", "dlrm", "gnmt-8", "nasnet-mobile"])))
    first = data.draw(st.integers(0, len(graph) - 1))
    last = data.draw(st.integers(first, len(graph) - 1))
    samples, held = data.draw(st.floats(0.5, 64)), data.draw(st.integers(0, 16))
    value_bytes = data.draw(st.sampled_from([2, 4]))
    fixed, passing, stored = memory_form(graph, first, last, value_bytes)
    whole = stage_memory(graph, [(first, last)], samples, held, value_bytes=value_bytes).total_gib
    assert fixed + samples * (passing + held * stored) == pytest.approx(whole, rel=1e-12)
