"""The partition kernel against every plan there is, on instances small enough to list them all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from policies.recommend.request.vectors import count_vectors
from sim.kernels.partition import partition

UNITS = np.array([1, 2, 4], dtype=np.int64)


def all_plans(cost, border, hold, limits, total, m):
    """Yield (T, counts) of each feasible plan, straight from the definition."""
    blocks, _, types, sizes = cost.shape
    for cuts in product([False, True], repeat=blocks - 1):
        ends = [b for b in range(blocks - 1) if cuts[b]] + [blocks - 1]
        p = len(ends)
        if p > total:
            continue
        for choice in product(product(range(types), range(sizes)), repeat=p):
            counts = np.zeros(types, dtype=int)
            for t, q in choice:
                counts[t] += UNITS[q]
            if (counts > limits).any() or counts.sum() > total:
                continue
            times, passing, first = [], [], 0
            for s, (t, q) in enumerate(choice):
                if hold[first, ends[s], t, q] < min(m, p - s):
                    break
                time = cost[first, ends[s], t, q]
                passing.append(border[ends[s] + 1, t, choice[s + 1][0]] if s + 1 < p else 0.0)
                times.append(time)
                first = ends[s] + 1
            if len(times) == p and np.isfinite(times).all():
                slowest = max(*times, *(x / 2 for x in passing))
                yield sum(times) + sum(passing) + (m - 1) * slowest, tuple(counts)


def instance(seed):
    """Random costs, without any structure that the kernel could lean on."""
    rng = np.random.default_rng([seed, 1])
    types = int(rng.integers(1, 4))
    blocks = int(rng.integers(1, {1: 8, 2: 6, 3: 4}[types]))
    total = int(rng.integers(1, 5))
    limits = rng.integers(0, 5, types)
    limits[rng.integers(types)] = max(1, total - 1)
    m = int(rng.choice([1, 2, 3, 8]))
    shape = (blocks, blocks, types, len(UNITS))
    cost = rng.uniform(0.1, 2.0, shape)
    if rng.random() < 0.5:  # structured: sums of block times, replicas divide, with an overhead
        work = rng.uniform(0.1, 1.0, (blocks, types))
        for i in range(blocks):
            for j in range(i, blocks):
                cost[i, j] = work[i : j + 1].sum(axis=0)[:, None] / UNITS + 0.05 * (UNITS - 1)
    cost[rng.random(shape) < 0.1] = np.inf
    border = rng.uniform(0, rng.choice([0.2, 1.0, 8.0]), (blocks + 1, types, types))
    hold = rng.integers(0, 6, shape) if rng.random() < 0.7 else np.full(shape, 10)
    return cost, border, hold.astype(np.int64), limits, total, m


def pipeline_instance(seed):
    """Blocks that add up, replicas that divide the work, all memory: many plans are near one another."""
    rng = np.random.default_rng([seed, 3])
    work, overhead = rng.uniform(0.1, 1.0, (5, 2)), rng.uniform(0, 0.1)
    cost = np.full((5, 5, 2, len(UNITS)), np.inf)
    for i in range(5):
        for j in range(i, 5):
            cost[i, j] = work[i : j + 1].sum(axis=0)[:, None] / UNITS + overhead * (UNITS - 1)
    border = rng.uniform(0, 0.3, (6, 2, 2))
    hold = np.full(cost.shape, 10, dtype=np.int64)
    return cost, border, hold, np.array([4, 4]), 4, int(rng.choice([4, 8]))


def solve(cost, border, hold, limits, total, m):
    vectors, step = count_vectors(tuple(int(x) for x in limits), total, tuple(int(u) for u in UNITS))
    room = 4
    while True:
        known = np.full(len(vectors), np.inf)
        best, stages, plan = partition(cost, border, hold, UNITS, vectors, step, m, known, 1.0, room)
        if stages[0] >= 0:
            return vectors, best, stages, plan
        room *= 2


@pytest.mark.parametrize("make", [instance, pipeline_instance])
@pytest.mark.parametrize("seed", range(200))
def test_table_equals_brute_force(make, seed):
    """For each count vector, the least time within it is the least over all plans within it."""
    cost, border, hold, limits, total, m = make(seed)
    vectors, best, _, _ = solve(cost, border, hold, limits, total, m)
    plans = list(all_plans(cost, border, hold, limits, total, m))
    for v in vectors:
        within = (vectors <= v).all(axis=1)
        truth = min((time for time, counts in plans if (np.array(counts) <= v).all()), default=np.inf)
        assert best[within].min() == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("seed", range(200))
def test_cheapest_equals_brute_force(seed):
    """T x price of the GPUs: the table holds the cheapest plan too, as no plan on fewer GPUs is dropped."""
    cost, border, hold, limits, total, m = instance(seed)
    price = np.random.default_rng([seed, 2]).uniform(0.1, 3.0, len(limits))
    vectors, best, _, _ = solve(cost, border, hold, limits, total, m)
    plans = all_plans(cost, border, hold, limits, total, m)
    truth = min((time * np.dot(price, c) for time, c in plans), default=np.inf)
    usd = np.where(np.isfinite(best), best * np.maximum(vectors @ price, 1e-300), np.inf)
    assert usd.min() == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("seed", range(100))
def test_returned_plan_has_the_time_that_the_table_says(seed):
    cost, border, hold, limits, total, m = instance(seed)
    vectors, best, stages, plan = solve(cost, border, hold, limits, total, m)
    for v in np.flatnonzero(np.isfinite(best)):
        rows = plan[v, : stages[v]]
        first, times, passing, used = 0, [], [0.0], np.zeros(len(limits), dtype=int)
        for s, (last, t, q) in enumerate(rows):
            time = cost[first, last, t, q]
            if s + 1 < len(rows):
                passing.append(border[last + 1, t, rows[s + 1, 1]])
            assert hold[first, last, t, q] >= min(m, len(rows) - s)
            times.append(time)
            used[t] += UNITS[q]
            first = last + 1
        assert first == cost.shape[0]
        assert tuple(used) == tuple(vectors[v])
        slowest = max(*times, max(passing) / 2)
        assert best[v] == pytest.approx(sum(times) + sum(passing) + (m - 1) * slowest, rel=1e-12)


def test_by_hand():
    """Two blocks of 1 s, two GPUs, 3 micro-batches: pipelined 2 + 2 x 1 = 4 s; one GPU 3 x 2 = 6 s."""
    cost = np.full((2, 2, 1, 3), np.inf)
    cost[0, 0, 0, 0] = cost[1, 1, 0, 0] = 1.0
    cost[0, 1, 0, 0] = 2.0
    hold = np.full(cost.shape, 9, dtype=np.int64)
    _, best, stages, plan = solve(cost, np.zeros((3, 1, 1)), hold, np.array([2]), 2, 3)
    assert best.tolist() == [np.inf, 6.0, 4.0]
    assert stages.tolist() == [0, 1, 2]
    assert plan[2].tolist() == [[0, 0, 0], [1, 0, 0]]
    # The first stage of two holds two micro-batches (1F1B); with room for one only there is no pipeline.
    hold[0, 0] = 1
    _, best, _, _ = solve(cost, np.zeros((3, 1, 1)), hold, np.array([2]), 2, 3)
    assert best.min() == 6.0 and np.isinf(best[2])
