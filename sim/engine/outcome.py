"""What the loop leaves behind, and how a guest's mistake is put into words."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

END_STATE = {"passed": "done", "unknown": "done", "killed": "killed", "failed": "failed"}
"""How a job that ran to its recorded end stands in the results, by its status in the trace."""
ENDED = frozenset(END_STATE.values())


def described(error: BaseException) -> str:
    """An exception in one line: what, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


@dataclass
class Outcome:
    """How each job stands at the end (by row), when each node was down, and what maintenance did to which GPU."""

    first_start_s: np.ndarray
    end_s: np.ndarray
    state: list[str]
    reason: list[str]
    down_s: list[list[float]]
    up_s: list[list[float]]
    maintenance: list[tuple[int, float, int, str]]
    last_s: float
    decisions: int
