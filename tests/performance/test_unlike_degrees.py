"""Parts of a stage with tensor degrees of their own: times, sums of unequal shards, memory, messages, refusals."""

from __future__ import annotations

import json
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
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.plain import full, layout
from sim.api import Decision, Part, Placement, Plan, Policy, Stage, View
from sim.cli.recommendtables import stages_table
from sim.cli.whatif import balanced, written
from sim.cluster.spec import Links
from sim.engine.simulate import simulate
from sim.hardware.gputypes import gpu_type
from sim.kernels.collectives import allreduce_s
from sim.performance import Performance, PerformanceError
from sim.performance.gpu_links import gang_allreduce_s, network_bytes_per_s, node_bytes_per_s
from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.iteration import Iteration
from sim.performance.memory import stage_memory
from sim.performance.messages import message_s, transfer_s
from sim.performance.operator_time import operator_times_s, update_time_s
from sim.performance.plans_at_once import PlansAtOnce
from sim.performance.stage_sites import StageGpus
from sim.performance.zoo.language import gpt
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import jobs, nodes

LINKS = Links()
A100, V100 = gpu_type("A100"), gpu_type("V100")
CLUSTER = nodes(("A100", 4, 4), ("V100", 4, 8))
"""GPUs 0 to 15 are A100, four on a node; 16 to 47 V100, eight on a node."""
GPT = gpt(4, 512, 8, 256, 1024)
LAST = len(GPT) - 1
SPEED = Performance(graphs={"gpt": GPT})
FIGURES = ("iteration_s", "compute_s", "bubble_s", "transfer_s", "allreduce_s", "update_s", "tensor_s")


def two(fast: int = 1, slow: int = 4, share: float = 0.5, first: int = 0, last: int = LAST, ways: int = 1) -> Stage:
    """A100, `ways` to a replica, beside V100, four to a replica."""
    parts = Part("A100", fast, share), Part("V100", slow, 1 - share, 4)
    return Stage(first, last, "A100", fast + slow, ways, parts)


def slots(*gpus: int) -> np.ndarray:
    return np.array(gpus, dtype=np.int32)


def run(plan: Plan, *gpus: int, batch: int = 32, speed: Performance = SPEED, model: str = "gpt") -> Iteration:
    return speed.plan(model, batch, plan, slots(*gpus), CLUSTER)


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_one_gpu_beside_four_by_hand() -> None:
    """16 samples each. The A100 has the whole model, each V100 a fourth, four slices go over the network at once."""
    got = run(Plan((two(),)), 0, 16, 17, 18, 19)
    share = GPT.tensor_parallel(4)
    one, four = operator_times_s(GPT, 16, A100), operator_times_s(share, 16, V100)
    sums = [sum(gang_allreduce_s(size * 16, V100, (4,), 1, LINKS) for size in of.tolist() if size)
            for of in (GPT.reduce_fwd_bytes, GPT.reduce_bwd_bytes)]  # fmt: skip
    compute = sum(max(one[k].sum(), four[k].sum() + sums[k]) for k in (0, 1))
    assert got.compute_s == pytest.approx(compute, rel=1e-12) and got.tensor_s == pytest.approx(sum(sums), rel=1e-12)
    rate, latency_s = network_bytes_per_s(LINKS, 1) / 4, LINKS.network_latency_s
    # A ring of two sends half of the slice twice.
    assert got.allreduce_s == pytest.approx(2 * share.params / rate + 2 * latency_s, rel=1e-9)
    assert got.update_s == max(update_time_s(GPT.params, A100), update_time_s(share.params, V100))
    need = [stage_memory(graph, [(0, LAST)], 16, 1).total_gib for graph in (GPT, share)]
    assert got.memory_gib == (need[0] if need[0] / A100.memory_gib > need[1] / V100.memory_gib else need[1],)


@pytest.mark.parametrize("ways", [1, 2])
def test_a_link_inside_a_node_carries_all_slices_of_its_gpu(ways: int) -> None:
    """Two replicas on each of two nodes. An A100 of degree `ways` holds 4 / ways slices, and so its links carry."""
    gpus = (*range(2 * ways), *range(16, 24))
    got = run(Plan((two(2 * ways, 8, ways=ways),)), *gpus)
    slice_bytes = 2.0 * GPT.tensor_parallel(4).params
    near = min(node_bytes_per_s(A100) * ways / 4, node_bytes_per_s(V100))
    ends = near, LINKS.node_latency_s, network_bytes_per_s(LINKS, 1) / 4, LINKS.network_latency_s
    assert got.allreduce_s == pytest.approx(float(allreduce_s(slice_bytes, np.array([2, 2]), *ends)), rel=1e-12)


