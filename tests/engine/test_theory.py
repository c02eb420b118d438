"""Queueing theory: long runs of random jobs against formulas that are exact.

Jobs of one GPU, Poisson arrivals: the cluster is then an M/G/c queue and a scheduler its discipline. A simulated mean
is compared with the formula within `SIGMAS` standard errors, estimated by batch means (Law and Kelton). Seeds are
fixed, so a test passes or fails for good, and each also demands that the standard error is small.

Least attained service in ever shorter turns is foreground-background (FB), not processor sharing: the newest job
always wins. Their means agree for exponential sizes only, as those of all disciplines do that know nothing of sizes
(M/M/1 insensitivity).

References: Kleinrock, Queueing Systems I (1975) for M/M/c, II (1976), section 4.7, for multi-level queues; Schrage and
Miller, Operations Research 14 (1966) for SRPT; Little, Operations Research 9 (1961).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.metrics.series import gpus_in_use, queue_length
from analysis.run import Run
from sim.engine.simulate import RunResult
from tests.helpers import jobs, nodes, run
from traces.trace import Trace

SIGMAS = 3.5
BATCHES = 40


@dataclass(frozen=True)
class Sizes:
    """Mixture of exponentials: with probability `weights[i]` a mean of `means[i]`."""

    weights: tuple[float, ...]
    means: tuple[float, ...]

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.exponential(np.array(self.means)[rng.choice(len(self.means), n, p=self.weights)])

    def _mix(self, part: Any) -> Any:
        return sum(w * part(m) for w, m in zip(self.weights, self.means, strict=True))

    def tail(self, x: Any) -> Any:
        """P(S > x)."""
        return self._mix(lambda m: np.exp(-x / m))

    def capped(self, x: Any) -> Any:
        """E[min(S, x)]."""
        return self._mix(lambda m: m * (1 - np.exp(-x / m)))

    def capped2(self, x: Any) -> Any:
        """E[min(S, x)²]."""
        return self._mix(lambda m: 2 * m * m * (1 - np.exp(-x / m) * (1 + x / m)))


EXPONENTIAL = Sizes((1.0,), (1.0,))
HYPER = Sizes((0.8, 0.2), (0.5, 3.0))
"""Mean 1, second moment 4: squared coefficient of variation 3."""


def poisson_trace(n: int, rate: float, sizes: np.ndarray, seed: int) -> Trace:
    arrivals = np.cumsum(np.random.default_rng([seed, 21]).exponential(1 / rate, n))
    return Trace.from_columns({
        "job_id": [str(i) for i in range(n)], "submit_s": arrivals, "duration_s": sizes, "num_gpus": [1] * n,
    })


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error by batch means, the first twentieth left out."""
    values = values[len(values) // 20 :]
    batches = values[: len(values) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    return float(values.mean()), float(batches.std(ddof=1) / np.sqrt(BATCHES))


def sojourn_s(result: RunResult) -> np.ndarray:
    table = result.tables["jobs"]
    return table["end_s"].to_numpy() - table["submit_s"].to_numpy()


def wait_s(result: RunResult) -> np.ndarray:
    table = result.tables["jobs"]
    return table["first_start_s"].to_numpy() - table["submit_s"].to_numpy()


def check(values: np.ndarray, formula: float, *, error: float) -> None:
    """The mean agrees with the formula within SIGMAS standard errors, which are at most `error` of it."""
    mean, sigma = mean_and_error(values)
    assert sigma < error * formula, f"too few jobs: standard error {sigma:.4f} of {formula:.4f}"
    assert abs(mean - formula) < SIGMAS * sigma, f"mean {mean:.4f} ± {sigma:.4f}, formula {formula:.4f}"


# -- M/M/c ---------------------------------------------------------------------------------------------------


def erlang_c(servers: int, load: float) -> float:
    """Probability of waiting: C(c, a) = (a^c / c!) / ((1 - a/c) Σ_{k<c} a^k / k! + a^c / c!), a = λ E[S]."""
    last = load**servers / factorial(servers)
    return last / ((1 - load / servers) * sum(load**k / factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(("servers", "load", "policy", "n"), [
    (1, 0.7, "fifo", 60_000), (4, 2.8, "fifo", 60_000), (8, 5.6, "fifo", 60_000), (4, 2.8, "fifo-skip", 60_000),
])
def test_mmc_waiting_time_is_erlangs(servers: int, load: float, policy: str, n: int) -> None:
    """W_q = C(c, a) / (c μ - λ), with μ = 1, and C of all jobs wait; each start is also that of the recursion

    start_i = max(arrival_i, the earliest time at which one of the c servers is free) (Kiefer and Wolfowitz 1955).
    """
    trace = poisson_trace(n, load, EXPONENTIAL.draw(np.random.default_rng([servers, 20]), n), seed=servers)
    waits = wait_s(run(trace, nodes(("V100", 1, servers)), policy))
    check(waits, erlang_c(servers, load) / (servers - load), error=0.08)
    check((waits > 0).astype(float), erlang_c(servers, load), error=0.03)
    free, expected = [0.0] * servers, np.empty(n)
    for i, (arrival, size) in enumerate(zip(trace.submit_s.tolist(), trace.duration_s.tolist(), strict=True)):
        start = max(arrival, heappop(free))
        heappush(free, start + size)
        expected[i] = start - arrival
    np.testing.assert_allclose(waits, expected, rtol=0, atol=1e-6)


def test_erlangs_formula_is_right_where_it_is_easy() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)  # M/M/1: ρ
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)  # 2ρ²/(1+ρ) with ρ = 1/2


# -- one server, disciplines that do not know sizes ----------------------------------------------------------

BLIND = [
    ("las", {"quantum_s": 0.5}), ("las", {"quantum_s": 4.0, "by": "time"}), ("tiresias", {"queue_limits": "0.5,1,2"}),
]


@pytest.mark.parametrize(("policy", "own"), BLIND)
def test_mm1_mean_sojourn_is_the_same_for_all_that_do_not_know_sizes(policy: str, own: dict[str, Any]) -> None:
    """E[T] = E[S] / (1 - ρ): with exponential sizes, what is left of a job says nothing about it."""
    n, rho = 30_000, 0.6
    trace = poisson_trace(n, rho, EXPONENTIAL.draw(np.random.default_rng([1, 20]), n), seed=1)
    check(sojourn_s(run(trace, nodes(("V100", 1, 1)), policy, own)), 1 / (1 - rho), error=0.03)


def levels_sojourn(sizes: Sizes, rate: float, quantum: float) -> float:
    """Mean sojourn of levels [kq, (k+1)q) of attained service, first come first served within each, preemptive between.

    A job of size x in [a, b) has T(x) = (λ E[min(S,b)²] / (2 (1 - ρ_b)) + x) / (1 - ρ_a), ρ_y = λ E[min(S,y)].
    """
    a = quantum * np.arange(int(400 / quantum))
    b = a + quantum
    inside = sizes.tail(a) - sizes.tail(b)  # probability of the level, and E[S; level]
    mass = sizes.capped(b) - sizes.capped(a) + a * sizes.tail(a) - b * sizes.tail(b)
    backlog = rate * sizes.capped2(b) / (2 * (1 - rate * sizes.capped(b)))
    return float((((backlog * inside) + mass) / (1 - rate * sizes.capped(a))).sum())


def fb_sojourn(sizes: Sizes, rate: float) -> float:
    """Foreground-background: T(x) = λ E[min(S,x)²] / (2 (1 - ρ_x)²) + x / (1 - ρ_x), averaged over sizes."""
    x = np.linspace(0, 120, 1_200_001)
    at = rate * sizes.capped2(x) / (2 * (1 - rate * sizes.capped(x)) ** 2) + x / (1 - rate * sizes.capped(x))
    return float((0.5 * (at[1:] + at[:-1]) * -np.diff(sizes.tail(x))).sum())


def fifo_sojourn(sizes: Sizes, rate: float) -> float:
    """Pollaczek and Khinchine: E[T] = λ E[S²] / (2 (1 - ρ)) + E[S]."""
    return float(rate * sizes.capped2(1e3) / (2 * (1 - rate * sizes.capped(1e3))) + sizes.capped(1e3))


def test_the_formulas_agree_where_they_must() -> None:
    """Short levels: FB. One level: FIFO. Exponential sizes: E[S] / (1 - ρ), whatever the levels."""
    assert levels_sojourn(HYPER, 0.7, 0.001) == pytest.approx(fb_sojourn(HYPER, 0.7), rel=2e-3)
    assert levels_sojourn(HYPER, 0.7, 390.0) == pytest.approx(fifo_sojourn(HYPER, 0.7), rel=1e-6)
    for quantum in (0.1, 1.0, 5.0):
        assert levels_sojourn(EXPONENTIAL, 0.7, quantum) == pytest.approx(1 / 0.3, rel=1e-6)
    assert fb_sojourn(HYPER, 0.7) < 1 / 0.3 < fifo_sojourn(HYPER, 0.7)  # PS would be 1 / 0.3


@pytest.mark.parametrize(("quantum", "n"), [(4.0, 30_000), (1.0, 30_000), (0.25, 20_000)])
def test_las_is_a_multi_level_queue_of_its_quantum(quantum: float, n: int) -> None:
    rho = 0.5
    trace = poisson_trace(n, rho, HYPER.draw(np.random.default_rng([2, 20]), n), seed=2)
    result = run(trace, nodes(("V100", 1, 1)), "las", {"quantum_s": quantum})
    check(sojourn_s(result), levels_sojourn(HYPER, rho, quantum), error=0.04)


def test_las_with_a_small_quantum_is_foreground_background() -> None:
    """A twentieth of the mean size: within 3 % of the limit by formula, and the run agrees with both."""
    n, rho, quantum = 20_000, 0.4, 0.05
    trace = poisson_trace(n, rho, HYPER.draw(np.random.default_rng([3, 20]), n), seed=3)
    values = sojourn_s(run(trace, nodes(("V100", 1, 1)), "las", {"quantum_s": quantum}))
    exact, limit = levels_sojourn(HYPER, rho, quantum), fb_sojourn(HYPER, rho)
    assert exact == pytest.approx(limit, rel=0.03)
    check(values, exact, error=0.03)
    mean, sigma = mean_and_error(values)
    assert mean + SIGMAS * sigma < fifo_sojourn(HYPER, rho)  # and not FIFO
    assert mean + SIGMAS * sigma < 1 / (1 - rho)  # nor processor sharing


def test_las_of_equal_sizes_is_worse_than_fifo() -> None:
    """Sizes D = 8 quanta: all end in the last level, so T = (λ D² / 2 / (1 - ρ) + D) / (1 - λ (D - q))."""
    n, rho, quantum = 12_000, 0.5, 0.125
    trace = poisson_trace(n, rho, np.ones(n), seed=4)
    values = sojourn_s(run(trace, nodes(("V100", 1, 1)), "las", {"quantum_s": quantum}))
    check(values, (rho / 2 / (1 - rho) + 1) / (1 - rho * (1 - quantum)), error=0.03)
    check(sojourn_s(run(trace, nodes(("V100", 1, 1)), "fifo")), rho / 2 / (1 - rho) + 1, error=0.02)


# -- one server, sizes known ---------------------------------------------------------------------------------


def srpt_sojourn(sizes: Sizes, rate: float) -> float:
    """Schrage and Miller: T(x) = λ E[min(S,x)²] / (2 (1 - ρ(x))²) + ∫_0^x dt / (1 - ρ(t)), ρ(t) = λ E[S; S <= t]."""
    x = np.linspace(0, 80, 800_001)
    rho = rate * (sizes.capped(x) - x * sizes.tail(x))
    serving = np.concatenate(([0.0], np.cumsum(0.5 * (1 / (1 - rho[1:]) + 1 / (1 - rho[:-1])) * np.diff(x))))
    at = rate * sizes.capped2(x) / (2 * (1 - rho) ** 2) + serving
    return float((0.5 * (at[1:] + at[:-1]) * -np.diff(sizes.tail(x))).sum())


@pytest.mark.parametrize(("policy", "sizes"), [("srtf", EXPONENTIAL), ("srtf", HYPER), ("srsf", HYPER)])
def test_srtf_is_srpt(policy: str, sizes: Sizes) -> None:
    n, rho = 30_000, 0.7
    trace = poisson_trace(n, rho, sizes.draw(np.random.default_rng([5, 20]), n), seed=5)
    check(sojourn_s(run(trace, nodes(("V100", 1, 1)), policy)), srpt_sojourn(sizes, rho), error=0.04)


def test_sjf_is_nonpreemptive_shortest_job_first() -> None:
    """Phipps: W(x) = λ E[S²] / (2 (1 - ρ(x))²), ρ(x) = λ E[S; S <= x]; E[T] = ∫ W dF + E[S]."""
    n, rho = 40_000, 0.7
    trace = poisson_trace(n, rho, EXPONENTIAL.draw(np.random.default_rng([6, 20]), n), seed=6)
    x = np.linspace(0, 60, 600_001)
    below = rho * (EXPONENTIAL.capped(x) - x * EXPONENTIAL.tail(x))
    wait = rho * 2 / (2 * (1 - below) ** 2)
    formula = float((0.5 * (wait[1:] + wait[:-1]) * -np.diff(EXPONENTIAL.tail(x))).sum()) + 1
    check(sojourn_s(run(trace, nodes(("V100", 1, 1)), "sjf")), formula, error=0.04)


# -- Little --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "easy", "srsf", "las", "tiresias"])
def test_littles_law_on_a_run_that_empties(policy: str) -> None:
    """L = λ W: jobs waiting (queue_length) and running (segments), averaged over time, are the JCTs over the time."""
    rng, n = np.random.default_rng([7, 20]), 800
    rows = zip(rng.integers(0, 40_000, n), rng.integers(0, 2000, n), rng.choice([1, 2, 4, 8], n), strict=True)
    trace = jobs(list(rows))
    result = run(trace, nodes(("V100", 4, 8)), policy, preemption_overhead_s=10.0)
    loaded = Run(Path("memory"), result.tables, result.info, result.timing)
    begin, end = loaded.window_s
    waiting = queue_length(loaded)
    area = (waiting["all"].to_numpy() * np.diff(np.append(waiting["time_s"], end))).sum()
    running = (loaded.segments["end_s"] - loaded.segments["begin_s"]).sum()
    total = (loaded.jobs["end_s"] - loaded.jobs["submit_s"]).sum()
    assert (area + running) / (end - begin) == pytest.approx(n / (end - begin) * total / n, rel=1e-9)
    assert area > 0.05 * total, "nobody waits: the law would say nothing"
    gpu_s = loaded.segments["gpus"].map(sum) * (loaded.segments["end_s"] - loaded.segments["begin_s"])
    used = gpus_in_use(loaded)
    assert (used["all"].to_numpy()[:-1] * np.diff(used["time_s"])).sum() == pytest.approx(gpu_s.sum(), rel=1e-9)
