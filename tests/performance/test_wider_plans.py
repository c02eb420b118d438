"""Wider plans: several GPU types in one stage, stages in another order of the operators, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.run import Run
from policies.recommend.request.stage_gpus import counts_of
from sim.api import Decision, IllegalDecisionError, Part, Placement, Plan, Policy, Stage, View
from sim.cli.whatif import ask, written
from sim.cluster.spec import ClusterSpec, Links
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.gpu_links import gang_allreduce_s, network_bytes_per_s
from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.iteration import Iteration, pipeline_iteration
from sim.performance.memory import stage_memory
from sim.performance.messages import transfer_s
from sim.performance.operator_time import operator_times_s, update_time_s
from sim.performance.running import Maxima, Sums
from sim.performance.stage_sites import StageGpus, in_stage_order
from sim.performance.tables import MeasuredTable, Measurement, Point
from sim.performance.zoo import zoo_graph
from sim.performance.zoo.language import gpt
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import jobs, nodes

LINKS = Links()
V100, T4 = gpu_type("V100"), gpu_type("T4")
CLUSTER = nodes(("V100", 2, 4), ("T4", 2, 4))
"""GPUs 0 to 7 are V100, 8 to 15 T4; four on a node."""
RESNET = zoo_graph("resnet50")
LAST = len(RESNET) - 1
SPEED = Performance()


def two_types(share: float = 0.75, tensor: int = 1, gpus: int = 2) -> Stage:
    """The whole ResNet on as many V100, which get this share of the samples, as T4."""
    parts = (Part("V100", gpus, share), Part("T4", gpus, 1.0 - share))
    return Stage(0, LAST, "V100", 2 * gpus, tensor, parts)


def slots(*gpus: int) -> np.ndarray:
    return np.array(gpus, dtype=np.int32)


def run(plan: Plan, *gpus: int, batch: int = 64, model: str = "resnet50", speed: Performance = SPEED) -> Iteration:
    return speed.plan(model, batch, plan, slots(*gpus), CLUSTER)


# -- several types in a stage -----------------------------------------------------------------------------------------


def test_a_stage_of_two_types_by_hand() -> None:
    """Of 64 samples 24 go to each V100 and 8 to each T4; each pass waits for the slower, the sum spans all four."""
    got = run(Plan((two_types(),)), 0, 1, 8, 9)
    times = [operator_times_s(RESNET, samples, gpu) for samples, gpu in ((24, V100), (8, T4))]
    forward, backward = (max(one[k].sum() for one in times) for k in (0, 1))
    assert got.compute_s == pytest.approx(forward + backward, rel=1e-12)
    # A node of T4 joins its GPUs by PCIe, slower than the V100's NVLink.
    assert got.allreduce_s == gang_allreduce_s(2 * RESNET.params, T4, (2, 2), 1, LINKS)
    assert got.update_s == update_time_s(RESNET.params, T4)
    assert (got.bubble_s, got.transfer_s) == (0.0, 0.0)


def test_links_within_a_node_count_only_where_a_part_has_two_gpus_there() -> None:
    one_each = Stage(0, LAST, "V100", 3, parts=(Part("V100", 2, 0.75), Part("T4", 1, 0.25)))
    got = run(Plan((one_each,)), 0, 1, 8)
    assert got.allreduce_s == gang_allreduce_s(2 * RESNET.params, V100, (2, 1), 1, LINKS)


def test_a_split_by_speed_beats_an_even_one() -> None:
    even, uneven = (run(Plan((two_types(share),)), 0, 1, 8, 9) for share in (0.5, 0.75))
    assert uneven.compute_s < 0.75 * even.compute_s


def test_each_part_is_held_against_its_own_gpu() -> None:
    """512 images fit the 80 GiB of an A100, not the 16 GiB of a T4. Told is what the fullest part needs."""
    cluster = ClusterSpec.build("test", [gpu_type("A100-80"), T4], [0, 1], [2, 2])
    parts = (Part("A100-80", 2, 0.5), Part("T4", 2, 0.5))
    plan, gpus = Plan((Stage(0, LAST, "A100-80", 4, parts=parts),)), slots(0, 1, 2, 3)
    got = SPEED.plan("resnet50", 2048, plan, gpus, cluster)
    need = stage_memory(RESNET, [(0, LAST)], 512, 1).total_gib
    assert got.memory_gib == (need,) and not got.fits
    assert got.reason.startswith(f"stage 0 does not fit: a T4 needs {need:.1f} GiB and has {T4.memory_gib:.1f} GiB")
    # The A100 needs more here, and the T4 is fuller all the same.
    parts = (Part("A100-80", 2, 0.75), Part("T4", 2, 0.25))
    fits = SPEED.plan("resnet50", 256, Plan((replace(plan.stages[0], parts=parts),)), gpus, cluster)
    assert fits.fits and fits.memory_gib == (stage_memory(RESNET, [(0, LAST)], 32, 1).total_gib,)


def test_optimizer_state_is_sharded_over_the_replicas_of_all_parts() -> None:
    state = 12 * RESNET.params / 2**30
    plain, sharded = (run(Plan((two_types(),), zero=zero), 0, 1, 8, 9) for zero in (0, 1))
    assert plain.memory_gib[0] - sharded.memory_gib[0] == pytest.approx(0.75 * state)


def test_a_replica_without_a_sample_is_refused() -> None:
    got = run(Plan((two_types(0.9),)), 0, 1, 8, 9, batch=16)
    assert not got.fits and got.reason == "stage 0 has 2 T4 for 1.6 samples of a micro-batch"


@settings(max_examples=30)
@given(
    st.sampled_from([("1f1b", 1), ("gpipe", 1), ("async", 1), ("interleaved", 2)]), st.integers(1, 2),
    st.sampled_from([0, 2]), st.booleans(), st.sampled_from([1, 2]),
)  # fmt: skip
def test_equal_parts_of_one_type_are_no_parts(
    schedule: tuple[str, int], groups: int, zero: int, recompute: bool, tensor: int
) -> None:
    """Two halves on V100 are as fast and as large as one stage of V100, whatever else the plan does."""
    name, chunks = schedule
    graph = gpt(4, 512, 8, 256, 1024)
    speed = Performance(graphs={"gpt": graph})
    cuts = np.linspace(0, len(graph), 2 * chunks + 1).astype(int).tolist()
    halves = (Part("V100", 2, 0.5), Part("V100", 2, 0.5))
    plain = tuple(Stage(a, b - 1, "V100", 4, tensor) for a, b in pairwise(cuts))
    one = Plan(plain, 2 * groups, schedule=name, chunks=chunks, recompute=recompute, zero=zero)
    two = replace(one, stages=tuple(replace(stage, parts=halves) for stage in plain))
    a, b = (run(plan, 0, 1, 4, 5, 2, 3, 6, 7, batch=32, model="gpt", speed=speed) for plan in (one, two))
    assert a.fits and b.fits
    for of in ("iteration_s", "compute_s", "bubble_s", "transfer_s", "allreduce_s", "update_s", "tensor_s"):
        assert getattr(b, of) == pytest.approx(getattr(a, of), rel=1e-12, abs=1e-15), of
    assert b.memory_gib == pytest.approx(a.memory_gib, rel=1e-12)


def test_parts_have_their_gpus_one_after_the_other() -> None:
    """V100 first, then T4; the plan asks for both, the largest part of a type takes its GPUs first."""
    small = Stage(0, 9, "T4", 1)
    plan = Plan((small, replace(two_types(), first_op=10)))
    gpus = in_stage_order(plan, {"V100": slots(0, 1, 2), "T4": slots(8, 9, 10)})
    assert gpus.tolist() == [10, 0, 1, 8, 9]
    assert counts_of(plan, ("T4", "K80", "V100")) == (3, 0, 2) and plan.num_gpus == 5
    run(plan, *gpus.tolist())
    with pytest.raises(PerformanceError, match=r"stage 1.*another type; got \['t4', 'v100'\]; allowed: V100"):
        run(plan, 10, 0, 8, 1, 9)


def test_interleaved_stages_may_have_parts() -> None:
    """Each GPU runs two stages of two types' parts: counted once, in the order of the first p stages."""
    stages = tuple(replace(two_types(), first_op=a, last_op=b) for a, b in ((0, 39), (40, 79), (80, 119), (120, LAST)))
    plan = Plan(stages, 4, schedule="interleaved", chunks=2)
    assert plan.num_gpus == 8 and len(plan.parts) == 4
    assert run(plan, 0, 1, 8, 9, 2, 3, 10, 11, batch=256).fits
    other = replace(plan, stages=(*stages[:3], replace(stages[3], tensor=2)))
    with pytest.raises(PerformanceError, match=r"stage 3.*other GPUs than the one it shares them with"):
        run(other, 0, 1, 8, 9, 2, 3, 10, 11)


