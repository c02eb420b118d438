"""What an optimizer keeps and moves: by hand, and the same wherever memory or a step is asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimate.speeds import believed_speeds
from policies.place.placers import modelled_step
from policies.recommend.methods import method
from policies.recommend.request.coarse_layers import Layers, Style
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.uncertain_speeds.belief import Rescaled
from sim.cluster.clusterfiles import load_cluster
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.graph import GraphBuilder
from sim.performance.memory import CONTEXT_GIB, GIB, stage_memory
from sim.performance.optimizer import ADAM, OPTIMIZERS, named_optimizer
from sim.workload.progress import Modelled
from tests.helpers import jobs

V100 = gpu_type("V100")
EVERY = [*OPTIMIZERS, "18", "10.5"]


@pytest.mark.parametrize(("name", "mixed", "single"), [
    ("adam", (16, 14, 28), (16, 12, 28)), ("adam-fp32-grads", (18, 14, 30), (16, 12, 28)),
    ("adam-fp32", (20, 14, 36), (16, 12, 28)), ("adam8bit", (10, 8, 16), (10, 6, 16)),
    ("sgd-momentum", (12, 10, 20), (12, 8, 20)), ("sgd", (8, 6, 12), (8, 4, 12)), ("adafactor", (8, 6, 12), (8, 4, 12)),
    ("16", (16, 14, 28), (16, 12, 28)), ("18", (18, 16, 32), (18, 14, 32)),
])
def test_bytes_by_hand(name, mixed, single):
    """Kept, in a checkpoint, moved by a step: gradient once, state twice, weight once (in single precision twice)."""
    for value_bytes, expected in ((2, mixed), (4, single)):
        one = named_optimizer(name, value_bytes)
        assert (one.param_bytes(value_bytes), one.saved_bytes(value_bytes), one.step_bytes(value_bytes)) == expected


@pytest.mark.parametrize(("text", "value_bytes", "word"), [
    ("adm", 2, "did you mean 'adam'?"), ("3.9", 2, "from 4"), ("7", 4, "from 8"), ("65", 2, "to 64"), ("-3", 2, "adam"),
    ("nan", 2, "adam"), ("1e1", 2, "adam"), ("", 2, "adam"),
])
def test_what_is_no_optimizer_is_refused(text, value_bytes, word):
    with pytest.raises(PerformanceError, match="optimizer") as told:
        named_optimizer(text, value_bytes)
    assert word in str(told.value)
    precision = {2: "tuned", 4: "scripts"}[value_bytes]
    with pytest.raises(PerformanceError):
        Performance(calibration=precision, optimizer=text)


@pytest.mark.parametrize("calibration", ["tuned", "scripts"])
@pytest.mark.parametrize("name", EVERY)
def test_memory_and_step_are_the_optimizers_wherever_they_are_asked_for(name, calibration):
    """DLRM has tables of sparse gradients; GPT-2 has none."""
    speed, plain = (Performance(calibration=calibration, optimizer=kept) for kept in (name, "adam"))
    kept, b = speed.optimizer, speed.value_bytes
    for model in ("dlrm", "gpt2-1.5b"):
        graph = speed.graph(model)
        last = len(graph) - 1
        need = stage_memory(graph, [(0, last)], 2.0, 1, value_bytes=b, optimizer=kept).total_gib
        assert speed.stage_memory_gib(model, 0, last, 2.0, 1) == pytest.approx(need)
        more = (kept.param_bytes(b) - 16) * graph.params - (kept.gradient_bytes(b) - b) * graph.sparse_params.sum()
        assert need - plain.stage_memory_gib(model, 0, last, 2.0, 1) == pytest.approx(more / GIB)
        whole, other = (one.data_parallel(model, 4, V100, (2,)) for one in (speed, plain))
        assert whole.memory_gib[0] == pytest.approx(need)
        assert whole.update_s / other.update_s == pytest.approx(kept.step_bytes(b) / 28)
        assert whole.update_s == speed.update_s(model, 0, last, V100, 4)
        assert (whole.compute_s, whole.allreduce_s) == (other.compute_s, other.allreduce_s)
        assert speed.state_gib(model) == kept.saved_bytes(b) * graph.params / GIB
        step = modelled_step(speed, model, 4, [V100])
        assert step.kept_bytes.sum() == pytest.approx(kept.param_bytes(b) * graph.params)


def test_adam_is_what_nobody_asks_for():
    assert Performance().optimizer == Performance(optimizer="adam").optimizer == ADAM
    asked = [Performance(optimizer=name).data_parallel("bert-large", 8, V100, (4,)) for name in ("adam", "16")]
    assert asked[0] == asked[1] == Performance().data_parallel("bert-large", 8, V100, (4,))


@pytest.mark.parametrize("kind", ["noisy:0.3", "calibration:scripts"])
def test_a_belief_fits_as_the_truth_does(kind):
    """Also of a belief in another precision: 20 bytes a parameter where the truth is mixed, 16 in single."""
    for name in ("adam-fp32", "sgd"):
        truth = Performance(optimizer=name)
        believed = believed_speeds(kind, truth, ("bert-large",), 0, "refuse")
        last = truth.last_op("bert-large")
        assert believed.stage_memory_form("bert-large", 0, last) == truth.stage_memory_form("bert-large", 0, last)
        told, true = (one.data_parallel("bert-large", 16, V100, (2,)) for one in (believed, truth))
        assert (told.fits, told.memory_gib) == (true.fits, true.memory_gib)


def test_speeds_that_may_be_wrong_keep_the_optimizer():
    base = Performance(optimizer="sgd")
    same = Rescaled(base, ["V100"], ["gemm"], np.zeros((1, 1)))
    assert same.data_parallel("bert-large", 8, V100, (2,)) == base.data_parallel("bert-large", 8, V100, (2,))


def test_a_jobs_work_and_types_are_those_of_its_optimizer():
    """1.5 billion parameters: 23 GiB with Adam, more than a V100 has; 12 GiB with SGD."""
    model = "gpt2-1.5b(tokens=64)"
    trace, cluster = jobs([(0, 100, 1)], model=[model], batch_size=[1]), load_cluster("v100:1x1")
    assert Modelled(trace, cluster, Performance(), V100).types(0) == 0
    speed = Performance(optimizer="sgd")
    found = Modelled(trace, cluster, speed, V100)
    assert found.types(0) == 1
    assert found.rule.endswith("(optimizer sgd)")
    assert found.reference_rate[0] == speed.data_parallel(model, 1, V100, (1,)).rate


def heavy(optimizer, gpus):
    """Two lines of four products of 340 million parameters: 40.5 GiB with Adam, 20.3 GiB with SGD."""
    build = GraphBuilder("heavy", "a row", 2.0)
    for i in range(8):
        build.add(f"op{i}", "gemm", (max(i - 2, -1),), 1.0, flops=1e12, params=340e6, stored_bytes=1e3)
    speed = Performance(graphs={"heavy": build.build()}, optimizer=optimizer)
    space = Space(micro_batches=(1, 4), orders=True)
    return Request(speed, "heavy", 8, Fleet(speed, (V100,), (gpus,), (4,)), gpus, space)


@pytest.mark.parametrize("name", ["exact", "chain", "maxload", "branches", "pipedream", "gpipe", "piper", "metis"])
def test_planners_cut_by_the_memory_of_the_optimizer(name):
    """Two V100 of 16 GiB hold 20.3 GiB in two stages, and never 40.5."""
    assert not heavy("adam", 2).judged(list(method(name).propose(heavy("adam", 2))))
    asked = heavy("sgd", 2)
    best = asked.judged(list(method(name).propose(asked)))
    assert best
    assert len(best[0].plan.stages) == 2


@pytest.mark.parametrize(("name", "gpus"), [("sgd", 2), ("adam", 3), ("adam-fp32-grads", 4), ("adam-fp32", 4)])
def test_bounds_know_the_memory_of_the_optimizer(name, gpus):
    """20.3, 40.5, 45.6 and 50.7 GiB on GPUs with 15 beside the context: one fewer holds them in no way."""
    assert [math.isinf(lower_bound(heavy(name, n)).iteration_s) for n in (gpus - 1, gpus)] == [True, False]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_layers_need_what_the_optimizer_keeps(zero):
    asked = heavy("adam-fp32-grads", 4)
    style, graph = Style("", recompute=False, zero=zero), asked.performance.graph("heavy")
    layers = Layers(asked)
    need = stage_memory(graph, [layers.span(0, 3)], 1.0, 1, replicas=4, zero=zero,
                        optimizer=asked.performance.optimizer).total_gib
    assert layers.memory_gib(1.0, 1, 1, 4, style)[0, 3] == pytest.approx(need)
    state = {0: 18, 1: 6 + 12 / 4, 2: 2 + 16 / 4, 3: 18 / 4}[zero] * graph.weight_params[slice(*_ops(layers))].sum()
    assert need - CONTEXT_GIB >= state / GIB


def _ops(layers):
    first, last = layers.span(0, 3)
    return first, last + 1
