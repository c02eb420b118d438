"""Nodes that are away: failures at random (exponential times, one seeded stream a run), and the timetable's steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.timetable import Timetable
from sim.engine.clock import CHANGE, Clock
from sim.settings.config import EngineConfig

FAILED, ABSENT = 1, 2
"""Why a node is away; it may be for both reasons, and is back when neither holds."""


class Outages:
    """Plans failures, repairs and the timetable's steps on the clock and keeps the ledger true. Nodes of one machine
    fail together.

    Up times of a node are exponential with mean `mtbf_h`, down times with mean `repair_h`, whether the timetable has
    the node there or not: the same seed fails the same nodes. The engine frees the jobs of a node (`on_down`) before
    it goes, hears of each step (`on_step`), and is asked for a decision after each change (`ask`).
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        clock: Clock,
        ledger: Ledger,
        config: EngineConfig,
        seed: int,
        timetable: Timetable,
        on_down: Callable[[np.ndarray, str], None],
        on_step: Callable[[int], None],
        ask: Callable[[], None],
    ) -> None:
        self._clock, self._ledger, self._timetable, self._first = clock, ledger, timetable, cluster.node_first
        self._with_it = cluster.with_it
        self._on_down, self._on_step, self._ask = on_down, on_step, ask
        self._mtbf_s = np.inf if config.mtbf_h is None else config.mtbf_h * 3600.0
        self._repair_s = config.repair_h * 3600.0
        self._rng = np.random.default_rng([seed, 7])
        self._why = [0] * cluster.num_nodes
        self.num_failed, self.steps_left = 0, timetable.steps
        self.down_s: list[list[float]] = [[] for _ in range(cluster.num_nodes)]
        self.up_s: list[list[float]] = [[] for _ in range(cluster.num_nodes)]

    @property
    def num_absent(self) -> int:
        """Nodes that the timetable has taken away."""
        return sum(why & ABSENT > 0 for why in self._why)

    @property
    def down(self) -> np.ndarray:
        """bool [nodes]: nodes that are not there now."""
        return np.array(self._why) > 0

    @property
    def change_to_come(self) -> bool:
        """Whether a failed node will be back, or the timetable goes on."""
        return self.num_failed > 0 or self.steps_left > 0

    def begin(self) -> None:
        """Take away what is not there at the start, and plan the first failure of each node, if nodes fail at all."""
        for node in self._timetable.nodes_at(0)[0]:
            self._down(node, ABSENT)
        self._plan_step()
        if self._mtbf_s < np.inf:
            for node in range(len(self.down_s)):
                if self._with_it(node)[0] == node:
                    self._plan_failure(node)

    # -- the timetable ------------------------------------------------------------------------------------------------

    def _plan_step(self) -> None:
        if self.steps_left:
            step = self._timetable.steps - self.steps_left + 1
            self._clock.at(float(self._timetable.time_s[step]), self._step, step, priority=CHANGE)

    def _step(self, event: Any) -> None:
        gone, back = self._timetable.nodes_at(event.value)
        for node in gone:
            self._down(node, ABSENT)
        for node in back:
            self._up(node, ABSENT)
        self.steps_left -= 1
        self._on_step(event.value)
        self._plan_step()
        self._ask()

    # -- failures -----------------------------------------------------------------------------------------------------

    def _plan_failure(self, node: int) -> None:
        self._clock.at(float(self._clock.now) + self._rng.exponential(self._mtbf_s), self._fail, node)

    def _fail(self, event: Any) -> None:
        node, now = event.value, float(self._clock.now)
        for one in self._with_it(node):
            self._down(one, FAILED)
        self.num_failed += 1
        self._clock.at(now + self._rng.exponential(self._repair_s), self._repair, node)
        self._ask()

    def _repair(self, event: Any) -> None:
        node = event.value
        for one in self._with_it(node):
            self._up(one, FAILED)
        self.num_failed -= 1
        self._plan_failure(node)
        self._ask()

    # -- both ---------------------------------------------------------------------------------------------------------

    def _down(self, node: int, why: int) -> None:
        if not self._why[node]:
            self._on_down(np.arange(self._first[node], self._first[node + 1]), "node_failed")
            self._ledger.node_down(node)
            self.down_s[node].append(float(self._clock.now))
        self._why[node] |= why

    def _up(self, node: int, why: int) -> None:
        self._why[node] &= ~why
        if not self._why[node]:
            self._ledger.node_up(node)
            self.up_s[node].append(float(self._clock.now))
