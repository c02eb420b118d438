"""A sorted queue in two standing arrays: insert and remove shift the shorter side, so that both ends are cheap."""

from __future__ import annotations

from sim.kernels.jit import jit, part


@part
def find(rows, keys, head, size, row, key):
    """Position (from `head`) of the first entry that is not before (key, row)."""
    low, high = 0, size
    while low < high:
        mid = (low + high) // 2
        k = keys[head + mid]
        if k < key or (k == key and rows[head + mid] < row):
            low = mid + 1
        else:
            high = mid
    return low


@jit
def insert(rows, keys, head, size, row, key):
    """Insert (key, row) in order; returns the new head. The arrays must have room for one more."""
    capacity = rows.size
    at = find(rows, keys, head, size, row, key)
    left = at < size - at
    if left and head == 0:
        left = False
    if not left and head + size == capacity:
        if head == 0:
            raise ValueError("queue arrays are full")
        # No room on the right: move everything into the middle, once in a long while.
        new = (capacity - size) // 2
        for i in range(size):
            rows[new + i] = rows[head + i]
            keys[new + i] = keys[head + i]
        head = new
    if left:
        head -= 1
        for i in range(head, head + at):
            rows[i] = rows[i + 1]
            keys[i] = keys[i + 1]
    else:
        for i in range(head + size, head + at, -1):
            rows[i] = rows[i - 1]
            keys[i] = keys[i - 1]
    rows[head + at] = row
    keys[head + at] = key
    return head


@jit
def remove(rows, keys, head, size, row, key):
    """Remove (key, row); returns the new head, or -1 where it is not there."""
    at = find(rows, keys, head, size, row, key)
    if at >= size or rows[head + at] != row:
        return -1
    if at < size - at:
        for i in range(head + at, head, -1):
            rows[i] = rows[i - 1]
            keys[i] = keys[i - 1]
        return head + 1
    for i in range(head + at, head + size - 1):
        rows[i] = rows[i + 1]
        keys[i] = keys[i + 1]
    return head
