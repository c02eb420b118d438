"""The self-optimising search: its moves keep to the rules, it learns, and it comes to the best plan there is."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from policies.recommend.methods import method
from policies.recommend.methods.search import FLOOR, Search, Walker, improve, lean, matched, starts
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Recommendation, Request, Space, by_cost
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.moves_cuts import balance
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.tables import Measurement, Point

V100, P100, T4 = (gpu_type(name) for name in ("V100", "P100", "T4"))
PERFORMANCE = Performance()
WIDE = Space(tensor=(1, 2), schedules=("1f1b", "gpipe"), recompute=(False, True), zero=(0, 1), mixed=True, orders=True)


def request(model, batch, types, counts, space=None, **other):
    fleet = Fleet(other.pop("performance", PERFORMANCE), types, counts, (4,) * len(types))
    return Request(PERFORMANCE, model, batch, fleet, sum(counts), space or Space(), **other)


def least(found):
    return min(r.iteration_s for r in found), min(r.usd_per_iteration for r in found)


# -- moves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["bert-large", "inception-v3", "vgg16"])
def test_moves_lead_from_plan_to_plan(model):
    """A thousand blind moves: each plan covers the model, keeps to the GPUs, and the truth takes it."""
    asked = request(model, 64, (V100, P100, T4), (4, 4, 8), WIDE)
    ground, rng = Ground(asked), np.random.default_rng(1)
    moves = list(moves_for(ground).values())
    plan, met = next(p for p in lean(asked) if ground.allows(p)), set()
    for _ in range(1000):
        chosen = int(rng.integers(len(moves)))
        moved = moves[chosen](plan, ground, rng)
        if moved is None or not ground.allows(moved):
            continue
        assert moved.stages[0].first_op == 0 and moved.stages[-1].last_op == ground.operators - 1
        assert all(a.last_op + 1 == b.first_op for a, b in pairwise(moved.stages))
        assert all(stage.first_op <= stage.last_op for stage in moved.stages)
        for stage in moved.stages:
            assert stage.gpus == sum(part.gpus for part in stage.all_parts)
            assert sum(part.share for part in stage.all_parts) == 1
            assert len({part.gpu_type for part in stage.all_parts}) == len(stage.all_parts)
        asked.truth(moved)
        plan = moved
        met.add(chosen)
    assert len(met) > len(moves) * 0.8


def test_a_move_leaves_the_plan_it_starts_from_alone():
    """Moves are pure: the same draw gives the same neighbour twice."""
    asked = request("bert-large", 32, (V100, P100), (4, 4))
    ground = Ground(asked)
    plan = next(p for p in lean(asked) if len(p.stages) > 1 and ground.allows(p))
    for move in moves_for(ground).values():
        one, other = (move(plan, ground, np.random.default_rng(3)) for _ in range(2))
        assert one == other


def test_balanced_cuts_are_the_best_cuts():
    """Three stages on unequal GPUs: the fullest one has as little as in the best of all pairs of cuts."""
    asked = request("vgg16", 32, (V100, P100, T4), (2, 1, 1), Space(micro_batches=(4,)))
    ground = Ground(asked)
    n = ground.operators
    plan = Plan((Stage(0, 0, "V100", 2), Stage(1, 1, "P100", 1), Stage(2, n - 1, "T4", 1)), 4)
    lines = [np.array(ground.running_s(plan, stage)) for stage in plan.stages]

    def fullest(a, b):
        return max(lines[0][a - 1], lines[1][b - 1] - lines[1][a - 1], lines[2][n - 1] - lines[2][b - 1])

    best = min(fullest(a, b) for a, b in combinations(range(1, n), 2))
    # The generator decides how far cuts go to cheap borders; one of a few draws is 'not at all'.
    reached = []
    for seed in range(8):
        found = balance(plan, ground, np.random.default_rng(seed))
        assert found is not None
        reached.append(fullest(found.stages[1].first_op, found.stages[2].first_op))
    assert min(reached) == pytest.approx(best, rel=1e-6)


def test_only_moves_that_the_space_allows_are_offered():
    names = set(moves_for(Ground(request("vgg16", 32, (V100,), (1,), Space(micro_batches=(1,))))))
    assert names == {"resize"}
    names = set(moves_for(Ground(request("vgg16", 32, (V100, T4), (2, 2)))))
    assert not names & {"tensor", "mix in", "carry", "zero", "recompute", "schedule"}
    assert {"retype", "micro-batches", "split, balance"} <= names


# -- learning ----------------------------------------------------------------------------------------------


def test_credit_by_hand():
    """Of two moves the first succeeds: its credit goes a fiftieth of the way from 1 to 2, and back towards 0."""
    walker = Walker(0.0, Recommendation(Plan(()), 1.0, 1.0, (1,)), 2)
    walker.learn(0, True)
    assert walker.credit == pytest.approx([1.02, 1.0])
    walker.learn(0, False)
    assert walker.credit == pytest.approx([1.02 * 0.98, 1.0])


def test_moves_are_drawn_by_credit_but_never_left_out():
    probability = matched(np.array([0.0, 1.0, 3.0]))
    rest = 1 - 3 * FLOOR
    assert probability == pytest.approx([FLOOR, FLOOR + rest / 4, FLOOR + 3 * rest / 4])
    assert matched(np.zeros(4)).sum() > 0


def test_a_walker_accepts_what_is_no_worse_than_late():
    """From 1 s: 2 s is refused, 0.5 s accepted, then 0.9 s too, since that beats where it was long ago."""
    def at(time_s):
        return Recommendation(Plan(()), time_s, 1.0, (1,))

    walker = Walker(0.0, at(1.0), 1)
    assert not walker.walk(at(2.0)) and walker.at.iteration_s == 1.0
    assert walker.walk(at(0.5)) and walker.at.iteration_s == 0.5
    assert not walker.walk(at(0.9)) and walker.at.iteration_s == 0.9
    assert walker.best == math.log(0.5)


def test_a_walker_of_cost_does_not_go_where_the_price_is_unknown():
    walker = Walker(1.0, Recommendation(Plan(()), 1.0, 1.0, (1,)), 1)
    assert not walker.walk(Recommendation(Plan(()), 0.1, math.nan, (1,)))
    assert walker.at.iteration_s == 1.0


# -- the search --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "batch", "counts", "space"), [
    ("vgg16", 64, (4, 4), Space()), ("bert-large", 32, (2, 4), WIDE), ("transformer", 64, (4, 2), Space(mixed=True)),
])
def test_never_worse_than_its_starts(model, batch, counts, space):
    asked = request(model, batch, (V100, T4), counts, space)
    before = asked.judged(p for p in starts(asked) if Ground(asked).allows(p))
    search = improve(asked, starts(asked), evaluations=300)
    time_s, usd = least(before)
    assert search.front[0].iteration_s <= time_s and search.front[-1].usd_per_iteration <= usd
    assert tuple(search.front) == by_cost(list(search.found.values()))
    for r in before:
        assert search.found[r.counts].iteration_s <= r.iteration_s


def test_the_same_seed_gives_the_same_plans():
    fronts = []
    for seed in (7, 7, 8):
        asked = request("vgg16", 64, (V100, T4), (4, 4), seed=seed)
        fronts.append([r.plan for r in improve(asked, starts(asked), evaluations=400).front])
    assert fronts[0] == fronts[1]


def test_the_budget_of_evaluations_is_kept():
    asked = request("vgg16", 64, (V100, T4), (4, 4))
    list(map(asked.truth, starts(asked)))
    before = asked.evaluations
    improve(asked, starts(asked), evaluations=100)
    # A walker that starts again takes a few blind moves at once.
    assert before + 100 <= asked.evaluations <= before + 110


def test_plans_of_one_type_where_only_one_is_allowed():
    asked = request("bert-large", 32, (V100, T4), (4, 4), Space(single_type=True))
    found = improve(asked, starts(asked), evaluations=300).found
    assert all(sum(n > 0 for n in counts) == 1 for counts in found)


def every_plan(asked, first):
    """The truth of each plan of given blocks, with any number of replicas."""
    names = [asked.fleet.names[t] for t in asked.fleet.present]
    for p in range(1, asked.budget + 1):
        for cuts in combinations(first[1:-1], p - 1):
            ends = (0, *cuts, first[-1])
            for choice in product(product(names, range(1, asked.budget + 1)), repeat=p):
                if sum(r for _, r in choice) > asked.budget:
                    continue
                stages = tuple(Stage(a, b - 1, *on) for (a, b), on in zip(pairwise(ends), choice, strict=True))
                for m in asked.space.micro_batches:
                    r = asked.truth(Plan(stages, m)) if m <= asked.batch_size else None
                    if r is not None:
                        yield r


@pytest.mark.parametrize(("model", "batch", "types", "counts"), [
    ("vgg16", 128, (V100, P100), (2, 2)), ("lstm-lm", 80, (V100, T4), (2, 2)), ("bert-large", 16, (V100, P100), (2, 1)),
    ("gpt2-1.5b", 4, (V100, P100), (2, 2)), ("transformer", 64, (V100, T4), (1, 2)),
])
def test_the_best_of_all_plans_is_found(model, batch, types, counts):
    """Brute force over up to 7 blocks, any replicas, all micro-batches: the search is as good, in time and in cost."""
    asked = request(model, batch, types, counts)
    ends = np.unique(np.linspace(0, len(PERFORMANCE.graph(model)), 8 if sum(counts) < 4 else 6).astype(int)).tolist()
    time_s, usd = least(list(every_plan(asked, ends)))
    mine = request(model, batch, types, counts)
    front = improve(mine, starts(mine), evaluations=1500).front
    assert front[0].iteration_s <= time_s * (1 + 1e-9)
    assert front[-1].usd_per_iteration <= usd * (1 + 1e-9)


def test_a_stage_of_two_types_is_found_where_it_is_faster():
    """ResNet-50 on three V100 and two P100: data parallelism over all five, with unequal shares, beats three V100."""
    plain, mixed = (request("resnet50", 240, (V100, P100), (3, 2), Space(mixed=may)) for may in (False, True))
    only, both = (improve(r, starts(r), evaluations=800).front[0] for r in (plain, mixed))
    (stage,) = both.plan.stages
    shares = {part.gpu_type: part.share / part.gpus for part in stage.parts}
    assert shares["V100"] > shares["P100"] > 0
    assert both.iteration_s < only.iteration_s


def test_it_begins_from_lean_plans_where_no_other_fits():
    """GPT-2 1.5B on two GPUs of 16 GiB: 23 GiB of state are too much for replicas, unless ZeRO shards it."""
    asked = request("gpt2-1.5b", 4, (V100,), (2,), Space(zero=(2,), recompute=(True,), micro_batches=(1,)))
    plain = replace(asked, space=Space(micro_batches=(1,)), _judged={})
    assert not improve(plain, starts(plain), evaluations=50).found
    assert improve(asked, starts(asked), evaluations=50).found


def test_nothing_is_proposed_where_nothing_fits():
    assert list(method("search").propose(request("gpt3-13b", 4, (T4,), (1,), seconds=0.0))) == []


def test_a_space_without_neighbours_ends_the_search():
    """One GPU, one micro-batch: one plan, however long there is."""
    asked = request("vgg16", 32, (V100,), (1,), Space(micro_batches=(1,)), seconds=600.0)
    assert [r.counts for r in improve(asked, starts(asked)).front] == [(1,)]


def test_a_measured_model_is_data_parallel():
    table = MeasuredTable({Point("toy", 0, "v100", 1, 1): Measurement(10.0)}, "by hand")
    performance = Performance(table=table)
    asked = Request(performance, "toy", 1, Fleet(performance, (V100,), (2,)), 2)
    assert [r.iteration_s for r in asked.judged(method("search").propose(asked))] == [0.1]


def test_without_prices_only_time_is_improved():
    free = replace(V100, name="X100", price_usd_per_h=None)
    asked = request("vgg16", 64, (free,), (4,), performance=PERFORMANCE)
    search = improve(asked, starts(asked), evaluations=100)
    assert search.front == [] and len(search.walkers) == 1
    proposed = list(method("search").propose(replace(asked, seconds=0.0)))
    assert asked.judged(proposed)[0].iteration_s <= asked.judged(starts(asked))[0].iteration_s


def test_it_may_be_stopped_after_any_step():
    """The front never falls behind what it was."""
    asked = request("bert-large", 32, (V100, T4), (4, 4))
    search = Search(asked, starts(asked))
    last = least(search.front)
    for _ in range(500):
        search.step()
        now = least(search.front)
        assert now[0] <= last[0] and now[1] <= last[1]
        last = now