def test_cost_and_use_count_the_gpus_of_every_part() -> None:
    got = ask(SPEED, "resnet50", 64, Plan((two_types(),)))
    usd_per_h = 2 * (V100.price_or_nan + T4.price_or_nan)
    assert got.usd_per_1000_iterations == pytest.approx(usd_per_h * got.iteration.iteration_s / 3.6)
    peak = 2 * (V100.peak_tflops + T4.peak_tflops) * 1e12
    assert got.mfu == pytest.approx(3 * RESNET.flops_fwd_total * 64 / peak / got.iteration.iteration_s)
    assert written(two_types()) == f"2xV100:0.75+2xT4:0.25@0-{LAST}"


# -- messages ---------------------------------------------------------------------------------------------------------


def at(name: str, *on: int, **more: Any) -> StageGpus:
    return StageGpus(gpu_type(name), on, (0,) * len(on), **more)


def test_what_leaves_a_node_is_the_share_of_its_part() -> None:
    """3/4 of the samples on node 0, 1/4 on node 1; all of them go to node 2, or to one V100 more on node 0."""
    parts = (at("V100", 0, share=0.75), at("T4", 1, share=0.25))
    sender = replace(at("V100", 0, 1), parts=parts)
    rate, latency = network_bytes_per_s(LINKS, 1), LINKS.network_latency_s
    assert transfer_s(1e9, sender, at("V100", 2), LINKS) == pytest.approx(latency + 1e9 / rate)
    assert transfer_s(1e9, sender, at("V100", 0), LINKS) == pytest.approx(latency + 0.25e9 / rate)
    # Two receivers on nodes of their own get half each: the first of it all from node 0.
    assert transfer_s(1e9, sender, at("V100", 2, 3), LINKS) == pytest.approx(latency + 0.75e9 / rate)


