"""How a job ended, in one set of words: the written map from each log's own words to passed, killed, failed.

Killed is what a user or the system stopped; failed is what stopped itself. A job that had not ended when the
log was taken is unknown. PAI: only Terminated tasks are successful.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traces.columns import STATUSES
from traces.errors import TraceError

#: Source word (lower case) -> canonical status.
WORDS: dict[str, str] = {
    # Philly
    "pass": "passed", "killed": "killed", "failed": "failed",
    # Alibaba PAI 2020
    "terminated": "passed", "running": "unknown", "waiting": "unknown",
    # Helios and other Slurm logs
    "completed": "passed", "cancelled": "killed", "canceled": "killed", "timeout": "killed",
    "node_fail": "failed", "out_of_memory": "failed", "preempted": "killed", "suspended": "unknown",
    # Alibaba openb 2023 (Kubernetes pod phases)
    "succeeded": "passed", "pending": "unknown",
} | {word: word for word in STATUSES}


#: Source words (lower case) of a job that had GPUs and had not ended when the log was taken.
STILL = ("running", "suspended")


def still_there(words: Sequence[str]) -> np.ndarray:
    """bool[n]: by its word, in any case, the job had started and not ended when the log was taken."""
    still = {word for word in set(words) if word.strip().lower() in STILL}
    return np.array([word in still for word in words], dtype=bool)


def canonical(
    words: Sequence[str], source: str, rows: Sequence[int] | np.ndarray, row_word: str = "line",
    own: Mapping[str, str] | None = None,
) -> np.ndarray:
    """Map the words of a log, in any case, to `traces.columns.STATUSES`; `own` (lower case) go before those of `WORDS`.

    Raises
    ------
    TraceError
        A word is not in the map; the message names it, its row, and the words that are.
    """
    known = WORDS | dict(own or {})
    seen = {word: known.get(word.strip().lower()) for word in set(words)}
    out = np.array([seen[word] for word in words], dtype=object)
    for index in np.flatnonzero(out == None)[:1]:  # noqa: E711 - elementwise
        raise TraceError(
            "unknown status", where=f"{source}, {row_word} {rows[index]}, status", got=words[index],
            allowed=", ".join(known), todo="Correct the row, or add the word to traces/reading/status.py."
            if own is None else f"Say what it means: --map …,failed={words[index]} (or passed, killed, unknown).",
        )
    return out
