"""A few jobs, each with a deadline, put on GPUs of several types in sequence: the least cost by branch and bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policies.matching.machines import NEVER, Machines


class Task(NamedTuple):
    """A job: GPUs of its gang; time on each type (inf: cannot run there) and its deadline (inf: none), in s from now
    on."""

    width: int
    time_s: tuple[float, ...]
    due_s: float


class Step(NamedTuple):
    """What a schedule does next: which task, on which type."""

    task: int
    on: int


def cost_s(task: Task, end_s: float, late_weight: float) -> float:
    """Completion time and, weighted, what of it is beyond the deadline."""
    return end_s + late_weight * max(0.0, end_s - task.due_s)


def least_cost(
    tasks: Sequence[Task], machines: Machines, late_weight: float, nodes: int
) -> tuple[list[Step], bool]:
    """The schedule of least cost: each task begins, in turn, as soon as its type has GPUs for it.

    Steps on different types that follow one another may change places, so that only schedules are searched that go
    type by type. A branch is left where what it costs, with each other task alone as well off as it can be from there
    on, is no less than the best schedule known, which at first is greedy: in the order given, and the shortest first.

    Parameters
    ----------
    tasks : that can run, each on a type that has so many GPUs.
    nodes : branches to be looked at, at most.

    Returns
    -------
    steps, exact : the best schedule found; whether all branches were looked at, or bounded.
    """
    shortest = sorted(range(len(tasks)), key=lambda i: (min(tasks[i].time_s), i))
    best_s, best = min((_greedy(tasks, order, machines, late_weight) for order in (range(len(tasks)), shortest)),
                       key=lambda found: found[0])
    looked = 0

    def branch(left: tuple[int, ...], first: int, free: list[list[float]], spent_s: float, steps: list[Step]) -> None:
        nonlocal best_s, best, looked
        looked += 1
        if not left:
            if spent_s < best_s:
                best_s, best = spent_s, steps.copy()
            return
        bound_s, next_s = spent_s, []
        for i in left:
            task, least_s = tasks[i], NEVER
            for t in range(first, len(free)):
                if task.width <= len(free[t]) and task.time_s[t] < NEVER:
                    start_s = free[t][task.width - 1]
                    one_s = cost_s(task, start_s + task.time_s[t], late_weight)
                    least_s = min(least_s, one_s)
                    next_s.append((one_s, i, t, start_s))
            bound_s += least_s
        if bound_s >= best_s:
            return
        for one_s, i, t, start_s in sorted(next_s):
            if looked >= nodes:
                return
            after = free.copy()
            end_s = start_s + tasks[i].time_s[t]
            after[t] = sorted([*free[t][tasks[i].width:], *[end_s] * tasks[i].width])
            steps.append(Step(i, t))
            branch(tuple(j for j in left if j != i), t, after, spent_s + one_s, steps)
            steps.pop()

    branch(tuple(range(len(tasks))), 0, machines.free_s, 0.0, [])
    return best, looked < nodes


def _greedy(
    tasks: Sequence[Task], order: Sequence[int], machines: Machines, late_weight: float
) -> tuple[float, list[Step]]:
    """Each task in turn where it costs least."""
    trial, total_s, steps = Machines(machines.free_s), 0.0, []
    for i in order:
        task = tasks[i]
        one_s, t = min(
            (cost_s(task, trial.start_s(t, task.width) + time_s, late_weight), t)
            for t, time_s in enumerate(task.time_s) if time_s < NEVER and trial.start_s(t, task.width) < NEVER
        )
        trial.take(t, task.width, task.time_s[t])
        total_s += one_s
        steps.append(Step(i, t))
    return total_s, steps
