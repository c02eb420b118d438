"""Nodes that fail and come back: exponential times, one seeded stream a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.clock import Clock
from sim.cluster import ClusterSpec, Ledger
from sim.config import EngineConfig


class Outages:
    """Plans failures and repairs on the clock and keeps the ledger true.

    Up times of a node are exponential with mean `mtbf_h`, down times with mean `repair_h`. The engine frees the jobs
    of a failing node (`on_down`) before it goes, and is asked for a decision after each change (`ask`).
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        clock: Clock,
        ledger: Ledger,
        config: EngineConfig,
        seed: int,
        on_down: Callable[[int], None],
        ask: Callable[[], None],
    ) -> None:
        self._clock, self._ledger, self._on_down, self._ask = clock, ledger, on_down, ask
        self._mtbf_s = np.inf if config.mtbf_h is None else config.mtbf_h * 3600.0
        self._repair_s = config.repair_h * 3600.0
        self._rng = np.random.default_rng([seed, 7])
        self.num_down = 0
        self.down_s: list[list[float]] = [[] for _ in range(cluster.num_nodes)]
        self.up_s: list[list[float]] = [[] for _ in range(cluster.num_nodes)]

    def begin(self) -> None:
        """Plan the first failure of each node, if nodes fail at all."""
        if self._mtbf_s < np.inf:
            for node in range(len(self.down_s)):
                self._plan_failure(node)

    def _plan_failure(self, node: int) -> None:
        self._clock.at(float(self._clock.now) + self._rng.exponential(self._mtbf_s), self._fail, node)

    def _fail(self, event: Any) -> None:
        node, now = event.value, float(self._clock.now)
        self._on_down(node)
        self._ledger.node_down(node)
        self.num_down += 1
        self.down_s[node].append(now)
        self._clock.at(now + self._rng.exponential(self._repair_s), self._repair, node)
        self._ask()

    def _repair(self, event: Any) -> None:
        node = event.value
        self._ledger.node_up(node)
        self.num_down -= 1
        self.up_s[node].append(float(self._clock.now))
        self._plan_failure(node)
        self._ask()