def test_a_replica_of_one_gpu_gathers_nothing() -> None:
    """All is sent once; then the four V100 gather what they keep whole of their fourth of the samples."""
    sender = StageGpus(A100, (9,), (0,))
    fast, slow = StageGpus(A100, (0,), (0,), share=0.75), StageGpus(V100, (4,) * 4, (0,) * 4, 4, share=0.25)
    both = StageGpus(A100, (0, 4, 4, 4, 4), (0,) * 5, parts=(fast, slow))
    cut, shares = int(np.flatnonzero(np.diff(GPT.block))[1]), {1: GPT, 4: GPT.tensor_parallel(4)}
    got = message_s(GPT, shares, cut, 32.0, sender, both, LINKS)
    # Between blocks each GPU needs the whole tensor.
    gather = gang_allreduce_s(float(GPT.cut_bytes[cut]) * 32 / 4, V100, (4,), 1, LINKS) / 2
    assert got - transfer_s(float(GPT.cut_bytes[cut]) * 32, sender, both, LINKS) == pytest.approx(gather, rel=1e-9)
    assert message_s(GPT, shares, cut, 32.0, sender, fast, LINKS) == transfer_s(
        float(GPT.cut_bytes[cut]) * 32, sender, fast, LINKS)


def test_zero_shards_each_slice_over_all_replicas() -> None:
    """Of three replicas each keeps a third of the optimizer's state of what its GPUs hold; V100 are the fullest."""
    plans = [Plan((two(2),), zero=zero) for zero in (0, 1)]
    plain, sharded = (run(plan, 0, 4, 16, 17, 18, 19, batch=36) for plan in plans)
    state = 12 * GPT.tensor_parallel(4).params / 2**30
    assert plain.memory_gib[0] - sharded.memory_gib[0] == pytest.approx(state * 2 / 3, rel=1e-9)


def test_too_few_samples_name_the_replicas_of_the_part() -> None:
    got = run(Plan((two(1, 8, 0.8),)), 0, *range(16, 24), batch=8)
    assert not got.fits and got.reason == "stage 0 has 8 V100 (2 replicas) for 1.6 samples of a micro-batch"


# -- laws -------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([("1f1b", 1), ("gpipe", 1), ("async", 1), ("interleaved", 2)]), st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 2, 3]), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_equal_degrees_that_are_said_are_those_that_are_not(
    schedule: tuple[str, int], ways: int, zero: int, recompute: bool, overlap: bool, blocking: bool
) -> None:
    """To the last bit."""
    name, chunks = schedule
    speed = Performance(graphs={"gpt": GPT}, overlap=overlap, blocking=blocking)
    cuts = np.linspace(0, LAST + 1, 2 * chunks + 1).astype(int).tolist()
    made = []
    for said in (0, ways):
        parts = Part("A100", 4, 0.5, said), Part("V100", 4, 0.5, said)
        stages = tuple(Stage(a, b - 1, "A100", 8, ways, parts) for a, b in pairwise(cuts))
        made.append(Plan(stages, 4, schedule=name, chunks=chunks, recompute=recompute, zero=zero))
    gpus = (0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 24, 25, 26, 27)
    assert run(made[0], *gpus, batch=64, speed=speed) == run(made[1], *gpus, batch=64, speed=speed)


def split_model(layers: int) -> OperatorGraph:
    """Matrix products all of which can be split, so that shards repeat nothing."""
    build = GraphBuilder("split", "a row", 2e3)
    for i in range(layers):
        build.add(f"layer{i}", "gemm", (i - 1,), 1e3, flops=1e9, params=4e6, stored_bytes=2e3, split=True,
                  reduce_fwd_bytes=2e3, reduce_bwd_bytes=2e3)  # fmt: skip
    return build.build()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=4), st.integers(1, 5), st.sampled_from([0, 3]))
