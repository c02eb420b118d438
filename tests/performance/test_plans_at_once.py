"""Many plans judged at once are what the performance model says of each by itself, to the last bit."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.methods import exact, uneven
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space, by_counts
from sim.api import Part, Plan, Stage
from sim.cluster.spec import Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.plans_at_once import PlansAtOnce

TYPES = [gpu_type(name) for name in ("V100", "P100", "K80")]
COUNTS, NODES = (20, 16, 12), (8, 4, 4)
MODELS = {
    (schedule, blocking): Performance(Links(network_gbytes_per_s=3.0), schedule=schedule, blocking=blocking)
    for schedule in ("1f1b", "gpipe") for blocking in (False, True)
} | {("1f1b", "more overhead"): Performance(Links(network_gbytes_per_s=3.0), context_gib=2.5)}


def fleet(performance):
    return Fleet(performance, TYPES, COUNTS, NODES)


def together(performance, model="vgg16", batch=128):
    there = fleet(performance)
    return PlansAtOnce(performance, model, batch, there.spec, there.gpus_of_type), there


@st.composite
def plans(draw, operators):
    """A pipeline of one to four stages, each on one type or several, none on more GPUs than there are."""
    count = draw(st.integers(1, 4))
    inner = st.lists(st.integers(1, operators - 1), min_size=count - 1, max_size=count - 1, unique=True)
    cuts, stages = [0, *sorted(draw(inner)), operators], []
    for first, end in pairwise(cuts):
        names = draw(st.lists(st.sampled_from([gpu.name for gpu in TYPES]), min_size=1, max_size=3, unique=True))
        gpus = [draw(st.integers(1, 3)) for _ in names]
        parts = ()
        if len(names) > 1:
            weights = [draw(st.integers(1, 5)) for _ in names]
            parts = tuple(Part(n, g, w / sum(weights)) for n, g, w in zip(names, gpus, weights, strict=True))
        stages.append(Stage(first, end - 1, names[0], sum(gpus), parts=parts))
    schedule = draw(st.sampled_from(["", "1f1b", "gpipe"]))
    return Plan(tuple(stages), draw(st.sampled_from([1, 2, 3, 8])), schedule=schedule)


@settings(max_examples=60)
@given(st.data())
def test_at_once_is_one_by_one(data):
    performance = MODELS[data.draw(st.sampled_from(sorted(MODELS, key=str)))]
    # Of these two have tied tables, of three users and of two, and one has tables with sparse gradients.
    model, batch = data.draw(st.sampled_from([
        ("vgg16", 128), ("gpt2-1.5b", 16), ("resnet50", 9), ("transformer-big", 64), ("dlrm", 512),
    ]))
    judge, there = together(performance, model, batch)
    some = data.draw(st.lists(plans(len(performance.graph(model))), min_size=1, max_size=6))
    assert judge.serves and all(map(judge.takes, some))
    time_s, memory_gib = judge.judge(some)
    for plan, seconds, gib in zip(some, time_s.tolist(), memory_gib, strict=True):
        alone = performance.plan(model, batch, plan, there.gpus(plan), there.spec)
        assert (seconds, gib) == (alone.iteration_s, alone.memory_gib)


@pytest.mark.parametrize(("model", "batch"), [("resnet50", 256), ("gpt2-1.5b", 16), ("bert-large", 7)])
def test_a_front_is_that_of_plans_judged_one_by_one(model, batch):
    """On all that two methods propose, also within a budget that some of it goes beyond: same plans and bits."""
    asked = Request(MODELS["1f1b", False], model, batch, fleet(MODELS["1f1b", False]), 16)
    proposed = [plan for method in (exact, uneven) for plan in method.propose(asked)]
    small = replace(asked, max_gpus=6, _judged={})
    for request in (asked, small):
        found = request._front_at_once(proposed)
        assert found and repr(found) == repr(by_counts(request.judged(proposed)))
        assert request.front(proposed) == found
    assert asked._front_at_once([]) == ()


def test_what_is_not_plain_is_judged_one_by_one():
    """Each of these has times or memory that are not put together here, or makes no sense."""
    judge, _ = together(Performance())
    last = len(Performance().graph("vgg16")) - 1
    plain = Plan((Stage(0, 4, "V100", 2), Stage(5, last, "P100", 2)), 4)
    assert judge.takes(plain)
    other = [
        replace(plain, recompute=True), replace(plain, zero=1), replace(plain, order=tuple(range(last + 1))),
        replace(plain, schedule="async"), replace(plain, schedule="interleaved", chunks=2),
        replace(plain, micro_batches=129), replace(plain, micro_batches=2.0), replace(plain, stages=()),
        replace(plain, stages=plain.stages[:1]), replace(plain, stages=plain.stages[::-1]),
        replace(plain, stages=(Stage(0, last, "V100", 2, tensor=2),)),
        replace(plain, stages=(Stage(0, last, "T4", 2),)), replace(plain, stages=(Stage(0, last, "V100", 0),)),
    ]
    assert not any(map(judge.takes, other))


def test_models_that_put_plans_together_otherwise_are_not_served():
    class Slower(Performance):
        def _planned(self, *args):
            found = super()._planned(*args)
            return replace(found, iteration_s=2 * found.iteration_s)

    for performance in (
        Slower(), Performance(overlap=True), Performance(exchange="tree"), Performance(Links(gpus_per_switch=2))
    ):
        assert not together(performance)[0].serves
    found = [Request(one, "vgg16", 128, fleet(one), 4).front(exact.propose(Request(one, "vgg16", 128, fleet(one), 4)))
             for one in (Performance(), Slower())]  # fmt: skip
    assert found[1][0].iteration_s == 2 * found[0][0].iteration_s


def test_what_takes_an_unknown_time_is_refused():
    """So the planner asks for the plans one by one, and the one that is wrong says what is wrong with it."""
    class Lost(Performance):
        def _operator_times_s(self, *args):
            return tuple(math.nan * times for times in super()._operator_times_s(*args))

    request = Request(Lost(), "vgg16", 128, fleet(Lost()), 4)
    plan = Plan((Stage(0, len(Performance().graph("vgg16")) - 1, "V100", 1),))
    judge, _ = together(Lost())
    with pytest.raises(PerformanceError):
        judge.judge([plan])
    with pytest.raises(PerformanceError, match="a time is unknown or impossible"):
        request.front([plan])


def test_no_plans_no_answers():
    time_s, memory_gib = together(Performance())[0].judge([])
    assert time_s.shape == (0,) and memory_gib == [] and isinstance(time_s, np.ndarray)


def test_a_space_of_other_schedules_goes_the_same_way():
    """The planner's own door: asynchronous plans are judged one by one, and their front is what it was."""
    request = Request(MODELS["1f1b", False], "vgg16", 128, fleet(MODELS["1f1b", False]), 4, Space(schedules=("async",)))
    proposed = [replace(plan, schedule="async") for plan in exact.propose(request)]
    assert request._front_at_once(proposed) is None
    assert request.front(proposed) == by_counts(request.judged(proposed))
