"""Machines that hold several GPU types: which GPUs PCIe joins, what that takes, what fails together. By hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.run import load_run
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.gather import gather
from sim.cluster.plan import Part, Plan, Stage
from sim.cluster.sites import Adapter, Sites
from sim.cluster.spec import Links
from sim.hardware.gputypes import gpu_type
from sim.kernels.collectives import allreduce_s
from sim.performance import Performance, PerformanceError
from sim.performance.contention import Network
from sim.performance.gpu_links import joined
from sim.performance.messages import transfer_s
from sim.performance.stage_sites import layout, stages_on
from tests.helpers import jobs, run
from traces.errors import HetsimError

V100, T4, A100 = (gpu_type(name) for name in ("V100", "T4", "A100"))
PCIE = 16e9 * 0.75, 5e-6
"""Of a third-generation slot, as reached, and the latency within a node."""
NODES = '[[nodes]]\ntype = "{}"\ncount = {}\ngpus = {}\n'
BOX = 'machine = "box"\n'
BOTH = NODES.format("V100", 2, 4) + BOX + NODES.format("T4", 2, 2) + BOX


def at(spec, plan, *gpus):
    """The stages of a plan on these GPUs."""
    where = np.array(gpus, dtype=np.int32)
    return stages_on(plan, "toy", where, spec, layout(where, spec))


def test_the_kth_nodes_of_a_kind_of_machine_are_one(cluster):
    """Two boxes of four V100 and two T4, beside an A100 node: nodes 0 and 2, 1 and 3, 4 by itself."""
    spec = cluster(BOTH + NODES.format("A100", 1, 8))
    assert spec.node_machine == (0, 1, 0, 1, 4)
    machine, slot = spec.machines(np.arange(spec.num_gpus))
    assert machine.tolist() == [0] * 4 + [1] * 4 + [0, 0, 1, 1] + [4] * 8
    assert slot.tolist() == [0, 1, 2, 3] * 2 + [4, 5] * 2 + list(range(8))
    assert spec.with_it(1) == spec.with_it(3) == (1, 3) and spec.with_it(4) == (4,)
    apart = cluster(BOTH.replace(BOX, ""))
    assert apart.node_machine == () and apart.with_it(1) == (1,)
    assert [part.tolist() for part in apart.machines(np.array([5, 8]))] == [[1, 2], [1, 0]]


def test_nodes_of_a_machine_are_in_its_rack(cluster):
    sized = BOTH.replace("gpus", "rack_size = 1\ngpus")
    assert cluster(sized).node_rack.tolist() == [0, 1, 0, 1]
    assert cluster(sized.replace(BOX, "")).node_rack.tolist() == [0, 1, 2, 3]


def test_unlike_types_of_a_machine_send_by_pcie_and_to_another_one_by_the_network(cluster):
    spec = cluster(BOTH)
    plan = Plan((Stage(0, 0, "V100", 1), Stage(1, 1, "T4", 1)), 1)
    assert transfer_s(1.2e9, *at(spec, plan, 0, 8), spec.links) == pytest.approx(1.2e9 / PCIE[0] + PCIE[1])
    far_s = 1.2e9 / (12.5e9 * 0.9) + 20e-6
    assert transfer_s(1.2e9, *at(spec, plan, 0, 10), spec.links) == pytest.approx(far_s)
    assert transfer_s(1.2e9, *at(cluster(BOTH.replace(BOX, "")), plan, 0, 8), spec.links) == pytest.approx(far_s)


def test_nvlink_joins_no_unlike_types():
    """A V100 and an A100 have NVLink each; to each other they speak by the V100's slot."""
    assert joined(V100, V100) is V100
    mixed = joined(A100, V100)
    assert (mixed.nvlink_gbytes_per_s, mixed.pcie_gbytes_per_s) == (0, V100.pcie_gbytes_per_s)
    assert mixed == joined(V100, A100)


def test_gradients_of_a_mixed_stage_go_round_the_machine(cluster):
    """Two V100 and two T4 with half of the samples each: a ring of four at PCIe's speed. Apart: two nodes."""
    spec, model = cluster(BOTH), "resnet50"
    speed = Performance(spec.links)
    last = len(speed.graph(model)) - 1
    parts = (Part("V100", 2, 0.5), Part("T4", 2, 0.5))
    plan = Plan((Stage(0, last, "V100", 4, parts=parts),), 1)
    gpus = np.array([0, 1, 8, 9], dtype=np.int32)
    num_bytes = 2.0 * speed.graph(model).params
    together = speed.plan(model, 64, plan, gpus, spec).allreduce_s
    assert together == pytest.approx(2 * 3 / 4 * num_bytes / PCIE[0] + 2 * 3 * PCIE[1], rel=1e-6)
    apart = cluster(BOTH.replace(BOX, ""))
    far = float(allreduce_s(num_bytes, np.array([2, 2]), 16e9 * 0.75, 5e-6, 12.5e9 * 0.9, 20e-6))
    assert speed.plan(model, 64, plan, gpus, apart).allreduce_s == pytest.approx(far)


