"""Iterations of jobs: by hand from stage times, by law, and what does not fit."""

from __future__ import annotations

import math
import timeit
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.api import Plan, Stage
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.gpu_links import NETWORK_EFFICIENCY, NVLINK_EFFICIENCY
from sim.performance.iteration import pipeline_iteration
from sim.performance.memory import in_flight

V100, A100 = gpu_type("V100"), gpu_type("A100-80")
LAST = 196
"""Last operator of bert-large."""


def cluster() -> ClusterSpec:
    """Two V100 nodes of 4 in rack 0, an A100 node of 4 in rack 1, an A100 node of 4 in rack 0."""
    return ClusterSpec.build("toy", [V100, A100], [0, 0, 1, 1], [4, 4, 4, 4], [0, 0, 1, 0])


def slots(*gpus: int) -> np.ndarray:
    return np.array(gpus, dtype=np.int32)


def test_data_parallelism_by_hand() -> None:
    """Four V100 on a node: a quarter of the batch each, then 51 MB of gradients round an NVLink ring."""
    speed = Performance()
    got = speed.data_parallel("resnet50", 128, V100, (4,))
    fwd, bwd = speed.op_times_s("resnet50", 32, V100)
    ring = 2 * 3 / 4 * 2 * 25_557_032 / (150e9 * NVLINK_EFFICIENCY) + 6 * 5e-6
    update = 28 * 25_557_032 / (900e9 * 0.82)
    assert got.compute_s == pytest.approx(fwd.sum() + bwd.sum())
    assert got.allreduce_s == pytest.approx(ring)
    assert got.update_s == pytest.approx(update)
    assert got.iteration_s == pytest.approx(fwd.sum() + bwd.sum() + ring + update)
    assert (got.bubble_s, got.transfer_s, got.fits, got.reason) == (0.0, 0.0, True, "")
    assert got.rate == 1.0 / got.iteration_s


def test_the_network_matters() -> None:
    """P-42: two nodes at 100 and at 10 Gbyte/s differ by the bytes that cross; one node does not care."""
    fast, slow = (Performance(Links(network_gbytes_per_s=rate)) for rate in (100.0, 10.0))
    apart = [speed.data_parallel("vgg16", 64, V100, (1, 1)).iteration_s for speed in (fast, slow)]
    num_bytes = 2 * 138_357_544
    saved = num_bytes / (10e9 * NETWORK_EFFICIENCY) - num_bytes / (100e9 * NETWORK_EFFICIENCY)
    assert apart[1] - apart[0] == pytest.approx(saved)
    together = [speed.data_parallel("vgg16", 64, V100, (2,)).iteration_s for speed in (fast, slow)]
    assert together[0] == together[1] < apart[0]


def test_racks_matter_where_their_links_are_slower() -> None:
    speed = Performance(Links(network_gbytes_per_s=10.0, rack_gbytes_per_s=1.0))
    near, far = (speed.data_parallel("vgg16", 64, V100, (2, 2), racks).allreduce_s for racks in (1, 2))
    assert far > 5 * near


@settings(max_examples=60)
@given(
    st.sampled_from(["resnet50", "bert-large", "transformer"]),
    st.floats(0.1, 100.0),
    st.floats(1.0, 100.0),
    st.sampled_from([(1,), (4,), (2, 2), (4, 4), (3, 1)]),
)
def test_a_faster_network_is_never_slower(
    model: str, rate: float, gain: float, gpus: tuple[int, ...]
) -> None:
    before, after = (
        Performance(Links(network_gbytes_per_s=r)).data_parallel(model, 32, A100, gpus).iteration_s
        for r in (rate, rate * gain)
    )
    assert after <= before * (1 + 1e-12)


