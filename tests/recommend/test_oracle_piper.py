"""Piper's planner: by hand, by brute force, and against what the published one finds."""

from __future__ import annotations

import math
from functools import cache
from itertools import chain, combinations, pairwise, product

import numpy as np
import pytest

from policies.recommend import RecommendError
from policies.recommend.algorithms.piper_stages import Piper, PiperStage, best_plan, equal_stages, period_s
from tests.recommend.pipeline_files import piper_rows, piper_sets, read_piper_document

ROUNDING_S = 1e-9
"""The oracle's figures have ten significant digits."""


def row_of(work_s, *, tensor=(1,), params=None, flight=None, fixed=None, between=None, again_s=math.inf, **changes):
    """A chain: the same times for each tensor degree, divided by it; computed again for `again_s` more, no memory."""
    n, degrees = len(work_s), np.array(tensor, dtype=float)[:, None]
    time_s = np.stack([np.array(work_s) / degrees, (np.array(work_s) + again_s) / degrees], axis=2)
    params, flight, fixed = (np.zeros(n) if v is None else np.array(v, float) for v in (params, flight, fixed))
    both = [np.repeat((v / degrees)[:, :, None], 2, axis=2) for v in (params, flight, fixed)]
    both[1][:, :, 1] = 0
    edges = np.array([(i, i + 1) for i in range(n - 1)], dtype=np.int64).reshape(-1, 2)
    sync = np.zeros((len(tensor), len(edges), 2))
    edge_bytes = np.zeros(n - 1) if between is None else np.array(between, float)
    settings = {"devices": 2, "memory_bytes": math.inf, "bytes_per_s": 1.0, "micro_batches": 4} | changes
    return Piper(tuple(tensor), time_s, *both, edges, edge_bytes, sync, sync, **settings)


# -- by hand -----------------------------------------------------------------------------------------------


def test_an_even_chain_is_cut_in_half_or_replicated():
    plan = best_plan(row_of([1.0, 1.0]), piper_sets(row_of([1.0, 1.0])))
    assert plan.period_s == 1.0 and sum(stage.data * stage.tensor for stage in plan.stages) == 2


def test_a_border_is_paid_there_and_back_by_both_sides():
    """4 s + 4 s with 1 B between: both stages take 4 + 2; replicas of the whole with 100 B of weights take more."""
    problem = row_of([4.0, 4.0], params=[100, 100], between=[1.0])
    plan = best_plan(problem, piper_sets(problem))
    assert plan.period_s == 6.0 and [stage.ops for stage in plan.stages] == [(0,), (1,)]


def test_replicas_exchange_their_gradients_once_an_iteration():
    """(8 s + 4 x (2 - 1) x 2 B / (4 micro-batches x 1 B/s)) / 2."""
    problem = row_of([8.0], params=[2])
    assert best_plan(problem, piper_sets(problem)).period_s == (8 + 2) / 2


def test_replicas_divide_the_micro_batches():
    """Three devices, four micro-batches: three replicas are not allowed."""
    problem = row_of([6.0], devices=3)
    assert best_plan(problem, piper_sets(problem)).period_s == 3.0


def test_the_first_stage_holds_a_micro_batch_for_each_stage():
    """Straight pipeline of two: 2 + 1 micro-batches in flight. 10 B each: 20 B needed, 19 B force recomputation."""
    for room, again in ((20, ()), (19, (0,))):
        problem = row_of([4.0, 4.0], params=[9, 9], flight=[10, 10], memory_bytes=room, again_s=1.0)
        plan = best_plan(problem, piper_sets(problem), data=False)
        assert plan.stages[0].recomputed == again and plan.period_s == (5.0 if again else 4.0)
    assert best_plan(problem, piper_sets(problem), data=False, recompute=False) is None


def test_what_does_not_fit_has_no_plan():
    problem = row_of([1.0], fixed=[10], memory_bytes=9)
    assert best_plan(problem, piper_sets(problem)) is None
    assert equal_stages(problem, [0], [], []) is None
    assert period_s(problem, [PiperStage((0,), 1, 1, ())]) == math.inf


def test_tensor_parallelism_divides_what_must_fit():
    problem = row_of([4.0], fixed=[10], memory_bytes=9, tensor=(1, 2))
    assert best_plan(problem, piper_sets(problem)).stages == (PiperStage((0,), 2, 1, ()),)
    assert best_plan(problem, piper_sets(problem), tensor=False) is None


