"""Pipeline partition by exact dynamic programming: the best plan for every vector of GPU counts at once.

Blocks 0..B-1 are cut into consecutive stages; each takes one GPU type and some units of it. With m
micro-batches, t_s seconds of a micro-batch in stage s and x_s of its transfer to the next stage, there and
back, the time is

    T = sum_s (t_s + x_s) + (m - 1) max_s max(t_s, x_s / 2).

A state is a suffix of the blocks: (first block, stages in it as far as memory can tell them apart, units used
of each type, type of its first stage). T grows with the sum and with the maximum, so a state's labels are its
non-dominated pairs (sum, max). Nothing is rounded, and no bottleneck is guessed from a grid.

A partial plan is dropped where even the best completion that ignores memory, borders and type limits cannot
beat a plan already known on the same GPUs or fewer. The table is thus exact in this sense: for each vector v,
the least T over all vectors <= v (each entry) is the true optimum within v.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@part
def layers_needed(cost: np.ndarray, hold: np.ndarray, in_flight: int) -> int:
    """Stage counts that memory can tell apart: above it, `hold` forbids nothing more, up to `in_flight`."""
    need = 1
    blocks, _, types, sizes = cost.shape
    for i in range(blocks):
        for j in range(i, blocks):
            for t in range(types):
                for q in range(sizes):
                    if need <= hold[i, j, t, q] < in_flight and cost[i, j, t, q] < np.inf:
                        need = hold[i, j, t, q] + 1
    return need


@part
def completion(cost: np.ndarray, units: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Least sum and least maximum of stage costs over blocks 0..k-1 with at most w units: two arrays [k, w].

    Types are unlimited, memory and borders ignored: bounds from below for every real completion.
    """
    blocks, _, types, sizes = cost.shape
    low_sum = np.full((blocks + 1, total + 1), np.inf)
    low_max = np.full((blocks + 1, total + 1), np.inf)
    low_sum[0, :] = 0.0
    low_max[0, :] = 0.0
    for k in range(1, blocks + 1):
        for i in range(k):
            for q in range(sizes):
                least = np.inf
                for t in range(types):
                    least = min(least, cost[i, k - 1, t, q])
                for w in range(units[q], total + 1):
                    low_sum[k, w] = min(low_sum[k, w], low_sum[i, w - units[q]] + least)
                    low_max[k, w] = min(low_max[k, w], max(low_max[i, w - units[q]], least))
    return low_sum, low_max


@part
def to_beat(known: np.ndarray, step: np.ndarray, total: int) -> np.ndarray:
    """What a plan must beat: array [v, w], the worst of the times known where w units are added to v.

    `known` [V] becomes the least time known within each vector (its own or a smaller one's). Vectors are in
    lexicographic order and units[0] is 1, so that each one comes before those that it leads to.
    """
    count_v, types, _ = step.shape
    for v in range(count_v):
        for t in range(types):
            u = step[v, t, 0]
            if u >= 0:
                known[u] = min(known[u], known[v])
    beat = np.full((count_v, total + 1), -np.inf)
    for v in range(count_v - 1, -1, -1):
        beat[v, 0] = known[v]
        for t in range(types):
            u = step[v, t, 0]
            if u >= 0:
                for w in range(total):
                    beat[v, w + 1] = max(beat[v, w + 1], beat[u, w])
    return beat


@part
def hopeless(
    time_sum: float, time_max: float, k: int, v: int, rest: int, m: int,
    low_sum: np.ndarray, low_max: np.ndarray, beat: np.ndarray,
) -> bool:
    """Whether no completion of a suffix that starts at block k can beat what is known (but for rounding)."""
    # With more units bounds fall, and so does what must be beaten: most are turned away by the ends of both.
    least = time_sum + low_sum[k, rest] + (m - 1) * max(time_max, low_max[k, rest])
    if least * (1 - 1e-12) > beat[v, 0]:
        return True
    for w in range(rest + 1):
        if low_sum[k, w] == np.inf:
            continue
        bound = time_sum + low_sum[k, w] + (m - 1) * max(time_max, low_max[k, w])
        if bound * (1 - 1e-12) <= beat[v, w]:
            return False
        if k == 0:
            break
    return True


