"""GPUs by type and the times at which they come free, as gangs are put on them one after the other."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

NEVER = float("inf")


class Machines:
    """When the GPUs of each type come free, in s from now on; a gang takes those that are free first, all at once.

    Attributes
    ----------
    free_s : of each type, the times of its GPUs, ascending.
    kept_s : of each type, when the first gang begins for which GPUs that are free now are kept; inf: none is.
    """

    def __init__(self, free_s: Sequence[Sequence[float]]) -> None:
        self.free_s = [sorted(times) for times in free_s]
        self.kept_s = [NEVER] * len(self.free_s)

    def start_s(self, t: int, width: int) -> float:
        """When so many GPUs of a type are free at once; inf: it has not so many."""
        free = self.free_s[t]
        return free[width - 1] if width <= len(free) else NEVER

    def take(self, t: int, width: int, time_s: float) -> float:
        """A gang takes its GPUs for so long; returns when it starts."""
        free = self.free_s[t]
        start_s = free[width - 1]
        if free[0] == 0 < start_s:
            self.kept_s[t] = min(self.kept_s[t], start_s)
        del free[:width]
        for _ in range(width):
            insort(free, start_s + time_s)
        return start_s

    def any_free(self) -> bool:
        """Whether a GPU is free now, and kept for nobody."""
        return any(free and free[0] == 0 for free in self.free_s)
