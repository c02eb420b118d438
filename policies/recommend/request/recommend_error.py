"""Errors of the recommender."""

from __future__ import annotations

from sim.api import HetsimError


class RecommendError(HetsimError):
    """No plan can be recommended: nothing fits, a figure is unknown, or the request makes no sense."""
