"""The planner finds the best of all plans of small random models: up to three stages, on any GPUs of two types."""

from __future__ import annotations

import pytest

from experiments.brute_force import BATCH, every_plan, question, ratios
from policies.recommend.request.ground import Ground


@pytest.mark.parametrize("seed", [4, 11])
def test_nothing_is_better_than_what_is_found(seed):
    """By the truth of every plan, with stages on both types, each way to share a micro-batch in whole samples."""
    time, usd = ratios(seed, 600)[:2]
    assert time <= 1.005 and usd <= 1.005


def test_every_plan_is_one_that_the_space_has():
    asked = question(4)
    ground, plans = Ground(asked), list(every_plan(asked))
    assert len(set(plans)) == len(plans)
    assert all(map(ground.allows, plans))
    assert {len(plan.stages) for plan in plans} == {1, 2, 3}
    assert any(stage.parts for plan in plans for stage in plan.stages)
    parts = [(part, plan) for plan in plans for stage in plan.stages for part in stage.parts]
    assert any(abs(n - round(n)) < 1e-9 for n in (part.share * BATCH / plan.micro_batches for part, plan in parts))
