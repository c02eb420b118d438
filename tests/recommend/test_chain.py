"""The planners of long chains against every partition there is, on chains short enough to list them all."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest

from policies.recommend.algorithms.chain_fleet import FleetTable
from policies.recommend.algorithms.chain_large import large_fleet
from policies.recommend.algorithms.chain_renting import Renting
from policies.recommend.algorithms.long_chain import Chain, Partition, chain_of, reach_of
from policies.recommend.request.recommend_error import RecommendError

RANDOM = range(220)


class Every(NamedTuple):
    """Each partition of a chain that memory allows, in three columns.

    Attributes
    ----------
    period_s, usd : float64 [P]
    counts : int64 [P, kinds], GPUs of each type.
    """

    period_s: np.ndarray
    usd: np.ndarray
    counts: np.ndarray

    def where(self, some: np.ndarray) -> Every:
        return Every(*(column[some] for column in self))

    def front(self) -> list[tuple[float, float]]:
        """Period and cost of those that no other one equals or beats in both, fastest first."""
        order = np.lexsort((self.usd, self.period_s))
        period_s, usd = self.period_s[order], self.usd[order]
        before = np.minimum.accumulate(np.concatenate([[math.inf], usd]))[:-1]
        return list(zip(period_s[usd < before].tolist(), usd[usd < before].tolist(), strict=True))


def all_partitions(chain: Chain) -> Every:
    """Each partition within memory, straight from the definition: all choices for the stages of some cuts at once."""
    options, n = chain.time_s.shape[0], chain.time_s.shape[1] - 1
    last_layer = chain.reach.shape[0] - 1
    found = []
    for cuts in (c for size in range(n) for c in combinations(range(1, n), size)):
        spans = list(zip((0, *cuts), (*cuts, n), strict=True))
        choice = np.indices((options,) * len(spans)).reshape(len(spans), -1)
        fits = [j <= chain.reach[min(len(spans) - 1 - s, last_layer), choice[s], i] for s, (i, j) in enumerate(spans)]
        choice = choice[:, np.all(fits, axis=0)]
        times_s = [chain.start_s[o] + (chain.time_s[o, j] - chain.time_s[o, i])
                   for (i, j), o in zip(spans, choice, strict=True)]
        group = chain.group[choice]
        times_s += [chain.border_s[cut, group[s], group[s + 1]] for s, cut in enumerate(cuts)]
        kind, units = chain.kind[choice], chain.units[choice]
        counts = np.stack([(units * (kind == k)).sum(axis=0) for k in range(chain.kinds)], axis=1)
        period_s = np.max(times_s, axis=0)
        found.append(Every(period_s, period_s * (counts @ chain.usd_per_s), counts))
    return Every(*map(np.concatenate, zip(*found, strict=True)))


def instance(seed: int) -> Chain:
    """Random times, memory and transfers; prices of few values, so that many partitions cost the same."""
    rng = np.random.default_rng([seed, 1])
    kinds = int(rng.integers(1, 4))
    n = int(rng.integers(1, {1: 7, 2: 6, 3: 5}[kinds]))
    # Replicas of each type: 1 and some others up to 3.
    options = [(k, r) for k in range(kinds) for r in range(1, 4) if r == 1 or rng.random() < 0.9 / kinds]
    kind, units = (np.array(column) for column in zip(*options, strict=True))
    base, speed = rng.uniform(0, 1, n) * (rng.random(n) < 0.9), rng.uniform(0.5, 3, kinds)
    if rng.random() < 0.3:
        base = np.round(4 * base) / 4
    op_s = base * speed[kind][:, None] * rng.uniform(0.7, 1.3, (kinds, n))[kind] / units[:, None]
    many = rng.random() < 0.5  # transfers that depend on both types
    groups = kind if many else np.zeros(len(kind), dtype=int)
    border_s = rng.uniform(0, rng.choice([0.0, 0.3, 2.0]), (n + 1, groups.max() + 1, groups.max() + 1))
    lines = int(rng.integers(1, 3)) if len(kind) < 4 else 1
    sync = rng.uniform(0, 0.1, (len(kind), lines, 2)) * (units > 1)[:, None, None]
    reach = None
    if rng.random() < 0.6:
        room = rng.uniform(0.5, 1.5, kinds)[kind] * n * 0.8
        fixed, stored, passing = rng.uniform(0, 1, (3, n)) * np.array([0.5, 0.4, 0.5])[:, None]
        reach = reach_of(fixed, stored, passing, list(1 / units), list(room), int(rng.integers(1, 5)))
    return chain_of(op_s, kind.tolist(), units.tolist(), rng.integers(1, 4, kinds).astype(float).tolist(),
                    params=rng.uniform(0, 1, n), sync=sync, reach=reach, group=groups.tolist(), border_s=border_s)


@cache
def listed(seed: int) -> tuple[Chain, Every]:
    chain = instance(seed)
    return chain, all_partitions(chain)


def values(front: tuple[Partition, ...]) -> list[tuple[float, float]]:
    return [(p.period_s, p.usd) for p in front]


@pytest.mark.parametrize("seed", RANDOM)
def test_rented_front_is_that_of_all_partitions(seed):
    chain, every = listed(seed)
    front, truth = Renting(chain).front(), every.front()
    assert [p.period_s for p in front] == [period_s for period_s, _ in truth]
    assert [p.usd for p in front] == pytest.approx([usd for _, usd in truth], rel=1e-9)


@pytest.mark.parametrize("seed", RANDOM)
def test_each_rented_objective_is_the_best_of_all_partitions(seed):
    chain, every = listed(seed)
    renting = Renting(chain)
    if not len(every.usd):
        assert renting.fastest() is None and renting.cheapest() is None and renting.within(math.inf) is None
        return
    least_s, least_usd = every.period_s.min(), every.usd.min()
    fastest, cheapest = renting.fastest(), renting.cheapest()
    assert fastest is not None and cheapest is not None
    assert fastest.period_s == least_s
    assert fastest.usd == pytest.approx(every.usd[every.period_s == least_s].min())
    assert cheapest.usd == pytest.approx(least_usd)
    for share in (0.0, 0.3, 0.7):
        within_s = least_s + share * (cheapest.period_s - least_s)
        found = renting.cheapest(within_s)
        assert found is not None and found.period_s <= within_s
        assert found.usd == pytest.approx(every.usd[every.period_s <= within_s].min())
        budget = least_usd * (1 + 1e-6) + share * (fastest.usd - least_usd)
        found = renting.fastest_for(budget)
        assert found is not None and found.usd <= budget * (1 + 1e-9)
        assert found.period_s == every.period_s[every.usd <= budget].min()
    assert renting.cheapest(least_s * (1 - 1e-9)) is None or least_s == 0
    assert renting.fastest_for(least_usd * (1 - 1e-6)) is None or least_usd == 0


@pytest.mark.parametrize("seed", RANDOM)
def test_fleet_table_has_the_least_period_of_every_vector(seed):
    chain, every = listed(seed)
    rng = np.random.default_rng([seed, 2])
    limits, most = rng.integers(0, 4, chain.kinds), int(rng.integers(2, 7))
    table = FleetTable(chain, limits.tolist(), most)
    within = every.where((every.counts <= limits).all(axis=1) & (every.counts.sum(axis=1) <= most))
    least_s: dict[tuple[int, ...], float] = {}
    for counts, period_s in zip(map(tuple, within.counts.tolist()), within.period_s.tolist(), strict=True):
        least_s[counts] = min(period_s, least_s.get(counts, math.inf))
    for v, vector in enumerate(table.vectors.tolist()):
        assert table.period_s[v] == least_s.get(tuple(vector), math.inf)
        if tuple(vector) in least_s:
            found = table.partition(v)
            assert (found.period_s, found.counts) == (table.period_s[v], tuple(vector))
    assert values(table.front()) == within.front()


@pytest.mark.parametrize("seed", range(20))
def test_long_chains_agree_where_counts_do_not_bind(seed):
    """Two algorithms that share no idea: what is rented within the limits is on the table, and nothing beats it."""
    rng = np.random.default_rng([seed, 3])
    n = 60
    op_s = rng.lognormal(0, 1, n) * np.array([1.0, 1 / 2, 1 / 3, 1.7, 1.7 / 2])[:, None]
    chain = chain_of(op_s, [0, 0, 0, 1, 1], [1, 2, 3, 1, 2], [2.0, 1.1], params=rng.lognormal(0, 1, n),
                     sync=np.array([0.0, 0.02, 0.03, 0.0, 0.02])[:, None, None] * np.ones(2),
                     border_s=rng.uniform(0, 8, (n + 1, 1, 1)))
    limits = (9, 9)
    table = FleetTable(chain, limits)
    rented = [p for p in Renting(chain).front() if all(c <= limit for c, limit in zip(p.counts, limits, strict=True))]
    assert rented
    index = {tuple(v): i for i, v in enumerate(table.vectors.tolist())}
    for p in rented:
        assert table.period_s[index[p.counts]] == p.period_s
        cheaper = table.usd < p.usd * (1 - 1e-12)
        assert table.period_s[cheaper].min(initial=math.inf) > p.period_s


@pytest.mark.slow
def test_a_large_fleet_lies_between_its_bound_and_the_best_of_all_partitions():
    """bound <= optimum <= value on each instance; where the beam finds nothing, it must be rare."""
    missed, exact, possible = 0, 0, 0
    for seed in RANDOM:
        chain, every = listed(seed)
        limits = np.random.default_rng([seed, 2]).integers(1, 4, chain.kinds)
        within = every.period_s[(every.counts <= limits).all(axis=1)]
        found = large_fleet(chain, limits.tolist(), seconds=math.inf)
        if not len(within):
            assert found.partition is None
            continue
        possible += 1
        assert found.bound_s <= within.min()
        if found.partition is None:
            missed += 1
            continue
        assert (np.array(found.partition.counts) <= limits).all()
        assert found.partition.period_s in within
        exact += found.partition.period_s == within.min()
    assert possible > 150 and missed <= 0.03 * possible and exact >= 0.9 * possible


def test_a_large_fleet_of_a_long_chain_is_near_the_exact_table():
    rng = np.random.default_rng([0, 4])
    n, speed = 80, np.array([1.0, 1.7, 2.6])
    options = [(k, r) for k in range(3) for r in range(1, 9)]
    op_s = rng.lognormal(0, 1, n) * np.array([speed[k] / r + 0.002 * (r - 1) for k, r in options])[:, None]
    kind, units = zip(*options, strict=True)
    border_s = np.broadcast_to(rng.uniform(0, 5, (n + 1, 1, 1)), (n + 1, 3, 3)) * (1 - 0.5 * np.eye(3))
    chain = chain_of(op_s, kind, units, [1.0, 1.0, 1.0], group=kind, border_s=border_s)
    least_s = FleetTable(chain, [8, 8, 8]).period_s.min()
    found = large_fleet(chain, [8, 8, 8], seconds=math.inf)
    assert found.partition is not None
    assert found.bound_s <= least_s <= found.partition.period_s <= 1.02 * least_s
    assert found.gap == found.partition.period_s / found.bound_s - 1
    assert found.bound_s >= 0.95 * least_s


def test_by_hand():
    """4 s and 2 s on a GPU of 1 $ a second, of which two share an operator in half the time; or 8 s and 4 s for 0.4 $.

    Three of the first give 2 s: two for the first operator, one for the second.
    """
    op_s = np.array([[4.0, 2.0], [2.0, 1.0], [8.0, 4.0]])
    chain = chain_of(op_s, [0, 0, 1], [1, 2, 1], [1.0, 0.4])
    table = FleetTable(chain, [2, 1])
    assert dict(zip(map(tuple, table.vectors.tolist()), table.period_s.tolist(), strict=True)) == {
        (0, 0): math.inf, (0, 1): 12.0, (1, 0): 6.0, (1, 1): 4.0, (2, 0): 3.0, (2, 1): 4.0,
    }  # fmt: skip
    assert table.partition(3).stages == ((0, 0, 0), (1, 1, 2))
    assert [(p.counts, p.period_s, p.usd) for p in table.front()] == [
        ((2, 0), 3.0, 6.0), ((1, 1), 4.0, pytest.approx(5.6)), ((0, 1), 12.0, pytest.approx(4.8)),
    ]  # fmt: skip
    renting = Renting(chain)
    fastest, cheapest = renting.fastest(), renting.cheapest(5.0)
    assert fastest is not None and fastest.stages == ((0, 0, 1), (1, 1, 0))
    assert (fastest.period_s, fastest.usd) == (2.0, 6.0)
    assert cheapest is not None and (cheapest.period_s, cheapest.counts) == (4.0, (1, 1))


def test_a_stage_holds_a_micro_batch_for_each_stage_from_it_on():
    """Two operators that store 1 each: room for 2 fits the whole (1 in flight), or two stages; room for 1 nothing."""
    one, none = np.ones(2), np.zeros(2)
    reach = reach_of(none, one, none, [1.0], [2.0], in_flight=3)
    assert reach.tolist() == [[[2, 2]], [[1, 2]], [[0, 1]]]
    assert reach_of(none, one, none, [1.0], [5.0], in_flight=2).tolist() == [[[2, 2]]]
    short = chain_of(np.ones((1, 2)), [0], [1], [1.0], reach=reach_of(none, one, none, [1.0], [1.0], 2))
    assert Renting(short).front() == () and FleetTable(short, [2]).fastest() is None


def test_what_passes_through_a_stage_counts_once():
    """1 stored by each operator, and the largest of 5, 1, 3 passing through: 3 operators need 3 + 5."""
    passing = np.array([5.0, 1.0, 3.0])
    reach = [reach_of(np.ones(3), 0 * passing, passing, [1.0], [room])[0, 0].tolist() for room in (8.0, 7.0, 6.0, 5.0)]
    assert reach == [[3, 3, 3], [2, 3, 3], [1, 3, 3], [0, 3, 3]]


def test_unknown_prices_are_never_rented_and_never_on_a_front():
    op_s = np.array([[1.0], [0.5]])
    chain = chain_of(op_s, [0, 1], [1, 1], [1.0, math.nan])
    assert [p.counts for p in Renting(chain).front()] == [(1, 0)]
    table = FleetTable(chain, [1, 1])
    assert [p.counts for p in table.front()] == [(1, 0)]
    fastest = table.fastest()
    assert fastest is not None and fastest.counts == (0, 1) and math.isnan(fastest.usd)
    with pytest.raises(RecommendError, match="no GPU type has a price"):
        Renting(chain_of(op_s, [0, 1], [1, 1], [math.nan, math.nan]))


def test_free_gpus_and_operators_without_time_end_the_search():
    free = chain_of(np.array([[2.0, 1.0]]), [0], [1], [0.0])
    assert values(Renting(free).front()) == [(2.0, 0.0)]
    idle = chain_of(np.zeros((1, 3)), [0], [1], [1.0])
    assert values(Renting(idle).front()) == [(0.0, 0.0)]
    cheapest = Renting(idle).cheapest()
    assert cheapest is not None and cheapest.counts == (1,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"op_s": np.array([[1.0, -1.0]])}, "time_s"),
        ({"op_s": np.array([[1.0, math.nan]])}, "time_s"),
        ({"units": [0]}, "units"),
        ({"usd_per_s": [-1.0]}, "usd_per_s"),
        ({"kind": [1]}, "kind"),
        ({"reach": np.array([[[2, 1]]])}, "reach"),
        ({"border_s": np.zeros((2, 1, 1))}, "border_s of a chain has another shape"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(wrong, message):
    right = {"op_s": np.ones((1, 2)), "kind": [0], "units": [1], "usd_per_s": [1.0]}
    with pytest.raises(RecommendError, match=message):
        chain_of(**(right | wrong))


def test_a_fleet_of_too_many_vectors_is_refused():
    chain = chain_of(np.ones((6, 100)), list(range(6)), [1] * 6, [1.0] * 6)
    with pytest.raises(RecommendError, match="too many vectors"):
        FleetTable(chain, [64] * 6)
    with pytest.raises(RecommendError, match="a count for each GPU type"):
        FleetTable(chain, [1, 1])
    with pytest.raises(RecommendError, match="a count for each GPU type"):
        large_fleet(chain, [1, 1])
    with pytest.raises(RecommendError, match="no option fits"):
        large_fleet(chain, [0] * 6)
