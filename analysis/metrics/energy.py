"""Energy of the GPUs: idle power while in service and free, busy power while held. An unknown power is never zero."""

from __future__ import annotations

import numpy as np

from analysis.metrics.gputime import capacity_gpu_s, held_gpu_s
from analysis.run import Run

J_PER_KWH = 3.6e6


def node_kwh(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Energy of each node's GPUs in kWh, while held and while idle; NaN where time was spent at an unknown power.

    Held: ``busy_w * held GPU-s``, under a power cap ``power_cap_w * held GPU-s``. Idle: ``idle_w * (GPU-s in service -
    held GPU-s)``. A share of a GPU draws that share. `busy_w` is the board's power limit, so the held part is an upper
    bound of what the GPUs drew; hosts, switches and cooling are in neither. Both are integrals over states that last: a
    time shared by several events adds nothing and is never divided by.
    """
    held, under_cap, capped_j = held_gpu_s(run), np.zeros(len(run.nodes)), np.zeros(len(run.nodes))
    cap_w = run.column("segments", "power_cap_w").astype(float)
    if not np.isnan(cap_w).all():
        one = run.held
        length = (run.column("segments", "end_s") - run.column("segments", "begin_s"))[one.segment]
        time = np.where(np.isnan(cap_w[one.segment]), 0.0, one.milli / 1000.0 * length)
        np.add.at(under_cap, one.node, time)
        np.add.at(capped_j, one.node, time * np.nan_to_num(cap_w[one.segment]))
    free = np.maximum(held - under_cap, 0.0)
    idle = np.maximum(capacity_gpu_s(run) - held, 0.0)
    busy_j, idle_j = (
        np.where(time > 0, time * run.column("nodes", f"{name}_w").astype(float), 0.0)
        for name, time in (("busy", free), ("idle", idle))
    )
    return (busy_j + capped_j) / J_PER_KWH, idle_j / J_PER_KWH


def energy_kwh(run: Run) -> float | None:
    """Energy of all GPUs in kWh, held and idle (`node_kwh`); None as soon as time was spent at an unknown power."""
    return _known(sum(part.sum() for part in node_kwh(run)))


def energy_held_kwh(run: Run) -> float | None:
    """Energy of GPUs while held, in kWh, at their power limit: an upper bound; None where one is unknown."""
    return _known(node_kwh(run)[0].sum())


def energy_by_type_kwh(run: Run) -> dict[str, float | None]:
    """Energy of each GPU type in kWh, held and idle; None where a power is unknown."""
    total = np.bincount(run.node_type, weights=np.sum(node_kwh(run), axis=0), minlength=len(run.types))
    return {name: _known(value) for name, value in zip(run.types, total, strict=True)}


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
