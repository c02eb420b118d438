"""What happens to one job in the fast lane: it joins those that run, is written down, leaves, waits, starts.

The groups of arrays are those of `sim.kernels.ledger` and these, each with a row for what is named and a column a job:

`service`  what jobs have had, as in `sim.kernels.service`
`said`     SUBMIT, TOTAL, REFERENCE, GPUS: what does not change, arrays that others have, too
`sums`     DONE, TARGET, RATE, STOOD, FIRST, KEY, END: work, rate and times
`marks`    ATTEMPTS, GONE, TRIES, ENDED_BY, STARTS, LAUNCH, RUNNING_AT, HEAP_AT: int32; GONE: it can never run

and `live`, int32 [2, most]: running rows in no particular order, and the heap of their ends; `queue`, rows and keys as
in `sim.kernels.queue`; `out`, what Python fetches now and then: rows and what ended them, their times and work, their
GPUs and where those end, decisions; `cost`: overhead by what ended the last segment (the last: nothing has), checkpoint
interval, whether a preemption saves work; `n` and `f`, numbers and times that change.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part
from sim.kernels.keys import key_of
from sim.kernels.ledger import give_one, take_one
from sim.kernels.queue import insert
from sim.kernels.service import BEGIN, HELD, HELD_GPU, OVERHEAD, SERVED, SLOTS_GPU, SPEED

SUBMIT, TOTAL, REFERENCE, GPUS = range(4)
DONE, TARGET, RATE, STOOD, FIRST, KEY, END = range(7)
ATTEMPTS, GONE, TRIES, ENDED_BY, STARTS, LAUNCH, RUNNING_AT, HEAP_AT = range(8)
NEXT, OPEN, LAUNCHES, RUNNING, HEAD, SIZE, SEGMENTS, DECISIONS, IN_VAIN, VAIN_ROW, PLACED, STOPS, APPLIES = range(13)
"""Of `n`: next job to come, jobs that have not left, launches so far, jobs that run, head and size of the queue, what
`out` holds, interruptions in vain and the job with one too many (-1: none), what the present decision places and
stops, whether it is being carried out (1)."""
NOW, ALARM, HORIZON = range(3)
"""Of `f`."""
PASSED, FAILED, PREEMPTED, MIGRATED, NOTHING = range(5)
"""What ends a segment (the engine knows their names)."""
INTERVAL, SAVES = NOTHING + 1, NOTHING + 2
"""Of `cost`, behind the overheads."""


# -- the ends of running jobs, the next one first; of equal times the earlier launch comes first ---------------------


@part
def _before(a, b, sums, marks):
    return sums[END, a] < sums[END, b] or (sums[END, a] == sums[END, b] and marks[LAUNCH, a] < marks[LAUNCH, b])


@part
def _put(place, row, heap, marks):
    heap[place] = row
    marks[HEAP_AT, row] = place


@part
def _sift(place, row, size, heap, sums, marks):
    """Put a row where it belongs in a heap of `size` rows, from a free place on."""
    while place > 0 and _before(row, heap[(place - 1) // 2], sums, marks):
        _put(place, heap[(place - 1) // 2], heap, marks)
        place = (place - 1) // 2
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _before(heap[below + 1], heap[below], sums, marks):
            below += 1
        if not _before(heap[below], row, sums, marks):
            break
        _put(place, heap[below], heap, marks)
        place = below
    _put(place, row, heap, marks)


@jit
def add_running(row, live, sums, marks, n):
    """Put a row, whose launch and end stand already, among those that run."""
    count = n[RUNNING]
    live[0, count] = row
    marks[RUNNING_AT, row] = count
    n[RUNNING] = count + 1
    _sift(count, row, count, live[1], sums, marks)


@part
def _drop_running(row, live, sums, marks, n):
    count = n[RUNNING] - 1
    n[RUNNING] = count
    place, last = marks[RUNNING_AT, row], live[0, count]
    live[0, place] = last
    marks[RUNNING_AT, last] = place
    place, last = marks[HEAP_AT, row], live[1, count]
    if last != row:
        _sift(place, last, count, live[1], sums, marks)


# -- what happens to one job -----------------------------------------------------------------------------------------


@part
def _record(row, why, worked, lost, service, sums, held, out, n, f):
    rows, times, ids_end, ids, _ = out
    slots, slot_at, slot_n = held
    i, now = n[SEGMENTS], f[NOW]
    begin_s = service[BEGIN, row]
    rows[0, i], rows[1, i] = row, why
    times[0, i], times[1, i], times[2, i] = begin_s, now, service[OVERHEAD, row]
    times[3, i], times[4, i], times[5, i] = sums[RATE, row], worked, lost
    at = ids_end[i - 1] if i > 0 else 0
    first, count = slot_at[row], slot_n[row]
    for s in range(count):
        ids[at + s] = slots[first + s]
    ids_end[i] = at + count
    n[SEGMENTS] = i + 1
    service[HELD, row] += now - begin_s
    service[HELD_GPU, row] += (now - begin_s) * service[SLOTS_GPU, row]


@part
def close(row, why, worked, kept, service, said, sums, marks, live, held, gangs, vc_left, state, shape, out, n, f):
    """Close a running job's segment and give its GPUs back."""
    slots, slot_at, slot_n = held
    milli, first = gangs[1][row], slot_at[row]
    for s in range(first, first + slot_n[row]):
        give_one(slots[s], milli, state, shape)
    vc_left[gangs[4][row]] += np.int64(milli) * slot_n[row]
    _record(row, why, worked, max(0.0, sums[DONE, row] + worked - kept), service, sums, held, out, n, f)
    sums[DONE, row] = kept
    marks[ENDED_BY, row] = why
    service[SERVED, row] = kept / said[REFERENCE][row]
    service[BEGIN, row] = np.nan
    slot_n[row] = 0
    _drop_running(row, live, sums, marks, n)