def test_over_the_network_shards_of_any_degree_take_as_long(degrees: list[int], layers: int, zero: int) -> None:
    """Each replica on a node of its own: all of the gradients pass its link once, however many GPUs share them."""
    speed = Performance(graphs={"split": split_model(layers)})

    def summed(ways: list[int]) -> float:
        parts = tuple(Part("A100", n, 1 / len(ways), n) for n in ways)
        gpus = [4 * node + i for node, n in enumerate(ways) for i in range(n)]
        plan = Plan((Stage(0, layers - 1, "A100", sum(ways), ways[0], parts),), zero=zero)
        return run(plan, *gpus, batch=24, speed=speed, model="split").allreduce_s

    assert summed(degrees) == pytest.approx(summed([1] * len(degrees)), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 2), st.integers(1, 2),
       st.sampled_from(["ring", "tree", "servers"]), st.booleans())  # fmt: skip
def test_which_part_comes_first_does_not_matter(
    fast: int, slow: int, a: int, b: int, exchange: str, recompute: bool
) -> None:
    """One stage: the same figures; and each part needs what it would need beside any other."""
    speed = Performance(graphs={"gpt": GPT}, exchange=exchange)
    one, other = Part("A100", a * fast, 0.5, fast), Part("V100", b * slow, 0.5, slow)
    here, there = list(range(a * fast)), list(range(16, 16 + b * slow))
    got = [
        run(Plan((Stage(0, LAST, p.gpu_type, p.gpus + q.gpus, p.tensor, (p, q)),), recompute=recompute), *gpus,
            speed=speed)
        for p, q, gpus in ((one, other, here + there), (other, one, there + here))
    ]  # fmt: skip
    for of in FIGURES:
        assert getattr(got[0], of) == pytest.approx(getattr(got[1], of), rel=1e-12), of
    assert got[0].memory_gib == got[1].memory_gib


def test_async_servers_and_overlap_take_unlike_degrees_too() -> None:
    plan, gpus = Plan((two(),)), (0, 16, 17, 18, 19)
    after = run(plan, *gpus).allreduce_s
    assert 0 < run(plan, *gpus, speed=Performance(graphs={"gpt": GPT}, overlap=True)).allreduce_s <= after
    assert run(plan, *gpus, speed=Performance(graphs={"gpt": GPT}, exchange="async-servers")).allreduce_s > 0


