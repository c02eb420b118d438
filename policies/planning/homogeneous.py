"""The baseline of `hetero`: the same planner and the same rules, but one GPU type for the whole job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.recommend.market.planned_jobs import RecommendPolicy


@dataclass
class Homogeneous(RecommendPolicy):
    """Plans each job on one GPU type, data-parallel or as a pipeline: the best that fits the free GPUs."""

    single_type: ClassVar[bool] = True