def test_shares_that_round_send_nothing_where_nothing_goes() -> None:
    """Ten parts of 1/10 against one stage on the same nodes: no piece crosses the network by rounding."""
    tenths = tuple(at("V100", node, share=0.1) for node in range(10))
    sender = replace(at("V100", *range(10)), parts=tenths)
    took = transfer_s(1.0, sender, at("V100", *range(10)), LINKS)
    assert took < LINKS.network_latency_s


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_a_message_takes_as_long_there_as_back(left: list[int], right: list[int]) -> None:
    sender, receiver = at("V100", *left), at("T4", *right)
    took = transfer_s(1e8, sender, receiver, LINKS)
    assert took == pytest.approx(transfer_s(1e8, receiver, sender, LINKS), rel=1e-9)


# -- another order ----------------------------------------------------------------------------------------------------


def diamond() -> OperatorGraph:
    """0, then the branches 1 and 2, then 3, which reads both; outputs of 10, 20, 30 and 40 values of 2 bytes."""
    b = GraphBuilder("diamond", "a number", 4.0)
    top = b.add("top", "elementwise", (-1,), 10, stored_bytes=1000)
    b.next_block()
    left = b.add("left", "elementwise", (top,), 20, params=100, stored_bytes=1000)
    right = b.add("right", "elementwise", (top,), 30, params=200, stored_bytes=1000)
    b.add("bottom", "elementwise", (left, right), 40, stored_bytes=1000)
    return b.build()


