"""Down-sets and the best chains of them, against every one there is."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend.algorithms.all_downsets import coarsen, down_sets, group
from policies.recommend.algorithms.lattice import lattice_front
from policies.recommend.request.recommend_error import RecommendError


def diamonds(count):
    """A chain of diamonds: each splits in two and merges."""
    inputs = [()]
    for _ in range(count):
        top = len(inputs) - 1
        inputs += [(top,), (top,), (top + 1, top + 2)]
    return inputs


def random_graph(rng, n):
    """Operators in a topological order; one reads each earlier one by a toss."""
    density = rng.uniform(0.1, 0.6)
    return [tuple(int(j) for j in range(i) if rng.random() < density) for i in range(n)]


def all_down_sets(inputs, labels):
    """Straight from the definition, operators that have one label being in or out together."""
    n = len(inputs)
    sets = (frozenset(c) for size in range(n + 1) for c in combinations(range(n), size))
    return {
        s for s in sets
        if all(set(inputs[op]) <= s for op in s)
        and all((a in s) == (b in s) for a in range(n) for b in range(a) if labels[a] == labels[b])
    }


def operators_of(found):
    return [frozenset(op for g in np.flatnonzero(row) for op in found.groups[g]) for row in found.members]


@pytest.mark.parametrize("seed", range(60))
def test_every_down_set_is_found_once_and_every_step_between_them(seed):
    rng = np.random.default_rng([seed, 11])
    n = int(rng.integers(0, 9))
    inputs = random_graph(rng, n)
    labels = [int(x) for x in rng.integers(0, max(1, n), n)] if seed % 2 else list(range(n))
    found = down_sets(inputs, labels)
    sets = operators_of(found)
    assert len(sets) == len(set(sets))
    assert set(sets) == all_down_sets(inputs, labels)
    assert sets[0] == frozenset() and sets[-1] == frozenset(range(n))
    steps = set()
    for i in range(len(found)):
        for s in range(found.first_above[i], found.first_above[i + 1]):
            steps.add((sets[i], frozenset(found.groups[found.group_above[s]]), sets[found.above[s]]))
    groups = [frozenset(g) for g in found.groups]
    assert steps == {(a, g, a | g) for a in sets for g in groups if not a & g and a | g in set(sets)}
    first, below, lost = found.below
    assert {(sets[below[s]], groups[lost[s]], sets[i]) for i in range(len(found))
            for s in range(first[i], first[i + 1])} == steps


def test_p50_a_chain_of_30_merges_has_122_cuts_and_no_explosion():
    # P-50: another planner walked every path of such a graph, of which there are 2 ** 30.
    found = down_sets(diamonds(30))
    assert len(found) == 2 + 30 * 4
    assert found.members.sum(axis=1).tolist() == sorted(found.members.sum(axis=1))


def test_too_many_down_sets_are_none_without_listing_them_all():
    inputs = [()] * 60  # 2 ** 60
    assert down_sets(inputs) is None
    assert down_sets(inputs, limit=1) is None
    assert len(down_sets(diamonds(2), limit=10)) == 10
    assert down_sets(diamonds(2), limit=9) is None


def test_a_chain_is_an_order_of_consecutive_stages():
    # 0 -> 1 -> 3, 0 -> 2 -> 3: the graph's order has 1 before 2, the chain {0, 2}, {0, 1, 2, 3} does not.
    inputs = diamonds(1)
    found = down_sets(inputs)
    sets = operators_of(found)
    chain = [sets.index(frozenset({0, 2})), sets.index(frozenset({0, 1, 2, 3}))]
    assert found.stages(chain) == ((0, 2), (1, 3))
    assert found.order(chain) == ((0, 2, 1, 3), (0, 2))


def test_sets_that_are_not_within_each_other_are_no_chain():
    found = down_sets(diamonds(1))
    sets = operators_of(found)
    with pytest.raises(RecommendError, match="no chain"):
        found.stages([sets.index(frozenset({0, 1})), sets.index(frozenset({0, 2}))])


def test_what_must_be_together_takes_along_what_lies_between():
    # 0 -> 1 -> 2 -> 3, with 0 and 2 of one colour: 1 cannot be cut from them.
    groups, read = group([(), (0,), (1,), (2,)], [7, 1, 7, 3])
    assert groups == ((0, 1, 2), (3,))
    assert read == ((), (0,))


def test_the_sample_is_no_operator():
    assert len(down_sets([(-1,), (0, -1)])) == 3


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(2, 60))
def test_law_coarse_graphs_keep_to_the_limit_and_stay_graphs(seed, n, limit):
    rng = np.random.default_rng(seed)
    inputs = random_graph(rng, n)
    labels = coarsen(inputs, rng.uniform(0.1, 1.0, n), limit=limit)
    found = down_sets(inputs, labels, limit=limit)
    assert found is not None
    assert len(found.groups) == len(set(labels))  # nothing more had to go together to make it a DAG
    if (fine := down_sets(inputs, limit=limit)) is not None:
        assert len(fine) == len(found)


def test_operators_that_read_one_another_cannot_be_coarsened():
    with pytest.raises(RecommendError, match="circle"):
        coarsen([(1,), (0,)], [1.0, 1.0])


UNITS = (1, 2)


def lattice_instance(seed):
    rng = np.random.default_rng([seed, 12])
    types = int(rng.integers(1, 3))
    found = down_sets(random_graph(rng, int(rng.integers(1, 6 - types + 1))))
    n, shape = len(found.groups), (types, len(UNITS))
    cost = rng.uniform(0.1, 2.0, (n, *shape))
    cost[rng.random(cost.shape) < 0.1] = np.inf
    fixed = rng.uniform(0, 0.5, shape)
    fixed[rng.random(shape) < 0.1] = np.inf
    border = rng.uniform(0, rng.choice([0.2, 1.0, 4.0]), (len(found), types, types))
    memory, capacity = rng.uniform(0, 1, (n, *shape)), rng.uniform(0.5, 4, types)
    limits = tuple(int(x) for x in rng.integers(0, 4, types))
    return found, cost, border, limits, int(rng.integers(1, 5)), fixed, memory, capacity


def all_pipelines(found, cost, border, limits, total, fixed, memory, capacity):
    """Yield (period, counts) of each pipeline there is, straight from the definition."""
    members, options = found.members, list(product(range(len(limits)), range(len(UNITS))))
    full = len(found) - 1

    def go(i, last, counts, period):
        if i == full:
            yield period, counts
        for j in range(i + 1, full + 1):
            if (members[i] & ~members[j]).any():
                continue
            stage = members[j] & ~members[i]
            for t, q in options:
                more = tuple(c + UNITS[q] * (k == t) for k, c in enumerate(counts))
                if sum(more) > total or any(c > limit for c, limit in zip(more, limits, strict=True)):
                    continue
                if memory[stage, t, q].sum() > capacity[t]:
                    continue
                time = fixed[t, q] + cost[stage, t, q].sum()
                moved = border[i, last, t] if last is not None else 0.0
                if time < np.inf:
                    yield from go(j, t, more, max(period, time, moved))

    yield from go(0, None, (0,) * len(limits), 0.0)


@pytest.mark.parametrize("seed", range(200))
def test_the_lattice_front_is_what_listing_every_pipeline_finds(seed):
    found, cost, border, limits, total, fixed, memory, capacity = lattice_instance(seed)
    front = lattice_front(found, cost, border, limits, total, UNITS, fixed_s=fixed, memory=memory, capacity=capacity)
    pipelines = list(all_pipelines(found, cost, border, limits, total, fixed, memory, capacity))
    for vector in front.vectors:
        truth = min((p for p, c in pipelines if all(c <= vector)), default=np.inf)
        within = (front.vectors <= vector).all(axis=1)
        assert front.period_s[within].min() == pytest.approx(truth, rel=1e-9)
    for vector, period, chain in zip(front.vectors, front.period_s, front.chains, strict=True):
        assert bool(chain) == (period < np.inf)
        if not chain:
            continue
        # The chain is a pipeline of that period on that vector.
        before, used, slowest = np.zeros(len(found.groups), dtype=bool), np.zeros(len(limits), dtype=int), 0.0
        for s, stage in enumerate(chain):
            inside = found.members[stage.end]
            part = inside & ~before
            used[stage.type] += UNITS[stage.size]
            slowest = max(slowest, fixed[stage.type, stage.size] + cost[part, stage.type, stage.size].sum())
            if s + 1 < len(chain):
                slowest = max(slowest, border[stage.end, stage.type, chain[s + 1].type])
            assert memory[part, stage.type, stage.size].sum() <= capacity[stage.type] * (1 + 1e-8)
            before = inside
        assert before.all() and (used == vector).all()
        assert slowest == pytest.approx(period, rel=1e-9)


def test_branches_side_by_side_are_cut_where_no_order_of_the_graph_would():
    # Two branches of 3 and 1 + 1 + 1: {a} and {b1, b2, b3} are balanced, but no prefix of 0, 1, 2, 3 in the
    # order b1, a, b2, b3 is.
    found = down_sets([(), (), (0,), (2,)])
    cost = np.array([1.0, 3.0, 1.0, 1.0])[[g[0] for g in found.groups]][:, None, None]
    front = lattice_front(found, cost, np.zeros((len(found), 1, 1)), (2,), 2, (1,))
    assert front.period_s.tolist() == [np.inf, 6.0, 3.0]
    assert sorted(found.stages([s.end for s in front.chains[2]])) == [(0, 2, 3), (1,)]


def test_a_table_of_the_wrong_shape_is_named():
    found = down_sets(diamonds(1))
    with pytest.raises(RecommendError, match="border_s"):
        lattice_front(found, np.ones((4, 1, 1)), np.zeros((2, 1, 1)), (2,), 2, (1,))
    with pytest.raises(RecommendError, match="cost_s"):
        lattice_front(found, np.full((4, 1, 1), np.nan), np.zeros((6, 1, 1)), (2,), 2, (1,))
    with pytest.raises(RecommendError, match="ascend"):
        lattice_front(found, np.ones((4, 1, 2)), np.zeros((6, 1, 1)), (2,), 2, (2, 1))
