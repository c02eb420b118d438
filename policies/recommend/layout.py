"""Which GPU serves which stage, once a plan has its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.api import Plan


def in_stage_order(plan: Plan, gpus_of_type: Mapping[str, np.ndarray]) -> np.ndarray:
    """Order a job's GPUs by stage: int32 [GPUs].

    `gpus_of_type` holds the GPUs of each type, those of one node together. The largest stages of a type
    take theirs first: sizes are powers of two, so that whole stages fill whole nodes where they can.
    """
    parts: list[np.ndarray] = [np.empty(0, dtype=np.int32)] * len(plan.stages)
    at = dict.fromkeys(gpus_of_type, 0)
    for s in sorted(range(len(plan.stages)), key=lambda s: -plan.stages[s].gpus):
        name, n = plan.stages[s].gpu_type, plan.stages[s].gpus
        parts[s] = gpus_of_type[name][at[name] : at[name] + n]
        at[name] += n
    return np.concatenate(parts).astype(np.int32)


def counts_of(plan: Plan, types: tuple[str, ...]) -> tuple[int, ...]:
    """GPUs of each type that the plan uses."""
    return tuple(sum(stage.gpus for stage in plan.stages if stage.gpu_type == name) for name in types)