def test_stages_of_down_sets_that_are_not_runs_of_the_model_s_order() -> None:
    """{top, right} and {left, bottom}: the order 0, 2, 1, 3. Between them cross top's output and right's, 80 bytes."""
    graph = diamond()
    speed = Performance(graphs={"diamond": graph})
    plan = Plan((Stage(0, 1, "V100", 1), Stage(2, 3, "T4", 1)), order=(0, 2, 1, 3))
    other = graph.reordered(plan.order)
    assert other.ops == ("top", "right", "left", "bottom") and other.inputs == ((-1,), (0,), (0,), (2, 1))
    assert other.cut_bytes.tolist() == [20.0, 80.0, 100.0, 0.0]
    got = run(plan, 0, 8, batch=1000, model="diamond", speed=speed)
    fwd, bwd = speed.op_times_s("diamond", 1000, V100)
    first = fwd[[0, 2]].sum() + bwd[[0, 2]].sum()
    fwd, bwd = speed.op_times_s("diamond", 1000, T4)
    second = fwd[[1, 3]].sum() + bwd[[1, 3]].sum()
    message = LINKS.network_latency_s + 80 * 1000 / network_bytes_per_s(LINKS, 1)
    steps = update_time_s(200, V100)
    assert got.iteration_s == pytest.approx(first + second + 2 * message + steps, rel=1e-9)
    assert [f"{gib:.9f}" for gib in got.memory_gib] == [
        f"{stage_memory(other, [span], 1000, held).total_gib:.9f}" for span, held in (((0, 1), 1), ((2, 3), 1))
    ]


def random_order(graph: OperatorGraph, seed: int) -> tuple[int, ...]:
    """A topological order, drawn."""
    rng, left = np.random.default_rng([seed, 1]), [sum(i >= 0 for i in set(sources)) for sources in graph.inputs]
    readers: list[list[int]] = [[] for _ in graph.ops]
    for op, sources in enumerate(graph.inputs):
        for source in set(sources) - {-1}:
            readers[source].append(op)
    ready, order = [op for op, count in enumerate(left) if count == 0], []
    while ready:
        op = ready.pop(int(rng.integers(len(ready))))
        order.append(op)
        for reader in readers[op]:
            left[reader] -= 1
            if left[reader] == 0:
                ready.append(reader)
    return tuple(order)


