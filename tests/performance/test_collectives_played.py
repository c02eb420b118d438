"""Collectives played step by step: what each GPU holds, who sends to whom, and how long a step takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.kernels.collectives import (
    all_to_all_s,
    allreduce_lines,
    allreduce_s,
    async_periods_s,
    broadcast_s,
    parameter_server_s,
    reduce_scatter_s,
    ring_allreduce_s,
    tree_allreduce_s,
    tree_depth,
)

RATE, LATENCY = 1e10, 3e-6


def gang(*gpus: int) -> np.ndarray:
    return np.array(gpus, dtype=np.int64)



def step_s(parts: int, part_bytes: float) -> float:
    """A step in which the busiest GPU passes so many parts, one after the other: at RATE, after LATENCY."""
    return LATENCY + parts * part_bytes / RATE


def play_ring(n: int, num_bytes: float) -> tuple[float, float]:
    """Seconds of the ring's reduce-scatter, and of it with the all-gather; checks that all sums are right and whole."""
    sums = np.arange(n * n, dtype=float).reshape(n, n)  # GPU, part
    total, took, half = sums.sum(axis=0), 0.0, 0.0
    for step in range(2 * (n - 1)):
        before = sums.copy()
        for gpu in range(n):
            part, to = (gpu - step) % n, (gpu + 1) % n
            sums[to, part] = before[gpu, part] + (before[to, part] if step < n - 1 else 0.0)
        took += step_s(1, num_bytes / n)
        half = took if step == n - 2 else half
    assert np.array_equal(sums, np.tile(total, (n, 1)))
    return half, took


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 16])
def test_ring_and_its_halves_played_step_by_step(n: int) -> None:
    half, whole = play_ring(n, 1e8)
    assert ring_allreduce_s(1e8, n, RATE, LATENCY) == pytest.approx(whole, rel=1e-9)
    assert reduce_scatter_s(1e8, n, RATE, LATENCY) == pytest.approx(half, rel=1e-9)


def parents(n: int, tree: int) -> list[int]:
    """Two binary trees over n GPUs (-1: the root): in order in the first, mirrored or shifted by one in the second."""
    up = [-1]
    for gpu in range(1, n):
        low = gpu & -gpu
        parent = (gpu ^ low) | (low << 1)
        up.append(parent if parent < n else gpu ^ low)
    if tree == 0:
        return up
    name: Callable[[int], int] = (lambda g: n - 1 - g) if n % 2 == 0 else (lambda g: (g + 1) % n)
    out = [-1] * n
    for gpu in range(n):
        out[name(gpu)] = name(up[gpu]) if up[gpu] >= 0 else -1
    return out


def play_tree(n: int, num_bytes: float, k: int) -> float:
    """Seconds of sums up both trees in k parts, then down again; no GPU passes more than two parts a round."""
    up = [parents(n, 0), parents(n, 1)]
    children = [[[c for c in range(n) if tree[c] == g] for g in range(n)] for tree in up]
    assert all(len(children[0][g]) + len(children[1][g]) <= 2 for g in range(n))
    rounds = 0
    for down in (False, True):
        have = np.zeros((2, n), dtype=int)  # parts complete at each GPU
        for t in (0, 1):
            for g in range(n):
                have[t, g] = k if (up[t][g] < 0 if down else not children[t][g]) else 0
        sent = np.zeros((2, n), dtype=int)
        while (have < k).any():
            rounds += 1
            before, passed = have.copy(), np.zeros((2, n), dtype=int)  # taken in, sent
            for t in (0, 1):
                for g in range(n):
                    for child in children[t][g]:
                        source, target = (g, child) if down else (child, g)
                        if sent[t, child] < before[t, source]:
                            sent[t, child] += 1
                            passed[0, target] += 1
                            passed[1, source] += 1
            for t in (0, 1):
                for g in range(n):
                    if down and up[t][g] >= 0:
                        have[t, g] = sent[t, g]
                    elif not down and children[t][g]:
                        have[t, g] = min(sent[t, c] for c in children[t][g])
            assert passed.max() <= 2
    return rounds * step_s(2, num_bytes / 2 / k)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 32])
@pytest.mark.parametrize("num_bytes", [0.0, 1e5, 1e7])
def test_double_binary_tree_played_round_by_round(n: int, num_bytes: float) -> None:
    """The formula is the best number of parts; the twin tries them all."""
    assert tree_depth(n) == math.ceil(math.log2(n))
    best = min(play_tree(n, num_bytes, k) for k in range(1, 90 if num_bytes > 1e6 else 12))
    assert tree_allreduce_s(num_bytes, n, RATE, LATENCY) == pytest.approx(best, rel=1e-9)


def test_a_tree_has_less_latency_and_a_ring_less_to_send() -> None:
    assert tree_allreduce_s(1e3, 64, RATE, LATENCY) < 0.15 * ring_allreduce_s(1e3, 64, RATE, LATENCY)
    assert tree_allreduce_s(1e9, 4, RATE, LATENCY) > 1.3 * ring_allreduce_s(1e9, 4, RATE, LATENCY)
    assert tree_allreduce_s(1e9, 1, RATE, LATENCY) == 0.0


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("num_bytes", [0.0, 1e4, 1e6])
def test_broadcast_along_a_chain_played_part_by_part(n: int, num_bytes: float) -> None:
    def play(k: int) -> float:
        have, rounds = [k] + [0] * (n - 1), 0
        while have[-1] < k:
            have = [k] + [have[g] + (have[g - 1] > have[g]) for g in range(1, n)]
            rounds += 1
        return rounds * step_s(1, num_bytes / k)

    best = min(play(k) for k in range(1, 60))
    assert broadcast_s(num_bytes, n, RATE, LATENCY) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("gpus", [(1,), (4,), (2, 2), (1, 1, 1), (4, 2), (3, 1, 2)])
