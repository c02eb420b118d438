"""The least that a replay can take: SimPy as the calendar, Numba for the GPUs, first come first served, nothing kept.

Jobs wait in one queue; the first starts as soon as so many GPUs are idle, on those of the lowest numbers (the rule
`count`). What is recorded is the end of each job. A run of the simulator does this and all else that it promises, so
its time over that of this loop, in the same run of a bench, says what the rest costs, on any machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np
import simpy
from numba import njit

from traces.trace import Trace

SAME_S = 1e-6
"""Instants this near are one: now plus what is left until a submission may fall short of it in the last digit."""


@njit
def _take(free: np.ndarray, wanted: int) -> np.ndarray:
    out = np.empty(wanted, np.int32)
    found = 0
    for gpu in range(free.size):
        if found == wanted:
            break
        if free[gpu]:
            free[gpu] = False
            out[found] = gpu
            found += 1
    return out


@njit
def _give(free: np.ndarray, gpus: np.ndarray) -> None:
    for gpu in gpus:
        free[gpu] = True


def ends_s(submit_s: list[float], duration_s: list[float], wanted: list[int], gpus: int) -> np.ndarray:
    """When each job ends, in s on the clock of the submissions; nan: it wants more GPUs than there are.

    Parameters
    ----------
    submit_s : in order of time; of jobs of one instant, those that are first in the list are first in the queue.
    """
    env, waiting, free, idle = simpy.Environment(submit_s[0]), deque[int](), np.ones(gpus, bool), gpus
    ends, held, due = np.full(len(submit_s), np.nan), dict[int, np.ndarray](), 0

    def start() -> None:
        nonlocal idle
        while waiting and wanted[waiting[0]] <= idle:
            job = waiting.popleft()
            held[job] = _take(free, wanted[job])
            idle -= wanted[job]
            env.timeout(duration_s[job], job).callbacks.append(finish)

    def finish(event: Any) -> None:
        nonlocal idle
        job = event.value
        _give(free, held.pop(job))
        idle += wanted[job]
        ends[job] = env.now
        start()

    def submit(_: Any) -> None:
        nonlocal due
        while due < len(submit_s) and submit_s[due] <= env.now + SAME_S:
            if wanted[due] <= gpus:
                waiting.append(due)
            due += 1
        start()
        if due < len(submit_s):
            env.timeout(max(submit_s[due] - env.now, 0.0)).callbacks.append(submit)

    env.timeout(0.0).callbacks.append(submit)
    env.run()
    return ends


def bare_s(trace: Trace, gpus: int) -> tuple[float, float]:
    """CPU seconds that the loop takes for a trace, and the mean completion time of the jobs that fit, in s."""
    _give(np.ones(1, bool), _take(np.ones(1, bool), 1))  # compiled before the clock is looked at
    submit_s, duration_s, wanted = trace.submit_s.tolist(), trace.duration_s.tolist(), trace.num_gpus.tolist()
    began = time.process_time()
    ends = ends_s(submit_s, duration_s, wanted, gpus)
    took_s = time.process_time() - began
    return took_s, float(np.nanmean(ends - trace.submit_s))


def main(settings: dict[str, Any]) -> None:
    """Print, as JSON, what the loop takes for the jobs and GPUs of a run."""
    from sim.settings.config import RunConfig
    from sim.sweeps.replay import Replay

    replay = Replay(RunConfig(**settings))
    took_s, jct_s = bare_s(replay.workload.trace, replay.cluster.num_gpus)
    print(json.dumps({"cpu_s": took_s, "mean_jct_s": jct_s}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
