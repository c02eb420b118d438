"""What `hetsim perf` answers: stages as they are written, even cuts, and what follows from an iteration."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.api import Part, Plan, Stage
from sim.cli.whatif import ask, balanced, parse_stage, written
from sim.cluster.clusterfiles import load_cluster
from sim.hardware.gputypes import HardwareError, gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.zoo import zoo_graph

SPEED = Performance()


def test_a_stage_is_written_as_it_is_read():
    stage = Stage(0, 99, "A100", 8, 4)
    assert parse_stage("8xA100/4@0-99") == stage
    assert parse_stage(" 8 x a100/4@0-99 ") == stage
    assert parse_stage(written(stage)) == stage
    assert parse_stage("2xRTX2080Ti").gpu_type == gpu_type("rtx2080ti").name


@pytest.mark.parametrize(("text", "stage"), [
    ("1xA100:0.6+4xV100/4:0.4@0-99", Stage(0, 99, "A100", 5, 1, (Part("A100", 1, 0.6), Part("V100", 4, 0.4, 4)))),
    ("2xA100:0.75 + 2xT4:0.25/2", Stage(0, -1, "A100", 4, 2, (Part("A100", 2, 0.75), Part("T4", 2, 0.25)))),
    ("4xV100/4:0.5+2xa100/2:0.5", Stage(0, -1, "V100", 6, 4, (Part("V100", 4, 0.5), Part("A100", 2, 0.5, 2)))),
])  # fmt: skip
def test_a_stage_of_several_types_is_written_as_it_is_read(text, stage):
    assert parse_stage(text) == stage
    assert parse_stage(written(stage).removesuffix("@0--1")) == stage


def test_shares_that_were_rounded_add_up():
    stage = parse_stage("1xA100:0.3333+1xV100:0.3333+1xT4:0.3333")
    assert [part.share for part in stage.parts] == pytest.approx([1 / 3] * 3) and sum(
        part.share for part in stage.parts) == pytest.approx(1, abs=1e-12)  # fmt: skip


@pytest.mark.parametrize("text", ["1xA100+1xV100", "1xA100:0.5+1xV100:0.4", "1xA100:0.5+", "1xA100:.5+1xV100:x",
                                  "1xA100:0.5+1xV100:0.5/", "1xA100:0.5@0-3+1xV100:0.5"])  # fmt: skip
def test_what_is_no_stage_of_several_types_is_refused(text):
    with pytest.raises(PerformanceError, match="not a stage"):
        parse_stage(text)


@pytest.mark.parametrize("text", ["", "x", "V100", "0xV100", "2xV100/", "2xV100@5", "-1xV100", "2xV100@-3-5"])
def test_what_is_no_stage_is_refused(text):
    with pytest.raises((PerformanceError, HardwareError)):
        parse_stage(text)


def test_an_unknown_type_is_named_with_the_nearest():
    with pytest.raises(HardwareError, match="V100"):
        parse_stage("2xV10")


@settings(max_examples=25)
@given(
    st.sampled_from(["lstm-lm", "vgg16", "alexnet"]),
    st.lists(st.sampled_from(["V100", "K80", "T4"]), min_size=2, max_size=3),
)
def test_operators_are_cut_so_that_the_slowest_stage_is_as_fast_as_any_cut_allows(model, types):
    """Against all cuts of a small model into 2 or 3 stages, by brute force."""
    plan = balanced(SPEED, model, 64, Plan(tuple(Stage(0, -1, t, 1) for t in types)))
    count = len(zoo_graph(model))

    def slowest(cuts: tuple[int, ...]) -> float:
        spans = zip((0, *cuts), (*cuts, count), strict=True)
        pairs = zip(types, spans, strict=True)
        return max(sum(SPEED.stage_time_s(model, a, b - 1, gpu_type(t), 64)) for t, (a, b) in pairs)

    best = min(slowest(cuts) for cuts in combinations(range(1, count), len(types) - 1))
    assert slowest(tuple(s.first_op for s in plan.stages[1:])) == pytest.approx(best, rel=1e-9)
    assert [s.first_op for s in plan.stages] == [0, *(s.last_op + 1 for s in plan.stages[:-1])]


def test_more_stages_than_operators_are_refused():
    with pytest.raises(PerformanceError, match="more stages than operators"):
        balanced(SPEED, "lstm-lm", 64, Plan((Stage(0, -1, "V100", 1),) * 50))


def test_use_and_cost_follow_from_the_iteration():
    """MFU = 3 x forward FLOPs x batch / (time x GPUs x peak); cost = time x GPUs x price."""
    got = ask(SPEED, "vgg16", 128, Plan((Stage(0, -1, "V100", 4),)))
    v100 = gpu_type("V100")
    assert got.samples_per_s == pytest.approx(128 / got.iteration.iteration_s)
    flops = 3 * zoo_graph("vgg16").flops_fwd_total * 128
    assert got.mfu == pytest.approx(flops / (got.iteration.iteration_s * 4 * v100.peak_tflops * 1e12))
    assert got.usd_per_1000_iterations == pytest.approx(4 * v100.price_usd_per_h / 3.6 * got.iteration.iteration_s)
    assert 0.05 < got.mfu < v100.compute_efficiency


PRICED = """
prices_usd_per_gpu_h = {T4 = 5, K80 = "unknown"}
nodes = [
    {type = "V100", count = 1, gpus = 8, zone = "a", price_usd_per_gpu_h = 1},
    {type = "V100", count = 1, gpus = 8, zone = "b", price_usd_per_node_h = 16},
    {type = "V100", count = 1, gpus = 4, zone = "b", price_usd_per_gpu_h = 5},
    {type = "T4", count = 1, gpus = 8, zone = "b"},
    {type = "K80", count = 1, gpus = 8, zone = "b"},
    {type = "P100", count = 1, gpus = 8, zone = "b"},
]
links.zones = [{between = ["a", "b"], gbits_per_s = 8, latency_s = 0.03, egress_usd_per_gb = 0}]
"""


@pytest.mark.parametrize(("stages", "zones", "usd_per_h"), [
    ("2xV100", "", 2 * (8 * 1 + 8 * 2 + 4 * 5) / 20),
    ("2xV100", "a", 2 * 1),
    ("2xV100", "b", 2 * (8 * 2 + 4 * 5) / 12),
    ("2xV100 1xT4", "a b", 2 * 1 + 5),
    # No T4 is there: as the type costs anywhere.
    ("2xV100 1xT4", "b a", 2 * 3 + 5),
    ("1xV100:0.5+1xT4:0.5", "a", 1 + 5),
    ("1xK80", "", math.nan),
    # Of a type that the file says no price of, and of one that it has not: the catalogue's.
    ("1xP100", "", gpu_type("P100").price_usd_per_h),
    ("1xA100", "", gpu_type("A100").price_usd_per_h),
])
def test_gpus_cost_what_the_cluster_file_says(tmp_path, stages, zones, usd_per_h):
    (tmp_path / "c.toml").write_text(PRICED)
    cluster = load_cluster(str(tmp_path / "c.toml"))
    plan = Plan(tuple(map(parse_stage, stages.split())), 1)
    answer = ask(Performance(cluster.links), "resnet50", 32, plan, zones=zones.split(), priced=cluster)
    usd = 1000 * usd_per_h * answer.iteration.iteration_s / 3600
    assert answer.usd_per_1000_iterations == pytest.approx(usd, nan_ok=True)


def test_gpus_of_a_type_fill_node_after_node():
    """16 GPUs by 8 a node meet over one network link each; by 16 they stay inside a node."""
    stage = (Stage(0, -1, "V100", 16),)
    apart = ask(SPEED, "vgg16", 512, Plan(stage), node_gpus=8)
    together = ask(SPEED, "vgg16", 512, Plan(stage), node_gpus=16)
    assert apart.iteration.allreduce_s > together.iteration.allreduce_s
