"""How long a search may go on, and why it ended."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from policies.recommend.request.request import Request


@dataclass(frozen=True)
class Ended:
    """How a search ended.

    Attributes
    ----------
    reason : why, in words.
    early : whether it left something of its budget, since it could do no better.
    cpu_s : of the processor.
    evaluations : plans that the truth was asked for.
    """

    reason: str
    early: bool
    cpu_s: float
    evaluations: int


class Budget:
    """Seconds of this process on the processor, whatever else the machine does, or plans judged if given; from now on.

    Parameters
    ----------
    request : whose evaluations count.
    """

    def __init__(self, request: Request, seconds: float, evaluations: int | None = None) -> None:
        self._request, self._seconds = request, seconds
        self._began_s, self._before = time.process_time(), request.evaluations
        self._most = math.inf if evaluations is None else evaluations

    @property
    def spent_s(self) -> float:
        """Seconds of the processor since it began."""
        return time.process_time() - self._began_s

    @property
    def judged(self) -> int:
        """Plans judged since it began."""
        return self._request.evaluations - self._before

    @property
    def over(self) -> bool:
        """Whether nothing of it is left."""
        return self.judged >= self._most if self._most < math.inf else self.spent_s >= self._seconds

    def end(self, reason: str) -> Ended:
        """How it ended; without a reason, since the budget was over."""
        spent = (f"{self._most:,.0f} plans were judged" if self._most < math.inf
                 else f"{self._seconds:g} s of the processor were used")  # fmt: skip
        return Ended(reason or spent, bool(reason), self.spent_s, self.judged)