def test_link_classes_count_the_gpus_of_a_machine(cluster):
    """Three GPUs a socket: the V100 of places 0 to 3 and the T4 of 4 and 5: a message from 0 to 4 crosses sockets."""
    spec = cluster(BOTH + '[links]\ngpus_per_socket = 3\nsocket_class = "qpi"\n')
    plan = Plan((Stage(0, 0, "V100", 1), Stage(1, 1, "T4", 1)), 1)
    near, far = (transfer_s(1e9, *at(spec, plan, one, 8), spec.links) for one in (3, 0))
    assert near < far


def test_machines_fail_as_a_whole_and_results_name_them(cluster, tmp_path):
    spec = cluster(BOTH)
    result = run(jobs([(0, 50_000, 2)] * 8), spec, "fifo", mtbf_h=2.0, repair_h=1.0)
    result.write(tmp_path / "run")
    found = load_run(tmp_path / "run", check=False)
    assert audit(found).ok, audit(found).text
    table = found.tables["nodes"]
    assert table["machine"].to_pylist() == [0, 1, 0, 1]
    down = table["down_s"].to_pylist()
    assert down[0] == down[2] and down[1] == down[3] and down[0] != down[1] and min(map(len, down)) > 0


@pytest.mark.parametrize(("text", "words"), [
    (BOTH.replace("count = 2\ngpus = 2", "count = 3\ngpus = 2"), "count of one machine is told twice; got 3"),
    (BOTH + 'zone = "b"\n', r"zone of one machine is told twice; got 'b'; allowed: no zone, as in the first \[\["),
    (BOTH.replace("gpus = 4", 'gpus = 4\nzone = "a"'), "told twice; got 'no zone'; allowed: a, as in the first"),
    (BOTH + "network_gbits_per_s = 8\n", "is told twice; got 8.0; allowed: no network_gbits_per_s, as in the first"),
    (BOTH.replace("T4", "v100"), "a machine has several GPU types, each once; got 'box: V100, v100'"),
    (NODES.format("V100", 1, 4) + BOX, "a machine has several GPU types"),
    (BOTH.replace("gpus = 4", "gpus = 1023"), "too many GPUs in a machine; got 1025"),
])
def test_a_machine_that_cannot_be_is_refused_with_its_place(cluster, text, words):
    with pytest.raises(HetsimError, match=words):
        cluster(text)


def test_jobs_do_not_share_links_of_machines_with_several_types(cluster):
    with pytest.raises(PerformanceError, match="machines of several GPU types cannot share links"):
        Network(cluster(BOTH))


def request(machines, counts=(2, 2), model="transformer-big", batch=32):
    speed = Performance(Links(1.0, 1.0))
    fleet = Fleet(speed, [V100, T4], counts, (2, 2), machines=machines)
    return Request(speed, model, batch, fleet, sum(counts), Space(mixed=True))


def test_plans_are_judged_where_their_gpus_are():
    """On a slow network the same plans are faster within a machine; those of one type as fast as ever."""
    apart, together = request(()), request(((0,), (0,)))
    plans = [r.plan for r in gather(apart, ("exact", "uneven", "search"))]
    both = [(apart.truth(plan), together.truth(plan)) for plan in plans]
    for plan, (far, near) in zip(plans, both, strict=True):
        mixed = len({part.gpu_type for part in plan.parts}) > 1
        assert near.iteration_s < far.iteration_s if mixed else near.iteration_s == far.iteration_s
    assert any(len({part.gpu_type for part in plan.parts}) > 1 for plan in plans)
    for r in gather(together, ("exact", "uneven", "search")):  # judged many at once
        assert r.iteration_s == together.truth(r.plan).iteration_s


@pytest.mark.parametrize(("links", "machines"), [
    (Links(), ((0,), (0,))),
    (Links(gpus_per_socket=4), ()),
    (Links(sites=Sites((Adapter("V100", 1, 6.25, 6.25),))), ()),
])
def test_bounds_hold_where_messages_are_not_counted(links, machines):
    """Tables on a server and the top on a V100: no bound of cost or time is above what that takes."""
    speed = Performance(links, optimizer="sgd")
    fleet = Fleet(speed, [V100, gpu_type("CPU")], (1, 1), (1, 1), machines=machines)
    asked = Request(speed, "dlrm(rows=40000000, width=128)", 2048, fleet, 2, Space())
    found, bound = gather(asked, ("exact",)), lower_bound(asked)
    assert bound.usd_per_iteration <= min(r.usd_per_iteration for r in found)
    assert bound.iteration_s <= min(r.iteration_s for r in found)


@given(st.sampled_from(["vgg16", "transformer-big", "lstm-lm"]), st.sampled_from([8, 32, 96]))
def test_no_plan_within_a_machine_beats_the_bound(model, batch):
    asked = request(((0,), (0,)), model=model, batch=batch)
    found = gather(asked, ("exact", "uneven"))
    bound = lower_bound(asked)
    assert found and bound.iteration_s <= min(r.iteration_s for r in found) * (1 + 1e-9)
    assert bound.usd_per_iteration <= min(r.usd_per_iteration for r in found) * (1 + 1e-9)
