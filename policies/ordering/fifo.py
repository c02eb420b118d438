"""First in, first out: a job that does not fit blocks all behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.mechanisms import Ordered


@dataclass
class Fifo(Ordered):
    """First in, first out, with head-of-line blocking, in one queue: the baseline of most papers.

    All virtual clusters and GPU types stand in it: a job that its quota or its type keeps waiting blocks those of
    others. A queue for each virtual cluster, as YARN, Philly and Kueue have, is `capacity` (with plain quotas, too).
    """

    skip: ClassVar[bool] = False