@settings(max_examples=20)
@given(st.sampled_from(["inception-v3", "dlrm", "resnet50", "transformer"]), st.integers(0, 1000))
def test_laws_of_another_order(model: str, seed: int) -> None:
    """Cuts by brute force; there and back is the same graph; one stage on one GPU takes as long as ever."""
    graph = zoo_graph(model)
    order = random_order(graph, seed)
    other = graph.reordered(order)
    for cut in range(0, len(graph), max(1, len(graph) // 10)):
        left = set(order[: cut + 1])
        crossing = {i for op in order[cut + 1 :] for i in graph.inputs[op] if i in left}
        assert other.cut_bytes[cut] == pytest.approx(graph.out_bytes[sorted(crossing)].sum())
    assert (np.diff(other.block) >= 0).all()
    back = other.reordered(np.argsort(order).tolist())
    for name in ("flops_fwd", "weight_params", "stored_bytes", "in_bytes", "cut_bytes"):
        assert np.array_equal(getattr(back, name), getattr(graph, name)), name
    assert back.ops == graph.ops and back.inputs == graph.inputs
    whole = Plan((Stage(0, len(graph) - 1, "V100", 1),))
    plain, turned = (run(replace(whole, order=one), 0, model=model, batch=8) for one in ((), order))
    assert turned.iteration_s == pytest.approx(plain.iteration_s, rel=1e-12)
    assert turned.memory_gib == pytest.approx(plain.memory_gib, rel=1e-12)


def test_the_model_s_own_order_changes_nothing() -> None:
    graph = zoo_graph("inception-v3")
    stages = (Stage(0, 50, "V100", 2), Stage(51, len(graph) - 1, "T4", 2))
    plan = Plan(stages, 4, recompute=True)
    named = replace(plan, order=tuple(range(len(graph))))
    assert run(plan, 0, 1, 8, 9, model="inception-v3") == run(named, 0, 1, 8, 9, model="inception-v3")


def test_a_share_of_another_order_is_another_order_of_the_share() -> None:
    graph = gpt(2, 512, 8, 256, 1024)
    order = random_order(graph, 3)
    one, two = graph.reordered(order).tensor_parallel(2), graph.tensor_parallel(2).reordered(order)
    for name in ("in_bytes", "out_bytes", "weight_params", "stored_bytes", "cut_bytes", "reduce_fwd_bytes"):
        assert getattr(one, name).tolist() == pytest.approx(getattr(two, name).tolist()), name


def test_blocks_that_an_order_takes_apart_become_blocks_of_their_own() -> None:
    b = GraphBuilder("two chains", "a number", 4.0)
    a = b.add("a1", "gemm", (-1,), 10, stored_bytes=50)
    b.add("a2", "gemm", (a,), 10, stored_bytes=50)
    b.next_block()
    c = b.add("c1", "gemm", (-1,), 10, stored_bytes=50)
    b.add("c2", "gemm", (c,), 10, stored_bytes=50)
    graph = b.build()
    assert graph.block.tolist() == [0, 0, 1, 1]
    assert graph.reordered((2, 3, 0, 1)).block.tolist() == [0, 0, 1, 1]
    assert graph.reordered((0, 2, 1, 3)).block.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ((1, 0, 2, 3), r"before one that it reads; got 'left \(1\) before top \(0\)'"),
        ((0, 1, 2), "not an order of all operators"),
        ((0, 1, 2, 2), r"not an order of all operators; got '4 of them; \[2\] wrong'"),
        ((0, 1, 2, 4), r"\[4\] wrong"),
        ((0, 1, 2, 3.5), "not an order"),
        ("0123", "not an order"),
    ],
)
def test_what_is_no_topological_order_is_refused(order: Any, message: str) -> None:
    speed = Performance(graphs={"diamond": diamond()})
    with pytest.raises(PerformanceError, match=message):
        run(Plan((Stage(0, 3, "V100", 1),), order=order), 0, model="diamond", speed=speed)


# -- what is refused --------------------------------------------------------------------------------------------------

WHOLE = Stage(0, LAST, "V100", 2)