@part
def enqueue(row, terms, service, sums, queue, n, f):
    key = key_of(row, f[NOW], terms, service)
    sums[KEY, row] = key
    n[HEAD] = insert(queue[0], queue[1], n[HEAD], n[SIZE], row, key)
    n[SIZE] += 1


@part
def kept_of(row, cost, service, sums, f):
    """Work that a job has done since its segment began, and all that stands if it is interrupted now."""
    done, rate, interval = sums[DONE, row], sums[RATE, row], cost[INTERVAL]
    worked = max(0.0, f[NOW] - service[BEGIN, row] - service[OVERHEAD, row]) * rate
    if cost[SAVES] > 0 or interval == 0:
        return worked, done + worked
    if interval == np.inf:
        return worked, sums[STOOD, row]
    full_s = np.floor(worked / rate / interval) * interval
    return worked, done + min(worked, full_s * rate) if full_s > 0 else sums[STOOD, row]


@part
def start(row, gpus, rate, cost, service, said, sums, marks, live, held, gangs, vc_left, state, shape, n, f):
    """A job that does not wait any more gets its GPUs."""
    slots, slot_at, slot_n = held
    milli, now, first = gangs[1][row], f[NOW], slot_at[row]
    for s in range(gpus.size):
        take_one(gpus[s], milli, state, shape)
        slots[first + s] = gpus[s]
    slot_n[row] = gpus.size
    vc_left[gangs[4][row]] -= np.int64(milli) * gpus.size
    overhead = cost[marks[ENDED_BY, row]]
    if marks[STARTS, row] == 0:
        sums[FIRST, row] = now
    marks[STARTS, row] += 1
    sums[STOOD, row], sums[RATE, row] = sums[DONE, row], rate
    service[BEGIN, row], service[OVERHEAD, row] = now, overhead
    service[SPEED, row] = rate / said[REFERENCE][row]
    service[SLOTS_GPU, row] = gpus.size * milli / 1000.0
    n[LAUNCHES] += 1
    marks[LAUNCH, row] = n[LAUNCHES]
    sums[END, row] = now + overhead + max(0.0, sums[TARGET, row] - sums[DONE, row]) / rate
    add_running(row, live, sums, marks, n)