def test_stage_times_add_up() -> None:
    speed = Performance()
    fwd, bwd = speed.op_times_s("bert-large", 4, V100)
    assert speed.stage_time_s("bert-large", 10, 20, V100, 4) == pytest.approx(
        (fwd[10:21].sum(), bwd[10:21].sum())
    )
    whole = speed.stage_time_s("bert-large", 0, LAST, V100, 4)
    halves = [speed.stage_time_s("bert-large", a, b, V100, 4) for a, b in ((0, 99), (100, LAST))]
    assert whole == pytest.approx(tuple(np.sum(halves, axis=0)))


def test_a_plan_of_two_stages_by_hand() -> None:
    """Stage 0 on a V100, stage 1 on two A100 in another rack; one micro-batch: everything in sequence."""
    speed = Performance(Links(network_gbytes_per_s=10.0, rack_gbytes_per_s=5.0))
    plan = Plan((Stage(0, 99, "V100", 1), Stage(100, LAST, "A100-80", 2)))
    got = speed.plan("bert-large", 8, plan, slots(0, 8, 9), cluster())
    first = speed.stage_time_s("bert-large", 0, 99, V100, 8)
    second = speed.stage_time_s("bert-large", 100, LAST, A100, 4)
    message = 20e-6 + 8 * speed.graph("bert-large").cut_bytes[99] / (5e9 * NETWORK_EFFICIENCY)
    params = speed.graph("bert-large").weight_params
    update = 28 * params[:100].sum() / (900e9 * 0.82)
    assert got.iteration_s == pytest.approx(sum(first) + sum(second) + 2 * message + update)
    # As stage 0, which ends last, spends it.
    assert got.compute_s == pytest.approx(sum(first))
    assert got.bubble_s == pytest.approx(sum(second))
    assert got.transfer_s == pytest.approx(2 * message)
    assert got.allreduce_s == 0.0
    reduce = speed.allreduce_s("bert-large", 100, LAST, A100, (2,))
    assert reduce == pytest.approx(2 * params[100:].sum() / (300e9 * NVLINK_EFFICIENCY) + 2 * 5e-6)


def test_the_stage_that_finishes_last_sets_the_time() -> None:
    """The last stage's replicas on two nodes, a slow network: its all-reduce outlasts the first stage."""
    speed = Performance(Links(network_gbytes_per_s=0.1))
    plan = Plan((Stage(0, 99, "V100", 1), Stage(100, LAST, "V100", 2)), 4)
    got = speed.plan("bert-large", 16, plan, slots(0, 1, 4), cluster())
    assert got.allreduce_s == pytest.approx(speed.allreduce_s("bert-large", 100, LAST, V100, (1, 1)))
    assert got.allreduce_s > 0.5 * got.iteration_s


PLANS = st.builds(
    lambda cut, a, b, m, batch: (
        Plan((Stage(0, cut, "V100", a), Stage(cut + 1, LAST, "A100-80", b)), m),
        a,
        b,
        batch,
    ),
    st.integers(0, LAST - 1),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([32, 64]),
)


@settings(max_examples=60)
@given(PLANS)
def test_the_parts_of_an_iteration_add_up(case: tuple[Plan, int, int, int]) -> None:
    plan, a, b, batch = case
    gpus = slots(*range(a), *range(8, 8 + b))
    got = Performance().plan("bert-large", batch, plan, gpus, cluster())
    parts = got.compute_s + got.bubble_s + got.transfer_s + got.allreduce_s + got.update_s
    assert min(got.bubble_s, got.transfer_s, got.allreduce_s) >= -1e-12
    assert parts == pytest.approx(got.iteration_s) if got.fits else got.iteration_s == math.inf
    assert len(got.memory_gib) == 2
    instant = Performance(Links(1e9, 1e9, 0.0, 0.0)).plan("bert-large", batch, plan, gpus, cluster())
    assert instant.iteration_s <= got.iteration_s


