"""What the recommender answers for real models: checked against the performance model, by hand and by law."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.recommend import Planner, RecommendError, front, ranked, recommend
from policies.recommend.methods import exact
from policies.recommend.request.partition_problem import Problem, blocks_of
from policies.recommend.request.request import MICRO_BATCHES, Recommendation, undominated
from policies.recommend.searching.plan_tables import table
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import MODELS, MeasuredTable, Performance, PerformanceError
from sim.performance.tables import Measurement, Point

V100, P100, T4 = (gpu_type(name) for name in ("V100", "P100", "T4"))
PERFORMANCE = Performance()
JOBS = [(name, model.gpu_batch_sizes[0] * 4, 4) for name, model in MODELS.items() if model.gpu_batch_sizes]


def problem(model="gpt2-1.5b", batch=16, types=(V100, P100), counts=(4, 4), budget=8):
    return Problem(PERFORMANCE, model, batch, types, counts, (8,) * len(types), budget)


# -- the problem -------------------------------------------------------------------------------------------


def test_blocks_by_hand():
    """Six operators of 1 s in three blocks: cuts near 2 s and 4 s; equal bytes cut exactly there."""
    assert blocks_of(np.ones(6), np.ones(6), 3).tolist() == [0, 2, 4, 6]


def test_a_cheap_cut_near_the_dividing_point_is_preferred():
    """Eight operators in two blocks: of the cuts near the middle, the one after operator 4 sends least."""
    cut = np.array([0.0, 0.0, 9, 9, 1, 9, 0, 0])
    assert blocks_of(np.ones(8), cut, 2).tolist() == [0, 5, 8]


def test_a_long_operator_is_a_block_of_its_own():
    """Of 10 s, the middle operator takes 6, or 8: it cannot be cut, so four blocks become three."""
    assert blocks_of(np.array([2.0, 6, 2]), np.zeros(3), 4).tolist() == [0, 1, 2, 3]
    assert blocks_of(np.array([1.0, 8, 1]), np.zeros(3), 4).tolist() == [0, 1, 2, 3]
    assert blocks_of(np.array([5.0]), np.zeros(1), 4).tolist() == [0, 1]


@pytest.mark.parametrize("model", MODELS)
def test_a_stage_alone_costs_what_the_truth_says(model):
    """m t_s is exact for one stage: forward, backward, all-reduce over the replicas, optimizer step."""
    p = problem(model, batch=64, counts=(8, 8))
    for m in (1, 4):
        cost, hold = p.cost_s(m), p.hold(m)
        for t, gpu in enumerate(p.types):
            for q, replicas in enumerate(p.sizes):
                gpus = np.arange(replicas, dtype=np.int32) + 8 * t
                plan = Plan((Stage(0, int(p.first_op[-1]) - 1, gpu.name, replicas),), m)
                planner = Planner(PERFORMANCE, p.types, p.counts)
                truth = PERFORMANCE.plan(model, 64, plan, gpus, planner.fleet.spec)
                assert (hold[0, -1, t, q] >= 1) == truth.fits
                if truth.fits:
                    assert m * cost[0, -1, t, q] == pytest.approx(truth.iteration_s, rel=1e-9)


@settings(max_examples=60)
@given(st.data())
def test_in_flight_micro_batches_fit_and_one_more_does_not(data):
    """P-48: `hold` is where memory ends, by the performance model's own formula."""
    p = problem(data.draw(st.sampled_from(list(MODELS))), batch=64)
    m = data.draw(st.sampled_from(MICRO_BATCHES))
    i = data.draw(st.integers(0, p.blocks - 1))
    j = data.draw(st.integers(i, p.blocks - 1))
    t, q = data.draw(st.integers(0, 1)), data.draw(st.integers(0, len(p.sizes) - 1))
    held, samples = int(p.hold(m)[i, j, t, q]), p.samples(m, p.sizes[q])
    span = p.model, int(p.first_op[i]), int(p.first_op[j + 1]) - 1
    if held:
        assert PERFORMANCE.stage_memory_gib(*span, samples, held) <= p.types[t].memory_gib * (1 + 1e-9)
    if held < m:
        assert PERFORMANCE.stage_memory_gib(*span, samples, held + 1) > p.types[t].memory_gib * (1 - 1e-9)


