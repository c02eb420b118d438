"""Counts of what a reader drops, repairs or reads in a special way, each with the places of its first rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

FIRST = 5
"""Places that are kept of each kind."""


class Tally:
    """Count rows by kind; what was never seen is not there.

    Parameters
    ----------
    places : int array, optional
        Number of each row in the source, for `rows`.
    word : str
        What `places` counts: "line", "job", "row".
    """

    def __init__(self, places: np.ndarray | None = None, word: str = "line") -> None:
        self._places, self._word = places, word
        self.counts: dict[str, int] = {}
        self.first: dict[str, tuple[str, ...]] = {}

    def rows(self, what: str, hit: np.ndarray) -> None:
        """Count the rows of a mask (or of indices) under `what`, in the words that a user reads."""
        index = np.flatnonzero(hit) if np.asarray(hit).dtype == bool else np.asarray(hit)
        places = index + 1 if self._places is None else self._places[index]
        self.add(what, len(index), (f"{self._word} {place}" for place in places[:FIRST]))

    def add(self, what: str, count: int, first: Iterable[str] = ()) -> None:
        """Count `count` more of `what`, first seen at the places `first`: for what comes in pieces, or has no rows."""
        if count:
            self.counts[what] = self.counts.get(what, 0) + int(count)
            self.first[what] = (*self.first.get(what, ()), *first)[:FIRST]

    def take(self, other: Tally) -> None:
        """Add the counts of another, of other rows."""
        for what, count in other.counts.items():
            self.add(what, count, other.first[what])
