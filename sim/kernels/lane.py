"""The fast lane: submissions, ends and decisions of a run in one compiled loop, while a kernel can decide.

It does what `sim.engine` does, event by event, with the same arithmetic in the same order, on the engine's own arrays;
it stops, with everything whole, where only Python can go on. The groups of arrays are those of `sim.kernels.lanejobs`.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.admit import admit, fill_behind
from sim.kernels.jit import jit, part
from sim.kernels.keys import keys_of, next_yield_s
from sim.kernels.lanejobs import (
    ALARM,
    APPLIES,
    ATTEMPTS,
    DECISIONS,
    DONE,
    END,
    FAILED,
    GONE,
    GPUS,
    HEAD,
    HORIZON,
    IN_VAIN,
    KEY,
    LAUNCH,
    MIGRATED,
    NEXT,
    NOW,
    OPEN,
    PASSED,
    PLACED,
    PREEMPTED,
    RUNNING,
    SEGMENTS,
    SIZE,
    STOOD,
    STOPS,
    SUBMIT,
    TARGET,
    TOTAL,
    TRIES,
    VAIN_ROW,
    close,
    enqueue,
    kept_of,
    start,
)
from sim.kernels.ledger import free_share
from sim.kernels.preempt import select
from sim.kernels.queue import remove
from sim.kernels.rates import known_rate
from sim.kernels.sorting import sort_pairs

DUE, FINISHED, OVER, FULL, UNKNOWN, PLAIN, VAIN = range(7)
"""DUE: a decision is to be made. Else why the lane stops: all jobs have left; nothing is due up to the horizon; `out`
is full, or it is time to look up; a rate is unknown; only the policy itself can decide; nothing gets done."""
MAX_IN_VAIN = 100_000
"""Decisions, or interruptions, in a row that get nothing done: then the run ends and says so."""
LOOK_UP = 1 << 14
"""Decisions after which Python may look up."""


# -- an instant ------------------------------------------------------------------------------------------------------


@part
def _advance(
    slots, looked, terms, service, said, sums, marks, live, queue, held, gangs, vc_left, state, shape, out, n, f,
):
    """All that is due at the next instant, but for the decision: DUE, or why there is none.

    `slots`: shares of GPUs that may be held at once; `looked`: decisions in `out` when Python last looked up.
    """
    if _full(slots, out, n) or n[DECISIONS] - looked >= LOOK_UP:
        return FULL
    jobs, heap = len(said[SUBMIT]), live[1]
    comes = said[SUBMIT][n[NEXT]] if n[NEXT] < jobs else np.inf
    ends = sums[END, heap[0]] if n[RUNNING] > 0 else np.inf
    due = min(comes, ends, f[ALARM])
    if due > f[HORIZON] or due == np.inf:
        return OVER
    f[NOW] = due
    while n[RUNNING] > 0 and sums[END, heap[0]] == due:
        row = heap[0]
        marks[TRIES, row] += 1
        last = marks[TRIES, row] >= marks[ATTEMPTS, row]
        kept = sums[TARGET, row]
        close(row, PASSED if last else FAILED, kept - sums[DONE, row], kept, service, said, sums, marks, live, held,
               gangs, vc_left, state, shape, out, n, f)  # fmt: skip
        if last:
            n[OPEN] -= 1
            marks[LAUNCH, row] = -1
        else:
            sums[TARGET, row] = said[TOTAL][row] * (marks[TRIES, row] + 1) / marks[ATTEMPTS, row]
            enqueue(row, terms, service, sums, queue, n, f)
    while n[NEXT] < jobs and said[SUBMIT][n[NEXT]] == due:
        row = n[NEXT]
        if marks[GONE, row]:
            n[OPEN] -= 1
        else:
            enqueue(row, terms, service, sums, queue, n, f)
        n[NEXT] = row + 1
    return DUE if n[OPEN] > 0 else FINISHED


@part
def _full(slots, out, n):
    """True where `out` may not hold what the next instant brings."""
    rows, _, ids_end, ids, decisions = out
    ids_now = ids_end[n[SEGMENTS] - 1] if n[SEGMENTS] > 0 else 0
    return n[SEGMENTS] + n[RUNNING] > rows.shape[1] or ids_now + slots > ids.size or n[DECISIONS] >= decisions.shape[1]


@part
def _priced(found, rates, known, shape, n):
    """Look up the rates of what the decision places; False where one is not known."""
    rows, ends, gpus = found
    at = 0
    for i in range(n[PLACED]):
        rates[i] = known_rate(rows[i], gpus[at : ends[i]], known, shape)
        if not rates[i] > 0:
            return False
        at = ends[i]
    return True


@part
def _carry_out(
    found, known, rates, stops, terms, cost, service, said, sums, marks, live, queue, held, gangs, vc_left, state,
    shape, out, n, f,
):
    """Carry out a decision, as the engine's desk does: stops, then the moved jobs' old GPUs, moves, and starts.

    False, and nothing is done, where a rate is unknown: the same decision is to be carried out once it is known.
    """
    n[APPLIES] = 1
    if not _priced(found, rates, known, shape, n):
        return False
    n[APPLIES] = 0
    rows, ends, gpus = found
    slot_n = held[2]
    i = n[DECISIONS]
    decisions = out[4]
    n[DECISIONS] = i + 1
    decisions[0, i], decisions[1, i], decisions[2, i] = f[NOW], n[SIZE], n[RUNNING]
    moves, moved = np.zeros(n[PLACED], dtype=np.bool_), 0
    for k in range(n[PLACED]):
        moves[k] = slot_n[rows[k]] > 0
        moved += moves[k]
    decisions[3, i], decisions[4, i] = n[PLACED], n[STOPS] + moved
    for k in range(n[STOPS] + n[PLACED] if moved else n[STOPS]):
        stop = k < n[STOPS]
        if not stop and not moves[k - n[STOPS]]:
            continue
        row = stops[k] if stop else rows[k - n[STOPS]]
        stood = sums[STOOD, row]
        worked, kept = kept_of(row, cost, service, sums, f)
        close(row, PREEMPTED if stop else MIGRATED, worked, kept, service, said, sums, marks, live, held, gangs,
               vc_left, state, shape, out, n, f)  # fmt: skip
        n[IN_VAIN] = 0 if kept > stood else n[IN_VAIN] + 1
        if n[IN_VAIN] > MAX_IN_VAIN and n[VAIN_ROW] < 0:
            n[VAIN_ROW] = row
    for k in range(n[STOPS]):
        enqueue(stops[k], terms, service, sums, queue, n, f)
    for turn in range(1 if moved else 0, -1, -1):
        at = 0
        for k in range(n[PLACED]):
            row = rows[k]
            if moves[k] == (turn == 1):
                if turn == 0:
                    n[HEAD] = remove(queue[0], queue[1], n[HEAD], n[SIZE], row, sums[KEY, row])
                    n[SIZE] -= 1
                start(row, gpus[at : ends[k]], rates[k], cost, service, said, sums, marks, live, held, gangs, vc_left,
                       state, shape, n, f)  # fmt: skip
            at = ends[k]
    return True


# -- the loops -------------------------------------------------------------------------------------------------------


@jit
def run_ordered(
    rule, skip, slots, terms, known, found, rates, cost, service, said, sums, marks, live, queue, held, gangs, vc_left,
    state, shape, out, n, f,
):
    """Jobs that wait start in the order of their keys (`admit`); returns why the lane stops."""
    stops = np.empty(0, dtype=np.int32)
    looked = n[DECISIONS]
    n[STOPS] = 0
    while True:
        if n[APPLIES] == 0:
            why = _advance(slots, looked, terms, service, said, sums, marks, live, queue, held, gangs, vc_left, state,
                           shape, out, n, f)  # fmt: skip
            if why != DUE:
                return why
            n[PLACED] = 0
            if n[SIZE] > 0:
                waiting = queue[0][n[HEAD] : n[HEAD] + n[SIZE]]
                left = (state[0].copy(), state[1].copy(), state[2].copy())
                n[PLACED] = admit(waiting, skip, rule, gangs, vc_left.copy(), left, shape, found)
                if n[PLACED] == 0 and n[RUNNING] == 0:
                    return PLAIN
        if not _carry_out(found, known, rates, stops, terms, cost, service, said, sums, marks, live, queue, held, gangs,
                          vc_left, state, shape, out, n, f):  # fmt: skip
            return UNKNOWN


@jit
def run_backfilling(
    rule, _, slots, terms, known, found, behind, rates, cost, service, said, sums, marks, live, queue, held, gangs,
    vc_left, state, shape, out, n, f,
):
    """As `run_ordered`, blocking, with starts behind the first blocked job's promise (`backfill`); `terms[3]` is the
    believed run time. `behind` is as `found`, for those."""
    rows, ends, gpus = found
    stops = np.empty(0, dtype=np.int32)
    looked = n[DECISIONS]
    n[STOPS] = 0
    while True:
        if n[APPLIES] == 0:
            why = _advance(slots, looked, terms, service, said, sums, marks, live, queue, held, gangs, vc_left, state,
                           shape, out, n, f)  # fmt: skip
            if why != DUE:
                return why
            n[PLACED] = 0
            if n[SIZE] > 0:
                waiting = queue[0][n[HEAD] : n[HEAD] + n[SIZE]]
                left, free = vc_left.copy(), (state[0].copy(), state[1].copy(), state[2].copy())
                count = admit(waiting, False, rule, gangs, left, free, shape, found)
                rest = waiting[count:]
                if rest.size > 1 and free_share(free[0]) > 0:
                    more = fill_behind(rest, live[0, : n[RUNNING]], count, rule, f[NOW], terms[3], service, held, gangs,
                                       left, free, shape, found, behind)  # fmt: skip
                    at = ends[count - 1] if count > 0 else 0
                    for k in range(more):
                        rows[count + k], ends[count + k] = behind[0][k], at + behind[1][k]
                    for i in range(behind[1][more - 1] if more else 0):
                        gpus[at + i] = behind[2][i]
                    count += more
                n[PLACED] = count
                if count == 0 and n[RUNNING] == 0:
                    return PLAIN
        if not _carry_out(found, known, rates, stops, terms, cost, service, said, sums, marks, live, queue, held, gangs,
                          vc_left, state, shape, out, n, f):  # fmt: skip
            return UNKNOWN


@jit
def run_preemptive(
    rule, keep, slots, terms, known, found, chosen, rates, cost, service, said, sums, marks, live, queue, held, gangs,
    vc_left, state, shape, out, n, f,
):
    """The jobs with the smallest keys hold the GPUs (`select`); returns why the lane stops."""
    stops, goes_on, bars, totals = chosen
    looked = n[DECISIONS]
    while True:
        if n[APPLIES] == 0:
            why = _advance(slots, looked, terms, service, said, sums, marks, live, queue, held, gangs, vc_left, state,
                           shape, out, n, f)  # fmt: skip
            if why != DUE:
                return why
            f[ALARM] = np.inf
            n[PLACED] = n[STOPS] = 0
            if n[SIZE] > 0:
                run, key = _by_key(live[0, : n[RUNNING]], f[NOW], terms, service)
                first, last = n[HEAD], n[HEAD] + n[SIZE]
                left = (state[0].copy(), state[1].copy(), state[2].copy())
                n[PLACED] = select(run, key, queue[0][first:last], queue[1][first:last], keep, rule, held, gangs,
                                   vc_left.copy(), left, shape, found, chosen)  # fmt: skip
                n[STOPS] = int(totals[0])
                starts, going = n[PLACED] - int(totals[2]), int(totals[1])
                if starts == 0 and n[RUNNING] == 0:
                    return PLAIN
                if going > 0 and starts < n[SIZE] + n[STOPS]:
                    f[ALARM] = next_yield_s(goes_on[:going], bars[:going], said[GPUS], f[NOW], terms, service)
                    if not f[ALARM] > f[NOW]:
                        return PLAIN
        if not _carry_out(found, known, rates, stops, terms, cost, service, said, sums, marks, live, queue, held, gangs,
                          vc_left, state, shape, out, n, f):  # fmt: skip
            return UNKNOWN
        if n[VAIN_ROW] >= 0:
            return VAIN


@part
def _by_key(running, now_s, terms, service):
    """Running rows in the order of their keys, equal ones in that of submission, and the keys."""
    rows, keys = running.copy(), keys_of(running, now_s, terms, service)
    sort_pairs(keys, rows)
    return rows, keys