def test_gpipe_holds_all_micro_batches():
    """P-48: under GPipe a stage has memory for all m micro-batches, or cannot be used."""
    p = problem("bert-large", batch=64)
    gpipe = replace(p, performance=Performance(schedule="gpipe"))
    assert set(np.unique(gpipe.hold(8))) <= {0, 8}
    assert ((gpipe.hold(8) == 8) == (p.hold(8) == 8)).all()


@pytest.mark.parametrize(("schedule", "held"), [("1f1b", [4, 3, 2, 1]), ("gpipe", [8, 8, 8, 8])])
def test_memory_of_four_stages_and_eight_micro_batches(schedule, held):
    """P-48: stage 0 of 4 holds 4 micro-batches in 1F1B, 8 in GPipe; the plan reports that memory."""
    performance = Performance(schedule=schedule)
    planner = Planner(performance, [V100], [4])
    ends = [-1, 49, 97, 145, 196]
    stages = tuple(Stage(a + 1, b, "V100", 1) for a, b in pairwise(ends))
    answer = planner.request("bert-large", 8, sum(planner.fleet.counts)).truth(Plan(stages, 8))
    expected = [
        performance.stage_memory_gib("bert-large", s.first_op, s.last_op, 1, n)
        for s, n in zip(stages, held, strict=True)
    ]
    assert answer.plan.memory_gib == pytest.approx(expected, rel=1e-12)


# -- the recommendation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "batch", "gpus"), [*JOBS, ("gpt2-1.5b", 24, 12), ("resnet50", 4096, 64)])
def test_plans_are_legal_and_say_what_the_truth_says(model, batch, gpus):
    planner = Planner(PERFORMANCE, [V100, P100, T4], [16, 16, 64])
    for r in planner.front(model, batch, gpus):
        plan = r.plan
        assert plan.stages[0].first_op == 0
        assert plan.stages[-1].last_op == len(PERFORMANCE.graph(model)) - 1
        assert all(a.last_op + 1 == b.first_op for a, b in pairwise(plan.stages))
        assert plan.num_gpus == sum(r.counts) <= gpus
        assert all(n <= most for n, most in zip(r.counts, planner.fleet.counts, strict=True))
        truth = PERFORMANCE.plan(model, batch, plan, planner.fleet.gpus(plan), planner.fleet.spec)
        assert truth.fits
        assert r.iteration_s == plan.iteration_s == truth.iteration_s
        assert plan.memory_gib == truth.memory_gib
        usd_per_h = np.dot(r.counts, [t.price_usd_per_h for t in planner.fleet.types])
        assert r.usd_per_iteration == pytest.approx(r.iteration_s * usd_per_h / 3600, rel=1e-12)


@pytest.mark.parametrize("objective", ["time", "cost"])
@pytest.mark.parametrize(("model", "batch", "gpus"), [*JOBS, ("gpt2-1.5b", 32, 8), ("vgg16", 512, 16)])
def test_mixed_types_are_never_worse_than_one_type(model, batch, gpus, objective):
    """Each plan on one type is a plan of the mixed search too."""
    planner = Planner(PERFORMANCE, [V100, P100, T4], [6, 8, 8])
    mixed = planner.best(model, batch, gpus, objective)
    single = planner.best(model, batch, gpus, objective, single_type=True)
    assert sum(n > 0 for n in single.counts) == 1
    value = "iteration_s" if objective == "time" else "usd_per_iteration"
    assert getattr(mixed, value) <= getattr(single, value)


def test_a_mixture_is_faster_where_the_fast_type_runs_short():
    """Four V100 and four P100: GPT-2 is faster with both than on either alone."""
    planner = Planner(PERFORMANCE, [V100, P100], [4, 4])
    mixed, single = planner.best("gpt2-1.5b", 16, 8), planner.best("gpt2-1.5b", 16, 8, single_type=True)
    assert min(mixed.counts) > 0
    assert mixed.iteration_s < single.iteration_s


