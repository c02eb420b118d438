"""Stages whose parts have tensor degrees of their own are proposed, searched for, bounded and found."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from experiments.brute_force import every_plan, question, ratios
from experiments.sailor_form import as_pipelines
from experiments.sailor_planners import as_plan, as_sailor
from policies.recommend.methods import sailor
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.ground import Ground
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.all_moves import moves_for
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.gather import METHODS, gather, proposed
from policies.recommend.searching.moves_gpus import mix_in, mix_out, reshare, resize_part, tensor_of_part
from sim.api import Part, Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.graph import GraphBuilder


def one_product(counts=(1, 2), micro_batches=(1, 2), **space):
    """One matrix product of 1.3e9 parameters: 20 GiB with the optimizer fit on an A100, and on two V100 together."""
    build = GraphBuilder("one", "a row", 2e3)
    build.add("product", "gemm", (-1,), 1e3, flops=1e13, params=1.3e9, stored_bytes=2e3, split=True,
              reduce_fwd_bytes=2e3, reduce_bwd_bytes=2e3)  # fmt: skip
    performance = Performance(graphs={"one": build.build()})
    fleet = Fleet(performance, [gpu_type("A100"), gpu_type("V100")], counts, (4, 4))
    return Request(performance, "one", 16, fleet, sum(counts),
                   Space(**{"tensor": (1, 2), "mixed": True, "micro_batches": micro_batches} | space))  # fmt: skip


def beside(fast=1, slow=2, share=0.75):
    return Stage(0, 0, "A100", fast + slow, 1, (Part("A100", fast, share), Part("V100", slow, 1 - share, 2)))


def unlike(plan):
    return any(stage.unlike for stage in plan.stages)


# -- which plans there are --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "allowed"), [
    (beside(), True), (beside(1, 1), False), (beside(2), False),
    (Stage(0, 0, "A100", 3, 1, (Part("A100", 1, 0.7), Part("V100", 2, 0.3, 4))), False),
    (Stage(0, 0, "V100", 3, 1, (Part("V100", 1, 0.5), Part("V100", 2, 0.5, 2))), False),
])  # fmt: skip
def test_the_space_has_degrees_that_divide_one_for_each_type(stage, allowed):
    """Not one GPU in twos, more GPUs than there are, a degree that was not asked for, nor one type in two degrees."""
    assert Ground(one_product()).allows(Plan((stage,))) == allowed


def test_replicas_count_not_gpus_where_samples_are_few():
    """16 samples in 8 micro-batches: two of each, for the two replicas of three GPUs."""
    ground = Ground(one_product(micro_batches=(8, 16)))
    assert ground.allows(Plan((beside(share=0.5),), 8)) and not ground.allows(Plan((beside(share=0.5),), 16))


@pytest.mark.parametrize("seed", [4, 7])
def test_bounds_hold_for_every_plan_of_a_small_model(seed):
    """Brute force: up to two stages, each part in any degree, each way to share a micro-batch."""
    asked = question(seed, (1, 2))
    plans = list(every_plan(asked, 2))
    assert any(map(unlike, plans)) and all(map(Ground(asked).allows, plans))
    found, bound = asked.judged(plans), lower_bound(asked)
    assert found and any(unlike(r.plan) for r in found)
    assert bound.iteration_s <= found[0].iteration_s
    assert bound.usd_per_iteration <= min(r.usd_per_iteration for r in found)


# -- found ------------------------------------------------------------------------------------------------------------


def test_the_search_takes_one_fast_gpu_beside_two_slow_ones_that_share():
    """Brute force over all plans of one operator; no V100 holds it alone, so of equal degrees none uses all GPUs."""
    asked, plans = one_product(), []
    for m in (1, 2):
        plans += [Plan((Stage(0, 0, name, n, ways),), m)
                  for name, n, ways in (("A100", 1, 1), ("V100", 2, 2), ("V100", 1, 1), ("V100", 2, 1))]  # fmt: skip
        plans += [Plan((beside(share=k * m / 16),), m) for k in range(1, 16 // m)]
    best = asked.judged(plans)[0]
    assert unlike(best.plan)
    found = gather(one_product(), METHODS, 400)
    assert found[0].iteration_s == pytest.approx(best.iteration_s, rel=1e-12) and unlike(found[0].plan)
    alike = gather(one_product(mixed=False), METHODS, 400)
    assert alike[0].iteration_s > 1.1 * found[0].iteration_s


def test_nothing_is_better_than_what_is_found():
    """As `test_brute_force`, with degrees 1 and 2 for each part."""
    time, usd = ratios(4, 600, (1, 2))[:2]
    assert time <= 1.005 and usd <= 1.005


def test_moves_change_the_degree_of_one_part_and_write_equal_plans_alike():
    ground, rng = Ground(one_product((4, 4), (1, 2))), np.random.default_rng(3)
    assert "tensor of a part" in moves_for(ground)
    assert "tensor of a part" not in moves_for(Ground(one_product(tensor=(1,))))
    plan, seen = Plan((Stage(0, 0, "A100", 1),)), set()
    for turn in range(400):
        move = (mix_in, tensor_of_part, tensor_of_part, resize_part, reshare, mix_out)[turn % 6]
        moved = move(plan, ground, rng)
        if moved is None or not ground.allows(moved):
            continue
        (stage,) = moved.stages
        assert stage.gpus == sum(part.gpus for part in stage.all_parts)
        assert stage.gpu_type == stage.all_parts[0].gpu_type
        # A part says its degree only where it is not the first one's, which is the stage's.
        assert all(part.tensor != stage.tensor for part in stage.parts)
        assert not stage.parts or stage.parts[0].tensor == 0
        assert sum(part.share for part in stage.all_parts) == pytest.approx(1)
        seen.add(tuple(stage.degree(part) for part in stage.all_parts))
        plan = moved
    assert seen >= {*product((1, 2), (1, 2))}


def test_sailor_gives_each_type_of_a_stage_its_degree():
    """One replica needs the A100, the other two V100, in one stage; of equal degrees it would leave a type out."""
    asked = one_product(micro_batches=(4,))
    found = [plan for plan in sailor.propose(asked) if unlike(plan)]
    assert {plan.stages for plan in found} == {
        (Stage(0, 0, "A100", 3, 1, (Part("A100", 1, 0.5), Part("V100", 2, 0.5, 2))),)}  # fmt: skip
    assert set(found) <= set(proposed(asked, "sailor"))
    assert not any(unlike(plan) for plan in sailor.propose(one_product(mixed=False)))


def test_sailors_plans_of_unlike_degrees_are_plans_of_ours(oracle_dir):
    """het32, het32b and s8: there and back they are the same replicas."""
    rows = json.loads((oracle_dir / "sailor" / "plans.json").read_text())["plans"]
    met = set()
    for row in rows:
        plan = as_pipelines(row) if row.get("pipelines") else None
        if plan is None or (ours := as_plan(plan)) is None or not unlike(ours):
            continue
        met.add(row["question"])
        zone = next(plan.replicas()).zone
        back = as_sailor(ours, row["global_batch"], zone).pipelines[0]
        for mine, its in zip(back, plan.pipelines[0], strict=True):
            assert (mine.first, mine.last) == (its.first, its.last)
            assert sorted((one.gpu, one.tensor) for one in mine.replicas) == sorted(
                (one.gpu, one.tensor) for one in its.replicas)  # fmt: skip
    assert met >= {"het32", "het32b", "s8"}