def test_gradients_accumulate_over_micro_batches_and_are_summed_once() -> None:
    for schedule in ("1f1b", "gpipe", "interleaved"):
        got = pipeline_iteration(schedule, [2.0], [5.0], [], 3, [4.0], [1.0], (), tensor=[0.5])
        assert (got.iteration_s, got.compute_s, got.allreduce_s, got.update_s) == (26.0, 21.0, 4.0, 1.0)
        assert (got.bubble_s, got.transfer_s, got.tensor_s) == (0.0, 0.0, 1.5)


def test_asynchronous_stages_sum_and_step_after_each_micro_batch() -> None:
    """Stage 1 is the slowest: 2 + 3 + 1 + 0.5 a micro-batch; a border of 8 there and 1 back is slower yet."""
    got = pipeline_iteration("async", [1.0, 2.0], [2.0, 3.0], [0.0], 4, [0.0, 1.0], [0.5, 0.5], (7.0, 8.0))
    assert (got.iteration_s, got.compute_s, got.allreduce_s, got.update_s) == (26.0, 20.0, 4.0, 2.0)
    assert (got.bubble_s, got.transfer_s, got.fits, got.memory_gib) == (0.0, 0.0, True, (7.0, 8.0))
    far = pipeline_iteration(
        "async", [1.0, 2.0], [2.0, 3.0], [8.0], 4, [0.0, 1.0], [0.5, 0.5], (), comm_bwd=np.array([1.0])
    )
    # Two micro-batches in flight: 3 + 8 + 5 + 1 + 0.5 for two of them, 8.75 each.
    assert far.iteration_s == 4 * 8.75 and far.transfer_s == pytest.approx(4 * (8.75 - 6.5))


def test_an_interleaved_gpu_sums_chunk_after_chunk() -> None:
    """The chunks of two GPUs by hand (test_pipeline_kernels): GPU 0 ends at 10, GPU 1 at 9."""
    one = np.ones(4)
    got = pipeline_iteration("interleaved", one, one, np.zeros(3), 2, one, [0.0, 3.0, 0.0, 0.0], (), chunks=2)
    assert (got.iteration_s, got.compute_s, got.bubble_s) == (9.0 + 2.0 + 3.0, 8.0, 1.0)
    assert (got.allreduce_s, got.update_s, got.transfer_s) == (2.0, 3.0, 0.0)


def test_a_blocking_transfer_is_never_quicker_and_is_all_transfer() -> None:
    fwd, bwd, comm, none = [1.0, 3.0], [2.0, 4.0], [0.5], [0.0, 0.0]
    overlapped, blocking = (
        pipeline_iteration("1f1b", fwd, bwd, comm, 2, none, none, (), blocking=b) for b in (False, True)
    )
    assert (overlapped.iteration_s, blocking.iteration_s) == (18.0, 18.5)
    assert (overlapped.transfer_s, blocking.transfer_s) == (1.0, 1.5)
    assert overlapped.bubble_s == blocking.bubble_s == 11.0


