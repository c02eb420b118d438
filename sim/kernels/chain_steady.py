"""Partition of a long chain: the least period, and the least sum of times within a period.

Operators 0..n-1 are cut into stages of consecutive ones. A stage of operators i..j-1 on option o takes

    t(i, j, o) = start[o] + time[o, j] - time[o, i],

never less for a longer span (`time` does not fall), and may end at `reach[f, o, i]` at most where it is the (f + 1)-th
stage from the end (the last f = F - 1: or further; memory: a stage holds as many micro-batches as there are
stages from it on). The transfer at cut j between options of groups g and h takes `border[j, g, h]`. Then

    period = max over stages and cuts of t and border.

Where the pipeline fills and drains around m micro-batches, each of which crosses a cut there and back, the time is

    T = (m - 1) x period + S,   S = sum of t + 2 x sum of border.

Within a bound on the period the least S is a shortest path over cuts (`fleet_sums`). It falls in steps as the bound
grows, so whoever asks for the right bounds has the least T.

Kernels go from the end of the chain to its beginning. A state is (layer f, group of the first stage, cut): what
is behind the cut; the empty end counts as layer -1. Rounding keeps t monotone, so the answers are exact in floating
point too: the least period is the least of the values that `t` and `border` can take.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@part
def sweep(
    time: np.ndarray, start: float, reach: np.ndarray, behind: np.ndarray, window: np.ndarray, best: np.ndarray
) -> None:
    """best[i] = min(best[i], min over i < j <= reach[i] of max(t(i, j), behind[j])) for all i, in O(n).

    Of the cuts j a window keeps those with less behind them than all nearer ones. As i falls t grows, so the
    first of them where t is no less than `behind` never moves away from i: those beyond it are dropped for good.
    """
    n = len(best) - 1
    far, near = 0, -1  # window[far..near]: cuts, the farthest first
    for i in range(n - 1, -1, -1):
        if behind[i + 1] < np.inf:
            while near >= far and behind[window[near]] >= behind[i + 1]:
                near -= 1
            near += 1
            window[near] = i + 1
        while far <= near and window[far] > reach[i]:
            far += 1
        while far < near and start + (time[window[far + 1]] - time[i]) >= behind[window[far + 1]]:
            far += 1
        if far > near:
            continue
        value = max(start + (time[window[far]] - time[i]), behind[window[far]])
        if far < near:
            value = min(value, behind[window[far + 1]])
        best[i] = min(best[i], value)


@part
def places_of(limits: np.ndarray) -> np.ndarray:
    """What one GPU of each kind adds to the number of a vector within `limits`; the last kind is the lowest digit."""
    place = np.ones(len(limits), dtype=np.int64)
    for k in range(len(limits) - 2, -1, -1):
        place[k] = place[k + 1] * (limits[k + 1] + 1)
    return place


@part
def gpus_in(v: int, place: np.ndarray, limits: np.ndarray) -> int:
    """GPUs of the vector of this number, all kinds together."""
    total = 0
    for k in range(len(limits)):
        total += v // place[k] % (limits[k] + 1)
    return total


@jit
def stage_behind(
    period: np.ndarray, border: np.ndarray, layer: int, empty: bool, v: int, group: int, behind: np.ndarray
) -> bool:
    """behind[j]: the period of what follows a stage of `group` in `layer` at cut j, on v; False: nothing can."""
    layers, groups, _, n = period.shape
    behind[:] = np.inf
    found = False
    if layer == 0 and empty:
        behind[n - 1] = 0.0
        found = True
    for source in (layer - 1, layer):
        if source < 0 or (source == layer and layer < layers - 1):
            continue
        for b in range(groups):
            for j in range(n - 1):
                value = max(period[source, b, v, j], border[j, group, b])
                if value < behind[j]:
                    behind[j] = value
                    found = True
    return found


@jit
def fleet_periods(
    time: np.ndarray, start: np.ndarray, kind: np.ndarray, units: np.ndarray, group: np.ndarray, reach: np.ndarray,
    border: np.ndarray, limits: np.ndarray, most: int,
) -> np.ndarray:
    """Least period for every vector of GPU counts within `limits` and of at most `most` GPUs in all.

    Parameters
    ----------
    time : float64 [O, n + 1], s. start : float64 [O], s. kind, units, group : int64 [O]. reach : int64 [F, O, n].
    border : float64 [n + 1, G, G], s. limits : int64 [K].

    Returns
    -------
    period : float64 [F, G, V, n + 1], s
        Of operators i.. on exactly the vector v, its number being that of its digits in a mixed radix of
        limits + 1, the last kind the lowest digit; inf: impossible.
    """
    options, n = time.shape[0], time.shape[1] - 1
    layers, groups = reach.shape[0], border.shape[1]
    place = places_of(limits)
    vectors = place[0] * (limits[0] + 1)
    period = np.full((layers, groups, vectors, n + 1), np.inf)
    behind = np.empty(n + 1)
    window = np.empty(n + 1, dtype=np.int64)
    for v in range(vectors):
        total = gpus_in(v, place, limits)
        for layer in range(layers):
            for g in range(groups):
                if not stage_behind(period, border, layer, v == 0, v, g, behind):
                    continue
                for o in range(options):
                    k = kind[o]
                    if group[o] != g or total + units[o] > most:
                        continue
                    if v // place[k] % (limits[k] + 1) + units[o] > limits[k]:
                        continue
                    target = period[layer, g, v + units[o] * place[k]]
                    sweep(time[o], start[o], reach[layer, o], behind, window, target)
    return period


@jit
def reaches(prefix: np.ndarray, peak: np.ndarray, room: float) -> np.ndarray:
    """The farthest cut j for each i so that prefix[j] - prefix[i] + max(peak[i..j-1]) <= room; i: not even one."""
    n = len(peak)
    out = np.empty(n, dtype=np.int64)
    window = np.empty(n, dtype=np.int64)  # operators with a higher peak than all nearer ones, the farthest first
    far, near, j = 0, -1, n
    for i in range(n - 1, -1, -1):
        while near >= far and peak[window[near]] <= peak[i]:
            near -= 1
        near += 1
        window[near] = i
        while j > i:
            while far <= near and window[far] >= j:
                far += 1
            if prefix[j] - prefix[i] + peak[window[far]] <= room:
                break
            j -= 1
        out[i] = j
        if j == i:  # nothing may begin at i, nor pass over it
            far, near = 0, -1
    return out


@part
def sums_behind(
    least: np.ndarray, slowest: np.ndarray, border: np.ndarray, bound: float, layer: int, empty: bool, v: int,
    group: int, rest: np.ndarray, slow: np.ndarray,
) -> bool:
    """rest[j], slow[j]: S and B of what follows a stage of `group` in `layer` at cut j, on v; False: nothing can."""
    layers, groups, _, n = least.shape
    rest[:], slow[:] = np.inf, np.inf
    found = False
    if layer == 0 and empty:
        rest[n - 1], slow[n - 1] = 0.0, 0.0
        found = True
    for source in range(max(layer - 1, 0), layer + 1):
        if source == layer and layer < layers - 1:
            continue
        for b in range(groups):
            for j in range(1, n - 1):
                if border[j, group, b] > bound:
                    continue
                value = least[source, b, v, j] + 2.0 * border[j, group, b]
                if value < rest[j]:
                    rest[j], slow[j] = value, max(slowest[source, b, v, j], border[j, group, b])
                    found = True
    return found


@part
def sweep_sums(
    time: np.ndarray, start: float, reach: np.ndarray, bound: float, rest: np.ndarray, slow: np.ndarray,
    window: np.ndarray, least: np.ndarray, slowest: np.ndarray, pick: np.ndarray, option: int,
) -> None:
    """Let least[i] be t(i, j) + rest[j] where that is less, over i < j <= reach[i] with t <= bound, for all i; in O(n).

    Of the cuts j a window keeps those with a lower time[j] + rest[j] than all nearer ones, so the farthest is the best.
    As i falls t grows and `reach` does not, so what is too far stays so.
    """
    n = len(least) - 1
    far, near = 0, -1  # window[far..near]: cuts, the farthest first
    for i in range(n - 1, -1, -1):
        j = i + 1
        if rest[j] < np.inf:
            while near >= far and time[window[near]] + rest[window[near]] >= time[j] + rest[j]:
                near -= 1
            near += 1
            window[near] = j
        while far <= near and (window[far] > reach[i] or start + (time[window[far]] - time[i]) > bound):
            far += 1
        if far > near:
            continue
        j = window[far]
        took = start + (time[j] - time[i])
        if took + rest[j] < least[i]:
            least[i], slowest[i] = took + rest[j], max(took, slow[j])
            pick[i] = option * (n + 1) + j


@jit
def fleet_sums(
    time: np.ndarray, start: np.ndarray, kind: np.ndarray, units: np.ndarray, group: np.ndarray, reach: np.ndarray,
    border: np.ndarray, limits: np.ndarray, most: int, bound: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least S with a B of at most `bound`, for every vector of GPU counts within `limits`, of at most `most` in all.

    Parameters
    ----------
    time, start, kind, units, group, reach, border, limits, most : as `fleet_periods` has them.
    bound : s.

    Returns
    -------
    least : float64 [F, G, V, n + 1], s
        S of operators i.. on exactly the vector v, by layer and group of the first stage; inf: impossible.
    slowest : float64 [F, G, V, n + 1], s
        B of the partition that reaches it.
    pick : int32 [F, G, V, n + 1], option x (n + 1) + end of its first stage; -1: there is none.
    """
    options, n = time.shape[0], time.shape[1] - 1
    layers, groups = reach.shape[0], border.shape[1]
    place = places_of(limits)
    vectors = place[0] * (limits[0] + 1)
    least = np.full((layers, groups, vectors, n + 1), np.inf)
    slowest = np.full((layers, groups, vectors, n + 1), np.inf)
    pick = np.full((layers, groups, vectors, n + 1), -1, dtype=np.int32)
    rest, slow = np.empty(n + 1), np.empty(n + 1)
    window = np.empty(n + 1, dtype=np.int64)
    for v in range(vectors):
        total = gpus_in(v, place, limits)
        for layer in range(layers):
            for g in range(groups):
                if not sums_behind(least, slowest, border, bound, layer, v == 0, v, g, rest, slow):
                    continue
                for o in range(options):
                    k = kind[o]
                    if group[o] != g or total + units[o] > most:
                        continue
                    if v // place[k] % (limits[k] + 1) + units[o] > limits[k]:
                        continue
                    u = v + units[o] * place[k]
                    sweep_sums(time[o], start[o], reach[layer, o], bound, rest, slow, window, least[layer, g, u],
                               slowest[layer, g, u], pick[layer, g, u], o)
    return least, slowest, pick


