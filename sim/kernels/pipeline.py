"""Pipeline schedules of many plans at once, over p unequal stages and m micro-batches, by their exact recurrences.

A GPU works on one micro-batch at a time, in a fixed order. Each border between neighbours has one channel a direction,
beside the computation: a message waits until the one before it is through, then takes comm seconds. An operation
starts when its GPU is free and its input has arrived. Since every order is fixed, the end of each operation is the
maximum of two earlier ends, plus its length: the operations are gone through once, in an order that never needs an end
that is not there yet, and of each channel only its last message is kept.

Rows are plans. What is beyond a plan's stages (or borders) is not read. A NaN in what is read makes the plan's results
NaN; the maximum of two numbers alone would lose it.

Parameters of all kernels
-------------------------
fwd, bwd : float64 [n, P], seconds of a micro-batch in each stage.
comm_fwd, comm_bwd : float64 [n, P - 1], seconds of a message across each border, there and back.
stages : int64 [n], GPUs p of each plan, 1 to P.
m : int64 [n], micro-batches, 1 or more.

Callers check the ranges and convert the types (`sim.performance.iteration.schedule_ends_s`).
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@jit
def gpipe_many_s(
    fwd: np.ndarray, bwd: np.ndarray, comm_fwd: np.ndarray, comm_bwd: np.ndarray, stages: np.ndarray, m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """GPipe (Huang et al. 2019, arXiv:1811.06965): each stage does all forwards, then all backwards.

    Without communication the time is  sum f + (m - 1) max f + sum b + (m - 1) max b.

    Returns
    -------
    iteration_s : float64 [n], end of the last backward of all.
    last_end_s : float64 [n, P], end of each stage's last backward; NaN beyond a plan's stages.
    """
    n = len(stages)
    iteration, last_end = np.empty(n), np.full(fwd.shape, np.nan)
    channel = np.zeros(fwd.shape[1])
    for i in range(n):
        p = stages[i]
        last_end[i, :p] = 0.0
        channel[:p] = 0.0
        for _ in range(m[i]):
            arrival = 0.0
            for s in range(p):
                end = max(last_end[i, s], arrival) + fwd[i, s]
                last_end[i, s] = end
                if s < p - 1:
                    arrival = max(channel[s], end) + comm_fwd[i, s]
                    channel[s] = arrival
        channel[:p] = 0.0
        for _ in range(m[i]):
            arrival = 0.0
            for s in range(p - 1, -1, -1):
                end = max(last_end[i, s], arrival) + bwd[i, s]
                last_end[i, s] = end
                if s > 0:
                    arrival = max(channel[s], end) + comm_bwd[i, s - 1]
                    channel[s] = arrival
        _finish(i, p, fwd, bwd, comm_fwd, comm_bwd, iteration, last_end)
    return iteration, last_end


@jit
def one_f_one_b_many_s(
    fwd: np.ndarray, bwd: np.ndarray, comm_fwd: np.ndarray, comm_bwd: np.ndarray, stages: np.ndarray, m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """1F1B with a flush: min(m, p - s) forwards on stage s, then backward and forward in turn, then the rest.

    So stage s never holds more than min(m, p - s) micro-batches (Narayanan et al. 2019, PipeDream, section 3.2).
    Equal stages without communication and m >= p give  (m + p - 1)(f + b). Results are those of `gpipe_many_s`.

    In round r = 1 - p ... m - 1 stage s does forward p - s + r - 1, then backward r. The forward's input was sent in
    the round before, the backward's gradient in the same round by the stage behind: hence stages from last to first.
    """
    n = len(stages)
    iteration, last_end = np.empty(n), np.full(fwd.shape, np.nan)
    sent_fwd, sent_bwd = np.zeros(fwd.shape[1]), np.zeros(fwd.shape[1])
    for i in range(n):
        p, micro = stages[i], m[i]
        last_end[i, :p] = 0.0
        sent_fwd[:p] = 0.0
        sent_bwd[:p] = 0.0
        for r in range(1 - p, micro):
            gradient = 0.0
            # Stages before `low` have done their forwards; those before `first` wait for their first one.
            low, first = p + r - micro, p + r - 1
            for s in range(p - 1, -1, -1):
                end = last_end[i, s]
                if low <= s <= first:
                    # What stage s receives is in sent_fwd[s]; stage 0 receives nothing, and nothing is sent to it.
                    end = max(end, sent_fwd[s]) + fwd[i, s]
                    if s < p - 1:
                        sent_fwd[s + 1] = max(sent_fwd[s + 1], end) + comm_fwd[i, s]
                if r >= 0:
                    end = max(end, gradient) + bwd[i, s]
                    if s > 0:
                        gradient = max(sent_bwd[s], end) + comm_bwd[i, s - 1]
                        sent_bwd[s] = gradient
                last_end[i, s] = end
        _finish(i, p, fwd, bwd, comm_fwd, comm_bwd, iteration, last_end)
    return iteration, last_end


@jit
def interleaved_many_s(
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm_fwd: np.ndarray,
    comm_bwd: np.ndarray,
    stages: np.ndarray,
    m: np.ndarray,
    chunks: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2): each GPU runs v parts of the model.

    Stage q of v p runs on GPU q mod p; rows have v p stages and v p - 1 borders. The channels are between GPU g and
    g + 1 and, as a ring, between the last and the first. GPU g goes through its m v passes in groups of p
    micro-batches, each group through chunk 0, 1 ... (backward: v - 1, v - 2 ...). It does min(m v, W) forwards with
    W = 2 (p - g - 1) + (v - 1) p, then forward and backward in turn, then the rest. m must be a multiple of p.
    Equal chunks of f / v and b / v without communication give  (m + (p - 1) / v)(f + b).

    GPU g does forward W + r and backward r at step t = r + p - 1 - g. Then all that an operation needs was sent in
    step t - 1 at the latest, and what was sent on a channel before is no longer needed.

    Parameters
    ----------
    chunks : int64 [n], v of each plan, 1 or more.

    Returns
    -------
    As `gpipe_many_s`, with the end of each of the v p stages.
    """
    n = len(stages)
    iteration, last_end = np.empty(n), np.full(fwd.shape, np.nan)
    free, sent_fwd, sent_bwd = np.zeros(fwd.shape[1]), np.zeros(fwd.shape[1]), np.zeros(fwd.shape[1])
    for i in range(n):
        p, v = stages[i], chunks[i]
        last, total = p * v - 1, m[i] * v
        free[:p] = 0.0
        sent_fwd[:p] = 0.0
        sent_bwd[:p] = 0.0
        for t in range(-last, total + p - 1):
            # Of the step before: GPUs from last to first overwrite what those after them would read.
            ring, gradient = sent_fwd[p - 1], sent_bwd[0]
            for g in range(p - 1, -1, -1):
                mine = sent_bwd[g]
                end = free[g]
                forward, backward = t + last - g, t - (p - 1) + g
                if 0 <= forward < total:
                    q = forward % (p * v) // p * p + g
                    if q > 0:
                        end = max(end, sent_fwd[g - 1] if g > 0 else ring)
                    end += fwd[i, q]
                    if q < last:
                        sent_fwd[g] = max(sent_fwd[g], end) + comm_fwd[i, q]
                if 0 <= backward < total:
                    q = (v - 1 - backward % (p * v) // p) * p + g
                    if q < last:
                        end = max(end, gradient)
                    end += bwd[i, q]
                    last_end[i, q] = end
                    if q > 0:
                        sent_bwd[g] = max(sent_bwd[g], end) + comm_bwd[i, q - 1]
                free[g] = end
                gradient = mine
        _finish(i, p * v, fwd, bwd, comm_fwd, comm_bwd, iteration, last_end)
    return iteration, last_end


@jit
def pipedream_many_s(
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm_fwd: np.ndarray,
    comm_bwd: np.ndarray,
    sync: np.ndarray,
    stages: np.ndarray,
) -> np.ndarray:
    """Asynchronous 1F1B (Narayanan et al. 2019, PipeDream): seconds between micro-batches once the pipeline is full.

    The order is that of `one_f_one_b_many_s` without an end: stage s starts with p - s forwards, then backward and
    forward in turn for ever. After each backward the stage is busy for `sync` seconds (it sums gradients over its
    replicas and steps), while the gradient of its input is under way.

    The time between micro-batches is the largest mean of a cycle of the recurrence (length by micro-batches passed).
    Its cycles are: forward through stages s to q and back,

        (sum_{s..q} (f + b) + sum_{s..q-1} (c_fwd + c_bwd) + sync_s) / (q - s + 1),

    since p - s micro-batches in flight allow no more, and each channel's own c. Without communication it is the
    slowest stage; the published form, max(slowest stage, slowest border), misses the cycles over several stages.

    Parameters
    ----------
    sync : float64 [n, P].

    Returns
    -------
    period_s : float64 [n]; NaN where an input is.
    """
    n = len(stages)
    period = np.empty(n)
    for i in range(n):
        p = stages[i]
        worst, everything = 0.0, 0.0
        for s in range(p):
            length = sync[i, s]
            everything += length
            for q in range(s, p):
                length += fwd[i, q] + bwd[i, q]
                worst = max(worst, length / (q - s + 1))
                if q < p - 1:
                    length += comm_fwd[i, q] + comm_bwd[i, q]
            everything += length
            if s < p - 1:
                worst = max(worst, comm_fwd[i, s], comm_bwd[i, s])
        period[i] = worst if everything == everything else np.nan  # noqa: PLR0124 - NaN is not itself
    return period


@part
def _finish(
    i: int,
    used: int,
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm_fwd: np.ndarray,
    comm_bwd: np.ndarray,
    iteration: np.ndarray,
    last_end: np.ndarray,
) -> None:
    """Plan i's end, from those of its stages; NaN throughout where one of its inputs is."""
    everything, latest = 0.0, 0.0
    for q in range(used):
        everything += fwd[i, q] + bwd[i, q]
        if q < used - 1:
            everything += comm_fwd[i, q] + comm_bwd[i, q]
        latest = max(latest, last_end[i, q])
    if everything != everything:  # noqa: PLR0124 - NaN is not itself
        latest = np.nan
        last_end[i, :used] = np.nan
    iteration[i] = latest


@part
def two_stage_s(w: float, v: float, x: float, after_w: float, after_v: float, m: int) -> float:
    """A closed form of the time of 1F1B with two stages. It orders plans; a simulated schedule has the last word.

    With w seconds forward and backward of a micro-batch in the first stage, v in the second, x of its messages there
    and back, m micro-batches, and a forward taken for a third of w, stage 0 ends no sooner than

        m w + max(0, v + x - w / 3)      its own work, and the wait for the first gradient (m = 1: v + x),
        w + x + m v                      all of the second stage's work, between one pass of its own,
        (w + v + x) (1 + (m - 1) // 2)   two micro-batches are in flight: each third one waits for the first,
        w + v + (m + 1) x / 2            the border has one channel a direction,

    and stage 1 at w / 3 + x / 2 + m v. What follows the last backward is added to each; the latest of all counts.
    """
    stall = v + x if m == 1 else max(0.0, v + x - w / 3.0)
    first = max(m * w + stall, w + x + m * v, (w + v + x) * (1 + (m - 1) // 2), w + v + (m + 1) * x / 2.0)
    return max(first + after_w, w / 3.0 + x / 2.0 + m * v + after_v)


@jit
def best_cuts(
    front_s: np.ndarray, front_after_s: np.ndarray, front_most: np.ndarray, front_gpus: np.ndarray,
    front_sends: np.ndarray, back_s: np.ndarray, back_after_s: np.ndarray, back_least: np.ndarray,
    back_gpus: np.ndarray, back_sends: np.ndarray, cut_bytes: np.ndarray, most_gpus: int, near_gpus: int,
    far: tuple[float, float, int, int], near: tuple[float, float], m: int,
) -> tuple[np.ndarray, np.ndarray]:
    """For each pair of a first and a last stage the least time by `two_stage_s`, and the cut that reaches it.

    Parameters
    ----------
    front_s, front_after_s : float64 [F, n + 1], of a first stage that ends before cut c: seconds of a micro-batch,
        and of what follows its last backward; rising.
    back_s, back_after_s : float64 [B, n + 1], of a second stage that begins at cut c; falling.
    front_most, back_least : int64, the largest cut that the front has memory for, the smallest for the back.
    front_gpus, back_gpus : int64, GPUs of each.
    front_sends, back_sends : float64, samples of a micro-batch that pass its border.
    cut_bytes : float64 [n + 1], of a sample that cross each cut.
    most_gpus : that both may have together.
    near_gpus : so many of both together lie on one node (0: never).
    far, near : (bytes/s, latency in s) of a node's network, with the GPUs of a node of the front and of the back; of
        the links within a node.
    m : micro-batches.

    Returns
    -------
    time_s : float64 [F, B]; inf where no cut serves.
    cut : int64 [F, B]; 0 there.
    """
    fronts, backs, n = len(front_s), len(back_s), front_s.shape[1] - 1
    time_s, cut = np.full((fronts, backs), np.inf), np.zeros((fronts, backs), dtype=np.int64)
    for i in range(fronts):
        for j in range(backs):
            gpus = front_gpus[i] + back_gpus[j]
            low, high = max(1, back_least[j]), min(n - 1, front_most[i])
            if gpus > most_gpus or low > high:
                continue
            # Stages on several nodes send by all of their links at once.
            share = max(min(far[2], front_gpus[i]) / front_gpus[i], min(far[3], back_gpus[j]) / back_gpus[j])
            rate, latency_s = far[0] / share, far[1]
            if gpus <= near_gpus:
                rate, latency_s = near[0] * min(front_gpus[i], back_gpus[j]), near[1]
            a_byte_s = max(front_sends[i], back_sends[j]) / rate
            a, b = low, high
            while a < b:
                middle = (a + b) // 2
                if front_s[i, middle] < back_s[j, middle]:
                    a = middle + 1
                else:
                    b = middle
            best, at = np.inf, 0
            for c in range(a, high + 1):
                if m * front_s[i, c] + front_after_s[i, c] >= best:
                    break
                x = 2.0 * (latency_s + cut_bytes[c] * a_byte_s)
                value = two_stage_s(front_s[i, c], back_s[j, c], x, front_after_s[i, c], back_after_s[j, c], m)
                if value < best:
                    best, at = value, c
            for c in range(a - 1, low - 1, -1):
                if m * back_s[j, c] + back_after_s[j, c] >= best:
                    break
                x = 2.0 * (latency_s + cut_bytes[c] * a_byte_s)
                value = two_stage_s(front_s[i, c], back_s[j, c], x, front_after_s[i, c], back_after_s[j, c], m)
                if value < best:
                    best, at = value, c
            time_s[i, j], cut[i, j] = best, at
    return time_s, cut