@settings(max_examples=100)
@given(
    st.sampled_from(["1f1b", "gpipe", "interleaved", "async"]),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 1000),
)
def test_the_parts_add_up_under_each_schedule(schedule: str, blocking: bool, p: int, groups: int, seed: int) -> None:
    rng, chunks = np.random.default_rng(seed), 2 if schedule == "interleaved" else 1
    q, m = p * chunks, p * groups
    fwd, bwd, reduce, update = rng.uniform(0.1, 2.0, (4, q))
    there, back = rng.uniform(0.0, 2.0, (2, q - 1))
    how: dict[str, Any] = {"comm_bwd": back, "tensor": fwd / 2, "chunks": chunks, "blocking": blocking}
    got = pipeline_iteration(schedule, fwd, bwd, there, m, reduce, update, (), **how)
    parts = (got.compute_s, got.bubble_s, got.transfer_s, got.allreduce_s, got.update_s)
    assert sum(parts) == pytest.approx(got.iteration_s) and min(parts) >= -1e-9
    assert 0 < got.tensor_s < got.compute_s


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "1f2b"}, "did you mean '1f1b'"),
        ({"schedule": "async", "chunks": 2}, "only the schedule 'interleaved'"),
        ({"schedule": "async", "micro_batches": 0}, "impossible number of micro-batches"),
        ({"schedule": "interleaved", "chunks": 2}, "chunks do not divide the stages"),
        ({"schedule": "interleaved", "micro_batches": 4}, "a multiple of 3"),
        ({"allreduce": [1.0]}, "impossible times of all-reduce"),
        ({"update": [1.0, math.nan, 1.0]}, "impossible times of update"),
        ({"fwd": [1.0, math.nan, 1.0]}, "stage 1 of plan 0: a time is unknown"),
        ({"comm": [1.0]}, "do not match"),
    ],
)
def test_an_iteration_of_impossible_times_is_refused(change: dict[str, Any], message: str) -> None:
    good = {"schedule": "1f1b", "fwd": [1.0] * 3, "bwd": [1.0] * 3, "comm": [0.0] * 2, "micro_batches": 3,
            "allreduce": [0.0] * 3, "update": [0.0] * 3, "memory_gib": ()}  # fmt: skip
    with pytest.raises(PerformanceError, match=message):
        pipeline_iteration(**(good | change))


def test_one_stage_is_data_parallelism() -> None:
    speed = Performance()
    plan = Plan((Stage(0, LAST, "V100", 6),))
    got = speed.plan("bert-large", 48, plan, slots(0, 1, 2, 3, 4, 5), cluster())
    assert got == speed.data_parallel("bert-large", 48, V100, (4, 2))


def test_only_the_layout_matters_not_which_gpus() -> None:
    """And the same layout is not worked out twice."""
    speed = Performance()
    where, plan = cluster(), Plan((Stage(0, 99, "V100", 2), Stage(100, LAST, "V100", 2)), 4)
    got = speed.plan("bert-large", 16, plan, slots(0, 1, 2, 3), where)
    assert speed.plan("bert-large", 16, plan, slots(5, 7, 6, 4), where) is got
    assert speed.plan("bert-large", 16, plan, slots(0, 1, 4, 5), where).transfer_s > got.transfer_s
    # What a planner believed of a plan does not matter.
    assert speed.plan("bert-large", 16, replace(plan, iteration_s=1.0), slots(0, 1, 2, 3), where) is got


def test_a_remembered_answer_comes_at_once() -> None:
    speed = Performance()
    speed.data_parallel("resnet50", 128, V100, (4, 4))
    timer = timeit.Timer(lambda: speed.data_parallel("resnet50", 128, V100, (4, 4)))
    assert min(timer.repeat(5, 2000)) / 2000 < 5e-6


def test_pipeline_stages_hold_several_micro_batches() -> None:
    """P-48: of 4 stages with 8 micro-batches the first holds 4 under 1F1B and 8 under GPipe."""
    assert [in_flight("1f1b", s, 4, 8) for s in range(4)] == [4, 3, 2, 1]
    assert [in_flight("1f1b", s, 4, 2) for s in range(4)] == [2, 2, 2, 1]
    assert [in_flight("gpipe", s, 4, 8) for s in range(4)] == [8, 8, 8, 8]
    plan = Plan(tuple(Stage(a, b, "A100-80", 1) for a, b in ((0, 49), (50, 99), (100, 149), (150, LAST))), 8)
    flushed, piled = (
        Performance(schedule=s).plan("bert-large", 64, plan, slots(8, 9, 10, 11), cluster())
        for s in ("1f1b", "gpipe")
    )
    graph = Performance().graph("bert-large")
    for s, stage in enumerate(plan.stages):
        stored = 8 * graph.stored_bytes[stage.first_op : stage.last_op + 1].sum() / 2**30
        assert piled.memory_gib[s] - flushed.memory_gib[s] == pytest.approx((8 - (4 - s)) * stored)