def parts(*rows: tuple[str, int, float], gpus: int = 4, first: str = "V100", tensor: int = 1) -> Plan:
    return Plan((Stage(0, LAST, first, gpus, tensor, tuple(Part(*row) for row in rows)),))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (parts(("V100", 2, 0.5), ("T4", 2, 0.4)), r"do not add up to 1; got \[0.5, 0.4\]"),
        (parts(("V100", 2, 1.0), ("T4", 2, 0.0)), "do not add up to 1"),
        (parts(("V100", 2, float("nan")), ("T4", 2, 0.5)), "do not add up to 1"),
        (parts(("V100", 2, 0.5), ("T4", 2, 0.5), gpus=5), "not what its parts add up to.*allowed: 4 GPUs"),
        (parts(("V100", 2, 0.5), ("T4", 2, 0.5), first="T4"), "not what its parts add up to"),
        (parts(("V100", 3, 0.5), ("T4", 1, 0.5), tensor=2), "does not divide the GPUs of a stage; got '3 GPUs by 2'"),
        (Plan((replace(WHOLE, parts=("V100",)),)), "no GPU type"),
        (Plan((WHOLE,), micro_batches=1.5), "number of micro-batches; got 1.5"),
        (Plan((WHOLE,), micro_batches=float("nan")), "number of micro-batches; got nan"),
        (Plan((WHOLE,), micro_batches=0), "number of micro-batches; got 0"),
        (Plan((WHOLE,), chunks=0.5), "number of chunks"),
        (Plan((WHOLE,), zero=True + 0.5), "stage of ZeRO; got 1.5"),
        (Plan((WHOLE,), recompute="yes"), "recompute is yes or no"),
        (Plan((replace(WHOLE, gpus=2.5),)), "number of GPUs; got 2.5"),
        (Plan((replace(WHOLE, gpus=0),)), "number of GPUs; got 0"),
        (Plan((replace(WHOLE, tensor=0),)), "over no GPU"),
        (Plan((replace(WHOLE, first_op=0.5),)), "do not cover the model"),
        (Plan((replace(WHOLE, gpu_type=100),)), "no GPU type"),
        (Plan(("V100",)), "do not cover the model"),
        (Plan([WHOLE]), "of the wrong types"),
        ("V100:2", "not a plan on a cluster; got 'str, ClusterSpec'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(plan: Any, message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        run(plan, 0, 1)


@pytest.mark.parametrize("gpus", [slots(0, 0), slots(0, 16), slots(-1, 0), np.array([0.0, 1.0]), [0, 1], slots(0)])
def test_gpus_that_are_not_the_cluster_s_or_listed_twice_are_refused(gpus: Any) -> None:
    SPEED.plan("resnet50", 64, Plan((WHOLE,)), slots(2, 3), CLUSTER)  # Of the same layout as 0 and 1, and remembered.
    with pytest.raises(PerformanceError, match=r"not GPUs of the cluster|the GPUs are not the plan's"):
        SPEED.plan("resnet50", 64, Plan((WHOLE,)), gpus, CLUSTER)


@pytest.mark.parametrize("batch", [0, -1, 1.5, float("nan"), float("inf"), "64", None])
def test_a_batch_that_is_no_count_is_refused(batch: Any) -> None:
    for ask_for in (
        lambda: run(Plan((WHOLE,)), 0, 1, batch=batch),
        lambda: SPEED.data_parallel("resnet50", batch, V100, (2,)),
    ):
        with pytest.raises(PerformanceError, match="the batch size is unknown"):
            ask_for()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": "V100"}, "not a GPU type"),
        ({"gpus_per_node": [2]}, "impossible GPUs on nodes"),
        ({"gpus_per_node": ()}, "impossible GPUs on nodes"),
        ({"gpus_per_node": (2, 0)}, "impossible GPUs on nodes"),
        ({"gpus_per_node": (1.5,)}, "impossible GPUs on nodes"),
        ({"racks": 0}, "number of racks"),
        ({"slots": (0,)}, "slots are one for each GPU"),
    ],
)
def test_a_gang_that_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    asked = {"model": "resnet50", "batch_size": 64, "gpu": V100, "gpus_per_node": (2,), **change}
    with pytest.raises(PerformanceError, match=message):
        SPEED.data_parallel(**asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((0, LAST + 1, V100, 8), "no operators of the model"),
        ((-1, 3, V100, 8), "no operators of the model"),
        ((3, 2, V100, 8), "no operators of the model"),
        ((0.5, 2, V100, 8), "no operators of the model"),
        ((0, 2, "V100", 8), "not a GPU type"),
        ((0, 2, V100, float("nan")), "impossible samples"),
        ((0, 2, V100, 0), "impossible samples"),
        ((0, 2, V100, "8"), "impossible samples"),
    ],
)
def test_a_stage_that_is_none_has_no_time(asked: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        SPEED.stage_time_s("resnet50", *asked)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recompute": True}, "recomputation"),
        ({"zero": 1}, "ZeRO 1"),
        ({"micro_batches": 2}, "2 micro-batches"),
        ({"stages": (Stage(0, 0, "V100", 4, 2),)}, "tensor parallelism"),
        ({"stages": parts(("V100", 2, 0.5), ("T4", 2, 0.5)).stages}, "several GPU types"),
    ],
)
def test_a_measured_model_is_refused_what_was_not_measured(change: dict[str, Any], message: str) -> None:
    points = {Point("toy", 0, "v100", 4, 1): Measurement(4.0)}
    speed = Performance(table=MeasuredTable(points, "test", gaps="refuse", gpus_per_node={"V100": 4}))
    plan = Plan((Stage(0, 0, "V100", 4),))
    assert run(plan, 0, 1, 2, 3, model="toy", speed=speed).rate == 4.0
    with pytest.raises(PerformanceError, match=f"cannot be divided; got '{message}'"):
        run(replace(plan, **change), 0, 1, 2, 3, model="toy", speed=speed)


