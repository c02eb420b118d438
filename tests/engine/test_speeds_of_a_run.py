"""What decides the speed of a run's jobs: the calibration, and where in a node their GPUs are."""

from __future__ import annotations

import numpy as np
import pytest

from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.gpu_links import gang_link
from sim.workload.progress import Modelled
from traces.trace import Trace

P100 = gpu_type("P100")


def truth_on(links: Links, model: str = "vgg16", batch: int = 64, **more) -> Modelled:
    cluster = ClusterSpec.build("test", [P100], [0, 0], [8, 8], links=links)
    trace = Trace.from_columns({"job_id": ["a"], "submit_s": [0.0], "duration_s": [100.0], "num_gpus": [2],
                                "model": [model], "batch_size": [batch]})  # fmt: skip
    return Modelled(trace, cluster, Performance(links=links, **more), gpu_type("V100"))


def rate(truth: Modelled, *gpus: int) -> float:
    return truth.rate(0, np.array(gpus, dtype=np.int32), None)


def test_a_gang_is_slower_the_farther_apart_its_gpus_are_in_a_node():
    """8 GPUs a node, 2 under a switch, 4 on a socket, 10 Gbit/s between nodes; each node counts from its own first."""
    truth = truth_on(Links(1.25, 1.25, gpus_per_switch=2, gpus_per_socket=4))
    switch, host, socket, network = rate(truth, 0, 1), rate(truth, 0, 2), rate(truth, 0, 4), rate(truth, 0, 8)
    assert switch > host > socket > network
    assert rate(truth, 8, 9) == rate(truth, 2, 3) == switch
    assert rate(truth, 10, 12) == socket


def test_a_cluster_that_says_nothing_of_its_nodes_joins_all_alike():
    truth = truth_on(Links())
    assert rate(truth, 0, 1) == rate(truth, 0, 4) == rate(truth, 3, 6)


@pytest.mark.parametrize(("slots", "link"), [((0, 1), "pcie3-switch"), ((1, 2), "pcie3-host"), ((3, 4), "qpi")])
def test_the_farthest_link_that_is_needed_is_named(slots, link):
    assert gang_link(P100, slots, Links(gpus_per_switch=2, gpus_per_socket=4)) == link


def test_a_calibration_changes_speeds_and_is_named_in_the_rule():
    tuned, scripts = truth_on(Links()), truth_on(Links(), calibration="scripts")
    assert rate(scripts, 0, 1) < rate(tuned, 0, 1)
    assert "(calibration scripts)" in scripts.rule
    assert "(calibration tuned)" in tuned.rule


def test_work_is_worked_out_by_the_same_calibration():
    """A job on its reference GPUs runs as long as its log says, whatever the calibration."""
    for name in ("tuned", "scripts", "eager"):
        links = Links()
        cluster = ClusterSpec.build("test", [gpu_type("V100")], [0], [8], links=links)
        trace = Trace.from_columns({"job_id": ["a"], "submit_s": [0.0], "duration_s": [100.0], "num_gpus": [2],
                                    "model": ["resnet50"], "batch_size": [64]})  # fmt: skip
        truth = Modelled(trace, cluster, Performance(links=links, calibration=name), gpu_type("V100"))
        assert truth.work_total[0] / rate(truth, 0, 1) == pytest.approx(100.0)