def test_memory_of_a_stage_by_hand() -> None:
    """VGG-16 on 10 images: 16 bytes a parameter, the activations, the largest operator's tensors, 1 GiB."""
    speed = Performance()
    graph = speed.graph("vgg16")
    largest = 2 * 2 * 64 * 224**2
    expected = 16 * 138_357_544 + 3 * 10 * graph.stored_bytes.sum() + 10 * largest
    assert speed.stage_memory_gib("vgg16", 0, len(graph) - 1, 10, 3) == pytest.approx(expected / 2**30 + 1.0)


def test_what_does_not_fit_names_stage_need_and_room() -> None:
    """GPT-2 of 1.5 billion parameters: 24.9 GB of weights and optimizer state alone."""
    speed = Performance()
    got = speed.data_parallel("gpt2-1.5b", 1, V100, (1,))
    assert not got.fits and got.rate == 0.0 and got.iteration_s == math.inf
    assert got.reason.startswith(f"stage 0 does not fit: a V100 needs {got.memory_gib[0]:.1f} GiB and has 16.0 GiB")
    assert got.memory_gib[0] > 16 * 1_557_611_200 / 2**30
    assert not speed.fits("gpt2-1.5b", 1, V100, 1) and speed.fits("gpt2-1.5b", 1, A100, 1)
    plan = Plan((Stage(0, 20, "V100", 1), Stage(21, 387, "V100", 1)))
    assert speed.plan("gpt2-1.5b", 1, plan, slots(0, 1), cluster()).reason.startswith("stage 1 does not fit")


def test_less_memory_never_makes_a_job_fit() -> None:
    fits = [
        Performance().fits("bert-large", 64, replace(V100, memory_gib=gib), 1) for gib in (4.0, 16.0, 64.0)
    ]
    assert fits == sorted(fits) and fits[-1] and not fits[0]


def test_a_gpu_without_a_sample_is_refused() -> None:
    got = Performance().data_parallel("resnet50", 4, V100, (8,))
    assert not got.fits and got.reason == "stage 0 has 8 GPUs for 4 samples of a micro-batch"


def test_errors_say_what_would_be_right() -> None:
    speed = Performance()
    with pytest.raises(PerformanceError, match="did you mean 'resnet50'"):
        speed.data_parallel("resnet-50", 32, V100, (1,))
    with pytest.raises(PerformanceError, match="batch size is unknown"):
        speed.data_parallel("resnet50", 0, V100, (1,))
    with pytest.raises(PerformanceError, match="did you mean '1f1b'"):
        Performance(schedule="1f1")
    assert speed.known("vgg16") and not speed.known("vgg17") and speed.resolve("vgg16") == "vgg16"
    assert "gpt2-1.5b" in speed.models


@pytest.mark.parametrize(
    ("stages", "gpus", "message"),
    [
        ((Stage(0, 99, "V100", 1), Stage(101, LAST, "V100", 1)), (0, 1), "do not cover"),
        ((Stage(0, 99, "V100", 1), Stage(100, 150, "V100", 1)), (0, 1), "do not cover"),
        ((Stage(0, 400, "V100", 1),), (0,), "do not cover"),
        ((), (), "do not cover"),
        ((Stage(0, LAST, "V100", 2),), (0,), "not the plan's; got '1 GPUs"),
        ((Stage(0, 99, "V100", 1), Stage(100, LAST, "A100-80", 1)), (8, 0), "stage 0.*another type"),
        ((Stage(0, LAST, "T4", 1),), (0,), "stage 0.*another type.*T4"),
    ],
)
def test_a_plan_that_is_not_one_is_refused(
    stages: tuple[Stage, ...], gpus: tuple[int, ...], message: str
) -> None:
    with pytest.raises(PerformanceError, match=message):
        Performance().plan("bert-large", 8, Plan(stages), slots(*gpus), cluster())
