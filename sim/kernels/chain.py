"""Partition of a long chain in its steady state: the period is the slowest stage or transfer.

Operators 0..n-1 are cut into stages of consecutive ones. A stage of operators i..j-1 on option o takes

    t(i, j, o) = start[o] + time[o, j] - time[o, i],

never less for a longer span (`time` does not fall), and may end at `reach[f, o, i]` at most where it is the (f + 1)-th
stage from the end (the last f = F - 1: or further; memory: a stage holds as many micro-batches as there are
stages from it on). The transfer at cut j between options of groups g and h takes `border[j, g, h]`. Then

    period = max over stages and cuts of t and border.

Both kernels go from the end of the chain to its beginning. A state is (layer f, group of the first stage, cut): what
is behind the cut; the empty end counts as layer -1. Rounding keeps t monotone, so the answers are exact in floating
point too: the least period is the least of the values that `t` and `border` can take.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit


@jit
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
    layers, groups, kinds = reach.shape[0], border.shape[1], len(limits)
    place = np.ones(kinds, dtype=np.int64)
    for k in range(kinds - 2, -1, -1):
        place[k] = place[k + 1] * (limits[k + 1] + 1)
    vectors = place[0] * (limits[0] + 1)
    period = np.full((layers, groups, vectors, n + 1), np.inf)
    behind = np.empty(n + 1)
    window = np.empty(n + 1, dtype=np.int64)
    for v in range(vectors):
        total = 0
        for k in range(kinds):
            total += v // place[k] % (limits[k] + 1)
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
def cheapest(
    time: np.ndarray, start: np.ndarray, rate: np.ndarray, group: np.ndarray, reach: np.ndarray, border: np.ndarray,
    first: np.ndarray, option: np.ndarray, far: np.ndarray, widest: np.ndarray, bound: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least rate of all partitions with a period of at most `bound`, and of those with it the least period.

    Parameters
    ----------
    time : float64 [O, n + 1], s. reach : int64 [F, O, n].
    rate : float64 [O]
        What a stage on each option adds, >= 0. Sums of rates must be exact for ties to be seen as ties.
    first : int64 [n + 1]; option, far : int32 [E]
        Entries first[i] .. first[i + 1] - 1 are the options that a stage may take that starts at operator i, their
        rates ascending, and the farthest cut that may be within the bound. `narrow` makes them few.
    widest : int64 [n], the farthest of those cuts.

    Returns
    -------
    least : float64 [F, G, n + 1]
        Rate of operators i.., by layer and group of the first stage; inf: impossible. At a cut that any two groups
        may have between them (transfers within the bound), only the least of the groups' is sure to be there.
    period : float64 [F, G, n + 1], s
        The least period at that rate.
    choice : int64 [F, G, n + 1, 4]
        Option, end, and layer and group of the stage behind (layer -1: there is none) that reach both.
    """
    options, n = time.shape[0], time.shape[1] - 1
    layers, groups = reach.shape[0], border.shape[1]
    least = np.full((layers, groups, n + 1), np.inf)
    period = np.full((layers, groups, n + 1), np.inf)
    choice = np.full((layers, groups, n + 1, 4), -1, dtype=np.int64)
    # What a stage of a layer and group finds behind a cut.
    rest = np.full((layers, groups, n + 1), np.inf)
    slow = np.full((layers, groups, n + 1), np.inf)
    back = np.full((layers, groups, n + 1, 2), -1, dtype=np.int64)
    rest[0, :, n], slow[0, :, n] = 0.0, 0.0
    # `beaten` leads from a cut to the farthest not beyond it whose rest is below that of all nearer ones, and from
    # there `beyond` to the next such cut.
    beaten = np.full((layers, groups, n + 1), n, dtype=np.int64)
    beyond = np.full((layers, groups, n + 1), n + 1, dtype=np.int64)
    end = np.full(options, n, dtype=np.int64)
    found, tied = np.empty(options), np.empty(options, dtype=np.int64)
    low = np.empty(groups)
    cheaper, seen = np.empty(groups, dtype=np.int64), np.empty(groups, dtype=np.int64)
    for i in range(n - 1, -1, -1):
        # Whether what begins here may follow any group: then only the groups of the least rate matter.
        open_cut = border[i].max() <= bound
        for f in range(layers):
            low[:] = np.inf
            for g in range(groups):
                if i + 1 < n:
                    look_behind(least, period, border, bound, f, g, i + 1, rest, slow, back)
                enter(i + 1, n, rest[f, g], beaten[f, g], beyond[f, g])
                low[g] = rest[f, g, farthest(widest[i], beaten[f, g])]
            lowest = low.min()
            if lowest == np.inf:
                continue
            cheaper[:], seen[:] = i, i
            level, ties, worst = -1.0, 0, np.inf
            for e in range(first[i], first[i + 1]):
                o = option[e]
                g = group[o]
                if rate[o] + lowest > worst:
                    break
                if rate[o] + low[g] > min(worst, least[f, g, i]):
                    continue
                # An option that gets no farther than a cheaper one is not looked at.
                if rate[o] > level:
                    level = rate[o]
                    cheaper[:] = seen
                j = end_within(time[o], start[o], i, min(end[o], np.int64(far[e])), bound)
                end[o] = j
                j = min(j, reach[f, o, i])
                seen[g] = max(seen[g], j)
                if j <= cheaper[g]:
                    continue
                found[o] = rate[o] + rest[f, g, farthest(j, beaten[f, g])]
                if found[o] <= least[f, g, i] and found[o] < np.inf:
                    least[f, g, i] = found[o]
                    tied[ties] = o
                    ties += 1
                    worst = least[f, :, i].min() if open_cut else least[f, :, i].max()
            for o in tied[:ties]:
                g = group[o]
                if found[o] > least[f, g, i]:
                    continue
                # That is the nearest of the cuts with this rest; farther ones may have a lower period.
                last = min(end[o], reach[f, o, i])
                nearest = farthest(last, beaten[f, g])
                for j in range(nearest, last + 1):
                    took = start[o] + (time[o, j] - time[o, i])
                    if took >= period[f, g, i]:
                        break
                    if rest[f, g, j] > rest[f, g, nearest]:
                        continue
                    value = max(took, slow[f, g, j])
                    if value < period[f, g, i]:
                        period[f, g, i] = value
                        choice[f, g, i, 0], choice[f, g, i, 1] = o, j
                        choice[f, g, i, 2], choice[f, g, i, 3] = back[f, g, j, 0], back[f, g, j, 1]
    return least, period, choice