def test_all_to_all_played_round_by_round(gpus: tuple[int, ...]) -> None:
    """Round d: GPU i sends to i + d. Inside a node and out of it at once; a node's GPUs share its network link."""
    node_of = [node for node, k in enumerate(gpus) for _ in range(k)]
    n, part = len(node_of), 1e8 / len(node_of)
    inside, outside, rounds_out = np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(n, dtype=int)
    for node, k in enumerate(gpus):
        inside[node] = sum(step_s(1, part) for _ in range(k - 1))
    for d in range(1, n):
        for i in range(n):
            if node_of[(i + d) % n] != node_of[i]:
                outside[node_of[i]] += part / 1e9
                rounds_out[i] += 1
    outside += [max(rounds_out[i] for i in range(n) if node_of[i] == node) * 2e-5 for node in range(len(gpus))]
    took = all_to_all_s(1e8, gang(*gpus), RATE, LATENCY, 1e9, 2e-5)
    assert took == pytest.approx(max(inside.max(), outside.max()), rel=1e-9)


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
@pytest.mark.parametrize("servers", [1, 2, 4, 5])
def test_parameter_servers_played_round_by_round(workers: int, servers: int) -> None:
    """Round r: worker i and server i + r, so that no link passes two messages at once; there, then back."""
    rounds = max(workers, servers)
    passed = {(i, (i + r) % rounds) for r in range(rounds) for i in range(workers) if (i + r) % rounds < servers}
    assert len(passed) == workers * servers
    took = sum(LATENCY + rounds * (1e8 / servers) / RATE for _ in ("there", "back"))
    assert parameter_server_s(1e8, workers, servers, RATE, LATENCY) == pytest.approx(took, rel=1e-9)


def play_async(workers: int, compute_s: float, num_bytes: float, servers: int) -> float:
    """Seconds between a worker's iterations in the long run: each computes, waits for the servers, sends, fetches.

    The servers' links together are one queue a direction, busy bytes / (servers * RATE) with each worker.
    """
    env = simpy.Environment()
    ports, ends = [simpy.Resource(env), simpy.Resource(env)], []
    busy, whole = num_bytes / servers / RATE, LATENCY + num_bytes / RATE

    def worker(number: int) -> Generator[simpy.Event, object, None]:
        for _ in range(40):
            yield env.timeout(compute_s)
            for port in ports:
                with port.request() as turn:
                    yield turn
                    yield env.timeout(busy)
                yield env.timeout(whole - busy)
            if number == 0:
                ends.append(env.now)

    for number in range(workers):
        env.process(worker(number))
    env.run()
    return float((ends[-1] - ends[-11]) / 10)


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (3, 1), (8, 1), (8, 2), (8, 8)])
@pytest.mark.parametrize("compute_s", [0.001, 0.03])
def test_asynchronous_servers_played_event_by_event(workers: int, servers: int, compute_s: float) -> None:
    periods = async_periods_s(np.full(workers, compute_s), 1e8, servers, RATE, LATENCY)
    assert periods == pytest.approx(play_async(workers, compute_s, 1e8, servers), rel=1e-9)


@given(st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=8), st.floats(0.0, 1e10), st.integers(1, 4))
def test_asynchronous_workers_share_the_servers_fairly(compute: list[float], num_bytes: float, servers: int) -> None:
    compute_s = np.array(compute)
    alone = compute_s + 2 * (LATENCY + num_bytes / RATE)
    rates = 1 / async_periods_s(compute_s, num_bytes, servers, RATE, LATENCY)
    assert (rates <= (1 + 1e-9) / alone).all()
    assert rates.sum() * num_bytes <= servers * RATE * (1 + 1e-9)
    held = rates < (1 - 1e-9) / alone
    if held.any():  # Whoever is held back has the largest rate of all, and the servers are full.
        assert rates[held] == pytest.approx(rates.max())
        assert rates.sum() * num_bytes == pytest.approx(servers * RATE)


RATES = st.floats(1e8, 1e12)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), RATES, RATES, st.floats(0.0, 1e11))
def test_lines_are_the_all_reduce(gpus: list[int], node: float, network: float, size: float) -> None:
    start, slope = allreduce_lines(gang(*gpus), node, 5e-6, network, 2e-5)
    expected = allreduce_s(size, gang(*gpus), node, 5e-6, network, 2e-5)
    assert (start + size * slope).min() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_latency_of_almost_nothing_is_none() -> None:
    assert tree_allreduce_s(1e10, 65, RATE, 1e-308) == pytest.approx(tree_allreduce_s(1e10, 65, RATE, 0.0)) == 2.0


COLLECTIVES = (ring_allreduce_s, tree_allreduce_s, reduce_scatter_s, broadcast_s)


@given(st.sampled_from(COLLECTIVES), st.integers(1, 600), st.floats(0.0, 1e11), st.floats(0.0, 1e-3))
def test_more_bytes_or_latency_is_never_faster(
    collective: Callable[[float, int, float, float], float], n: int, size: float, latency: float
) -> None:
    took = collective(size, n, RATE, latency)
    assert 0.0 <= took <= collective(size * 1.1 + 1, n, RATE, latency) * (1 + 1e-12)
    assert took <= collective(size, n, RATE, latency * 1.1 + 1e-6) * (1 + 1e-12)
    assert took <= collective(size, n, RATE / 2, latency) * (1 + 1e-12)
    if n > 1:  # No collective moves less than its own part of the bytes, nor in less than a step.
        assert took >= (size / 2 / RATE + latency) * (1 - 1e-12)