def test_a_mixture_fits_where_no_single_type_does():
    """GPT-2 1.5B takes 16 bytes a parameter, 23 GiB, and activations: two GPUs of 16 GiB are too few."""
    planner = Planner(PERFORMANCE, [V100, P100], [2, 2])
    with pytest.raises(RecommendError, match="fits no plan"):
        planner.best("gpt2-1.5b", 4, 4, single_type=True)
    assert planner.best("gpt2-1.5b", 4, 4).counts == (2, 2)


def test_one_gpu_that_lacks_memory_is_told_with_both_figures():
    """On one GPU the need is that of the whole model with one sample, as the performance model says."""
    need = PERFORMANCE.stage_memory_gib("gpt2-1.5b", 0, len(PERFORMANCE.graph("gpt2-1.5b")) - 1, 1, 1)
    with pytest.raises(RecommendError) as caught:
        recommend(PERFORMANCE, "gpt2-1.5b", 4, [V100, T4], [8, 8], 1)
    assert f"{need:.2f} GiB needed" in str(caught.value)
    assert "16 GiB there" in str(caught.value)
    assert "gpt2-1.5b" in str(caught.value) and "V100" in str(caught.value)


def test_unknown_memory_is_an_error_not_a_fit():
    """P-47: a type without a capacity cannot be planned with."""
    for unknown in (math.nan, 0.0, math.inf):
        with pytest.raises(RecommendError, match="memory of a GPU type is unknown"):
            recommend(PERFORMANCE, "resnet50", 64, [V100, replace(T4, memory_gib=unknown)], [1, 1], 2)


def test_unknown_price_is_never_the_cheapest():
    """P100 without a price: cost chooses among the others; time may still choose it."""
    unpriced = replace(V100, name="X100", price_usd_per_h=None)
    planner = Planner(Performance(), [unpriced, T4], [4, 4])
    assert planner.best("resnet50", 64, 4).counts[0] > 0
    assert math.isnan(planner.best("resnet50", 64, 4).usd_per_iteration)
    assert planner.best("resnet50", 64, 4, "cost").counts[0] == 0
    with pytest.raises(RecommendError, match="no plan has a known cost"):
        Planner(Performance(), [unpriced], [4]).best("resnet50", 64, 4, "cost")


def test_cheapest_within_a_time_bound():
    """The bound is kept, a looser one never costs more, and none at all gives the cheapest of the front."""
    planner = Planner(PERFORMANCE, [V100, P100, T4], [8, 8, 8])
    plans = planner.front("bert-large", 64, 8)
    fastest, last = plans[0].iteration_s, math.inf
    for within in (1.0, 1.2, 1.5, 2.0, 4.0, None):
        r = planner.best("bert-large", 64, 8, "cost", within)
        assert within is None or r.iteration_s <= within * fastest
        assert r.usd_per_iteration <= last
        last = r.usd_per_iteration
    assert last == min(r.usd_per_iteration for r in plans)
    assert planner.best("bert-large", 64, 8, "cost").usd_per_iteration < plans[0].usd_per_iteration


def test_no_plan_of_the_front_is_dominated():
    plans = front(PERFORMANCE, "vgg16", 128, [V100, P100, T4], [8, 8, 8], 8)
    assert [r.iteration_s for r in plans] == sorted(r.iteration_s for r in plans)
    for a, b in combinations(plans, 2):
        fewer = all(x <= y for x, y in zip(a.counts, b.counts, strict=True))
        assert not (fewer and a.iteration_s <= b.iteration_s)
    single = front(PERFORMANCE, "vgg16", 128, [V100, P100, T4], [8, 8, 8], 8, single_type=True)
    assert all(sum(n > 0 for n in r.counts) == 1 for r in single)