def test_no_devices_are_refused():
    with pytest.raises(RecommendError, match="devices"):
        row_of([1.0], devices=0)


# -- by brute force ----------------------------------------------------------------------------------------


def random_problem(seed):
    """Up to four operators in a random DAG; two degrees; memory that often makes some of them compute again."""
    rng = np.random.default_rng([seed, 52])
    n = int(rng.integers(2, 5))
    edges = np.array([e for e in combinations(range(n), 2) if rng.random() < 0.6] or [(0, 1)], dtype=np.int64)
    shape, sync = (2, n, 2), (2, len(edges), 2)
    time_s = rng.integers(1, 9, shape).astype(float)
    time_s[:, :, 1] = time_s[:, :, 0] + rng.integers(1, 4, shape[:2])
    flight = rng.integers(2, 9, shape).astype(float)
    flight[:, :, 1] = 1
    return Piper((1, 2), time_s, rng.integers(0, 9, shape).astype(float), flight,
                 rng.integers(0, 3, shape).astype(float), edges, rng.integers(0, 4, len(edges)).astype(float),
                 rng.integers(0, 3, sync).astype(float), rng.integers(0, 3, sync).astype(float),
                 int(rng.integers(1, 5)), float(rng.choice([14, 25, 1e9])), 4.0, int(rng.choice([2, 4])))


def chains_of(sets):
    """All chains of down-sets from none to all."""
    last = len(sets) - 1
    for inner in chain.from_iterable(combinations(range(1, last), k) for k in range(last)):
        ends = [0, *inner, last]
        if all((sets[i] <= sets[j]).all() for i, j in pairwise(ends)):
            yield ends


def brute_force(problem, sets, again):
    """Least period over chains, degrees and replicas; `again(ops)` lists the choices of what is computed again."""
    best = math.inf
    for ends in chains_of(sets):
        spans = [np.flatnonzero(sets[j] & ~sets[i]).tolist() for i, j in pairwise(ends)]
        for ways in product(product(problem.tensor, range(1, problem.devices + 1)), repeat=len(spans)):
            fits = sum(t * d for t, d in ways) <= problem.devices and sum(d for _, d in ways) <= problem.micro_batches
            if not fits or any(problem.micro_batches % d for _, d in ways):
                continue
            for chosen in product(*(again(span) for span in spans)):
                stages = [PiperStage(tuple(span), t, d, tuple(some))
                          for span, (t, d), some in zip(spans, ways, chosen, strict=True)]
                best = min(best, period_s(problem, stages))
    return best


def any_of(ops):
    return list(chain.from_iterable(combinations(ops, k) for k in range(len(ops) + 1)))


@pytest.mark.parametrize("seed", range(60))
def test_without_a_choice_of_ways_it_is_the_optimum(seed):
    problem = random_problem(seed)
    sets = piper_sets(problem)
    plan = best_plan(problem, sets, recompute=False)
    best = brute_force(problem, sets, lambda ops: [()])
    assert (math.inf if plan is None else plan.period_s) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(60))
def test_the_greedy_choice_of_ways_is_feasible_and_near_the_optimum(seed):
    """Never better than the best choice, never worse than computing nothing or all again; its period is its stages'."""
    problem = random_problem(seed)
    sets = piper_sets(problem)
    plan = best_plan(problem, sets)
    best = brute_force(problem, sets, any_of)
    all_or_none = brute_force(problem, sets, lambda ops: [(), tuple(ops)])
    found = math.inf if plan is None else plan.period_s
    assert best * (1 - 1e-12) <= found <= all_or_none * (1 + 1e-12)
    if plan is not None:
        assert period_s(problem, plan.stages) == pytest.approx(found)
        assert sum(stage.tensor * stage.data for stage in plan.stages) <= problem.devices


# -- against the published planner -------------------------------------------------------------------------


def test_every_row_of_the_published_planner_is_reproduced(data_dir, oracle_dir):
    """30 rows: the dynamic program, without data or tensor parallelism or recomputation, and equal stages."""
    document = cache(lambda layers: read_piper_document(data_dir / "graphs" / "piper" / "bert32a100.json", layers))
    rows = piper_rows(oracle_dir)
    assert len(rows) == 30 and len({row.algorithm for row in rows}) == 6
    for row in rows:
        plan = row.ours(document(row.layers))
        assert plan.period_s == pytest.approx(row.period_s, abs=ROUNDING_S), row
        assert period_s(row.problem(document(row.layers)), plan.stages) == pytest.approx(plan.period_s, rel=1e-12)
