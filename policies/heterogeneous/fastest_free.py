"""Fastest free: each job in turn starts at once on the fastest GPU type that has room for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.mechanisms import Informed, nothing_to_do
from sim.api import Decision, Placement, View


@dataclass
class FastestFree(Informed):
    """Starts jobs in the order of submission, each on the type that is fastest for it of those with room now.

        type = argmax_t believed speed of the job on t, over types on which the placement rule finds it a place

    Ties: the cluster's order of types. A job that finds no place is skipped (on one type: `fifo-skip`); nobody waits
    for a faster type (opportunistic load balancing, with each task's own order of machines). Must know: speeds. A
    job that no type is believed to run is rejected.
    """

    def decide(self, view: View) -> Decision:
        decision = Decision()
        if nothing_to_do(view):
            return self.never_fits(view, decision)
        scratch, queue = view.scratch(), view.queued
        rates = self.rates(view, queue)
        self.turn_away(view, decision)
        left = scratch.type_milli().tolist()
        order = np.argsort(-rates, axis=1, kind="stable").tolist()
        for i, row in enumerate(queue.tolist()):
            gang = scratch.gang(row)
            need = gang.num_gpus * gang.gpu_milli
            for t in order[i]:
                if not rates[i, t] > 0:
                    break
                if need > left[t]:
                    continue
                gpus = scratch.place(gang._replace(types=1 << t), self.placement)
                if gpus is not None:
                    decision.start.append((row, Placement(gpus)))
                    left[t] -= need
                    break
            if not any(left):
                break
        return self.never_fits(view, decision)
