"""Pipeline schedules on one core: stage evaluations a second, in the kernel and through its checked door, and against
the SimPy twin.

A stage evaluation is one stage of one plan in a call: here 20,000 plans of 8 unequal stages with 16 micro-batches
and messages (interleaved: 4 GPUs with 2 chunks each).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sim.kernels.pipeline import gpipe_many_s, interleaved_many_s, one_f_one_b_many_s, pipedream_many_s
from sim.performance.iteration import schedule_ends_s, steady_period_s
from tests.performance.twins import Twin

PLANS, STAGES, MICRO_BATCHES = 20_000, 8, 16
CHUNKS = {"interleaved": 2}
KERNELS = {
    "gpipe": gpipe_many_s,
    "1f1b": one_f_one_b_many_s,
    "interleaved": interleaved_many_s,
    "async": pipedream_many_s,
}


def best_s(run: Callable[[], Any], rounds: int = 3) -> float:
    """Least seconds of a few runs."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.mark.parametrize("schedule", KERNELS)
def test_pipelines(benchmark: Any, schedule: str) -> None:
    rng, v = np.random.default_rng([3, 5]), CHUNKS.get(schedule, 1)
    fwd, bwd, sync = rng.uniform(0.1, 2.0, (3, PLANS, STAGES))
    there, back = rng.uniform(0.0, 0.3, (2, PLANS, STAGES - 1))
    p, m, chunks = (np.full(PLANS, n) for n in (STAGES // v, MICRO_BATCHES, v))
    times = (fwd, bwd, there, back)
    # The twin of the asynchronous schedule plays the micro-batches and finds no steady state.
    kernel_args = {"async": (*times, sync, p), "interleaved": (*times, p, m, chunks)}.get(schedule, (*times, p, m))
    kernel = KERNELS[schedule]
    kernel(*kernel_args)

    def door() -> Any:
        if schedule == "async":
            return steady_period_s(*times, sync, p)
        return schedule_ends_s(schedule, *times, p, m, chunks=v)

    def twins() -> None:
        for i in range(20):
            Twin(schedule, fwd[i], bwd[i], there[i], back[i], MICRO_BATCHES, chunks=v)

    benchmark.pedantic(kernel, kernel_args, rounds=5, iterations=1)
    million = PLANS * STAGES / 1e6
    in_kernel, in_twin = million / benchmark.stats.stats.min, 20 * STAGES / 1e6 / best_s(twins)
    benchmark.extra_info.update(
        million_stages_per_s=round(in_kernel, 1),
        million_stages_per_s_checked=round(million / best_s(door), 1),
        x_simpy_twin=round(in_kernel / in_twin),
    )
    print(f"\n  {schedule}: {benchmark.extra_info}")


def test_one_plan_at_a_time(benchmark: Any) -> None:
    """One 1F1B plan through the door: what a single question costs."""
    one, none = np.ones((1, STAGES)), np.zeros((1, STAGES - 1))
    schedule_ends_s("1f1b", one, one, none, none, [STAGES], [MICRO_BATCHES])
    benchmark.pedantic(
        schedule_ends_s, ("1f1b", one, one, none, none, [STAGES], [MICRO_BATCHES]), rounds=200, iterations=5
    )
    row = [1.0] * STAGES
    twin = best_s(lambda: Twin("1f1b", row, row, row[1:], row[1:], MICRO_BATCHES), 10)
    benchmark.extra_info.update(
        microseconds=round(benchmark.stats.stats.min * 1e6), x_simpy_twin=round(twin / benchmark.stats.stats.min)
    )
    print(f"\n  one plan: {benchmark.extra_info}")
