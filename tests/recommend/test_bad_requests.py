"""Requests that make no sense are refused when they are made, with what is allowed; none ends in a raw exception."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.recommend.algorithms.maxload_graph import MaxLoad
from policies.recommend.methods import exact, method, uneven
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.objective import ranked
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation, Request, Space, by_cost
from policies.recommend.request.vectors import count_vectors, number_of_vectors
from policies.recommend.searching.plain import saving
from sim.api import Plan, Stage
from sim.hardware.gputypes import catalogue, gpu_type
from sim.performance import Performance

PERFORMANCE = Performance()
V100, T4 = gpu_type("V100"), gpu_type("T4")


def fleet(counts=(2, 2), types=(V100, T4), node_gpus=None) -> Fleet:
    return Fleet(PERFORMANCE, types, counts, node_gpus)


@pytest.mark.parametrize("counts", [(0, 0), (-1, 2), (0.5, 2), (math.nan, 1), (math.inf, 1), ("2", 1), (True, 1), (1,),
                                    (1, 1, 1), (10**9, 1)])
def test_impossible_counts(counts):
    with pytest.raises(RecommendError):
        fleet(counts)


@pytest.mark.parametrize("sizes", [(0, 8), (8,), (), (math.nan, 8), (2.5, 8)])
def test_impossible_nodes(sizes):
    with pytest.raises(RecommendError):
        fleet(node_gpus=sizes)


@pytest.mark.parametrize("space", [
    {"tensor": (0,)}, {"tensor": ()}, {"micro_batches": (-4, 1)}, {"micro_batches": (0,)}, {"micro_batches": ()},
    {"schedules": ("interleaved",)}, {"schedules": ()}, {"recompute": ()}, {"zero": ()}, {"zero": (4,)},
])
def test_spaces_without_plans(space):
    with pytest.raises(RecommendError):
        Space(**space)


@pytest.mark.parametrize("wrong", [
    {"batch_size": math.nan}, {"batch_size": "3"}, {"batch_size": 0}, {"max_gpus": math.inf}, {"max_gpus": "2"},
    {"max_gpus": 0}, {"model": None}, {"seconds": math.nan}, {"seconds": -1.0}, {"seed": -1}, {"seed": "x"},
])
def test_impossible_requests(wrong):
    given = {"model": "resnet50", "batch_size": 32, "max_gpus": 4, **wrong}
    seed, seconds = given.pop("seed", 0), given.pop("seconds", 1.0)
    with pytest.raises(RecommendError):
        Request(PERFORMANCE, fleet=fleet(), seed=seed, seconds=seconds, **given)


def test_a_plan_on_a_type_that_was_not_asked_about():
    request = Request(PERFORMANCE, "resnet50", 32, fleet(), 4)
    last = len(PERFORMANCE.graph("resnet50")) - 1
    with pytest.raises(RecommendError, match="not asked about"):
        request.truth(Plan((Stage(0, last, "P100", 1),)))


def test_a_free_plan_has_no_saving_in_cost_and_none_is_dearer_by_a_ratio():
    """Beside a plan that costs nothing, nothing is saved by another free one; what costs something has no ratio."""

    class NoBound:
        iteration_s = usd_per_iteration = 0.0

    request = Request(PERFORMANCE, "resnet50", 32, fleet(), 4)
    free, paid = (Recommendation(Plan(()), 1.0, usd, (1, 0)) for usd in (0.0, 2.0))
    assert saving(request, free, free, "cost", NoBound())["cost"] == 0.0
    assert saving(request, paid, free, "cost", NoBound())["cost"] is None


def test_a_cost_beyond_all_numbers_is_no_known_cost():
    known, unknown = (Recommendation(Plan(()), time_s, usd, (1,)) for time_s, usd in ((2.0, 1.0), (1.0, math.inf)))
    assert by_cost([unknown, known]) == (known,)
    assert ranked([unknown, known], "cost") == [known]


def test_many_types_are_planned_one_by_one_and_in_time():
    """All types of the catalogue at once: their vectors of counts would be too many, so none is listed."""
    types = [gpu for gpu in catalogue().values() if gpu.memory_gib]
    assert number_of_vectors(3, 8) == len(count_vectors((8, 8, 8), 8, (1,))[0]) == 165
    request = Request(PERFORMANCE, "resnet50", 64, fleet([64] * len(types), types), 64)
    assert list(exact.scales(request, request.fleet.present)) == []
    assert request.judged(exact.propose(request))
    assert list(uneven.propose(request)) == []


def test_a_huge_gang_does_not_hold_up_the_planners_of_one_type():
    request = Request(PERFORMANCE, "resnet50", 256, fleet((100_000,), (V100,)), 100_000)
    for name in ("pipedream", "piper", "gpipe"):
        assert all(plan.num_gpus <= 1024 for plan in method(name).propose(request))


@pytest.mark.parametrize("capacity", [math.nan, -1.0])
def test_max_load_with_impossible_memory(capacity):
    ones = np.ones(2)
    with pytest.raises(RecommendError):
        MaxLoad(ones, ones, ones, ones, ((0, 1),), np.arange(2), np.zeros(2, dtype=bool), 1, 0, capacity)
