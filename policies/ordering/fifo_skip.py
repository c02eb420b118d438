"""First in, first out among the jobs that fit: no head-of-line blocking."""

from __future__ import annotations

from dataclasses import dataclass

from policies.mechanisms import Ordered


@dataclass
class FifoSkip(Ordered):
    """First in, first out, but a job that does not fit is skipped (it may starve). Tiresias' simulator calls it fjf."""