# -- what is advised, and what the parts of an iteration are ----------------------------------------------------------


def test_recomputation_is_advised_only_where_it_needs_less() -> None:
    """One block keeps its inside once, recomputed or not; of 48 layers all but one are saved."""
    b = GraphBuilder("block", "an image", 2e9)
    b.add("a", "conv", (-1,), 1e9, flops=1e9, params=10, stored_bytes=2e9)
    one_block = Performance(graphs={"block": b.build()})
    alone = run(Plan((Stage(0, 0, "T4", 1),)), 8, model="block", batch=16, speed=one_block)
    assert not alone.fits and alone.reason.endswith("try more micro-batches")
    many = run(Plan((Stage(0, len(zoo_graph("gpt2-1.5b")) - 1, "V100", 1),)), 0, model="gpt2-1.5b", batch=64)
    assert not many.fits and "try recompute, more micro-batches" in many.reason


@settings(max_examples=100)
@given(
    st.sampled_from([("1f1b", 1), ("gpipe", 1), ("async", 1), ("interleaved", 2)]), st.integers(1, 4),
    st.integers(1, 5), st.booleans(), st.integers(0, 10_000),
)  # fmt: skip
def test_no_part_of_an_iteration_is_below_zero(
    schedule: tuple[str, int], stages: int, groups: int, blocking: bool, seed: int
) -> None:
    name, chunks = schedule
    rng, q = np.random.default_rng([seed, 2]), stages * chunks
    fwd, bwd, reduce, update = rng.uniform(1e-3, 1.0, (4, q))
    there = np.zeros(q - 1) if seed % 2 else rng.uniform(0.0, 0.1, q - 1)
    got = pipeline_iteration(
        name, fwd, bwd, there, stages * groups, reduce, update, (), chunks=chunks, blocking=blocking
    )
    spent = (got.compute_s, got.bubble_s, got.transfer_s, got.allreduce_s, got.update_s)
    assert min(spent) >= 0.0 and sum(spent) == pytest.approx(got.iteration_s, rel=1e-12)


@settings(max_examples=60)
@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40), st.data())
def test_running_sums_and_maxima(values: list[float], data: Any) -> None:
    first = data.draw(st.integers(0, len(values) - 1))
    last = data.draw(st.integers(first, len(values) - 1))
    column = np.array(values)
    span = column[first : last + 1]
    assert Sums(column)(first, last) == pytest.approx(span.sum(), rel=1e-12, abs=1e-15 * max(1.0, column.sum()))
    assert Maxima(column)(first, last) == span.max()


# -- in a run ---------------------------------------------------------------------------------------------------------


@dataclass
class Planned(Policy):
    """Each job starts when it comes, with the plan and on the GPUs written down for it."""

    name = "planned"
    sizes_gangs = True
    plans: dict[int, tuple[Plan, np.ndarray]] = field(default_factory=dict)

    def decide(self, view: View) -> Decision:
        plans = [(row, *self.plans[row]) for row in view.queued.tolist()]
        return Decision(start=[(row, Placement(gpus, plan)) for row, plan, gpus in plans])


def replay(*plans: tuple[Plan, np.ndarray], **columns: Any) -> RunResult:
    trace = jobs([(10.0 * i, 100.0, len(gpus)) for i, (_, gpus) in enumerate(plans)], **{
        "model": ["resnet50"] * len(plans), "batch_size": [256] * len(plans), **columns,
    })  # fmt: skip
    truth = Modelled(trace, CLUSTER, SPEED, V100)
    return simulate(trace, CLUSTER, Planned(plans=dict(enumerate(plans))), truth, EngineConfig(), performance=SPEED)


