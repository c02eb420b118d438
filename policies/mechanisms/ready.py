"""When GPUs of one type come free, by count: believed ends of what runs, and of what is planned."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable

import numpy as np

Release = tuple[float, int]
"""When GPUs come free, and how many: s, milli-GPU."""


class Ready:
    """GPUs of a type as they come free; who is planned takes those that are free first (list scheduling).

    Nobody starts before one who was planned earlier.
    """

    def __init__(self, releases: Iterable[Release]) -> None:
        self._releases = sorted(releases)

    def start_s(self, milli: int) -> float:
        """When so many are free (inf: never, as is known now)."""
        for at_s, freed in self._releases:
            milli -= freed
            if milli <= 0:
                return at_s
        return math.inf

    def starts_s(self, milli: np.ndarray) -> np.ndarray:
        """The same for several numbers: float64."""
        at_s = np.array([at_s for at_s, _ in self._releases] + [math.inf])
        until = np.cumsum([freed for _, freed in self._releases], dtype=np.int64)
        return np.asarray(at_s[np.searchsorted(until, milli)])

    def take(self, milli: int, run_s: float) -> float:
        """Plan a job of so many, which are free at some time, for so long: when it starts."""
        left, used, at_s = milli, 0, -math.inf
        while left > 0:
            at_s, freed = self._releases[used]
            left -= freed
            used += 1
        self._releases[:used] = [(at_s, -left)] if left else []
        insort(self._releases, (at_s + run_s, milli))
        return at_s


class Gaps:
    """GPUs of a type that are free over time; who is planned takes the first gap that is wide and long enough."""

    def __init__(self, now_s: float, releases: Iterable[Release]) -> None:
        pairs = sorted(releases)
        self._at_s = np.array([now_s, *(at_s for at_s, _ in pairs)])
        self._free = np.cumsum([0, *(milli for _, milli in pairs)])

    def start_s(self, milli: int, run_s: float) -> float:
        """When the first gap begins in which so many are free for so long (inf: there is none)."""
        short = self._free < milli
        # Of each instant, the next one at which too few are free.
        at = np.where(short, self._at_s, np.inf)
        next_short_s = np.minimum.accumulate(at[::-1])[::-1]
        fits = np.flatnonzero(~short & (next_short_s >= self._at_s + run_s))
        return float(self._at_s[fits[0]]) if fits.size else np.inf

    def take(self, milli: int, run_s: float, begin_s: float) -> None:
        """Plan a job of so many for so long, from an instant that `start_s` gave."""
        end_s = begin_s + run_s
        if run_s == 0 or np.isinf(begin_s):
            return
        after = int(np.searchsorted(self._at_s, end_s, side="right"))
        if self._at_s[after - 1] < end_s:
            self._at_s = np.insert(self._at_s, after, end_s)
            self._free = np.insert(self._free, after, self._free[after - 1])
        self._free[(self._at_s >= begin_s) & (self._at_s < end_s)] -= milli
