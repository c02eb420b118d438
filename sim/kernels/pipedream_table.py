"""PipeDream's dynamic program: from one cut on, the pipeline of least period for every later cut and machine count.

A cut is a number that stands for all work before it. Numbers grow with that work; 0 is none of it, the last all.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def pipelines_from(
    start: int, time_s: np.ndarray, param_bytes: np.ndarray, stored_bytes: np.ndarray, cut_bytes: np.ndarray,
    room_bytes: np.ndarray, machines: int, most: int, bytes_per_s: float, within: int, transfers: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least period of a pipeline over start..j on exactly m machines, for all j and m.

    A stage between two cuts on r machines takes (time + 4 (r - 1) / r x parameter bytes / bandwidth) / r, and its
    transfers at either end 2 x cut bytes / (bandwidth x r). Of the first stage of a pipeline only what the next one
    receives is counted; where it is the only one, its exchange is divided by `within` (see
    `policies.recommend.algorithms.pipedream_levels`). A stage with m machines up to its end keeps ceil((machines - m) /
    r) more copies of its activations and weights.

    Parameters
    ----------
    start : cut at which the pipelines begin.
    time_s : float64 [C, C]
        Time of what lies between two cuts; inf where it is no stage, or one does not follow the other.
    param_bytes, stored_bytes, cut_bytes : float64 [C]
        Parameters and activations before each cut, and bytes that cross it.
    room_bytes : float64 [C, C]
        Memory for copies of what lies between two cuts; inf: no limit.
    machines, most : machines there are, and that a stage may have.
    bytes_per_s : float
        Bandwidth of each machine.
    within : int
        What the exchange of a stage that is alone is divided by.
    transfers : bool
        Whether activations cost time.

    Returns
    -------
    period_s : float64 [C, machines + 1]; inf: impossible.
    split : int64 [C, machines + 1]
        Cut before the last stage; `start` where that is the only one.
    replicas : int64 [C, machines + 1]
        Machines of the last stage.
    """
    cuts = len(param_bytes)
    period = np.full((cuts, machines + 1), np.inf)
    split = np.full((cuts, machines + 1), start, dtype=np.int64)
    replicas = np.zeros((cuts, machines + 1), dtype=np.int64)
    reached = np.zeros(cuts, np.bool_)
    for j in range(start + 1, cuts):
        params = param_bytes[j] - param_bytes[start]
        copy = params + stored_bytes[j] - stored_bytes[start]
        for r in range(1, most + 1 if time_s[start, j] < np.inf else 0):
            if -((r - machines) // r) * copy <= room_bytes[start, j]:
                exchange = 4.0 * (r - 1) * params / (bytes_per_s * r) / within
                period[j, r], replicas[j, r] = (time_s[start, j] + exchange) / r, r
                reached[j] = True
        for k in range(start + 1, j):
            if not reached[k] or time_s[k, j] == np.inf:
                continue
            params = param_bytes[j] - param_bytes[k]
            copy = params + stored_bytes[j] - stored_bytes[k]
            for r in range(1, min(most, machines - 1) + 1):
                stage = (time_s[k, j] + 4.0 * (r - 1) * params / (bytes_per_s * r)) / r
                if transfers:
                    sent = cut_bytes[k] if j == cuts - 1 else max(cut_bytes[k], cut_bytes[j])
                    stage = max(stage, 2.0 * sent / (bytes_per_s * r))
                for m in range(r + 1, machines + 1):
                    value = max(period[k, m - r], stage)
                    if value < period[j, m] and -((m - machines) // r) * copy <= room_bytes[k, j]:
                        period[j, m], split[j, m], replicas[j, m] = value, k, r
                        reached[j] = True
    return period, split, replicas


@jit
def all_pipelines(
    time_s: np.ndarray, param_bytes: np.ndarray, stored_bytes: np.ndarray, cut_bytes: np.ndarray,
    room_bytes: np.ndarray, machines: int, most: int, bytes_per_s: float, within: int, transfers: bool,
) -> np.ndarray:
    """float64 [C, C]: least period on all machines between any two cuts: the times of the level above."""
    out = np.full(time_s.shape, np.inf)
    for start in range(len(time_s) - 1):
        period, _, _ = pipelines_from(
            start, time_s, param_bytes, stored_bytes, cut_bytes, room_bytes, machines, most, bytes_per_s, within,
            transfers,
        )
        out[start] = period[:, machines]
    return out
