"""Columns of words, and rows that were there before: as pandas finds them, without it (it takes long to import)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DENSE = 4
"""Whole numbers are looked up in a table where that has at most so many places a row."""


@dataclass(frozen=True, eq=False)
class Worded:
    """A column of text as the number of each row's word: rows of numbers are moved many times faster than texts.

    Examples
    --------
    >>> column = Worded.of_parts([("b", 2), ("a", 1)])
    >>> column[[2, 0]].text().tolist()
    ['a', 'b']
    """

    number: np.ndarray
    words: np.ndarray

    @classmethod
    def of_parts(cls, parts: Sequence[tuple[str, int]]) -> Worded:
        """Some words, each in so many rows, one after another."""
        words, rows = zip(*parts, strict=True)
        return cls(np.repeat(np.arange(len(rows)), rows), np.array(words, dtype=object))

    @classmethod
    def joined(cls, parts: Sequence[Worded]) -> Worded:
        """Columns one after another."""
        before = np.cumsum([0, *(len(part.words) for part in parts)])
        return cls(np.concatenate([part.number + first for part, first in zip(parts, before, strict=False)]),
                   np.concatenate([part.words for part in parts]))

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, rows: Any) -> Worded:
        return Worded(self.number[rows], self.words)

    def text(self) -> np.ndarray:
        """The text of each row."""
        found: np.ndarray = self.words[self.number]
        return found


def coded(values: np.ndarray, *, sort: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's word, int64, and the words: in the order in which they come, or sorted.

    `values`: texts, or whole numbers.

    Examples
    --------
    >>> codes, words = coded(np.array(["b", "a", "b"], dtype=object))
    >>> codes.tolist(), words.tolist()
    ([0, 1, 0], ['b', 'a'])
    """
    if values.dtype.kind in "iu" and len(values) and values.min() >= 0 and values.max() < DENSE * len(values) + 1024:
        codes, words = _of_a_table(values)
    else:
        row_of = values.tolist()
        number = {word: index for index, word in enumerate(dict.fromkeys(row_of))}
        codes = np.fromiter(map(number.__getitem__, row_of), dtype=np.int64, count=len(row_of))
        words = np.empty(len(number), dtype=values.dtype)
        words[:] = list(number)
    if not sort:
        return codes, words
    order = np.argsort(words, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[codes], words[order]


def _of_a_table(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first = np.full(int(values.max()) + 1, -1)
    first[values[::-1]] = np.arange(len(values))[::-1]  # of the rows of one number the first is written last
    words = np.flatnonzero(first >= 0)
    words = words[np.argsort(first[words])]
    place = np.empty(len(first), dtype=np.int64)
    place[words] = np.arange(len(words))
    return place[values], words.astype(values.dtype)


def alike(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are alike in each of some columns of whole numbers: the kind of each row, numbered in the order in
    which kinds are first met, and the first row of each kind.

    Examples
    --------
    >>> kind, first = alike(np.array([3, 3, 3, 0]), np.array([1, 2, 1, 1]))
    >>> kind.tolist(), first.tolist()
    ([0, 1, 0, 2], [0, 1, 3])
    """
    kind = np.zeros(len(columns[0]), dtype=np.int64)
    for values in columns:
        number, words = coded(values)
        kind, _ = coded(kind * len(words) + number)
    return kind, np.unique(kind, return_index=True)[1]


def among(values: np.ndarray, words: Collection[Any]) -> np.ndarray:
    """bool [rows]: whether each value is one of some words."""
    known = frozenset(words)
    return np.fromiter(map(known.__contains__, values.tolist()), dtype=bool, count=len(values))


def again(first: np.ndarray, *more: np.ndarray) -> np.ndarray:
    """bool [rows]: whether a row before is equal in all columns.

    None has NaN; the first is of numbers, best of many that differ: only rows that are equal there are looked at.
    """
    order, tied = np.argsort(first, kind="stable"), np.zeros(len(first), dtype=bool)
    same = np.diff(first[order]) == 0
    tied[1:] = same
    tied[:-1] |= same
    rows = np.sort(order[tied])
    found, seen = np.zeros(len(first), dtype=bool), set()
    keys = zip(*(column[rows].tolist() for column in (first, *more)), strict=True)
    for row, key in zip(rows.tolist(), keys, strict=True):
        if key in seen:
            found[row] = True
        seen.add(key)
    return found
