"""Type queues: a queue for each GPU type; a job that takes several joins the one in which it is served first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.mechanisms import ByEnds
from policies.mechanisms.ready import Ready
from sim.api import Decision, View, param


@dataclass
class TypeQueues(ByEnds):
    """Keeps a queue of first come, first served for each GPU type; a job joins one when it comes, and stays there.

    A job whose user wishes one type joins its queue. One that takes several joins

        argmin_t of (its believed end, or start, there, behind those who are in that queue),  the cheapest among equals

    (ties: the cluster's order of types). Where no type has the GPUs at that time, it joins once one has. Must know: run
    times and speeds, of those in the queues, too. Folklore: partitions of a batch system, with a router before them.
    """

    by: str = param("finish", choices=("finish", "start"), help="what is earliest in the queue that a job joins")

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._joined = np.full(len(view.jobs), -1, dtype=np.int64)
        self._usd = np.nan_to_num([gpu.price_or_nan for gpu in view.cluster.types], nan=np.inf)

    def decide(self, view: View) -> Decision:
        if (self._joined[view.queued] < 0).any():
            self._join(view)
        return super().decide(view)

    def plan(self, view: View, rows: np.ndarray, run_s: np.ndarray) -> Iterator[tuple[int, int]]:
        for row, t in zip(rows.tolist(), self._joined[rows].tolist(), strict=True):
            if t >= 0:
                yield row, t

    def _join(self, view: View) -> None:
        """Those who have just come join a queue, in the order of submission."""
        rows, run_s = view.queued, self.run_s(view, view.queued)
        ready = [Ready(releases) for releases in self.releases(view)]
        milli, types = self.need(view, rows).tolist(), np.arange(len(ready))
        for i, row in enumerate(rows.tolist()):
            starts_s = np.array([there.start_s(milli[i]) for there in ready])
            t = int(self._joined[row])
            if t < 0:
                ends_s = starts_s + run_s[i]
                first = np.where(ends_s < np.inf, ends_s if self.by == "finish" else starts_s, np.inf)
                t = int(np.lexsort((types, self._usd, first))[0])
                if not first[t] < np.inf:
                    continue
                self._joined[row] = t
            if starts_s[t] < np.inf:
                ready[t].take(milli[i], float(run_s[i, t]))
