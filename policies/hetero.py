"""Partition and select: the stages, GPU types and counts that are best for each job among the free GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from policies.recommend.policy import RecommendPolicy


@dataclass
class Hetero(RecommendPolicy):
    """Plans each job over mixed GPU types: pipeline stages of its model, each on its own type and count.

    A job starts with the best plan that fits and does not waste GPUs that others ask for (`efficiency`), and moves
    to a better one when that pays (`move_gain`). Worker sizes are not used: the plan sizes the gang, up to
    `max_scale` times the one asked for.
    """