@part
def insert(
    state: int, time_sum: float, time_max: float, back: int, move: int, count: np.ndarray,
    sums: np.ndarray, maxs: np.ndarray, backs: np.ndarray, moves: np.ndarray,
) -> bool:
    """Keep a label unless another one dominates it, drop those that it dominates; False: there is no room."""
    n = count[state]
    kept = 0
    for p in range(n):
        if sums[state, p] <= time_sum and maxs[state, p] <= time_max:
            return True
    for p in range(n):
        if sums[state, p] >= time_sum and maxs[state, p] >= time_max:
            continue
        if kept != p:
            sums[state, kept], maxs[state, kept] = sums[state, p], maxs[state, p]
            backs[state, kept], moves[state, kept] = backs[state, p], moves[state, p]
        kept += 1
    count[state] = kept
    if kept == sums.shape[1]:
        return False
    sums[state, kept], maxs[state, kept] = time_sum, time_max
    backs[state, kept], moves[state, kept] = back, move
    count[state] = kept + 1
    return True


@jit
def partition(
    cost: np.ndarray, border: np.ndarray, hold: np.ndarray, units: np.ndarray, vectors: np.ndarray,
    step: np.ndarray, m: int, known: np.ndarray, slack: float, room: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best plan for every vector of units.

    Parameters
    ----------
    cost : float64 [B, B, T, Q], s
        Time that a micro-batch takes in a stage of blocks i..j (inclusive) on `units[q]` units of type t;
        inf: not allowed.
    border : float64 [B + 1, T, T], s
        Transfer at the cut before block k, from type t to type t of the next stage, both directions; >= 0.
    hold : int64 [B, B, T, Q]
        Micro-batches in flight that a GPU of the stage has memory for. Stage s of p needs min(m, p - s), s
        from 0.
    units : int64 [Q]
        Ascending; the first is 1.
    vectors : int64 [V, T]
        All allowed vectors in lexicographic order, so vectors[0] = 0.
    step : int64 [V, T, Q]
        Index of vectors[v] plus units[q] of type t, -1 where that is not allowed.
    m : int
        Micro-batches an iteration.
    known : float64 [V], s
        Times that other plans of each vector reach (inf: none known). What cannot beat them may be left out.
    slack : float
        1: the table is exact as said above. More: plans up to `slack` times slower than a known one are
        kept too.
    room : int
        Labels a state may hold.

    Returns
    -------
    best : float64 [V], s
        T of the best plan that uses exactly the vector (inf: none, or none that beats a plan on fewer).
    stages : int64 [V]
        Its stages; 0 where there is none. -1 in stages[0]: a state ran out of room, call again with more.
    plan : int64 [V, P, 3]
        For each stage: last block, type, index into `units`.
    """
    blocks, _, types, sizes = cost.shape
    count_v = vectors.shape[0]
    used = np.zeros(count_v, dtype=np.int64)
    for v in range(count_v):
        used[v] = vectors[v].sum()
    total = used.max()
    layers = layers_needed(cost, hold, min(m, total))
    low_sum, low_max = completion(cost, units, total)
    known = known.copy()
    for t in range(types):
        for q in range(sizes):
            v = step[0, t, q]
            if v >= 0 and hold[0, blocks - 1, t, q] >= 1:
                known[v] = min(known[v], m * cost[0, blocks - 1, t, q])
    beat = slack * to_beat(known, step, total)

    states = blocks * layers * count_v * types
    count = np.zeros(states, dtype=np.int32)
    sums = np.empty((states, room))
    maxs = np.empty((states, room))
    backs = np.empty((states, room), dtype=np.int32)
    moves = np.empty((states, room), dtype=np.int32)

    best = np.full(count_v, np.inf)
    stages = np.zeros(count_v, dtype=np.int64)
    plan = np.full((count_v, min(blocks, total), 3), -1, dtype=np.int64)

    # The last stage of a plan: blocks i..B-1. The empty suffix counts as one label, back = -1.
    for i in range(blocks):
        for t in range(types):
            for q in range(sizes):
                v = step[0, t, q]
                c = cost[i, blocks - 1, t, q]
                if v < 0 or c == np.inf or hold[i, blocks - 1, t, q] < 1:
                    continue
                if hopeless(c, c, i, v, total - used[v], m, low_sum, low_max, beat):
                    continue
                state = (i * layers * count_v + v) * types + t
                if not insert(state, c, c, -1, blocks * sizes + q, count, sums, maxs, backs, moves):
                    stages[0] = -1
                    return best, stages, plan

    # A stage i..k-1 put in front of each suffix that starts at block k.
    # What a stage that ends before k costs and holds, by its first block i; and the least, over all i, that it brings
    # to the sum and the maximum with all that is before it, where so many units are left.
    cost_i, hold_i = np.empty((types, sizes, blocks)), np.empty((types, sizes, blocks), dtype=np.int64)
    add_sum, add_max = np.empty((types, sizes, total + 1)), np.empty((types, sizes, total + 1))
    for k in range(blocks - 1, 0, -1):
        beat = slack * to_beat(known, step, total)
        add_sum[:], add_max[:] = np.inf, np.inf
        for t in range(types):
            for q in range(sizes):
                for i in range(k):
                    c = cost[i, k - 1, t, q]
                    cost_i[t, q, i], hold_i[t, q, i] = c, hold[i, k - 1, t, q]
                    for w in range(total + 1):
                        add_sum[t, q, w] = min(add_sum[t, q, w], c + low_sum[i, w])
                        add_max[t, q, w] = min(add_max[t, q, w], max(c, low_max[i, w]))
        for layer in range(layers):
            above = min(layer + 1, layers - 1)
            for v in range(count_v):
                for t_next in range(types):
                    state = ((k * layers + layer) * count_v + v) * types + t_next
                    for p in range(count[state]):
                        for t in range(types):
                            for q in range(sizes):
                                u = step[v, t, q]
                                if u < 0:
                                    continue
                                x, rest = border[k, t, t_next], total - used[u]
                                # By twice the rounding: where none of the stages can do, none is looked at.
                                least = sums[state, p] + x + add_sum[t, q, rest]
                                least += (m - 1) * max(maxs[state, p], add_max[t, q, rest])
                                if least * (1 - 2e-12) > beat[u, 0]:
                                    continue
                                for i in range(k - 1, -1, -1):
                                    c = cost_i[t, q, i]
                                    if c == np.inf or hold_i[t, q, i] <= above:
                                        continue
                                    new_sum = sums[state, p] + c + x
                                    new_max = max(maxs[state, p], c, x / 2)
                                    if hopeless(new_sum, new_max, i, u, rest, m, low_sum, low_max, beat):
                                        continue
                                    if i == 0:
                                        known[u] = min(known[u], new_sum + (m - 1) * new_max)
                                    target = ((i * layers + above) * count_v + u) * types + t
                                    if not insert(target, new_sum, new_max, state * room + p, k * sizes + q,
                                                  count, sums, maxs, backs, moves):
                                        stages[0] = -1
                                        return best, stages, plan

    # Read off the best label that covers all blocks, and follow it from its first stage to its last.
    for v in range(count_v):
        label = -1
        for layer in range(layers):
            for t in range(types):
                state = (layer * count_v + v) * types + t
                for p in range(count[state]):
                    time = sums[state, p] + (m - 1) * maxs[state, p]
                    if time < best[v]:
                        best[v] = time
                        label = state * room + p
        while label >= 0:
            state, p = label // room, label % room
            plan[v, stages[v], 0] = moves[state, p] // sizes - 1
            plan[v, stages[v], 1] = state % types
            plan[v, stages[v], 2] = moves[state, p] % sizes
            stages[v] += 1
            label = backs[state, p]
    return best, stages, plan


@part
def keep_label(
    row: np.ndarray, use: np.ndarray, count: int, label: tuple[float, float, float], used: np.ndarray
) -> int:
    """Keep (charge, forward, backward) among `row` [L, 3] unless one is as low in all; how many there are now.

    Where there is no room it is joined with the last one, each figure as low as the lower one's: that only lowers
    bounds.
    """
    charge, forward, backward = label
    for k in range(count):
        if row[k, 0] <= charge and row[k, 1] <= forward and row[k, 2] <= backward:
            return count
    left = 0
    for k in range(count):
        if not (charge <= row[k, 0] and forward <= row[k, 1] and backward <= row[k, 2]):
            if left != k:
                row[left], use[left] = row[k], use[k]
            left += 1
    if left == len(row):
        left -= 1
        charge, forward = min(charge, row[left, 0]), min(forward, row[left, 1])
        backward = min(backward, row[left, 2])
    row[left, 0], row[left, 1], row[left, 2] = charge, forward, backward
    use[left] = used
    return left + 1


@jit
def least_charge(
    low_s: np.ndarray, high_s: np.ndarray, forward_s: np.ndarray, after_s: np.ndarray, gib: np.ndarray,
    room_gib: np.ndarray, gpus: np.ndarray, price: np.ndarray, a_byte_s: np.ndarray, cut_bytes: np.ndarray,
    cut_charge: np.ndarray, cut_s: np.ndarray, m: int, most_s: float, theta: float, scale_s: float, labels: int,
    flush: bool,
) -> tuple[float, np.ndarray]:
    """Least charge of a pipeline of two stages or more, none longer than `most_s`; and its use of GPUs.

    `policies.recommend.searching.stage_bounds` says what a charge is. Place 2 j is the cut before block j, place
    2 j + 1 one in it. What a block holds that is cut is charged `cut_charge`, whoever does it. A stage's time is  F +
    m w + max(after, G),  F and G what passes before it forward and backward.

    Parameters
    ----------
    low_s, high_s, forward_s, after_s, gib : float64 [C, B + 1], running sums over blocks, of each choice: the least
        seconds of a micro-batch, those that count for a charge, those forward; what follows; memory.
    room_gib, price, a_byte_s : float64 [C]; the last is seconds of a micro-batch's message for each byte of a sample.
    gpus : float64 [C, K], of each choice that count against each limit.
    cut_bytes : float64 [2 B], of a sample that cross a cut at each place; inf: there is none.
    cut_charge : float64 [B], charge of a block that is cut.
    cut_s : float64 [B, 2], least seconds forward and backward of a block that is cut.
    m : micro-batches.
    theta, scale_s : part of a charge that goes by GPUs; the rest goes by GPU-seconds over `scale_s`.
    labels : that are kept at a cut.
    flush : whether a pipeline fills and drains; without, F and G are 0.
    """
    choices, blocks = low_s.shape[0], low_s.shape[1] - 1
    kinds = gpus.shape[1]
    rows, uses = np.zeros((2 * blocks, labels, 3)), np.zeros((2 * blocks, labels, kinds))
    counts = np.zeros(2 * blocks, dtype=np.int64)
    counts[0] = 1
    best, best_use, used = np.inf, np.zeros(kinds), np.zeros(kinds)
    for place in range(2 * blocks):
        first = (place + 1) // 2
        for k in range(counts[place]):
            charge, before, back = rows[place, k, 0], rows[place, k, 1], rows[place, k, 2]
            if charge >= best:
                continue
            for c in range(choices):
                # What comes in has one channel, too.
                if place > 0 and m * cut_bytes[place] * a_byte_s[c] > most_s:
                    continue
                for j in range(first, blocks + 1):
                    work = low_s[c, j] - low_s[c, first]
                    after = max(after_s[c, j] - after_s[c, first], back)
                    if gib[c, j] - gib[c, first] > room_gib[c] or before + m * work + after > most_s:
                        break
                    busy_s = before + m * (high_s[c, j] - high_s[c, first]) + after
                    part_of = theta + (1.0 - theta) * busy_s / scale_s
                    value = charge + price[c] * part_of
                    if value >= best:
                        break
                    if j == blocks:
                        if place > 0:
                            best = value
                            best_use[:] = uses[place, k] + gpus[c] * part_of
                        continue
                    forward = forward_s[c, j] - forward_s[c, first]
                    used[:] = uses[place, k] + gpus[c] * part_of
                    for inner in range(0 if j > first else 1, 2):
                        at = 2 * j + inner
                        send_s = cut_bytes[at] * a_byte_s[c]
                        filled_s = before + forward + back if flush else 0.0
                        if filled_s + m * send_s > most_s or send_s == np.inf:
                            continue
                        passed = before + forward + send_s if flush else 0.0
                        again = back + work - forward + send_s if flush else 0.0
                        if inner == 1 and flush:
                            passed += cut_s[j, 0]
                            again += cut_s[j, 1]
                        label = value + inner * (1.0 - theta) * cut_charge[j], passed, again
                        counts[at] = keep_label(rows[at], uses[at], counts[at], label, used)
    return best, best_use
