"""Replaying the real Philly jobs on one core with full recording: the figures that the README quotes.

Each row prints seconds and, as the baseline of the same run, its ratio to a bare SimPy calendar of the same number of
events (machines differ; ratios travel).
"""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest
import simpy

from sim.engine.simulate import RunResult
from tests.helpers import nodes, run
from traces.load import head, scale_load
from traces.trace import Trace

CASES = [
    ("fifo", 320),
    ("fifo", 40),
    ("fifo-skip", 40),
    ("srtf", 40),
    ("srsf", 40),
    ("las", 40),
    ("tiresias", 40),
    ("easy", 40),
]


def calendar_s(events: int) -> float:
    """Seconds that SimPy itself takes for so many timeouts."""
    env = simpy.Environment()
    for i in range(events):
        env.timeout(i)
    began = time.perf_counter()
    env.run()
    return time.perf_counter() - began


def note(benchmark: Any, result: RunResult, seconds: float) -> None:
    events = result.info["decisions"] * 2 + result.tables["segments"].num_rows
    benchmark.extra_info.update(
        decisions=result.info["decisions"],
        segments=result.tables["segments"].num_rows,
        peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        x_bare_simpy=round(seconds / calendar_s(events), 1),
    )
    print(f"\n  {seconds:.2f} s  {benchmark.extra_info}")


@pytest.mark.parametrize(("policy", "count"), CASES, ids=[f"{p}-{c * 8}" for p, c in CASES])
def test_philly(benchmark: Any, philly: Trace, policy: str, count: int) -> None:
    cluster = nodes(("V100", count, 8))
    result = benchmark.pedantic(run, (philly, cluster, policy), rounds=1, iterations=1)
    note(benchmark, result, benchmark.stats.stats.min)


def test_time_per_job_does_not_grow(benchmark: Any, philly: Trace) -> None:
    """Ten thousand against eighty thousand jobs at one load: seconds a job, as a ratio."""
    cluster = nodes(("V100", 40, 8))
    seconds = {}
    for jobs in (10_000, 80_000):
        trace = scale_load(head(philly, jobs), 320, 0.9)
        seconds[jobs] = min(_timed(trace, cluster) for _ in range(3)) / jobs
    benchmark.extra_info["growth"] = round(seconds[80_000] / seconds[10_000], 2)
    print(f"\n  time per job, 80,000 against 10,000 jobs: x{benchmark.extra_info['growth']}")
    benchmark.pedantic(run, (scale_load(head(philly, 10_000), 320, 0.9), cluster, "fifo"), rounds=1, iterations=1)


def _timed(trace: Trace, cluster: Any) -> float:
    began = time.perf_counter()
    run(trace, cluster, "fifo")
    return time.perf_counter() - began
