"""Chains of whole stages on whole GPUs: whether a pipeline may end in time, for lower bounds.

`policies.recommend.searching.whole_stages` says what is bounded and why. A state is a place where a stage ends and the
GPUs of each type used so far, as one number; place 2 j is the cut before block j, place 2 j + 1 one in it. What a block
holds that is cut is nobody's work.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part


@jit
def shared_spans(
    out: np.ndarray, share: np.ndarray, one: np.ndarray, other: np.ndarray, level: np.ndarray, part: np.ndarray,
    rest: np.ndarray, most: float,
) -> None:
    """Least seconds of each span of blocks on two parts that share a micro-batch, into `out`, if that is less.

    Part one may take so many samples a replica as a level says; the more it takes, the longer it takes and the less
    does the other one. The best level for a span is where both take as long, or the level below it; it is looked for
    from that of the span before.

    Parameters
    ----------
    out : float64 [B + 1, B + 1]; of first block and block behind the last; inf: not known yet.
    one, other : float64 [L, B + 1], running sums over blocks, by level, which rise with it.
    level : int64 [L], least level of the other part, by that of part one.
    share : float64 [B + 1, B + 1, 2], least and most of a micro-batch that part one may do; made wider.
    part, rest : float64 [L], most of a micro-batch that part one, or the other, does at a level.
    most : seconds beyond which a span is of no use.
    """
    levels, blocks = one.shape[0], one.shape[1] - 1
    for i in range(blocks + 1):
        k, high, low = 0, levels - 1, levels - 1
        for j in range(i, blocks + 1):
            while high > 0 and one[high, j] - one[high, i] > most:
                high -= 1
            while low > 0 and other[low, j] - other[low, i] > most:
                low -= 1
            share[i, j, 0] = min(share[i, j, 0], 1.0 - rest[low])
            share[i, j, 1] = max(share[i, j, 1], part[high])
            while k < levels - 1 and one[k, j] - one[k, i] < other[level[k], j] - other[level[k], i]:
                k += 1
            while k > 0 and one[k - 1, j] - one[k - 1, i] >= other[level[k - 1], j] - other[level[k - 1], i]:
                k -= 1
            least = np.inf
            for at in range(max(k - 1, 0), k + 1):
                least = min(least, max(one[at, j] - one[at, i], other[level[at], j] - other[level[at], i]))
            out[i, j] = min(out[i, j], least)
            if least > most:
                break


@part
def _a_byte_s(three: np.ndarray, low: float, high: float) -> float:
    """Least seconds of a message for each byte of a sample, where the first type has `low` to `high` of it."""
    return max(three[0], low * three[1], (1.0 - high) * three[2])


@jit
def chain_within(
    work_s: np.ndarray, forward_s: np.ndarray, backward_s: np.ndarray, after_s: np.ndarray, hold: np.ndarray,
    share: np.ndarray, used: np.ndarray, kind: np.ndarray, a_byte_s: np.ndarray, over_s: np.ndarray,
    cut_bytes: np.ndarray, cut_s: np.ndarray, alive: np.ndarray, m: int, most_s: float, flush: bool, most_steps: int,
) -> tuple[bool, int]:
    """Whether a pipeline of two stages or more may end within `most_s`; False is proven. And the steps that it took.

    Parameters
    ----------
    work_s, forward_s, backward_s, after_s : float64 [C, B + 1, B + 1], of each choice of GPUs, of a stage by its first
        block and the block behind its last: the least seconds of a micro-batch, forward and backward, forward,
        backward; what follows the last one. They rise with the last block.
    hold : int64 [C, B + 1, B + 1], micro-batches that there is memory for; 0: it does not fit.
    share : float64 [C, B + 1, B + 1, 2], least and most of a micro-batch that the first type may do.
    used : int64 [S, C], state of GPUs after that choice, larger than before; -1: there are not so many.
    kind : int64 [C], of each choice, below K.
    a_byte_s : float64 [C, K, 3], seconds of a message to or from a stage of each kind, for each byte of a sample:
        however it is shared; where the GPUs of the first type had all of it; where the others had.
    over_s : float64 [C, 2], seconds for each byte of a sample that comes to its GPUs of the first type, or of another,
        over the network.
    cut_bytes : float64 [2 B], of a sample that cross a cut at each place; inf: there is none.
    cut_s : float64 [B, 2], least seconds forward and backward of a block that is cut.
    alive : bool [2 B, S], whether what comes before a place may be done by those GPUs, and the rest by the others.
    m : micro-batches.
    flush : whether a pipeline fills and drains.
    most_steps : choices for a state that are looked at, times their last blocks, at most; then it is not disproved.
    """
    choices, blocks = work_s.shape[0], work_s.shape[1] - 1
    places, states, kinds = 2 * blocks, used.shape[0], a_byte_s.shape[1]
    # Least time of a micro-batch through all that is behind a place, by GPUs used before and by the kind of the stage
    # that begins there; and the fewest stages.
    steps = 0
    behind, stages = np.full((places, states, kinds), np.inf), np.full((places, states), places)
    for place in range(places - 1, 0, -1):
        if cut_bytes[place] == np.inf:
            continue
        first = (place + 1) // 2
        for s in range(states - 1, -1, -1):
            if not alive[place, s]:
                continue
            for c in range(choices):
                then = used[s, c]
                if steps > most_steps:
                    return True, steps
                if then < 0 or m * cut_bytes[place] * a_byte_s[c, :, 0].min() > most_s:
                    continue
                # A stage may lie in a block that is cut: it has nothing that is told.
                for j in range(place // 2, blocks + 1):
                    steps += 1
                    if j < first:
                        work, after, longer, held = 0.0, 0.0, 0.0, m
                        low, high = share[c, 0, 0]
                    else:
                        low, high = share[c, first, j]
                        work, after, held = work_s[c, first, j], after_s[c, first, j], hold[c, first, j]
                        longer = (m - 1) * max(forward_s[c, first, j], backward_s[c, first, j])
                    if m * work + after > most_s or held < 1:
                        break
                    if j == blocks:
                        behind[place, s, kind[c]] = min(behind[place, s, kind[c]], work)
                        stages[place, s] = 1
                        continue
                    for at in range(2 * j, 2 * j + 2):
                        if at < place or (at == place and place % 2 == 0) or cut_bytes[at] == np.inf:
                            continue
                        if held < min(m, stages[at, then] + 1):
                            continue
                        least = np.inf
                        for to in range(kinds):
                            message = cut_bytes[at] * _a_byte_s(a_byte_s[c, to], low, high)
                            least = min(least, behind[at, then, to] + 2 * message)
                        through = work + least
                        if at % 2 == 1 and at > place:
                            through += cut_s[j, 0] + cut_s[j, 1]
                        if through == np.inf or (flush and through + longer + after > most_s):
                            continue
                        behind[place, s, kind[c]] = min(behind[place, s, kind[c]], through)
                        stages[place, s] = min(stages[place, s], stages[at, then] + 1)
    # Least forward and backward, forward, and backward of what is before a place, by the kind of the last stage there:
    # without its message, and with it, by the kind of the next stage.
    done = np.full((places, states, kinds, 3), np.inf)
    sent = np.full((places, states, kinds, kinds, 3), np.inf)
    shares = np.full((places, states, kinds, 2), np.inf)
    shares[..., 1] = -np.inf
    known = np.zeros(3)
    for place in range(places):
        first = (place + 1) // 2
        for s in range(states):
            if (place == 0 and s > 0) or (place > 0 and done[place, s].min() == np.inf):
                continue
            known[:] = 0.0
            for c in range(choices):
                then = used[s, c]
                if steps > most_steps:
                    return True, steps
                if then < 0:
                    continue
                for j in range(place // 2, blocks + 1):
                    steps += 1
                    if j < first:
                        work, after, forward, backward, held = 0.0, 0.0, 0.0, 0.0, m
                        low, high = share[c, 0, 0]
                    else:
                        work, after, held = work_s[c, first, j], after_s[c, first, j], hold[c, first, j]
                        forward, backward = forward_s[c, first, j], backward_s[c, first, j]
                        low, high = share[c, first, j]
                    if place > 0:
                        known[:] = np.inf
                        for of in range(kinds):
                            # What the first type has more of than the stage before crosses to it, and what it has less.
                            over = max((low - shares[place, s, of, 1]) * over_s[c, 0],
                                       (shares[place, s, of, 0] - high) * over_s[c, 1])
                            got = cut_bytes[place] * max(over, _a_byte_s(a_byte_s[c, of], low, high))
                            if m * got > most_s:
                                continue
                            for k in range(3):
                                came = done[place, s, of, k] + (2 * got if k == 0 else got)
                                known[k] = min(known[k], max(sent[place, s, of, kind[c], k], came))
                    if not flush:
                        if place > 0 and known[0] == np.inf:
                            break
                        known[:] = 0.0
                    both, there, back = known
                    after = max(after, back)
                    if max(both + m * work, there + m * work + after) > most_s or held < 1:
                        break
                    if j == blocks:
                        if place > 0:
                            return True, steps
                        continue
                    for at in range(2 * j, 2 * j + 2):
                        if at < place or (at == place and place % 2 == 0) or cut_bytes[at] == np.inf:
                            continue
                        if held < min(m, stages[at, then] + 1):
                            continue
                        cut = cut_s[j] * (at % 2 == 1 and at > place)
                        for to in range(kinds):
                            message = cut_bytes[at] * _a_byte_s(a_byte_s[c, to], low, high)
                            if behind[at, then, to] == np.inf or m * message > most_s:
                                continue
                            if flush:
                                rest = behind[at, then, to] + 2 * message + cut[0] + cut[1]
                                longer = (m - 1) * max(forward, backward)
                                if max(both, there + after) + work + rest + longer > most_s:
                                    continue
                                if both + m * message > most_s:
                                    continue
                            end = done[at, then, kind[c]]
                            end[0] = min(end[0], both + work + cut[0] + cut[1])
                            end[1] = min(end[1], there + forward + cut[0])
                            end[2] = min(end[2], back + backward + cut[1])
                            shares[at, then, kind[c], 0] = min(shares[at, then, kind[c], 0], low)
                            shares[at, then, kind[c], 1] = max(shares[at, then, kind[c], 1], high)
                            end = sent[at, then, kind[c], to]
                            end[0] = min(end[0], both + work + cut[0] + cut[1] + 2 * message)
                            end[1] = min(end[1], there + forward + cut[0] + message)
                            end[2] = min(end[2], back + backward + cut[1] + message)
    return False, steps
