"""What a profile costs: time for which jobs hold their GPUs without working, until their speed is known."""

from __future__ import annotations

import numpy as np


class Profiling:
    """Each job's first runs hold its GPUs for `profiling_s` in all before they work; then its speed is known.

    It comes after what a start costs anyhow, as part of the overhead. A run that ends within it leaves the rest to the
    next one.

    Attributes
    ----------
    known_s : float64 [jobs], when the job's speed is known, if it goes on; infinite while it waits for that.
    """

    def __init__(self, jobs: int, profiling_s: float) -> None:
        self._left_s = np.full(jobs, profiling_s)
        self.known_s = np.full(jobs, np.inf if profiling_s > 0 else -np.inf)

    def begin(self, row: int, now_s: float, overhead_s: float) -> float:
        """A job takes GPUs, and first pays `overhead_s`; returns the whole overhead."""
        if self._left_s[row] > 0:
            overhead_s += float(self._left_s[row])
            self.known_s[row] = now_s + overhead_s
        return overhead_s

    def end(self, row: int, now_s: float) -> None:
        """It lets go of them."""
        left = self.known_s[row] - now_s
        if left > 0:
            self._left_s[row] = min(self._left_s[row], left)
            self.known_s[row] = np.inf
        else:
            self._left_s[row] = 0.0

    def believed(
        self, rows: np.ndarray, now_s: float, rates: np.ndarray, prior: np.ndarray
    ) -> np.ndarray:
        """Rates of the jobs that are known by now; the prior of the others, where they run at all."""
        return np.where((self.known_s[rows] > now_s) & (rates > 0), prior, rates)
