"""Memory that was let go of, given back to the system: glibc keeps what lies below pieces that are still held."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

MANY = 100_000
"""Jobs from which on it is worth its time, some milliseconds: of a million jobs half of what was taken to draw them."""


def give_back(jobs: int = MANY) -> None:
    """Give back what the process let go of, where `jobs` are many; elsewhere, and without glibc, nothing happens."""
    trim = _trim()
    if jobs >= MANY and trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):  # no glibc
        return None
    return trim