def test_undominated_keeps_one_of_equals():
    vectors = np.array([[1, 0], [1, 0], [0, 1], [1, 1], [2, 0]])
    kept = undominated(vectors, np.array([2.0, 2.0, 3.0, 2.5, 1.0]))
    assert kept.tolist() == [True, False, True, False, True]


@given(st.lists(st.tuples(st.tuples(*[st.integers(0, 3)] * 3), st.sampled_from([1.0, 2.0, 3.0, np.inf])), max_size=12))
def test_undominated_by_its_definition(pairs):
    """Each against each: as few of each type and as fast beats; the first of equals stays; inf never does."""
    def beats(u, v):
        (few, fast), (many, slow) = pairs[u], pairs[v]
        as_good = all(a <= b for a, b in zip(few, many, strict=True)) and fast <= slow
        return as_good and (pairs[u] != pairs[v] or u < v)

    vectors = np.array([vector for vector, _ in pairs], dtype=np.int64).reshape(-1, 3)
    wanted = [t < np.inf and not any(beats(u, v) for u in range(len(pairs))) for v, (_, t) in enumerate(pairs)]
    assert undominated(vectors, np.array([t for _, t in pairs])).tolist() == wanted


def test_a_gang_that_units_do_not_reach_is_still_tried_whole():
    """Nine GPUs are counted in twos, but data parallelism over all nine is among the plans."""
    planner = Planner(PERFORMANCE, [V100], [64])
    assert any(r.counts == (9,) for r in planner.front("resnet50", 9 * 128, 9))


def test_wrong_requests_are_told():
    with pytest.raises(RecommendError, match="unknown objective"):
        recommend(PERFORMANCE, "resnet50", 64, [V100], [1], 1, "speed")
    with pytest.raises(RecommendError, match="multiple of the best time"):
        recommend(PERFORMANCE, "resnet50", 64, [V100], [1], 1, "cost", 0.5)
    with pytest.raises(RecommendError, match="a GPU and a sample"):
        recommend(PERFORMANCE, "resnet50", 64, [V100], [1], 0)
    with pytest.raises(RecommendError, match="no GPUs"):
        recommend(PERFORMANCE, "resnet50", 64, [V100], [0], 4)
    with pytest.raises(PerformanceError, match="unknown model"):
        recommend(PERFORMANCE, "resnet-50", 64, [V100], [1], 1)


def test_a_measured_model_is_not_cut():
    """Rates by hand: 10 and 18 steps/s on one and two V100, 4 on one T4; two T4 were never measured."""
    rates = {("v100", 1): 10.0, ("v100", 2): 18.0, ("t4", 1): 4.0}
    table = MeasuredTable({Point("toy", 0, *key, 1): Measurement(rate) for key, rate in rates.items()}, "by hand")
    planner = Planner(Performance(table=table), [V100, T4], [4, 4])
    assert [(r.counts, r.iteration_s) for r in planner.front("toy", 1, 2)] == [
        ((2, 0), 1 / 18), ((1, 0), 1 / 10), ((0, 1), 1 / 4),
    ]
    with pytest.raises(RecommendError, match="no measured rate fits"):
        Planner(planner.performance, [P100], [4]).front("toy", 1, 2)


# -- quality and speed -------------------------------------------------------------------------------------


def every_plan(planner, model, batch, budget):
    """The truth of every plan over the planner's own blocks, micro-batch counts and replica counts."""
    first = exact.problem(planner.request(model, batch, budget), range(len(planner.fleet.types))).first_op.tolist()
    for p in range(1, budget + 1):
        for cuts in combinations(range(1, len(first) - 1), p - 1):
            ends = (0, *cuts, len(first) - 1)
            for choice in product(product(planner.fleet.types, (1, 2, 4)), repeat=p):
                counts = [sum(r for t, r in choice if t is gpu) for gpu in planner.fleet.types]
                if sum(counts) > budget or any(n > c for n, c in zip(counts, planner.fleet.counts, strict=True)):
                    continue
                stages = tuple(
                    Stage(first[a], first[b] - 1, t.name, r)
                    for a, b, (t, r) in zip(ends, ends[1:], choice, strict=False)
                )
                for m in MICRO_BATCHES:
                    r = planner.request(model, batch, budget).truth(Plan(stages, m)) if m <= batch else None
                    if r is not None:
                        yield r


