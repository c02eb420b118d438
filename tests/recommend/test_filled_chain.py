"""Chains whose pipeline fills and drains, against every partition there is; and what follows for plans."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from policies.recommend.algorithms.filled_fleet import FilledTable
from policies.recommend.algorithms.long_chain import Chain, Partition, chain_of
from policies.recommend.request.recommend_error import RecommendError
from tests.recommend.test_chain import instance

MICRO_BATCHES = (1, 2, 3, 8, 32)


def filled_s(chain: Chain, stages: tuple[tuple[int, int, int], ...], m: int) -> float:
    """(m - 1) x slowest + sum, straight from the definition; stages by row of the chain."""
    times = [chain.stage_s(*stage) for stage in stages]
    borders = [float(chain.border_s[b[0], chain.group[a[2]], chain.group[b[2]]]) for a, b in pairwise(stages)]
    return (m - 1) * max(times + borders) + sum(times) + 2 * sum(borders)


@cache
def listed(seed: int) -> tuple[Chain, list[Partition]]:
    """A random chain, and each partition of it that memory allows, straight from the definition."""
    chain, found = instance(seed), []
    n, last_layer = chain.time_s.shape[1] - 1, chain.reach.shape[0] - 1
    for cuts in (c for size in range(n) for c in combinations(range(1, n), size)):
        spans = list(zip((0, *cuts), (*cuts, n), strict=True))
        for choice in product(range(chain.time_s.shape[0]), repeat=len(spans)):
            from_end = reversed(range(len(spans)))
            if all(j <= chain.reach[min(f, last_layer), o, i]
                   for (i, j), o, f in zip(spans, choice, from_end, strict=True)):  # fmt: skip
                found.append(chain.partition([(i, j - 1, o) for (i, j), o in zip(spans, choice, strict=True)]))
    return chain, found


def rows_of(chain: Chain, partition: Partition, m: int) -> float:
    """Its time where each stage takes the best line of its option: labels are options, rows lines."""
    rows = [min(np.flatnonzero(chain.label == label), key=lambda row: chain.stage_s(first, last, row))
            for first, last, label in partition.stages]  # fmt: skip
    return filled_s(chain, tuple((a, b, int(row)) for (a, b, _), row in zip(partition.stages, rows, strict=True)), m)


def least_times(chain: Chain, every: list[Partition], m: int) -> dict[tuple[int, ...], float]:
    """The least time on each vector of counts, of all partitions."""
    least: dict[tuple[int, ...], float] = {}
    for partition in every:
        time_s = rows_of(chain, partition, m)
        least[partition.counts] = min(time_s, least.get(partition.counts, math.inf))
    return least


@pytest.mark.parametrize("m", MICRO_BATCHES)
@pytest.mark.parametrize("seed", range(40))
def test_front_and_least_times_are_those_of_all_partitions(seed, m):
    """All cuts and all counts: the front of time and cost, and the least time on each number of GPUs, to 1e-9."""
    chain, every = listed(seed)
    rng = np.random.default_rng([seed, 2])
    limits, most = rng.integers(0, 4, chain.kinds), int(rng.integers(2, 7))
    table = FilledTable(chain, limits.tolist(), m, most)
    within = [p for p in every if (np.array(p.counts) <= limits).all() and sum(p.counts) <= most]
    least = least_times(chain, within, m)
    vectors = [tuple(v) for v in table.vectors.tolist()]
    for v, counts in enumerate(vectors):
        true = least.get(counts, math.inf)
        assert table.bound_s[v] <= true * (1 + 1e-9) and table.least_s[v] >= true * (1 - 1e-9)
    for k in range(most + 1):
        mine = min(t for t, counts in zip(table.least_s.tolist(), vectors, strict=True) if sum(counts) <= k)
        assert mine == pytest.approx(min((t for c, t in least.items() if sum(c) <= k), default=math.inf), rel=1e-9)
    front: list[tuple[float, float]] = []
    for time_s, counts in sorted((t, c) for c, t in least.items()):
        usd = time_s * float(np.dot(counts, chain.usd_per_s))
        if not front or usd < front[-1][1] * (1 - 1e-9):
            front.append((time_s, usd))
    mine_too: list[tuple[float, float]] = []
    for v in table.front_vectors().tolist():
        if not mine_too or table.usd[v] < mine_too[-1][1] * (1 - 1e-9):
            mine_too.append((float(table.least_s[v]), float(table.usd[v])))
        found = table.partition(v)
        assert found.counts == vectors[v]
        assert rows_of(chain, found, m) <= table.least_s[v] * (1 + 1e-9)
    assert [x for point in mine_too for x in point] == pytest.approx([x for point in front for x in point], rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_a_gap_is_kept_and_bounds_hold(seed):
    """With a gap, or few bounds tried, nothing is below the bounds, and the gap that is said holds."""
    chain, every = listed(seed)
    limits = np.random.default_rng([seed, 2]).integers(1, 4, chain.kinds)
    within = [p for p in every if (np.array(p.counts) <= limits).all()]
    least = least_times(chain, within, 8)
    for table in (FilledTable(chain, limits.tolist(), 8, gap=0.05), FilledTable(chain, limits.tolist(), 8, passes=2)):
        for v, counts in enumerate(map(tuple, table.vectors.tolist())):
            assert table.bound_s[v] <= least.get(counts, math.inf) * (1 + 1e-9)
        fastest = min(least.values(), default=math.inf)
        if math.isfinite(fastest):
            assert fastest >= table.least_s.min() * (1 - max(table.gap, 0.0)) * (1 - 1e-9)


def test_by_hand():
    """4 s and 2 s, or 8 s and 4 s for 0.4 $; a message takes 0.5 s. Two stages, 4 s and 4 s: (m - 1) 4 + 8 + 2 x 0.5.

    One micro-batch is fastest alone (6 s against 9); with two, alone 12 s against 13; with three, 17 against 18.
    """
    chain = chain_of(np.array([[4.0, 2.0], [8.0, 4.0]]), [0, 1], [1, 1], [1.0, 0.4],
                     border_s=np.array([0.0, 0.5, 0.0]).reshape(3, 1, 1))
    both, alone = 3, 2
    for m, pair_s in ((1, 9.0), (2, 13.0), (3, 17.0), (10, 45.0)):
        table = FilledTable(chain, [1, 1], m)
        assert table.least_s[alone] == 6.0 * m
        if m > 2:
            assert (table.least_s[both], table.partition(both).stages) == (pair_s, ((0, 0, 0), (1, 1, 1)))
        assert table.bound_s[both] <= pair_s <= table.least_s[both]


def test_many_micro_batches_come_to_the_least_period():
    """T / m falls to the least period as m grows: filling and draining are a part of 1 / m."""
    from policies.recommend.algorithms.chain_fleet import FleetTable

    for seed in range(20):
        chain, _ = listed(seed)
        period_s = FleetTable(chain, [2] * chain.kinds).period_s.min()
        least_s = FilledTable(chain, [2] * chain.kinds, 10**6).least_s.min()
        assert least_s == math.inf == period_s or least_s / 10**6 == pytest.approx(period_s, rel=1e-4, abs=1e-4)


def test_no_micro_batch_is_refused():
    chain = chain_of(np.ones((1, 2)), [0], [1], [1.0])
    with pytest.raises(RecommendError, match="a pipeline needs a micro-batch"):
        FilledTable(chain, [1], 0)
    with pytest.raises(RecommendError, match="no partition uses exactly these GPUs"):
        FilledTable(chain, [1], 1).partition(0)