@jit
def end_within(time: np.ndarray, start: float, i: int, j: int, bound: float) -> int:
    """The farthest cut up to j that a stage from operator i on reaches within the bound, j being near; i: none."""
    for _ in range(3):
        if j == i or start + (time[j] - time[i]) <= bound:
            return j
        j -= 1
    near = i
    while near < j:
        middle = (near + j + 1) // 2
        if start + (time[middle] - time[i]) <= bound:
            near = middle
        else:
            j = middle - 1
    return near


@jit
def enter(j: int, n: int, rest: np.ndarray, beaten: np.ndarray, beyond: np.ndarray) -> None:
    """Let cut j, nearer than all before, beat those with no lower rest."""
    beaten[j] = j
    k = j + 1
    while k <= n and rest[k] >= rest[j]:
        beaten[k] = j
        k = beyond[k]
    beyond[j] = k


@jit
def farthest(j: int, beaten: np.ndarray) -> int:
    """The farthest cut up to j that none nearer beats; the way to it is shortened."""
    while beaten[j] != j:
        beaten[j] = beaten[beaten[j]]
        j = beaten[j]
    return j


@jit
def narrow(
    time: np.ndarray, start: np.ndarray, rate: np.ndarray, group: np.ndarray, reach: np.ndarray,
    first: np.ndarray, option: np.ndarray, far: np.ndarray, widest: np.ndarray, low: float, top: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The entries (first, option, far, widest) that `cheapest` may need for bounds in [low, top]; arguments as there.

    From the other operators an option gets no farther within `top` than a cheaper one of its group within `low`.
    """
    options, n = time.shape[0], time.shape[1] - 1
    layers, groups = reach.shape[0], group.max() + 1
    short, long = np.full(options, n, dtype=np.int64), np.full(options, n, dtype=np.int64)
    cheaper, seen = np.empty(groups, dtype=np.int64), np.empty(groups, dtype=np.int64)
    needed = np.zeros(len(option), dtype=np.bool_)
    new_far = np.empty(len(option), dtype=np.int32)
    new_widest = np.arange(n)
    for i in range(n - 1, -1, -1):
        for e in range(first[i], first[i + 1]):
            o = option[e]
            j = end_within(time[o], start[o], i, min(long[o], np.int64(far[e])), top)
            long[o] = j
            new_far[e] = j
            new_widest[i] = max(new_widest[i], j)
            short[o] = end_within(time[o], start[o], i, min(j, short[o]), low)
        for f in range(layers):
            cheaper[:], seen[:] = i, i
            level = -1.0
            for e in range(first[i], first[i + 1]):
                o = option[e]
                g = group[o]
                if rate[o] > level:
                    level = rate[o]
                    cheaper[:] = seen
                seen[g] = max(seen[g], min(short[o], reach[f, o, i]))
                if min(long[o], reach[f, o, i]) > cheaper[g]:
                    needed[e] = True
    count = np.zeros(n + 1, dtype=np.int64)
    for i in range(n):
        count[i + 1] = count[i] + needed[first[i] : first[i + 1]].sum()
    return count, option[needed], new_far[needed], new_widest


@jit
def look_behind(
    least: np.ndarray, period: np.ndarray, border: np.ndarray, bound: float, f: int, g: int, j: int,
    rest: np.ndarray, slow: np.ndarray, back: np.ndarray,
) -> None:
    """What a stage of layer f and group g finds behind cut j: least rate, least period at it, layer and group."""
    layers, groups, _ = least.shape
    for source in range(max(f - 1, 0), f + 1):
        if source == f and f < layers - 1:
            continue
        for b in range(groups):
            rate, slowest = least[source, b, j], max(period[source, b, j], border[j, g, b])
            if border[j, g, b] > bound or rate > rest[f, g, j]:
                continue
            if rate < rest[f, g, j] or slowest < slow[f, g, j]:
                rest[f, g, j], slow[f, g, j] = rate, slowest
                back[f, g, j, 0], back[f, g, j, 1] = source, b


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