def interleaved() -> Plan:
    spans = ((0, 39), (40, 79), (80, 119), (120, LAST))
    return Plan(tuple(Stage(a, b, "V100", 1) for a, b in spans), 2, schedule="interleaved", chunks=2, recompute=True)


def test_a_run_says_what_its_plans_were_and_the_audit_finds_each_gpu_once() -> None:
    """A stage of two types; an interleaved pipeline of two GPUs; an order of its own, with a belief that was wrong."""
    order = random_order(RESNET, 1)
    ordered = Plan((Stage(0, 99, "T4", 1), Stage(100, LAST, "T4", 1)), 4, 9.0, (1.0, 2.0), order=order, zero=1)
    plans = ((Plan((two_types(),)), slots(0, 1, 8, 9)), (interleaved(), slots(2, 3)), (ordered, slots(10, 11)))
    result = replay(*plans)
    report = audit(Run(Path("memory"), result.tables, result.info, result.timing))
    assert report.ok, report.text
    assert report.checked["plans match the segments that they began"] == "3 plans"
    rows = result.tables["plans"].to_pylist()
    assert [(r["job_id"], r["stage"], r["part"], r["gpu_type"], r["gpus"], r["share"]) for r in rows] == [
        ("0", 0, 0, "V100", 2, 0.75), ("0", 0, 1, "T4", 2, 0.25),
        *(("1", stage, 0, "V100", 1, 1.0) for stage in range(4)),
        ("2", 0, 0, "T4", 1, 1.0), ("2", 1, 0, "T4", 1, 1.0),
    ]  # fmt: skip
    assert [(r["schedule"], r["chunks"], r["recompute"], r["zero"], r["tensor"]) for r in rows[::2]] == [
        ("", 1, False, 0, 1), ("interleaved", 2, True, 0, 1), ("interleaved", 2, True, 0, 1), ("", 1, False, 1, 1),
    ]  # fmt: skip
    assert [r["ops"] for r in rows[:6]] == [None] * 6
    assert rows[6]["ops"] + rows[7]["ops"] == list(order) and len(rows[6]["ops"]) == 100
    assert [r["memory_gib"] for r in rows] == [None] * 6 + [1.0, 2.0]
    assert [r["iteration_s"] for r in rows] == [None] * 6 + [9.0, 9.0]
    true_s = [SPEED.plan("resnet50", 256, *one, CLUSTER).iteration_s for one in plans]
    assert [r["true_iteration_s"] for r in (rows[0], rows[2], rows[6])] == pytest.approx(true_s, rel=1e-12)


def test_the_audit_finds_a_part_that_is_not_there_and_chunks_that_are_not() -> None:
    result = replay((Plan((two_types(),)), slots(0, 1, 8, 9)), (interleaved(), slots(2, 3)))
    for row, column, value in ((1, "gpus", 1), (1, "gpu_type", "V100"), (4, "chunks", 1), (5, "gpus", 3)):
        rows = result.tables["plans"].to_pylist()
        rows[row][column] = value
        tables = {**result.tables, "plans": result.tables["plans"].from_pylist(rows, result.tables["plans"].schema)}
        report = audit(Run(Path("memory"), tables, result.info, result.timing))
        # A later chunk of a GPU holds no GPUs of its own, whatever it says.
        assert report.ok == (row == 5), (column, report.text)


def test_the_referee_wants_each_part_on_its_type() -> None:
    with pytest.raises(IllegalDecisionError, match="a stage lies on a GPU type that its plan"):
        replay((Plan((two_types(),)), slots(8, 9, 0, 1)))
    with pytest.raises(IllegalDecisionError, match="the job's wish excludes"):
        replay((Plan((two_types(),)), slots(0, 1, 8, 9)), gpu_type=["V100"])


def test_a_run_has_no_stages_that_are_divided_among_replicas() -> None:
    """The table of plans has no column for them: what is not written cannot be checked."""
    with pytest.raises(IllegalDecisionError, match="divided among its replicas"):
        replay((Plan((replace(two_types(), sharded=True),)), slots(0, 1, 8, 9)))
