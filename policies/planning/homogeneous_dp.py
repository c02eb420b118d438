"""The baseline that knows data parallelism only: each job on one GPU type, the type and number chosen for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.recommend.market.planned_jobs import RecommendPolicy


@dataclass
class HomogeneousDp(RecommendPolicy):
    """Plans each job on one GPU type, data-parallel: type and number are chosen, the model is not cut."""

    single_type: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("data-parallel",)
