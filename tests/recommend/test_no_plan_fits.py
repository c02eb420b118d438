"""Where no plan fits: what lacks least, by hand and against brute force; and the smallest number of GPUs that does."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.nofit import CLOSE, lack, leanest, least_that, nothing_fits, remedies
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.graph import GraphBuilder
from sim.performance.memory import CONTEXT_GIB, GIB, in_flight


def chain(params, out_values=1000.0):
    """A chain of products with so many parameters each."""
    b, x = GraphBuilder("chain", "a sample", 2.0), -1
    for i, n in enumerate(params):
        x = b.add(f"op{i}", "gemm", (x,), out_values, flops=2.0 * n, params=n)
    return b.build()


def asked(params, counts: dict[str, int], batch=8, max_gpus=None, **space):
    speeds = Performance(graphs={"chain": chain(params)})
    fleet = Fleet(speeds, [gpu_type(name) for name in counts], list(counts.values()))
    return Request(speeds, "chain", batch, fleet, max_gpus or sum(counts.values()), Space(**space))


SEVENTY = [0.875e9] * 80
"""80 operators of 70e9 parameters in all: 16 bytes each."""


@pytest.mark.parametrize("zero", [0, 3])
def test_seventy_billion_parameters_on_thirteen_gpus_lack_what_seven_operators_need(zero):
    """80 operators on 12 or 13 stages are 7 on some, 91.3 GiB and the context; on 14 stages 6, 78.2: these fit."""
    request = asked(SEVENTY, {"A100-80": 13}, zero=(zero,))
    near = leanest(request)
    assert near.need_gib == pytest.approx(7 * 0.875e9 * 16 / GIB + CONTEXT_GIB, rel=1e-4)
    assert len(near.plan.stages) in (12, 13)
    assert "What would help: 14 A100-80" in str(nothing_fits(request))
    assert leanest(asked(SEVENTY, {"A100-80": 14}, zero=(zero,))).need_gib < 80


def test_more_stages_than_coarse_layers_are_tried():
    """A V100 holds one operator of 13 GiB: 80 of them, where there are 40."""
    request = asked(SEVENTY, {"V100": 40})
    assert len(leanest(request).plan.stages) == 40
    assert "80 V100" in str(nothing_fits(request))


def test_the_smallest_number_is_that_of_a_type_beside_the_others():
    said = str(nothing_fits(asked(SEVENTY, {"A100-80": 13, "V100": 1}, single_type=True)))
    assert "14 A100-80 and 1 V100 or 13 A100-80 and 80 V100" in said


def test_more_gpus_are_not_advised_where_one_operator_is_too_large():
    """2e9 parameters of one operator are 29.8 GiB: on however many GPUs of 16 GiB, it is on one."""
    request = asked([2e9, 1e6], {"V100": 1})
    assert not any("V100" in text or "these" in text for text in remedies(request))
    assert leanest(asked([2e9, 1e6], {"V100": 64})).need_gib > 16


def test_what_is_lacking_is_told_in_a_line_and_nothing_is_where_a_plan_fits():
    assert "92.27 GiB needed on a GPU of A100-80 and 80 GiB there" in lack(asked(SEVENTY, {"A100-80": 13}))
    assert lack(asked(SEVENTY, {"A100-80": 14})) == ""


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0.5, 40.0), min_size=4, max_size=8), st.sampled_from([2, 4]))
def test_what_lacks_least_is_what_brute_force_finds(giga, gpus):
    """All cuts into so many stages: the fullest GPU of the best, a micro-batch each (m = 1 holds one everywhere)."""
    params = [n * 1e9 for n in giga]
    request = asked(params, {"V100": gpus}, micro_batches=(1,))
    near = leanest(request)
    if near.need_gib <= near.there_gib:
        return
    memory = request.performance.stage_memory_gib
    held = [in_flight("1f1b", s, gpus, 1) for s in range(gpus)]
    least = math.inf
    for p in range(1, gpus + 1):
        for inner in combinations(range(1, len(params)), p - 1):
            cuts = [0, *inner, len(params)]
            for replicas in {1, gpus // p}:
                need = max(memory("chain", a, b - 1, 8 / replicas, held[s]) for s, (a, b) in enumerate(pairwise(cuts)))
                least = min(least, need)
    assert least * (1 - 1e-12) <= near.need_gib <= least * (1 + 2 * CLOSE)


@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 1024))
def test_the_smallest_that_fits_is_found_where_more_always_do(none, need, most):
    tried = []

    def fits(n):
        tried.append(n)
        return n >= need

    found = least_that(fits, none, most)
    expected = need if need > none else none + 1
    if none >= most or need > most:
        assert found is None
    else:
        assert found == min(expected, most)
    assert all(none < n <= most for n in tried)