# -- refused, or left to others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "message"), [
    (replace(two(), parts=(Part("A100", 1, 0.5), Part("V100", 4, 0.5, -1))), r"V100: .*over no GPU; got -1"),
    (replace(two(), parts=(Part("A100", 1, 0.5), Part("V100", 4, 0.5, 1.5))), r"over no GPU; got 1\.5"),  # type: ignore[arg-type]
    (two(1, 6), r"does not divide.*6 GPUs by 4"),
    (replace(two(), tensor=2), r"1 GPUs by 2"),
    (replace(two(), tensor=4, parts=(Part("A100", 1, 0.5, 1), Part("V100", 4, 0.5))), r"do not go together.*1, 4 in"),
    (Stage(0, LAST, "A100", 7, 3, (Part("A100", 3, 0.5), Part("V100", 4, 0.5, 2))), r"do not go together.*3, 2 in"),
])  # fmt: skip
def test_degrees_that_do_not_go_together_are_refused(stage: Stage, message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        run(Plan((stage,)), *range(stage.gpus))


def test_plans_at_once_leave_them_to_the_law() -> None:
    together = PlansAtOnce(SPEED, "gpt", 32, CLUSTER, {"A100": slots(*range(16)), "V100": slots(*range(16, 48))})
    assert together.takes(Plan((replace(two(), parts=(Part("A100", 1, 0.5), Part("V100", 4, 0.5))),)))
    assert not together.takes(Plan((two(),)))
    assert not together.takes(Plan((Stage(0, LAST, "A100", 6, 1, (Part("A100", 2, 0.5, 2), Part("V100", 4, 0.5, 2))),)))


# -- told -------------------------------------------------------------------------------------------------------------


def test_each_part_says_its_degree() -> None:
    stage = two()
    assert written(stage) == f"1xA100/1:0.5+4xV100/4:0.5@0-{LAST}"
    assert layout(Plan((stage, Stage(0, 0, "V100", 2, 2)))) == "1 A100 x1 + 4 V100 x4 | 2 V100 x2"
    fleet = Fleet(SPEED, [A100, V100], [4, 8], [4, 8])
    asked = Request(SPEED, "gpt", 32, fleet, 12, Space(tensor=(1, 4), mixed=True))
    found = asked.truth(Plan((stage,)))
    assert found is not None
    row = json.loads(json.dumps(full(asked, found)))["stages"][0]
    assert (row["tensor"], row["replicas"]) == (1, 2)
    assert [(g["gpu_type"], g["replicas"], g["tensor"], g["samples"]) for g in row["gpus"]] == [
        ("A100", 1, 1, [16]), ("V100", 1, 4, [16])]  # fmt: skip
    even = asked.truth(Plan((replace(stage, parts=(Part("A100", 1, 0.2), Part("V100", 4, 0.8))),)))
    assert even is not None and all("tensor" not in g for g in full(asked, even)["stages"][0]["gpus"])
    answer = {"plan": full(asked, found), "model": "gpt", "batch_size": 32, "objective": "time", "within_s": None,
              "budget_usd_per_iteration": None, "kept": False, "gpus": [], "per": "gpu",
              "calibration": "tuned", "optimizer": "adam", "blocking": False}
    column = next(c for c in stages_table(answer, 0.05).columns if c.header == "tensor")
    assert list(column.cells) == ["1\n4"]


def test_cuts_are_balanced_by_the_degree_of_each_part() -> None:
    """A stage in two parts of degree 4 is as one of V100 in fours: the faster part never decides."""
    plans = [Plan((Stage(0, -1, "V100", 4, 4), one), 2) for one in (
        Stage(0, -1, "V100", 8, 4), Stage(0, -1, "V100", 8, 4, (Part("V100", 4, 0.5), Part("V100", 4, 0.5, 4))))]
    assert len({balanced(SPEED, "gpt", 32, plan).stages[0].last_op for plan in plans}) == 1
    # An A100 alone has four times the work of a GPU of four: it gets less of the model.
    unlike = replace(plans[1], stages=(plans[1].stages[0], two(1, 4, first=0, last=-1)))
    assert balanced(SPEED, "gpt", 32, unlike).stages[0].last_op > balanced(SPEED, "gpt", 32, plans[0]).stages[0].last_op


@dataclass
class Written(Policy):
    """Each job starts when it comes, with the plan and on the GPUs written down for it."""

    name = "written"
    sizes_gangs = True
    plans: dict[int, tuple[Plan, np.ndarray]] = field(default_factory=dict)

    def decide(self, view: View) -> Decision:
        plans = [(row, *self.plans[row]) for row in view.queued.tolist()]
        return Decision(start=[(row, Placement(gpus, plan)) for row, plan, gpus in plans])


def test_a_run_writes_the_degree_of_each_part_and_the_audit_agrees() -> None:
    plan, gpus = Plan((two(2, 8),), 2), slots(0, 1, *range(16, 24))
    trace = jobs([(0.0, 100.0, len(gpus))], model=["bert-large"], batch_size=[64])
    speed: Any = Performance()
    last = len(speed.graph("bert-large")) - 1
    wide = replace(plan.stages[0], last_op=last, parts=(Part("A100", 2, 0.5), Part("V100", 8, 0.5, 2)))
    plan = replace(plan, stages=(replace(wide, tensor=1),), zero=3, recompute=True, micro_batches=8)
    truth = Modelled(trace, CLUSTER, speed, V100)
    result = simulate(trace, CLUSTER, Written(plans={0: (plan, gpus)}), truth, EngineConfig(), performance=speed)
    report = audit(Run(Path("memory"), result.tables, result.info, result.timing))
    assert report.ok, report.text
    rows = result.tables["plans"].to_pylist()
    assert [(r["part"], r["gpu_type"], r["gpus"], r["tensor"]) for r in rows] == [(0, "A100", 2, 1), (1, "V100", 8, 2)]
    true_s = speed.plan("bert-large", 64, plan, gpus, CLUSTER).iteration_s
    assert [r["true_iteration_s"] for r in rows] == pytest.approx([true_s] * 2, rel=1e-12)