@pytest.mark.parametrize(
    ("model", "batch", "types", "counts", "gap"),
    [
        ("bert-large", 16, (V100, P100), (2, 1), 1.0),
        ("gpt2-1.5b", 4, (V100, P100), (2, 2), 1.0),
        ("transformer", 64, (V100, T4), (1, 2), 1.0),
        ("lstm-lm", 80, (V100, T4), (2, 2), 1.05),
        ("vgg16", 128, (V100, P100), (2, 2), 1.08),
    ],
)
def test_how_far_from_the_best_plan_there_is(model, batch, types, counts, gap):
    """The table's time is an approximation in a pipeline: `gap` states how much it loses by the truth.

    Where what follows the last backward weighs (vgg16: 123 million parameters in one operator), the
    table charges a later stage for what an earlier one hides.
    """
    planner = Planner(PERFORMANCE, types, counts, (4, 4))
    budget = min(4, sum(counts))
    best = min(r.iteration_s for r in every_plan(planner, model, batch, budget))
    ratio = planner.best(model, batch, budget).iteration_s / best
    print(f"{model}: {ratio:.4f} of the best")
    assert 1 - 1e-12 <= ratio <= gap + 1e-9


def test_the_table_equals_brute_force_on_a_real_problem():
    """GPT-2 on 2 + 2 GPUs: the table's least time is that of the best of all plans, by the table's form."""
    p = problem(batch=4, counts=(2, 2), budget=4)
    cost, border, hold, m = p.cost_s(4), p.border_s(4), p.hold(4), 4
    best, plans = table(p, m, np.full(9, np.inf))
    truth = math.inf
    for stages in range(1, 5):
        for cuts in combinations(range(1, p.blocks), stages - 1):
            ends = (0, *cuts, p.blocks)
            for choice in product(product(range(2), range(len(p.sizes))), repeat=stages):
                used = [sum(p.sizes[q] for t, q in choice if t == kind) for kind in range(2)]
                if max(used) > 2:
                    continue
                spans = [(a, b - 1, *tq) for a, b, tq in zip(ends, ends[1:], choice, strict=False)]
                if any(hold[s] < min(m, stages - n) for n, s in enumerate(spans)):
                    continue
                t_s = [cost[s] for s in spans]
                x_s = [border[b[0], a[2], b[2]] for a, b in pairwise(spans)]
                truth = min(truth, sum(t_s) + sum(x_s) + (m - 1) * max(*t_s, *(x / 2 for x in x_s), 0))
    assert math.isfinite(truth)
    assert best.min() == pytest.approx(truth, rel=1e-12)
    assert plans[int(best.argmin())].iteration_s == best.min()


def test_the_same_question_is_answered_from_memory():
    planner = Planner(PERFORMANCE, [V100, P100], [8, 8])
    assert planner.front("vgg16", 64, 4) is planner.front("vgg16", 64, 4)
    assert ranked(planner.front("vgg16", 64, 4))[0] == planner.best("vgg16", 64, 4)


@pytest.mark.parametrize(("batch", "gpus"), [(64, 8), (128, 8), (96, 6)])
def test_stages_take_any_number_of_gpus(batch, gpus):
    """PipeDream's own example: VGG-16's convolutions on all T4 but one, which has the large matrices.

    With stages of 1, 2, 4, ... GPUs `exact` was 8 to 17 % slower than PipeDream's planner here.
    """
    def best(*methods: str) -> Recommendation:
        planner = Planner(Performance(calibration="scripts"), [T4], [gpus], [8], methods=methods)
        return planner.best("vgg16", batch, gpus)

    found = best("exact")
    assert [stage.gpus for stage in found.plan.stages] == [gpus - 1, 1]
    assert found.iteration_s <= best("data-parallel", "pipedream").iteration_s
