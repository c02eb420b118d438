"""Memory that is not needed any more, or not yet, is left to the system.

glibc keeps what lies below pieces that are still held, and makes zeros of what it kept.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

MANY = 100_000
"""Jobs from which on it is worth its time, some milliseconds: of a million jobs half of what was taken to draw them."""
MUCH = 1 << 20
"""Bytes from which on zeros are asked of the system itself."""


def give_back(jobs: int = MANY) -> None:
    """Give back what the process let go of, where `jobs` are many; elsewhere, and without glibc, nothing happens."""
    trim = _trim()
    if jobs >= MANY and trim is not None:
        trim(0)


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Zeros of which the system gives a page when it is first written to: `np.zeros`, but also for what is some MiB.

    Examples
    --------
    >>> zeros((2, 3), "int8").tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    size = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
    if size < MUCH or np.dtype(dtype) == object:
        return np.zeros(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):  # no glibc
        return None
    return trim
