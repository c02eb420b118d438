"""First in, first out: a job that does not fit blocks all behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.mechanisms import Ordered


@dataclass
class Fifo(Ordered):
    """First in, first out, with head-of-line blocking: the default of YARN and of most papers' baselines."""

    skip: ClassVar[bool] = False
