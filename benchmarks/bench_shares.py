"""Gavel's policies: CPU seconds of a decision, median and 99th percentile, by the number of jobs that are there; and a
whole run of 1,000 jobs on 36 V100, 36 P100 and 36 K80 under max-min fairness (Gavel's own simulator: 36 CPU seconds).

Jobs are of the types of Gavel's rates, gangs of 1, 2, 4 and 8 GPUs (70, 10, 15, 5 %), ages and work left log-normal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.conftest import DATA
from policies.registry import make
from policies.shares.demand import grouped
from policies.shares.finish_time import fairest_finish
from policies.shares.objectives import fair_need, fairest
from policies.shares.water_filling import always, filled
from sim.api import Decision, View
from sim.engine.simulate import simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.tables import load_table
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import nodes
from traces.trace import Trace

RATES = DATA / "gavel" / "simulation_throughputs.json"
TYPES = ("v100", "p100", "k80")
GPUS = np.full(3, 36.0)
DECISIONS = 40

pytestmark = pytest.mark.skipif(not RATES.is_file(), reason="Gavel's rates are not there (HETSIM_DATA)")


def kinds() -> tuple[list[str], np.ndarray]:
    """Job types that run alone on each GPU type, and their rates: float64 [kinds, types]."""
    rates = json.loads(RATES.read_text())
    names = [key[2:-5] for key in rates["v100"] if key.endswith("', 1)") and all(rates[t][key]["null"] for t in TYPES)]
    return names, np.array([[rates[t][f"('{name}', 1)"]["null"] for t in TYPES] for name in names])


def drawn(jobs: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Speeds, gangs, ages (s) and work left of so many jobs."""
    _, rates = kinds()
    gpus = rng.choice([1.0, 2.0, 4.0, 8.0], jobs, p=[0.7, 0.1, 0.15, 0.05])
    speed = rates[rng.integers(0, len(rates), jobs)] * gpus[:, None] ** 0.9
    return speed, gpus, rng.lognormal(9, 1, jobs), rng.lognormal(9.5, 1, jobs) * speed[:, 0]


def las(speed: np.ndarray, gpus: np.ndarray, age_s: np.ndarray, left: np.ndarray) -> None:
    demand, _, _ = grouped(speed, gpus, GPUS)
    fairest(demand, fair_need(demand, np.ones(demand.gpus.size)))


def water(speed: np.ndarray, gpus: np.ndarray, age_s: np.ndarray, left: np.ndarray) -> None:
    demand, _, _ = grouped(speed, gpus, GPUS)
    filled(demand, always(np.ones(demand.gpus.size)))


def makespan(speed: np.ndarray, gpus: np.ndarray, age_s: np.ndarray, left: np.ndarray) -> None:
    demand, first, _ = grouped(speed, gpus, GPUS, left)
    fairest(demand, left[first])


def finish(speed: np.ndarray, gpus: np.ndarray, age_s: np.ndarray, left: np.ndarray, centre: bool = False) -> None:
    demand, first, _ = grouped(speed, gpus, GPUS, age_s, left)
    part = demand.rate(demand.equal())
    # What is done would have taken a part of its own as long as it took: all compete for what is left.
    fairest_finish(demand, age_s[first], left[first], age_s[first] + left[first] / part, centre=centre)


def finish_centre(*given: np.ndarray) -> None:
    finish(*given, centre=True)


@pytest.mark.parametrize("jobs", [32, 128, 512, 2000])
@pytest.mark.parametrize("ask", [las, water, makespan, finish, finish_centre], ids=lambda ask: ask.__name__)
def test_decision(ask: Callable[..., None], jobs: int, capsys: Any) -> None:
    rng = np.random.default_rng([jobs, 7])
    ask(*drawn(jobs, rng))
    took_s = []
    for _ in range(DECISIONS if jobs <= 512 else 10):
        given = drawn(jobs, rng)
        begin = time.process_time()
        ask(*given)
        took_s.append(time.process_time() - begin)
    with capsys.disabled():
        p50, p99 = np.quantile(took_s, [0.5, 0.99])
        print(f"\n{ask.__name__}, {jobs} jobs: p50 {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms of CPU", end="")


@pytest.mark.parametrize("settings", [{}, {"objective": "ftf"}, {"water_filling": True}], ids=str)
def test_thousand_jobs(settings: dict[str, Any], capsys: Any) -> None:
    """Gangs of one, arrivals 1,200 s apart in the mean, 10^[1.5, 4] minutes on a V100, as Gavel draws them."""
    rng = np.random.default_rng(0)
    names, rates = kinds()
    kind = rng.integers(0, len(names), 1000)
    duration_s = 60 * 10 ** np.where(rng.random(1000) < 0.8, rng.uniform(1.5, 3, 1000), rng.uniform(3, 4, 1000))
    trace = Trace.from_columns({
        "job_id": [str(i) for i in range(1000)], "submit_s": rng.exponential(1200, 1000).cumsum(),
        "duration_s": duration_s, "num_gpus": [1] * 1000, "batch_size": [1] * 1000, "model": [names[k] for k in kind],
        "work_iters": duration_s * rates[kind, 0]})
    cluster = nodes(("V100", 36, 1), ("P100", 36, 1), ("K80", 36, 1))
    performance = Performance(table=load_table(RATES))
    policy, decided_s = make("gavel", settings), list[float]()
    decide = policy.decide

    def timed(view: View) -> Decision:
        begin = time.process_time()
        decision = decide(view)
        decided_s.append(time.process_time() - begin)
        return decision

    policy.decide = timed  # type: ignore[method-assign]
    begin = time.process_time()
    work = Modelled(trace, cluster, performance, gpu_type("V100"))
    result = simulate(trace, cluster, policy, work, EngineConfig(preemption_overhead_s=0.0),
                      performance=performance, estimate_s=work.work_total / work.reference_rate)
    took_s = time.process_time() - begin
    decisions = result.tables["decisions"]
    there = np.mean(decisions["queued"].to_numpy() + decisions["running"].to_numpy())
    with capsys.disabled():
        p50, p99 = 1e3 * np.quantile(decided_s, [0.5, 0.99])
        print(f"\n1,000 jobs, {settings}: {took_s:.2f} CPU s, {len(decided_s)} decisions in {sum(decided_s):.2f} s, "
              f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, {there:.0f} jobs there in the mean", end="")
