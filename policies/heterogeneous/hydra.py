"""Hydra: deadlines first, then short completion times, by least-cost searches over a few jobs at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.matching.least_cost import Task, least_cost
from policies.matching.machines import Machines
from policies.mechanisms.planned import Entry, Planned
from sim.api import View, param


@dataclass
class Hydra(Planned):
    """Starts what the sequence of jobs on GPU types begins with that costs least, tardiness weighing the most.

    Cost of a sequence, over its jobs:

        sum of (completion time + late_weight × max(0, completion time - deadline))

    (Yang et al.: Hydra, IEEE Transactions on Computers 72(8), 2023: total completion time plus a
    penalty for total tardiness, least over sequences and GPUs by branch and bound). The search goes in rounds: the
    `window` most urgent jobs are placed at the least cost, then the next on what these leave, until no GPU is free
    now. Most urgent: the earliest deadline that the job can still meet, then the least believed time.

    Must know: run times and speeds, as the paper has them from sampled iterations: give it beliefs that err
    (`--estimate`, `--speed-belief`). Unknown ones: the mean of those known; equally fast on all types. A deadline that
    is past, or nearer than the job takes on any type, still costs by how late it is, and makes the job no more urgent.
    These, and searches that ended at `nodes` with the best found so far, are counted in run.json.

    Departs from the paper: its penalty is said to be dynamic, here it is a weight; gangs of several GPUs take those of
    one type that are free first. Running jobs go on to their ends (`Planned`).
    """

    late_weight: float = param(100.0, low=0, help="what a second beyond a deadline costs, in s of completion time")
    window: int = param(6, low=1, high=8, help="jobs that are placed together at the least cost")
    nodes: int = param(2000, low=1, help="branches that one search looks at, at most")

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self._late = np.zeros(len(view.jobs), dtype=bool)

    def plan(self, view: View, rows: np.ndarray, time_s: np.ndarray, machines: Machines) -> Iterator[Entry]:
        least_s = time_s.min(axis=1)
        due_s = np.where(np.isnan(view.jobs.deadline_s[rows]), np.inf, view.jobs.deadline_s[rows] - view.now_s)
        late = due_s < least_s
        self._counts["jobs with deadlines that could not be met any more as they waited"] += int(
            np.count_nonzero(late & ~self._late[rows]))
        self._late[rows[late]] = True
        order = np.lexsort((rows, least_s, np.where(late, np.inf, due_s)))
        for first in range(0, order.size, self.window):
            if not machines.any_free():
                return
            few = order[first : first + self.window]
            tasks = [Task(int(self._width[rows[i]]), tuple(time_s[i].tolist()), float(due_s[i])) for i in few]
            steps, exact = least_cost(tasks, machines, self.late_weight, self.nodes)
            self._counts["searches that ended before all branches were looked at"] += int(not exact)
            for task, on in steps:
                start_s = machines.take(on, tasks[task].width, tasks[task].time_s[on])
                yield Entry(int(rows[few[task]]), on, start_s)
