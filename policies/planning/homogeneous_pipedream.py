"""The baseline of one GPU type whose stages are PipeDream's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.recommend.market.planned_jobs import RecommendPolicy


@dataclass
class HomogeneousPipedream(RecommendPolicy):
    """Plans each job on one GPU type: the pipelines that PipeDream's planner finds there, and data parallelism."""

    single_type: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("data-parallel", "pipedream")
