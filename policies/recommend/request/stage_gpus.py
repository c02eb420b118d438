"""Which GPU serves which stage, once a plan has its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.api import Plan


def in_stage_order(plan: Plan, gpus_of_type: Mapping[str, np.ndarray]) -> np.ndarray:
    """Order a job's GPUs by stage, in a stage by part: int32 [GPUs].

    `gpus_of_type` holds the GPUs of each type, those of one node together. The largest parts of a type take theirs
    first: sizes are powers of two, so that whole stages fill whole nodes where they can.
    """
    parts = plan.parts
    gpus: list[np.ndarray] = [np.empty(0, dtype=np.int32)] * len(parts)
    at = dict.fromkeys(gpus_of_type, 0)
    for p in sorted(range(len(parts)), key=lambda p: -parts[p].gpus):
        name, n = parts[p].gpu_type, parts[p].gpus
        gpus[p] = gpus_of_type[name][at[name] : at[name] + n]
        at[name] += n
    return np.concatenate(gpus).astype(np.int32)


def counts_of(plan: Plan, types: tuple[str, ...]) -> tuple[int, ...]:
    """GPUs of each type that the plan uses."""
    parts = plan.parts
    return tuple(sum(part.gpus for part in parts if part.gpu_type == name) for name in types)
