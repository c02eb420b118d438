"""Tied embeddings: the copy at the other end of a pipeline, and the sum of its gradients between both (R3-09)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.api import Plan, Stage
from sim.cli.whatif import on_full_nodes
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.embeddings import tied_sums_s
from sim.performance.graph import GraphBuilder
from sim.performance.memory import GIB, stage_memory
from sim.performance.messages import transfer_s
from sim.performance.stage_sites import StageGpus

SPEEDS = Performance()
TABLE = 50257 * 1600
"""GPT-2 1.5B: words x width."""


def asked(model: str, *stages: Stage, batch: int = 8, m: int = 8, speeds: Performance = SPEEDS, **how):
    plan = Plan(stages, m, **how)
    cluster, gpus = on_full_nodes(plan, (gpu_type("A100-80"),), 8, speeds)
    return speeds.plan(model, batch, plan, gpus, cluster)


def stages(model: str, *ends: int, gpus: int = 1, tensor: int = 1) -> list[Stage]:
    last = len(SPEEDS.graph(model)) - 1
    firsts = [0, *(end + 1 for end in ends)]
    return [Stage(a, b, "A100-80", gpus, tensor) for a, b in zip(firsts, [*ends, last], strict=True)]


def untied(model: str) -> Performance:
    """The same operators, as if nothing were tied."""
    from dataclasses import replace

    return Performance(graphs={model: replace(SPEEDS.graph(model), tied=())})


def test_r3_09_the_last_stage_keeps_a_copy_of_sixteen_bytes_a_parameter():
    """50,257 x 1,600 x 16 bytes are 1.198 GiB on the last stage, and nothing on the others."""
    with_copy = asked("gpt2-1.5b", *stages("gpt2-1.5b", 100, 200, 300)).memory_gib
    without = asked("gpt2-1.5b", *stages("gpt2-1.5b", 100, 200, 300), speeds=untied("gpt2-1.5b")).memory_gib
    assert np.subtract(with_copy, without) == pytest.approx([0, 0, 0, 16 * TABLE / GIB])
    assert pytest.approx(1.198, abs=1e-3) == 16 * TABLE / GIB


def test_r3_09_both_ends_sum_the_tables_gradients():
    """Two A100 of a node: the table of 2 bytes a parameter there and back over NVLink, both ways at once."""
    whole, alone = (asked("gpt2-1.5b", *stages("gpt2-1.5b", 200), speeds=s) for s in (SPEEDS, untied("gpt2-1.5b")))
    one = StageGpus(gpu_type("A100-80"), (0,), (0,))
    other = StageGpus(gpu_type("A100-80"), (0,), (0,))
    assert alone.allreduce_s == 0
    assert whole.allreduce_s == pytest.approx(transfer_s(2 * TABLE, one, other, SPEEDS.links))


def test_a_stage_with_both_users_keeps_one_table_and_sums_nothing():
    one, other = (asked("gpt2-1.5b", *stages("gpt2-1.5b"), speeds=s) for s in (SPEEDS, untied("gpt2-1.5b")))
    assert one == other


@pytest.mark.parametrize("model", ["bert-large", "llama-7b", "resnet50", "dlrm"])
def test_models_whose_tables_are_used_once_have_none(model):
    assert SPEEDS.graph(model).tied == ()


def test_three_users_on_three_stages_sum_by_a_ring():
    """transformer-big: source, target and logits share 37,000 x 1,024. Of three, each sends 4/3 of it."""
    graph = SPEEDS.graph("transformer-big")
    (users, params), = graph.tied
    assert [graph.ops[op] for op in users] == ["source", "target", "logits"]
    assert params == 37000 * 1024
    a, b, c = (StageGpus(gpu_type("V100"), (node,), (0,)) for node in range(3))
    spans = [(0, users[1] - 1), (users[1], users[2] - 1), (users[2], len(graph) - 1)]
    waits = tied_sums_s(graph, spans, [a, b, c], 3, 2, SPEEDS.links)
    assert waits == pytest.approx([transfer_s(4 / 3 * 2 * params, a, b, SPEEDS.links)] * 3)
    two = tied_sums_s(graph, [spans[0], (users[1], len(graph) - 1)], [a, b], 2, 2, SPEEDS.links)
    assert two == pytest.approx([transfer_s(2 * params, a, b, SPEEDS.links)] * 2)


def test_each_replica_sums_with_its_peer():
    """Four replicas of a node send four tables over its network link."""
    graph = SPEEDS.graph("gpt2-1.5b")
    spans = [(0, 200), (201, len(graph) - 1)]
    one, four = ([StageGpus(gpu_type("A100-80"), (node,) * r, (0,) * r) for node in range(2)] for r in (1, 4))
    latency = SPEEDS.links.network_latency_s
    first, last = (tied_sums_s(graph, spans, place, 2, 2, SPEEDS.links)[0] for place in (one, four))
    assert last - latency == pytest.approx(4 * (first - latency))


def test_tensor_parallelism_divides_the_copy_and_another_order_keeps_it():
    graph = SPEEDS.graph("gpt3-6.7b")
    ((users, params),) = graph.tied
    assert graph.tensor_parallel(4).tied == ((users, params / 4),)
    order = list(range(len(graph)))
    assert graph.reordered(order).tied == graph.tied


def test_chunks_on_one_gpu_share_their_copy():
    """Of two chunks that both use the table, and neither has its first user, a GPU keeps one copy."""
    b = GraphBuilder("three", "a sample", 2.0)
    first = b.add("words", "embedding", (-1,), 8, params=1e9)
    ops = [first]
    for name in ("second", "third"):
        ops.append(b.add(name, "gemm", (ops[-1],), 8, flops=1e6))
    b.tie(tuple(ops), 1e9)
    graph = b.build()
    need = [stage_memory(graph, spans, 1.0, held).weights_gib for spans, held in (
        ([(1, 1), (2, 2)], np.ones((1, 2), dtype=np.int64)), ([(1, 2)], 1), ([(0, 0), (2, 2)], np.ones((1, 2))))]
    assert need == pytest.approx([2e9 / GIB] * 3)


@given(st.integers(1, 387), st.sampled_from([1, 2, 4]))
def test_a_copy_never_makes_a_plan_cheaper(cut, replicas):
    spans = stages("gpt2-1.5b", min(cut, 386), gpus=replicas)
    with_copy, without = (asked("gpt2-1.5b", *spans, batch=32, speeds=s) for s in (SPEEDS, untied("gpt2-1.5b")))
    assert with_copy.iteration_s >= without.iteration_s
    assert all(a >= b for a, b in zip(with_copy.memory_gib, without.memory_gib, strict=True))
