"""How many GPUs of each type a plan uses."""

from __future__ import annotations

from sim.api import Plan


def counts_of(plan: Plan, types: tuple[str, ...]) -> tuple[int, ...]:
    """GPUs of each type that the plan uses."""
    parts = plan.parts
    return tuple(sum(part.gpus for part in parts if part.gpu_type == name) for name in types)
