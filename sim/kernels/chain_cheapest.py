"""The cheapest partitions of a long chain within a period; the chain is that of `sim.kernels.chain_steady`.

From the end of the chain to its beginning, as there. What a bound on the period leaves of the options is a window of
cuts for each operator and option; of the cuts in a window the one with the least rate behind it is found in nearly
constant time, since a nearer cut with no higher rate beats a farther one for good.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


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


@part
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


@part
def enter(j: int, n: int, rest: np.ndarray, beaten: np.ndarray, beyond: np.ndarray) -> None:
    """Let cut j, nearer than all before, beat those with no lower rest."""
    beaten[j] = j
    k = j + 1
    while k <= n and rest[k] >= rest[j]:
        beaten[k] = j
        k = beyond[k]
    beyond[j] = k


@part
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


@part
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