@jit
def stages_of(
    least: np.ndarray, pick: np.ndarray, border: np.ndarray, kind: np.ndarray, units: np.ndarray, limits: np.ndarray,
    bound: float, v: int,
) -> np.ndarray:
    """The stages of the partition of least S on v, from what `fleet_sums` gave: int64 [stages, 3], first, end, option.

    There must be one.
    """
    layers, groups, _, n = least.shape
    place = places_of(limits)
    layer, g, low = 0, 0, np.inf
    for f in range(layers):
        for b in range(groups):
            if least[f, b, v, 0] < low:
                layer, g, low = f, b, least[f, b, v, 0]
    out = np.empty((n - 1, 3), dtype=np.int64)
    i, stages = 0, 0
    while i < n - 1:
        option, j = pick[layer, g, v, i] // n, pick[layer, g, v, i] % n
        out[stages, 0], out[stages, 1], out[stages, 2] = i, j, option
        stages += 1
        v -= units[option] * place[kind[option]]
        i = j
        if j == n - 1:
            break
        # As `sums_behind` chose.
        low, next_layer, next_g = np.inf, 0, 0
        for source in range(max(layer - 1, 0), layer + 1):
            if source == layer and layer < layers - 1:
                continue
            for b in range(groups):
                if border[j, g, b] <= bound and least[source, b, v, j] + 2.0 * border[j, g, b] < low:
                    low = least[source, b, v, j] + 2.0 * border[j, g, b]
                    next_layer, next_g = source, b
        layer, g = next_layer, next_g
    return out[:stages]
