"""The queue of waiting jobs, always in the order of the policy's key (ties: submit order, that is, row number)."""

from __future__ import annotations

import numpy as np

from sim.kernels.queue import insert, remove
from traces.given_back import zeros


class JobQueue:
    """A sorted set of rows in standing arrays; `rows` and `keys` are views of what is queued now.

    The key of a waiting job does not change, so nothing is ever sorted again: entering and leaving cost a binary search
    and a shift of the shorter side.
    """

    def __init__(self, num_jobs: int) -> None:
        capacity = 2 * num_jobs + 8
        self._rows = zeros(capacity, np.int32)
        self._keys = zeros(capacity)
        self._key_of = zeros(num_jobs)
        self._head, self._size = num_jobs // 2, 0

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> np.ndarray:
        return self._rows[self._head : self._head + self._size]

    @property
    def keys(self) -> np.ndarray:
        return self._keys[self._head : self._head + self._size]

    def add(self, row: int, key: float) -> None:
        """Put a row into its place."""
        self._key_of[row] = key
        self._head = insert(self._rows, self._keys, self._head, self._size, row, key)
        self._size += 1

    def discard(self, row: int) -> bool:
        """Take a row out; False where it is not queued."""
        head = remove(self._rows, self._keys, self._head, self._size, row, self._key_of[row])
        if head < 0:
            return False
        self._head = head
        self._size -= 1
        return True

    # -- the fast lane ------------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """Where the queue begins in its arrays."""
        return self._head

    def lend(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and keys, for a kernel that adds and removes by itself."""
        return self._rows, self._keys

    def take_back(self, head: int, size: int) -> None:
        """Where the queue begins, and how long it is, after that."""
        self._head, self._size = head, size
        self._key_of[self.rows] = self.keys
