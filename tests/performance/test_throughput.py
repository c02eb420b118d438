"""Work a second before a job has its GPUs: what it would have on the GPUs that it would get."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.api import Plan, Stage
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance, PerformanceError
from sim.performance.tables import Measurement, Point
from sim.performance.throughput import Throughput, packed_gpus
from sim.performance.zoo import zoo_graph
from sim.workload.progress import Modelled
from tests.helpers import jobs

V100, T4 = gpu_type("V100"), gpu_type("T4")
ALL = np.arange(3)


def cluster(*sizes: int, racks: list[int] | None = None, links: Links | None = None) -> ClusterSpec:
    """V100 nodes of these sizes, and a T4 alone."""
    rack = None if racks is None else [*racks, 0]
    return ClusterSpec.build("test", [V100, T4], [0] * len(sizes) + [1], [*sizes, 1], rack, links)


def of_jobs(spec: ClusterSpec, performance: Performance | None, *kinds: tuple[str, int, int]) -> Throughput:
    models, batches, milli = zip(*kinds, strict=True)
    return Throughput(performance, spec, models, batches, milli)


def test_a_gang_lies_on_as_few_nodes_as_hold_it_and_a_share_has_its_part():
    """Nodes of 2, 4 and 4 V100: 6 GPUs are 4 + 2; half a GPU twice is one GPU at half speed."""
    performance = Performance()
    found = of_jobs(cluster(2, 4, 4), performance, ("resnet50", 64, 1000), ("vgg16", 64, 1000), ("vgg16", 64, 500))

    def rate(model, *layout):
        return performance.data_parallel(model, 64, V100, layout).rate

    assert found.of(ALL, "V100", 4).tolist() == [rate("resnet50", 4), rate("vgg16", 4), rate("vgg16", 4) / 2]
    assert found.of(ALL, "v100", 6).tolist() == [rate("resnet50", 4, 2), rate("vgg16", 4, 2), rate("vgg16", 6) / 2]
    assert found.of(ALL, 0, np.array([1, 2, 10])).tolist() == [rate("resnet50", 1), rate("vgg16", 2),
                                                               rate("vgg16", 8, 2) / 2]


def test_side_by_side_a_job_alone_has_all_of_a_gpu():
    """Its share says only how many fit on a GPU."""
    found = Throughput(Performance(), cluster(2), ["vgg16"] * 2, [64] * 2, [1000, 500], side_by_side=True)
    assert found.of(ALL[:2], "V100", 1).tolist() == [Performance().data_parallel("vgg16", 64, V100, (1,)).rate] * 2


def test_what_does_not_fit_does_no_work_and_what_nobody_measured_is_unknown():
    """The 10 GPUs are not 11; GPT-2 of 1.5 billion parameters fits no T4; the table knows of one GPU."""
    table = MeasuredTable({Point("mine", 0, "V100", 1, 1): Measurement(2.0)}, "a test", "refuse")
    found = of_jobs(cluster(2, 4, 4), Performance(table=table), ("resnet50", 64, 1000), ("gpt2-1.5b", 8, 1000),
                    ("mine", 1, 1000))
    assert found.of(ALL, "V100", 11).tolist() == [0.0, 0.0, 0.0]
    assert found.of(ALL, "T4", 1)[1] == 0.0
    assert found.of(ALL, "V100", 0).tolist() == [0.0, 0.0, 0.0]
    assert found.of(ALL[2:], "V100", np.array([1])).tolist() == [2.0]
    assert np.isnan(found.of(ALL[2:], "V100", 2)).all()


def test_a_recorded_second_is_a_second_on_any_gpus_that_there_are():
    found = of_jobs(cluster(4), None, ("", 0, 1000), ("", 0, 500), ("", 0, 1000))
    assert found.of(ALL, "V100", 4).tolist() == [1.0, 1.0, 1.0]
    assert found.of(ALL, "T4", 2).tolist() == [0.0, 1.0, 0.0]


def test_a_plan_has_the_rate_of_its_gpus_packed():
    """A stage on 4 V100 and one on the T4; five V100 there are not, on one node of four."""
    performance, spec = Performance(), cluster(4)
    last = len(zoo_graph("resnet50")) - 1
    found = of_jobs(spec, performance, ("resnet50", 64, 1000))

    def plan(gpus):
        return Plan((Stage(0, 99, "T4", 1), Stage(100, last, "V100", gpus)), micro_batches=4)

    gpus = np.array([4, 0, 1, 2, 3], dtype=np.int32)
    assert found.of_plan(0, plan(4)) == performance.plan("resnet50", 64, plan(4), gpus, spec).rate > 0
    assert found.of_plan(0, plan(5)) == 0.0
    assert found.of_plan(0, Plan((Stage(0, last, "V100", 4),))) == pytest.approx(found.of(ALL[:1], 0, 4)[0])


@pytest.mark.parametrize(("asked", "said"), [(("V10", 1), "did you mean 'V100'"), ((2, 1), "no such GPU type"),
                                             (("V100", -1), "impossible number"), (("V100", 1.5), "impossible number")])
def test_a_question_that_makes_no_sense_is_refused(asked, said):
    with pytest.raises(PerformanceError, match=said):
        of_jobs(cluster(4), Performance(), ("resnet50", 64, 1000)).of(ALL[:1], *asked)


sizes = st.lists(st.integers(1, 8), min_size=1, max_size=6)


@given(sizes, st.data())
def test_the_first_gpus_of_a_type_lie_on_the_fewest_nodes(nodes, data):
    """No choice of fewer nodes holds as many."""
    racks = data.draw(st.lists(st.integers(0, 2), min_size=len(nodes), max_size=len(nodes)))
    gpus = packed_gpus(spec := cluster(*nodes, racks=racks), 0)
    assert sorted(gpus.tolist()) == list(range(sum(nodes)))
    n = data.draw(st.integers(1, sum(nodes)))
    used = len(np.unique(spec.gpu_node[gpus[:n]]))
    largest = sorted(nodes, reverse=True)
    assert sum(largest[: used - 1]) < n <= sum(largest[:used])


LINKS = [Links(), Links(1.25, 0.625), Links(1.25, 1.25, gpus_per_switch=2, gpus_per_socket=4)]


@given(sizes, st.sampled_from(LINKS), st.sampled_from(["resnet50", "vgg16", "transformer"]), st.data())
def test_it_is_the_truth_of_a_job_that_gets_these_gpus(nodes, links, model, data):
    """To the last bit: by the model by which jobs run, the rate that a job then has on the packed GPUs."""
    racks = data.draw(st.lists(st.integers(0, 2), min_size=len(nodes), max_size=len(nodes)))
    spec = cluster(*nodes, racks=racks, links=links)
    milli = data.draw(st.sampled_from([1000, 500, 250]))
    n = data.draw(st.integers(1, sum(nodes) * (1000 // milli)))
    performance = Performance(links=links)
    trace = jobs([(0.0, 100.0, n)], model=[model], batch_size=[64], gpu_milli=[milli])
    truth = Modelled(trace, spec, performance, V100)
    gpus = np.repeat(packed_gpus(spec, 0), 1000 // milli)[:n]
    assert of_jobs(spec, performance, (model, 64, milli)).of(ALL[:1], 0, n)[0] == truth.rate(0, gpus, None)
