"""Planners of long chains: CPU seconds on one core, after warm-up, for a generated chain of 1,000 operators and for the
longest real graph (PipeDream's NASNet, 920 operators; skipped where the data is absent).

Generated times, parameters and activations are log-normal; each type runs each operator up to 30 % faster or slower
than its mean speed; replicas exchange gradients by a ring or a tree, whichever is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.conftest import DATA
from policies.recommend.algorithms.chain_fleet import FleetTable
from policies.recommend.algorithms.chain_large import large_fleet
from policies.recommend.algorithms.chain_renting import Renting
from policies.recommend.algorithms.long_chain import Chain, chain_of, reach_of
from sim.performance.readers import read_graph

SLOWER = np.array([1.0, 1.7, 2.6, 0.45, 3.3, 0.8])
USD_PER_H = np.array([3.06, 1.46, 0.526, 4.10, 0.35, 1.2])
ROOM_BYTES = np.array([16e9, 16e9, 16e9, 40e9, 12e9, 24e9])
BYTES_PER_S, LATENCY_S, MICRO_BATCHES = 12.5e9, 2e-4, 16


def costs(name: str, operators: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Seconds, parameters, activation bytes of each operator, and bytes that cross each cut."""
    if name == "generated":
        rng = np.random.default_rng([0, 1])
        shares = rng.lognormal(0, [[1.0], [1.5], [1.0]], (3, operators))
        op_s, params, act = shares / shares.sum(axis=1, keepdims=True) * np.array([[0.5], [1e9], [20e9]])
        return op_s, params, act, np.concatenate([[0], rng.uniform(1e6, 1e7, operators - 1), [0]])
    path = DATA / "graphs" / "pipedream" / "nasnetamobile.graph.txt"
    if not path.is_file():
        pytest.skip(f"{path} not found")
    graph = read_graph(path)
    assert graph.profile is not None
    op_s = graph.profile.fwd_s + graph.profile.bwd_s
    cut = np.concatenate([[0], graph.cut_bytes]) / MICRO_BATCHES
    return op_s / MICRO_BATCHES, graph.weight_params, graph.stored_bytes / MICRO_BATCHES, cut


def chain(name: str, types: int, replicas: int, operators: int = 1000) -> Chain:
    """1 to `replicas` GPUs a stage of each of some types."""
    op_s, params, act, cut_bytes = costs(name, operators)
    speed = np.random.default_rng([0, 2]).uniform(0.7, 1.3, (types, len(op_s))) * SLOWER[:types, None]
    r = np.tile(np.arange(1, replicas + 1), types)
    kind = np.repeat(np.arange(types), replicas)
    rounds = np.ceil(np.log2(r))
    start = LATENCY_S / MICRO_BATCHES * np.stack([r - 1, rounds])
    slope = 2 * 2 / BYTES_PER_S / MICRO_BATCHES * np.stack([(r - 1) / r, rounds])
    reach = reach_of(16 * params, act, 0 * act, (1 / r).tolist(), ROOM_BYTES[kind].tolist())
    return chain_of(
        op_s * speed[kind] / r[:, None] * (1 + 0.02 * np.log2(r))[:, None], kind.tolist(), r.tolist(),
        (USD_PER_H[:types] / 3600).tolist(), params=params, sync=np.stack([start, slope], axis=2).transpose(1, 0, 2),
        reach=reach, border_s=(cut_bytes / BYTES_PER_S)[:, None, None],
    )  # fmt: skip


def cpu_s(ask: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    answer = ask()
    return time.process_time() - began, answer


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    small = chain("generated", 2, 2, operators=20)
    Renting(small).front()
    FleetTable(small, [2, 2]).front()
    large_fleet(small, [2, 2])


@pytest.mark.parametrize("name", ["generated", "nasnet"])
def test_renting_six_types(benchmark: Any, name: str) -> None:
    problem = chain(name, 6, 64)
    front_s, front = cpu_s(lambda: benchmark.pedantic(lambda: Renting(problem).front(), rounds=1))
    within_s = (front[0].period_s * front[-1].period_s) ** 0.5
    took = {
        "least_period_s": cpu_s(lambda: Renting(problem).fastest()),
        "least_cost_s": cpu_s(lambda: Renting(problem).cheapest()),
        "least_cost_in_time_s": cpu_s(lambda: Renting(problem).cheapest(within_s)),
        "least_period_in_budget_s": cpu_s(lambda: Renting(problem).fastest_for(front[len(front) // 2].usd)),
    }
    benchmark.extra_info.update(
        front_s=round(front_s, 2), points=len(front), **{what: round(cpu, 2) for what, (cpu, _) in took.items()}
    )
    print(f"\n  {name}, CPU s: {benchmark.extra_info}")


@pytest.mark.parametrize("name", ["generated", "nasnet"])
@pytest.mark.parametrize(("types", "each"), [(3, 8), (3, 9)])
def test_every_vector_of_a_small_fleet(benchmark: Any, name: str, types: int, each: int) -> None:
    problem = chain(name, types, each)
    table_s, table = cpu_s(lambda: benchmark.pedantic(FleetTable, (problem, [each] * types), rounds=1))
    front_s, front = cpu_s(table.front)
    benchmark.extra_info.update(
        vectors=len(table.vectors), table_s=round(table_s, 2), points=len(front), front_s=round(front_s, 2)
    )
    print(f"\n  {name}, CPU s: {benchmark.extra_info}")


@pytest.mark.parametrize("name", ["generated", "nasnet"])
def test_large_fleet(benchmark: Any, name: str) -> None:
    problem = chain(name, 6, 64)
    took_s, found = cpu_s(
        lambda: benchmark.pedantic(large_fleet, (problem, [64] * 6), {"seconds": 60.0}, rounds=1)
    )
    assert found.partition is not None
    benchmark.extra_info.update(
        cpu_s=round(took_s, 1), gap_percent=round(100 * found.gap, 2), stages=len(found.partition.stages),
        gpus=sum(found.partition.counts),
    )  # fmt: skip
    print(f"\n  {name}: {benchmark.extra_info}")
