"""Pipeline schedules over p unequal stages and m micro-batches, by their exact recurrences.

A stage works on one micro-batch at a time, in a fixed order. Each border between stages has one channel a
direction, beside the computation: a message waits until the one before it is through, then takes comm
seconds. An operation starts when its stage is free and its input has arrived.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
def gpipe_s(fwd: np.ndarray, bwd: np.ndarray, comm: np.ndarray, m: int) -> tuple[float, np.ndarray]:
    """GPipe: each stage does all forwards, then all backwards.

    Without communication the time is  sum f + (m - 1) max f + sum b + (m - 1) max b.

    Parameters
    ----------
    fwd, bwd : float64 [p]
        Seconds of a micro-batch in each stage.
    comm : float64 [p - 1]
        Seconds of a message across each border, either way.
    m : micro-batches, 1 or more.

    Returns
    -------
    iteration_s : end of the last backward of all.
    last_end_s : float64 [p]
        End of each stage's last backward.
    """
    p = len(fwd)
    free = np.zeros(p)
    channel = np.zeros(p)
    for _ in range(m):
        arrival = 0.0
        for s in range(p):
            free[s] = max(free[s], arrival) + fwd[s]
            if s < p - 1:
                channel[s] = max(channel[s], free[s]) + comm[s]
                arrival = channel[s]
    channel[:] = 0.0
    for _ in range(m):
        arrival = 0.0
        for s in range(p - 1, -1, -1):
            free[s] = max(free[s], arrival) + bwd[s]
            if s > 0:
                channel[s - 1] = max(channel[s - 1], free[s]) + comm[s - 1]
                arrival = channel[s - 1]
    return free.max(), free


@jit
def one_f_one_b_s(
    fwd: np.ndarray, bwd: np.ndarray, comm_fwd: np.ndarray, comm_bwd: np.ndarray, m: int
) -> tuple[float, np.ndarray]:
    """1F1B with a flush: min(m, p - s) forwards on stage s, then backward and forward in turn, then the rest.

    So stage s never holds more than min(m, p - s) micro-batches. Parameters and results are those of
    `gpipe_s`, with the messages forward and backward apart. Equal stages without communication and m >= p
    give  (m + p - 1)(f + b).
    """
    p = len(fwd)
    # Arrival of each micro-batch's input at each stage; infinite until its sender has finished.
    input_at = np.full((p, m), np.inf)
    grad_at = np.full((p, m), np.inf)
    input_at[0, :] = 0.0
    free = np.zeros(p)
    channel_fwd = np.zeros(p)
    channel_bwd = np.zeros(p)
    done = np.zeros(p, dtype=np.int64)
    left = 2 * m * p
    while left > 0:
        # Down and back up: each pass takes every stage as far as its inputs reach.
        for i in range(2 * p):
            s = i if i < p else 2 * p - 1 - i
            warm = min(m, p - s)
            steady = 2 * (m - warm)
            while done[s] < 2 * m:
                at = done[s] - warm
                forward = at < 0 or (at < steady and at % 2 == 1)
                if forward:
                    k = done[s] if at < 0 else warm + at // 2
                    ready = input_at[s, k]
                else:
                    k = at // 2 if at < steady else at - (m - warm)
                    ready = grad_at[s, k]
                if ready == np.inf:
                    break
                free[s] = max(free[s], ready) + (fwd[s] if forward else bwd[s])
                if not forward and s > 0:
                    channel_bwd[s - 1] = max(channel_bwd[s - 1], free[s]) + comm_bwd[s - 1]
                    grad_at[s - 1, k] = channel_bwd[s - 1]
                elif forward and s < p - 1:
                    channel_fwd[s] = max(channel_fwd[s], free[s]) + comm_fwd[s]
                    input_at[s + 1, k] = channel_fwd[s]
                elif forward:
                    grad_at[s, k] = free[s]
                done[s] += 1
                left -= 1
    return free.max(), free


@jit
def one_f_one_b_many_s(
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm_fwd: np.ndarray,
    comm_bwd: np.ndarray,
    stages: np.ndarray,
    m: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`one_f_one_b_s` of n plans at once.

    Parameters
    ----------
    fwd, bwd, comm_fwd, comm_bwd : float64 [n, P]
        Rows as above; what is beyond a plan's stages (or borders) is not read.
    stages, m : int64 [n]
        Stages and micro-batches of each plan.

    Returns
    -------
    iteration_s : float64 [n]
    last_end_s : float64 [n, P], NaN beyond a plan's stages.
    """
    n = len(stages)
    iteration = np.empty(n)
    last_end = np.full(fwd.shape, np.nan)
    for i in range(n):
        p = stages[i]
        iteration[i], ends = one_f_one_b_s(
            fwd[i, :p], bwd[i, :p], comm_fwd[i, : p - 1], comm_bwd[i, : p - 1], m[i]
        )
        last_end[i, :p] = ends
    return iteration, last_end
