"""Partition and select: the stages, GPU types and counts that are best for each job among the free GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.recommend.market.planned_jobs import RecommendPolicy


@dataclass
class Hetero(RecommendPolicy):
    """Plans each job over mixed GPU types: pipeline stages of its model, each on its own type and count.

    GPUs have prices that follow demand; a job starts on the plan that costs it least among those that fit, and moves
    when another one costs so much less that the restart pays. Worker sizes are not used: the plan sizes the gang, up
    to `max_scale` times the one asked for.
    """

    methods: ClassVar[tuple[str, ...]] = ("exact", "uneven")
